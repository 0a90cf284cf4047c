//! Amnesia: how a node that may have forgotten something is found out, and how long it abstains.
//!
//! A node that lost its records votes twice: for the holder, before, and for somebody else, after. Waiting until every
//! lease that it may have forgotten has ended repairs that (Redlock's "delayed restart"), and nothing else: it has
//! forgotten its tokens, too, and would vote for one that is not above them. So it votes only for tokens near its own
//! clock, and rests until those from before its loss are behind that: with a window W on either side and clocks within E
//! of the true time, for more than 2 (W + E). Both are searched to their very edge by the models of the lab.
//!
//! What tells of a loss is a *marker* beside the records. It goes with them when they are flushed, or when the node comes
//! back empty; and it names the run of the server that it was written for, so that a node that comes back with what it had
//! saved a second ago is found out as well. Each request is compared with it. A node that saves every change before it
//! answers has forgotten nothing by a restart, and need not rest for one.

use crate::limits::{CLOCK_ERROR_MS, TOKEN_WINDOW_MS};
use crate::mutant::{Mutant, is_on};

/// What all clients of a quorum must agree on, or their majorities need not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charter {
    /// How many nodes there are.
    pub nodes: usize,
    /// The longest lease.
    pub max_lease_ms: u64,
}

/// What a node knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The quorum's charter.
    pub charter: Charter,
    /// The run of the server that this was written for.
    pub run: String,
    /// Until when it abstains, on its own clock.
    pub rests_until_us: u64,
}

/// Why a node has no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abstention {
    /// Its marker is gone, or another than the client has seen: greet it anew.
    Unmarked,
    /// It may have forgotten something, and rests.
    Resting {
        /// For so long.
        left_us: u64,
    },
}

/// The node belongs to a quorum with another charter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unlike(pub Charter);

/// How long a node abstains that may have forgotten something.
#[must_use]
pub fn rest_ms(max_lease_ms: u64) -> u64 {
    if is_on(Mutant::QNoRest) {
        return 0;
    }
    max_lease_ms.max(2 * (TOKEN_WINDOW_MS + CLOCK_ERROR_MS) + 1)
}

/// A client greets the node: the marker from now on.
///
/// `forgets` is false of a server that saves every change before it answers.
pub fn enter(
    known: Option<&Marker>,
    charter: Charter,
    run: &str,
    forgets: bool,
    now_us: u64,
) -> Result<Marker, Unlike> {
    let rested_us = now_us + rest_ms(charter.max_lease_ms) * 1000;
    let rests_until_us = match known {
        Some(known) if known.charter != charter => return Err(Unlike(known.charter)),
        // It cannot be further away than a rest that begins now: the clock was set back since.
        Some(known) if known.run == run || !forgets => known.rests_until_us.min(rested_us),
        _ => rested_us,
    };
    Ok(Marker { charter, run: run.to_owned(), rests_until_us })
}

impl Marker {
    /// Why the node has no vote, asked by a client that has seen this marker.
    #[must_use]
    pub fn abstains(&self, known: Option<&Self>, now_us: u64) -> Option<Abstention> {
        match known {
            Some(known) if known == self => {
                let left_us = self.rests_until_us.saturating_sub(now_us);
                (left_us > 0).then_some(Abstention::Resting { left_us })
            }
            _ => Some(Abstention::Unmarked),
        }
    }
}
