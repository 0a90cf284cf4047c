//! The family for the searches: its scenes, its cases, and its schedules in words.

use stateright::Model as _;

use super::scenes::{self, Harm, MultiLocks, Play, Scene, Slip};
use super::task::Message;
use super::world::Act;
use crate::models::check::{Found, explore};
use crate::models::family::{Case, Family};
use crate::models::words::{answer, name, token};

impl Family for MultiLocks {
    type Scene = Scene;
    type Slip = Slip;
    type Harm = Harm;
    type Act = Act;

    const TITLE: &'static str = "Multi-locks";
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
