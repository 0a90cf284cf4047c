//! The lines that a run writes with `--json`, from which a report is made.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bars::Verdict;
use crate::peers::{Class, Has};
use crate::scenario::{Case, Scenario};
use crate::stats::Fairness;
use crate::system::{Own, System};

/// One line of JSON; its field `record` has the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(crate) enum Record {
    Machine(Machine),
    About(About),
    Missing(Missing),
    Run(Box<Row>),
    Failed(Failed),
    Verdict(Verdict),
}

/// The machine and the date of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) redis: String,
    /// Whether its processors were kept awake.
    #[serde(default)]
    pub(crate) awake: bool,
    /// In UTC: `2026-11-21`.
    pub(crate) date: String,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, kernel, redis, awake, date: _ } = self;
        let awake = if *awake { " (kept awake)" } else { "" };
        write!(f, "{cpu}, {cores} cores{awake}, Linux {kernel}, Redis {redis}")
    }
}

/// A system that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) system: System,
    /// `null` if nobody waits.
    pub(crate) class: Option<Class>,
    pub(crate) has: Vec<Has>,
    pub(crate) version: String,
    pub(crate) settings: String,
}

/// A peer that cannot be installed here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) system: System,
    pub(crate) why: String,
}

/// A run of a peer that ended with an error: the peer has no figures from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) system: System,
    #[serde(flatten)]
    pub(crate) case: Case,
    /// 0 is the sample before the first run.
    pub(crate) run: u32,
    pub(crate) why: String,
}

/// The figures of one run of one system in one case. An op is a pair: lock and unlock, with the work between them. In
/// `leases` it is a lease that is held to the end, in `takeover` one takeover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) system: System,
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) run: u32,
    pub(crate) ops: u64,
    pub(crate) ops_per_s: f64,
    /// The time from the request until the client holds, as in the next fields. In `takeover` it counts from the holder's
    /// end. `null` if nobody requests.
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) p999_us: Option<u64>,
    pub(crate) max_us: Option<u64>,
    /// `None` in files that are older than this field.
    #[serde(default)]
    pub(crate) mean_us: Option<f64>,
    /// Over all tasks of all processes.
    pub(crate) fairness: Option<Fairness>,
    /// The server's own time in commands, without those of a section.
    pub(crate) server_us_per_op: f64,
    /// Scripts.
    pub(crate) server_calls_per_op: f64,
    pub(crate) publishes_per_op: f64,
    /// The grants that the store made, and how many of them were handed over within a process at least once: only where
    /// tokens show it.
    pub(crate) store_grants_per_op: Option<f64>,
    pub(crate) local_runs_per_op: Option<f64>,
    /// The rounds for a grant of a quorum: Leasehold counts them itself. The rounds of peers are counted by the servers,
    /// without percentiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<Attempts>,
    /// The server's processor time for all its work.
    pub(crate) server_cpu_us_per_op: f64,
    /// The processor time of all worker processes.
    pub(crate) client_cpu_us_per_op: f64,
    /// The processor times as shares of one core over the run.
    pub(crate) server_core_share: f64,
    pub(crate) client_core_share: f64,
    /// `null` if nothing was counted.
    pub(crate) lost_updates: Option<u64>,
    /// `null` except in `leases`.
    pub(crate) lost_leases: Option<u64>,
}

/// Rounds for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attempts {
    pub(crate) mean: f64,
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
    pub(crate) max: Option<u64>,
}

impl About {
    /// Describes a system of this program.
    pub(crate) fn of_own(system: Own) -> Self {
        let (version, settings) = match system {
            Own::S5 => ("-", "SET NX PX and compare-and-delete, a script each; polls every 5 ms; lease 30 s"),
            Own::S5Batched => ("-", "as s5, with up to 16 names in a script if at least four requests are in flight"),
            Own::Floor => ("-", "a bare hand-over in two scripts, without safety rules; lease 30 s"),
            Own::Leasehold => (env!("CARGO_PKG_VERSION"), "as it comes: lease 30 s where the case names none"),
            Own::LeaseholdFair => (env!("CARGO_PKG_VERSION"), "fair(); lease 30 s"),
            Own::LeaseholdRemote => (env!("CARGO_PKG_VERSION"), "no hand-over inside a process; lease 30 s"),
            Own::Fan => {
                ("-", "the scripts of s5 to each of five servers at once, until three have answered; lease 30 s")
            }
            Own::TokioMutex => ("-", "tokio::sync::Mutex, in one process"),
            Own::None => ("-", "no lock at all"),
        };
        let (class, has): (_, &[Has]) = match system {
            Own::S5 | Own::S5Batched => (Some(Class::Poll), &[]),
            Own::Floor => (Some(Class::Queue), &[Has::Queue, Has::Push]),
            Own::Leasehold | Own::LeaseholdFair | Own::LeaseholdRemote => {
                (Some(Class::Queue), &[Has::Token, Has::Queue, Has::Push, Has::ReEntry])
            }
            Own::TokioMutex => (Some(Class::Queue), &[Has::Queue, Has::Push]),
            Own::None | Own::Fan => (None, &[]),
        };
        let (version, settings) = (version.to_owned(), settings.to_owned());
        Self { system: system.into(), class, has: has.to_vec(), version, settings }
    }

    /// Returns how its waiters wait, and its properties: a reader who compares figures compares these as well.
    pub(crate) fn kind(&self) -> String {
        let class = self.class.map_or("waits for nobody", Class::words);
        let has: Vec<&str> = self.has.iter().map(|has| has.words()).collect();
        format!("{class}; {}", if has.is_empty() { "has exclusion alone".into() } else { has.join(", ") })
    }
}

impl Row {
    pub(crate) fn scenario(&self) -> Scenario {
        self.case.scenario
    }

    /// Returns the updates that were lost by a lock that should lose none. The losses of a peer only appear in its row.
    pub(crate) fn wrongly_lost(&self) -> u64 {
        match &self.system {
            System::Own(Own::None) | System::Peer(_) => 0,
            System::Own(_) => self.lost_updates.unwrap_or(0),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scenario::tests::case;

    pub(crate) fn row(scenario: Scenario, system: &str, run: u32) -> Row {
        Row {
            system: System::named(system),
            case: case(scenario),
            run,
            ops: 10,
            ops_per_s: 5.0,
            p50_us: Some(1),
            p99_us: Some(2),
            p999_us: Some(3),
            max_us: Some(4),
            mean_us: Some(1.5),
            fairness: Some(Fairness { min: 0.9, max: 1.1 }),
            server_us_per_op: 20.5,
            server_calls_per_op: 2.0,
            publishes_per_op: 1.0,
            store_grants_per_op: None,
            local_runs_per_op: None,
            attempts: None,
            server_cpu_us_per_op: 30.5,
            client_cpu_us_per_op: 40.5,
            server_core_share: 0.25,
            client_core_share: 0.75,
            lost_updates: Some(0),
            lost_leases: None,
        }
    }

    #[test]
    fn a_run_is_one_flat_line_of_json() {
        let line = serde_json::to_string(&Record::Run(Box::new(row(Scenario::Hot, "floor", 1)))).unwrap();
        let wanted = concat!(
            r#"{"record":"run","system":"floor","scenario":"hot","names":"shared","processes":2,"tasks":8,"#,
            r#""threads":1,"extent":{"window_ms":3000},"run":1,"ops":10,"ops_per_s":5.0,"p50_us":1,"p99_us":2,"#,
            r#""p999_us":3,"max_us":4,"mean_us":1.5,"fairness":{"min":0.9,"max":1.1},"server_us_per_op":20.5,"#,
            r#""server_calls_per_op":2.0,"publishes_per_op":1.0,"store_grants_per_op":null,"local_runs_per_op":null,"#,
            r#""server_cpu_us_per_op":30.5,"client_cpu_us_per_op":40.5,"server_core_share":0.25,"#,
            r#""client_core_share":0.75,"lost_updates":0,"lost_leases":null}"#
        );
        assert_eq!(line, wanted);
    }

    #[test]
    fn lines_are_read_back() {
        let case = Case { busy_us: Some(10), ..case(Scenario::HotLocal) };
        let run = Row { case: case.clone(), ..row(Scenario::HotLocal, "leasehold", 2) };
        let failed = Failed { system: System::named("redsync"), case, run: 3, why: "it hangs".into() };
        for record in [Record::Run(Box::new(run)), Record::Failed(failed)] {
            let line = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record, "{line}");
        }
    }

    #[test]
    fn losses_without_a_lock_and_of_peers_are_not_our_fault() {
        for (system, wrong) in [("leasehold", 2), ("floor", 2), ("none", 0), ("redlock", 0)] {
            let row = Row { lost_updates: Some(2), ..row(Scenario::Hot, system, 1) };
            assert_eq!(row.wrongly_lost(), wrong, "{system}");
        }
    }
}
