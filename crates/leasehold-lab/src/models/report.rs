//! Runs the searches and prints their results.

use std::process::ExitCode;
use std::time::Instant;

use super::cases::{self, Case};
use super::check::{Found, describe, search};
use super::conditions::Conditions;
use super::family;
use super::options::{Form, Options, Size};
use super::pools::Pools;
use super::quorum;
use super::rules::Off;
use super::scene::Scene;
use super::scenes;
use super::several::MultiLocks;
use super::world::Play;

/// Runs the models. A failure is an unexpected counter-example, or an expected one that was not found.
pub(crate) fn run(options: &Options) -> ExitCode {
    let began = Instant::now();
    let is_meant = |scene: &Scene| options.scene.as_ref().is_none_or(|name| name == scene.name);
    let is_asked_for =
        |case: &&Case| options.rule.as_ref().is_none_or(|rule| rule == case.rule) && is_meant(case.scene);
    let all: Vec<_> = if options.size == Size::Deep { scenes::deep() } else { scenes::ALL.to_vec() };
    let is_named = |name: &str| options.scene.as_ref().is_none_or(|scene| scene == name);
    let is_searched = options.rule.is_none() && (all.iter().any(is_meant) || quorum::names().any(is_named));
    let is_rule = |name: &str| options.rule.as_ref().is_none_or(|rule| rule == name);
    let is_pool = family::names::<Pools>().any(is_named) && family::rules::<Pools>().any(is_rule)
        || family::names::<Conditions>().any(is_named) && family::rules::<Conditions>().any(is_rule)
        || family::names::<MultiLocks>().any(is_named) && family::rules::<MultiLocks>().any(is_rule);
    if !is_searched && !is_pool && !cases::ALL.iter().any(|case| is_asked_for(&case)) {
        return nothing_to_run(&all);
    }
    let mut failures = 0;
    if options.rule.is_none() {
        head(options.form, "Every rule on", &["scene", "what it is about", "states", "depth", "verdict"]);
        for scene in all.iter().filter(|scene| is_meant(scene)) {
            failures += usize::from(!whole(scene, options.form));
        }
    }
    let flaws: Vec<&Case> = cases::ALL.iter().filter(is_asked_for).collect();
    if !flaws.is_empty() {
        head(options.form, "One rule off", &["rule", "flaw", "scene", "steps", "states", "what it breaks"]);
    }
    for case in flaws {
        failures += usize::from(!broken(case, options.form));
    }
    if options.rule.is_none() {
        failures += quorum::run(options.form, is_named);
    }
    failures += family::run::<Pools>(options.form, options.rule.as_deref(), is_named);
    failures += family::run::<Conditions>(options.form, options.rule.as_deref(), is_named);
    failures += family::run::<MultiLocks>(options.form, options.rule.as_deref(), is_named);
    if options.form != Form::Markdown {
        println!("\n{} s, at most {} MB, {failures} unexpected", began.elapsed().as_secs(), peak_mb().unwrap_or(0));
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reports that no model matches the options, which is not a success.
fn nothing_to_run(scenes: &[Scene]) -> ExitCode {
    let mut rules: Vec<&str> = cases::ALL
        .iter()
        .map(|case| case.rule)
        .chain(family::rules::<Pools>())
        .chain(family::rules::<Conditions>())
        .collect();
    rules.extend(family::rules::<MultiLocks>());
    rules.dedup();
    let mut scenes: Vec<&str> = scenes.iter().map(|scene| scene.name).chain(quorum::names()).collect();
    scenes.extend(family::names::<Pools>().chain(family::names::<Conditions>()).chain(family::names::<MultiLocks>()));
    eprintln!("no model matches this rule and this scene\nrules: {}\nscenes: {}", rules.join(", "), scenes.join(", "));
    ExitCode::from(2)
}

pub(super) fn head(form: Form, title: &str, columns: &[&str]) {
    match form {
        Form::Markdown => println!("\n| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len())),
        _ => println!("\n{title}"),
    }
}

/// Searches a scene with every rule on: nothing may be found, and every required state must be reached.
fn whole(scene: &Scene, form: Form) -> bool {
    let play = Play::new(scene.clone(), Off::Nothing, None);
    let found = search(&play);
    print_whole(form, (scene.name, scene.about), &found, &in_words(&play, &found))
}

/// Searches with a rule off: the violation must be found.
fn broken(case: &Case, form: Form) -> bool {
    let play = case.play();
    let found = search(&play);
    print_broken(form, (case.rule, case.flaw, case.scene.name), &found, &in_words(&play, &found))
}

/// Returns the schedule that was found, if any, line by line.
fn in_words(play: &Play, found: &Found) -> Vec<String> {
    found.harm.as_ref().map(|schedule| describe(play, &schedule.acts)).unwrap_or_default()
}

/// Prints the result of a search with every rule on. Returns whether it is sound. An unexpected schedule is printed in any
/// form.
pub(super) fn print_whole<A>(form: Form, (name, about): (&str, &str), found: &Found<A>, lines: &[String]) -> bool {
    let verdict = match &found.harm {
        Some(schedule) => format!("{} steps: {}", schedule.acts.len(), schedule.harm),
        None => soundness(found),
    };
    let Found { states, depth, took, .. } = found;
    match form {
        Form::Markdown => println!("| {name} | {about} | {states} | {depth} | {verdict} |"),
        _ => println!("  {name:<14} {states:>9} states, depth {depth:>2} {:>6.1} s  {verdict}", took.as_secs_f64()),
    }
    lines.iter().for_each(|line| println!("        {line}"));
    found.harm.is_none() && found.missed.is_empty()
}

/// Prints the result of a search with a rule off. Returns whether it found the violation.
pub(super) fn print_broken<A>(
    form: Form,
    (rule, flaw, scene): (&str, &str, &str),
    found: &Found<A>,
    lines: &[String],
) -> bool {
    let steps = found.harm.as_ref().map_or_else(|| "-".into(), |schedule| schedule.acts.len().to_string());
    let verdict = found.harm.as_ref().map_or("NOTHING FOUND", |schedule| schedule.harm);
    let (states, took) = (found.states, found.took.as_secs_f64());
    match form {
        Form::Markdown => println!("| {rule} | {flaw} | {scene} | {steps} | {states} | {verdict} |"),
        _ => println!("  {rule:<4}{flaw:<56}{scene:<14}{steps:>3} steps{states:>8} states {took:>5.1} s  {verdict}"),
    }
    if form == Form::Schedules {
        lines.iter().for_each(|line| println!("        {line}"));
    }
    found.harm.is_some()
}

/// Returns the verdict on a search that has found no violation.
pub(super) fn soundness<A>(found: &Found<A>) -> String {
    match &found.missed[..] {
        [] => "no counter-example".into(),
        missed => format!("no counter-example, but it never reached: {}", missed.join("; ")),
    }
}

/// Returns the peak memory of this process, if the system reports it.
fn peak_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb / 1024)
}
