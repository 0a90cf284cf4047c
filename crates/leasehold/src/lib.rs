//! Distributed locks that are fast, fair, fenced and honest about loss.
//!
//! A lock that its holder can die with is a *lease*, and a live holder can lose it: look before each effect.
//!
//! | I want to | |
//! |---|---|
//! | connect | [`Leasehold::connect`], [`Leasehold::builder`] |
//! | lock, try, wait so long | [`Mutex::lock`], [`Mutex::try_lock`], [`Mutex::try_lock_for`], [`Mutex::run`] |
//! | know that I still hold | [`Guard::check`] before each effect, [`Guard::lost`] beside the work |
//! | make a resource refuse an old holder | [`Guard::token`] and [`fence`] |
//! | see, or end, another's lease | [`Mutex::inspect`], [`Mutex::revoke`] |
//! | give everything back and wait for that | [`Leasehold::close`] |
//!
//! What it does not give: exclusion of effects without a fence, re-entry, a quorum. The README says why, and what is
//! promised under which assumptions.
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
    pub use crate::store::redis::{FENCE_RIGHTS, RIGHTS, RedisStore, Script, Scripts};
    pub use crate::store::{Fault, Inbox, Link, Message, Store, choose};
    pub use crate::world::{Address, Pending, Socket, World};
}

/// The README's Rust blocks, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
