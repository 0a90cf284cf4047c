//! When to look at what next.
//!
//! A client of a hundred thousand leases sets as many alarms, most of them for a few seconds from now. One heap of all of
//! them is a search through megabytes at each. So time is divided into spans, and only what rings within the nearest is
//! in a heap; what rings later is put down beside the others of its span, in no order, until that has come.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// As long that few alarms fall into a span, and as short that few spans lie ahead.
const SPAN_US: u64 = 50_000;

/// Moments, cleaned as they are read: what ended, or was moved back, leaves its entry behind, and the reader finds nothing
/// due. Setting an alarm is one push, and none where an earlier one stands.
#[derive(Debug)]
pub(crate) struct Alarms<K: Ord> {
    /// All of the spans up to this one.
    near: BinaryHeap<Reverse<(u64, K)>>,
    nearest: u64,
    /// Those of later spans.
    far: BTreeMap<u64, Vec<Reverse<(u64, K)>>>,
}

impl<K: Ord> Default for Alarms<K> {
    fn default() -> Self {
        Self { near: BinaryHeap::new(), nearest: 0, far: BTreeMap::new() }
    }
}

impl<K: Ord> Alarms<K> {
    pub(crate) fn set(&mut self, at_us: u64, what: K) {
        let span = at_us / SPAN_US;
        if span <= self.nearest {
            self.near.push(Reverse((at_us, what)));
        } else {
            self.far.entry(span).or_default().push(Reverse((at_us, what)));
        }
    }

    pub(crate) fn next_us(&mut self) -> Option<u64> {
        self.gather();
        self.near.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// The one that rings first.
    pub(crate) fn first(&mut self) -> Option<(u64, K)>
    where
        K: Copy,
    {
        self.gather();
        self.near.peek().map(|Reverse(first)| *first)
    }

    /// One that has rung by `now_us`, and when it did.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(u64, K)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.near.pop().map(|Reverse(rung)| rung)
    }

    /// The next span that has any, where this one is over.
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
    fn they_ring_in_order_however_they_were_set() {
        let (mut alarms, mut heap) = (Alarms::default(), BinaryHeap::new());
        let (mut seed, mut now_us) = (7_u64, 0);
        for what in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // In this span, in the next ones, far ahead, and in the past.
            let ahead_us = [SPAN_US / 2, 3 * SPAN_US, 1_000 * SPAN_US, 1][(seed >> 60) as usize % 4];
            let at_us = (now_us + (seed >> 33) % ahead_us).saturating_sub(SPAN_US / 10);
            alarms.set(at_us, what);
            heap.push(Reverse((at_us, what)));
            if what % 3 == 0 {
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
    fn the_end_of_time_is_a_moment_like_others() {
        let mut alarms = Alarms::default();
        alarms.set(u64::MAX, 1);
        alarms.set(5, 2);
        assert_eq!((alarms.pop(5), alarms.pop(5), alarms.pop(u64::MAX)), (Some((5, 2)), None, Some((u64::MAX, 1))));
    }
}
