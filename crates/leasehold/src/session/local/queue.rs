//! Local queues: the callers of this process that wait for one name, and are handed the lock without a round trip (P21).
//!
//! A local queue waits at the store as one attempt, whichever of its waiters began it. That attempt has no caller. Its
//! grant goes to the first waiter that is still there, and from guard to guard as far as the
//! [`HandOverBudget`](super::budget::HandOverBudget) allows. A name has one queue for each length of lease that its callers
//! ask for, nearly always one: a lease cannot have two lengths at once.
//!
//! Each waiter has a deadline of its own, and the entry of the queue stays at the store as long as the last of them waits.
//! The acquire tells the store that time, and the store then drops the entry by itself. If a caller comes later and waits
//! for longer, another acquire tells the new time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use leasehold_spec::Name;
use leasehold_spec::limits::QUEUE_MAX;
use leasehold_spec::mark::{Mark, hit};
use tokio::sync::oneshot;

use crate::session::inbox_keeper::InboxKeeper;
use crate::session::terms::Terms;

pub(crate) struct LocalQueue<V> {
    pub(crate) name: Name,
    pub(crate) terms: Arc<Terms>,
    /// The attempt that stands for the queue at the store; 0 while there is none.
    pub(crate) attempt: u64,
    waiters: VecDeque<Waiter<V>>,
    /// The deadlines of the waiters that have one, and their numbers.
    deadlines: BTreeSet<(u64, u64)>,
    /// The earliest alarm that is set. `u64::MAX`: none.
    alarm_us: u64,
    /// How long the store keeps the entry, as the last acquire said.
    sent_deadline_us: u64,
}

/// A caller that waits for a result `V`.
pub(crate) struct Waiter<V> {
    pub(crate) number: u64,
    /// `u64::MAX`: for ever.
    pub(crate) until_us: u64,
    pub(crate) sticky_us: u64,
    pub(crate) caller: oneshot::Sender<V>,
    pub(crate) _keeps_inbox: Option<InboxKeeper>,
}

/// The number of a waiter, and its queue.
#[derive(Clone, Copy)]
pub(crate) struct WaiterId {
    pub(crate) queue: u64,
    pub(crate) number: u64,
}

impl<V> LocalQueue<V> {
    pub(crate) fn new(name: Name, terms: Arc<Terms>) -> Self {
        let (waiters, deadlines) = (VecDeque::new(), BTreeSet::new());
        Self { name, terms, attempt: 0, waiters, deadlines, alarm_us: u64::MAX, sent_deadline_us: 0 }
    }

    /// Returns whether nobody waits here, and no attempt stands for the queue.
    pub(crate) fn is_idle(&self) -> bool {
        self.attempt == 0 && self.is_empty()
    }

    /// The first caller that comes to an idle queue brings the terms of its next attempt.
    pub(crate) fn set_terms_if_idle(&mut self, terms: &Arc<Terms>) {
        if self.is_idle() {
            self.terms = Arc::clone(terms);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiters.len() >= QUEUE_MAX
    }

    /// Returns whether another caller is expected behind the next one: one waits, or the lease will be kept for one.
    pub(crate) fn expects_others(&self) -> bool {
        self.waiters.len() > 1 || self.waiters.iter().any(|waiter| waiter.sticky_us > 0)
    }

    pub(crate) fn push(&mut self, waiter: Waiter<V>) {
        if waiter.until_us != u64::MAX {
            self.deadlines.insert((waiter.until_us, waiter.number));
        }
        self.waiters.push_back(waiter);
    }

    /// Removes and returns the first waiter that is still there.
    pub(crate) fn next(&mut self) -> Option<Waiter<V>> {
        loop {
            let waiter = self.waiters.pop_front()?;
            self.deadlines.remove(&(waiter.until_us, waiter.number));
            if !waiter.caller.is_closed() {
                return Some(waiter);
            }
            hit(Mark::NextHadGone);
        }
    }

    /// Removes and returns the waiter with this number.
    pub(crate) fn take(&mut self, number: u64) -> Option<Waiter<V>> {
        let at = self.waiters.binary_search_by_key(&number, |waiter| waiter.number).ok()?;
        let waiter = self.waiters.remove(at)?;
        self.deadlines.remove(&(waiter.until_us, waiter.number));
        Some(waiter)
    }

    /// Removes and returns a waiter whose deadline is over.
    pub(crate) fn take_overdue(&mut self, is_over: impl Fn(u64) -> bool) -> Option<Waiter<V>> {
        let (_, number) = self.deadlines.first().copied().filter(|(until_us, _)| is_over(*until_us))?;
        self.take(number)
    }

    /// Removes and returns all waiters.
    pub(crate) fn drain(&mut self) -> VecDeque<Waiter<V>> {
        self.deadlines.clear();
        std::mem::take(&mut self.waiters)
    }

    pub(crate) fn first_deadline_us(&self) -> Option<u64> {
        self.deadlines.first().map(|(until_us, _)| *until_us)
    }

    /// Returns whether an alarm for this moment has to be set, and notes it: there is none that is earlier.
    pub(crate) fn sets_alarm(&mut self, at_us: u64) -> bool {
        let is_earlier = at_us < self.alarm_us;
        if is_earlier {
            self.alarm_us = at_us;
        }
        is_earlier
    }

    /// Returns whether the alarm that rings is the earliest, and notes that it is over. An alarm that was set before an
    /// earlier one is dropped: if it were set again, alarms would pile up.
    pub(crate) fn takes_alarm(&mut self, at_us: u64) -> bool {
        let is_earliest = at_us == self.alarm_us;
        if is_earliest {
            self.alarm_us = u64::MAX;
        }
        is_earliest
    }

    /// Returns how long the last waiter waits.
    fn last_deadline_us(&self) -> u64 {
        let timed_us = self.deadlines.last().map_or(0, |(until_us, _)| *until_us);
        if self.deadlines.len() < self.waiters.len() { u64::MAX } else { timed_us }
    }

    /// Returns how long the entry is to stay at the store, and notes it as sent.
    pub(crate) fn note_sent_deadline_us(&mut self) -> u64 {
        self.sent_deadline_us = self.last_deadline_us();
        self.sent_deadline_us
    }

    /// Returns whether a waiter with this deadline waits for longer than the store keeps the entry.
    pub(crate) fn outlasts(&self, until_us: u64) -> bool {
        until_us > self.sent_deadline_us
    }

    /// Returns whether a waiter came that waits for longer than the store keeps the entry.
    pub(crate) fn outlives_sent_deadline(&self) -> bool {
        self.outlasts(self.last_deadline_us())
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    #[test]
    fn an_idle_queue_takes_the_terms_of_its_next_caller() {
        let name = Name::new("name").expect("a valid name");
        let terms = |sticky_us| Arc::new(Terms { sticky_us, ..Terms::of_an_end() });
        let mut queue = LocalQueue::<()>::new(name, terms(0));
        queue.set_terms_if_idle(&terms(1));
        assert_eq!(queue.terms.sticky_us, 1);
        queue.attempt = 1;
        queue.set_terms_if_idle(&terms(2));
        assert_eq!(queue.terms.sticky_us, 1, "the attempt goes on with its own terms");
    }

    /// The name is always wanted. In each cycle a caller comes with an earlier deadline than the one that waits.
    #[test]
    fn alarms_of_later_deadlines_do_not_pile_up() {
        let name = Name::new("name").expect("a valid name");
        let mut queue = LocalQueue::<()>::new(name, Arc::new(Terms::of_an_end()));
        let (mut alarms, mut rung) = (BinaryHeap::new(), 0);
        for cycle in 0..100_u64 {
            let now_us = cycle * 7;
            while alarms.peek().is_some_and(|Reverse(at_us)| *at_us <= now_us) {
                let Reverse(at_us) = alarms.pop().expect("there is one");
                if queue.takes_alarm(at_us) {
                    rung += 1;
                    // The next deadline is far away.
                    alarms.extend(queue.sets_alarm(now_us + 50).then_some(Reverse(now_us + 50)));
                }
            }
            alarms.extend(queue.sets_alarm(now_us + 5).then_some(Reverse(now_us + 5)));
        }
        assert!(rung >= 98, "the earliest alarm of each cycle rings: {rung}");
        assert!(alarms.len() <= 10, "{} alarms are set", alarms.len());
    }
}
