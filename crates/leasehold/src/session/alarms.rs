//! When to look at what next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A heap of moments that is cleaned as it is read: what ended, or was moved back, leaves its entry behind, and the
/// reader finds nothing due. Setting an alarm is one push, and none where an earlier one stands.
#[derive(Debug)]
pub(crate) struct Alarms<K: Ord> {
    heap: BinaryHeap<Reverse<(u64, K)>>,
}

impl<K: Ord> Default for Alarms<K> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

impl<K: Ord> Alarms<K> {
    pub(crate) fn set(&mut self, at_us: u64, what: K) {
        self.heap.push(Reverse((at_us, what)));
    }

    pub(crate) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// The one that rings first.
    pub(crate) fn first(&self) -> Option<(u64, K)>
    where
        K: Copy,
    {
        self.heap.peek().map(|Reverse(first)| *first)
    }

    /// One that has rung by `now_us`, and when it did.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(u64, K)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(rung)| rung)
    }
}
