//! The steps of a history, and the cases that were seen.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// The number of times that each case was seen.
pub type Seen = BTreeMap<&'static str, u64>;

/// The number of steps that the report of a failure shows.
const SHOWN: usize = 100;

/// The steps of a history, and the cases that all histories have seen.
#[derive(Debug)]
pub struct Log<D> {
    steps: Vec<D>,
    seen: Seen,
}

impl<D> Default for Log<D> {
    fn default() -> Self {
        Self { steps: Vec::new(), seen: Seen::new() }
    }
}

impl<D: Debug> Log<D> {
    /// Adds a step.
    pub fn push(&mut self, step: D) {
        self.steps.push(step);
    }

    /// Counts a case.
    pub fn count(&mut self, case: &'static str) {
        *self.seen.entry(case).or_default() += 1;
    }

    /// Forgets the steps, at the end of a history.
    pub fn clear(&mut self) {
        self.steps.clear();
    }

    /// Returns the cases.
    #[must_use]
    pub fn into_seen(self) -> Seen {
        self.seen
    }

    /// Fails, and prints the last steps.
    ///
    /// # Panics
    /// Always.
    pub fn fail(&self, what: &str) -> ! {
        let skipped = self.steps.len().saturating_sub(SHOWN);
        println!("{skipped} steps, then");
        for step in &self.steps[skipped..] {
            println!("{step:?}");
        }
        panic!("{what}")
    }
}
