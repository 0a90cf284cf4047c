//! The same operations for programs without a runtime: every method blocks its thread. (Feature `blocking`.)
//!
//! ```
//! use leasehold::Released;
//! use leasehold::blocking::Leasehold;
//!
//! # fn main() -> leasehold::Result<()> {
//! let leasehold = Leasehold::connect("memory:")?; // or redis://127.0.0.1:6379
//! let guard = leasehold.mutex("stock:42").lock()?;
//! sell(guard.check()?); // the table refuses a smaller token: see `fence`
//! assert_eq!(guard.release()?, Released::Released);
//! # Ok(())
//! # }
//!
//! fn sell(_token: leasehold::Token) { /* write with the token */ }
//! ```
//!
//! Each type of this module corresponds to the async type of the same name, whose documentation has the promises, time
//! limits and errors. These methods exist only here, because threads need them:
//!
//! | Method | Purpose |
//! |---|---|
//! | [`Mutex::reentrant`] | the calling thread may lock again what it holds |
//! | [`Mutex::lock_or_cancel`], and other methods in `_or_cancel` | wait until another thread cancels; async code drops the future instead |
//! | [`Guard::wait_lost`], [`Guard::on_lost`], also on other guards | wait for the loss, or register a callback; async code awaits [`crate::Guard::lost`] |
//!
//! # Inside an async runtime
//!
//! All methods work there, and block the calling thread, as `std::sync::Mutex` does. They never wait for that runtime,
//! because the thread of the client sends all requests. But a task that blocks its thread keeps other tasks of that
//! thread from running, and one of them may be the holder. Use [`crate::Mutex`] there, or `spawn_blocking` of tokio.
//!
//! # Signals
//!
//! A signal does not end a wait. The wait continues when the signal handler has returned. Use a [`Canceller`] to end
//! it.

mod barrier;
mod canceller;
mod condvar;
mod election;
mod guard;
mod latch;
mod methods;
mod multi;
mod mutex;
mod on_lost;
#[cfg(feature = "redis")]
pub mod quorum;
mod rwlock;
mod semaphore;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use crate::client::Closed;
use crate::error::Result;
use crate::inspection::{Holder, Waiter};
use crate::real::Real;
use crate::store::Store;
use crate::world::World;

use self::wait::wait;

pub use barrier::Barrier;
pub use canceller::Canceller;
pub use condvar::Condvar;
pub use election::{Election, Leadership, Observer};
pub use guard::Guard;
pub use latch::Latch;
pub use multi::{All, AllGuard, all};
pub use mutex::Mutex;
pub use rwlock::{ReadGuard, RwLock, UpgradeableReadGuard, WriteGuard};
pub use semaphore::{Permit, Semaphore};

/// A client of one store, like [`crate::Leasehold`]. Clones share it.
#[derive(Clone, Debug)]
pub struct Leasehold(crate::client::Leasehold);

impl Leasehold {
    /// Connects to a store: see [`crate::Leasehold::connect`]. It blocks for at most 5 s.
    ///
    /// # Errors
    ///
    /// See [`crate::Leasehold::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect()
    }

    /// Returns a builder for a client with more settings than a URL can express.
    pub fn builder(url: &str) -> Builder {
        Builder(crate::client::Leasehold::builder(url))
    }

    /// Returns the mutex with this name: see [`crate::Leasehold::mutex`]. This does no I/O and never fails. The first
    /// call on the mutex reports an invalid name.
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(Arc::clone(self.0.handle()), name.as_ref())
    }

    /// Returns the read-write lock with this name: see [`crate::Leasehold::rw_lock`].
    #[must_use]
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rw_lock(name))
    }

    /// Returns the semaphore with this name and this number of permits: see [`crate::Leasehold::semaphore`].
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore(self.0.semaphore(name, permits))
    }

    /// Returns the condition variable with this name: see [`crate::Leasehold::condvar`].
    #[must_use]
    pub fn condvar(&self, name: impl AsRef<str>) -> Condvar {
        Condvar(self.0.condvar(name))
    }

    /// Returns the latch with this name: see [`crate::Leasehold::latch`].
    #[must_use]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch(self.0.latch(name))
    }

    /// Returns the barrier with this name, for this many parties: see [`crate::Leasehold::barrier`].
    #[must_use]
    pub fn barrier(&self, name: impl AsRef<str>, parties: u32) -> Barrier {
        Barrier(self.0.barrier(name, parties))
    }

    /// Returns the election with this name: see [`crate::Leasehold::election`].
    #[must_use]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election(self.0.election(name))
    }

    /// Returns the names of which the store has a record, sorted: see [`crate::Leasehold::names`].
    ///
    /// # Errors
    ///
    /// See [`crate::Leasehold::names`].
    pub fn names(&self) -> Result<Vec<String>> {
        wait(self.0.names())
    }

    /// Returns whether this client, or a clone of it, is the holder: see [`crate::Leasehold::is_holder`].
    #[must_use]
    pub fn is_holder(&self, holder: &Holder) -> bool {
        self.0.is_holder(holder)
    }

    /// Returns whether this client, or a clone of it, is the waiter: see [`crate::Leasehold::is_waiter`].
    #[must_use]
    pub fn is_waiter(&self, waiter: &Waiter) -> bool {
        self.0.is_waiter(waiter)
    }

    /// Closes this client and all its clones: see [`crate::Leasehold::close`]. Waiting threads get the error `Closed`,
    /// guards are lost, and all leases are released. It blocks until the store has confirmed the releases, for at most
    /// 5 s.
    #[expect(clippy::must_use_candidate, reason = "the client is closed, whether or not the result is read")]
    pub fn close(self) -> Closed {
        wait(self.0.close())
    }
}

/// Settings of a client: see [`Leasehold::builder`] and [`crate::Builder`].
#[must_use = "a builder does nothing until `connect`"]
pub struct Builder(crate::client::Builder);

impl Builder {
    /// Turns the hand-over inside this client off: see [`crate::Builder::remote_hand_over`].
    #[doc(hidden)]
    pub fn remote_hand_over(self) -> Self {
        Self(self.0.remote_hand_over())
    }

    /// Sets a prefix for all keys: see [`crate::Builder::prefix`].
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self(self.0.prefix(prefix))
    }

    /// Sets the default lease of all locks of this client (30 s by default): see [`crate::Builder::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// Sets the label by which `inspect` shows this client: see [`crate::Builder::holder`].
    pub fn holder(self, holder: impl Into<String>) -> Self {
        Self(self.0.holder(holder))
    }

    /// Makes `connect` return a client even if the store is unreachable: see [`crate::Builder::lazy`].
    pub fn lazy(self) -> Self {
        Self(self.0.lazy())
    }

    /// Connects to the store. It blocks for at most 5 s.
    ///
    /// # Errors
    ///
    /// See [`crate::Leasehold::connect`].
    pub fn connect(self) -> Result<Leasehold> {
        let world = Real::world();
        let store = self.0.choose(&world)?;
        self.connect_to(store, world)
    }

    /// Connects to the given store, in the given world. For tests.
    #[doc(hidden)]
    pub fn connect_to(self, store: Arc<dyn Store>, world: Arc<dyn World>) -> Result<Leasehold> {
        wait(self.0.one_connection().connect_to(store, world)).map(Leasehold)
    }
}
