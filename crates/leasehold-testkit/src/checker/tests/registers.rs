//! The registers: their counts, and their lost updates.

use super::super::*;
use super::story::{self, Story, final_counted, final_fenced, good, only};
use crate::history::{Answered, Fenced};

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
    assert!(matches!(only(&report), Violation::FenceMiscounted { .. }), "an unanswered write does not explain them");
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
    // The unanswered write may have been carried out last. Then it counts, although no client knows.
    let story = good().fenced("a", 10, Fenced::Accepted(1)).fenced("b", 11, Fenced::Unknown);
    story.last(final_fenced, 2).check(&Rules::mutex()).assert_clean();
}

/// `a` writes 1, `b` writes 2.
fn two_writes() -> Story {
    good().counted(0, 120, 150).count("b", (1, 220), (250, Answered::Acknowledged))
}

#[test]
fn no_update_is_lost_where_every_writer_read_the_last_number() {
    let report = two_writes().last(final_counted, 2).check(&Rules::mutex());
    report.assert_clean();
    assert_eq!((report.lost_updates, report.unknown), (0, 0));
    // An unanswered write may or may not have been carried out.
    for last in [2, 3] {
        let story = two_writes().count("c", (2, 255), (260, Answered::Unknown));
        let report = story.last(final_counted, last).check(&Rules::mutex());
        report.assert_clean();
        assert_eq!(report.unknown, 1);
    }
}

#[test]
fn one_of_two_writes_after_the_same_read_is_lost() {
    let report = two_writes().counted(1, 240, 270).last(final_counted, 2).check(&Rules::mutex());
    let lost = Violation::LostUpdate {
        name: story::NAME.into(),
        read: 1,
        clients: ["b".into(), "a".into()],
        from_us: 240,
        to_us: 250,
    };
    assert_eq!(*only(&report), lost);
    assert_eq!(report.lost_updates, 1);
    // An unanswered write has hidden the loss from the final number.
    let hidden = two_writes().counted(1, 240, 270).count("c", (2, 280), (290, Answered::Unknown));
    assert_eq!(*only(&hidden.last(final_counted, 3).check(&Rules::mutex())), lost);
}

#[test]
fn a_late_write_of_an_old_number_loses_later_updates() {
    // `c` read 0 before the first write, and its write was carried out last.
    let late = || two_writes().count("c", (0, 110), (130, Answered::Unknown));
    let report = late().last(final_counted, 1).check(&Rules::mutex());
    let lost = Violation::LostUpdate {
        name: story::NAME.into(),
        read: 1,
        clients: ["b".into(), "c".into()],
        from_us: 220,
        to_us: 250,
    };
    assert_eq!(*only(&report), lost);
    // A client counts on from there: then two have read the same number, with the late write in between.
    let report = late().counted(1, 300, 320).last(final_counted, 2).check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::LostUpdate { read: 1, from_us: 220, to_us: 250, .. }), "{report:?}");
}

#[test]
fn updates_overwritten_by_an_unrecorded_write_are_lost() {
    let report = two_writes().last(final_counted, 0).check(&Rules::mutex());
    assert_eq!(report.lost_updates, 2);
    assert!(matches!(report.violations[0], Violation::LostUpdate { read: 0, from_us: 120, to_us: 150, .. }));
    assert!(matches!(report.violations[1], Violation::LostUpdate { read: 1, from_us: 220, to_us: 250, .. }));
}

#[test]
fn only_a_fault_that_is_active_between_the_two_sections_excuses_a_lost_update() {
    let lossy = |promise, from_us, to_us| {
        let story = two_writes().counted(1, 240, 270).last(final_counted, 2).fault(promise, from_us, to_us);
        story.check(&Rules::mutex())
    };
    for promise in [Promise::UnfencedWrites, Promise::Exclusion] {
        for (from_us, to_us) in [(0, 240), (245, 247), (250, 999)] {
            let report = lossy(promise, from_us, to_us);
            report.assert_clean();
            assert_eq!((report.lost_updates, report.excused.len()), (1, 1));
        }
        // The fault was over before both were in their sections, began when one had left, or was at another time
        // altogether.
        for (from_us, to_us) in [(0, 239), (251, 999), (120, 150)] {
            assert_eq!(lossy(promise, from_us, to_us).violations.len(), 1, "{from_us} to {to_us}");
        }
    }
    for promise in [Promise::Tokens, Promise::Order] {
        assert_eq!(lossy(promise, 0, 999).violations.len(), 1);
    }
}

/// The write that brought the old number back was carried out before `b` got the reply to its own write.
#[test]
fn a_fault_during_the_lost_section_excuses_a_late_write() {
    let story = good().counted(0, 100, 105).count("c", (0, 100), (104, Answered::Unknown));
    let story = story.count("b", (1, 110), (170, Answered::Acknowledged)).counted(1, 180, 190).last(final_counted, 2);
    story.fault(Promise::UnfencedWrites, 100, 111).check(&Rules::mutex()).assert_clean();
}

#[test]
fn each_lost_update_needs_its_own_excuse() {
    let story =
        two_writes().counted(1, 240, 270).counted(2, 300, 320).count("b", (2, 310), (330, Answered::Acknowledged));
    let report = story.fault(Promise::Exclusion, 245, 246).last(final_counted, 3).check(&Rules::mutex());
    assert!(matches!(report.excused[..], [Violation::LostUpdate { read: 1, .. }]), "{report:?}");
    assert!(matches!(report.violations[..], [Violation::LostUpdate { read: 2, .. }]), "{report:?}");
    assert_eq!(report.lost_updates, 2);
}

/// `w` writes 1. Then the readers `a` and `b` hold at once, and both read 1.
fn readers() -> Story {
    let story = Story::default().grant("w", 9, 0, 10).until(20).count("w", (0, 10), (20, Answered::Acknowledged));
    let story = story.grant("a", 10, 30, 40).shared(1).until(100).grant("b", 11, 30, 50).shared(1).until(110);
    story.read(("a", 10), 1, (40, 45)).read(("a", 10), 1, (90, 95)).read(("b", 11), 1, (60, 65))
}

#[test]
fn readers_read_what_was_written_and_write_nothing() {
    let rules = Rules::limit(u32::MAX);
    readers().check(&rules).assert_clean();
    let fenced = readers().fenced("a", 10, Fenced::Accepted(1)).check(&rules);
    assert!(matches!(only(&fenced), Violation::WroteShared { token: 10, .. }));
    let counted = Event::Counted {
        name: story::NAME.into(),
        client: "b".into(),
        token: 11,
        read_us: 60,
        at_us: 70,
        read: 1,
        answer: Answered::Unknown,
    };
    assert!(matches!(only(&readers().event(counted).check(&rules)), Violation::WroteShared { token: 11, .. }));
}

#[test]
fn a_number_that_changes_under_a_shared_grant_is_found() {
    let rules = Rules::limit(u32::MAX);
    // The writer believes in no lease, so only the number shows that it was there.
    let changed = |at_us| {
        let story = readers().count("w", (1, 66), (70, Answered::Acknowledged));
        story.read(("b", 11), 2, (at_us - 5, at_us))
    };
    assert!(matches!(
        only(&changed(110).check(&rules)),
        Violation::ReadChanged { token: 11, numbers: [1, 2], from_us: 60, to_us: 110, .. }
    ));
    // The last read may have arrived when the lease was over.
    changed(111).check(&rules).assert_clean();
    for (promise, from_us, to_us, is_excused) in [
        (Promise::UnfencedWrites, 66, 70, true),
        (Promise::Exclusion, 0, 60, true),
        (Promise::Exclusion, 0, 59, false),
        (Promise::Exclusion, 111, 999, false),
        (Promise::Tokens, 0, 999, false),
    ] {
        let report = changed(110).fault(promise, from_us, to_us).check(&rules);
        assert_eq!((report.violations.is_empty(), report.excused.len()), (is_excused, usize::from(is_excused)));
    }
}

#[test]
fn a_number_that_no_client_wrote_is_found() {
    let rules = Rules::limit(u32::MAX);
    let torn = || {
        let story = readers().grant("c", 12, 30, 60).shared(1).until(100);
        story.read(("c", 12), 7, (60, 65)).read(("c", 12), 7, (80, 85))
    };
    let report = torn().check(&rules);
    assert!(report.violations.iter().all(|v| matches!(v, Violation::ReadTorn { token: 12, number: 7, .. })));
    assert_eq!(report.violations.len(), 2);
    // A client that was killed with a write in flight may have written the number.
    torn().fault(Promise::UnfencedWrites, 0, 5).check(&rules).assert_clean();
    torn().last(final_counted, 7).check(&rules).assert_clean();
}
