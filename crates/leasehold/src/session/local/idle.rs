//! Idle local queues. Most names are used again, and keeping a queue costs less than opening one. A queue takes half a
//! kilobyte, so at most `KEPT` numbers are listed.

use std::collections::VecDeque;

/// How many idle queues are kept.
const KEPT: usize = 1_024;

/// The numbers of queues that were idle when they were listed, the oldest first. A queue is listed once, so a queue that is
/// used all the time stays where it is.
#[derive(Default)]
pub(crate) struct IdleQueues(VecDeque<u64>);

impl IdleQueues {
    /// Lists an idle queue. Returns the queue that was listed first if there are too many now. It may be in use again.
    pub(crate) fn list(&mut self, queue: u64) -> Option<u64> {
        self.0.push_back(queue);
        if self.0.len() > KEPT { self.0.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_that_was_listed_first_has_to_go() {
        let (mut idle, kept) = (IdleQueues::default(), KEPT as u64);
        assert!((0..kept).all(|queue| idle.list(queue).is_none()));
        assert!((0..kept).all(|queue| idle.list(kept + queue) == Some(queue)));
    }
}
