//! Distributed locks that are fast, fair, fenced and honest about loss.
#![forbid(unsafe_code)]

mod client;
mod error;
pub mod fence;
mod guard;
mod mutex;
mod real;
mod session;
mod store;
mod world;

pub use client::{Builder, Closed, Leasehold};
pub use error::{Error, ErrorKind, Lost, Result};
pub use guard::{Guard, LostSignal, Released};
pub use leasehold_spec::Token;
pub use mutex::{Holder, Inspection, Mutex, Revoked};

/// The seam between a session and the world, for simulations and tests. No promise of stability.
#[doc(hidden)]
pub mod seam {
    pub use crate::real::Real;
    #[cfg(feature = "redis")]
    pub use crate::store::redis::{RedisStore, Script, Scripts};
    pub use crate::store::{Fault, Inbox, Link, Message, Store, choose};
    pub use crate::world::{Address, Pending, Socket, World};
}

/// The README's Rust blocks, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
