//! Runs the searches, and prints their results.

use stateright::Model;

use super::scenes::{self, Case, Off, Play, Scene};
use super::task::Message;
use super::world::Act;
use crate::models::check::{Found, Schedule, alone, explore};
use crate::models::options::Form;
use crate::models::report::{head, print_broken, print_whole};
use crate::models::rules;
use crate::models::words::{answer, name, token};

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
    scenes::ALL.iter().map(|scene| scene.name)
}

pub(in crate::models) fn rules() -> impl Iterator<Item = &'static str> {
    scenes::CASES.iter().map(|case| case.rule)
}

/// Runs the requested searches. Returns the number of unexpected results.
pub(in crate::models) fn run(form: Form, rule: Option<&str>, is_meant: impl Fn(&str) -> bool) -> usize {
    let mut unexpected = 0;
    let all: Vec<_> = scenes::ALL.iter().filter(|scene| rule.is_none() && is_meant(scene.name)).collect();
    if !all.is_empty() {
        head(form, "Multi-locks, every rule on", &["scene", "what it is about", "states", "depth", "verdict"]);
    }
    unexpected += all.iter().filter(|scene| !is_sound(scene, form)).count();
    let is_asked_for = |case: &&Case| rule.is_none_or(|rule| rule == case.rule) && is_meant(case.scene.name);
    let all: Vec<_> = scenes::CASES.iter().filter(is_asked_for).collect();
    if !all.is_empty() {
        let columns = ["rule", "flaw", "scene", "steps", "states", "what it breaks"];
        head(form, "Multi-locks, one rule off", &columns);
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

/// Describes a schedule, one line for each event.
fn describe(play: &Play, acts: &[Act]) -> Vec<String> {
    let mut world = play.init_states().remove(0);
    let mut lines = Vec::new();
    for act in acts {
        let task = |s: &u8| &world.tasks[usize::from(*s)];
        let words = match act {
            Act::Tick => format!("-- tick {} --", world.tick + 1),
            Act::Begin(s) => format!("{} wants both", name(*s)),
            Act::Serve(s) => format!("the store runs {}'s {:?}", name(*s), task(s).out.front()),
            Act::Receive(s) => format!("{} receives {}", name(*s), received(task(s).back.front())),
            Act::Recheck(s) => format!("{} re-checks, and renews what it holds", name(*s)),
            Act::Finish(s) => format!("{} has worked", name(*s)),
            Act::LosePush(s) => format!("a push to {} is lost", name(*s)),
            Act::Cut(s) => format!("{}'s connection breaks", name(*s)),
            Act::Attach(s) => format!("{} connects again", name(*s)),
            Act::Crash(s) => format!("{} dies", name(*s)),
            Act::Detach(s) => format!("the store notices that {}'s inbox is gone", name(*s)),
            Act::Stop(s) => format!("{} stops", name(*s)),
            Act::GoOn(s) => format!("{} goes on", name(*s)),
        };
        lines.push(words);
        let Some(next) = play.next_state(&world, *act) else { return lines };
        world = next;
    }
    lines
}

fn received(message: Option<&Message>) -> String {
    match message {
        Some(Message::Reply(ask, answers)) if answers.is_empty() => format!("the reply to {ask:?}: not both are free"),
        Some(Message::Reply(ask, answers)) => {
            let said: Vec<_> = answers.iter().map(answer).collect();
            format!("the reply to {ask:?}: {}", said.join("; "))
        }
        Some(Message::Push(member, push)) => format!("the push of token {} of mutex {member}", token(push.token)),
        None => "nothing".into(),
    }
}
