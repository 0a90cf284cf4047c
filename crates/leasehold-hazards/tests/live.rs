//! The schedules that the search finds break the locks of the tutorials on real servers as well.
#![cfg(feature = "live")]

use std::thread;

use leasehold_hazards::live::{self, Runs};
use leasehold_hazards::scene::Scene;

/// Set this to run each schedule more often than twice.
const RUNS: &str = "LEASEHOLD_LIVE_RUNS";

#[test]
fn each_lock_of_the_tutorials_breaks_on_a_real_server() {
    let count = std::env::var(RUNS).map_or(2, |text| text.parse().expect("a number of runs"));
    let wrong: Vec<_> = thread::scope(|scope| {
        let scenes: Vec<_> = Scene::all().iter().map(|scene| scope.spawn(move || wrong_runs(scene, count))).collect();
        scenes.into_iter().filter_map(|scene| scene.join().expect("a scene does not panic")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns what was wrong with the runs of a scene.
fn wrong_runs(scene: &Scene, count: usize) -> Option<String> {
    let (schedule, _) = scene.break_it().schedule.expect("the lock breaks");
    let runs = live::run(scene, &schedule, count, 2);
    let expected = Runs { harmful: count, ..Runs::default() };
    (runs != expected).then(|| format!("{}: {runs:?}", scene.id))
}
