//! When to renew which lease, so that many leases are not renewed at once.
//!
//! A hundred thousand leases that were granted within two seconds fall due within two seconds as well, at each third of the
//! lease, and for that time the server does nothing else. The same happens after a reconnect. So the next renewal of a
//! lease is planned for a moment with few others: never later than at a third, and earlier if the third is crowded.
//!
//! The plan is stable. A renewal at its planned moment is followed by one a third of the lease later, where as many others
//! are as before. So leases are renewed early only in the third after a burst. Few leases are never renewed early.
//!
//! All renewals that are planned for a crowded slot are planned for its beginning: they fall due together, fill whole
//! scripts, and cost one wake-up of the thread.
//!
//! Pure arithmetic. A lease that ends before its planned moment is still counted there until that moment is over.

/// The length of a slot: renewals of one slot are sent together.
const SLOT_US: u64 = 5_000;
/// How far ahead the plan goes: leases of up to a minute. Longer leases are renewed too rarely to crowd.
const SLOTS: usize = 4_096;
/// A slot with at most this many renewals is not crowded: they are one script.
const CALM: u32 = leasehold_spec::limits::RENEW_BATCH as u32;

/// How many renewals are planned for each slot.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Slots by their number modulo [`SLOTS`]; empty before the first plan.
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    planned: u32,
}

impl Pace {
    /// Plans a renewal between half of the way from `now_us` to `latest_us` and `latest_us`. Returns its moment.
    pub(crate) fn plan(&mut self, now_us: u64, latest_us: u64) -> u64 {
        let (first, last) = (slot_of(now_us + latest_us.saturating_sub(now_us) / 2) + 1, slot_of(latest_us));
        if last - slot_of(now_us).min(last) >= SLOTS as u64 {
            return latest_us;
        }
        // The last slot is as full as the one before it, so the load is even and no better slot is needed.
        if self.planned(last) < CALM.max(self.planned(last.saturating_sub(1))) || last < first {
            self.take(last);
            let is_crowded = self.planned(last).max(self.planned(last.saturating_sub(1))) >= CALM;
            return if is_crowded && last * SLOT_US > now_us { last * SLOT_US } else { latest_us };
        }
        let calmest = (first..=last).rev().min_by_key(|&number| self.planned(number)).unwrap_or(last);
        self.take(calmest);
        (calmest * SLOT_US).min(latest_us)
    }

    fn planned(&self, number: u64) -> u32 {
        self.slots.get(index(number)).filter(|slot| slot.number == number).map_or(0, |slot| slot.planned)
    }

    fn take(&mut self, number: u64) {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); SLOTS];
        }
        let planned = self.planned(number) + 1;
        self.slots[index(number)] = Slot { number, planned };
    }
}

fn slot_of(at_us: u64) -> u64 {
    at_us / SLOT_US
}

fn index(number: u64) -> usize {
    number as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::{BTreeSet, BinaryHeap};

    use super::*;

    const THIRD_US: u64 = 3_333_333;

    /// Renews leases whose first replies come within `within_us`, until `until_us`. Returns all renewals, each as its
    /// moment and the time since the renewal before.
    fn renewals(leases: u64, within_us: u64, until_us: u64) -> Vec<(u64, u64)> {
        let mut pace = Pace::default();
        let mut due: BinaryHeap<_> = (0..leases).map(|lease| Reverse((1 + lease * within_us / leases, 0))).collect();
        let mut all = Vec::new();
        while let Some(Reverse((at_us, before_us))) = due.pop().filter(|Reverse((at_us, _))| *at_us < until_us) {
            let next_us = pace.plan(at_us, at_us + THIRD_US);
            assert!(next_us > at_us && next_us <= at_us + THIRD_US, "early, never late");
            if before_us > 0 {
                all.push((at_us, at_us - before_us));
            }
            due.push(Reverse((next_us, at_us)));
        }
        all
    }

    #[test]
    fn few_leases_are_never_renewed_early() {
        let all = renewals(1_000, 5_000_000, 30_000_000);
        assert!(all.len() > 5_000 && all.iter().all(|(_, since_us)| *since_us == THIRD_US));
    }

    #[test]
    fn a_burst_is_spread_once() {
        let (leases, until_us) = (30_000, 40_000_000);
        let all = renewals(leases, 500_000, until_us);
        // In any tenth of a second from the first third on.
        let mut tenths = vec![0_u64; (until_us / 100_000) as usize];
        all.iter().for_each(|(at_us, _)| tenths[(at_us / 100_000) as usize] += 1);
        let fair = leases * 100_000 / THIRD_US;
        let worst = *tenths.iter().max().unwrap();
        assert!(worst < 2 * fair, "{worst} in a tenth of a second, of {fair} that would be even");
        // The spreading costs early renewals once, and none later.
        let late: Vec<_> =
            all.iter().filter(|(at_us, _)| *at_us > until_us / 2).map(|(_, since_us)| *since_us).collect();
        let mean_us = late.iter().sum::<u64>() / late.len() as u64;
        assert!(mean_us > THIRD_US * 97 / 100, "{mean_us} µs between two renewals");
    }

    /// Otherwise each renewal would be a script of its own, with a wake-up of the thread.
    #[test]
    fn many_leases_fall_due_together() {
        let (leases, until_us) = (30_000, 40_000_000);
        let all = renewals(leases, 2_000_000, until_us);
        let moments: BTreeSet<u64> =
            all.iter().map(|(at_us, _)| *at_us).filter(|at_us| *at_us > until_us / 2).collect();
        let slots = until_us / 2 / SLOT_US;
        assert!((moments.len() as u64) < slots * 3 / 2, "woken {} times in {slots} slots", moments.len());
    }

    #[test]
    fn a_long_lease_is_renewed_at_its_third() {
        let mut pace = Pace::default();
        for _ in 0..10_000 {
            assert_eq!(pace.plan(1, 30_000_001), 30_000_001);
        }
    }
}
