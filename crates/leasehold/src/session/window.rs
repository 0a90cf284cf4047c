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
use std::collections::BinaryHeap;

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
}

/// What of each kind is due, and how much is under way.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    windows: [Window; 3],
}

#[derive(Debug, Default)]
struct Window {
    /// By rank, and the attempt. It may have been sent since, or want something else.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    under_way: usize,
}

impl Windows {
    /// The attempt waits for its turn: those of the lowest rank come first.
    pub(crate) fn wait(&mut self, kind: Kind, rank: u64, counter: u64) {
        self.of(kind).due.push(Reverse((rank, counter)));
    }

    /// How many may leave now.
    pub(crate) fn room(&self, kind: Kind) -> usize {
        BURST.min(WINDOW.saturating_sub(self.windows[kind as usize].under_way))
    }

    /// Whose turn it is.
    pub(crate) fn next(&mut self, kind: Kind) -> Option<u64> {
        self.of(kind).due.pop().map(|Reverse((_, counter))| counter)
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

    fn of(&mut self, kind: Kind) -> &mut Window {
        &mut self.windows[kind as usize]
    }
}
