//! When a node has no vote.

use leasehold_spec::limits::{CLOCK_ERROR_MS, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Abstention, Charter, Marker, Unlike, begin, enter, rest_ms};

use crate::world::START_US;

const CHARTER: Charter = Charter { nodes: 3, max_lease_ms: 60_000 };
const REST_US: u64 = 60_000_000;

fn rests_until(known: Option<&Marker>, run: &str, forgets: bool, now_us: u64) -> u64 {
    enter(known, CHARTER, run, forgets, now_us).expect("the same charter").rests_until_us
}

/// One that has rested.
fn awake(forgets: bool) -> Marker {
    Marker { charter: CHARTER, run: "one".into(), forgets, rests_until_us: START_US, was_used: false }
}

#[test]
fn a_rest_is_a_lease_and_longer_than_twice_the_window_and_the_error() {
    assert_eq!(rest_ms(60_000), 60_000);
    assert_eq!(rest_ms(1_000), 2 * (TOKEN_WINDOW_MS + CLOCK_ERROR_MS) + 1);
}

#[test]
fn a_node_without_a_marker_rests() {
    for forgets in [true, false] {
        let marker = enter(None, CHARTER, "one", forgets, START_US).unwrap();
        let rests_until_us = START_US + REST_US;
        let expected = Marker { charter: CHARTER, run: "one".into(), forgets, rests_until_us, was_used: false };
        assert_eq!(marker, expected);
        let last = Some(Abstention::Resting { left_us: 1 });
        assert_eq!(marker.abstains(Some(&marker), START_US + REST_US - 1), last);
        assert_eq!(marker.abstains(Some(&marker), START_US + REST_US), None);
    }
}

#[test]
fn the_same_run_goes_on() {
    let later_us = START_US + 1_000_000;
    assert_eq!(enter(Some(&awake(true)), CHARTER, "one", true, later_us), Ok(awake(true)));
    let resting = Marker { rests_until_us: START_US + REST_US, ..awake(true) };
    assert_eq!(enter(Some(&resting), CHARTER, "one", true, later_us), Ok(resting), "a greeting lengthens no rest");
}

#[test]
fn another_run_rests_unless_everything_was_saved() {
    let later_us = START_US + 1_000_000;
    assert_eq!(rests_until(Some(&awake(true)), "two", true, later_us), later_us + REST_US);
    assert_eq!(rests_until(Some(&awake(false)), "two", true, later_us), later_us + REST_US);
    assert_eq!(rests_until(Some(&awake(false)), "two", false, later_us), START_US);
    let marker = enter(Some(&awake(false)), CHARTER, "two", false, later_us).unwrap();
    assert_eq!(marker.run, "two", "and is known from now on");
}

/// What the run before did not save is gone, however this one saves.
#[test]
fn a_run_that_saves_is_not_believed_for_the_one_before() {
    let later_us = START_US + 1_000_000;
    assert_eq!(rests_until(Some(&awake(true)), "two", false, later_us), later_us + REST_US);
}

#[test]
fn a_run_that_begins_to_save_is_believed_from_the_next_one_on() {
    let same = enter(Some(&awake(true)), CHARTER, "one", false, START_US).unwrap();
    assert!(same.forgets, "what it had not saved by then may still not be");
    let next = enter(Some(&same), CHARTER, "two", false, START_US).unwrap();
    assert_eq!((next.forgets, next.rests_until_us), (false, START_US + REST_US));
    assert_eq!(rests_until(Some(&next), "three", false, START_US + 1), START_US + REST_US);
}

#[test]
fn another_charter_is_refused_and_told() {
    for charter in [Charter { nodes: 5, ..CHARTER }, Charter { max_lease_ms: 59_999, ..CHARTER }] {
        for run in ["one", "two"] {
            assert_eq!(enter(Some(&awake(true)), charter, run, true, START_US), Err(Unlike(CHARTER)));
        }
    }
}

/// It would have to wait until its clock is where it was.
#[test]
fn a_rest_is_no_longer_than_one_that_begins_now() {
    let resting = Marker { rests_until_us: START_US + REST_US, ..awake(true) };
    let back_us = START_US - 3_600_000_000;
    assert_eq!(rests_until(Some(&resting), "one", true, back_us), back_us + REST_US);
    let saved = Marker { forgets: false, ..resting };
    assert_eq!(rests_until(Some(&saved), "two", false, back_us), back_us + REST_US);
}

#[test]
fn a_client_that_has_not_seen_this_marker_has_to_greet() {
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
fn a_new_quorum_need_not_rest() {
    let marker = begin(CHARTER, "one", true);
    assert_eq!(marker.abstains(Some(&marker), 1), None);
    assert_eq!(enter(Some(&marker), CHARTER, "one", true, START_US), Ok(marker));
}
