//! The requests of the histories.

use leasehold::seam::World;
use leasehold_spec::limits::{COUNTS_MAX, RANGE_MAX, REVOKE_GRACE_MS, TOKEN_LEAD_US};
use leasehold_spec::{Acquire, From, GrantId, Hears, Kind, Mode, Op, Order, Patience, Place, Renew, Take, Token};

use super::Rig;

impl Rig {
    /// Returns a request that waits if it has to.
    pub(super) fn queued(&mut self, number: usize, take: Take) -> Op {
        let (hears, order) = (Hears::Listens, Order::Relaxed);
        let place = Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears, order };
        let (id, patience) = (self.new_id(number), Patience::Queue(place));
        Op::Acquire(Acquire {
            id,
            take,
            lease_ms: 30_000,
            not_after_us: u64::MAX,
            patience,
            label: "".into(),
            range: 1,
        })
    }

    fn any_id(&mut self, number: usize) -> GrantId {
        let own: Vec<_> = self.ids.iter().copied().filter(|id| id.session == self.clients[number].session).collect();
        match own.len() as u64 {
            0 => self.new_id(number),
            n => own[self.dice.below(n) as usize],
        }
    }

    fn new_id(&mut self, number: usize) -> GrantId {
        self.nonces += 1;
        let id = GrantId { session: self.clients[number].session, counter: self.nonces, nonce: u64::MAX - self.nonces };
        self.ids.push(id);
        id
    }

    pub(super) fn op(&mut self, number: usize) -> Op {
        let now_us = self.world.now_us();
        let held: Vec<_> = self.model.grants.iter().map(|grant| (grant.id, grant.token)).collect();
        let held = (!held.is_empty()).then(|| *self.dice.pick(&held));
        let wrong = self.dice.below(6) == 0;
        let (id, token) = match held.filter(|_| !wrong) {
            Some(held) => held,
            None => (self.any_id(number), self.model.last),
        };
        match self.dice.below(28) {
            0..=8 => Op::Acquire(self.acquire(number, now_us)),
            9 | 10 => {
                let from = if self.dice.below(2) == 0 { From::Now } else { From::Grant };
                let late = self.dice.below(10) == 0;
                let not_after_us = if late { now_us - 1 } else { now_us };
                Op::Renew(Renew { id, token, from, lease_ms: 100 + self.dice.below(20_000), not_after_us })
            }
            11 if self.dice.below(2) == 0 => {
                Op::CoolDown { id, used: self.used(token), for_ms: 1 + self.dice.below(20_000) }
            }
            11..=13 => Op::Release { id, token, used: self.used(token) },
            14 => Op::Reserve { id, token, range: [1, 2 * RANGE_MAX, 2 * TOKEN_LEAD_US][self.dice.below(3) as usize] },
            15 | 16 => Op::Leave { id: self.any_id(number), used: self.used(token) },
            17 => {
                let grace_ms = if self.dice.below(2) == 0 { 0 } else { REVOKE_GRACE_MS };
                Op::Revoke { holder: id.public(), token, grace_ms }
            }
            18 => Op::Settle,
            19 => Op::Lower { id, token, units: 1 + self.dice.below(3) as u32 },
            20 if self.kind == Kind::Semaphore && self.dice.below(2) == 0 => {
                let late = self.dice.below(10) == 0;
                let from = if self.dice.below(6) == 0 { 1 } else { self.model.limit };
                let not_after_us = if late { now_us - 1 } else { now_us };
                Op::Resize { from, to: 1 + self.dice.below(6) as u32, not_after_us }
            }
            22..=25 => self.op_of_kind(number, (id, token)),
            26 => Op::Put { id, token, label: ["", "10.0.0.3:7000"][self.dice.below(2) as usize].into() },
            20 | 21 | 27 if self.kind == Kind::Mutex => self.hand_to(id, token),
            20 | 21 if self.kind == Kind::Latch => self.op_of_kind(number, (id, token)),
            _ => Op::Inspect,
        }
    }

    /// Hands over to a label: mostly that of the last waiter, and seldom one that nobody has.
    fn hand_to(&mut self, id: GrantId, token: Token) -> Op {
        let mut labels = vec!["nobody".to_owned()];
        labels.extend(self.model.queue.iter().map(|entry| entry.label.clone()));
        let last = labels.last().filter(|_| self.dice.below(4) > 0).cloned();
        Op::HandTo { id, token, label: last.unwrap_or_else(|| self.dice.pick(&labels).clone()) }
    }

    /// Returns a request that is for conditions, for latches or for barriers.
    fn op_of_kind(&mut self, number: usize, (id, token): (GrantId, Token)) -> Op {
        let now_us = self.world.now_us();
        if self.kind == Kind::Barrier && self.dice.below(8) > 0 {
            // Otherwise most rounds would be broken before they are complete.
            return self.queued(number, Take::arrival(3));
        }
        let born = if self.dice.below(8) == 0 { token } else { self.model.latch.born };
        let is_for_latches = (self.kind == Kind::Latch) == (self.dice.below(20) > 0);
        match (is_for_latches, self.dice.below(8)) {
            (false, 0..=4) => Op::Notify { count: [1, 1, 2, u32::MAX][self.dice.below(4) as usize] },
            (false, _) => Op::Spend { id, token },
            (true, 0..=2) => {
                let late = self.dice.below(10) == 0;
                let not_after_us = if late { now_us - 1 } else { now_us };
                let limit = [0, 4, 3, 3, 3, 3, COUNTS_MAX + 1][self.dice.below(7) as usize];
                Op::CreateLatch { limit, keep_ms: self.dice.below(100_000), not_after_us }
            }
            (true, 3) if self.dice.below(2) == 0 => Op::DeleteLatch { born },
            (true, _) => {
                let counted: Vec<_> = self.model.latch.counted.iter().copied().collect();
                let id = match self.dice.below(3) {
                    0 if !counted.is_empty() => *self.dice.pick(&counted),
                    _ => self.new_id(number),
                };
                Op::CountDown { id, born }
            }
        }
    }

    /// Returns a take of the kind of this history, and sometimes of another one.
    fn take(&mut self) -> Take {
        let kind = if self.dice.below(30) == 0 { Kind::ReadWrite } else { self.kind };
        match kind {
            Kind::Mutex => Take::MUTEX,
            Kind::ReadWrite => {
                let upgradeable = self.model.grants.iter().find(|grant| grant.mode == Mode::Upgradeable);
                let any = upgradeable.or(self.model.grants.sole()).map(|grant| (grant.id, grant.token));
                match (self.dice.below(8), any) {
                    (0 | 1, Some((id, token))) => Take::upgrade(id, token),
                    (0..=3, _) => Take::READ,
                    (4 | 5, _) => Take::UPGRADEABLE_READ,
                    _ => Take::WRITE,
                }
            }
            Kind::Condition => Take::NOTIFICATION,
            Kind::Latch => Take::OPEN_LATCH,
            Kind::Barrier => Take::arrival(if self.dice.below(30) == 0 { 2 } else { 3 }),
            Kind::Semaphore => {
                let known = if self.model.kind == Kind::Semaphore { self.model.limit } else { 4 };
                let limit = if self.dice.below(30) == 0 { known + 1 } else { known };
                Take::permits(self.dice.below(u64::from(limit) + 1) as u32 + u32::from(self.dice.below(8) > 0), limit)
            }
        }
    }

    /// Returns the last used token of a range, or a token outside of it.
    fn used(&mut self, token: Token) -> Token {
        let reserved = self.model.reserved().get().saturating_sub(token.get());
        match self.dice.below(5) {
            0 => Token::NONE,
            1 => Token::HIGHEST,
            2 => token.plus(self.dice.below(reserved + 1)),
            _ => token,
        }
    }

    fn acquire(&mut self, number: usize, now_us: u64) -> Acquire {
        let id = if self.dice.below(3) == 0 { self.any_id(number) } else { self.new_id(number) };
        let new = self.take();
        let take = *self.takes.entry(id).or_insert(new);
        let place = Place {
            claim_ms: 1_000,
            limit_ms: [None, None, None, Some(0), Some(2_000), Some(u64::MAX / 2_000)][self.dice.below(6) as usize],
            ticket: self.tickets.get(&id).copied(),
            hears: if self.dice.below(5) == 0 { Hears::Polls } else { Hears::Listens },
            order: if self.dice.below(5) == 0 { Order::Strict } else { Order::Relaxed },
        };
        Acquire {
            id,
            take,
            lease_ms: 100 + self.dice.below(10) * self.dice.below(10_000),
            not_after_us: if self.dice.below(15) == 0 { now_us - 1 } else { now_us + 1_000 },
            patience: if self.dice.below(5) == 0 { Patience::Try } else { Patience::Queue(place) },
            label: ["", "host/1", "host/2", "host/3", "Ä 'quoted'"][self.dice.below(5) as usize].into(),
            range: [1, 2, RANGE_MAX][self.dice.below(3) as usize],
        }
    }
}
