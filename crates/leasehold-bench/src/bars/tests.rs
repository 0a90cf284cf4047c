use super::*;
use crate::peers::Class;
use crate::record::Attempts;
use crate::record::tests::row;
use crate::scenario::Inside;
use crate::stats::Fairness;

fn hot(system: &str, run: u32, ops_per_s: f64) -> Row {
    Row { ops_per_s, ..row(Scenario::Hot, system, run) }
}

fn peer(system: &str, has: &[Has]) -> About {
    let (system, class) = (System::named(system), Some(Class::Poll));
    About { system, class, has: has.to_vec(), version: String::new(), settings: String::new() }
}

#[test]
fn kinds_are_of_peers_and_depend_on_their_properties() {
    assert!(Kind::Equal.takes(&peer("a", &[Has::Push])) && !Kind::Bare.takes(&peer("a", &[Has::Push])));
    assert!(Kind::Bare.takes(&peer("a", &[Has::ReEntry])) && !Kind::Equal.takes(&peer("a", &[Has::ReEntry])));
    for kind in [Kind::Any, Kind::Equal, Kind::Bare, Kind::Fair] {
        assert!(!kind.takes(&About::of_own(Own::Leasehold)), "{kind:?}");
    }
}

#[track_caller]
fn verdict(verdicts: &[Verdict], what: &str, against: Option<&str>) -> Verdict {
    let is_it = |verdict: &&Verdict| verdict.what.contains(what) && verdict.against.as_deref() == against;
    verdicts.iter().find(is_it).unwrap_or_else(|| panic!("no {what} against {against:?} in {verdicts:?}")).clone()
}

#[test]
fn a_ratio_is_judged_by_its_median() {
    let mut rows = Vec::new();
    for (run, ops_per_s) in [(1, 950.0), (2, 790.0), (3, 810.0)] {
        rows.extend([hot("floor", run, 1000.0), hot("leasehold", run, ops_per_s)]);
    }
    let kept = verdict(&judge(&rows, &[]), "hand-overs", Some("floor"));
    assert_eq!(kept.spread, Spread { median: 0.81, min: 0.79, max: 0.95 });
    assert_eq!((kept.is_met, kept.missed_by()), (true, None));
    rows.retain(|row| row.run != 1);
    rows.extend([hot("floor", 1, 1000.0), hot("leasehold", 1, 720.0)]);
    rows.retain(|row| row.run != 3);
    let missed = verdict(&judge(&rows, &[]), "hand-overs", Some("floor"));
    assert!(!missed.is_met && (missed.missed_by().unwrap() - (0.8 - 0.755) / 0.8).abs() < 1e-9, "{missed:?}");
}

#[test]
fn one_lost_update_in_one_run_is_enough() {
    let mut rows: Vec<_> = (1..=5).map(|run| hot("leasehold", run, 1.0)).collect();
    assert!(verdict(&judge(&rows, &[]), "lost", None).is_met);
    rows[3].lost_updates = Some(1);
    assert!(!verdict(&judge(&rows, &[]), "lost", None).is_met);
}

#[test]
fn bars_have_two_sides() {
    let cost = |system, us| Row { server_us_per_op: us, ..row(Scenario::ServerCost, system, 1) };
    assert!(judge(&[cost("s5", 10.0), cost("leasehold", 18.0)], &[])[0].is_met);
    assert!(!judge(&[cost("s5", 10.0), cost("leasehold", 18.1)], &[])[0].is_met);
    let fairness = Some(Fairness { min: 0.49, max: 1.0 });
    let uneven = Row { fairness, ..hot("leasehold", 1, 1.0) };
    assert!(!verdict(&judge(&[uneven], &[]), "least served", None).is_met);
    let uneven = Row { fairness: Some(Fairness { min: 0.85, max: 1.0 }), ..hot("leasehold-fair", 1, 1.0) };
    assert!(!verdict(&judge(&[uneven], &[]), "farthest", None).is_met);
    let slow = Row { p999_us: Some(100_001), ..hot("leasehold", 1, 1.0) };
    assert!(!verdict(&judge(&[slow], &[]), "p99.9", None).is_met);
}

#[test]
fn peers_are_met_by_what_they_have() {
    let judged = |tasks| -> Vec<_> {
        let figures = [("leasehold", 90.0), ("redisson", 60.0), ("pushy", 91.0), ("plain", 100.0), ("rslock", 91.0)];
        let rows = figures.map(|(system, ops_per_s)| {
            let row = row(Scenario::Uncontended, system, 1);
            Row { case: Case { tasks, ..row.case }, ops_per_s, ..row }
        });
        let push = &[Has::Push];
        let peers = [peer("redisson", push), peer("pushy", push), peer("plain", &[]), peer("rslock", &[])];
        judge(&rows, &peers).into_iter().map(|v| (v.against.unwrap(), v.limit, v.is_met)).collect()
    };
    let at_least = |name: &str, least, is_met| (name.to_owned(), Limit::AtLeast(least), is_met);
    let alone = [
        at_least("redisson", 1.0, true),
        at_least("pushy", 1.0, false),
        at_least("plain", 0.85, true),
        at_least("rslock", 0.85, true),
        at_least("rslock", 1.0, false),
    ];
    assert_eq!(judged(1), alone);
    for (tasks, least) in [(16, 1.1), (64, 1.3), (1000, 1.3)] {
        let others = ["pushy", "plain", "rslock"].map(|name| at_least(name, least, false));
        let redisson = (tasks == 64).then(|| at_least("redisson", 1.5, true));
        let all = [vec![at_least("redisson", least, true)], others.to_vec(), Vec::from_iter(redisson)].concat();
        assert_eq!(judged(tasks), all, "{tasks} tasks");
    }
}

#[test]
fn the_textbook_lock_is_compared_at_every_size_and_by_its_cost_on_two_threads() {
    let judged = |tasks, threads| -> Vec<_> {
        let of = |system: &str, ops_per_s, cpu_us| {
            let row = row(Scenario::Uncontended, system, 1);
            let case = Case { tasks, threads, ..row.case };
            Row { case, ops_per_s, server_cpu_us_per_op: cpu_us, client_cpu_us_per_op: cpu_us, ..row }
        };
        let verdicts = judge(&[of("s5", 100.0, 10.0), of("s5-batched", 1.0, 1.0), of("leasehold", 125.0, 7.0)], &[]);
        assert!(verdicts.iter().all(|verdict| verdict.against.as_deref() == Some("s5")), "{verdicts:?}");
        verdicts.into_iter().map(|verdict| (verdict.limit, verdict.is_met)).collect()
    };
    for (tasks, least) in [(1, 0.9), (16, 0.9), (1000, 1.0)] {
        assert_eq!(judged(tasks, 2), [(Limit::AtLeast(least), true)], "{tasks} tasks");
    }
    let on_two = [(Limit::AtLeast(1.2), true), (Limit::AtMost(0.65), false), (Limit::AtMost(0.8), true)];
    assert_eq!(judged(64, 2), on_two);
    assert_eq!(judged(64, 1), [(Limit::AtLeast(1.3), false)]);
}

#[test]
fn more_is_promised_with_nothing_inside() {
    for (inside, least, is_met) in [(None, 1.8, true), (Some(Inside::Nothing), 4.0, false)] {
        let rows = [("leasehold", 30.0), ("a", 10.0)].map(|(system, ops_per_s)| {
            let row = hot(system, 1, ops_per_s);
            Row { case: Case { inside, ..row.case }, ..row }
        });
        let best = verdict(&judge(&rows, &[peer("a", &[])]), "hand-overs", Some("a"));
        assert_eq!((best.limit, best.is_met), (Limit::AtLeast(least), is_met));
    }
}

#[test]
fn the_best_peer_is_the_best_of_each_turn() {
    let rows: Vec<Row> = [(1, 30.0, 10.0, 100.0), (2, 10.0, 30.0, 90.0)]
        .into_iter()
        .flat_map(|(run, a, b, own)| [hot("a", run, a), hot("b", run, b), hot("leasehold-fair", run, own)])
        .collect();
    let peers = [peer("a", &[Has::Queue]), peer("b", &[Has::Queue, Has::Push]), peer("c", &[Has::Queue])];
    let best = verdict(&judge(&rows, &peers), "hand-overs", Some("the best of 2 peers"));
    assert_eq!((best.spread.min, best.is_met), (3.0, false));
    let unfair = [peer("a", &[]), peer("b", &[Has::Push])];
    assert!(judge(&rows, &unfair).iter().all(|verdict| verdict.against.is_none()), "nobody to compare with");
}

#[test]
fn waiters_are_compared_with_ten_of_them() {
    let queue = |tasks, us| {
        let row = row(Scenario::Queue, "leasehold-fair", 1);
        Row { case: Case { tasks, ..row.case }, server_us_per_op: us, ..row }
    };
    let verdicts = judge(&[queue(10, 20.0), queue(500, 29.0), queue(10_000, 31.0)], &[]);
    let of_time: Vec<_> = verdicts.iter().filter(|v| v.what.contains("time")).collect();
    assert_eq!(of_time.iter().map(|v| (v.case.tasks, v.is_met)).collect::<Vec<_>>(), [(500, true), (10_000, false)]);
}

#[test]
fn messages_are_counted_against_grants_of_the_store_and_runs() {
    let row = |publishes_per_op| Row {
        publishes_per_op,
        store_grants_per_op: Some(0.25),
        local_runs_per_op: Some(0.2),
        ..hot("leasehold", 1, 1.0)
    };
    assert!(verdict(&judge(&[row(0.45)], &[]), "messages", None).is_met);
    assert!(!verdict(&judge(&[row(0.46)], &[]), "messages", None).is_met);
}

#[test]
fn a_quorum_is_compared_with_its_floor_and_with_every_peer() {
    let of = |scenario, system: &str, p50_us, p99_us| {
        let row = row(scenario, system, 1);
        Row { p50_us: Some(p50_us), p99_us: Some(p99_us), ..row }
    };
    let alone = [of(Scenario::Quorum, "fan", 100, 1), of(Scenario::Quorum, "leasehold", 131, 1)];
    let [of_floor] = &judge(&alone, &[])[..] else { panic!() };
    assert_eq!((of_floor.against.as_deref(), of_floor.spread.median, of_floor.is_met), (Some("fan"), 1.31, false));
    let hot = |processes| {
        let all = [("leasehold", 50, 60), ("plain", 40, 600)];
        all.map(|(system, p50_us, p99_us)| {
            let row = of(Scenario::QuorumHot, system, p50_us, p99_us);
            let p999_us = Some(if system == "leasehold" { 700 } else { 600 });
            let attempts =
                (system == "leasehold").then_some(Attempts { mean: 2.0, p50: Some(2), p99: Some(5), max: None });
            Row { case: Case { processes, ..row.case }, p999_us, attempts, ..row }
        })
    };
    let peers = [peer("plain", &[])];
    let judged = |processes| -> Vec<_> {
        judge(&hot(processes), &peers).into_iter().map(|verdict| (verdict.what, verdict.is_met)).collect()
    };
    let lost = ("lost updates".to_owned(), true);
    let figures = |figures: &[(&str, bool)]| -> Vec<_> { figures.iter().map(|(a, b)| ((*a).to_owned(), *b)).collect() };
    let waits = figures(&[("median wait", false), ("p99 wait", true)]);
    let of_eight = figures(&[("sections a second", true), ("p99.9 wait", false)]);
    let rest = [figures(&[("p99 of attempts", false)]), vec![lost.clone()]].concat();
    assert_eq!(judged(2), [waits.clone(), rest.clone()].concat());
    assert_eq!(judged(8), [waits, of_eight, rest].concat());
    assert_eq!(judged(32), [lost]);
}

#[test]
fn a_shared_lock_is_twice_as_fast_as_equals_and_slower_than_nobody() {
    for scenario in [Scenario::Rwlock, Scenario::Semaphore] {
        let of =
            |system: &str, ops_per_s, p999_us| Row { ops_per_s, p999_us: Some(p999_us), ..row(scenario, system, 1) };
        let rows = [of("leasehold", 90.0, 10), of("pushy", 50.0, 20), of("plain", 100.0, 5)];
        let verdicts = judge(&rows, &[peer("pushy", &[Has::Push]), peer("plain", &[])]);
        let found: Vec<_> = verdicts.iter().map(|v| (v.against.as_deref().unwrap_or("-"), v.limit, v.is_met)).collect();
        let wanted = [
            ("pushy", Limit::AtLeast(2.0), false),
            ("pushy", Limit::AtLeast(1.0), true),
            ("plain", Limit::AtLeast(1.0), false),
            ("pushy", Limit::AtMost(1.0), true),
            ("plain", Limit::AtMost(1.0), false),
            ("-", Limit::AtMost(0.0), true),
        ];
        assert_eq!(found, wanted, "{scenario:?}");
    }
}

#[test]
fn systems_that_did_not_run_are_not_judged() {
    assert_eq!(judge(&[hot("floor", 1, 1.0)], &[peer("a", &[])]), vec![]);
}
