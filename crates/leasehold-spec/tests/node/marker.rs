//! The times at which a node has no vote.

use leasehold_spec::limits::{CLOCK_ERROR_MS, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Abstention, Charter, Marker, Unlike, begin, enter, rest_ms};

use crate::world::START_US;

const CHARTER: Charter = Charter { nodes: 3, max_lease_ms: 60_000 };
const QUARANTINE_US: u64 = 60_000_000;

fn quarantine_end_us(known: Option<&Marker>, run: &str, forgets: bool, now_us: u64) -> u64 {
    enter(known, CHARTER, run, forgets, now_us).expect("the same charter").rests_until_us
}

/// The marker of a node whose quarantine is over.
fn awake(forgets: bool) -> Marker {
    Marker { charter: CHARTER, run: "one".into(), forgets, rests_until_us: START_US, was_used: false }
}

#[test]
fn a_quarantine_lasts_a_lease_and_more_than_twice_window_plus_error() {
    assert_eq!(rest_ms(60_000), 60_000);
    assert_eq!(rest_ms(1_000), 2 * (TOKEN_WINDOW_MS + CLOCK_ERROR_MS) + 1);
}

#[test]
fn a_node_without_a_marker_is_in_quarantine() {
    for forgets in [true, false] {
        let marker = enter(None, CHARTER, "one", forgets, START_US).unwrap();
        let rests_until_us = START_US + QUARANTINE_US;
        let expected = Marker { charter: CHARTER, run: "one".into(), forgets, rests_until_us, was_used: false };
        assert_eq!(marker, expected);
        let last = Some(Abstention::Resting { left_us: 1 });
        assert_eq!(marker.abstains(Some(&marker), START_US + QUARANTINE_US - 1), last);
        assert_eq!(marker.abstains(Some(&marker), START_US + QUARANTINE_US), None);
    }
}

#[test]
fn a_greeting_of_the_same_run_changes_nothing() {
    let later_us = START_US + 1_000_000;
    assert_eq!(enter(Some(&awake(true)), CHARTER, "one", true, later_us), Ok(awake(true)));
    let resting = Marker { rests_until_us: START_US + QUARANTINE_US, ..awake(true) };
    assert_eq!(
        enter(Some(&resting), CHARTER, "one", true, later_us),
        Ok(resting),
        "a greeting does not lengthen the quarantine"
    );
}

#[test]
fn another_run_is_in_quarantine_unless_everything_was_saved() {
    let later_us = START_US + 1_000_000;
    assert_eq!(quarantine_end_us(Some(&awake(true)), "two", true, later_us), later_us + QUARANTINE_US);
    assert_eq!(quarantine_end_us(Some(&awake(false)), "two", true, later_us), later_us + QUARANTINE_US);
    assert_eq!(quarantine_end_us(Some(&awake(false)), "two", false, later_us), START_US);
    let marker = enter(Some(&awake(false)), CHARTER, "two", false, later_us).unwrap();
    assert_eq!(marker.run, "two", "the new run is known from now on");
}

/// The changes that the run before did not save are gone, whatever this run saves.
#[test]
fn a_run_that_saves_does_not_count_for_the_run_before() {
    let later_us = START_US + 1_000_000;
    assert_eq!(quarantine_end_us(Some(&awake(true)), "two", false, later_us), later_us + QUARANTINE_US);
}

#[test]
fn a_run_that_begins_to_save_counts_from_the_next_run_on() {
    let same = enter(Some(&awake(true)), CHARTER, "one", false, START_US).unwrap();
    assert!(same.forgets, "earlier changes may still not be saved");
    let next = enter(Some(&same), CHARTER, "two", false, START_US).unwrap();
    assert_eq!((next.forgets, next.rests_until_us), (false, START_US + QUARANTINE_US));
    assert_eq!(quarantine_end_us(Some(&next), "three", false, START_US + 1), START_US + QUARANTINE_US);
}

#[test]
fn another_charter_is_refused_with_the_known_one() {
    for charter in [Charter { nodes: 5, ..CHARTER }, Charter { max_lease_ms: 59_999, ..CHARTER }] {
        for run in ["one", "two"] {
            assert_eq!(enter(Some(&awake(true)), charter, run, true, START_US), Err(Unlike(CHARTER)));
        }
    }
}

/// Otherwise the node would abstain until its clock is where it was before.
#[test]
fn a_quarantine_is_no_longer_than_one_that_begins_now() {
    let resting = Marker { rests_until_us: START_US + QUARANTINE_US, ..awake(true) };
    let back_us = START_US - 3_600_000_000;
    assert_eq!(quarantine_end_us(Some(&resting), "one", true, back_us), back_us + QUARANTINE_US);
    let saved = Marker { forgets: false, ..resting };
    assert_eq!(quarantine_end_us(Some(&saved), "two", false, back_us), back_us + QUARANTINE_US);
}

#[test]
fn a_client_that_has_not_seen_the_marker_must_greet() {
    let marker = awake(true);
    let others = [
        Marker { run: "two".into(), ..marker.clone() },
        Marker { rests_until_us: START_US + 1, ..marker.clone() },
        Marker { forgets: false, ..marker.clone() },
        Marker { was_used: true, ..marker.clone() },
        Marker { charter: Charter { nodes: 5, ..CHARTER }, ..marker.clone() },
    ];
    assert_eq!(marker.abstains(None, START_US), Some(Abstention::Unmarked));
    for other in &others {
        assert_eq!(marker.abstains(Some(other), START_US), Some(Abstention::Unmarked), "{other:?}");
    }
    assert_eq!(marker.abstains(Some(&marker), START_US), None);
}

#[test]
fn a_new_quorum_needs_no_quarantine() {
    let marker = begin(CHARTER, "one", true);
    assert_eq!(marker.abstains(Some(&marker), 1), None);
    assert_eq!(enter(Some(&marker), CHARTER, "one", true, START_US), Ok(marker));
}
