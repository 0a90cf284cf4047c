//! Distributed locks that are fast, fair, fenced and honest about loss.
//!
//! A lock that its holder can die with is a *lease*, and a live holder can lose it: look before each effect.
//!
//! ```
//! use leasehold::{Leasehold, Released, Token};
//!
//! # fn main() -> leasehold::Result<()> {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example())
//! # }
//! # async fn example() -> leasehold::Result<()> {
//! let leasehold = Leasehold::connect("memory:").await?; // or redis://127.0.0.1:6379
//! let guard = leasehold.mutex("stock:42").lock().await?;
//! tokio::select! {
//!     () = sell(guard.token()) => {} // the table refuses a smaller token: see `fence`
//!     lost = guard.lost() => return Err(lost.into()),
//! }
//! assert_eq!(guard.release().await?, Released::Released);
//! # Ok(())
//! # }
//!
//! async fn sell(_token: Token) { /* write under the token */ }
//! ```
//!
//! | I want to | |
//! |---|---|
//! | connect | [`Leasehold::connect`], [`Leasehold::builder`] |
//! | lock, try, wait so long | [`Mutex::lock`], [`Mutex::try_lock`], [`Mutex::try_lock_for`], [`Mutex::run`] |
//! | know that I still hold | [`Guard::check`] before each effect, [`Guard::lost`] beside the work |
//! | make a resource refuse an old holder | [`Guard::token`] and [`fence`] |
//! | see, or end, another's lease | [`Mutex::inspect`], [`Mutex::revoke`] |
//! | lock again what I hold already | [`Mutex::owner`] |
//! | give everything back and wait for that | [`Leasehold::close`] |
//! | go on when a server dies | `quorum:`, a majority of several: [`Leasehold::connect`] |
//! | do all this without a runtime | `blocking` (a feature) |
//!
//! # Runtime
//!
//! Locks run on any executor. A client has a thread of its own, with a small tokio runtime, for renewals and whatever else
//! must happen while the program is busy. On one tokio runtime, an acquire and a release go out without that thread, which
//! is faster: first on the runtime that connected the client, and on another one if that has not used the client for 10 s.
//! Calls from other runtimes, or from none, use the thread. No call depends on a runtime other than its caller's: the one
//! that connected may be blocked, or gone. (Tasks of one [`Owner`] that lock a name at the same time take turns, and so
//! wait for each other's runtimes.) A call may take half a second longer if its caller blocks the tokio runtime that it
//! runs in (`futures::executor::block_on`).
//! [`fence::RedisFence`](fence) needs a tokio runtime. Programs without a runtime block, by `blocking`.
//!
//! # Time
//!
//! | With a store that does not answer | ends after |
//! |---|---|
//! | `connect` | 5 s; one second more where the caller blocks its own runtime |
//! | `try_lock` | 2 s, and 2 s more for each reply of the store that the request came too late; half a second more where the caller blocks its own runtime |
//! | `inspect`, `revoke` | 2 s at most |
//! | `try_lock_for` | what it was told, and half a second, or four round trips where that is longer: 2 s at most |
//! | `lock` | never: it goes on when the store is back |
//! | `release` | the lease and 2 s: it is repeated until then. Dropping its future leaves that to the client |
//! | `run` | 5 s, once the work is done; the release goes on behind it |
//! | `close` | 5 s |
//! | a call of a fence | 5 s |
//!
//! A client that has lost its store tries to reach it again within 20 ms, and then ever later, up to 1 s.
//!
//! # Hand-over inside a client
//!
//! Tasks of one client that wait for one name and the same lease stand in one line. A lease that is given back goes along
//! this line from guard to guard, and the store hears nothing of that until somebody waits elsewhere. (Whoever asks for
//! `fair`, `fixed_lease`, `max_hold` or `full_lease` stands in the store's queue for itself. Two clients in one process are
//! strangers.) What this means:
//!
//! - **Tokens.** Each guard has a larger one than the guard before it, out of a range that the store reserved with the
//!   grant: a fence tells them apart. [`Mutex::inspect`] shows the token of the store's grant, and the guard that is out
//!   may have a larger one.
//! - **Time.** A guard comes with what is left of the lease, at least half of what was granted last, and renewals go on.
//!   The store sees one holder all the time.
//! - **Fairness.** See [Who is next](Mutex#who-is-next).
//! - **Loss.** The guard that is out hears of it. Those in line do not fail: the client asks the store for them again, from
//!   the end of its queue.
//! - **Revocation.** It takes the lease from whichever guard has it by then.
//! - **A panic.** A guard that is dropped in one gives back to the store, so that whoever waits elsewhere comes first.
//! - **Death.** The whole line dies with its process, and others wait as for any holder that died: for the end of one lease
//!   (`file:`: not at all).
//!
//! A lease that is [kept](Mutex::sticky) is such a lease with nobody in line: all of this holds for it.
//!
//! # Features
//!
//! | | | |
//! |---|---|---|
//! | `redis` | on unless turned off | the stores `redis://` and `quorum:`, and the fence of the first |
//! | `tls` | off unless turned on | `rediss://`, the same by TLS (rustls) |
//! | `file` | off | the store `file:` for the programs of one host, on Linux (SQLite, which a C compiler builds) |
//! | `blocking` | off | the module of that name, the same words for threads |
//!
//! There is always `memory:`.
//!
//! What it does not give: exclusion of effects without a fence. The README says why, and what is promised under which
//! assumptions.
#![forbid(unsafe_code)]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod clock;
mod descriptors;
mod error;
pub mod fence;
mod guard;
mod inspection;
mod mutex;
mod owner;
#[cfg(feature = "redis")]
pub mod quorum;
mod real;
mod reentry;
mod session;
mod store;
mod sync;
mod world;

pub use client::{Builder, Closed, Leasehold};
pub use error::{Error, ErrorKind, Lost, Result};
pub use guard::{Guard, LostSignal, Released};
pub use inspection::{Holder, Inspection, NodeSays, NodeView};
pub use leasehold_spec::Token;
pub use mutex::{Mutex, Revoked};
pub use owner::Owner;

/// The store `file:`, which the programs of one host share without a server.
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file {
    pub use crate::store::file::default_url;
}

/// The seam between a session and the world, for simulations and tests. No promise of stability.
#[doc(hidden)]
pub mod seam {
    /// An error as a store of one's own would give it.
    #[must_use]
    pub fn error(kind: crate::ErrorKind, message: &str) -> crate::Error {
        crate::Error::new(kind, message)
    }

    pub use crate::descriptors::{advice as descriptors_advice, runtime};
    /// Returns the default lease at the store of this URL. No I/O.
    pub fn default_lease(url: &str) -> crate::Result<std::time::Duration> {
        Ok(crate::store::default_lease(&*choose(url, None, &Real::world())?))
    }

    pub use crate::real::Real;
    pub use crate::store::quorum::{QuorumStore, attempts, node};
    #[cfg(feature = "redis")]
    pub use crate::store::redis::{
        FENCE_RIGHTS, NODE_RIGHTS, NodeScripts, RIGHTS, RedisNode, RedisStore, Script, Scripts, Secrets,
    };
    pub use crate::store::{Fault, Inbox, Link, Message, Progress, Store, choose};
    #[cfg(feature = "shuttle")]
    pub use crate::sync::in_a_panic;
    pub use crate::world::{Address, Pending, RuntimeId, Socket, World};
}

/// The README's Rust blocks, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
