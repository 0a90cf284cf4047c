//! The primitives of the standard library that threads share here. In unit tests with `--cfg leasehold_shuttle` they
//! come from a scheduler, which decides at each operation which thread goes on. So `tests/shuttle` runs this very code
//! in the orders that a machine shows once in a million. To the scheduler, each operation of tokio's shared types
//! (channels, [`Notify`](tokio::sync::Notify)) is one step.

#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) use std::sync::atomic::AtomicU64;
#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(test, leasehold_shuttle))]
pub(crate) use shuttle::sync::atomic::AtomicU64;
#[cfg(all(test, leasehold_shuttle))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Returns whether this thread is unwinding.
#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) use std::thread::panicking;

#[cfg(all(test, leasehold_shuttle))]
shuttle::thread_local! {
    static PANICS: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

/// Returns whether this thread simulates unwinding. To the standard library, all of shuttle's threads are one thread,
/// and a thread that really unwinds cannot be paused for another one.
#[cfg(all(test, leasehold_shuttle))]
pub(crate) fn panicking() -> bool {
    PANICS.try_with(std::cell::Cell::get).unwrap_or(false)
}

/// Runs this as if in a panic.
#[cfg(all(test, leasehold_shuttle))]
pub(crate) fn in_a_panic(work: impl FnOnce()) {
    PANICS.with(|panics| panics.set(true));
    work();
    PANICS.with(|panics| panics.set(false));
}
