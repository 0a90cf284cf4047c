//! The live half: the locks of the tutorials and Leasehold on real servers.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use leasehold_hazards::live::ours::{self, Trials};
use leasehold_hazards::live::{self, Runs};
use leasehold_hazards::scene::Scene;
use leasehold_hazards::world::Choice;

use super::Live;
use crate::exit::Failure;
use crate::show;

/// The number of runs that have their servers at the same time.
const AT_ONCE: usize = 25;

/// Checks that there is everything that the live half of these scenes needs.
pub(super) fn check(args: Live, scenes: &[Scene]) -> Result<(), Failure> {
    match args.live.map(|_| live::check(scenes)) {
        Some(Err(error)) => Err(Failure::own(error.to_string())),
        _ => Ok(()),
    }
}

/// The runs of the lock of a tutorial.
pub(super) struct Broken {
    runs: Runs,
    count: usize,
}

impl Broken {
    pub(super) const fn is_whole(&self) -> bool {
        self.runs.harmful == self.count
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.runs.harmful, self.count)
    }
}

/// Forces a schedule of the lock of a tutorial on real servers.
pub(super) fn break_it(scene: &Scene, schedule: &[Choice], count: u32) -> Result<Broken, Failure> {
    let count = count as usize;
    let runs = live::run(scene, schedule, count, AT_ONCE);
    match runs.failed.first() {
        Some(error) if runs.harmful == 0 => {
            return Err(Failure::own(format!("cannot run {} on real servers: {error}", scene.id)));
        }
        Some(error) => show::warn(&format!("{} of the runs could not be completed: {error}", runs.failed.len())),
        None => {}
    }
    Ok(Broken { runs, count })
}

/// The trials of Leasehold.
pub(super) struct Tried<'a> {
    scene: &'a Scene,
    trials: Trials,
    count: usize,
}

impl Tried<'_> {
    pub(super) fn are_as_promised(&self) -> bool {
        self.trials.are_as_promised(self.count)
    }
}

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.trials.tell(self.scene, self.count))
    }
}

/// Makes the trials of Leasehold on real servers.
pub(super) fn try_ours(scene: &Scene, count: u32) -> Result<Tried<'_>, Failure> {
    let count = count as usize;
    let binary = std::env::current_exe();
    let binary = binary.map_err(|error| Failure::system("cannot find the file of this program", &error))?;
    let trials = ours::run(scene, &Program(binary), count, AT_ONCE);
    if let Some(error) = trials.broken.first() {
        show::warn(&format!("{}: {} trials of Leasehold failed: {error}", scene.id, trials.broken.len()));
    }
    Ok(Tried { scene, trials, count })
}

/// This program.
struct Program(PathBuf);

impl ours::Program for Program {
    fn worker(&self, store: &str, lease_ms: u64) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["worker", store, &lease_ms.to_string()]);
        command
    }

    fn begin(&self, quorum: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["quorum", "begin", "--store", quorum]);
        command
    }
}
