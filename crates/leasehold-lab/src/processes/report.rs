//! The result of a run, for people and for `docs/evidence.md`.

use std::time::Duration;

use super::judge::Verdict;
use super::scene::Scene;

/// The head of the table whose rows are [`Report::row`].
pub(crate) const HEAD: &str = "\
| scene | store, seed | what | sections | fewest of a process (at least) | longest wait | load | result |
|---|---|---|---|---|---|---|---|";

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) scene: Scene,
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// How many sections each process must have achieved.
    pub(crate) least: u64,
    pub(crate) kills: usize,
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
        let (seconds, processes, kills) = (self.time.as_secs(), scene.processes(), self.kills);
        let Verdict { cut, lost, excused, torn, .. } = self.verdict;
        let progress: Vec<String> = self.verdict.progress.iter().map(u64::to_string).collect();
        let (name, least, wait, result) = (scene.name(), self.least, self.longest_wait(), self.result());
        let progress = progress.join(", ");
        [
            format!(
                "{name} on {store}, seed {seed}: {processes} processes, {seconds} s, {kills} killed, {cut} in a section"
            ),
            format!("  sections of each process: {progress} (at least {least} wanted)"),
            format!(
                "  longest wait {wait:.1?}; {lost} leases of live processes lost, {excused} overlaps excused by that"
            ),
            format!("  {torn} half-written records of dead writers were read; load before the run {load}"),
            format!("  {result}\n"),
        ]
        .join("\n")
    }

    pub(crate) fn row(&self) -> String {
        let Verdict { progress, cut, lost, excused, .. } = &self.verdict;
        let (sum, fewest) = (progress.iter().sum::<u64>(), progress.iter().min().copied().unwrap_or(0));
        format!(
            "| `{}` | {}, {} | {} processes, {} s, {} killed, {cut} of them in a section | {sum} | {fewest} ({}) | \
             {:.1?} | {} | {}; {lost} leases lost, {excused} overlaps excused |",
            self.scene.name(),
            self.store,
            self.seed,
            self.scene.processes(),
            self.time.as_secs(),
            self.kills,
            self.least,
            self.longest_wait(),
            self.load,
            self.result(),
        )
    }

    fn longest_wait(&self) -> Duration {
        Duration::from_micros(self.verdict.longest_wait_us)
    }

    fn result(&self) -> String {
        match self.verdict.violations.len() {
            0 => "no violation".into(),
            n => format!("VIOLATIONS: {n}"),
        }
    }
}
