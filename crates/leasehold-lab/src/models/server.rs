//! The store: the shipped `step`, a clock, and the question of who is attached.
//!
//! Expiry is passive because `step` is: a lease whose end has passed stays in the record until a script touches the name.

use leasehold_spec::{
    Acquire, Answer, Delivery, Entry, Env, From, Grant, GrantId, GrantState, Hears, Op, Outcome, Patience, Place,
    Renew, Resource, Rest, SessionId, step,
};

use super::ledger::{Handed, Harm};
use super::network::{Ask, Message, Request};
use super::rules::{Botch, Slip};
use super::scene::{TICK_MS, clock_us};
use super::session::{Life, Now};
use super::words;
use super::world::World;

pub(crate) fn grant_id(session: u8, n: u8) -> GrantId {
    GrantId { session: SessionId(u128::from(session)), counter: u64::from(n), nonce: 0 }
}

/// Session and attempt of a grant id.
pub(crate) fn attempt_of(id: GrantId) -> (u8, u8) {
    (id.session.0 as u8, id.counter as u8)
}

impl World {
    /// Carries out a request of `session`. The answer is for whoever still listens.
    pub(crate) fn script(&mut self, now: &Now<'_>, session: u8, request: Request, refuse: bool) -> Message {
        if request.ask == Ask::Subscribe {
            self.attached[session as usize] = now.scene.is_counted(session);
            self.sessions[session as usize].links[0].is_subscribed = true;
            now.say(|| "the store: inbox attached".into());
            return Message::Subscribed;
        }
        let keeps_writes = now.off.botches(Botch::WritesThenFails) && matches!(request.ask, Ask::Acquire { .. });
        if refuse && !keeps_writes {
            now.say(|| "the store: refused, out of memory; nothing was done".into());
            return Message::Refused { to: request };
        }
        let before = self.store.clone();
        let (answer, deliveries) = self.step(now, session, &request);
        now.say(|| format!("the store, at tick {}: {}", self.tick, words::answer(&answer)));
        self.check(now, session, &request, &before, &answer);
        for delivery in deliveries {
            self.publish(now, delivery);
        }
        if refuse {
            now.say(|| "the script fails after its writes, and answers an error".into());
            return Message::Refused { to: request };
        }
        let others = now.scene.passes > 0 && self.store.queue.iter().any(|e| attempt_of(e.id).0 != session);
        Message::Answer { to: request, answer, others }
    }

    fn step(&mut self, now: &Now<'_>, session: u8, request: &Request) -> (Answer, Vec<Delivery>) {
        let op = operation(now, session, request);
        let attached = &self.attached;
        let mut told = Vec::new();
        if now.off.botches(Botch::CountsReceivers) {
            let env = Env { wall_us: clock_us(self.tick), lease_us: clock_us(self.tick), attached: &|_| true };
            told = step(&mut self.store.clone(), &env, &op).1;
            told.retain(|push| !attached[attempt_of(push.id).0 as usize]);
        }
        let env = Env {
            wall_us: clock_us(self.tick),
            lease_us: clock_us(self.tick),
            attached: &|id: SessionId| attached[id.0 as usize],
        };
        let (answer, deliveries) = step(&mut self.store, &env, &op);
        told.extend(deliveries);
        (answer, told)
    }

    /// A message to an inbox: on the first connection, if the subscription on it lives.
    fn publish(&mut self, now: &Now<'_>, delivery: Delivery) {
        let (session, n) = attempt_of(delivery.id);
        now.say(|| {
            format!("the store pushes token {} to {}", words::token(delivery.token), words::attempt(session, n))
        });
        if now.scene.polls(session) {
            return;
        }
        let link = &mut self.sessions[session as usize].links[0];
        if link.is_subscribed {
            link.back.push_back(Message::Push(delivery));
        } else {
            self.ledger.lost_push = true;
        }
    }

    /// What must be so after every script.
    fn check(&mut self, now: &Now<'_>, session: u8, request: &Request, before: &Resource, answer: &Answer) {
        let id = grant_id(session, request.n);
        self.ledger.idle[session as usize] = 0;
        if self.sessions[session as usize].life == Life::Dead {
            self.ledger.dead_ticks = 0;
        }
        let is_free = self.store.grant.as_ref().is_none_or(|g| g.end_us() <= clock_us(self.tick));
        if is_free && answer.rest == Rest::Done && self.store.queue.iter().any(|e| self.is_live(e)) {
            self.ledger.note(Harm::HeadWaits);
        }
        let is_wasted = |g: &Grant| {
            let (s, n) = attempt_of(g.id);
            let has_lapsed = g.state == GrantState::Pushed && g.end_us() <= clock_us(self.tick);
            let session = &self.sessions[s as usize];
            has_lapsed && session.life == Life::Awake && session.find(n).is_some_and(|i| session.is_waiting(i))
        };
        if now.scene.is_faultless() && before.grant.as_ref().is_some_and(is_wasted) {
            self.ledger.note(Harm::ClaimWasted);
        }
        match (request.ask, &answer.outcome) {
            (Ask::Release { .. }, Outcome::NotHeld) if self.ledger.gave_back_last == Some((session, request.n)) => {
                self.ledger.note(Harm::FalseAlarm);
            }
            (Ask::Release { .. }, Outcome::Released) if before.held_by(id).is_some() => {
                self.ledger.gave_back.push((session, request.n));
                self.ledger.gave_back_last = Some((session, request.n));
            }
            (Ask::Leave, Outcome::Left { .. }) if before.held_by(id).is_some() => self.ledger.gave_back_last = None,
            _ => {}
        }
        if let (Ask::Acquire { ticket: Some(ticket), .. }, Outcome::Queued { .. }) = (request.ask, &answer.outcome) {
            self.ledger.asks_for((session, request.n), ticket);
        }
        if let (Some(_), Some(grant)) = (answer.handed_claim_ms, &self.store.grant) {
            let to = attempt_of(grant.id);
            let chosen = before.queue.iter().find(|e| e.id == grant.id).map(|e| e.ticket);
            self.ledger.handed = Some(Handed { by: session, to, token: grant.token });
            if !self.attached[to.0 as usize] && !now.scene.polls(to.0) {
                self.ledger.note(Harm::ToTheDeaf);
            }
            let stood = |e: &&Entry| self.is_live(e) && before.queue.iter().any(|b| b.id == e.id);
            if chosen.is_some_and(|ticket| self.store.queue.iter().filter(stood).any(|e| self.place(e) < ticket)) {
                self.ledger.note(Harm::OutOfOrder);
            }
        }
    }

    /// Whether a waiter could take the lease now: it lives, and its inbox is attached.
    fn is_live(&self, entry: &Entry) -> bool {
        let session = attempt_of(entry.id).0 as usize;
        self.attached[session] && self.sessions[session].life == Life::Awake
    }

    /// The place that an entry should have: the one that its session was told and came back with.
    fn place(&self, entry: &Entry) -> u64 {
        let place = self.ledger.place(attempt_of(entry.id));
        place.map_or(entry.ticket, |told| told.min(entry.ticket))
    }
}

fn operation(now: &Now<'_>, session: u8, request: &Request) -> Op {
    let id = grant_id(session, request.n);
    let lease_ms = u64::from(now.scene.lease) * TICK_MS;
    let not_after_us = clock_us(request.not_after);
    match request.ask {
        Ask::Acquire { ticket, order } => {
            let hears = if now.scene.polls(session) { Hears::Polls } else { Hears::Listens };
            let claim = match hears {
                // It hears of its grant by looking, so the claim must outlast the time between two looks.
                Hears::Polls if !now.slips(Slip::PollsTooRarely) => now.scene.claim.max(now.scene.floor() + 1),
                _ => now.scene.claim,
            };
            let place = Place { claim_ms: u64::from(claim) * TICK_MS, limit_ms: None, ticket, hears, order };
            let patience = Patience::Queue(place);
            Op::Acquire(Acquire { id, lease_ms, not_after_us, patience, label: String::new() })
        }
        Ask::Renew { token } => {
            let from = if now.scene.is_fixed() { From::Grant } else { From::Now };
            Op::Renew(Renew { id, token, from, lease_ms, not_after_us })
        }
        Ask::Release { token } => Op::Release { id, token },
        Ask::Leave => Op::Leave { id },
        Ask::Settle | Ask::Subscribe => Op::Settle,
    }
}
