//! The live half: the schedule of a scene, forced on real servers.
//!
//! The source of a specimen is the same as in the model. Its commands travel to a real `redis-server` through a
//! gate, which lets them pass in the order of the schedule. Where time passes in the schedule, time passes. Servers
//! are killed and started again, and a preloaded library moves their clocks. Nothing pauses inside a specimen.
//!
//! | File | Contents |
//! |---|---|
//! | `server.rs`, `shim.rs`, `scratch.rs` | a server that belongs to one run, its clock, and its directory |
//! | `wire.rs`, `gate.rs` | the connection of a thread, and the proxy in front of the server |
//! | `port.rs` | the world, as the threads see it |
//! | `director.rs` | the schedule |
//! | `ours/` | Leasehold itself under the same faults |
//! | `direct.rs` | a world without a schedule, for programs that use a specimen as an application does |

#[cfg(test)]
mod agreement;
pub mod direct;
mod director;
mod gate;
pub mod ours;
mod port;
mod scratch;
mod server;
mod shim;
mod wire;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime;
use tokio::task::LocalSet;

pub use server::{Server, version};
pub use shim::SKEW_CLOCK;

use crate::judge::Harm;
use crate::scene::Scene;
use crate::world::{Choice, Stage};

/// Checks that this machine has everything that the runs of these scenes need.
///
/// # Errors
/// It names what is missing: redis-server, or a C compiler for the clocks.
pub fn check(scenes: &[Scene]) -> io::Result<()> {
    version()?;
    let has_moved_clock = |scene: &Scene| {
        let mut stage = Stage::default();
        (scene.flawed)(&mut stage);
        scene.bounds.faults.jumps > 0 || stage.ahead_ms.iter().any(|ms| *ms > 0)
    };
    if scenes.iter().any(has_moved_clock) { shim::check() } else { Ok(()) }
}

/// The results of the live runs of one scene.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The number of runs that did the harm of the scene.
    pub harmful: usize,
    /// The number of runs that did no harm, or another one.
    pub harmless: usize,
    /// The errors of the runs that could not be completed.
    pub failed: Vec<String>,
}

/// Runs a schedule of the tutorial's lock `count` times on real servers, `at_once` of them at the same time.
#[must_use]
pub fn run(scene: &Scene, schedule: &[Choice], count: usize, at_once: usize) -> Runs {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut runs = Runs::default();
        while next.fetch_add(1, Ordering::Relaxed) < count {
            match run_once(scene, schedule) {
                Ok(true) => runs.harmful += 1,
                Ok(false) => runs.harmless += 1,
                Err(error) => runs.failed.push(error.to_string()),
            }
        }
        runs
    };
    let all = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.min(count)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a run does not panic")).collect::<Vec<_>>()
    });
    all.into_iter().fold(Runs::default(), |mut sum, runs| {
        sum.harmful += runs.harmful;
        sum.harmless += runs.harmless;
        sum.failed.extend(runs.failed);
        sum
    })
}

/// Runs a schedule once. Returns whether it did the harm of the scene to the threads of the schedule. It can do so a step
/// earlier than in the model, because time passes between two steps as well.
fn run_once(scene: &Scene, schedule: &[Choice]) -> io::Result<bool> {
    let (runtime, search) = (runtime::Builder::new_current_thread().enable_all().build()?, scene.flawed_search());
    let harm = LocalSet::new().block_on(&runtime, director::direct(&search, schedule))?;
    let modelled = search.last_harm(schedule);
    Ok(harm.into_iter().any(|harm| scene.seeks.is_met_by(harm) && is_as_modelled(scene, harm, &modelled)))
}

fn is_as_modelled(scene: &Scene, harm: Harm, modelled: &[Harm]) -> bool {
    modelled.iter().any(|modelled| scene.seeks.is_met_by(*modelled) && modelled.threads() == harm.threads())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_other_holders_are_not_the_harm_of_the_schedule() {
        let scene = Scene::find("H3").expect("H3 is a scene");
        let (schedule, harm) = scene.break_it().schedule.expect("the lock breaks");
        assert_eq!(harm, Harm::Overlap(1, 2));
        let modelled = scene.flawed_search().last_harm(&schedule);
        assert!(is_as_modelled(scene, Harm::Overlap(2, 1), &modelled));
        assert!(!is_as_modelled(scene, Harm::Overlap(0, 1), &modelled));
    }
}
