//! What Leasehold promises to cost at most, and whether a set of runs keeps it.

use serde::Serialize;

use crate::report::Row;
use crate::scenario::Scenario;
use crate::stats::{ByRun, Fairness, Spread, paired_ratios};
use crate::system::System;

/// A promise about one scenario, judged by the median over the runs.
struct Bar {
    scenario: Scenario,
    what: &'static str,
    figure: fn(&Row) -> Option<f64>,
    /// Divided by this system's figure of the same run.
    against: Option<System>,
    limit: Limit,
}

/// On which side of a number a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }
}

/// The system that the promises are about.
const SUBJECT: System = System::Leasehold;

const BARS: [Bar; 6] = [
    Bar {
        scenario: Scenario::Uncontended,
        what: "pairs a second, of the S5 pair's",
        figure: |row| Some(row.ops_per_s),
        against: Some(System::S5),
        limit: Limit::AtLeast(0.8),
    },
    Bar {
        scenario: Scenario::Hot,
        what: "hand-overs a second, of the bare hand-over's",
        figure: |row| Some(row.ops_per_s),
        against: Some(System::Floor),
        limit: Limit::AtLeast(0.8),
    },
    Bar {
        scenario: Scenario::Hot,
        what: "worker farthest from the mean, of the mean",
        figure: |row| row.fairness.as_ref().map(Fairness::worst_deviation),
        against: None,
        limit: Limit::AtMost(0.1),
    },
    Bar {
        scenario: Scenario::Hot,
        what: "p99.9 wait, ms",
        figure: |row| Some(row.p999_us as f64 / 1e3),
        against: None,
        limit: Limit::AtMost(100.0),
    },
    Bar {
        scenario: Scenario::Hot,
        what: "lost updates",
        figure: |row| row.lost_updates.map(|lost| lost as f64),
        against: None,
        limit: Limit::AtMost(0.0),
    },
    Bar {
        scenario: Scenario::ServerCost,
        what: "server time of a pair, of the S5 pair's",
        figure: |row| Some(row.server_us_per_op),
        against: Some(System::S5),
        limit: Limit::AtMost(1.8),
    },
];

/// Whether one promise was kept in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: &'static str,
    pub(crate) spread: Spread,
    pub(crate) limit: Limit,
    pub(crate) is_met: bool,
}

/// The verdicts on the rows of one case; none on what was not run.
pub(crate) fn judge(rows: &[Row]) -> Vec<Verdict> {
    BARS.iter().filter_map(|bar| bar.judge(rows)).collect()
}

impl Bar {
    fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        let of = |system: System| -> ByRun {
            let rows = rows.iter().filter(|row| row.system == system && row.scenario == self.scenario);
            rows.filter_map(|row| Some((row.run, (self.figure)(row)?))).collect()
        };
        let figures = match self.against {
            Some(other) => paired_ratios(&of(SUBJECT), &of(other)),
            None => of(SUBJECT).into_values().collect(),
        };
        let spread = Spread::of(&figures)?;
        // One lost update is a broken lock, whatever the other runs say.
        let judged = if self.limit == Limit::AtMost(0.0) { spread.max } else { spread.median };
        Some(Verdict { what: self.what, spread, limit: self.limit, is_met: self.limit.is_met(judged) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::row;

    fn hot(system: System, run: u32, ops_per_s: f64) -> Row {
        Row { scenario: Scenario::Hot, system, run, ops_per_s, ..row() }
    }

    fn verdict(verdicts: &[Verdict], what: &str) -> Verdict {
        verdicts.iter().find(|verdict| verdict.what.contains(what)).unwrap().clone()
    }

    #[test]
    fn a_ratio_is_judged_by_its_median() {
        let mut rows = Vec::new();
        for (run, ops_per_s) in [(1, 950.0), (2, 790.0), (3, 810.0)] {
            rows.push(hot(System::Floor, run, 1000.0));
            rows.push(hot(SUBJECT, run, ops_per_s));
        }
        let kept = verdict(&judge(&rows), "hand-overs");
        assert_eq!(kept.spread, Spread { median: 0.81, min: 0.79, max: 0.95 });
        assert!(kept.is_met);
        rows.retain(|row| row.run != 1);
        rows.extend([hot(System::Floor, 1, 1000.0), hot(SUBJECT, 1, 100.0)]);
        assert!(!verdict(&judge(&rows), "hand-overs").is_met);
    }

    #[test]
    fn one_lost_update_in_one_run_is_enough() {
        let mut rows: Vec<_> = (1..=5).map(|run| hot(SUBJECT, run, 1.0)).collect();
        assert!(verdict(&judge(&rows), "lost").is_met);
        rows[3].lost_updates = Some(1);
        assert!(!verdict(&judge(&rows), "lost").is_met);
    }

    #[test]
    fn server_time_must_stay_below_its_bar_and_fairness_within_it() {
        let cost = |system, server_us_per_op| Row { scenario: Scenario::ServerCost, system, server_us_per_op, ..row() };
        assert!(judge(&[cost(System::S5, 10.0), cost(SUBJECT, 18.0)])[0].is_met);
        assert!(!judge(&[cost(System::S5, 10.0), cost(SUBJECT, 18.1)])[0].is_met);
        let uneven = Row { fairness: Some(Fairness { min: 0.85, max: 1.0 }), ..hot(SUBJECT, 1, 1.0) };
        assert!(!verdict(&judge(&[uneven]), "farthest").is_met);
        let slow = Row { p999_us: 100_001, ..hot(SUBJECT, 1, 1.0) };
        assert!(!verdict(&judge(&[slow]), "p99.9").is_met);
    }

    #[test]
    fn what_was_not_run_is_not_judged() {
        assert_eq!(judge(&[hot(System::Floor, 1, 1.0)]), vec![]);
    }
}
