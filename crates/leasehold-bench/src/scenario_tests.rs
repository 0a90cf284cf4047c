use super::*;
use crate::worker::Span;

pub(crate) fn case(scenario: Scenario) -> Case {
    Case {
        scenario,
        names: scenario.name_uses()[0],
        processes: 2,
        tasks: 8,
        threads: scenario.threads(8)[0],
        inside: None,
        busy_us: None,
        lease_ms: None,
        ending: None,
        delay_us: None,
        pause_us: None,
        writes_percent: None,
        permits: None,
        extent: if scenario == Scenario::ServerCost { Extent::Pairs(100) } else { Extent::WindowMs(3_000) },
    }
}

#[test]
fn only_a_lock_that_is_shared_through_the_store_has_a_counter_in_it() {
    let shared = case(Scenario::Hot).spec(&Own::Floor.into(), "u", vec![], "x");
    assert_eq!(shared.counter.as_deref(), Some("bench:x:counter"));
    assert_eq!(shared.span, Span::Window { warm_up_ms: 750, window_ms: 3_000 });
    let (hot, quorum_hot) = (Scenario::Hot, Scenario::QuorumHot);
    let counts = [hot, quorum_hot, Scenario::Rwlock, Scenario::Semaphore];
    assert_eq!(case(quorum_hot).spec(&Own::Leasehold.into(), "u", vec![], "x").counter, shared.counter);
    for scenario in Scenario::ALL.into_iter().filter(|scenario| !counts.contains(scenario)) {
        assert_eq!(case(scenario).spec(&Own::S5.into(), "u", vec![], "x").counter, None, "{scenario:?}");
    }
}

/// The lock has the same task otherwise: a peer that knows no such case can run it.
#[test]
fn a_section_with_nothing_inside_has_no_counter_in_the_store() {
    let counted = case(Scenario::Hot);
    let empty = Case { inside: Some(Inside::Nothing), ..counted.clone() };
    let spec = |case: &Case| case.spec(&System::named("redisson"), "u", vec![], "x");
    assert_eq!(spec(&empty), Spec { counter: None, ..spec(&counted) });
    assert_eq!(empty.size(), counted.size() + ", nothing inside (checked within a process)");
}

#[test]
fn a_case_of_an_older_file_has_the_usual_section() {
    let mut line = serde_json::to_value(case(Scenario::Hot)).unwrap();
    assert_eq!(line.get("inside"), None);
    assert_eq!(serde_json::from_value::<Case>(line.clone()).unwrap(), case(Scenario::Hot));
    line["inside"] = "nothing".into();
    assert_eq!(serde_json::from_value::<Case>(line).unwrap().inside, Some(Inside::Nothing));
}

#[test]
fn a_peer_gets_the_usual_task_and_a_longer_warm_up() {
    let peer = case(Scenario::Hot).spec(&System::named("redisson"), "u", vec![], "x");
    assert_eq!(peer.span, Span::Window { warm_up_ms: 1_000, window_ms: 3_000 });
    for scenario in Scenario::ALL.into_iter().filter(|scenario| scenario.is_for_peers() && !scenario.is_shared()) {
        assert_eq!(case(scenario).spec(&System::named("redisson"), "u", vec![], "x").duty, Duty::Pairs, "{scenario:?}");
    }
}

#[test]
fn pairs_are_divided_among_tasks_without_loss() {
    let spec = case(Scenario::ServerCost).spec(&Own::S5.into(), "u", vec![], "x");
    assert_eq!(spec.span, Span::Pairs { each: 13 });
}

#[test]
fn names_in_arguments_are_names_in_figures() {
    assert_eq!(Scenario::ALL, Scenario::value_variants());
    for scenario in Scenario::ALL {
        assert_eq!(serde_json::to_value(scenario).unwrap(), scenario.name());
        assert_eq!(Scenario::from_str(scenario.name(), false), Ok(scenario));
    }
}
