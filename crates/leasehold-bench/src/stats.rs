//! Medians, ranges and ratios. Pure functions.
//!
//! A shared machine changes from one minute to the next. So systems take turns, a ratio is always made of two figures of
//! the same turn, and the median of these ratios is taken. A slow minute affects both sides of such a ratio. The ratio of
//! two medians could instead compare a quiet minute of one system with a busy minute of the other.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The median of some figures, and their range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Returns `None` if there are no figures, or if one is not a number.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() || figures.iter().any(|figure| figure.is_nan()) {
            return None;
        }
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Self { median, min: sorted[0], max: sorted[sorted.len() - 1] })
    }
}

/// One figure for each run, by the number of the run.
pub(crate) type ByRun = BTreeMap<u32, f64>;

/// Returns the ratios of the runs that have both figures; a run that lacks one has no ratio.
pub(crate) fn paired_ratios(numerator: &ByRun, denominator: &ByRun) -> Vec<f64> {
    let ratio = |(run, over): (&u32, &f64)| Some(over / denominator.get(run).filter(|under| **under > 0.0)?);
    numerator.iter().filter_map(ratio).collect()
}

/// How evenly workers were served: the least and the most served one, as multiples of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fairness {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Fairness {
    /// Returns `None` if no worker was served at all.
    pub(crate) fn of(served: &[u64]) -> Option<Self> {
        let total: u64 = served.iter().sum();
        if total == 0 {
            return None;
        }
        let mean = total as f64 / served.len() as f64;
        let (least, most) = (served.iter().min()?, served.iter().max()?);
        Some(Self { min: *least as f64 / mean, max: *most as f64 / mean })
    }

    /// Returns the largest deviation of a worker from the mean.
    pub(crate) fn worst_deviation(&self) -> f64 {
        (1.0 - self.min).max(self.max - 1.0)
    }
}

/// The longest wait that is recorded; longer waits count as this one.
const WAIT_MAX_US: u64 = 120_000_000;

/// Waits in microseconds, with a precision of one percent. They take 20 kB, so each of a thousand tasks has its own, and
/// the measured tasks share no lock.
#[derive(Clone, Debug)]
pub(crate) struct Waits(Histogram<u64>);

impl Default for Waits {
    fn default() -> Self {
        Self(
            Histogram::new_with_bounds(1, WAIT_MAX_US, 2).expect("the bounds are constants that the histogram accepts"),
        )
    }
}

impl Waits {
    pub(crate) fn note(&mut self, wait_us: u64) {
        self.0.saturating_record(wait_us);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn percentile_us(&self, percentile: f64) -> u64 {
        self.0.value_at_percentile(percentile)
    }

    pub(crate) fn max_us(&self) -> u64 {
        self.0.max()
    }

    /// Returns the mean, with a precision of one percent.
    pub(crate) fn mean_us(&self) -> f64 {
        self.0.mean()
    }
}

/// Waits in transit from one process to another: (microseconds, count) of the buckets that are not empty.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PackedWaits(Vec<(u64, u64)>);

impl From<&Waits> for PackedWaits {
    fn from(waits: &Waits) -> Self {
        Self(waits.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect())
    }
}

impl From<Vec<(u64, u64)>> for PackedWaits {
    fn from(counted: Vec<(u64, u64)>) -> Self {
        Self(counted)
    }
}

impl From<&PackedWaits> for Waits {
    fn from(packed: &PackedWaits) -> Self {
        let mut waits = Self::default();
        for &(wait_us, count) in &packed.0 {
            waits.0.saturating_record_n(wait_us, count);
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_of_odd_and_even_counts() {
        let spread = |figures: &[f64]| Spread::of(figures).unwrap();
        assert_eq!(spread(&[7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[10.0, 2.0, 4.0, 1.0]), Spread { median: 3.0, min: 1.0, max: 10.0 });
    }

    #[test]
    fn no_figures_have_no_spread() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn ratios_are_made_within_a_run() {
        // The machine is ten times slower in the second run. Each ratio is still 0.9, and the ratio of medians would not
        // be.
        let slow = ByRun::from([(1, 900.0), (2, 90.0), (3, 900.0)]);
        let fast = ByRun::from([(1, 1000.0), (2, 100.0), (3, 1000.0)]);
        for ratio in paired_ratios(&slow, &fast) {
            assert!((ratio - 0.9).abs() < 1e-9, "{ratio}");
        }
        assert_eq!(paired_ratios(&slow, &fast).len(), 3);
    }

    #[test]
    fn a_run_without_its_partner_has_no_ratio() {
        let left = ByRun::from([(1, 1.0), (2, 2.0), (4, 8.0)]);
        let right = ByRun::from([(2, 4.0), (3, 1.0), (4, 0.0)]);
        assert_eq!(paired_ratios(&left, &right), vec![0.5]);
    }

    #[test]
    fn fairness_names_the_extremes() {
        assert_eq!(Fairness::of(&[5, 5, 5, 5]), Some(Fairness { min: 1.0, max: 1.0 }));
        let uneven = Fairness::of(&[8, 10, 12]).unwrap();
        assert_eq!(uneven, Fairness { min: 0.8, max: 1.2 });
        assert!((uneven.worst_deviation() - 0.2).abs() < 1e-9);
        assert!((Fairness { min: 0.7, max: 1.1 }.worst_deviation() - 0.3).abs() < 1e-9);
        assert_eq!(Fairness::of(&[0, 0]), None);
        assert_eq!(Fairness::of(&[]), None);
    }

    #[test]
    fn waits_survive_the_way_between_processes() {
        let mut waits = Waits::default();
        for wait_us in (1..=10_000).chain([90_000_000]) {
            waits.note(wait_us);
        }
        let text = serde_json::to_string(&PackedWaits::from(&waits)).unwrap();
        let back = Waits::from(&serde_json::from_str::<PackedWaits>(&text).unwrap());
        let mut doubled = back.clone();
        doubled.merge(&waits);
        for percentile in [50.0, 99.0, 99.9, 100.0] {
            assert_eq!(back.percentile_us(percentile), waits.percentile_us(percentile), "{percentile}");
        }
        let near = |is: u64, wanted: u64| is.abs_diff(wanted) * 100 <= wanted;
        assert!(near(back.percentile_us(50.0), 5_000), "{}", back.percentile_us(50.0));
        assert!(near(back.max_us(), 90_000_000), "{}", back.max_us());
        let mean_us = (10_000.0 * 5_000.5 + 90_000_000.0) / 10_001.0;
        assert!((back.mean_us() / mean_us - 1.0).abs() < 0.01, "{}", back.mean_us());
        assert_eq!(doubled.0.len(), 2 * waits.0.len());
    }

    #[test]
    fn a_wait_beyond_the_scale_is_the_longest_one_not_a_panic() {
        let mut waits = Waits::default();
        waits.note(u64::MAX);
        assert!(waits.max_us() >= WAIT_MAX_US);
    }
}
