//! How many requests are in flight at once.
//!
//! A hundred thousand requests can be due at once: on a new connection, after a stop of this process, or when a client
//! closes. They can also fall due faster than a busy server replies. If all of them were sent, the last of them would wait
//! until their connection is doubted and replaced, and everything would begin again: leases of which two thirds were left
//! would be lost, and nothing would be released. So requests wait here for the replies to earlier ones.
//!
//! Each kind of request has a window of its own. For example, a client that releases a hundred thousand leases still renews
//! its others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use leasehold_spec::Name;

use crate::session::counters::NumberHashing;

/// The most requests of one kind that are in flight.
const WINDOW: usize = 4_096;
/// The most requests that one turn sends, because callers wait for the lock of the machine meanwhile.
const BURST: usize = 1_024;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Return,
    Renewal,
    Recheck,
    /// A settle of a name, without an attempt.
    Settle,
}

/// For each kind, the requests that are due, and the number in flight.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    windows: [Window; 4],
    /// The names to settle, in the order in which they fell due.
    settles: VecDeque<Name>,
}

#[derive(Debug, Default)]
struct Window {
    /// Attempts by rank. An attempt may have been served since then, or may need something else.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    /// The same attempts, so that each has one place, however often it asks for its turn.
    waiting: HashSet<u64, NumberHashing>,
    in_flight: usize,
}

impl Windows {
    /// Lets an attempt wait for its turn. Lower ranks come first.
    pub(crate) fn wait(&mut self, kind: Kind, rank: u64, counter: u64) {
        let window = self.of(kind);
        if window.waiting.insert(counter) {
            window.due.push(Reverse((rank, counter)));
        }
    }

    /// Lets a name wait to be settled.
    pub(crate) fn settle(&mut self, name: Name) {
        self.settles.push_back(name);
    }

    /// Returns how many requests may be sent now.
    pub(crate) fn room(&self, kind: Kind) -> usize {
        BURST.min(WINDOW.saturating_sub(self.windows[kind as usize].in_flight))
    }

    /// Removes and returns the attempt whose turn it is.
    pub(crate) fn next(&mut self, kind: Kind) -> Option<u64> {
        let window = self.of(kind);
        let Reverse((_, counter)) = window.due.pop()?;
        window.waiting.remove(&counter);
        Some(counter)
    }

    /// Removes and returns the name to settle next.
    pub(crate) fn next_settle(&mut self) -> Option<Name> {
        self.settles.pop_front()
    }

    pub(crate) fn sent(&mut self, kind: Kind) {
        self.of(kind).in_flight += 1;
    }

    /// Notes that `count` requests were answered, or will never be.
    pub(crate) fn ended(&mut self, kind: Kind, count: usize) {
        self.of(kind).in_flight -= count;
    }

    /// Returns whether an attempt waits that may be served now.
    pub(crate) fn is_due(&self) -> bool {
        self.windows.iter().any(|window| !window.due.is_empty() && window.in_flight < WINDOW)
    }

    /// Returns whether a name waits that may be settled now. Settles are sent on the session's own connection only.
    pub(crate) fn may_settle(&self) -> bool {
        !self.settles.is_empty() && self.room(Kind::Settle) > 0
    }

    fn of(&mut self, kind: Kind) -> &mut Window {
        &mut self.windows[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_one_place_in_its_window() {
        let mut windows = Windows::default();
        for rank in [5, 3, 4, 3] {
            windows.wait(Kind::Recheck, rank, 7);
        }
        windows.wait(Kind::Recheck, 4, 8);
        windows.wait(Kind::Return, 9, 7);
        assert_eq!((windows.next(Kind::Recheck), windows.next(Kind::Recheck)), (Some(8), Some(7)));
        assert_eq!((windows.next(Kind::Recheck), windows.next(Kind::Return)), (None, Some(7)));
        assert!(!windows.is_due());
        windows.wait(Kind::Recheck, 5, 7);
        assert_eq!(windows.next(Kind::Recheck), Some(7));
    }

    #[test]
    fn a_full_window_sends_nothing() {
        let mut windows = Windows::default();
        windows.settle(Name::new("name").unwrap());
        (0..WINDOW).for_each(|_| windows.sent(Kind::Settle));
        assert!(!windows.may_settle() && windows.room(Kind::Recheck) > 0);
        windows.ended(Kind::Settle, 1);
        assert!(windows.may_settle());
        assert!(windows.next_settle().is_some() && windows.next_settle().is_none());
    }
}
