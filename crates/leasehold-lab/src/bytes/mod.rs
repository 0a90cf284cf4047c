//! The byte seam: the real client crate and the real Redis store over a network that a seed owns.
//!
//! A simulation of the protocol finds what is wrong with the protocol. It says nothing of a driver that pairs an answer
//! with the wrong request after a connection broke between two bytes, of a script that is forgotten between two calls, or
//! of a subscription that is gone while its connection looks well. So here everything above the socket is what ships:
//! session, store, scripts' arguments and answers, and the client crate. Below it is turmoil; behind that the front of the
//! test kit (`leasehold-testkit/src/front`), which answers what Redis would, byte for byte, and runs `step`.
//!
//! One seed is one thread, one order of events and one trace: its hash is of every byte that the server read and wrote and
//! of everything that was done and heard, with its time. A seed chooses which faults there are, how often, how long leases
//! are and how programs behave. After ten seconds everything is mended, and everybody who waits has to be served.
//!
//! What is judged: the history, by the test kit's checker; that no call takes longer than its docs say, and answers no
//! error that they do not have; that `close` gives everything back; that nobody waits for ever.

mod client;
mod nemesis;
mod options;
mod server;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use leasehold_testkit::history::{Event, Promise};
use leasehold_testkit::{Random, Rules, check};

use client::{NAMES, Yard};
use nemesis::{FAULTS, Nemesis, Plan};
pub(crate) use options::{Options, USAGE};
use server::Server;
pub(crate) use trace::Form;
use trace::Trace;
use world::Clock;

use crate::usage::replay;

/// Programs, each on a machine of its own.
const CLIENTS: usize = 3;
const TICK_US: u64 = 5_000;
/// How long there are faults.
const FAULTS_US: u64 = 10_000_000;
/// How long it may take, from then on, until everybody was served and has closed: a request that is not answered (2 s), the
/// connection's replacement (5 s, and 1 s between two tries), a look (6 s), and the claims of inboxes that nobody hears.
const HEALED_US: u64 = 20_000_000;
/// As many grants each seed has at least, on average: fewer prove nothing.
const GRANTS_MEAN: u64 = 40;

/// How many failures are told of at length.
const TOLD: usize = 10;

/// What became of a seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The seed.
    pub(crate) seed: u64,
    /// The hash of its trace.
    pub(crate) hash: u64,
    /// How often what happened.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Grants.
    pub(crate) grants: u64,
    /// Simulated time.
    pub(crate) took_us: u64,
    /// Writes that the fence refused, and updates that were lost without one.
    pub(crate) refused: u64,
    /// The same.
    pub(crate) lost_updates: u64,
    /// Overlaps that a fault excuses.
    pub(crate) excused: u64,
    /// What is wrong.
    pub(crate) wrong: Vec<String>,
}

/// Plays one seed.
#[must_use]
pub(crate) fn play(seed: u64, form: Form) -> Outcome {
    let mut random = Random::new(seed);
    let clock = Clock::default();
    let trace = Trace::new(&clock, form);
    let plan = Plan::new(&mut random);
    let server = Server::new(&clock, &trace, Random::new(random.number()));
    let yard = Yard::new(&clock, &trace, plan.habits, Random::new(random.number()));
    let mut sim = turmoil::Builder::new()
        .epoch(SystemTime::UNIX_EPOCH)
        .rng_seed(random.number())
        .tick_duration(Duration::from_micros(TICK_US))
        .simulation_duration(Duration::from_secs(3600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(plan.latency_ms))
        .enable_random_order()
        .build();
    let serving = Rc::clone(&server);
    sim.host(server::HOST, move || Rc::clone(&serving).run());
    let clients: Vec<String> = (1..=CLIENTS).map(|number| format!("c{number}")).collect();
    for host in &clients {
        let (yard, me) = (Rc::clone(&yard), host.clone());
        sim.host(host.as_str(), move || client::run(Rc::clone(&yard), me.clone()));
    }
    let mut nemesis = Nemesis::new(plan, Random::new(random.number()), &yard, &server, &clients);
    clients.iter().for_each(|client| nemesis.settle_link(&sim, client));
    let step = |sim: &mut turmoil::Sim<'_>| {
        clock.set(clock.now_us() + TICK_US);
        if let Err(error) = sim.step() {
            yard.wrong(format!("a program ended: {error}"));
        }
        clock.now_us()
    };
    while step(&mut sim) < FAULTS_US {
        nemesis.act(&mut sim);
    }
    nemesis.heal(&mut sim);
    yard.is_over.set(true);
    while step(&mut sim) < FAULTS_US + HEALED_US && !yard.running.borrow().is_empty() {}
    for (host, since_us) in &*yard.running.borrow() {
        let (since_s, healed_s) = (*since_us as f64 / 1e6, HEALED_US / 1_000_000);
        yard.wrong(format!("{host}, up since {since_s:.3} s, has not ended {healed_s} s after everything was mended"));
    }
    judge(seed, &yard, &trace)
}

fn judge(seed: u64, yard: &Yard, trace: &Trace) -> Outcome {
    yard.record_final();
    let took_us = yard.clock.now_us();
    for name in NAMES {
        // Whoever writes after its look, and not within it, loses updates by nature: they are counted.
        let why = "a write is under way for some time".to_owned();
        let breaks = Promise::UnfencedWrites;
        yard.recorder.record(Event::Fault { name: name.into(), breaks, from_us: 0, to_us: u64::MAX, why });
    }
    let report = check(&yard.recorder.history(), &Rules::mutex().at_least(0));
    let mut wrong = yard.wrong.borrow().clone();
    wrong.extend(report.violations.iter().map(ToString::to_string));
    Outcome {
        seed,
        hash: trace.hash(),
        counts: trace.counts(),
        grants: report.grants,
        took_us,
        refused: report.refused,
        lost_updates: report.lost_updates,
        excused: report.excused.len() as u64,
        wrong,
    }
}

/// What became of many seeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// How many.
    pub(crate) seeds: u64,
    /// The seeds in which something is wrong, and what.
    pub(crate) wrong: Vec<(u64, Vec<String>)>,
    /// What only all of them together show, and no seed alone would.
    pub(crate) vacuous: Vec<String>,
    /// One hash of all traces.
    pub(crate) hash: u64,
    total: Outcome,
}

/// Plays seeds, on two threads where there are so many.
#[must_use]
pub(crate) fn play_all(options: &Options) -> Summary {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let workers = if options.form == Form::Long { 1 } else { workers.min(options.seeds) };
    let part = |worker: u64| -> Vec<Outcome> {
        let seeds = (worker..options.seeds).step_by(usize::try_from(workers).expect("few threads"));
        seeds.map(|seed| play(options.first.wrapping_add(seed), options.form)).collect()
    };
    let mut outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..workers).map(|worker| scope.spawn(move || part(worker))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("a seed does not panic")).collect()
    });
    outcomes.sort_by_key(|outcome| outcome.seed);
    let mut summary = Summary { seeds: options.seeds, ..Summary::default() };
    outcomes.iter().for_each(|outcome| summary.add(outcome));
    summary.judge_all(options);
    summary
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        if !outcome.wrong.is_empty() {
            self.wrong.push((outcome.seed, outcome.wrong.clone()));
        }
        self.hash = self.hash.rotate_left(5) ^ outcome.hash;
        let total = &mut self.total;
        total.grants += outcome.grants;
        total.took_us += outcome.took_us;
        total.refused += outcome.refused;
        total.lost_updates += outcome.lost_updates;
        total.excused += outcome.excused;
        for (kind, count) in &outcome.counts {
            *total.counts.entry(kind).or_default() += count;
        }
    }

    /// What only many seeds can show: that they were no vacuum.
    fn judge_all(&mut self, options: &Options) {
        if options.seeds < 50 {
            return;
        }
        let happened = |word| self.total.counts.get(word).copied().unwrap_or_default();
        let never: Vec<_> = FAULTS.iter().filter(|(_, word)| happened(word) == 0).map(|(_, word)| *word).collect();
        if !never.is_empty() {
            self.vacuous.push(format!("in {} seeds these never happened: {}", options.seeds, never.join(", ")));
        }
        let mean = self.total.grants / options.seeds;
        if mean < GRANTS_MEAN {
            self.vacuous.push(format!("{mean} grants a seed prove nothing: at least {GRANTS_MEAN} are wanted"));
        }
    }

    /// As text: what happened, and what is wrong.
    #[must_use]
    pub(crate) fn report(&self) -> String {
        let Outcome { counts, grants, took_us, refused, lost_updates, excused, .. } = &self.total;
        let mut text = format!(
            "{} seeds, {} s simulated, {grants} grants; the fenced register refused {refused} old tokens, the unfenced \
             one lost {lost_updates} updates; {excused} overlaps that a fault excuses\n",
            self.seeds,
            took_us / 1_000_000
        );
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        text += &format!("{}\ntrace {:016x}\n", counts.join(", "), self.hash);
        for (seed, wrong) in self.wrong.iter().take(TOLD) {
            let again = replay(&format!("bytes --seed {seed} -v"));
            text += &format!("seed {seed} FAILED:\n    {}\n  to play it again: {again}\n", wrong.join("\n    "));
        }
        if self.wrong.len() > TOLD {
            let rest: Vec<String> = self.wrong[TOLD..].iter().map(|(seed, _)| seed.to_string()).collect();
            text += &format!("failed as well: {}\n", rest.join(", "));
        }
        for what in &self.vacuous {
            text += &format!("FAILED: {what}\n");
        }
        text + &format!("{} seeds failed\n", self.wrong.len())
    }
}

/// `leasehold-lab bytes`.
#[must_use]
pub(crate) fn run(options: &Options) -> ExitCode {
    let began = Instant::now();
    let summary = play_all(options);
    print!("{}", summary.report());
    println!("took {:.1} s", began.elapsed().as_secs_f64());
    if summary.wrong.is_empty() && summary.vacuous.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
