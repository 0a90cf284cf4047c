//! Waiting for a future on the calling thread.

use std::future::Future;

/// Blocks this thread until the future completes.
///
/// The future is `unconstrained`. Otherwise, inside a task of tokio, tokio's own primitives return `Pending` after 128
/// steps until the task yields. This function never yields, so it would poll them for ever.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    pollster::block_on(tokio::task::unconstrained(future))
}
