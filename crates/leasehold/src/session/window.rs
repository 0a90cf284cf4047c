//! How much is under way at once.
//!
//! A hundred thousand requests can be due at once: on a new link, behind a stop of this process, when a client closes; or
//! they fall due faster than a busy server answers. Sent all the same, the last of them wait until their link is doubted,
//! and replaced, and everything begins again: leases are lost of which two thirds were left, and nothing is given back. So
//! they wait here for the answers to those before, and the server is never far behind.
//!
//! Each kind of request has a window of its own: a client that gives a hundred thousand leases back goes on renewing the
//! others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use leasehold_spec::Name;

use super::state::Spread;

/// How many requests of one kind are under way at most.
const WINDOW: usize = 4_096;
/// How many leave in one turn: nobody else shall wait for long for the state's lock.
const BURST: usize = 1_024;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Return,
    Renewal,
    Look,
    /// Of a name, and of no attempt.
    Settle,
}

/// What of each kind is due, and how much is under way.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    windows: [Window; 4],
    /// The names that are to be settled, in the order in which that fell due.
    settles: VecDeque<Name>,
}

#[derive(Debug, Default)]
struct Window {
    /// By rank, and the attempt. It may have been sent since, or want something else.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    /// Those attempts. Each has one place, however often it comes to ask for its turn while the window stands.
    waiting: HashSet<u64, BuildHasherDefault<Spread>>,
    under_way: usize,
}

impl Windows {
    /// The attempt waits for its turn: those of the lowest rank come first.
    pub(crate) fn wait(&mut self, kind: Kind, rank: u64, counter: u64) {
        let window = self.of(kind);
        if window.waiting.insert(counter) {
            window.due.push(Reverse((rank, counter)));
        }
    }

    /// The same for a name that is to be settled.
    pub(crate) fn settle(&mut self, name: Name) {
        self.settles.push_back(name);
    }

    /// How many may leave now.
    pub(crate) fn room(&self, kind: Kind) -> usize {
        BURST.min(WINDOW.saturating_sub(self.windows[kind as usize].under_way))
    }

    /// Whose turn it is.
    pub(crate) fn next(&mut self, kind: Kind) -> Option<u64> {
        let window = self.of(kind);
        let Reverse((_, counter)) = window.due.pop()?;
        window.waiting.remove(&counter);
        Some(counter)
    }

    /// Which name is to be settled next.
    pub(crate) fn next_settle(&mut self) -> Option<Name> {
        self.settles.pop_front()
    }

    pub(crate) fn sent(&mut self, kind: Kind) {
        self.of(kind).under_way += 1;
    }

    /// So many have their answers, or will have none.
    pub(crate) fn ended(&mut self, kind: Kind, count: usize) {
        self.of(kind).under_way -= count;
    }

    /// Whether something waits that may leave.
    pub(crate) fn is_due(&self) -> bool {
        self.windows.iter().any(|window| !window.due.is_empty() && window.under_way < WINDOW)
    }

    /// Whether a name waits to be settled that may be. That is sent on the session's own link only.
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
            windows.wait(Kind::Look, rank, 7);
        }
        windows.wait(Kind::Look, 4, 8);
        windows.wait(Kind::Return, 9, 7);
        assert_eq!((windows.next(Kind::Look), windows.next(Kind::Look)), (Some(8), Some(7)));
        assert_eq!((windows.next(Kind::Look), windows.next(Kind::Return)), (None, Some(7)));
        assert!(!windows.is_due());
        // It may come again.
        windows.wait(Kind::Look, 5, 7);
        assert_eq!(windows.next(Kind::Look), Some(7));
    }

    #[test]
    fn a_full_window_lets_nobody_out() {
        let mut windows = Windows::default();
        windows.settle(Name::new("name").unwrap());
        (0..WINDOW).for_each(|_| windows.sent(Kind::Settle));
        assert!(!windows.may_settle() && windows.room(Kind::Look) > 0);
        windows.ended(Kind::Settle, 1);
        assert!(windows.may_settle());
        assert!(windows.next_settle().is_some() && windows.next_settle().is_none());
    }
}
