//! The store: the shipped `step`, a clock, and the set of attached inboxes.
//!
//! Expiry is passive because `step` is: an expired lease stays in the record until a script touches the name.

use leasehold_spec::{
    Acquire, Answer, Delivery, Entry, Env, Event, From, Grant, GrantId, GrantState, Hears, Op, Outcome, Patience,
    Place, Renew, Resource, Rest, SessionId, Take, step,
};

use super::ledger::{Handed, Harm};
use super::network::{Ask, Message, Request};
use super::rules::{Botch, Slip};
use super::scene::{TICK_MS, clock_us, when};
use super::session::{Life, Now};
use super::words;
use super::world::World;

pub(crate) fn grant_id(session: u8, n: u8) -> GrantId {
    GrantId { session: SessionId(u128::from(session)), counter: u64::from(n), nonce: 0 }
}

/// Returns the session and the attempt of a grant ID.
pub(crate) fn attempt_of(id: GrantId) -> (u8, u8) {
    (id.session.0 as u8, id.counter as u8)
}

impl World {
    /// Carries out a request of `session`. Returns the reply, which arrives only if the connection still exists.
    pub(crate) fn script(&mut self, now: &Now<'_>, session: u8, request: Request, refuse: bool) -> Message {
        if request.ask == Ask::Subscribe {
            self.attached[session as usize] = now.scene.is_counted(session);
            self.sessions[session as usize].links[0].is_subscribed = true;
            now.log(|| "the store: inbox attached".into());
            return Message::Subscribed;
        }
        let keeps_writes = now.off.botches(Botch::WritesThenFails) && matches!(request.ask, Ask::Acquire { .. });
        if refuse && !keeps_writes {
            now.log(|| "the store: refused, out of memory; nothing was done".into());
            return Message::Refused { to: request };
        }
        let before = self.store.clone();
        let (answer, deliveries) = self.step(now, session, &request);
        now.log(|| format!("the store, at tick {}: {}", self.tick, words::answer(&answer)));
        self.check(now, session, &request, &before, &answer);
        if self.budget.failovers > 0 && before != self.store {
            self.copy = before;
        }
        for delivery in deliveries {
            self.publish(now, delivery);
        }
        if refuse {
            now.log(|| "the script fails after its writes and replies with an error".into());
            return Message::Refused { to: request };
        }
        let others = now.scene.has_runs() && self.store.queue.iter().any(|e| attempt_of(e.id).0 != session);
        Message::Answer { to: request, answer, others }
    }

    fn step(&mut self, now: &Now<'_>, session: u8, request: &Request) -> (Answer, Vec<Delivery>) {
        self.carry_out(now, &operation(now, session, request))
    }

    fn carry_out(&mut self, now: &Now<'_>, op: &Op) -> (Answer, Vec<Delivery>) {
        let lease_us = self.clock_us();
        let wall_us = now.scene.wall_us(lease_us);
        let attached = &self.attached;
        let mut published = Vec::new();
        if now.off.botches(Botch::CountsReceivers) {
            let env = Env { wall_us, lease_us, attached: &|_| true };
            published = step(&mut self.store.clone(), &env, op).1;
            published.retain(|push| !attached[attempt_of(push.id).0 as usize]);
        }
        let env = Env { wall_us, lease_us, attached: &|id: SessionId| attached[id.0 as usize] };
        let (answer, deliveries) = step(&mut self.store, &env, op);
        published.extend(deliveries);
        (answer, published)
    }

    /// Revokes the current grant on behalf of somebody who sees the holder and takes no further part.
    pub(crate) fn revoke(&mut self, now: &Now<'_>) {
        let Some(Grant { id, token, .. }) = self.store.grants.sole().cloned() else { return };
        self.ledger.revoked = Some(token);
        if now.scene.is_prompt() {
            self.ledger.grace_over = Some(self.tick + now.scene.grace);
        }
        let grace_ms = u64::from(now.scene.grace) * TICK_MS;
        let (answer, deliveries) = self.carry_out(now, &Op::Revoke { holder: id.public(), token, grace_ms });
        if let (Some(_), Some(grant)) = (answer.handed_claim_ms, self.store.grants.sole()) {
            let to = attempt_of(grant.id);
            self.ledger.handed = Some(Handed { by: to.0, to, token: grant.token });
        }
        self.watch_queue(now);
        for delivery in deliveries {
            self.publish(now, delivery);
        }
    }

    /// Records since when another session waits for the lease.
    fn watch_queue(&mut self, now: &Now<'_>) {
        let holder = self.store.grants.sole().map(|g| attempt_of(g.id).0);
        let is_other = |e: &Entry| holder.is_some_and(|holder| attempt_of(e.id).0 != holder);
        let is_wanted = now.scene.has_runs() && self.store.queue.iter().any(is_other);
        self.ledger.wanted = is_wanted.then_some(self.ledger.wanted.unwrap_or(self.tick));
    }

    /// Publishes a message to an inbox: on the first connection, if its subscription is alive.
    fn publish(&mut self, now: &Now<'_>, delivery: Delivery) {
        let (session, n) = attempt_of(delivery.id);
        now.log(|| {
            let (token, to) = (words::token(delivery.token), words::attempt(session, n));
            format!("the store pushes to {to}: token {token}, {:?}", delivery.event).to_lowercase()
        });
        if now.scene.polls(session) {
            return;
        }
        let link = &mut self.sessions[session as usize].links[0];
        if link.is_subscribed {
            link.back.push_back(Message::Push(delivery));
        } else {
            self.ledger.lost_push |= delivery.event == Event::Granted;
        }
    }

    /// Checks the properties that must be true after every script.
    fn check(&mut self, now: &Now<'_>, session: u8, request: &Request, before: &Resource, answer: &Answer) {
        let id = grant_id(session, request.n);
        self.ledger.idle[session as usize] = 0;
        if before.grants.sole().map(|g| g.token) != self.store.grants.sole().map(|g| g.token) {
            self.ledger.wanted = None;
        }
        self.watch_queue(now);
        if self.sessions[session as usize].life == Life::Dead {
            self.ledger.dead_ticks = 0;
        }
        let is_free = self.store.grants.sole().is_none_or(|g| g.end_us() <= self.clock_us());
        if is_free && answer.rest == Rest::Done && self.store.queue.iter().any(|e| self.is_live(e)) {
            self.ledger.note(Harm::HeadWaits);
        }
        let is_wasted = |g: &Grant| {
            let (s, n) = attempt_of(g.id);
            let has_lapsed = g.state == GrantState::Pushed && g.end_us() <= self.clock_us();
            let session = &self.sessions[s as usize];
            has_lapsed && session.life == Life::Awake && session.find(n).is_some_and(|i| session.is_waiting(i))
        };
        if now.scene.is_faultless() && before.grants.sole().is_some_and(is_wasted) {
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
            (Ask::Leave { .. }, Outcome::Left { .. }) if before.held_by(id).is_some() => {
                self.ledger.gave_back_last = None;
            }
            _ => {}
        }
        self.check_cool_down(session, request, before);
        if let (Ask::Acquire { ticket: Some(ticket), .. }, Outcome::Queued { .. }) = (request.ask, &answer.outcome) {
            self.ledger.asks_for((session, request.n), ticket);
        }
        if let (Some(_), Some(grant)) = (answer.handed_claim_ms, self.store.grants.sole()) {
            let to = attempt_of(grant.id);
            let chosen = before.queue.iter().find(|e| e.id == grant.id).map(|e| e.ticket);
            self.ledger.handed = Some(Handed { by: session, to, token: grant.token });
            if !self.attached[to.0 as usize] && !now.scene.polls(to.0) {
                self.ledger.note(Harm::ToDetached);
            }
            let stood = |e: &&Entry| self.is_live(e) && before.queue.iter().any(|b| b.id == e.id);
            if chosen.is_some_and(|ticket| self.store.queue.iter().filter(stood).any(|e| self.place(e) < ticket)) {
                self.ledger.note(Harm::OutOfOrder);
            }
        }
    }

    /// Checks P23. The length counts from when the store carries the request out, so a slow request may lengthen the
    /// cool-down by its delay.
    fn check_cool_down(&mut self, session: u8, request: &Request, before: &Resource) {
        let id = grant_id(session, request.n);
        let cooling = |resource: &Resource| resource.grants.sole().filter(|g| !g.is_held()).map(|g| (g.id, g.end_us()));
        if before.grants.sole().map(|g| g.id) != self.store.grants.sole().map(|g| g.id) {
            if self.store.grants.sole().is_some() && self.ledger.cools_until.is_some_and(|until| self.tick < until) {
                self.ledger.note(Harm::GrantedTooSoon);
            }
            self.ledger.cools_until = None;
        }
        match (request.ask, cooling(before), cooling(&self.store)) {
            (_, Some((id, end_us)), Some((same, later_us))) if id == same && later_us > end_us => {
                self.ledger.note(Harm::CoolsTooLong);
            }
            (Ask::CoolDown { .. }, None, Some((of, end_us))) if of == id => {
                let attempts = &self.sessions[session as usize].attempts;
                let until = attempts.iter().find(|a| a.n == request.n).map_or(0, |a| a.cools_until);
                self.ledger.cools_until = (until > 0).then_some(until);
                if until > 0 && when(end_us) > until + (self.tick - request.sent) {
                    self.ledger.note(Harm::CoolsTooLong);
                }
            }
            // The lease was to cool down, and was released instead, or is held again.
            (_, Some((was, end_us)), None) if self.store.held_by(was).is_some() || end_us > self.clock_us() => {
                self.ledger.note(Harm::GrantedTooSoon);
            }
            _ => {}
        }
    }

    /// Whether a waiter could take the lease now: its process is awake, and its inbox is attached.
    fn is_live(&self, entry: &Entry) -> bool {
        let session = attempt_of(entry.id).0 as usize;
        self.attached[session] && self.sessions[session].life == Life::Awake
    }

    /// Returns the place that an entry should have: the place that its session was assigned and came back with.
    fn place(&self, entry: &Entry) -> u64 {
        let place = self.ledger.place(attempt_of(entry.id));
        place.map_or(entry.ticket, |place| place.min(entry.ticket))
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
                // It learns of its grant by polling, so the claim must be longer than the time between two polls.
                Hears::Polls if !now.slips(Slip::PollsTooRarely) => now.scene.claim.max(now.scene.floor() + 1),
                _ => now.scene.claim,
            };
            let place = Place { claim_ms: u64::from(claim) * TICK_MS, limit_ms: None, ticket, hears, order };
            let (patience, range) = (Patience::Queue(place), u64::from(now.scene.range));
            Op::Acquire(Acquire { id, take: Take::MUTEX, lease_ms, not_after_us, patience, label: "".into(), range })
        }
        Ask::Renew { token } => {
            let from = if now.scene.is_fixed() { From::Grant } else { From::Now };
            Op::Renew(Renew { id, token, from, lease_ms, not_after_us })
        }
        Ask::Release { token, used } => Op::Release { id, token, used },
        Ask::Leave { used } => Op::Leave { id, used },
        Ask::CoolDown { used, ticks } => Op::CoolDown { id, used, for_ms: u64::from(ticks) * TICK_MS },
        Ask::Reserve { token, range } => Op::Reserve { id, token, range: u64::from(range) },
        Ask::Settle | Ask::Subscribe => Op::Settle,
    }
}
