//! Distributed locks that are fast, fair, fenced and honest about loss.
//!
//! A lock whose holder may crash must expire by itself: it is a *lease*. A live holder can lose a lease, too: its
//! process was stopped for longer than the lease, the network failed, the server lost its data, or an operator revoked
//! it. So check the guard before each effect, and let the resource check the token.
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
//!     () = sell(guard.token()) => {} // refuses a smaller token: see `fence`
//!     lost = guard.lost() => return Err(lost.into()),
//! }
//! assert_eq!(guard.release().await?, Released::Released);
//! # Ok(())
//! # }
//!
//! async fn sell(_token: Token) { /* write with the token */ }
//! ```
//!
//! | I want to | Use |
//! |---|---|
//! | connect | [`Leasehold::connect`], [`Leasehold::builder`] |
//! | lock, try to lock, wait with a timeout | [`Mutex::lock`], [`Mutex::try_lock`], [`Mutex::try_lock_for`] |
//! | lock, work and release in one call | [`Mutex::run`] |
//! | let many readers in, or one writer | [`Leasehold::rw_lock`] (not on a quorum) |
//! | hold several locks together | [`all`] |
//! | let a limited number in | [`Leasehold::semaphore`] (not on a quorum) |
//! | wait until another program has changed something | [`Leasehold::condvar`] (not on a quorum) |
//! | wait until several programs have done their part | [`Leasehold::latch`] (not on a quorum) |
//! | go on together, step by step | [`Leasehold::barrier`] (not on a quorum) |
//! | elect a leader, and see who leads | [`Leasehold::election`] |
//! | know whether I still hold the lock | [`Guard::check`] before each effect, [`Guard::lost`] beside the work |
//! | make a resource refuse a former holder | [`Guard::token`] and [`fence`] |
//! | see who holds a lock, or take it away | [`Mutex::inspect`], [`Mutex::revoke`] |
//! | lock again what I already hold (re-entry) | [`Mutex::owner`] |
//! | keep others out for a minimum time (cron jobs) | [`Mutex::min_hold`] |
//! | start before the store does | [`Builder::lazy`] |
//! | release everything and wait for that | [`Leasehold::close`] |
//! | survive the loss of a server | `quorum:`, a majority of several servers: [`Leasehold::connect`] |
//! | do all this from threads, without a runtime | the module `blocking` (a feature) |
//!
//! # Terms
//!
//! - A *lease* is the right to hold a lock for a limited time. The client renews it while a guard lives.
//! - A *grant* is one acquisition. Each grant of a name has a *token* that is larger than the token of every earlier
//!   grant.
//! - A *waiter* is a call that waits for a lock. A *holder* is a client that has the lease.
//! - The *hand-over* is the release that grants the lock to the next waiter in the same step, inside the store.
//! - A grant by hand-over lasts for 1 s (or ten round trips, if these take longer) until the waiter has confirmed it by
//!   its first renewal. This short lease is the *claim*. So a waiter whose process is stopped delays the others by 1 s,
//!   and not by a whole lease.
//!
//! # Runtime
//!
//! Locks work on any executor. Each client has a thread of its own with a small tokio runtime. This thread renews
//! leases, also while the program is busy or blocks its runtime.
//!
//! On a tokio runtime, a client sends acquires and releases without its thread, which is faster. It does so on one
//! runtime at a time. This is the runtime that connected the client. If that runtime has not used the client for 10 s,
//! or has ended, the next runtime that calls takes its place. Calls from all other runtimes, and from outside of a
//! runtime, go through the thread.
//!
//! The thread receives the messages of the store. On Redis, while the client is granted locks in quick succession, the
//! same runtime receives them, which is faster. If that runtime blocks, the thread receives them again within 0.2 s, and
//! asks the store for what it may have missed.
//!
//! No call depends on a runtime other than the caller's own. The runtime that connected the client may be blocked, or
//! may have ended. There is one exception: if two tasks of one [`Owner`] lock a name at the same time, the second waits
//! for the grant of the first, and so for the runtime of the first.
//!
//! If a task waits for a call with `futures::executor::block_on`, and thereby blocks its own tokio runtime, the call
//! may take half a second longer. [`fence::RedisFence`](fence) needs a tokio runtime.
//!
//! # Time limits
//!
//! If the store does not reply, a call ends after this time:
//!
//! | Call | Time limit |
//! |---|---|
//! | `connect` | 5 s; 6 s if the caller blocks its own runtime |
//! | `try_lock` | a sixth of the lease, at least 50 ms and at most 2 s. Add up to 2 s for each reply that says that the request arrived too late. Add 0.5 s if the caller blocks its own runtime |
//! | `inspect`, `revoke` | 2 s |
//! | `try_lock_for(d)` | `d` and 0.5 s; if four round trips take longer than 0.5 s, `d` and four round trips, but at most `d` and 2 s |
//! | `lock` | none: it continues when the store is back |
//! | `release` | the lease plus 2 s. The client repeats the release until then, also after its future was dropped |
//! | `run` | no limit before the work, as `lock`; 5 s after the work has ended. The release continues in the background |
//! | `close` | 5 s |
//! | a call of a fence | 5 s |
//!
//! A client that has lost its connection tries to reconnect within 20 ms, and then with a growing backoff of at most
//! 1 s.
//!
//! # Hand-over inside a client
//!
//! Tasks of one client that wait for the same name with the same lease wait in one local queue. The client hands the
//! lease on along this queue, from guard to guard. It sends nothing to the store until a waiter exists in another
//! client. Two clients in one process count as different clients. A mutex with `fair`, `fixed_lease`, `max_hold`,
//! `min_hold` or `full_lease` does not use the local queue: each of its calls waits in the queue of the store.
//!
//! This has consequences:
//!
//! - **Tokens.** Each guard has a larger token than the guard before it. The token comes from a range that the store
//!   reserved with the grant, so a fence tells the guards apart. [`Mutex::inspect`] shows the first token of the grant;
//!   the current guard may have a larger one.
//! - **Time.** A guard starts with the rest of the current lease. The client hands a lease on only while at least half
//!   of it is left. Renewals continue. The store sees one holder all the time.
//! - **Fairness.** See [Who is next](Mutex#who-is-next).
//! - **Loss.** The current guard reports the loss. Tasks in the local queue do not fail: the client asks the store
//!   again for them, at the end of the store's queue.
//! - **Revocation.** A revocation takes the lease away from whichever guard has it at that time.
//! - **Panics.** If a guard is dropped during a panic, the client returns the lease to the store, so that waiters of
//!   other clients are next. Its own waiters follow behind them.
//! - **Crashes.** If the process dies, its whole local queue dies with it. Waiters elsewhere wait until the lease ends,
//!   as for every holder that died (`file:` notices the death at once).
//!
//! A lease that the client [keeps](Mutex::sticky) is such a lease with an empty local queue.
//!
//! # Features
//!
//! | Feature | Default | Adds |
//! |---|---|---|
//! | `redis` | on | the stores `redis://` and `quorum:`, and `fence::RedisFence` |
//! | `tls` | off | `rediss://`: Redis over TLS (rustls) |
//! | `file` | off | the store `file:` for the programs of one Linux host (SQLite; needs a C compiler) |
//! | `blocking` | off | the module `blocking`: the same operations for threads |
//! | `tracing` | off | spans and events for the crate `tracing` |
//!
//! The store `memory:` is always there.
//!
//! # What a lock cannot do
//!
//! Between the last check of a guard and the arrival of a write, the process can be stopped for an hour. Only the
//! resource can refuse that late write, by its token: see [`fence`]. The page `docs/guarantees.md` of the repository
//! lists what is promised, and under which assumptions.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquirer;
mod barrier;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod clock;
mod condvar;
mod descriptors;
mod election;
mod error;
pub mod fence;
mod guard;
mod inspection;
mod latch;
mod lease;
mod lost;
mod lost_signal;
mod member;
mod multi;
mod mutex;
mod observe;
mod owner;
#[cfg(feature = "redis")]
pub mod quorum;
mod real;
mod reentry;
mod relock;
mod rwlock;
mod semaphore;
mod session;
mod settings;
mod store;
mod sync;
mod world;

pub use barrier::{Barrier, BarrierWaitResult};
pub use client::{Builder, Closed, Leasehold};
pub use condvar::{Condvar, CondvarGuard, Woken};
pub use election::observer::Observer;
pub use election::{Election, Leader, Leadership};
pub use error::{Error, ErrorKind, Operation, Result};
pub use guard::Guard;
pub use inspection::{Holder, Inspection, Kind, Mode, NodeSays, NodeView, Revoked, Waiter};
pub use latch::Latch;
pub use leasehold_spec::Token;
pub use lost::{Lost, LostReason, Released};
pub use lost_signal::LostSignal;
pub use member::Member;
pub use multi::{All, AllGuard, AllLost, all};
pub use mutex::Mutex;
pub use owner::Owner;
pub use rwlock::{ReadGuard, RwLock, UpgradeableReadGuard, WriteGuard};
pub use semaphore::{Permit, Semaphore};

/// The store `file:`, which the programs of one host share without a server.
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file {
    pub use crate::store::file::default_url;
}

/// The seam between a session and the world, for simulations and tests. No promise of stability.
#[doc(hidden)]
pub mod seam {
    /// Returns an error, as a store of a test makes it.
    #[must_use]
    pub fn error(kind: crate::ErrorKind, message: &str) -> crate::Error {
        crate::Error::new(kind, message)
    }

    /// Returns the loss of a lease, as a guard reports it.
    ///
    /// # Panics
    ///
    /// Panics if the name is invalid.
    #[must_use]
    pub fn lost(name: &str, reason: crate::LostReason) -> crate::Lost {
        crate::Lost::new(&leasehold_spec::Name::new(name).expect("the name is valid"), reason)
    }

    /// Notifies the observers of an election whose leader has changed as the holder of a mutex.
    pub async fn announce(client: &crate::Leasehold, name: &str) {
        client.election(name).announce().await;
    }

    pub use crate::descriptors::{advice as descriptors_advice, runtime};

    /// Returns the default lease of the store with this URL. No I/O.
    pub fn default_lease(url: &str) -> crate::Result<std::time::Duration> {
        Ok(choose(url, None, &Real::world())?.profile().default_lease())
    }

    pub use crate::real::Real;
    pub use crate::store::choose::choose;
    pub use crate::store::quorum::{QuorumStore, attempts, node};
    #[cfg(feature = "redis")]
    pub use crate::store::redis::{
        FENCE_RIGHTS, Family, Flags, NODE_RIGHTS, POOL_RIGHTS, RIGHTS, RedisNode, RedisStore, Script, Source,
    };
    #[cfg(feature = "redis")]
    pub use crate::store::secrets::Secrets;
    pub use crate::store::{Fault, Guess, Inbox, Link, Message, Progress, Store, StoreProfile, inspect_whole};
    pub use crate::world::{Address, Pending, RuntimeId, Socket, World};
}

#[cfg(all(test, leasehold_shuttle))]
#[path = "../tests/shuttle/mod.rs"]
mod schedules;

/// The Rust blocks of the crate's README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
