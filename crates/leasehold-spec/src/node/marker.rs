//! Amnesia: how a node that may have forgotten something is detected, and how long it abstains.
//!
//! A node that lost its records votes twice: for the holder before the loss, and for another client after it. To wait
//! until every lease that the node may have forgotten has ended (Redlock's "delayed restart") repairs only that. The
//! node has also forgotten its tokens, and would vote for a token that is not above them. So a node votes only for
//! tokens near its own clock, and abstains until the tokens from before its loss are in the past. With a window W on
//! either side, and clocks within E of the true time, this takes more than 2 (W + E). The models of the lab search both
//! waits to their exact bounds.
//!
//! A loss is detected by a *marker* beside the records. If the records are flushed, or the node comes back empty, the
//! marker is gone as well. The marker names the run of the server for which it was written. So a node that comes back
//! with the state that it had saved a second ago is detected, too. Each request is compared with the marker.
//!
//! A node that saves every change before it answers forgets nothing by a restart, and need not abstain after it. The
//! setting *before* the restart counts: a node that was set to save everything only when it came back may have
//! forgotten all the same. So the marker keeps whether its run was ever seen to forget. The marker does not show that
//! an old copy of a node's files was put back. An operator who puts one back must delete the marker, too. Then the node
//! abstains.

use crate::limits::{CLOCK_ERROR_MS, TOKEN_WINDOW_MS};
use crate::mutant::{Mutant, is_on};

/// The settings on which all clients of a quorum must agree. Otherwise two majorities might not share a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charter {
    /// The number of nodes.
    pub nodes: usize,
    /// The longest lease.
    pub max_lease_ms: u64,
}

/// The knowledge of a node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The charter of the quorum.
    pub charter: Charter,
    /// The ID of the server run for which the marker was written.
    pub run: String,
    /// Whether that run was seen, at any time, not to save every change before it answers. Then a restart can have lost
    /// changes.
    pub forgets: bool,
    /// The time until which the node abstains, on its own clock.
    pub rests_until_us: u64,
    /// Whether this marker replaced the marker of another run: then the node was in use before. Otherwise nothing is
    /// known about the past of the node: it is new, or was emptied.
    pub was_used: bool,
}

/// The reason for which a node has no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abstention {
    /// The marker of the node is gone, or differs from the one that the client has seen. The client must greet the node
    /// again.
    Unmarked,
    /// The node may have forgotten something, and is in quarantine.
    Resting {
        /// The time left of the quarantine.
        left_us: u64,
    },
}

/// The node belongs to a quorum with another charter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unlike(pub Charter);

/// Returns the length of the quarantine of a node that may have forgotten something.
#[must_use]
pub fn rest_ms(max_lease_ms: u64) -> u64 {
    if is_on(Mutant::QNoRest) {
        return 0;
    }
    max_lease_ms.max(2 * (TOKEN_WINDOW_MS + CLOCK_ERROR_MS) + 1)
}

/// Returns the new marker of a node that a client greets.
///
/// `forgets` is false if the server saves every change before it answers.
pub fn enter(
    known: Option<&Marker>,
    charter: Charter,
    run: &str,
    forgets: bool,
    now_us: u64,
) -> Result<Marker, Unlike> {
    let quarantine_end_us = now_us + rest_ms(charter.max_lease_ms) * 1000;
    let is_same_run = known.is_some_and(|known| known.run == run);
    let rests_until_us = match known {
        Some(known) if known.charter != charter => return Err(Unlike(known.charter)),
        // A quarantine never lasts longer than one that begins now. A later end means that the clock was set back
        // since.
        Some(known) if is_same_run || !(forgets || known.forgets) => known.rests_until_us.min(quarantine_end_us),
        _ => quarantine_end_us,
    };
    // The server began to save every change during this run. Earlier changes may still not be saved, so the new setting
    // counts from the next run on.
    let forgets = forgets || known.is_some_and(|known| is_same_run && known.forgets);
    let was_used = known.is_some_and(|known| !is_same_run || known.was_used);
    Ok(Marker { charter, run: run.to_owned(), forgets, rests_until_us, was_used })
}

/// Returns the marker of a node that votes at once, whatever it may have forgotten: nobody holds a lease of this
/// quorum.
#[must_use]
pub fn begin(charter: Charter, run: &str, forgets: bool) -> Marker {
    Marker { charter, run: run.to_owned(), forgets, rests_until_us: 0, was_used: false }
}

/// Whether a node may have lost its records between two steps of `begin`: it was asked for holders, and now it is to
/// begin. `asked` is its marker at the time of the first step, `known` is its marker now.
///
/// The connection is the same, so the run is the same. So only a node that had a marker of this run had records to
/// lose, and any loss of the records takes the marker as well. Grants that were made since are in the records of the
/// nodes that voted for them, and a node keeps its records when it begins.
#[must_use]
pub fn has_lost(known: Option<&Marker>, asked: Option<&Marker>, run: &str) -> bool {
    asked.is_some_and(|asked| asked.run == run && known != Some(asked)) && !is_on(Mutant::QBeginsBlindly)
}

impl Marker {
    /// Returns the reason for which the node has no vote, for a client that has seen this marker. `known` is the marker
    /// of the node now.
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
    const QUARANTINE_END_US: u64 = NOW_US + 60_000_000;

    fn marker(run: &str, forgets: bool, rests_until_us: u64) -> Marker {
        Marker { charter: CHARTER, run: run.to_owned(), forgets, rests_until_us, was_used: false }
    }

    fn entered(known: Option<&Marker>, run: &str, forgets: bool) -> Marker {
        enter(known, CHARTER, run, forgets, NOW_US).unwrap()
    }

    #[test]
    fn a_node_without_a_marker_is_in_quarantine_even_if_it_saves_everything_now() {
        for forgets in [false, true] {
            assert_eq!(entered(None, "a", forgets), marker("a", forgets, QUARANTINE_END_US));
        }
    }

    #[test]
    fn a_node_that_saves_before_and_after_a_restart_needs_no_quarantine() {
        for (before, now, rests_until_us) in [
            (false, false, 7),
            (true, false, QUARANTINE_END_US),
            (false, true, QUARANTINE_END_US),
            (true, true, QUARANTINE_END_US),
        ] {
            let entered = entered(Some(&marker("a", before, 7)), "b", now);
            let expected = Marker { was_used: true, ..marker("b", now, rests_until_us) };
            assert_eq!(entered, expected, "before {before}, now {now}");
        }
    }

    #[test]
    fn a_run_that_was_once_seen_to_forget_has_forgotten() {
        assert_eq!(entered(Some(&marker("a", true, 7)), "a", false), marker("a", true, 7));
        assert_eq!(entered(Some(&marker("a", false, 7)), "a", true), marker("a", true, 7));
        assert_eq!(entered(Some(&marker("a", false, 7)), "a", false), marker("a", false, 7));
    }

    #[test]
    fn a_clock_that_was_set_back_lengthens_no_quarantine() {
        assert_eq!(entered(Some(&marker("a", true, u64::MAX)), "a", true), marker("a", true, QUARANTINE_END_US));
    }

    #[test]
    fn only_the_marker_of_another_run_shows_that_a_node_was_used() {
        let new = entered(None, "a", true);
        assert!(!new.was_used && !entered(Some(&new), "a", true).was_used);
        let used = entered(Some(&new), "b", true);
        assert!(used.was_used && entered(Some(&used), "b", true).was_used && entered(Some(&used), "c", true).was_used);
        assert!(
            !begin(CHARTER, "b", true).was_used && !entered(None, "b", true).was_used,
            "the node was emptied, as far as it knows"
        );
    }

    #[test]
    fn a_node_loses_its_records_with_its_marker() {
        let (asked, other) = (marker("a", true, 7), marker("a", true, 8));
        assert!(!has_lost(Some(&asked), Some(&asked), "a"));
        assert!(has_lost(None, Some(&asked), "a"), "the node was emptied");
        assert!(has_lost(Some(&other), Some(&asked), "a"), "the node was emptied, and greeted since");
        assert!(!has_lost(Some(&asked), None, "a"), "the node knew nothing, and was greeted since");
        assert!(
            !has_lost(Some(&marker("b", true, 7)), Some(&asked), "b"),
            "the node was in quarantine already, and was greeted since"
        );
    }

    #[test]
    fn another_charter_is_refused_for_another_run_as_well() {
        let other = Charter { nodes: 5, ..CHARTER };
        assert_eq!(enter(Some(&marker("a", true, 7)), other, "b", true, NOW_US), Err(Unlike(CHARTER)));
    }
}
