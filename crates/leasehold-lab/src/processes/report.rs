//! The result of a run, for people and for `docs/evidence.md`.

use std::time::Duration;

use super::judge::Verdict;
use super::options::Kills;
use super::scene::Scene;

/// The head of the table whose rows are [`Report::row`].
pub(crate) const HEAD: &str = "\
| scene | store, seed | what | sections | fewest of a process (at least) \
     | longest wait, and part of a wait without a death | load | result |
|---|---|---|---|---|---|---|---|";

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) scene: Scene,
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// How many sections each process must have achieved.
    pub(crate) least: u64,
    pub(crate) kills: Kills,
    pub(crate) killed: usize,
    /// The load of the machine before the run.
    pub(crate) load: String,
    pub(crate) verdict: Verdict,
}

impl Report {
    pub(crate) fn is_clean(&self) -> bool {
        self.verdict.violations.is_empty()
    }

    pub(crate) fn words(&self) -> String {
        let Self { scene, store, seed, load, .. } = self;
        let (seconds, processes, killed) = (self.time.as_secs(), scene.processes(), self.killed());
        let Verdict { cut, lost, excused, torn, .. } = self.verdict;
        let progress: Vec<String> = self.verdict.progress.iter().map(u64::to_string).collect();
        let (name, least, result) = (scene.name(), self.least, self.result());
        let (wait, part) = self.longest_waits();
        let progress = progress.join(", ");
        [
            format!("{name} on {store}, seed {seed}: {processes} processes, {seconds} s, {killed}, {cut} in a section"),
            format!("  sections of each process: {progress} (at least {least} wanted)"),
            format!("  longest wait {wait:.1?}, longest part of a wait without a death {part:.1?}"),
            format!("  {lost} leases of live processes lost, {excused} overlaps excused by that"),
            format!("  {torn} half-written records of dead writers were read; load before the run {load}"),
            format!("  {result}\n"),
        ]
        .join("\n")
    }

    pub(crate) fn row(&self) -> String {
        let Verdict { progress, cut, lost, excused, .. } = &self.verdict;
        let (wait, part) = self.longest_waits();
        let (sum, fewest) = (progress.iter().sum::<u64>(), progress.iter().min().copied().unwrap_or(0));
        format!(
            "| `{}` | {}, {} | {} processes, {} s, {}, {cut} of them in a section | {sum} | {fewest} ({}) | \
             {wait:.1?}, {part:.1?} | {} | {}; {lost} leases lost, {excused} overlaps excused |",
            self.scene.name(),
            self.store,
            self.seed,
            self.scene.processes(),
            self.time.as_secs(),
            self.killed(),
            self.least,
            self.load,
            self.result(),
        )
    }

    fn longest_waits(&self) -> (Duration, Duration) {
        let Verdict { longest_wait_us, longest_part_us, .. } = self.verdict;
        (Duration::from_micros(longest_wait_us), Duration::from_micros(longest_part_us))
    }

    fn killed(&self) -> String {
        let how = if self.kills == Kills::Waves { " in waves" } else { "" };
        format!("{} killed{how}", self.killed)
    }

    fn result(&self) -> String {
        match self.verdict.violations.len() {
            0 => "no violation".into(),
            n => format!("VIOLATIONS: {n}"),
        }
    }
}
