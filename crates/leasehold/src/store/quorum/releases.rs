//! The releases in flight, and the cool-downs. They delay or change other requests that give the votes of the same attempt
//! back.
//!
//! For example, a node calls a waiting attempt, and the call arrives after the attempt has ended. The client gives the
//! vote back there, so that the next waiter need not wait. This request may overtake the release of the attempt, which is
//! sent on another connection.
//!
//! - *Release:* another client could hold and release the lock in between. Then the nodes would answer the release that
//!   they know nothing of the attempt, as if the lease had been lost. So the request waits until the release has ended.
//! - *Cool-down:* the request would end the minimum hold at that node (P23). The answer of a majority does not prove that
//!   this node has received the cool-down. So until the cool-down ends, the request is a cool-down itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_spec::GrantId;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempts::Nodes;

/// Below this number of entries, nothing is swept.
const SWEEP_FROM: usize = 1_024;

#[derive(Default)]
pub(super) struct Releases(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    releases: HashMap<GrantId, Release>,
    /// The number of entries that causes the next sweep.
    sweep_at: usize,
}

/// The release of an attempt. It is in flight, or the attempt cools down.
#[derive(Default)]
struct Release {
    /// How often it is in flight: the session may repeat a release on another link.
    in_flight: u32,
    /// Whether a majority has answered one of its requests. The futures of the others may never be polled again.
    is_answered: bool,
    /// The nodes at which the votes go back once more when it has ended.
    deferred: Nodes,
    /// The end of the cool-down, on this client's clock. A time that is over: no cool-down.
    cools_until_us: u64,
}

impl Releases {
    /// Begins a release. The attempt cools down until `cools_until_us`, unless that is over.
    pub(super) fn begin(&self, id: GrantId, cools_until_us: u64, now_us: u64) {
        let mut entries = self.entries();
        entries.sweep(now_us);
        let release = entries.releases.entry(id).or_default();
        (release.in_flight, release.is_answered) = (release.in_flight + 1, false);
        release.cools_until_us = release.cools_until_us.max(cools_until_us);
    }

    /// While a release of this attempt is in flight, notes that its votes at these nodes go back when it has ended. Returns
    /// `false` if none is in flight.
    ///
    /// A caller may have polled its release once, and keep the future. Then the votes go back when the release that the
    /// session repeats is answered, at most 2 s later while a majority is there.
    pub(super) fn defer(&self, id: &GrantId, nodes: Nodes) -> bool {
        let mut entries = self.entries();
        let release = entries.releases.get_mut(id).filter(|release| release.in_flight > 0 && !release.is_answered);
        let Some(release) = release.filter(|_| !is_on(Mutant::QGivesBackFirst)) else { return false };
        hit(Mark::ReturnDeferred);
        release.deferred = release.deferred.with(nodes);
        true
    }

    /// Ends a release. Returns the nodes at which the votes go back once more.
    pub(super) fn end(&self, id: &GrantId, is_answered: bool, now_us: u64) -> Nodes {
        let mut entries = self.entries();
        let Some(release) = entries.releases.get_mut(id) else { return Nodes::default() };
        release.in_flight -= 1;
        release.is_answered |= is_answered;
        let deferred = std::mem::take(&mut release.deferred);
        if release.is_over(now_us) {
            entries.releases.remove(id);
        }
        deferred
    }

    /// Returns the end of the attempt's cool-down. 0: none is known.
    pub(super) fn cools_until_us(&self, id: &GrantId) -> u64 {
        let entries = self.entries();
        let release = entries.releases.get(id);
        let release = release.filter(|release| !release.is_answered || !is_on(Mutant::P23ForgetsCoolDown));
        release.map_or(0, |release| release.cools_until_us)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn sweep(&mut self, now_us: u64) {
        if self.releases.len() >= self.sweep_at.max(SWEEP_FROM) {
            self.releases.retain(|_, release| !release.is_over(now_us));
            self.sweep_at = 2 * self.releases.len();
        }
    }
}

impl Release {
    fn is_over(&self, now_us: u64) -> bool {
        self.in_flight == 0 && self.cools_until_us <= now_us
    }
}

#[cfg(test)]
#[path = "releases_tests.rs"]
mod tests;
