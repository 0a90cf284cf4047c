//! Liveness: after a repair, attempts are served in time, and are not refused while nobody holds.

use std::time::Duration;

use super::super::*;
use super::story::{Story, only};
use crate::history::GaveUp;

const BOUND_US: u64 = 1_000;
const HEALED_US: u64 = 10_000;

fn rules() -> Rules {
    Rules::mutex().served_within(Duration::from_micros(BOUND_US))
}

fn injected(at_us: u64) -> Event {
    Event::Injected { fault: "cut".into(), at_us }
}

/// A history with a fault that is over, after which a client is served, so that it is not vacuous.
fn healed() -> Story {
    let story = Story::default().event(injected(5_000)).event(Event::Healed { at_us: HEALED_US });
    story.served("z", 1_000, HEALED_US, HEALED_US + 10).ended("z", 1_000, HEALED_US + 20)
}

#[test]
fn a_waiter_at_the_repair_is_served_in_time() {
    for granted_us in [HEALED_US - 1, HEALED_US + BOUND_US] {
        healed().served("a", 10, 100, granted_us).ended("a", 10, granted_us).check(&rules()).assert_clean();
        healed().refused("a", 100, granted_us, GaveUp::TimedOut).check(&rules()).assert_clean();
        healed().refused("a", 100, granted_us, GaveUp::Cancelled).check(&rules()).assert_clean();
    }
    let report = healed().served("a", 10, 100, HEALED_US + BOUND_US + 1).check(&rules());
    let late = |waited_us| Violation::Unserved {
        name: "stock".into(),
        client: "a".into(),
        attempt: 5,
        since_us: HEALED_US,
        waited_us,
    };
    assert_eq!(*only(&report), late(Some(BOUND_US + 1)));
    let report = healed().refused("a", 100, HEALED_US + BOUND_US + 1, GaveUp::TimedOut).check(&rules());
    assert!(matches!(only(&report), Violation::Unserved { waited_us: Some(1_001), .. }));
    // Without an end it waits forever: a test that is over has waited for its clients.
    assert_eq!(*only(&healed().asks("a", 100).check(&rules())), late(None));
}

#[test]
fn a_later_attempt_is_served_in_time_from_its_beginning() {
    let asked_us = HEALED_US + 50_000;
    let at = |granted_us| healed().served("a", 2_000, asked_us, granted_us).check(&rules());
    at(asked_us + BOUND_US).assert_clean();
    let report = at(asked_us + BOUND_US + 1);
    assert!(matches!(only(&report), Violation::Unserved { since_us: 60_000, waited_us: Some(1_001), .. }));
}

#[test]
fn a_dead_client_waits_for_nothing() {
    let died = |at_us| Event::Died { client: "a".into(), at_us };
    healed().asks("a", 100).event(died(9_000)).check(&rules()).assert_clean();
    // Its successor of the same name is still waiting: the death was before.
    let report = healed().asks("a", 9_500).event(died(9_000)).check(&rules());
    assert!(matches!(only(&report), Violation::Unserved { waited_us: None, .. }));
}

#[test]
fn during_a_fault_no_attempt_need_be_served() {
    let again_us = HEALED_US + 500_000;
    // The attempt began before the second fault, within the bound, or during the fault.
    for asked_us in [again_us - BOUND_US, again_us + 1] {
        let story = healed().event(injected(again_us)).served("a", 2_000, asked_us, again_us + 800_000);
        story.ended("a", 2_000, again_us + 800_001).check(&rules()).assert_clean();
    }
    let story = healed().event(injected(again_us)).served("a", 2_000, again_us - BOUND_US - 1, again_us + 800_000);
    assert!(matches!(only(&story.check(&rules())), Violation::Unserved { waited_us: Some(_), .. }));
    // A second repair does not extend the bound of the first.
    let story = healed().event(Event::Healed { at_us: HEALED_US + 900 }).served("a", 10, 100, HEALED_US + 1_500);
    let report = story.ended("a", 10, HEALED_US + 1_600).check(&rules());
    assert!(matches!(only(&report), Violation::Unserved { since_us: HEALED_US, .. }));
}

#[test]
fn an_error_long_after_the_repair_is_found() {
    let failed = |asked_us| healed().refused("a", asked_us, asked_us + 1, GaveUp::Failed("no route".into()));
    failed(HEALED_US + BOUND_US - 1).check(&rules()).assert_clean();
    let report = failed(HEALED_US + BOUND_US).check(&rules());
    assert!(matches!(only(&report), Violation::Failed { error, .. } if error == "no route"));
}

/// Adds attempts of 300 µs, one after the other, each of them refused.
fn tries(story: Story, from_us: u64, count: u64, why: &GaveUp) -> Story {
    (0..count).fold(story, |story, i| {
        let asked_us = from_us + 300 * i;
        story.refused("a", asked_us, asked_us + 299, why.clone())
    })
}

#[test]
fn a_lease_that_no_client_has_starves_the_others() {
    for why in [GaveUp::Busy, GaveUp::TimedOut] {
        let report = tries(healed(), HEALED_US + 100, 4, &why).check(&rules());
        let starved = Violation::Starved { name: "stock".into(), attempts: 4, from_us: 10_100, to_us: 11_299 };
        assert_eq!(*only(&report), starved);
        // Shorter than the bound.
        tries(healed(), HEALED_US + 100, 3, &why).check(&rules()).assert_clean();
    }
    // An attempt that its client canceled was not refused as busy.
    tries(healed(), HEALED_US + 100, 9, &GaveUp::Cancelled).check(&rules()).assert_clean();
}

#[test]
fn waiting_for_a_long_section_is_not_starvation() {
    let from_us = HEALED_US + 100;
    let held = || tries(healed(), from_us, 4, &GaveUp::Busy).served("h", 2_000, from_us - 2, from_us + 1);
    held().check(&rules()).assert_clean();
    held().ended("h", 2_000, from_us + 1_000).check(&rules()).assert_clean();
    // The holder died, and its lease ended within the bound.
    let died = |at_us| Event::Died { client: "h".into(), at_us };
    held().event(died(from_us + 300)).check(&rules()).assert_clean();
    // A fault came in between.
    let story = tries(healed(), from_us, 4, &GaveUp::Busy).event(injected(from_us + 900));
    story.check(&rules()).assert_clean();
    // The holder had ended long before, so it does not explain nine refusals.
    let report = tries(healed(), from_us, 9, &GaveUp::Busy).served("h", 5, 90, 100).ended("h", 5, 200);
    assert!(matches!(only(&report.check(&rules())), Violation::Starved { attempts: 9, .. }));
}

#[test]
fn liveness_needs_a_repair_and_a_grant_after_it() {
    let report = Story::default().grant("a", 1, 100, 110).event(injected(5_000)).check(&rules());
    assert!(matches!(only(&report), Violation::Vacuous { what: "healings", .. }));
    let story = Story::default().grant("a", 1, 100, 110).event(Event::Healed { at_us: HEALED_US });
    let report = story.check(&rules());
    assert!(matches!(only(&report), Violation::Vacuous { what: "grants after the last healing", .. }));
    // Without the rule there is nothing to judge.
    Story::default().grant("a", 1, 100, 110).asks("b", 100).check(&Rules::mutex()).assert_clean();
}

#[test]
fn a_long_history_of_faults_and_waiters_is_judged_in_seconds() {
    let mut story = Story::default();
    for i in 0..100_000u64 {
        let at = 3_000 * i;
        story = story.event(injected(at)).event(Event::Healed { at_us: at + 100 });
        story = story.refused("b", at + 5, at + 200, GaveUp::Busy).served("a", i + 1, at, at + 150);
        story = story.ended("a", i + 1, at + 200);
    }
    let started = std::time::Instant::now();
    story.check(&rules()).assert_clean();
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}
