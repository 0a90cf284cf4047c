//! One direction of a connection: messages that do not overtake one another.

use std::collections::VecDeque;

pub(super) struct Pipe<M> {
    queue: VecDeque<(u64, M)>,
    last_us: u64,
}

impl<M> Pipe<M> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), last_us: 0 }
    }

    pub(super) fn push(&mut self, at_us: u64, message: M) -> u64 {
        self.last_us = at_us.max(self.last_us + 1);
        self.queue.push_back((self.last_us, message));
        self.last_us
    }

    /// Returns whether the next message has arrived.
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        self.queue.front().is_some_and(|(at_us, _)| *at_us <= now_us)
    }

    pub(super) fn pop(&mut self) -> Option<M> {
        self.queue.pop_front().map(|(_, message)| message)
    }

    pub(super) fn drain(&mut self) -> Vec<M> {
        self.queue.drain(..).map(|(_, message)| message).collect()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}
