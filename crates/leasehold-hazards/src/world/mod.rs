//! The modelled world: threads, servers and a clock, and a search over every order in which they can act.
//!
//! A specimen is an ordinary `async fn`. Between two asks it is a deterministic function of the answers that it was given.
//! So a schedule is a list of [choices](Choice), and a state is what a list of choices leads to. The search never copies a
//! state: it plays the choices again from the beginning.
//!
//! Two states are equal if the servers, the clock, the judge and the faults that are left are equal, and if the threads
//! of each process have seen the same answers in the same order. So no specimen has to describe its own state.
//!
//! A process can pause anywhere: if the scene allows it, time passes while threads have something to do.

mod choice;
mod model;
mod port;
mod row;
mod search;
mod stage;
mod state;

pub use choice::{Bounds, Choice, Faults};
pub use model::World;
pub use row::{Action, Row, ServerView};
pub use search::{Found, Search, Verdict};
pub use stage::Stage;
