//! Requests about several names: one request for all of them, and many requests at the same time.

use leasehold_spec::{Acquire, Op, Outcome, Patience};

use super::{Attempt, History};

impl History<'_> {
    /// Asks for two or three mutexes by one request.
    pub(super) fn acquire_all(&mut self) {
        let first = self.random.index(self.locks.len());
        let count = self.random.within(2, 3).min(self.locks.len() as u64);
        let session = self.random.index(self.sessions);
        let members: Vec<_> = (first..).take(count as usize).map(|lock| lock % self.locks.len()).collect();
        let mut asked = Vec::with_capacity(members.len());
        for lock in members {
            // Often one that was asked for before.
            let known =
                self.one_of(lock).filter(|_| self.random.chance(10)).map(|at| self.attempts[at].acquire.clone());
            let anew = self.new_acquire(session, Patience::Try);
            if known.is_none() {
                self.attempts.push(Attempt { lock, acquire: anew.clone(), token: None, ticket: None });
            }
            asked.push((lock, Acquire { patience: Patience::Try, ..known.unwrap_or(anew) }));
        }
        self.rig.acquire_all(&mut self.locks, &asked);
    }

    /// Sends many requests at the same time. Most acquires have the same lease and label, so the client sends most requests
    /// in one script (P53).
    pub(super) fn many(&mut self) {
        let session = self.random.index(self.sessions);
        let patience = if self.random.chance(40) { Patience::Try } else { self.place() };
        let common = self.new_acquire(session, patience);
        let mut asked = Vec::new();
        // If memory is full, a refused batch is repeated after the requests that cannot join. So all must join.
        let only_joinable = self.rig.harness.is_full();
        for _ in 0..self.random.within(4, 16) {
            let lock = self.random.index(self.locks.len());
            let known = self.one_of(lock);
            match (self.random.below(10), known) {
                (0..=3, Some(at)) => {
                    let (id, token) = (self.attempts[at].acquire.id, self.token(at));
                    let used = if !only_joinable && self.random.chance(10) { self.used(lock, token) } else { token };
                    asked.push((lock, Op::Release { id, token, used }, at));
                }
                (4, Some(at)) => {
                    // A repeat.
                    let acquire = Acquire { id: self.attempts[at].acquire.id, ..common.clone() };
                    asked.push((lock, Op::Acquire(acquire), at));
                }
                (number, _) => {
                    let anew = self.new_acquire(session, Patience::Try);
                    let shares = number < 9;
                    let not_after_us = if self.random.chance(80) { common.not_after_us } else { anew.not_after_us };
                    let acquire = Acquire { id: anew.id, not_after_us, ..if shares { common.clone() } else { anew } };
                    self.attempts.push(Attempt { lock, acquire: acquire.clone(), token: None, ticket: None });
                    asked.push((lock, Op::Acquire(acquire), self.attempts.len() - 1));
                }
            }
        }
        let ops: Vec<_> = asked.iter().map(|(lock, op, _)| (*lock, op.clone())).collect();
        for ((_, _, at), outcome) in asked.into_iter().zip(self.rig.many(&mut self.locks, &ops)) {
            match outcome {
                Some(Outcome::Granted { token, .. }) => self.attempts[at].token = Some(token),
                Some(Outcome::Queued { ticket, .. }) => self.attempts[at].ticket = Some(ticket),
                _ => {}
            }
        }
    }
}
