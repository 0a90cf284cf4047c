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
//! saved a second ago is found out as well. Each request is compared with it.
//!
//! A node that saves every change before it answers has forgotten nothing by a restart, and need not rest for one. What
//! counts is how it was *before* that: one that was told to save everything when it came back has forgotten all the same.
//! So the marker keeps whether its run was ever seen to forget. What no marker shows is an old copy of a node's files, put
//! back: whoever does that deletes the marker with the same hand, and the node rests.

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
    /// Whether that run was seen not to save every change before it answers, at any time: then a restart can have lost
    /// some of it.
    pub forgets: bool,
    /// Until when it abstains, on its own clock.
    pub rests_until_us: u64,
    /// Whether this was written over the marker of another run: the node was in use before. Of one that was not, nothing is
    /// known: it is new, or was emptied.
    pub was_used: bool,
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
    let is_same_run = known.is_some_and(|known| known.run == run);
    let rests_until_us = match known {
        Some(known) if known.charter != charter => return Err(Unlike(known.charter)),
        // It cannot be further away than a rest that begins now: the clock was set back since.
        Some(known) if is_same_run || !(forgets || known.forgets) => known.rests_until_us.min(rested_us),
        _ => rested_us,
    };
    // It began to save, and what it had not saved by then may still not be: its word counts from its next run on.
    let forgets = forgets || known.is_some_and(|known| is_same_run && known.forgets);
    let was_used = known.is_some_and(|known| !is_same_run || known.was_used);
    Ok(Marker { charter, run: run.to_owned(), forgets, rests_until_us, was_used })
}

/// The marker of a node that votes at once, whatever it may have forgotten: no lease of this quorum is held by anybody.
#[must_use]
pub fn begin(charter: Charter, run: &str, forgets: bool) -> Marker {
    Marker { charter, run: run.to_owned(), forgets, rests_until_us: 0, was_used: false }
}

/// Whether a node that was asked for holders, and is to begin, may have lost what it knew then. `asked` is its marker at
/// that time, `known` the one now.
///
/// The connection is the same one, so the run is. Then only a node that had a marker of this run had records of it to lose,
/// and whatever takes them takes the marker as well. What was granted since is in the records of those that granted it, and
/// a node keeps its records when it begins.
#[must_use]
pub fn has_lost(known: Option<&Marker>, asked: Option<&Marker>, run: &str) -> bool {
    asked.is_some_and(|asked| asked.run == run && known != Some(asked)) && !is_on(Mutant::QBeginsBlindly)
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

#[cfg(test)]
mod tests {
    use super::*;

    const CHARTER: Charter = Charter { nodes: 3, max_lease_ms: 60_000 };
    const NOW_US: u64 = 1_763_650_000_000_000;
    const RESTED_US: u64 = NOW_US + 60_000_000;

    fn marker(run: &str, forgets: bool, rests_until_us: u64) -> Marker {
        Marker { charter: CHARTER, run: run.to_owned(), forgets, rests_until_us, was_used: false }
    }

    fn entered(known: Option<&Marker>, run: &str, forgets: bool) -> Marker {
        enter(known, CHARTER, run, forgets, NOW_US).unwrap()
    }

    #[test]
    fn a_node_without_a_marker_rests_also_if_it_saves_everything_now() {
        for forgets in [false, true] {
            assert_eq!(entered(None, "a", forgets), marker("a", forgets, RESTED_US));
        }
    }

    #[test]
    fn a_restart_is_nothing_to_a_node_that_saved_before_it_and_saves_now() {
        for (before, now, rests_until_us) in
            [(false, false, 7), (true, false, RESTED_US), (false, true, RESTED_US), (true, true, RESTED_US)]
        {
            let entered = entered(Some(&marker("a", before, 7)), "b", now);
            let expected = Marker { was_used: true, ..marker("b", now, rests_until_us) };
            assert_eq!(entered, expected, "before {before}, now {now}");
        }
    }

    #[test]
    fn one_run_that_was_seen_to_forget_has_forgotten() {
        assert_eq!(entered(Some(&marker("a", true, 7)), "a", false), marker("a", true, 7));
        assert_eq!(entered(Some(&marker("a", false, 7)), "a", true), marker("a", true, 7));
        assert_eq!(entered(Some(&marker("a", false, 7)), "a", false), marker("a", false, 7));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_rest_longer() {
        assert_eq!(entered(Some(&marker("a", true, u64::MAX)), "a", true), marker("a", true, RESTED_US));
    }

    #[test]
    fn only_the_marker_of_another_run_shows_that_a_node_was_used() {
        let new = entered(None, "a", true);
        assert!(!new.was_used && !entered(Some(&new), "a", true).was_used);
        let used = entered(Some(&new), "b", true);
        assert!(used.was_used && entered(Some(&used), "b", true).was_used && entered(Some(&used), "c", true).was_used);
        assert!(
            !begin(CHARTER, "b", true).was_used && !entered(None, "b", true).was_used,
            "emptied, as far as it knows"
        );
    }

    #[test]
    fn what_a_node_knew_is_lost_with_its_marker() {
        let (asked, other) = (marker("a", true, 7), marker("a", true, 8));
        assert!(!has_lost(Some(&asked), Some(&asked), "a"));
        assert!(has_lost(None, Some(&asked), "a"), "it was emptied");
        assert!(has_lost(Some(&other), Some(&asked), "a"), "it was emptied, and greeted since");
        assert!(!has_lost(Some(&asked), None, "a"), "it knew nothing, and was greeted since");
        assert!(!has_lost(Some(&marker("b", true, 7)), Some(&asked), "b"), "it rested already, and was greeted since");
    }

    #[test]
    fn another_charter_is_refused_also_of_another_run() {
        let other = Charter { nodes: 5, ..CHARTER };
        assert_eq!(enter(Some(&marker("a", true, 7)), other, "b", true, NOW_US), Err(Unlike(CHARTER)));
    }
}
