//! What threads share here, from the standard library; with the feature `shuttle`, from a scheduler that decides at each
//! of these operations which thread goes on, so that `tests/shuttle` runs this very code in the orders that a machine shows
//! once in a million. What tokio shares (channels, [`Notify`](tokio::sync::Notify)) is one step each to it.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::AtomicU64;
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::AtomicU64;
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
