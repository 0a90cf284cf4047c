//! The guard of a mutex.

use crate::lease::{Lease, debug_guard, guard_methods};

/// A held lock. Dropping the guard releases the lease in the background, with or without a runtime. [`Guard::release`]
/// releases it and returns the result. Later calls of this client for the same name do not contend with the pending
/// release.
///
/// A guard is not bound to a thread or a task. It stands for a *lease*, which can be lost. Call [`Guard::check`] before
/// each effect, or wait for [`Guard::lost`] beside the work.
///
/// ```
/// # tokio_test(async {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let guard = leasehold.mutex("stock:42").lock().await?;
/// let token = guard.check()?; // before each effect
/// # let _ = token;
/// # guard.release().await?;
/// # leasehold::Result::Ok(()) });
/// # fn tokio_test(f: impl Future<Output = leasehold::Result<()>>) {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(f).unwrap();
/// # }
/// ```
#[must_use = "dropping the guard releases the lease at once"]
pub struct Guard(pub(crate) Lease);

impl Guard {
    pub(crate) fn new(lease: Lease) -> Self {
        Self(lease)
    }

    guard_methods!(tasks);

    /// Waives the [`min_hold`](crate::Mutex::min_hold): when this guard goes, others can be granted the lock at once. Use
    /// it if the work was not done. It does nothing if there is no `min_hold`. No round trip.
    ///
    /// The guards of one owner share a lease: if one of them waives, all do.
    pub fn waive_min_hold(&self) {
        self.0.waive_min_hold();
    }

    pub(crate) async fn finish(self) {
        self.0.finish().await;
    }
}

debug_guard!(Guard);
