//! The same words for programs without a runtime: every method blocks its thread. (Feature `blocking`.)
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
//! fn sell(_token: leasehold::Token) { /* write under the token */ }
//! ```
//!
//! These are faces of the faces above: what they promise, how long they take with a store that does not answer, and which
//! errors there are is said there. Beside them is what threads need and tasks do not:
//!
//! | | |
//! |---|---|
//! | [`Mutex::reentrant`] | the calling thread may lock again what it holds |
//! | [`Mutex::lock_or_cancel`] | a wait that another thread can end: a future would be dropped |
//! | [`Guard::wait_lost`], [`Guard::on_lost`] | waits for the loss, or is called at it: a future would be awaited beside the work |
//!
//! # Within an async runtime
//! Every method works there, and blocks the thread that it is called on, as `std::sync::Mutex` would. It never waits for
//! that runtime: what it sends goes by the client's own thread. A task that waits so keeps the others of its thread from
//! running; one of those may be the one that holds. Use [`crate::Mutex`] there, or tokio's `spawn_blocking`.
//!
//! # Signals
//! A signal does not end a wait: the wait goes on when its handler has returned. What is to end it calls a [`Canceller`].

mod canceller;
mod guard;
mod mutex;
mod on_lost;
#[cfg(feature = "redis")]
pub mod quorum;

use std::sync::Arc;
use std::time::Duration;

use crate::client::Closed;
use crate::error::Result;
use crate::real::Real;
use crate::store::Store;
use crate::world::World;

pub use canceller::Canceller;
pub use guard::Guard;
pub use mutex::Mutex;

/// A client of one store, as [`crate::Leasehold`] is. Clones share it.
#[derive(Clone, Debug)]
pub struct Leasehold(crate::Leasehold);

impl Leasehold {
    /// Connects, as [`crate::Leasehold::connect`] does, and blocks for at most 5 s.
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect()
    }

    /// Connects with more said than a URL.
    pub fn builder(url: &str) -> Builder {
        Builder(crate::Leasehold::builder(url))
    }

    /// The lock of this name, as [`crate::Leasehold::mutex`]. No I/O; a bad name is the first call's error.
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.0.mutex(name))
    }

    /// The names that the store has a record of, sorted: see [`crate::Leasehold::names`].
    ///
    /// # Errors
    /// As there.
    pub fn names(&self) -> Result<Vec<String>> {
        wait(self.0.names())
    }

    /// Closes the client for all its clones, as [`crate::Leasehold::close`]: threads that wait hear `Closed`, guards are
    /// lost, everything is given back. Blocks until the store has confirmed that, at most 5 s.
    #[expect(clippy::must_use_candidate, reason = "the client is closed, whoever reads what was left")]
    pub fn close(self) -> Closed {
        wait(self.0.close())
    }
}

/// Says more than a URL: see [`Leasehold::builder`], and [`crate::Builder`] for what each means.
#[must_use = "a builder does nothing until `connect`"]
pub struct Builder(crate::Builder);

impl Builder {
    /// Without hand-over inside this client: see [`crate::Builder::remote_hand_over`].
    #[doc(hidden)]
    pub fn remote_hand_over(self) -> Self {
        Self(self.0.remote_hand_over())
    }

    /// A tenant's prefix: see [`crate::Builder::prefix`].
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self(self.0.prefix(prefix))
    }

    /// The lease of every mutex that names none, 30 s unless said: see [`crate::Builder::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// What this client calls itself: see [`crate::Builder::holder`].
    pub fn holder(self, holder: impl Into<String>) -> Self {
        Self(self.0.holder(holder))
    }

    /// Connects, and blocks for at most 5 s.
    ///
    /// # Errors
    /// As [`crate::Leasehold::connect`].
    pub fn connect(self) -> Result<Leasehold> {
        let world = Real::world();
        let store = self.0.choose(&world)?;
        self.connect_to(store, world)
    }

    /// Connects to a store and in a world of the caller's own.
    #[doc(hidden)]
    pub fn connect_to(self, store: Arc<dyn Store>, world: Arc<dyn World>) -> Result<Leasehold> {
        wait(self.0.one_connection().connect_to(store, world)).map(Leasehold)
    }
}

/// Blocks this thread until the future is ready.
///
/// Unconstrained: within one of its tasks tokio lets its own primitives answer "not yet" after 128 steps, until the task
/// gives way. This one never does, and would ask again for ever.
fn wait<F: Future>(future: F) -> F::Output {
    pollster::block_on(tokio::task::unconstrained(future))
}
