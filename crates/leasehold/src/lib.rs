//! Leasehold.

mod error;
mod store;
mod world;

pub use error::{Error, ErrorKind, Lost, Result};

/// For this project's own tests and benchmarks. Nothing in here is a promise.
#[doc(hidden)]
pub mod seam {
    #[cfg(feature = "redis")]
    pub use crate::store::redis::{RedisStore, Script, Scripts};
    pub use crate::store::{Fault, Inbox, Link, Message, Store};
    pub use crate::world::{Address, Pending, Socket, World};
}
