//! Each promise with a history that keeps it and one that breaks it.

use std::time::Instant;

use super::*;
use crate::history::{Answered, Ended, Fenced};

const NAME: &str = "stock";

/// A history in the making. Times are microseconds from nowhere.
#[derive(Default)]
struct Story(Vec<Event>);

impl Story {
    fn grant(self, client: &str, token: u64, asked_us: u64, granted_us: u64) -> Self {
        self.waited(client, token, asked_us, None, granted_us)
    }

    fn waited(mut self, client: &str, token: u64, asked_us: u64, queued_us: Option<u64>, granted_us: u64) -> Self {
        let (name, client) = (NAME.into(), client.into());
        self.0.push(Event::Granted { name, client, token, units: 1, asked_us, queued_us, granted_us });
        self
    }

    fn units(mut self, n: u32) -> Self {
        match self.0.last_mut() {
            Some(Event::Granted { units, .. }) => *units = n,
            other => panic!("only a grant has units: {other:?}"),
        }
        self
    }

    /// The last grant is claimed until then.
    fn until(mut self, at_us: u64) -> Self {
        let Some(Event::Granted { client, token, .. }) = self.0.last() else { panic!("only a grant is claimed") };
        let (name, client, token) = (NAME.into(), client.clone(), *token);
        self.0.push(Event::Claimed { name, client, token, at_us });
        self
    }

    fn ended(mut self, client: &str, token: u64, at_us: u64) -> Self {
        self.0.push(Event::Ended { name: NAME.into(), client: client.into(), token, at_us, how: Ended::Released });
        self
    }

    fn fenced(mut self, client: &str, token: u64, answer: Fenced) -> Self {
        self.0.push(Event::Fenced { name: NAME.into(), client: client.into(), token, at_us: 0, answer });
        self
    }

    fn counted(mut self, read: u64, at_us: u64, answer: Answered) -> Self {
        self.0.push(Event::Counted { name: NAME.into(), client: "a".into(), at_us, read, answer });
        self
    }

    fn last(mut self, event: fn(String, u64) -> Event, count: u64) -> Self {
        self.0.push(event(NAME.into(), count));
        self
    }

    fn fault(mut self, breaks: Promise, from_us: u64, to_us: u64) -> Self {
        self.0.push(Event::Fault { name: NAME.into(), breaks, from_us, to_us, why: "the clock jumps".into() });
        self
    }

    fn check(self, rules: &Rules) -> Report {
        check(&History { events: self.0 }, rules)
    }
}

fn final_fenced(name: String, count: u64) -> Event {
    Event::FinalFenced { name, count }
}

fn final_counted(name: String, count: u64) -> Event {
    Event::FinalCounted { name, count }
}

/// Two clients, one after the other.
fn good() -> Story {
    Story::default().grant("a", 10, 100, 110).until(200).waited("b", 11, 105, Some(115), 210).until(300)
}

#[track_caller]
fn only(report: &Report) -> &Violation {
    assert_eq!(report.violations.len(), 1, "{report:?}");
    assert!(report.excused.is_empty(), "{report:?}");
    &report.violations[0]
}

#[test]
fn a_good_history_is_clean() {
    let report = good().check(&Rules::mutex().at_least(2).at_least_queued(1).overtaken_at_most(0));
    report.assert_clean();
    assert_eq!((report.grants, report.queued, report.claimed), (2, 1, 2));
    assert!(report.excused.is_empty());
}

#[test]
#[should_panic(expected = "stock: a and b were both granted token 10")]
fn a_bad_one_says_what_is_wrong() {
    good().grant("b", 10, 400, 410).check(&Rules::mutex()).assert_clean();
}

#[test]
fn a_token_granted_twice_is_found() {
    let report = good().grant("c", 11, 50, 400).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::SameToken { token: 11, .. }));
}

#[test]
fn a_token_that_falls_in_real_time_is_found() {
    // Nobody claims anything; `c` began when `b` had been granted 11.
    let report = Story::default().grant("b", 11, 100, 110).grant("c", 10, 111, 120).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::TokenFell { earlier: 11, later: 10, .. }));
    // Concurrent attempts may be granted in any order.
    Story::default().grant("b", 11, 100, 110).grant("c", 10, 110, 120).check(&Rules::mutex()).assert_clean();
}

#[test]
fn a_token_that_falls_among_waiters_is_found() {
    // Both had asked before either was granted: only the order of holding tells.
    let report = Story::default().grant("a", 11, 100, 110).until(120).grant("b", 10, 100, 130).until(140);
    let report = report.check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::TokenFell { earlier: 11, later: 10, .. }));
}

#[test]
fn readers_may_learn_of_their_tokens_in_any_order_but_not_across_a_writer() {
    let readers = || Story::default().grant("a", 11, 100, 110).until(140).grant("b", 10, 100, 120).until(150);
    readers().check(&Rules::limit(8)).assert_clean();
    let writer = readers().grant("w", 9, 100, 160).units(8).until(170);
    assert!(matches!(only(&writer.check(&Rules::limit(8))), Violation::TokenFell { earlier: 11, later: 9, .. }));
    let reader = Story::default().grant("w", 9, 100, 110).units(8).until(120).grant("a", 8, 100, 130).until(140);
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
fn an_overlap_lasts_as_long_as_the_longest_of_those_that_were_there() {
    let story = Story::default().grant("a", 10, 100, 110).until(900).grant("b", 11, 100, 120).until(220);
    let report = story.grant("c", 12, 100, 210).until(300).check(&Rules::limit(2));
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
    let two = || Story::default().grant("a", 10, 100, 110).units(2).until(200).grant("b", 11, 100, 120).until(200);
    two().check(&Rules::limit(3)).assert_clean();
    let report = two().grant("c", 12, 100, 130).until(200).check(&Rules::limit(3));
    assert!(matches!(only(&report), Violation::Overlap { tokens: [_, 12], .. }));
}

#[test]
fn a_claim_after_the_end_is_found() {
    let report = Story::default().grant("a", 10, 100, 110).until(200).ended("a", 10, 150).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::ClaimedAfterEnd { late_us: 50, .. }));
    Story::default().grant("a", 10, 100, 110).until(150).ended("a", 10, 150).check(&Rules::mutex()).assert_clean();
}

#[test]
fn an_end_of_nothing_is_found() {
    let report = good().ended("a", 99, 500).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::UnknownGrant { token: 99, .. }));
}

#[test]
fn a_declared_fault_excuses_what_it_breaks_and_nothing_else() {
    let overlap = || Story::default().grant("a", 10, 100, 110).until(220).grant("b", 11, 105, 210).until(300);
    let report = overlap().fault(Promise::Exclusion, 0, 215).check(&Rules::mutex());
    report.assert_clean();
    assert!(matches!(report.excused[..], [Violation::Overlap { .. }]));
    // Over before the overlap began, begun when it was over, or about something else.
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
}

#[test]
fn a_fence_that_falls_is_found() {
    let writes = |second: u64| {
        let story = good().fenced("a", 10, Fenced::Accepted(1)).fenced("b", 11, Fenced::Accepted(second));
        story.fenced("a", 10, Fenced::Refused)
    };
    let report = writes(2).check(&Rules::mutex());
    report.assert_clean();
    assert_eq!(report.refused, 1);
    let report = writes(2).fenced("a", 10, Fenced::Accepted(3)).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::FenceFell { write: 3, before: 11, token: 10, .. }));
    let report = writes(1).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::FenceMiscounted { .. }), "two first writes");
    let story = good().fenced("a", 10, Fenced::Accepted(1)).fenced("b", 11, Fenced::Accepted(1));
    let report = story.fenced("b", 11, Fenced::Unknown).last(final_fenced, 2).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::FenceMiscounted { .. }), "an unanswered one does not explain them");
}

#[test]
fn a_fenced_register_has_what_it_acknowledged() {
    let writes = || {
        let story = good().fenced("a", 10, Fenced::Accepted(1)).fenced("b", 11, Fenced::Unknown);
        story.fenced("b", 11, Fenced::Accepted(3))
    };
    for (count, clean) in [(2, false), (3, true), (4, false)] {
        let report = writes().last(final_fenced, count).check(&Rules::mutex());
        assert_eq!(report.violations.is_empty(), clean, "{count}: {report:?}");
        assert_eq!(report.unknown, 1);
    }
    // The unanswered write may have been carried out last, and then it counts although nobody knows.
    let story = good().fenced("a", 10, Fenced::Accepted(1)).fenced("b", 11, Fenced::Unknown);
    story.last(final_fenced, 2).check(&Rules::mutex()).assert_clean();
}

#[test]
fn lost_updates_are_counted_and_excused_by_a_pause() {
    use Answered::Acknowledged;
    let good_writes = || good().counted(0, 150, Acknowledged).counted(1, 250, Acknowledged);
    good_writes().last(final_counted, 2).check(&Rules::mutex()).assert_clean();
    let unknown = good_writes().counted(2, 260, Answered::Unknown).last(final_counted, 3).check(&Rules::mutex());
    unknown.assert_clean();
    assert_eq!(unknown.unknown, 1);

    let twice = || good_writes().counted(1, 260, Acknowledged).last(final_counted, 2);
    let report = twice().check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::LostUpdates { lost: 1, .. }));
    // An unanswered write has hidden the loss from the final number.
    let hidden = good_writes().counted(1, 260, Acknowledged).counted(2, 270, Answered::Unknown);
    let report = hidden.last(final_counted, 3).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::LostUpdates { lost: 1, .. }));
    // A late write of an old number takes back what others have counted since.
    let report = good_writes().counted(2, 260, Acknowledged).last(final_counted, 1).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::LostUpdates { lost: 2, .. }));

    for promise in [Promise::UnfencedWrites, Promise::Exclusion] {
        let report = twice().fault(promise, 200, 230).check(&Rules::mutex());
        report.assert_clean();
        assert_eq!((report.lost_updates, report.excused.len()), (1, 1));
    }
}

#[test]
fn too_little_proves_nothing() {
    let report = Story::default().check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::Vacuous { there_were: 0, wanted: 1, .. }));
    let report = good().check(&Rules::mutex().at_least(3).at_least_queued(2));
    assert_eq!(report.violations.len(), 2);
}

#[test]
fn names_are_judged_apart() {
    let mut events = good().0;
    for event in good().0 {
        if let Event::Granted { client, token, units, asked_us, queued_us, granted_us, .. } = event {
            events.push(Event::Granted { name: "other".into(), client, token, units, asked_us, queued_us, granted_us });
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
    let wanted = ["token 11", "which is not larger", "for 10 µs from 210", "50 µs after its end"];
    for (text, wanted) in texts.iter().zip(wanted) {
        assert!(text.starts_with("stock: ") && text.contains(wanted), "{text}");
    }
}

/// The sweeps stay sweeps: a quadratic one would need minutes for this, and the bound leaves room for a busy machine.
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
