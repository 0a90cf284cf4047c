//! The local queues of a session: those in use, those that need an attempt, and idle ones.
//!
//! Most names are used again, and keeping an idle queue costs less than opening one. A queue takes half a kilobyte, so at
//! most `KEPT` numbers are listed.

use std::collections::VecDeque;
use std::mem::replace;
use std::sync::Arc;

use leasehold_spec::Name;

use super::queue::LocalQueue;
use crate::session::counters::CounterMap;
use crate::session::terms::Terms;

/// How many idle queues are kept.
const KEPT: usize = 1_024;

pub(crate) struct Queues<V> {
    all: CounterMap<Listed<V>>,
    /// Queues with waiters whose attempt has ended in this change.
    unattended: Vec<u64>,
    /// The numbers of queues that were idle when they were listed, the oldest first. A queue is listed once, so a queue
    /// that is used all the time stays where it is.
    idle: VecDeque<u64>,
}

struct Listed<V> {
    queue: LocalQueue<V>,
    /// Whether its number is in `idle`.
    is_listed: bool,
}

impl<V> Queues<V> {
    pub(crate) fn new() -> Self {
        Self { all: CounterMap::default(), unattended: Vec::new(), idle: VecDeque::new() }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&LocalQueue<V>> {
        self.all.get(&number).map(|listed| &listed.queue)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut LocalQueue<V>> {
        self.all.get_mut(&number).map(|listed| &mut listed.queue)
    }

    /// Returns the numbers of all queues.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.all.keys().copied().collect()
    }

    #[cfg(debug_assertions)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LocalQueue<V>> {
        self.all.values().map(|listed| &listed.queue)
    }

    pub(crate) fn open(&mut self, number: u64, name: &Name, terms: &Arc<Terms>) {
        let queue = LocalQueue::new(name.clone(), Arc::clone(terms));
        self.all.insert(number, Listed { queue, is_listed: false });
    }

    /// Keeps a queue that is idle for the next caller. If there are too many, closes the one that was listed first, unless
    /// it is in use again. Returns the name and the number of the closed queue.
    pub(crate) fn keep_idle(&mut self, number: u64) -> Option<(Name, u64)> {
        let listed = self.all.get_mut(&number)?;
        if replace(&mut listed.is_listed, true) {
            return None;
        }
        self.idle.push_back(number);
        if self.idle.len() <= KEPT {
            return None;
        }
        let first = self.idle.pop_front()?;
        match self.all.get_mut(&first) {
            Some(listed) if !listed.queue.is_idle() => {
                listed.is_listed = false;
                None
            }
            _ => Some((self.all.remove(&first)?.queue.name, first)),
        }
    }

    /// Notes that a queue needs an attempt.
    pub(crate) fn leave_unattended(&mut self, number: u64) {
        self.unattended.push(number);
    }

    /// Removes and returns a queue that was left unattended. The last waiter of the queue may have left meanwhile.
    pub(crate) fn take_unattended(&mut self) -> Option<u64> {
        self.unattended.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_TOO_MANY: u64 = KEPT as u64;

    fn opened(numbers: std::ops::Range<u64>) -> Queues<()> {
        let (mut queues, terms) = (Queues::new(), Arc::new(Terms::of_an_end()));
        let name = Name::new("name").expect("a valid name");
        numbers.for_each(|number| queues.open(number, &name, &terms));
        queues
    }

    #[test]
    fn the_queue_that_was_listed_first_has_to_go() {
        let mut queues = opened(0..2 * FIRST_TOO_MANY);
        assert!((0..FIRST_TOO_MANY).all(|queue| queues.keep_idle(queue).is_none()));
        assert!((0..FIRST_TOO_MANY).all(|queue| queues.keep_idle(queue).is_none()), "each is listed once");
        for queue in 0..FIRST_TOO_MANY {
            let closed = queues.keep_idle(FIRST_TOO_MANY + queue);
            assert!(closed.is_some_and(|(_, number)| number == queue) && queues.get(queue).is_none());
        }
    }

    #[test]
    fn a_queue_in_use_is_not_closed() {
        let mut queues = opened(0..FIRST_TOO_MANY + 2);
        assert!((0..FIRST_TOO_MANY).all(|queue| queues.keep_idle(queue).is_none()));
        queues.get_mut(0).expect("it is open").attempt = 1;
        assert!(queues.keep_idle(FIRST_TOO_MANY).is_none());
        queues.get_mut(0).expect("it is open").attempt = 0;
        assert!(queues.keep_idle(0).is_some_and(|(_, number)| number == 1), "it is listed again, as the last one");
    }
}
