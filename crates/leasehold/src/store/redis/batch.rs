//! Many renewals: in calls of at most [`RENEW_BATCH`] names, all of which are sent in one write.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use leasehold_spec::Name;
use leasehold_spec::limits::RENEW_BATCH;

use crate::world::Pending;

/// Calls `run` for each part of a batch, and joins the results.
pub(super) fn in_parts<A, T>(batch: &[(Name, A)], run: impl Fn(Vec<(Name, A)>) -> Pending<Vec<T>>) -> Pending<Vec<T>>
where
    A: Clone,
    T: Send + 'static,
{
    Box::pin(all(batch.chunks(RENEW_BATCH).map(|part| run(part.to_vec())).collect()))
}

/// Polls all parts in turn, so that they are sent in one write.
async fn all<T>(mut parts: Vec<Pending<Vec<T>>>) -> Vec<T> {
    let mut done: Vec<Option<Vec<T>>> = parts.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (part, done) in parts.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(results) = Pin::new(part).poll(context) {
                *done = Some(results);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().flatten().collect()
}
