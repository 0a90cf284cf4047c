//! The part of the models that is quick enough for every change: `leasehold-lab models` runs all of them. It also keeps
//! the figures of docs/evidence.md true.

use super::cases::{self, Case};
use super::check::{search, tell};
use super::rules::Off;
use super::scene::Scene;
use super::scenes;
use super::world::Play;

const EVIDENCE: &str = include_str!("../../../../docs/evidence.md");

/// More states than these have take too long without optimisation.
const SMALL: &[&str] =
    &["last words", "memory", "runs", "strict", "edge", "forgotten", "stopped", "uncounted", "pollers", "set back"];

fn evidence_says(row: &str) {
    assert!(EVIDENCE.lines().any(|line| line.starts_with(row)), "docs/evidence.md does not say: {row}");
}

fn has_no_counter_example(scene: &Scene) {
    let play = Play::new(scene.clone(), Off::Nothing, None);
    let found = search(&play);
    if let Some(schedule) = &found.harm {
        panic!("{}: {}\n{}", scene.name, schedule.harm, tell(&play, &schedule.acts).join("\n"));
    }
    assert_eq!(found.missed, Vec::<&str>::new(), "{} never came by it", scene.name);
    evidence_says(&format!("| {} | {} | {} |", scene.name, scene.about, found.states));
}

fn has_a_counter_example(case: &Case) {
    let found = search(&case.play());
    let schedule = found.harm.unwrap_or_else(|| panic!("{} {}: nothing found", case.rule, case.flaw));
    assert_eq!(schedule.harm, case.harm.name());
    // Every step is told, and what came of it.
    assert!(tell(&case.play(), &schedule.acts).len() >= schedule.acts.len());
    evidence_says(&format!("| {} | {} | {} | {} |", case.rule, case.flaw, case.scene.name, schedule.acts.len()));
}

#[test]
fn with_every_rule_on_nothing_is_found() {
    scenes::ALL.iter().filter(|scene| SMALL.contains(&scene.name)).for_each(has_no_counter_example);
}

#[test]
fn with_a_rule_off_its_schedule_is_found() {
    cases::ALL.iter().for_each(has_a_counter_example);
}

#[test]
fn every_rule_that_is_modelled_has_a_flaw_and_every_scene_is_told_of() {
    for rule in ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P14", "P19", "P20", "P21"] {
        assert!(cases::ALL.iter().any(|case| case.rule == rule), "{rule}");
    }
    for scene in scenes::ALL {
        evidence_says(&format!("| {} | {} | ", scene.name, scene.about));
    }
}
