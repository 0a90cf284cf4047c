//! Leasehold keeps its promises on real servers, under the faults of each scene.
#![cfg(feature = "lab")]

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use leasehold_hazards::live::ours::{self, Further, Trials};
use leasehold_hazards::scene::Scene;

/// Set this to make each trial more often than once.
const RUNS: &str = "LEASEHOLD_LIVE_RUNS";
/// The number of scenes that have their servers at the same time.
const AT_ONCE: usize = 13;

struct Program;

impl ours::Program for Program {
    fn worker(&self, store: &str, lease_ms: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["worker", store, &lease_ms.to_string()]);
        command
    }

    fn begin(&self, quorum: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["quorum", "begin", "--store", quorum]);
        command
    }
}

/// Makes the trials of all scenes.
fn trials(count: usize) -> Vec<(&'static Scene, Trials)> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(scene) = Scene::all().get(next.fetch_add(1, Ordering::Relaxed)) {
                    let trials = ours::run(scene, &Program, count, 2);
                    all.lock().expect("no scene panics").push((scene, trials));
                }
            });
        }
    });
    all.into_inner().expect("no scene panics")
}

#[test]
fn leasehold_keeps_its_promises_under_the_faults_of_each_scene() {
    let count = std::env::var(RUNS).map_or(1, |text| text.parse().expect("a number of runs"));
    let mut wrong = Vec::new();
    for (scene, trials) in trials(count) {
        println!("{}: {}", scene.id, trials.tell(scene, count));
        // The faults have struck: where a write must come late, or a guarantee permits two holders, it has happened.
        let expected_late = usize::from(["H5", "H9", "H11", "S8", "N7"].contains(&scene.id)) * count;
        let expected_holders = usize::from(scene.ours.permits.is_some()) * count;
        let is_whole = trials.are_as_promised(count)
            && trials.late_writes == expected_late
            && trials.with_two_holders == expected_holders;
        if !is_whole {
            wrong.push(format!("{}: {trials:?}", scene.id));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn leasehold_keeps_its_promises_under_further_faults() {
    let count = std::env::var(RUNS).map_or(1, |text| text.parse().expect("a number of runs"));
    let wrong: Vec<_> = thread::scope(|scope| {
        let all: Vec<_> = Further::all()
            .iter()
            .map(|it| scope.spawn(move || (it, ours::run_further(it, &Program, count, 2))))
            .collect();
        all.into_iter().map(|trials| trials.join().expect("no trial panics")).collect()
    });
    for (further, trials) in &wrong {
        println!("{}: {} of {count}, {} ms at most", further.name, trials.completed, trials.largest);
    }
    let wrong: Vec<_> = wrong.iter().filter(|(_, trials)| !trials.are_as_promised(count)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
