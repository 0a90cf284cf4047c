//! One question to all nodes at once.

use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::task::{Context, Poll, Waker};

use crate::world::Pending;

/// Requests under way, by node. All of them are sent by the first poll.
pub(super) struct Fan<T> {
    pending: Vec<(usize, Pending<T>)>,
    answered: VecDeque<(usize, T)>,
}

impl<T> Fan<T> {
    pub(super) fn of(requests: impl IntoIterator<Item = (usize, Pending<T>)>) -> Self {
        Self { pending: requests.into_iter().collect(), answered: VecDeque::new() }
    }

    /// The same, with each request in something else.
    pub(super) fn each(mut self, wrap: impl Fn(usize, Pending<T>) -> Pending<T>) -> Self {
        self.pending = self.pending.into_iter().map(|(node, request)| (node, wrap(node, request))).collect();
        self
    }

    /// The next answer; `None` once all have come.
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

    /// Polls each of them once, which sends it. For whoever does not wait for an answer.
    pub(super) fn poll(&mut self) {
        self.poll_all(&mut Context::from_waker(Waker::noop()));
    }

    /// Hears the rest out.
    pub(super) async fn finish(&mut self) {
        while self.next().await.is_some() {}
    }

    /// What was not waited for: answers that are there, and requests under way.
    pub(super) fn rest(self) -> Vec<(usize, Pending<T>)>
    where
        T: Send + 'static,
    {
        let answered = self.answered.into_iter().map(|(node, said)| (node, Box::pin(ready(said)) as Pending<T>));
        answered.chain(self.pending).collect()
    }

    /// The nodes that have not answered yet.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.pending.iter().map(|(node, _)| *node)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        let answered = &mut self.answered;
        self.pending.retain_mut(|(node, request)| match request.as_mut().poll(context) {
            Poll::Ready(said) => {
                answered.push_back((*node, said));
                false
            }
            Poll::Pending => true,
        });
    }
}
