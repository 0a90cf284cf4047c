//! How renewals leave: many in one script.
//!
//! A client of a hundred thousand leases spends its time on these, so there is one alarm for a batch, and not one for each
//! of its leases: nearly every batch is answered in time, and what is looked for then is one number and not sixteen
//! attempts that nobody has thought of for seconds.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::{From, Name, Renew};

use super::alarms::Alarms;
use super::attempt::{Asked, Claim, Holding, Phase};
use super::errand::Errand;
use super::heard::Heard;
use super::state::{Spread, State};
use super::terms::Renewal;
use super::window::Kind;
use crate::clock::margin_us;

/// How many alarms of batches that were answered are dropped under one lock.
const IDLE: usize = 256;

/// Renewals that leave together.
#[derive(Default)]
pub(crate) struct Batch {
    number: u64,
    /// What the store is asked.
    pub(crate) wanted: Vec<(Name, Renew)>,
    /// By whom, in the same order.
    by: Vec<(u64, Asked)>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// Whose renewals are in each.
    under_way: HashMap<u64, Vec<u64>, BuildHasherDefault<Spread>>,
    /// When to see to one that was not answered: as early as something is due of any of its attempts.
    alarms: Alarms<u64>,
    last: u64,
}

impl Batches {
    /// When to look at the latest.
    pub(crate) fn next_us(&mut self) -> Option<u64> {
        for _ in 0..IDLE {
            let (at_us, number) = self.alarms.first()?;
            if self.under_way.contains_key(&number) {
                return Some(at_us);
            }
            self.alarms.pop(at_us);
        }
        self.alarms.next_us()
    }

    fn overdue(&mut self, now_us: u64) -> Option<Vec<u64>> {
        loop {
            let (_, number) = self.alarms.pop(now_us)?;
            if let Some(counters) = self.under_way.remove(&number) {
                return Some(counters);
            }
        }
    }
}

impl State {
    /// Sends the renewals whose turn it is, as far as there is room.
    pub(crate) fn send_renewals(&mut self, now_us: u64, errands: &mut Vec<Errand>) {
        let mut batch = Batch::default();
        let mut room = self.windows.room(Kind::Renewal);
        while room > 0 {
            let Some(counter) = self.windows.next(Kind::Renewal) else { break };
            let Some((name, renew, asked)) = self.due_renewal(counter, now_us) else {
                self.arm_after(counter, now_us);
                continue;
            };
            self.windows.sent(Kind::Renewal);
            room -= 1;
            if batch.by.is_empty() {
                batch = Batch { wanted: Vec::with_capacity(RENEW_BATCH), by: Vec::with_capacity(RENEW_BATCH), ..batch };
            }
            batch.wanted.push((name, renew));
            batch.by.push((counter, asked));
            if batch.by.len() == RENEW_BATCH {
                errands.push(Errand::Renew(self.begin_batch(std::mem::take(&mut batch))));
            }
        }
        if !batch.by.is_empty() {
            errands.push(Errand::Renew(self.begin_batch(batch)));
        }
    }

    fn begin_batch(&mut self, batch: Batch) -> Batch {
        let reach = self.reach();
        let counters: Vec<u64> = batch.by.iter().map(|(counter, _)| *counter).collect();
        let due_us = counters.iter().filter_map(|counter| Some(self.attempts.get(counter)?.due_us(reach))).min();
        self.batches.last += 1;
        let number = self.batches.last;
        self.batches.alarms.set(due_us.unwrap_or(0), number);
        self.batches.under_way.insert(number, counters);
        Batch { number, ..batch }
    }

    /// The attempts of a batch that was not answered in time have alarms of their own from now on.
    pub(crate) fn arm_overdue(&mut self, now_us: u64) {
        while let Some(counters) = self.batches.overdue(now_us) {
            counters.into_iter().for_each(|counter| self.arm(counter));
        }
    }

    /// The answers to a batch, one for each.
    pub(crate) fn heard_batch(&mut self, batch: &Batch, heard: Vec<Heard>) {
        self.batches.under_way.remove(&batch.number);
        self.ended(Kind::Renewal, batch.by.len());
        let heard_us = self.world.now_us();
        for (((name, renew), (counter, asked)), heard) in batch.wanted.iter().zip(&batch.by).zip(heard) {
            self.heard_renew(*counter, (name, renew), asked, heard, heard_us);
        }
    }

    fn due_renewal(&mut self, counter: u64, now_us: u64) -> Option<(Name, Renew, Asked)> {
        let link = self.home().cloned()?;
        let attempt = self.attempts.get(&counter)?;
        if attempt.asked.is_some() {
            return None;
        }
        let (token, until_us, claim, next_us, held_us) = match &attempt.phase {
            Phase::Claiming { token, until_us, next_us, .. } => (*token, *until_us, Claim::Due, *next_us, 0),
            Phase::Held(Holding { hold, run, granted_us, renew_us, claim, .. }) => {
                (run.grant(), hold.valid_until_us(), *claim, *renew_us, now_us.saturating_sub(*granted_us))
            }
            _ => return None,
        };
        if next_us > now_us {
            return None;
        }
        let lease_ms = match attempt.terms.renewal {
            Renewal::Always => attempt.terms.lease_ms,
            Renewal::Never if claim == Claim::Due => attempt.terms.lease_ms,
            Renewal::Never => return self.stop_renewing(counter),
            Renewal::For { hold_us } => {
                let left_ms = hold_us.saturating_sub(held_us) / 1000;
                let lease_ms = attempt.terms.lease_ms.min(left_ms);
                // The last piece. A renewal must never shorten what is already granted; and one that wins no more than the
                // margins of two is for nothing: each third of what is left would be renewed once more, down to the
                // last millisecond.
                if now_us + lease_ms * 1000 <= until_us + 2 * margin_us(attempt.terms.lease_us()) {
                    return self.stop_renewing(counter);
                }
                lease_ms
            }
        };
        let from = if attempt.terms.renewal == Renewal::Never { From::Grant } else { From::Now };
        let not_after_us = self.clock.server_at(until_us, now_us).unwrap_or(0);
        let renew = Renew { id: attempt.id, token, from, lease_ms, not_after_us };
        let (name, terms) = (attempt.name.clone(), Arc::clone(&attempt.terms));
        let asked = self.asked(link, &terms, now_us);
        self.attempts.get_mut(&counter)?.asked = Some(asked.clone());
        Some((name, renew, asked))
    }

    fn stop_renewing(&mut self, counter: u64) -> Option<(Name, Renew, Asked)> {
        if let Phase::Held(holding) = &mut self.attempts.get_mut(&counter)?.phase {
            holding.renew_us = u64::MAX;
        }
        None
    }
}
