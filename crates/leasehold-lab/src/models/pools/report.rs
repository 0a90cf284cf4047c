//! The family for the searches: its scenes, its cases, and its schedules in words.

use super::cases::{self, Harm, Play, Pools, Slip};
use super::pool::Act;
use super::scenes::{self, Scene};
use super::words::describe;
use crate::models::check::{Found, explore};
use crate::models::family::{Case, Family};

impl Family for Pools {
    type Scene = Scene;
    type Slip = Slip;
    type Harm = Harm;
    type Act = Act;

    const TITLE: &'static str = "Pools";
    const SCENES: &'static [Scene] = scenes::ALL;
    const CASES: &'static [Case<Self>] = cases::ALL;

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
