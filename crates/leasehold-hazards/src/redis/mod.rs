//! The part of Redis that the tutorials use: commands, scripts, replies, and a model of the server.

mod command;
mod holding;
mod keys;
mod model;
mod script;
mod value;

pub use command::Command;
pub use holding::Holding;
pub use keys::Value;
pub use model::Server;
pub(crate) use model::{BEGINNING_MS, seconds, session_of};
pub use script::Script;
pub use value::{Message, Reply};
