//! Runs the searches and prints their results.

use super::cases::{self, Case, Off, Play};
use super::pool::Act;
use super::scenes::{self, Scene};
use super::words::describe;
use crate::models::check::{Found, Schedule, alone, explore};
use crate::models::options::Form;
use crate::models::report::{head, print_broken, print_whole};
use crate::models::rules;

/// Runs one search. Returns its result, with the schedule in words.
pub(super) fn search(play: Play) -> (Found<Act>, Vec<String>) {
    let off = match play.off {
        Off::Store(mutant) => rules::Off::Store(mutant),
        Off::Nothing | Off::Session(_) => rules::Off::Nothing,
    };
    alone(off, || {
        let found = explore(play, play.watch.is_some());
        let lines = found.harm.as_ref().map(|Schedule { acts, .. }| describe(&play, acts)).unwrap_or_default();
        (found, lines)
    })
}

pub(super) const fn whole(scene: &'static Scene) -> Play {
    Play { scene, off: Off::Nothing, watch: None }
}

pub(in crate::models) fn names() -> impl Iterator<Item = &'static str> {
    scenes::ALL.iter().map(|scene| scene.name).chain(cases::ALL.iter().map(|case| case.scene.name))
}

pub(in crate::models) fn rules() -> impl Iterator<Item = &'static str> {
    cases::ALL.iter().map(|case| case.rule)
}

/// Runs the requested searches. Returns the number of unexpected results.
pub(in crate::models) fn run(form: Form, rule: Option<&str>, is_meant: impl Fn(&str) -> bool) -> usize {
    let mut unexpected = 0;
    let all: Vec<_> = scenes::ALL.iter().filter(|scene| rule.is_none() && is_meant(scene.name)).collect();
    if !all.is_empty() {
        head(form, "Pools, every rule on", &["scene", "what it is about", "states", "depth", "verdict"]);
    }
    unexpected += all.iter().filter(|scene| !is_sound(scene, form)).count();
    let is_asked_for = |case: &&Case| rule.is_none_or(|rule| rule == case.rule) && is_meant(case.scene.name);
    let all: Vec<_> = cases::ALL.iter().filter(is_asked_for).collect();
    if !all.is_empty() {
        head(form, "Pools, one rule off", &["rule", "flaw", "scene", "steps", "states", "what it breaks"]);
    }
    unexpected + all.iter().filter(|case| !is_broken(case, form)).count()
}

fn is_sound(scene: &'static Scene, form: Form) -> bool {
    let (found, lines) = search(whole(scene));
    print_whole(form, (scene.name, scene.about), &found, &lines)
}

fn is_broken(case: &Case, form: Form) -> bool {
    let (found, lines) = search(case.play());
    print_broken(form, (case.rule, case.flaw, case.scene.name), &found, &lines)
}
