//! The specification of a Leasehold lock: one pure, total function over the state of one name.
//!
//! [`step`] takes the state, the clocks, the answer to "is this inbox attached?", and one request. It changes the
//! state, and returns an answer and the messages to send. It has no clock, no I/O and no randomness. The Lua scripts
//! are tested against it, operation by operation. The embedded store runs it directly.
//!
//! ```
//! use leasehold_spec::{Acquire, Env, GrantId, Op, Outcome, Patience, Resource, SessionId, Take, step};
//!
//! let mut stock = Resource::default();
//! let env = Env { wall_us: 1_795_193_818_546_882, lease_us: 5_000_000, attached: &|_| true };
//! let id = GrantId { session: SessionId(1), counter: 1, nonce: 42 };
//! let acquire = Acquire {
//!     id,
//!     take: Take::MUTEX,
//!     lease_ms: 30_000,
//!     range: 1,
//!     not_after_us: env.lease_us,
//!     patience: Patience::Try,
//!     label: "host/job".into(),
//! };
//! let (answer, messages) = step(&mut stock, &env, &Op::Acquire(acquire));
//! assert!(matches!(answer.outcome, Outcome::Granted { left_us: 30_000_000, .. }));
//! assert!(messages.is_empty());
//! ```
#![forbid(unsafe_code)]

mod answer;
mod env;
mod grant;
mod grants;
mod id;
mod inspection;
mod latch;
pub mod limits;
pub mod mark;
pub mod mutant;
mod name;
pub mod node;
mod op;
mod policy;
mod resource;
mod step;
mod take;

pub use answer::{Answer, Contention, Delivery, Event, Joined, LostHow, Outcome, Refusal, Rest, Was};
pub use env::Env;
pub use grant::{Grant, GrantState};
pub use grants::{Grants, Unread};
pub use id::{GrantId, NotAnId, PublicId, SessionId, Token};
pub use inspection::{Holder, Inspection, ShownMode, Waiter};
pub use latch::Latch;
pub use name::{BadName, Name};
pub use op::{Acquire, From, Hears, Op, Order, Patience, Place, Renew};
pub use resource::{Entry, Lapse, Resource};
pub use step::{acquire_all, step};
pub use take::{Kind, Mode, Take};
