//! A run: round after round until its time is over, a signal interrupts it, or a violation is found.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold_testkit::{RedisServer, Registers, boottime_us};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::judge::{Evidence, Judge, Score, Verdict};
use super::kind::Kind;
use super::ledger::Ledger;
use super::names::Names;
use super::nemesis::Nemesis;
use super::options::{Form, Options};
use super::plan::{CALM_MS, Planner, Round, kinds};
use super::report::Report;
use super::residue::{self, residue};
use super::stage::Stage;
use super::stop::{Interrupted, Stop};

/// The minimum number of grants in the calm second: fewer prove nothing. Two idle processors make some hundreds.
const CALM_GRANTS_MIN: u64 = 5;
/// The extra time that a run gets if it must meet every kind of fault.
const OVERTIME: Duration = Duration::from_secs(60);
/// How many violations are printed; the kept files contain all of them.
const SHOWN: usize = 20;

/// The state of a run. Fields are dropped in this order.
struct Run<'a> {
    options: &'a Options,
    stop: Stop,
    stage: Option<Stage>,
    registers: RedisServer,
    judge: Judge,
    score: Score,
    ledger: Ledger,
    clients: BTreeMap<String, u64>,
    violations: Vec<String>,
    dir: TempDir,
    runtime: Runtime,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    eprintln!("chaos: seed {}; to repeat its schedule: {}", options.seed, options.replay());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    let stop = Stop::listen(runtime.handle()).expect("signals can be listened to");
    let dir = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir().expect("a temporary directory");
    let run = Run {
        options,
        stop,
        stage: None,
        registers: RedisServer::start(),
        judge: Judge::default(),
        score: Score::default(),
        ledger: Ledger::default(),
        clients: BTreeMap::new(),
        violations: Vec::new(),
        dir,
        runtime,
    };
    run.play()
}

impl Run<'_> {
    fn play(mut self) -> ExitCode {
        let begun = Instant::now();
        let mut planner = Planner::new(self.options.seed, self.options.store);
        let mut rounds = 0;
        while self.violations.is_empty() && self.goes_on(begun, rounds) {
            let round = planner.next_round();
            match self.round(&round) {
                Ok(()) => rounds += 1,
                Err(Interrupted(signal)) => {
                    eprintln!("chaos: interrupted by signal {signal} after {rounds} rounds");
                    let code = u8::try_from(128 + signal).unwrap_or(1);
                    return ExitCode::from(code);
                }
            }
        }
        let violated = self.violations.clone();
        let run = (self.options, begun.elapsed(), rounds);
        let report = Report::new(run, self.score, &self.ledger.counts(), self.clients, self.violations);
        let output = match self.options.form {
            Form::Words => report.words(),
            Form::Json => report.json() + "\n",
        };
        // If the reader has closed the pipe, no history is lost: it is in files.
        let _ = io::stdout().write_all(output.as_bytes());
        if report.is_clean() {
            return ExitCode::SUCCESS;
        }
        report.violations.iter().filter(|v| !violated.contains(v)).for_each(|v| eprintln!("chaos: {v}"));
        if !violated.is_empty() {
            let dir = self.dir.keep().join(format!("round-{}", rounds));
            eprintln!(
                "chaos: verdict.txt and the round's histories are in {} (merged.jsonl has those of all clients)",
                dir.display()
            );
        }
        eprintln!("chaos: to repeat the schedule: {}", self.options.replay());
        ExitCode::FAILURE
    }

    /// Whether the run goes on. It ends when its time is over. A run that must meet every kind of fault goes on for the
    /// kinds that were planned and found no process to strike.
    fn goes_on(&self, begun: Instant, rounds: u64) -> bool {
        let time = self.options.time;
        let is_over = begun.elapsed() >= time;
        let is_whole = time >= self.options.store.whole();
        let counts = self.ledger.counts();
        let misses = || kinds(self.options.store).iter().any(|kind| !counts.contains_key(kind));
        !is_over || (is_whole && misses() && begun.elapsed() < time + OVERTIME) || rounds == 0
    }

    fn round(&mut self, round: &Round) -> Result<(), Interrupted> {
        self.stop.check()?;
        if round.is_first_of_epoch {
            drop(self.stage.take());
            self.judge.clear();
            let store = self.options.store;
            self.stage = Some(Stage::set(store, round.epoch, self.registers.port(), self.runtime.handle().clone()));
        }
        let stage = self.stage.as_mut().expect("the first round of an epoch has set it");
        let names = Names { round: round.number, epoch: round.epoch.number };
        let dir = self.dir.path().join(format!("round-{}", round.number));
        fs::create_dir(&dir).expect("a directory of ours can be written");

        let (begun, begun_us) = (Instant::now(), boottime_us());
        self.ledger.begin();
        stage.set_back = Duration::ZERO;
        stage.fleet.begin(names, round.seed, &dir);
        self.stop.sleep_until(begun + Duration::from_millis(CALM_MS))?;
        let calm_us = boottime_us();
        self.ledger.calm(begun_us, calm_us);
        Nemesis::new(stage, &self.ledger, names).play(round, &self.stop)?;

        let healed = Instant::now();
        let bound = residue::bound(stage);
        let drained = stage.fleet.drain(bound);
        let took = healed.elapsed();
        self.stop.check()?;
        let recorder = self.ledger.recorder();
        let mut found: Vec<String> = drained.stuck.iter().map(|who| format!("stuck: {who}")).collect();
        // A client that hangs keeps its locks, so the check for residue would only repeat that violation.
        if found.is_empty() {
            let residue = residue(stage, names, &recorder);
            found = residue.complaints;
            if residue.places > 0 {
                *self.clients.entry("places left in a queue".into()).or_default() += residue.places;
            }
        }
        found.extend(drained.odd);
        drained.struck.iter().filter_map(|kind| Kind::named(kind)).for_each(|kind| self.ledger.struck(kind));
        for (what, count) in drained.tallies {
            *self.clients.entry(what).or_default() += count;
        }
        let all = names.all(stage.store);
        let mut registers = Registers::at(self.registers.port());
        all.iter().for_each(|name| registers.record_final(name, &recorder));
        let mut ours = recorder.history().events;
        ours.extend(stage.excuses.events(&all));
        let deaths = self.ledger.deaths();
        let (calm, line) = (self.ledger.promised(), self.ledger.line());
        let evidence = Evidence { dir: &dir, deaths, ours, begun_us, calm_us, calm, line, served_within: bound };
        match self.judge.round(evidence, &mut self.score) {
            Ok(verdict) => self.conclude(round, verdict, found, (took, bound)),
            Err(error) => self.violations.push(format!("the histories cannot be read: {error}")),
        }
        self.keep_or_remove(round, &dir).expect("a directory of ours can be written");
        Ok(())
    }

    fn conclude(
        &mut self,
        round: &Round,
        verdict: Verdict,
        mut found: Vec<String>,
        (took, bound): (Duration, Duration),
    ) {
        found.extend(verdict.violations);
        if verdict.calm_grants_per_s < CALM_GRANTS_MIN {
            let had = verdict.calm_grants_per_s;
            found.push(format!("only {had} grants in the calm second, at least {CALM_GRANTS_MIN} wanted"));
        }
        let Round { number, epoch, strikes, .. } = round;
        eprintln!(
            "round {number}, epoch {} ({:?}, {:?}): {} faults planned, {} grants ({} in the calm second), {} excused, \
             everybody served {took:.1?} after healing (of {bound:.0?}), {}",
            epoch.number,
            epoch.disk,
            epoch.reach,
            strikes.len(),
            verdict.grants,
            verdict.calm_grants_per_s,
            verdict.excused,
            if found.is_empty() { "clean".to_owned() } else { format!("VIOLATIONS: {}", found.len()) }
        );
        self.violations = found;
    }

    /// Removes the files of a clean round. The files of a failed round are the only evidence, so they are kept.
    fn keep_or_remove(&self, round: &Round, dir: &Path) -> io::Result<()> {
        if self.violations.is_empty() {
            return fs::remove_dir_all(dir);
        }
        let head = format!("seed {}, round {}: {:?}", self.options.seed, round.number, round.epoch);
        let faults = self.ledger.log().join("\n");
        let violations = self.violations.join("\n");
        eprintln!("\nchaos: {head}\nfaults (seconds into the round; time in the histories):\n{faults}\nviolations:");
        self.violations.iter().take(SHOWN).for_each(|violation| eprintln!("  {violation}"));
        fs::write(dir.join("verdict.txt"), format!("{head}\n\n{faults}\n\n{violations}\n"))
    }
}
