//! Sends one request to many nodes at once, and returns the answers as they arrive.

use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::task::{Context, Poll, Waker};

use crate::world::Pending;

/// Requests in flight, by node. The first poll sends all of them.
pub(super) struct Fan<T> {
    pending: Vec<(usize, Pending<T>)>,
    answered: VecDeque<(usize, T)>,
}

impl<T> Fan<T> {
    pub(super) fn of(requests: impl IntoIterator<Item = (usize, Pending<T>)>) -> Self {
        Self { pending: requests.into_iter().collect(), answered: VecDeque::new() }
    }

    /// Waits for the next answer. `None` if all have arrived.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| {
            self.poll_all(context);
            match self.answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.pending.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Polls each request once, which sends it.
    pub(super) fn poll(&mut self) {
        self.poll_all(&mut Context::from_waker(Waker::noop()));
    }

    /// Waits until all answers have arrived, and drops them.
    pub(super) async fn finish(&mut self) {
        while self.next().await.is_some() {}
    }

    /// Returns the answers that nobody has taken, and the requests in flight.
    pub(super) fn rest(self) -> Vec<(usize, Pending<T>)>
    where
        T: Send + 'static,
    {
        let answered = self.answered.into_iter().map(|(node, answer)| (node, Box::pin(ready(answer)) as Pending<T>));
        answered.chain(self.pending).collect()
    }

    /// Returns the nodes that have not answered yet.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.pending.iter().map(|(node, _)| *node)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        let answered = &mut self.answered;
        self.pending.retain_mut(|(node, request)| match request.as_mut().poll(context) {
            Poll::Ready(answer) => {
                answered.push_back((*node, answer));
                false
            }
            Poll::Pending => true,
        });
    }
}
