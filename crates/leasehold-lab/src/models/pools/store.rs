//! The store: the shipped `step`, and the properties that must be true after each step.

use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Entry, Env, From, Grant, Hears, Joined, Mode, Op, Order, Outcome, Patience,
    Place, Renew, Resource, Rest, SessionId, Take, Token, step,
};

use super::cases::{Harm, Play};
use super::pool::Pool;
use super::session::{Ask, Message, Request, replaced};
use crate::models::scene::{TICK_MS, clock_us};
use crate::models::server::{attempt_of, grant_id};

impl Pool {
    /// Carries out a request of a session, and returns the reply. The pushes of the step are on their way before it.
    pub(super) fn serve(&mut self, play: &Play, s: u8, request: Request) -> Answer {
        let op = self.operation(play, s, request);
        let before = self.store.clone();
        let lease_us = self.clock_us();
        let sessions = &self.sessions;
        let attached = |id: SessionId| sessions[id.0 as usize].is_attached;
        let env = Env { wall_us: lease_us, lease_us, attached: &attached };
        let (answer, pushes) = step(&mut self.store, &env, &op);
        self.check_grants(&before);
        if answer.rest == Rest::Done {
            self.check_queue(&before, &op);
        }
        self.check_limit(&before, &op, &answer.outcome);
        self.check_resize(&before, request.ask);
        for push in pushes {
            self.publish(push);
        }
        // The rules of pools do not depend on the other parts of a reply, which would make more states.
        Answer { contention: Contention::None, handed_claim_ms: None, ..answer }
    }

    fn publish(&mut self, mut push: Delivery) {
        let session = &mut self.sessions[push.to.0 as usize];
        if !session.is_dead {
            push.contention = Contention::None;
            session.back.push_back(Message::Push(push));
        }
    }

    fn operation(&self, play: &Play, s: u8, Request { n, ask, not_after, .. }: Request) -> Op {
        let id = grant_id(s, n);
        let lease_ms = u64::from(play.scene.lease) * TICK_MS;
        let not_after_us = clock_us(not_after);
        match ask {
            Ask::Queue | Ask::Try => {
                let attempt = &self.sessions[s as usize].attempts[n as usize];
                let place = Place {
                    claim_ms: u64::from(play.scene.claim) * TICK_MS,
                    limit_ms: None,
                    ticket: attempt.ticket,
                    hears: Hears::Listens,
                    order: Order::Relaxed,
                };
                let patience = if ask == Ask::Try { Patience::Try } else { Patience::Queue(place) };
                let (take, label) = (attempt.take, "".into());
                Op::Acquire(Acquire { id, take, lease_ms, range: 1, not_after_us, patience, label })
            }
            Ask::Renew(token) => Op::Renew(Renew { id, token, from: From::Now, lease_ms, not_after_us }),
            Ask::Release(token) => Op::Release { id, token, used: token },
            Ask::Leave => Op::Leave { id, used: Token::NONE },
            Ask::Lower(token, units) => Op::Lower { id, token, units },
            Ask::Resize(nth) => {
                let resizes = play.scene.sessions.iter().filter_map(|does| does.resize);
                let (from, to) =
                    resizes.filter(|(at, _)| *at == nth).map(|(_, change)| change).next().unwrap_or((1, 1));
                Op::Resize { from, to, not_after_us }
            }
        }
    }

    /// Checks the grants that the step has made.
    fn check_grants(&mut self, before: &Resource) {
        let is_new = |grant: &&Grant| before.grants.get(grant.id).is_none_or(|known| known.token != grant.token);
        let made: Vec<Grant> = self.store.grants.iter().filter(is_new).cloned().collect();
        for (at, grant) in made.iter().enumerate() {
            if grant.token <= before.last || made[..at].iter().any(|other| other.token == grant.token) {
                self.note(Harm::TokenFalls);
            }
            let limit = self.store.limit;
            self.of(grant.id).allowed = limit;
            let end_us = |read: &Grant| read.end_us() > grant.end_us();
            let take = self.of(grant.id).take;
            if replaced(&take).and_then(|read| before.grants.get(read)).is_some_and(end_us) {
                self.note(Harm::Shorter);
            }
        }
    }

    /// P33: a step ends with a first waiter that lives and does not fit. A renewal serves nobody if no lease has ended, and
    /// a release serves nobody if nobody waits.
    fn check_queue(&mut self, before: &Resource, op: &Op) {
        let is_dead = |entry: &Entry| !self.sessions[attempt_of(entry.id).0 as usize].is_attached;
        let settles = !before.is_idle() && !matches!(op, Op::Renew(_));
        let live = || self.store.grants.iter().filter(|grant| self.lives(Some(grant)));
        let next = self.store.upgrade.as_ref().or(self.store.queue.front());
        let Some(next) = next else { return };
        let is_alone = match next.mode {
            Mode::Plain => true,
            Mode::Upgradeable => live().all(|grant| grant.mode != Mode::Upgradeable),
            Mode::Instead { .. } => live().count() == 1,
        };
        let units: u32 = live().map(|grant| grant.units).sum();
        let fits = matches!(next.mode, Mode::Instead { .. }) || units + next.units <= self.store.limit;
        if is_dead(next) {
            // Its own request may be what has put it there.
            if settles && op.subject() != Some(next.id) {
                self.note(Harm::DeadWaits);
            }
        } else if is_alone && fits {
            self.note(Harm::FittingWaits);
        }
    }

    /// P31: nobody begins to wait or to hold who knows another limit than the record.
    fn check_limit(&mut self, before: &Resource, op: &Op, outcome: &Outcome) {
        let Op::Acquire(Acquire { id, take: Take { kind, limit, .. }, .. }) = op else { return };
        let is_other = before.last != Token::NONE && (*kind, *limit) != (before.kind, before.limit);
        let was_known = before.grants.get(*id).is_some() || before.queue.iter().any(|entry| entry.id == *id);
        let begins = matches!(outcome, Outcome::Granted { .. } | Outcome::Queued { joined: Joined::Now, .. });
        if is_other && !was_known && begins {
            self.note(Harm::OtherEnters);
        }
    }

    /// P40: each resize saw the one before it.
    fn check_resize(&mut self, before: &Resource, ask: Ask) {
        let Ask::Resize(nth) = ask else { return };
        if self.store.limit == before.limit {
            return;
        }
        if nth < self.resized {
            self.note(Harm::Undone);
        }
        self.resized = self.resized.max(nth + 1);
    }
}
