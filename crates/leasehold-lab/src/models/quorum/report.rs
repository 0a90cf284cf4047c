//! Runs the searches and prints their results.

use stateright::Model;

use super::permits::{self, Permits, TOO_MANY};
use super::{scenes, words};
use crate::models::check::{Found, Schedule, explore};
use crate::models::options::Form;
use crate::models::report::{head, soundness};

/// A search and its expected result.
pub(super) struct Search {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The violation that is found, if the scheme is flawed.
    pub(super) harm: Option<&'static str>,
    /// Runs the search. Returns its result, with a schedule in words.
    pub(super) find: Box<dyn Fn() -> Found<String>>,
}

impl Search {
    fn of<M: Model + Copy + Send + Sync + 'static>(
        (name, about): (&'static str, &'static str),
        harm: Option<&'static str>,
        find: impl Fn() -> Found<M::Action> + 'static,
        describe: fn(&M::Action) -> String,
    ) -> Self {
        let in_words = move |Found { states, depth, took, harm, missed }: Found<M::Action>| {
            let harm = harm.map(|Schedule { harm, acts }| Schedule { harm, acts: acts.iter().map(describe).collect() });
            Found { states, depth, took, harm, missed }
        };
        Self { name, about, harm, find: Box::new(move || in_words(find())) }
    }
}

/// Returns all searches.
pub(super) fn all() -> Vec<Search> {
    let of_tokens = scenes::ALL.iter().map(|scene| {
        let (named, harm) = ((scene.name, scene.about), scene.harm);
        Search::of::<scenes::Scene>(named, harm, move || explore(*scene, harm.is_some()), words::describe)
    });
    let of_permits = [
        (1, "one permit", "a semaphore of one is a mutex", None),
        (2, "two permits", "a semaphore of two, each node counts", Some(TOO_MANY)),
    ];
    let of_permits = of_permits.into_iter().map(|(permits, name, about, harm)| {
        let model = Permits { nodes: 3, attempts: 3, permits };
        Search::of::<Permits>((name, about), harm, move || explore(model, harm.is_some()), permits::describe)
    });
    of_tokens.chain(of_permits).collect()
}

pub(in crate::models) fn names() -> impl Iterator<Item = &'static str> {
    all().into_iter().map(|search| search.name)
}

/// Runs the requested searches. Returns the number of unexpected results.
pub(in crate::models) fn run(form: Form, is_meant: impl Fn(&str) -> bool) -> usize {
    let meant: Vec<Search> = all().into_iter().filter(|search| is_meant(search.name)).collect();
    if !meant.is_empty() {
        head(form, "Independent nodes", &["scene", "what it is about", "steps", "states", "verdict"]);
    }
    meant.iter().filter(|search| !is_as_it_should_be(search, form)).count()
}

/// Runs one search: a sound scheme must have no violation, and a flawed one must break as documented.
fn is_as_it_should_be(search: &Search, form: Form) -> bool {
    let Search { name, about, harm: expected, find } = search;
    let found = find();
    let (steps, verdict) = match &found.harm {
        Some(schedule) => (schedule.acts.len().to_string(), schedule.harm.to_owned()),
        None => ("-".to_owned(), soundness(&found)),
    };
    let Found { states, took, .. } = found;
    match form {
        Form::Markdown => println!("| {name} | {about} | {steps} | {states} | {verdict} |"),
        _ => println!("  {name:<21}{steps:>3} steps{states:>9} states {:>6.1} s  {verdict}", took.as_secs_f64()),
    }
    let harm = found.harm.as_ref().map(|schedule| schedule.harm);
    // A search that has found a violation ends with it, so the states that it would have reached later are unknown.
    let is_right = harm == *expected && (harm.is_some() || found.missed.is_empty());
    if let Some(schedule) = found.harm.filter(|_| !is_right || form == Form::Schedules) {
        schedule.acts.iter().for_each(|act| println!("        {act}"));
    }
    is_right
}
