//! The highest costs that Leasehold promises, and the check whether a set of runs keeps them. A bar is judged only if the
//! systems that it compares have run; a ratio is made within a turn.

mod table;

use serde::{Deserialize, Serialize};

use self::table::BARS;
use crate::peers::Has;
use crate::record::{About, Row};
use crate::scenario::{Case, Scenario};
use crate::stats::{ByRun, Spread, paired_ratios};
use crate::system::{Own, System};

/// A promise about the cases of one scenario.
struct Bar {
    scenario: Scenario,
    of: Own,
    at: fn(&Case) -> bool,
    what: &'static str,
    figure: fn(&Row) -> Option<f64>,
    against: Against,
    limit: Limit,
}

/// The divisor of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    Nothing,
    Own(Own),
    Peer(&'static str),
    /// Each peer of this kind, with a verdict for each.
    Each(Kind),
    /// The peer that did most in the same turn.
    Best(Kind),
    /// The system itself, with this many tasks.
    Waiters(u32),
}

/// A kind of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    /// Has a token, a queue, or pushed waits.
    Equal,
    /// Has none of these.
    Bare,
    /// Has a queue.
    Fair,
}

impl Kind {
    /// Never accepts a system of this program, whatever it has.
    fn takes(self, about: &About) -> bool {
        let is_equal = || [Has::Token, Has::Queue, Has::Push].iter().any(|has| about.has.contains(has));
        match self {
            _ if about.system.own().is_some() => false,
            Self::Any => true,
            Self::Equal => is_equal(),
            Self::Bare => !is_equal(),
            Self::Fair => about.has.contains(&Has::Queue),
        }
    }
}

/// The side of a number on which a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// Whether one promise was kept in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) system: System,
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) what: String,
    /// The system whose figure is the divisor.
    pub(crate) against: Option<String>,
    pub(crate) spread: Spread,
    pub(crate) limit: Limit,
    pub(crate) is_met: bool,
}

impl Verdict {
    /// Returns the judged figure: the median. For lost updates it is the worst: one lost update is a broken lock,
    /// whatever the other runs show.
    fn judged(spread: Spread, limit: Limit) -> f64 {
        if limit == Limit::AtMost(0.0) { spread.max } else { spread.median }
    }

    /// Returns by how much of the bar it is missed; `None` if it is met, or if the bar is zero.
    pub(crate) fn missed_by(&self) -> Option<f64> {
        let figure = Self::judged(self.spread, self.limit);
        match self.limit {
            _ if self.is_met => None,
            Limit::AtLeast(least) => Some((least - figure) / least),
            Limit::AtMost(0.0) => None,
            Limit::AtMost(most) => Some((figure - most) / most),
        }
    }
}

/// Returns the verdicts on rows of any scenarios. Systems and cases that did not run get none.
pub(crate) fn judge(rows: &[Row], peers: &[About]) -> Vec<Verdict> {
    BARS.iter().flat_map(|bar| bar.judge(rows, peers)).collect()
}

impl Bar {
    fn judge(&self, rows: &[Row], peers: &[About]) -> Vec<Verdict> {
        let mut cases: Vec<&Case> = Vec::new();
        for row in rows.iter().filter(|row| row.scenario() == self.scenario && row.system == System::Own(self.of)) {
            if (self.at)(&row.case) && !cases.contains(&&row.case) {
                cases.push(&row.case);
            }
        }
        cases.into_iter().flat_map(|case| self.judge_case(case, rows, peers)).collect()
    }

    fn judge_case(&self, case: &Case, rows: &[Row], peers: &[About]) -> Vec<Verdict> {
        let by_run = |case: &Case, system: &System| -> ByRun {
            let rows = rows.iter().filter(|row| row.system == *system && row.case == *case);
            rows.filter_map(|row| Some((row.run, (self.figure)(row)?))).collect()
        };
        let own = by_run(case, &self.of.into());
        let ratio = |other: &ByRun, name: &str| self.verdict(case, Some(name), &paired_ratios(&own, other));
        let of_kind = |kind: Kind| {
            let peers = peers.iter().filter(move |peer| matches!(peer.system, System::Peer(_)) && kind.takes(peer));
            peers.map(|peer| (peer.system.name(), by_run(case, &peer.system)))
        };
        match self.against {
            Against::Nothing => {
                let figures: Vec<f64> = own.values().copied().collect();
                Vec::from_iter(self.verdict(case, None, &figures))
            }
            Against::Own(other) => Vec::from_iter(ratio(&by_run(case, &other.into()), other.name())),
            Against::Peer(name) => Vec::from_iter(ratio(&by_run(case, &System::named(name)), name)),
            Against::Each(kind) => of_kind(kind).filter_map(|(name, figures)| ratio(&figures, name)).collect(),
            Against::Best(kind) => {
                let (mut best, mut names) = (ByRun::new(), Vec::new());
                for (name, figures) in of_kind(kind).filter(|(_, figures)| !figures.is_empty()) {
                    names.push(name);
                    figures.iter().for_each(|(run, figure)| {
                        best.entry(*run).and_modify(|most| *most = most.max(*figure)).or_insert(*figure);
                    });
                }
                let name =
                    if names.len() == 1 { names[0].to_owned() } else { format!("the best of {} peers", names.len()) };
                Vec::from_iter(ratio(&best, &name))
            }
            Against::Waiters(tasks) => {
                let few = Case { tasks, ..case.clone() };
                Vec::from_iter(ratio(&by_run(&few, &self.of.into()), &format!("{tasks} waiters")))
            }
        }
    }

    fn verdict(&self, case: &Case, against: Option<&str>, figures: &[f64]) -> Option<Verdict> {
        let spread = Spread::of(figures)?;
        let figure = Verdict::judged(spread, self.limit);
        Some(Verdict {
            system: self.of.into(),
            case: case.clone(),
            what: self.what.to_owned(),
            against: against.map(str::to_owned),
            spread,
            limit: self.limit,
            is_met: match self.limit {
                Limit::AtLeast(least) => figure >= least,
                Limit::AtMost(most) => figure <= most,
            },
        })
    }
}

#[cfg(test)]
mod tests;
