//! The models that are quick enough for every change: `leasehold-lab models` runs all of them. The tests also check the
//! figures in docs/evidence.md.

use leasehold_testkit::part::Part;

use super::cases::{self, Case};
use super::check::{describe, search};
use super::rules::Off;
use super::scene::Scene;
use super::scenes;
use super::world::Play;

const EVIDENCE: &str = include_str!("../../../../docs/evidence.md");

/// Scenes with more states than these take too long without optimization.
const SMALL: &[&str] =
    &["last words", "memory", "runs", "strict", "edge", "forgotten", "stopped", "uncounted", "pollers", "set back"];

fn evidence_says(row: &str) {
    assert!(EVIDENCE.lines().any(|line| line.starts_with(row)), "docs/evidence.md does not say: {row}");
}

fn has_no_counter_example(scene: &Scene) {
    let play = Play::new(scene.clone(), Off::Nothing, None);
    let found = search(&play);
    if let Some(schedule) = &found.harm {
        panic!("{}: {}\n{}", scene.name, schedule.harm, describe(&play, &schedule.acts).join("\n"));
    }
    assert_eq!(found.missed, Vec::<&str>::new(), "{} never reached it", scene.name);
    evidence_says(&format!("| {} | {} | {} |", scene.name, scene.about, found.states));
}

fn has_a_counter_example(case: &Case) {
    let found = search(&case.play());
    let schedule = found.harm.unwrap_or_else(|| panic!("{} {}: nothing found", case.rule, case.flaw));
    assert_eq!(schedule.harm, case.harm.name());
    // The log has a line for every step, and lines for its effects.
    assert!(describe(&case.play(), &schedule.acts).len() >= schedule.acts.len());
    evidence_says(&format!("| {} | {} | {} | {} |", case.rule, case.flaw, case.scene.name, schedule.acts.len()));
}

#[test]
fn no_counter_example_with_every_rule_on() {
    let small = scenes::ALL.iter().filter(|scene| SMALL.contains(&scene.name));
    Part::chosen().of(small).for_each(has_no_counter_example);
}

#[test]
fn a_counter_example_with_each_rule_off() {
    Part::chosen().of(cases::ALL).for_each(has_a_counter_example);
}

#[test]
fn every_modeled_rule_has_a_flaw_and_every_scene_is_documented() {
    for rule in ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P14", "P19", "P20", "P21"] {
        assert!(cases::ALL.iter().any(|case| case.rule == rule), "{rule}");
    }
    for scene in scenes::ALL {
        evidence_says(&format!("| {} | {} | ", scene.name, scene.about));
    }
}
