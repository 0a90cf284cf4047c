//! A queue of alarms.
//!
//! A client of a hundred thousand leases sets as many alarms, most of them for a few seconds from now. One heap of all
//! alarms would cost a search through megabytes at each alarm. So time is divided into spans. Only the alarms of the
//! nearest span are in a heap. The alarms of a later span are in a list without order until that span begins.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A span is short enough to hold few alarms, and long enough that few spans lie ahead.
const SPAN_US: u64 = 50_000;

/// Alarms, each for a key. An alarm is never removed before its time: if its key has ended or was moved back, the reader
/// of the alarm finds nothing due. Setting an alarm is one push.
#[derive(Debug)]
pub(crate) struct Alarms<K: Ord> {
    /// The alarms of all spans up to `nearest`.
    near: BinaryHeap<Reverse<(u64, K)>>,
    nearest: u64,
    /// The alarms of later spans.
    far: BTreeMap<u64, Vec<Reverse<(u64, K)>>>,
}

impl<K: Ord> Default for Alarms<K> {
    fn default() -> Self {
        Self { near: BinaryHeap::new(), nearest: 0, far: BTreeMap::new() }
    }
}

impl<K: Ord> Alarms<K> {
    pub(crate) fn set(&mut self, at_us: u64, key: K) {
        let span = at_us / SPAN_US;
        if span <= self.nearest {
            self.near.push(Reverse((at_us, key)));
        } else {
            self.far.entry(span).or_default().push(Reverse((at_us, key)));
        }
    }

    pub(crate) fn next_us(&mut self) -> Option<u64> {
        self.gather();
        self.near.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// Returns the earliest alarm.
    pub(crate) fn first(&mut self) -> Option<(u64, K)>
    where
        K: Copy,
    {
        self.gather();
        self.near.peek().map(|Reverse(first)| *first)
    }

    /// Removes and returns an alarm whose time has come by `now_us`.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(u64, K)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.near.pop().map(|Reverse(rung)| rung)
    }

    /// Moves the next span with alarms into the heap, if the heap is empty.
    fn gather(&mut self) {
        if self.near.is_empty()
            && let Some((span, alarms)) = self.far.pop_first()
        {
            self.nearest = span;
            self.near = alarms.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_ring_in_order() {
        let (mut alarms, mut heap) = (Alarms::default(), BinaryHeap::new());
        let (mut seed, mut now_us) = (7_u64, 0);
        for key in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // In this span, in the next ones, far ahead, and in the past.
            let ahead_us = [SPAN_US / 2, 3 * SPAN_US, 1_000 * SPAN_US, 1][(seed >> 60) as usize % 4];
            let at_us = (now_us + (seed >> 33) % ahead_us).saturating_sub(SPAN_US / 10);
            alarms.set(at_us, key);
            heap.push(Reverse((at_us, key)));
            if key % 3 == 0 {
                now_us += (seed >> 40) % SPAN_US;
                assert_eq!(alarms.next_us(), heap.peek().map(|Reverse((at_us, _))| *at_us));
                while let Some(rung) = alarms.pop(now_us) {
                    assert!(rung.0 <= now_us);
                    assert_eq!(heap.pop(), Some(Reverse(rung)));
                }
                assert!(heap.peek().is_none_or(|Reverse((at_us, _))| *at_us > now_us), "one has not rung");
            }
        }
        assert_eq!(alarms.first(), heap.peek().map(|Reverse(first)| *first));
        while let Some(rung) = alarms.pop(u64::MAX) {
            assert_eq!(heap.pop(), Some(Reverse(rung)));
        }
        assert!(heap.is_empty());
    }

    #[test]
    fn an_alarm_may_be_set_for_the_end_of_time() {
        let mut alarms = Alarms::default();
        alarms.set(u64::MAX, 1);
        alarms.set(5, 2);
        assert_eq!((alarms.pop(5), alarms.pop(5), alarms.pop(u64::MAX)), (Some((5, 2)), None, Some((u64::MAX, 1))));
    }
}
