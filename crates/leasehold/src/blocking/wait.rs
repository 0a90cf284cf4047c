//! Waiting for a future on the calling thread.

use std::future::Future;

use super::canceller::Canceller;
use crate::error::Result;

/// Blocks this thread until the future completes.
///
/// The future is `unconstrained`. Otherwise, inside a task of tokio, tokio's own primitives return `Pending` after 128
/// steps until the task yields. This function never yields, so it would poll them for ever.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    pollster::block_on(tokio::task::unconstrained(future))
}

/// Blocks this thread until the future completes, or until `canceller` is canceled: then the result is `None`.
pub(super) fn wait_or_cancel<T>(future: impl Future<Output = Result<T>>, canceller: &Canceller) -> Result<Option<T>> {
    if canceller.is_cancelled() {
        return Ok(None);
    }
    wait(async {
        tokio::select! {
            biased;
            // Polled first, so that a grant is not discarded.
            granted = future => granted.map(Some),
            () = canceller.cancelled() => Ok(None),
        }
    })
}
