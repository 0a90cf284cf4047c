//! When to renew what, so that many leases are not renewed at once.
//!
//! A hundred thousand leases that were granted within two seconds, or that were all asked for anew on a new link, fall due
//! within two seconds as well, at each third of the lease, and for that long the server does nothing else. So the next
//! renewal of a lease is planned where few others are: earlier than at a third, where that is crowded, and never later.
//!
//! What makes it even is that the plan is kept: a renewal that came at its planned moment is followed by one a third of the
//! lease later, where as many others are as before. Leases are renewed early in the third behind a burst, and hardly at all
//! from then on. With few leases nothing is ever early.
//!
//! Where it is crowded, all that are planned for a slot are planned for its beginning: they fall due together, so that
//! scripts are full and the thread is woken once for them.
//!
//! Pure arithmetic. What ends before its planned moment is still counted there: that is over with its third.

/// A planned moment is the beginning of one of these: what falls due together leaves together.
const SLOT_US: u64 = 5_000;
/// How far ahead is planned: leases of up to a minute. Longer ones are renewed too seldom to crowd.
const SLOTS: usize = 4_096;
/// As many in a slot are no crowd: one script of them.
const CALM: u32 = leasehold_spec::limits::RENEW_BATCH as u32;

/// How many renewals are planned for when.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// By number, modulo their count; none before the first crowd may be.
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    planned: u32,
}

impl Pace {
    /// Plans a renewal that may be at `latest_us` and as early as half of the way there from `now_us`. Answers when.
    pub(crate) fn plan(&mut self, now_us: u64, latest_us: u64) -> u64 {
        let (first, last) = (slot_of(now_us + latest_us.saturating_sub(now_us) / 2) + 1, slot_of(latest_us));
        if last - slot_of(now_us).min(last) >= SLOTS as u64 {
            return latest_us;
        }
        // As many as at the moment before is what is even: then there is no need to look for a better one.
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

    /// Renews so many leases, whose first answers come within `within_us`, until `until_us`: all renewals, as (when, how
    /// long behind the one before).
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
    fn few_are_never_early() {
        let all = renewals(1_000, 5_000_000, 30_000_000);
        assert!(all.len() > 5_000 && all.iter().all(|(_, behind_us)| *behind_us == THIRD_US));
    }

    #[test]
    fn a_burst_is_spread_and_stays_so() {
        let (leases, until_us) = (30_000, 40_000_000);
        let all = renewals(leases, 500_000, until_us);
        // In any tenth of a second from the first third on.
        let mut tenths = vec![0_u64; (until_us / 100_000) as usize];
        all.iter().for_each(|(at_us, _)| tenths[(at_us / 100_000) as usize] += 1);
        let fair = leases * 100_000 / THIRD_US;
        let worst = *tenths.iter().max().unwrap();
        assert!(worst < 2 * fair, "{worst} in a tenth of a second, of {fair} that would be even");
        // It costs something once, and nothing later.
        let late: Vec<_> =
            all.iter().filter(|(at_us, _)| *at_us > until_us / 2).map(|(_, behind_us)| *behind_us).collect();
        let mean_us = late.iter().sum::<u64>() / late.len() as u64;
        assert!(mean_us > THIRD_US * 97 / 100, "{mean_us} µs between two renewals");
    }

    /// Else each lease would be a script of its own, and the thread be woken for it.
    #[test]
    fn many_fall_due_together() {
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
