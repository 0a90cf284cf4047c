//! Tests of each promise, with a history that keeps it and one that breaks it.

mod naive;
mod registers;
mod served;
mod story;
mod whole;

use std::time::Instant;

use self::story::{NAME, Story, good, only};
use super::*;

#[test]
fn a_good_history_is_clean() {
    let report = good().check(&Rules::mutex().at_least(2).at_least_queued(1).overtaken_at_most(0));
    report.assert_clean();
    assert_eq!((report.grants, report.queued, report.claimed), (2, 1, 2));
    assert!(report.excused.is_empty());
}

#[test]
#[should_panic(expected = "stock: a and b were both granted token 10")]
fn a_bad_history_names_its_violation() {
    good().grant("b", 10, 400, 410).check(&Rules::mutex()).assert_clean();
}

#[test]
fn a_token_granted_twice_is_found() {
    let report = good().grant("c", 11, 50, 400).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::SameToken { token: 11, .. }));
}

#[test]
fn a_token_that_falls_in_real_time_is_found() {
    // No client claims anything; `c` began when `b` had been granted 11.
    let report = Story::default().grant("b", 11, 100, 110).grant("c", 10, 111, 120).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::TokenFell { earlier: 11, later: 10, .. }));
    // Concurrent attempts may be granted in any order.
    Story::default().grant("b", 11, 100, 110).grant("c", 10, 110, 120).check(&Rules::mutex()).assert_clean();
}

#[test]
fn a_token_that_falls_among_waiters_is_found() {
    // Both had asked before either was granted: only the order of holding shows the fall.
    let report = Story::default().grant("a", 11, 100, 110).until(120).grant("b", 10, 100, 130).until(140);
    let report = report.check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::TokenFell { earlier: 11, later: 10, .. }));
}

#[test]
fn readers_may_learn_of_their_tokens_in_any_order_but_not_across_a_writer() {
    let readers = || {
        let story = Story::default().grant("a", 11, 100, 110).shared(1).until(140);
        story.grant("b", 10, 100, 120).shared(1).until(150)
    };
    readers().check(&Rules::limit(8)).assert_clean();
    let writer = readers().grant("w", 9, 100, 160).until(170);
    assert!(matches!(only(&writer.check(&Rules::limit(8))), Violation::TokenFell { earlier: 11, later: 9, .. }));
    let reader = Story::default().grant("w", 9, 100, 110).until(120).grant("a", 8, 100, 130).shared(1).until(140);
    assert!(matches!(only(&reader.check(&Rules::limit(8))), Violation::TokenFell { earlier: 9, later: 8, .. }));
}

#[test]
fn an_overlap_is_found() {
    let report = Story::default().grant("a", 10, 100, 110).until(220).grant("b", 11, 105, 210).until(300);
    let report = report.check(&Rules::mutex());
    assert_eq!(
        *only(&report),
        Violation::Overlap {
            name: NAME.into(),
            tokens: [10, 11],
            clients: ["a".into(), "b".into()],
            from_us: 210,
            to_us: 220
        }
    );
}

#[test]
fn an_overlap_with_one_that_began_long_before_is_found() {
    let story = Story::default().grant("a", 10, 100, 110).until(900);
    let story = story.grant("b", 11, 200, 210).until(220).grant("c", 12, 300, 310).until(320);
    assert_eq!(story.check(&Rules::mutex()).violations.len(), 2);
}

#[test]
fn an_overlap_lasts_as_long_as_the_longest_earlier_claim() {
    let story = Story::default().grant("a", 10, 100, 110).shared(1).until(900);
    let story = story.grant("b", 11, 100, 120).shared(1).until(220);
    let report = story.grant("c", 12, 100, 210).shared(1).until(300).check(&Rules::limit(2));
    assert!(matches!(only(&report), Violation::Overlap { tokens: [10, 12], from_us: 210, to_us: 300, .. }));
}

#[test]
fn claims_may_be_recorded_in_any_order() {
    let story = Story::default().grant("b", 11, 105, 210).until(300).grant("a", 10, 100, 110);
    let claim = |at_us| Event::Claimed { name: NAME.into(), client: "a".into(), token: 10, at_us };
    let mut events = story.0;
    events.extend([claim(220), claim(150)]);
    let report = check(&History { events }, &Rules::mutex());
    assert!(matches!(only(&report), Violation::Overlap { to_us: 220, .. }));
}

#[test]
fn a_hand_over_within_a_microsecond_and_a_grant_without_a_claim_are_no_overlap() {
    let story = Story::default().grant("a", 10, 100, 110).until(200).grant("b", 11, 105, 200).until(300);
    story.grant("c", 12, 100, 250).check(&Rules::mutex()).assert_clean();
}

#[test]
fn a_semaphore_is_full_and_not_fuller() {
    let two = || {
        let story = Story::default().grant("a", 10, 100, 110).shared(2).until(200);
        story.grant("b", 11, 100, 120).shared(1).until(200)
    };
    two().check(&Rules::limit(3)).assert_clean();
    let report = two().grant("c", 12, 100, 130).shared(1).until(200).check(&Rules::limit(3));
    assert!(matches!(only(&report), Violation::Overlap { tokens: [_, 12], .. }));
    // The limit of this name, and not the limit of another name.
    two().check(&Rules::mutex().limited(NAME, 3).limited("other", 2)).assert_clean();
    assert!(matches!(only(&two().check(&Rules::limit(3).limited(NAME, 2))), Violation::Overlap { .. }));
}

#[test]
fn shared_grants_overlap_and_an_exclusive_grant_excludes_all() {
    let readers = || {
        let story = Story::default().grant("a", 10, 100, 110).shared(1).until(200);
        story.grant("b", 11, 100, 120).shared(1).until(210)
    };
    let rules = Rules::limit(u32::MAX);
    readers()
        .grant("w", 12, 100, 210)
        .until(300)
        .grant("c", 13, 100, 300)
        .shared(1)
        .until(310)
        .check(&rules)
        .assert_clean();
    let early = readers().grant("w", 12, 100, 209).until(300).check(&rules);
    assert!(matches!(only(&early), Violation::Overlap { tokens: [11, 12], from_us: 209, to_us: 210, .. }));
    let late =
        readers().grant("w", 12, 100, 210).until(300).grant("c", 13, 100, 299).shared(1).until(310).check(&rules);
    assert!(matches!(only(&late), Violation::Overlap { tokens: [12, 13], from_us: 299, to_us: 300, .. }));
    let writers =
        Story::default().grant("v", 10, 100, 110).until(220).grant("w", 11, 105, 210).until(300).check(&rules);
    assert!(matches!(only(&writers), Violation::Overlap { tokens: [10, 11], .. }));
}

#[test]
fn a_claim_after_the_end_is_found() {
    let report = Story::default().grant("a", 10, 100, 110).until(200).ended("a", 10, 150).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::ClaimedAfterEnd { late_us: 50, .. }));
    Story::default().grant("a", 10, 100, 110).until(150).ended("a", 10, 150).check(&Rules::mutex()).assert_clean();
}

#[test]
fn an_end_without_a_grant_is_found() {
    let report = good().ended("a", 99, 500).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::UnknownGrant { token: 99, .. }));
}

#[test]
fn a_declared_fault_excuses_what_it_breaks_and_nothing_else() {
    let overlap = || Story::default().grant("a", 10, 100, 110).until(220).grant("b", 11, 105, 210).until(300);
    let report = overlap().fault(Promise::Exclusion, 0, 215).check(&Rules::mutex());
    report.assert_clean();
    assert!(matches!(report.excused[..], [Violation::Overlap { .. }]));
    // The fault was over before the overlap began, began when the overlap was over, or breaks another promise.
    assert_eq!(overlap().fault(Promise::Exclusion, 221, 999).check(&Rules::mutex()).violations.len(), 1);
    assert_eq!(overlap().fault(Promise::Exclusion, 0, 209).check(&Rules::mutex()).violations.len(), 1);
    assert_eq!(overlap().fault(Promise::Tokens, 0, 999).check(&Rules::mutex()).violations.len(), 1);
    let same = good().grant("c", 11, 50, 400).fault(Promise::Tokens, 0, 999).check(&Rules::mutex());
    same.assert_clean();
    assert_eq!(same.excused.len(), 1);
}

#[test]
fn overtaking_is_counted() {
    // `w` waits from 105 on; three ask later and are served before it, one asked earlier.
    let story = || {
        Story::default()
            .grant("a", 10, 100, 110)
            .waited("w", 20, 101, Some(105), 900)
            .grant("b", 11, 106, 120)
            .grant("c", 12, 106, 130)
            .grant("d", 13, 106, 140)
            .grant("e", 14, 104, 150)
            .grant("f", 21, 106, 950)
    };
    let report = story().check(&Rules::mutex().overtaken_at_most(3));
    report.assert_clean();
    assert_eq!(report.overtaken_most, 3);
    let report = story().check(&Rules::mutex().overtaken_at_most(2));
    assert!(matches!(only(&report), Violation::Overtaken { token: 20, times: 3, .. }));
    // This one asks when `w` has been granted. The store has lost its records, so that the token is smaller.
    let report = story().grant("g", 15, 910, 960).fault(Promise::Tokens, 0, 999).check(&Rules::mutex());
    report.assert_clean();
    assert_eq!(report.overtaken_most, 3);
    // The store forgot its queue while this waiter was in it.
    let report = story().fault(Promise::Order, 850, 860).check(&Rules::mutex().overtaken_at_most(2));
    report.assert_clean();
    assert_eq!(report.excused.len(), 1);
    for (promise, from_us, to_us) in [(Promise::Order, 0, 104), (Promise::Order, 901, 999), (Promise::Tokens, 0, 999)] {
        let report = story().fault(promise, from_us, to_us).check(&Rules::mutex().overtaken_at_most(2));
        assert_eq!(report.violations.len(), 1);
    }
}

#[test]
fn names_are_judged_separately() {
    let mut events = good().0;
    for event in good().0 {
        if let Event::Granted { client, attempt, token, share, asked_us, queued_us, granted_us, .. } = event {
            let name = "other".into();
            events.push(Event::Granted { name, client, attempt, token, share, asked_us, queued_us, granted_us });
        }
    }
    let report = check(&History { events }, &Rules::mutex().at_least(4));
    report.assert_clean();
}

#[test]
fn every_violation_has_a_text() {
    let texts = [
        good().grant("c", 11, 50, 400),
        Story::default().grant("b", 11, 100, 110).grant("c", 10, 111, 120),
        Story::default().grant("a", 10, 100, 110).until(220).grant("b", 11, 105, 210).until(300),
        Story::default().grant("a", 10, 100, 110).until(200).ended("a", 10, 150),
    ]
    .map(|story| only(&story.check(&Rules::mutex())).to_string());
    let wanted = ["token 11", "which is not larger", "for 10 µs from 210 µs on", "50 µs after its end"];
    for (text, wanted) in texts.iter().zip(wanted) {
        assert!(text.starts_with("stock: ") && text.contains(wanted), "{text}");
    }
}

/// Ensures that the sweeps stay sweeps: a quadratic one would need minutes here, and the bound leaves room for a busy
/// machine.
#[test]
fn a_long_history_is_judged_in_seconds() {
    let mut story = Story::default();
    for i in 0..200_000u64 {
        let at = 100 * i;
        let client = if i % 2 == 0 { "a" } else { "b" };
        story = story.waited(client, i + 1, at.saturating_sub(150), Some(at.saturating_sub(120)), at).until(at + 90);
    }
    let started = Instant::now();
    let report = story.check(&Rules::mutex().at_least(200_000).overtaken_at_most(0));
    report.assert_clean();
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}
