//! Tasks of the session's thread.

use std::future::{Future, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;

use crate::session::shared::Shared;
use crate::world::{Pending, World};

pub(super) fn spawn<T: Future<Output = ()> + Send + 'static>(
    shared: &Arc<Shared>,
    task: impl FnOnce(Arc<Shared>) -> T,
) {
    let task: Pending<()> = Box::pin(task(Arc::clone(shared)));
    // The thread has a runtime of its own: this cannot fail there.
    drop(shared.world.spawn(task));
}

/// Polls a request once, so that later requests on its connection come after it, in whatever order tasks run. The poll is
/// outside of the runtime's budget: behind some hundred others of one turn the request would be put off, and not sent.
pub(super) fn begun<T: Send + 'static>(mut request: Pending<T>) -> Pending<T> {
    let first = pin!(unconstrained(request.as_mut())).poll(&mut Context::from_waker(Waker::noop()));
    match first {
        Poll::Ready(reply) => Box::pin(ready(reply)),
        Poll::Pending => request,
    }
}

/// Returns the output of `work` unless `within_us` end before.
pub(super) async fn race<T>(world: &dyn World, within_us: u64, work: impl Future<Output = T>) -> Option<T> {
    first_of(pin!(work), world.sleep(Duration::from_micros(within_us))).await
}

/// Returns the output of `work` unless `end` ends before.
pub(super) async fn first_of<W: Future + Unpin>(mut work: W, end: impl Future<Output = ()>) -> Option<W::Output> {
    let mut end = pin!(end);
    poll_fn(|context| match pin!(&mut work).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(context).map(|()| None),
    })
    .await
}
