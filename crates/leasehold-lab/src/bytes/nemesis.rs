//! The faults: the seed chooses a different few of them each time (swarm testing: a run with every fault at once finds
//! less, because one fault hides what another would reveal).

use std::rc::Rc;

use leasehold_testkit::Random;
use leasehold_testkit::front::Mood;
use leasehold_testkit::history::{Event, Promise};
use turmoil::Sim;

use super::client::{Habits, NAMES, Yard};
use super::server::{HOST, Server};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Partition,
    OneWay,
    Hold,
    Latency,
    CrashClient,
    CrashServer,
    LoseData,
    FlushScripts,
    Freeze,
    Stall,
    Cut,
    Split,
    Kill,
    Replica,
    Loading,
    Full,
    LosePush,
}

use Fault::{
    CrashClient, CrashServer, Cut, FlushScripts, Freeze, Full, Hold, Kill, Latency, Loading, LoseData, LosePush,
    OneWay, Partition, Replica, Split, Stall,
};

/// All kinds of faults, each with the label under which the trace counts it.
pub(super) const FAULTS: [(Fault, &str); 17] = [
    (Partition, "partition"),
    (OneWay, "one-way"),
    (Hold, "hold"),
    (Latency, "latency"),
    (CrashClient, "crash client"),
    (CrashServer, "crash server"),
    (LoseData, "lose data"),
    (FlushScripts, "flush scripts"),
    (Freeze, "freeze"),
    (Stall, "stall"),
    (Cut, "cut reply"),
    (Split, "split reply"),
    (Kill, "kill"),
    (Replica, "replica"),
    (Loading, "loading"),
    (Full, "full"),
    (LosePush, "lose push"),
];

/// The plan of a seed.
pub(super) struct Plan {
    pub(super) habits: Habits,
    pub(super) latency_ms: u64,
    /// The delay of the first client, if it is farther away than the others: the messages that it receives are old.
    far_ms: Option<u64>,
    faults: Vec<(Fault, &'static str)>,
    /// The mean time between two faults.
    pace_ms: u64,
}

impl Plan {
    pub(super) fn new(random: &mut Random) -> Self {
        let share = *random.pick(&[15, 30, 60]);
        let mut faults: Vec<_> = FAULTS.iter().copied().filter(|_| random.chance(share)).collect();
        let habits = Habits {
            lease_ms: (300, 2_000),
            fixed_percent: 10,
            work_ms: *random.pick(&[50, 400, 3_000]),
            drop_percent: *random.pick(&[0, 10, 50]),
            owner_percent: *random.pick(&[0, 20]),
        };
        let far_ms = *random.pick(&[None, None, Some(30), Some(60)]);
        let mut plan = Self {
            habits,
            latency_ms: *random.pick(&[2, 10, 40]),
            far_ms,
            faults: Vec::new(),
            pace_ms: *random.pick(&[100, 300, 900]),
        };
        match random.below(10) {
            // Leases that outlive the whole run, so that a lease that is not given back shows. A client that dies
            // cannot give back.
            0..3 => {
                faults.retain(|(fault, _)| *fault != CrashClient);
                plan.habits.lease_ms = (60_000, 90_000);
                plan.habits.fixed_percent = 0;
            }
            // Sections last to the end of their leases, at a client that receives everything late. So a validity that
            // is counted from the wrong moment shows.
            3..6 => {
                // Several round trips long: no holder ever has a lease that ends before its grant arrives.
                plan.habits.lease_ms = (600, 1_000);
                plan.habits.fixed_percent = 80;
                plan.habits.work_ms = 3_000;
                plan.habits.drop_percent = 0;
                (plan.far_ms, plan.latency_ms) = (Some(*random.pick(&[60, 100])), 2);
            }
            _ => {}
        }
        plan.faults = faults;
        plan
    }
}

/// Injects the faults, and heals them.
pub(super) struct Nemesis {
    plan: Plan,
    random: Random,
    yard: Rc<Yard>,
    server: Rc<Server>,
    clients: Vec<String>,
    next_us: u64,
    /// The pending repairs, with their times.
    mends: Vec<(u64, Mend)>,
}

#[derive(Clone, Debug)]
enum Mend {
    Link(String),
    Bounce(String),
    Mood,
    Split,
}

impl Nemesis {
    pub(super) fn new(plan: Plan, random: Random, yard: &Rc<Yard>, server: &Rc<Server>, clients: &[String]) -> Self {
        let (yard, server, clients) = (Rc::clone(yard), Rc::clone(server), clients.to_vec());
        Self { plan, random, yard, server, clients, next_us: 500_000, mends: Vec::new() }
    }

    /// Does everything that is due.
    pub(super) fn act(&mut self, sim: &mut Sim<'_>) {
        let now_us = self.yard.clock.now_us();
        let mut due = self.mends.extract_if(.., |(at_us, _)| *at_us <= now_us).collect::<Vec<_>>();
        due.drain(..).for_each(|(_, mend)| self.mend(sim, &mend));
        if now_us >= self.next_us && !self.plan.faults.is_empty() {
            self.next_us = now_us + 1_000 * self.random.within(1, 2 * self.plan.pace_ms);
            let (fault, label) = *self.random.pick(&self.plan.faults);
            self.inject(sim, fault, label);
        }
    }

    /// Heals everything.
    pub(super) fn heal(&mut self, sim: &mut Sim<'_>) {
        for (_, mend) in std::mem::take(&mut self.mends) {
            self.mend(sim, &mend);
        }
        for client in &self.clients {
            sim.release(client.as_str(), HOST);
            sim.repair(client.as_str(), HOST);
            self.settle_link(sim, client);
        }
        self.server.set_mood(Mood::Primary);
        self.server.frozen_until_us.set(0);
        self.server.split_percent.set(0);
        self.server.cuts.set(0);
        self.server.lost_pushes.set(0);
        self.yard.trace.record("healed", "");
    }

    fn inject(&mut self, sim: &mut Sim<'_>, fault: Fault, label: &'static str) {
        let client = self.random.pick(&self.clients).clone();
        let for_ms = *self.random.pick(&[20, 200, 1_000, 3_000]);
        let for_ms = self.random.within(1, for_ms);
        let what = format!("{client} for {for_ms} ms");
        let until_us = self.yard.clock.now_us() + for_ms * 1000;
        match fault {
            Partition => sim.partition(client.as_str(), HOST),
            OneWay if self.random.chance(50) => sim.partition_oneway(client.as_str(), HOST),
            OneWay => sim.partition_oneway(HOST, client.as_str()),
            Hold => sim.hold(client.as_str(), HOST),
            // That client is far away already, and turmoil cannot express less latency than that.
            Latency if self.plan.far_ms.is_some() && client == self.clients[0] => return,
            Latency => sim.set_link_max_message_latency(client.as_str(), HOST, milliseconds(for_ms.min(300))),
            CrashClient => {
                self.yard.running.borrow_mut().remove(&client);
                sim.crash(client.as_str());
            }
            CrashServer => sim.crash(HOST),
            LoseData => {
                sim.crash(HOST);
                self.lose_data();
            }
            FlushScripts => self.server.front.borrow_mut().flush_scripts(),
            Freeze => self.server.frozen_until_us.set(until_us),
            // Up to a time long after every client has given up its requests in that connection.
            Stall if !self.server.stall_one(for_ms * 2_000) => return,
            Stall => {}
            // These are counted when they occur.
            Cut => return self.server.cuts.set(self.random.within(1, 3)),
            Split => self.server.split_percent.set(30),
            Kill if !self.server.kill_one() => return,
            Kill => {}
            Replica => self.server.set_mood(Mood::Replica),
            Loading => self.server.set_mood(Mood::Loading),
            Full => self.server.set_mood(Mood::Full),
            LosePush => return self.server.lost_pushes.set(self.random.within(1, 3)),
        }
        let mend = match fault {
            Partition | OneWay | Hold | Latency => Some(Mend::Link(client)),
            CrashClient => Some(Mend::Bounce(client)),
            CrashServer | LoseData => Some(Mend::Bounce(HOST.to_owned())),
            Split => Some(Mend::Split),
            Replica | Loading | Full => Some(Mend::Mood),
            FlushScripts | Freeze | Stall | Cut | Kill | LosePush => None,
        };
        if fault != Split {
            self.yard.trace.record(label, &what);
        }
        self.mends.extend(mend.map(|mend| (until_us, mend)));
    }

    /// Sets the usual latency.
    pub(super) fn settle_link(&self, sim: &Sim<'_>, client: &str) {
        match self.plan.far_ms.filter(|_| client == self.clients[0]) {
            Some(far_ms) => sim.set_link_latency(client, HOST, milliseconds(far_ms)),
            None => sim.set_link_max_message_latency(client, HOST, milliseconds(self.plan.latency_ms)),
        }
    }

    /// Excuses overlapping holders after the server has forgotten its grants: as long as a client may rely on such a
    /// grant, nothing keeps the holders apart.
    fn lose_data(&self) {
        self.server.front.borrow_mut().flush_records();
        let from_us = self.yard.clock.now_us();
        let to_us = from_us + self.plan.habits.lease_ms.1 * 1000;
        for name in NAMES {
            let why = "the server lost its data".to_owned();
            let breaks = Promise::Exclusion;
            self.yard.recorder.record(Event::Fault { name: name.into(), breaks, from_us, to_us, why });
        }
    }

    fn mend(&self, sim: &mut Sim<'_>, mend: &Mend) {
        match mend {
            Mend::Link(client) => {
                sim.release(client.as_str(), HOST);
                sim.repair(client.as_str(), HOST);
                self.settle_link(sim, client);
            }
            // A host that crashed twice is started once.
            Mend::Bounce(host) if !sim.is_host_running(host.as_str()) => sim.bounce(host.as_str()),
            Mend::Bounce(_) => {}
            Mend::Mood => self.server.set_mood(Mood::Primary),
            Mend::Split => self.server.split_percent.set(0),
        }
        self.yard.trace.record("mend", &format!("{mend:?}"));
    }
}

fn milliseconds(ms: u64) -> std::time::Duration {
    std::time::Duration::from_millis(ms)
}
