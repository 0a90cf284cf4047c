//! Checks of a history as a whole.

use std::time::Duration;

use super::super::*;
use super::story::{Story, good, only};

#[test]
fn too_few_grants_are_vacuous() {
    let report = Story::default().check(&Rules::mutex());
    assert!(matches!(only(&report), Violation::Vacuous { there_were: 0, wanted: 1, .. }));
    let report = good().check(&Rules::mutex().at_least(3).at_least_queued(2));
    assert_eq!(report.violations.len(), 2);
}

/// Returns a history with a grant every 10 ms, and a fault after them.
fn busy(grants: u64, fault_us: u64) -> Story {
    let story = (0..grants).fold(Story::default(), |story, i| {
        let at = 10_000 * i;
        story.served("a", i + 1, at, at + 10).until(at + 20).ended("a", i + 1, at + 20)
    });
    story.event(Event::Injected { fault: "cut".into(), at_us: fault_us })
}

#[test]
fn too_little_traffic_before_the_first_fault_is_vacuous() {
    let rules = |grants| Rules::mutex().at_least_before_faults(grants, Duration::from_secs(1));
    let report = busy(101, 1_000_010).check(&rules(100));
    report.assert_clean();
    assert_eq!((report.grants_while_whole, report.whole_us), (101, 1_000_010));
    let report = busy(101, 1_000_010).check(&rules(102));
    assert!(matches!(
        only(&report),
        Violation::Vacuous { what: "grants before the first fault", there_were: 101, wanted: 102 }
    ));
    // Grants after the fault do not count.
    let report = busy(201, 1_000_010).check(&rules(102));
    assert_eq!((report.grants_while_whole, report.violations.len()), (101, 1));
    // An early fault leaves no time to prove anything; so does one that is only declared.
    let report = busy(201, 500_000).check(&rules(10));
    assert!(matches!(only(&report), Violation::Vacuous { what: "µs before the first fault", .. }));
    let report = busy(201, 3_000_000).fault(Promise::Order, 500_000, 500_001).check(&rules(10));
    assert!(matches!(only(&report), Violation::Vacuous { what: "µs before the first fault", .. }));
    // Without a fault all grants count.
    let mut story = busy(201, 0);
    story.0.pop();
    let report = story.check(&rules(100));
    report.assert_clean();
    assert_eq!(report.grants_while_whole, 201);
}

fn residue(what: &str, count: u64) -> Event {
    Event::Residue { what: what.into(), count }
}

#[test]
fn residue_is_found() {
    good().event(residue("keys", 0)).check(&Rules::mutex()).assert_clean();
    let report = good().event(residue("keys", 0)).event(residue("tasks", 2)).check(&Rules::mutex());
    assert_eq!(*only(&report), Violation::Residue { what: "tasks".into(), count: 2 });
}

#[test]
fn residue_without_a_check_is_found() {
    let rules = Rules::mutex().looked_for(&["keys", "tasks"]);
    good().event(residue("keys", 0)).event(residue("tasks", 0)).check(&rules).assert_clean();
    let report = good().event(residue("keys", 0)).check(&rules);
    assert_eq!(*only(&report), Violation::NotLookedFor { what: "tasks" });
}
