//! The work with a lock. A scenario knows how many clients use which names, and not how a system answers.

mod extent;
mod parts;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use self::extent::Extent;
use self::extent::warm_up_ms;
pub(crate) use self::parts::{Ending, Inside, NameUse, Primitive};
use crate::system::{LEASE_MS, Own, System};
use crate::worker::{Duty, Names, Spec};

/// A question about cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// The cost of a lock without contention: each task locks and unlocks its own name.
    Uncontended,
    /// The cost of a lock under contention: all tasks of all processes share one name, with GET and SET of a counter
    /// inside, or with nothing.
    Hot,
    /// The cost of a lock for which only one process contends, with a section that keeps the processor busy, or none.
    HotLocal,
    /// The cost of a hand-over on the server while this many others wait, all of them in the store's own queue.
    Queue,
    /// The cost of holding very many leases without other work.
    Leases,
    /// The cost of a lock on the server: its own time for a pair, on new names and on used ones.
    ServerCost,
    /// How long the next client waits when a holder dies or releases.
    Takeover,
    /// The cost of a lock of five servers without contention: with servers nearby, and with delayed ones.
    Quorum,
    /// The cost of a lock of five servers under contention: as `hot`, but the counter is on a sixth server.
    QuorumHot,
    /// The cost of a read-write lock under contention, with few or many writers.
    Rwlock,
    /// The cost of a semaphore under contention: there are fewer permits than tasks.
    Semaphore,
}

/// A scenario at one size. Figures of different systems are only compared within a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) scenario: Scenario,
    pub(crate) names: NameUse,
    pub(crate) processes: u32,
    /// Tasks of each process. In `queue` the number of waiters behind the holder, in `leases` the number of leases.
    pub(crate) tasks: u32,
    /// Threads of each process.
    pub(crate) threads: u32,
    /// The work inside, where it is not a counter in the store (hot).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inside: Option<Inside>,
    /// How long a holder keeps its processor busy (hot-local).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy_us: Option<u64>,
    /// The lease, where it is not the default (leases, takeover).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_ms: Option<u64>,
    /// How the holder ends (takeover).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<Ending>,
    /// The delay of each server's answers, give or take a millisecond (quorum).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delay_us: Option<u64>,
    /// The average time between two pairs of a process (quorum-hot).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause_us: Option<u64>,
    /// How many of a hundred pairs write (rwlock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) writes_percent: Option<u32>,
    /// The permits of the semaphore (semaphore).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
    pub(crate) extent: Extent,
}

impl Scenario {
    pub(crate) const ALL: [Self; 11] = [
        Self::Uncontended,
        Self::Hot,
        Self::HotLocal,
        Self::Queue,
        Self::Leases,
        Self::ServerCost,
        Self::Takeover,
        Self::Quorum,
        Self::QuorumHot,
        Self::Rwlock,
        Self::Semaphore,
    ];

    /// Returns its name in figures and arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Hot => "hot",
            Self::HotLocal => "hot-local",
            Self::Queue => "queue",
            Self::Leases => "leases",
            Self::ServerCost => "server-cost",
            Self::Takeover => "takeover",
            Self::Quorum => "quorum",
            Self::QuorumHot => "quorum-hot",
            Self::Rwlock => "rwlock",
            Self::Semaphore => "semaphore",
        }
    }

    /// Describes it in a line.
    pub(crate) fn question(self) -> &'static str {
        match self {
            Self::Uncontended => "Each task locks and unlocks its own name",
            Self::Hot => "All tasks of all processes want one name",
            Self::HotLocal => "All tasks of one process want one name, and compute while they hold it",
            Self::Queue => "The server's time for a hand-over, with ever more that wait",
            Self::Leases => "Very many leases are held for half a minute or longer",
            Self::ServerCost => "The server's own time for a pair",
            Self::Takeover => "How long the next one waits when a holder is killed, or gives back",
            Self::Quorum => "One task locks and unlocks its own name on a quorum of five servers",
            Self::QuorumHot => "All processes want one name on a quorum of five servers",
            Self::Rwlock => "All tasks of all processes read and write one record",
            Self::Semaphore => "All tasks of all processes want a permit of one semaphore",
        }
    }

    /// Returns our systems that take part by default: those that its bars compare, and `s5-batched` beside `s5`.
    pub(crate) fn systems(self) -> &'static [Own] {
        match self {
            Self::Uncontended => &[Own::S5, Own::S5Batched, Own::Leasehold],
            Self::ServerCost => &[Own::S5, Own::Leasehold],
            Self::Hot => &[Own::Floor, Own::Leasehold, Own::LeaseholdFair],
            Self::HotLocal => &[Own::TokioMutex, Own::Leasehold],
            Self::Queue => &[Own::LeaseholdFair],
            Self::Leases | Self::Takeover | Self::Rwlock | Self::Semaphore => &[Own::Leasehold],
            Self::Quorum => &[Own::Fan, Own::Leasehold],
            Self::QuorumHot => &[Own::Leasehold, Own::LeaseholdRemote],
        }
    }

    /// Whether other libraries can run it too: all of them have lock and unlock.
    pub(crate) fn is_for_peers(self) -> bool {
        matches!(self, Self::Uncontended | Self::Hot | Self::ServerCost) || self.is_of_quorum() || self.is_shared()
    }

    /// Returns what a system must have to take part.
    pub(crate) fn primitive(self) -> Primitive {
        match self {
            Self::Rwlock => Primitive::Rwlock,
            Self::Semaphore => Primitive::Semaphore,
            _ => Primitive::Mutex,
        }
    }

    /// Whether several may be inside at once.
    pub(crate) fn is_shared(self) -> bool {
        self.primitive() != Primitive::Mutex
    }

    /// Whether the lock is on several servers.
    pub(crate) fn is_of_quorum(self) -> bool {
        matches!(self, Self::Quorum | Self::QuorumHot)
    }

    /// Whether a system of ours can take part at all.
    pub(crate) fn takes(self, own: Own) -> bool {
        match own {
            Own::TokioMutex => self == Self::HotLocal,
            Own::Fan => self == Self::Quorum,
            Own::S5 | Own::S5Batched | Own::Floor => !self.is_of_quorum() && !self.is_shared(),
            Own::LeaseholdFair | Own::LeaseholdRemote => !self.is_shared(),
            Own::Leasehold | Own::None => true,
        }
    }

    /// Returns the default number of processes that share the lock.
    pub(crate) fn processes(self) -> &'static [u32] {
        match self {
            Self::Hot | Self::Rwlock | Self::Semaphore => &[2],
            Self::QuorumHot => &[2, 8, 32],
            _ => &[1],
        }
    }

    /// Whether it needs a function that only Leasehold's own client has.
    pub(crate) fn is_for_leasehold_only(self) -> bool {
        matches!(self, Self::Queue | Self::Leases | Self::Takeover)
    }

    /// Returns the default number of tasks of a process.
    pub(crate) fn tasks(self) -> &'static [u32] {
        match self {
            Self::Uncontended => &[1, 16, 64, 1000],
            Self::Hot | Self::Rwlock | Self::Semaphore => &[8],
            Self::HotLocal => &[1000],
            Self::Queue => &[10, 100, 500, 10_000],
            Self::Leases => &[1_000, 10_000, 100_000],
            // Enough that the server finds the next command in its buffer: idle wake-ups are not part of a script's cost.
            Self::ServerCost => &[64],
            Self::Takeover | Self::Quorum | Self::QuorumHot => &[1],
        }
    }

    /// Returns the default numbers of threads of a process with this many tasks.
    pub(crate) fn threads(self, tasks: u32) -> &'static [u32] {
        match self {
            Self::Uncontended if tasks == 64 => &[2, 1],
            Self::Uncontended | Self::HotLocal => &[2],
            _ => &[1],
        }
    }

    /// Returns the default length of a run, in seconds.
    pub(crate) fn seconds(self) -> u64 {
        // With leases of 10 s, that is six lease times, and eighteen renewals.
        if self == Self::Leases { 60 } else { 3 }
    }

    /// Returns the default number of runs. A minute of leases is many runs in one.
    pub(crate) fn runs(self) -> u32 {
        if self == Self::Leases { 1 } else { 5 }
    }

    pub(crate) fn name_uses(self) -> &'static [NameUse] {
        match self {
            Self::Uncontended | Self::Leases | Self::Quorum => &[NameUse::Own],
            Self::Hot | Self::HotLocal | Self::Queue | Self::Takeover | Self::QuorumHot => &[NameUse::Shared],
            Self::Rwlock | Self::Semaphore => &[NameUse::Shared],
            Self::ServerCost => &[NameUse::New, NameUse::Used],
        }
    }
}

impl Case {
    /// Returns the task of each process; `nodes` are the servers of a lock of several. `about` makes the names of one run
    /// unique, so that no run finds the keys of another.
    pub(crate) fn spec(&self, system: &System, url: &str, nodes: Vec<String>, about: &str) -> Spec {
        let prefix = format!("bench:{about}");
        let names = match self.names {
            NameUse::Own => Names::PerTask(prefix),
            NameUse::Shared => Names::One(prefix),
            NameUse::New => Names::New(prefix),
            NameUse::Used => Names::Used(prefix),
        };
        let duty = match self.scenario {
            Scenario::HotLocal => Duty::Busy { busy_us: self.busy_us.unwrap_or(0) },
            Scenario::Queue => Duty::Queue,
            Scenario::Leases => Duty::Leases { lease_ms: self.lease_ms() },
            Scenario::Takeover => Duty::Wait { lease_ms: self.lease_ms() },
            Scenario::Rwlock => Duty::ReadWrite { writes_percent: self.writes_percent.unwrap_or(0) },
            Scenario::Semaphore => Duty::Permits { permits: self.permits.unwrap_or(1) },
            _ => Duty::Pairs,
        };
        Spec {
            system: system.clone(),
            url: url.to_owned(),
            nodes,
            threads: self.threads,
            tasks: self.tasks,
            names,
            pause_us: self.pause_us,
            counter: self.counts().then(|| counter_key(about)),
            span: self.extent.span(self.tasks, |window_ms| warm_up_ms(system, window_ms)),
            duty,
        }
    }

    /// Returns a case like this, but too short for figures.
    pub(crate) fn sample(&self) -> Self {
        let extent = match self.extent {
            Extent::WindowMs(window_ms) => Extent::WindowMs(window_ms.min(200)),
            Extent::Pairs(pairs) => Extent::Pairs(pairs.min(u64::from(self.tasks) * 10)),
        };
        Self { extent, ..self.clone() }
    }

    /// Whether there is a counter in the store, which shows whether the lock excludes.
    fn counts(&self) -> bool {
        self.inside.is_none()
            && (matches!(self.scenario, Scenario::Hot | Scenario::QuorumHot) || self.scenario.is_shared())
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease_ms.unwrap_or(LEASE_MS)
    }

    /// Returns its title in a table.
    pub(crate) fn title(&self) -> String {
        format!("{} · {}", self.scenario.name(), self.size())
    }

    /// Returns which of the scenario's cases it is.
    pub(crate) fn size(&self) -> String {
        let Self { names, processes, tasks, threads, .. } = self;
        let (many_tasks, threads) = (count(*tasks, "task"), count(*threads, "thread"));
        match self.scenario {
            Scenario::Uncontended => format!("{many_tasks} on {threads}, each its own name"),
            Scenario::Hot => {
                let inside = match self.inside {
                    Some(Inside::Nothing) => ", nothing inside (checked within a process)",
                    None => "",
                };
                format!("{} × {many_tasks} on {threads}, one name{inside}", count(*processes, "process"))
            }
            Scenario::HotLocal => format!("{many_tasks} on {threads}, {} µs inside", self.busy_us.unwrap_or(0)),
            Scenario::Queue => count(*tasks, "waiter"),
            Scenario::Leases => format!("{} of {} ms", count(*tasks, "lease"), self.lease_ms()),
            Scenario::ServerCost => format!("{} names, {many_tasks}", names.name()),
            Scenario::Takeover => match self.ending {
                Some(Ending::Killed) => format!("the holder of a lease of {} ms is killed", self.lease_ms()),
                Some(Ending::Released) | None => format!("the holder of a lease of {} ms gives back", self.lease_ms()),
            },
            Scenario::Rwlock => {
                let (processes, writes) = (count(*processes, "process"), self.writes_percent.unwrap_or(0));
                format!("{processes} × {many_tasks}, {writes} % writes")
            }
            Scenario::Semaphore => {
                let (processes, permits) = (count(*processes, "process"), self.permits.unwrap_or(1));
                format!("{processes} × {many_tasks}, {}", count(permits, "permit"))
            }
            Scenario::Quorum => match self.delay_us {
                Some(us) => format!("{many_tasks}, servers {} ms off", us as f64 / 1e3),
                None => format!("{many_tasks}, servers at hand"),
            },
            Scenario::QuorumHot => {
                let pause =
                    self.pause_us.map_or("again at once".into(), |us| format!("{} ms in between", us as f64 / 1e3));
                format!("{} × {many_tasks}, one name, {pause}", count(*processes, "process"))
            }
        }
    }
}

fn count(number: u32, noun: &str) -> String {
    let ending = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Returns the key of the counter in the section of a shared lock.
pub(crate) fn counter_key(about: &str) -> String {
    format!("bench:{about}:counter")
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
pub(crate) mod tests;
