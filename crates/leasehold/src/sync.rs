//! What threads share here, from the standard library. In unit tests with `--cfg leasehold_shuttle` it comes from a
//! scheduler, which decides at each of these operations which thread goes on. `tests/shuttle` thus runs this very code in
//! the orders that a machine shows once in a million. Each operation of what tokio shares (channels,
//! [`Notify`](tokio::sync::Notify)) is one step to the scheduler.

#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) use std::sync::atomic::AtomicU64;
#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(test, leasehold_shuttle))]
pub(crate) use shuttle::sync::atomic::AtomicU64;
#[cfg(all(test, leasehold_shuttle))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Whether this thread unwinds.
#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) use std::thread::panicking;

#[cfg(all(test, leasehold_shuttle))]
shuttle::thread_local! {
    static PANICS: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

/// Whether this thread does as if it unwound. All of shuttle's threads are one to the standard library, and one that
/// really unwinds cannot be stopped for another to go on.
#[cfg(all(test, leasehold_shuttle))]
pub(crate) fn panicking() -> bool {
    PANICS.try_with(std::cell::Cell::get).unwrap_or(false)
}

/// Does this as it is done in a panic.
#[cfg(all(test, leasehold_shuttle))]
pub(crate) fn in_a_panic(work: impl FnOnce()) {
    PANICS.with(|panics| panics.set(true));
    work();
    PANICS.with(|panics| panics.set(false));
}
