//! The task and the report of a worker, in the protocol of `leasehold-bench`. The other workers in Rust use this file, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) system: String,
    pub(crate) url: String,
    /// The servers of the lock, if it is on several; the counter is at `url` all the same.
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    pub(crate) threads: usize,
    pub(crate) tasks: u32,
    pub(crate) names: Names,
    pub(crate) counter: Option<String>,
    pub(crate) span: Span,
    /// The average length of a random pause between two pairs.
    pub(crate) pause_us: Option<u64>,
    #[serde(default)]
    pub(crate) duty: Duty,
}

/// The work of a worker.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Duty {
    #[default]
    Pairs,
    ReadWrite {
        writes_percent: u32,
    },
}

/// Random pauses: xorshift, which is good enough for this.
pub(crate) struct Pauses(pub(crate) u64);

impl Pauses {
    /// Returns the next pause; the argument is their average length.
    pub(crate) fn next(&mut self, mean_us: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % (2 * mean_us).max(1))
    }

    /// Returns a number below 100.
    pub(crate) fn percent(&mut self) -> u32 {
        (self.next(500_000).as_micros() % 100) as u32
    }
}

impl Spec {
    /// Returns the servers of the lock.
    pub(crate) fn servers(&self) -> Vec<&str> {
        if self.nodes.is_empty() { vec![&self.url] } else { self.nodes.iter().map(String::as_str).collect() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Names {
    One(String),
    PerTask(String),
    New(String),
    /// As `New`, after a round over the same names that is not counted.
    Used(String),
}

impl Names {
    pub(crate) fn prefix(&self) -> &str {
        let (Self::One(prefix) | Self::PerTask(prefix) | Self::New(prefix) | Self::Used(prefix)) = self;
        prefix
    }

    pub(crate) fn of_task(&self, task: u32) -> Option<String> {
        match self {
            Self::One(name) => Some(name.clone()),
            Self::PerTask(prefix) => Some(format!("{prefix}:{task}")),
            Self::New(_) | Self::Used(_) => None,
        }
    }

    pub(crate) fn of_pair(&self, task: u32, pair: u64) -> String {
        format!("{}:{task}:{pair}", self.prefix())
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Span {
    Window { warm_up_ms: u64, window_ms: u64 },
    Pairs { each: u64 },
}

impl Span {
    /// Returns the time after which a run counts as hanging: no lock waits for as long.
    pub(crate) fn limit(self) -> Duration {
        let planned_ms = match self {
            Self::Window { warm_up_ms, window_ms } => warm_up_ms + window_ms,
            Self::Pairs { each } => each.saturating_mul(20),
        };
        Duration::from_millis(planned_ms.saturating_add(60_000))
    }
}

pub(crate) fn is_over(span: Span, started: Instant, pairs: u64) -> bool {
    match span {
        Span::Window { warm_up_ms, window_ms } => started.elapsed() >= Duration::from_millis(warm_up_ms + window_ms),
        Span::Pairs { each } => pairs >= each,
    }
}

pub(crate) fn is_counted(span: Span, started: Instant) -> bool {
    let Span::Window { warm_up_ms, window_ms } = span else { return true };
    let at = started.elapsed();
    at >= Duration::from_millis(warm_up_ms) && at < Duration::from_millis(warm_up_ms + window_ms)
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) served: Vec<u64>,
    pub(crate) pairs: u64,
    pub(crate) counted_us: u64,
    pub(crate) cpu_us: u64,
    pub(crate) waits: Vec<(u64, u64)>,
    /// For a lock that is shared: the pairs that incremented the counter, and the overlaps that it has shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overlaps: Option<u64>,
}

/// The figures of one task.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) served: u64,
    pub(crate) pairs: u64,
    pub(crate) waits: BTreeMap<u64, u64>,
    pub(crate) writes: u64,
    pub(crate) overlaps: u64,
}

impl Tally {
    pub(crate) fn note(&mut self, wait_us: u64, counted: bool) {
        self.pairs += 1;
        if counted {
            self.served += 1;
            *self.waits.entry(bucket(wait_us)).or_default() += 1;
        }
    }
}

/// Returns the greatest wait of the same bucket: eight binary digits, so less than one percent off.
fn bucket(us: u64) -> u64 {
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(8);
    (((us >> shift) + 1) << shift) - 1
}
