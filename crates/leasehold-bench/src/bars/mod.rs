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
mod tests {
    use super::*;
    use crate::peers::Class;
    use crate::record::Attempts;
    use crate::record::tests::row;
    use crate::stats::Fairness;

    fn hot(system: &str, run: u32, ops_per_s: f64) -> Row {
        Row { ops_per_s, ..row(Scenario::Hot, system, run) }
    }

    fn peer(system: &str, has: &[Has]) -> About {
        let (system, class) = (System::named(system), Some(Class::Poll));
        About { system, class, has: has.to_vec(), version: String::new(), settings: String::new() }
    }

    #[test]
    fn kinds_are_of_peers_and_depend_on_their_properties() {
        assert!(Kind::Equal.takes(&peer("a", &[Has::Push])) && !Kind::Bare.takes(&peer("a", &[Has::Push])));
        assert!(Kind::Bare.takes(&peer("a", &[Has::ReEntry])) && !Kind::Equal.takes(&peer("a", &[Has::ReEntry])));
        for kind in [Kind::Any, Kind::Equal, Kind::Bare, Kind::Fair] {
            assert!(!kind.takes(&About::of_own(Own::Leasehold)), "{kind:?}");
        }
    }

    #[track_caller]
    fn verdict(verdicts: &[Verdict], what: &str, against: Option<&str>) -> Verdict {
        let is_it = |verdict: &&Verdict| verdict.what.contains(what) && verdict.against.as_deref() == against;
        verdicts.iter().find(is_it).unwrap_or_else(|| panic!("no {what} against {against:?} in {verdicts:?}")).clone()
    }

    #[test]
    fn a_ratio_is_judged_by_its_median() {
        let mut rows = Vec::new();
        for (run, ops_per_s) in [(1, 950.0), (2, 790.0), (3, 810.0)] {
            rows.extend([hot("floor", run, 1000.0), hot("leasehold", run, ops_per_s)]);
        }
        let kept = verdict(&judge(&rows, &[]), "hand-overs", Some("floor"));
        assert_eq!(kept.spread, Spread { median: 0.81, min: 0.79, max: 0.95 });
        assert_eq!((kept.is_met, kept.missed_by()), (true, None));
        rows.retain(|row| row.run != 1);
        rows.extend([hot("floor", 1, 1000.0), hot("leasehold", 1, 720.0)]);
        rows.retain(|row| row.run != 3);
        let missed = verdict(&judge(&rows, &[]), "hand-overs", Some("floor"));
        assert!(!missed.is_met && (missed.missed_by().unwrap() - (0.8 - 0.755) / 0.8).abs() < 1e-9, "{missed:?}");
    }

    #[test]
    fn one_lost_update_in_one_run_is_enough() {
        let mut rows: Vec<_> = (1..=5).map(|run| hot("leasehold", run, 1.0)).collect();
        assert!(verdict(&judge(&rows, &[]), "lost", None).is_met);
        rows[3].lost_updates = Some(1);
        assert!(!verdict(&judge(&rows, &[]), "lost", None).is_met);
    }

    #[test]
    fn bars_have_two_sides() {
        let cost = |system, us| Row { server_us_per_op: us, ..row(Scenario::ServerCost, system, 1) };
        assert!(judge(&[cost("s5", 10.0), cost("leasehold", 18.0)], &[])[0].is_met);
        assert!(!judge(&[cost("s5", 10.0), cost("leasehold", 18.1)], &[])[0].is_met);
        let fairness = Some(Fairness { min: 0.49, max: 1.0 });
        let uneven = Row { fairness, ..hot("leasehold", 1, 1.0) };
        assert!(!verdict(&judge(&[uneven], &[]), "least served", None).is_met);
        let uneven = Row { fairness: Some(Fairness { min: 0.85, max: 1.0 }), ..hot("leasehold-fair", 1, 1.0) };
        assert!(!verdict(&judge(&[uneven], &[]), "farthest", None).is_met);
        let slow = Row { p999_us: Some(100_001), ..hot("leasehold", 1, 1.0) };
        assert!(!verdict(&judge(&[slow], &[]), "p99.9", None).is_met);
    }

    #[test]
    fn peers_are_met_by_what_they_have() {
        let at_64 = |system: &str, ops_per_s| {
            let row = row(Scenario::Uncontended, system, 1);
            Row { case: Case { tasks: 64, ..row.case }, ops_per_s, ..row }
        };
        let rows = [at_64("leasehold", 90.0), at_64("redisson", 60.0), at_64("pushy", 91.0), at_64("plain", 100.0)];
        let peers = [peer("redisson", &[Has::Push]), peer("pushy", &[Has::Push]), peer("plain", &[])];
        let verdicts = judge(&rows, &peers);
        let limits: Vec<_> = verdicts.iter().map(|v| (v.against.as_deref().unwrap(), v.limit, v.is_met)).collect();
        let wanted = [
            ("redisson", Limit::AtLeast(1.5), true),
            ("redisson", Limit::AtLeast(1.0), true),
            ("pushy", Limit::AtLeast(1.0), false),
            ("plain", Limit::AtLeast(0.85), true),
        ];
        assert_eq!(limits, wanted);
    }

    #[test]
    fn the_best_peer_is_the_best_of_each_turn() {
        let rows: Vec<Row> = [(1, 30.0, 10.0, 100.0), (2, 10.0, 30.0, 90.0)]
            .into_iter()
            .flat_map(|(run, a, b, own)| [hot("a", run, a), hot("b", run, b), hot("leasehold-fair", run, own)])
            .collect();
        let peers = [peer("a", &[Has::Queue]), peer("b", &[Has::Queue, Has::Push]), peer("c", &[Has::Queue])];
        let best = verdict(&judge(&rows, &peers), "hand-overs", Some("the best of 2 peers"));
        assert_eq!((best.spread.min, best.is_met), (3.0, false));
        let unfair = [peer("a", &[]), peer("b", &[Has::Push])];
        assert!(judge(&rows, &unfair).iter().all(|verdict| verdict.against.is_none()), "nobody to compare with");
    }

    #[test]
    fn waiters_are_compared_with_ten_of_them() {
        let queue = |tasks, us| {
            let row = row(Scenario::Queue, "leasehold-fair", 1);
            Row { case: Case { tasks, ..row.case }, server_us_per_op: us, ..row }
        };
        let verdicts = judge(&[queue(10, 20.0), queue(500, 29.0), queue(10_000, 31.0)], &[]);
        let of_time: Vec<_> = verdicts.iter().filter(|v| v.what.contains("time")).collect();
        assert_eq!(
            of_time.iter().map(|v| (v.case.tasks, v.is_met)).collect::<Vec<_>>(),
            [(500, true), (10_000, false)]
        );
    }

    #[test]
    fn messages_are_counted_against_grants_of_the_store_and_runs() {
        let row = |publishes_per_op| Row {
            publishes_per_op,
            store_grants_per_op: Some(0.25),
            local_runs_per_op: Some(0.2),
            ..hot("leasehold", 1, 1.0)
        };
        assert!(verdict(&judge(&[row(0.45)], &[]), "messages", None).is_met);
        assert!(!verdict(&judge(&[row(0.46)], &[]), "messages", None).is_met);
    }

    #[test]
    fn a_quorum_is_compared_with_its_floor_and_with_every_peer() {
        let of = |scenario, system: &str, p50_us, p99_us| {
            let row = row(scenario, system, 1);
            Row { p50_us: Some(p50_us), p99_us: Some(p99_us), ..row }
        };
        let alone = [of(Scenario::Quorum, "fan", 100, 1), of(Scenario::Quorum, "leasehold", 131, 1)];
        let [of_floor] = &judge(&alone, &[])[..] else { panic!() };
        assert_eq!((of_floor.against.as_deref(), of_floor.spread.median, of_floor.is_met), (Some("fan"), 1.31, false));
        let hot = |processes| {
            let all = [("leasehold", 50, 60), ("plain", 40, 600)];
            all.map(|(system, p50_us, p99_us)| {
                let row = of(Scenario::QuorumHot, system, p50_us, p99_us);
                let attempts =
                    (system == "leasehold").then_some(Attempts { mean: 2.0, p50: Some(2), p99: Some(5), max: None });
                Row { case: Case { processes, ..row.case }, attempts, ..row }
            })
        };
        let peers = [peer("plain", &[])];
        let judged = |processes| -> Vec<_> {
            judge(&hot(processes), &peers).into_iter().map(|verdict| (verdict.what, verdict.is_met)).collect()
        };
        let lost = ("lost updates".to_owned(), true);
        let wanted =
            [("median wait", false), ("p99 wait", true), ("p99 of attempts", false)].map(|(a, b)| (a.to_owned(), b));
        assert_eq!(judged(8), [wanted.to_vec(), vec![lost.clone()]].concat());
        assert_eq!(judged(32), [lost]);
    }

    #[test]
    fn a_shared_lock_is_twice_as_fast_as_equals_and_slower_than_nobody() {
        for scenario in [Scenario::Rwlock, Scenario::Semaphore] {
            let of = |system: &str, ops_per_s, p999_us| Row {
                ops_per_s,
                p999_us: Some(p999_us),
                ..row(scenario, system, 1)
            };
            let rows = [of("leasehold", 90.0, 10), of("pushy", 50.0, 20), of("plain", 100.0, 5)];
            let verdicts = judge(&rows, &[peer("pushy", &[Has::Push]), peer("plain", &[])]);
            let found: Vec<_> =
                verdicts.iter().map(|v| (v.against.as_deref().unwrap_or("-"), v.limit, v.is_met)).collect();
            let wanted = [
                ("pushy", Limit::AtLeast(2.0), false),
                ("pushy", Limit::AtLeast(1.0), true),
                ("plain", Limit::AtLeast(1.0), false),
                ("pushy", Limit::AtMost(1.0), true),
                ("plain", Limit::AtMost(1.0), false),
                ("-", Limit::AtMost(0.0), true),
            ];
            assert_eq!(found, wanted, "{scenario:?}");
        }
    }

    #[test]
    fn systems_that_did_not_run_are_not_judged() {
        assert_eq!(judge(&[hot("floor", 1, 1.0)], &[peer("a", &[])]), vec![]);
    }
}
