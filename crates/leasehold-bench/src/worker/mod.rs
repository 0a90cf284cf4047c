//! One process of a run. It reads its task, connects, reports that it is ready, starts at a signal, and reports its
//! figures.
//!
//! Every run has new processes, even if one process could do all runs: no system finds the allocator, the connection or
//! the server's client buffers in the state in which another system left them.
//!
//! Peers are processes of the same kind, in languages of their own: [`Spec`], [`READY`], [`GO`] and [`Report`] are their
//! interface. They only get the usual [`Duty`], or one that several share.

mod leases;
mod pairs;
mod queue;
mod shared;
mod takeover;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub(crate) use self::pairs::Grants;
use crate::error::{Context, Result};
use crate::nodes;
use crate::stats::{PackedWaits, Waits};
use crate::system::{
    Fan, Floor, Leasehold, LeaseholdFair, LeaseholdRemote, Own, S5, S5Batched, System, TokioMutex, Unlocked,
};

/// The task of a worker, one line of JSON on its standard input. (Arguments could be read by everybody on the machine,
/// and the URL may contain a password.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) system: System,
    pub(crate) url: String,
    /// The servers of the lock, if it is on several; the counter is at `url` all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<String>,
    pub(crate) threads: u32,
    pub(crate) tasks: u32,
    pub(crate) names: Names,
    /// A counter that is incremented inside the lock by GET and SET: if two clients are inside, updates are lost.
    pub(crate) counter: Option<String>,
    pub(crate) span: Span,
    /// The average length of a random pause between two pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Duty::is_usual")]
    pub(crate) duty: Duty,
}

impl Spec {
    /// Returns the URL of the lock.
    fn lock_url(&self) -> String {
        if self.nodes.is_empty() { self.url.clone() } else { nodes::url_of(&self.nodes) }
    }
}

/// The names that the tasks of a worker lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Names {
    One(String),
    PerTask(String),
    New(String),
    /// As `New`, after a round over the same names that is not counted.
    Used(String),
}

impl Names {
    fn of_task(&self, task: u32) -> Option<String> {
        match self {
            Self::One(name) => Some(name.clone()),
            Self::PerTask(prefix) => Some(format!("{prefix}:{task}")),
            Self::New(_) | Self::Used(_) => None,
        }
    }

    fn of_pair(&self, task: u32, pair: u64) -> String {
        let (Self::One(prefix) | Self::PerTask(prefix) | Self::New(prefix) | Self::Used(prefix)) = self;
        format!("{prefix}:{task}:{pair}")
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Span {
    /// By the clock; pairs that end in the warm-up are not counted.
    Window { warm_up_ms: u64, window_ms: u64 },
    /// After this many pairs of each task.
    Pairs { each: u64 },
}

impl Span {
    /// Returns the time after which a run counts as hanging: no lock of any system waits for as long.
    pub(crate) fn limit(&self) -> Duration {
        let planned_ms = match self {
            Self::Window { warm_up_ms, window_ms } => warm_up_ms + window_ms,
            Self::Pairs { each } => each.saturating_mul(20),
        };
        Duration::from_millis(planned_ms.saturating_add(60_000))
    }

    fn window(&self) -> Result<(Duration, Duration)> {
        match self {
            Self::Window { warm_up_ms, window_ms } => {
                Ok((Duration::from_millis(*warm_up_ms), Duration::from_millis(*window_ms)))
            }
            Self::Pairs { .. } => Err("this duty is counted by time".into()),
        }
    }
}

/// The work of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Duty {
    /// Its tasks lock and unlock, and increment the counter if there is one. Without it, if the tasks
    /// share a name, our own workers increment a counter of the process. It shows two holders in one process.
    #[default]
    Pairs,
    /// As before, with a counter of this process, and a computation of this length inside.
    Busy { busy_us: u64 },
    /// As before on one name, once as many clients as there are tasks wait in the store's queue.
    Queue,
    /// Holds a lease of each name, without other work.
    Leases { lease_ms: u64 },
    /// Holds a lease until the signal to release it, unless it is killed before.
    Hold { lease_ms: u64 },
    /// Waits for the lease of that holder.
    Wait { lease_ms: u64 },
    /// Its tasks read and write under a read-write lock. A reader reads the counter twice, and a writer increments it.
    ReadWrite { writes_percent: u32 },
    /// Its tasks acquire a permit. The counter is the number of those that have one.
    Permits { permits: u32 },
}

impl Duty {
    fn is_usual(&self) -> bool {
        *self == Self::Pairs
    }
}

/// The report of a worker at the end, one line of JSON. Peers do not send the optional fields.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Counted pairs, by task.
    pub(crate) served: Vec<u64>,
    /// All pairs, including those of the warm-up.
    pub(crate) pairs: u64,
    /// The length of the counted time.
    pub(crate) counted_us: u64,
    /// Processor time of this process since its start, for all pairs.
    pub(crate) cpu_us: u64,
    pub(crate) waits: PackedWaits,
    /// How many of its pairs have incremented the counter, if not all of them (`ReadWrite`, `Permits`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) writes: Option<u64>,
    /// How often the counter showed that somebody was inside who had to be kept out (`ReadWrite`, `Permits`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overlaps: Option<u64>,
    /// The final value of a counter of this process, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) local_count: Option<u64>,
    /// How it got its grants, if tokens show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grants: Option<Grants>,
    /// Rounds for each of all its grants, including those of the warm-up, if a quorum granted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<PackedWaits>,
    /// How many of its leases it lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost_leases: Option<u64>,
    /// When it began to release, or began to hold: by [`now_us`], which is the same clock in all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_us: Option<u64>,
}

/// The message of a connected worker.
pub(crate) const READY: &str = "ready";
/// The start signal for it.
pub(crate) const GO: &str = "go";

/// Runs a worker from its start to its end.
pub(crate) fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("reading the task")?;
    let spec: Spec = serde_json::from_str(&line).context("reading the task")?;
    let runtime = match spec.threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads as usize).enable_all().build(),
    };
    let runtime = runtime.context("starting a runtime")?;
    let report = runtime.block_on(carry_out(spec))?;
    println!("{}", serde_json::to_string(&report).context("writing the report")?);
    // At once, with everything that is still held or waited for, and with the runtime: otherwise the release of 100,000
    // leases, or the departure of a queue, would be measured as well.
    std::process::exit(0)
}

async fn carry_out(spec: Spec) -> Result<Report> {
    match spec.duty {
        Duty::Pairs | Duty::Busy { .. } => match spec.system {
            System::Own(Own::S5) => pairs::run::<S5>(spec).await,
            System::Own(Own::S5Batched) => pairs::run::<S5Batched>(spec).await,
            System::Own(Own::Floor) => pairs::run::<Floor>(spec).await,
            System::Own(Own::Leasehold) => pairs::run::<Leasehold>(spec).await,
            System::Own(Own::LeaseholdFair) => pairs::run::<LeaseholdFair>(spec).await,
            System::Own(Own::LeaseholdRemote) => pairs::run::<LeaseholdRemote>(spec).await,
            System::Own(Own::Fan) => pairs::run::<Fan>(spec).await,
            System::Own(Own::TokioMutex) => pairs::run::<TokioMutex>(spec).await,
            System::Own(Own::None) => pairs::run::<Unlocked>(spec).await,
            System::Peer(name) => Err(format!("{name} has a program of its own").into()),
        },
        Duty::ReadWrite { .. } | Duty::Permits { .. } => shared::run(spec).await,
        Duty::Queue => queue::run(spec).await,
        Duty::Leases { lease_ms } => leases::run(&spec, lease_ms).await,
        Duty::Hold { lease_ms } => takeover::hold(&spec, lease_ms).await,
        Duty::Wait { lease_ms } => takeover::wait(&spec, lease_ms).await,
    }
}

/// Reports that this worker is ready, and returns at the start signal.
async fn start() -> Result<()> {
    println!("{READY}");
    tokio::task::spawn_blocking(await_go).await.context("waiting for the start")?
}

fn await_go() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("waiting for the start")?;
    if line.trim_end() == GO { Ok(()) } else { Err("the run was aborted".into()) }
}

/// Returns the processor time of all threads of this process so far.
fn cpu_us() -> u64 {
    read_us(ClockId::ProcessCPUTime)
}

/// Returns a time that other processes of this machine can compare with theirs.
pub(crate) fn now_us() -> u64 {
    read_us(ClockId::Monotonic)
}

fn read_us(clock: ClockId) -> u64 {
    let read = clock_gettime(clock);
    read.tv_sec as u64 * 1_000_000 + read.tv_nsec as u64 / 1_000
}

/// The figures of one task.
#[derive(Default)]
struct Tally {
    served: u64,
    pairs: u64,
    waits: Waits,
}

impl Tally {
    /// Records a pair, and whether it counts.
    fn note(&mut self, wait_us: u64, is_counted: impl FnOnce() -> bool) {
        self.pairs += 1;
        if is_counted() {
            self.served += 1;
            self.waits.note(wait_us);
        }
    }
}

impl Report {
    fn of(tallies: &[Tally], counted_us: u64, cpu_us: u64) -> Self {
        let mut waits = Waits::default();
        tallies.iter().for_each(|tally| waits.merge(&tally.waits));
        Self {
            served: tallies.iter().map(|tally| tally.served).collect(),
            pairs: tallies.iter().map(|tally| tally.pairs).sum(),
            counted_us,
            cpu_us,
            waits: PackedWaits::from(&waits),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(duty: Duty) -> Spec {
        Spec {
            system: Own::Floor.into(),
            url: "redis://h:1".into(),
            nodes: vec![],
            threads: 2,
            tasks: 3,
            names: Names::PerTask("p".into()),
            counter: Some("c".into()),
            span: Span::Window { warm_up_ms: 1, window_ms: 2 },
            pause_us: None,
            duty,
        }
    }

    #[test]
    fn a_spec_survives_serialization() {
        for duty in [Duty::Pairs, Duty::Queue, Duty::Leases { lease_ms: 3 }, Duty::Permits { permits: 4 }] {
            let line = serde_json::to_string(&spec(duty)).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Spec>(&line).unwrap(), spec(duty));
        }
    }

    /// Programs in other languages read this text.
    #[test]
    fn peers_get_this_task_only() {
        let wanted = concat!(
            r#"{"system":"floor","url":"redis://h:1","threads":2,"tasks":3,"names":{"per-task":"p"},"counter":"c","#,
            r#""span":{"window":{"warm_up_ms":1,"window_ms":2}}}"#
        );
        assert_eq!(serde_json::to_string(&spec(Duty::Pairs)).unwrap(), wanted);
        for (duty, more) in [
            (Duty::ReadWrite { writes_percent: 10 }, r#","duty":{"read-write":{"writes_percent":10}}}"#),
            (Duty::Permits { permits: 4 }, r#","duty":{"permits":{"permits":4}}}"#),
        ] {
            let wanted = wanted.strip_suffix('}').unwrap().to_owned() + more;
            assert_eq!(serde_json::to_string(&spec(duty)).unwrap(), wanted);
        }
        let text = r#"{"served":[3,4],"pairs":9,"counted_us":2000,"cpu_us":70,"waits":[[5,6],[8,1]]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.served, report.pairs, report.grants), (vec![3, 4], 9, None));
        assert_eq!(Waits::from(&report.waits).max_us(), 8);
    }

    #[test]
    fn tasks_share_a_name_only_if_the_task_demands_it() {
        let one = Names::One("n".into());
        assert_eq!(one.of_task(0), one.of_task(1));
        let own = Names::PerTask("n".into());
        assert_ne!(own.of_task(0), own.of_task(1));
        let new = Names::New("n".into());
        assert_eq!(new.of_task(0), None);
        let mut all: Vec<_> = (0..12).flat_map(|task| (0..12).map(move |pair| (task, pair))).collect();
        all.sort_by_cached_key(|&(task, pair)| new.of_pair(task, pair));
        assert!(all.windows(2).all(|two| new.of_pair(two[0].0, two[0].1) != new.of_pair(two[1].0, two[1].1)));
    }
}
