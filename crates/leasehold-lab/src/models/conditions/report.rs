//! The family for the searches: its scenes, its cases, and its schedules in words.

use stateright::Model as _;

use super::scenes::{self, Conditions, Harm, Play, Scene, Slip};
use super::waiter::Message;
use super::world::Act;
use crate::models::check::{Found, explore};
use crate::models::family::{Case, Family};
use crate::models::words::{answer, name, token};

impl Family for Conditions {
    type Scene = Scene;
    type Slip = Slip;
    type Harm = Harm;
    type Act = Act;

    const TITLE: &'static str = "Condition variables";
    const SCENES: &'static [Scene] = scenes::ALL;
    const CASES: &'static [Case<Self>] = scenes::CASES;

    fn scene(scene: &Scene) -> (&'static str, &'static str) {
        (scene.name, scene.about)
    }

    fn harm(harm: Harm) -> &'static str {
        harm.name()
    }

    fn explore(play: Play) -> Found<Act> {
        explore(play, play.watch.is_some())
    }

    fn describe(play: &Play, acts: &[Act]) -> Vec<String> {
        describe(play, acts)
    }
}

/// Describes a schedule, one line for each event, and one for each message of a step.
fn describe(play: &Play, acts: &[Act]) -> Vec<String> {
    let mut world = play.init_states().remove(0);
    let mut lines = Vec::new();
    for act in acts {
        let words = match act {
            Act::Tick => format!("-- tick {} --", world.tick + 1),
            Act::Lock(s) => format!("{} looks, with the lock: {} items", name(*s), world.items),
            Act::Serve(s) => format!("the store runs {}'s {:?}", name(*s), world.sessions[*s as usize].out.front()),
            Act::Receive(s) => format!("{} receives {}", name(*s), received(world.sessions[*s as usize].back.front())),
            Act::Recheck(s) => format!("{} re-checks", name(*s)),
            Act::LosePush(s) => format!("a push to {} is lost", name(*s)),
            Act::Cut(s) => format!("{}'s connection breaks", name(*s)),
            Act::Attach(s) => format!("{} connects again", name(*s)),
            Act::Crash(s) => format!("{} dies", name(*s)),
            Act::Detach(s) => format!("the store notices that {}'s inbox is gone", name(*s)),
            Act::Failover => "the store fails over to a copy that missed its last change".into(),
        };
        lines.push(words);
        let Some(next) = play.next_state(&world, *act) else { return lines };
        world = next;
    }
    lines
}

fn received(message: Option<&Message>) -> String {
    match message {
        Some(Message::Reply(ask, said)) => format!("the reply to {ask:?}: {}", answer(said)),
        Some(Message::Push(push)) => format!("the push of token {}", token(push.token)),
        None => "nothing".into(),
    }
}
