//! The mutex. It has no limit of time or tries by default: `lock` waits until the lock is held.

use std::sync::Arc;

use distkit::lock::{LockGuardState, Mutex, MutexGuard};

use crate::Settings;
use crate::pairs::{Lock, Locks};
use crate::worker::Failure;

impl Locks for Settings {
    type Lock = Arc<Mutex>;

    fn lock(&self, name: String) -> Result<Arc<Mutex>, Failure> {
        Ok(Mutex::new(self.options(&name)?))
    }
}

impl Lock for Arc<Mutex> {
    type Held = MutexGuard;

    async fn acquire(&self) -> Result<MutexGuard, Failure> {
        Ok(self.as_ref().lock().await?)
    }

    /// Fails only if a renewal has noticed the loss: distkit does not report what the release has found.
    async fn release(held: MutexGuard) -> Result<(), Failure> {
        match held.release().await? {
            LockGuardState::Released => Ok(()),
            state => Err(format!("the lock was {state:?} before it was released").into()),
        }
    }
}
