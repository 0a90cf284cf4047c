//! One seed, from its plan to the verdict.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use leasehold_testkit::history::{Event, Promise};
use leasehold_testkit::{Random, Report, Rules, check};

use super::client::{self, NAMES, Yard};
use super::nemesis::{Nemesis, Plan};
use super::server::{HOST, Server};
use super::trace::{Form, Trace};
use super::world::Clock;

/// Programs, each on a machine of its own.
const CLIENTS: usize = 3;
const TICK_US: u64 = 5_000;
/// How long there are faults.
const FAULTS_US: u64 = 10_000_000;
/// How long it may take, from then on, until all clients were served and have closed: a request without an answer
/// (2 s), the connection's replacement (5 s, and 1 s between two tries), a re-check (6 s), and the claims of inboxes
/// that no client reads.
const HEALED_US: u64 = 20_000_000;

/// The result of a seed.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) seed: u64,
    /// The hash of its trace.
    pub(super) hash: u64,
    /// How often each event occurred.
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) simulated_us: u64,
    pub(super) report: Report,
    /// Everything that is wrong, in words.
    pub(super) wrong: Vec<String>,
}

/// Plays one seed.
pub(super) fn play(seed: u64, form: Form) -> Verdict {
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
    sim.host(HOST, move || Rc::clone(&serving).run());
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
        yard.wrong(format!("{host}, up since {since_us} µs, has not ended {HEALED_US} µs after everything was healed"));
    }
    judge(seed, &yard, &trace)
}

fn judge(seed: u64, yard: &Yard, trace: &Trace) -> Verdict {
    yard.record_final();
    for name in NAMES {
        // A client that writes after its check, and not within it, loses updates by nature: they are counted.
        let why = "a write is in flight for some time".to_owned();
        let breaks = Promise::UnfencedWrites;
        yard.recorder.record(Event::Fault { name: name.into(), breaks, from_us: 0, to_us: u64::MAX, why });
    }
    let report = check(&yard.recorder.history(), &Rules::mutex().at_least(0));
    let mut wrong = yard.wrong.borrow().clone();
    wrong.extend(report.violations.iter().map(ToString::to_string));
    let (hash, counts, simulated_us) = (trace.hash(), trace.counts(), yard.clock.now_us());
    Verdict { seed, hash, counts, simulated_us, report, wrong }
}
