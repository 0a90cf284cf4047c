//! One request, carried out.

use crate::cool_down::cool_down;
use crate::id::{GrantId, PublicId, SessionId, Token, range};
use crate::limits::{QUEUE_MAX, RANGE_MAX, RETENTION_MS, TICKET_STEPS};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{
    Acquire, Answer, Contention, Delivery, Event, From, GrantState, Holder, Inspection, Joined, LostHow, Op, Order,
    Outcome, Patience, Place, Renew, Rest, Was,
};
use crate::resource::{Entry, Grant, Resource};
use crate::revocation::{mark, next_waiters};
use crate::settle::{Settled, settle};

/// What a step may know of the world.
pub struct Env<'a> {
    /// Wall time in microseconds: tokens grow with it.
    pub wall_us: u64,
    /// The clock that leases are counted on, in microseconds. On Redis it is the wall clock; on one host it is a clock
    /// that nobody sets and that runs while the machine sleeps.
    pub lease_us: u64,
    /// Whether a session's inbox is attached: asked before choosing, and nothing is sent to find out (P6).
    pub attached: &'a dyn Fn(SessionId) -> bool,
}

/// Carries one request out: the new state, the answer, and the messages to send once the state is stored.
///
/// Total: every state and every request has an answer. At most one grant is made, so at most one waiter is told of one.
pub fn step(resource: &mut Resource, env: &Env<'_>, op: &Op) -> (Answer, Vec<Delivery>) {
    if resource.is_forgotten(env.wall_us, env.lease_us) {
        if resource.last != Token::NONE {
            hit(Mark::RecordForgotten);
        }
        *resource = Resource::default();
    }
    let mut step = Step { resource, env, deliveries: Vec::new(), handed_claim_ms: None };
    let (outcome, rest) = match op {
        Op::Inspect => (step.inspect(), Rest::Done),
        Op::Acquire(acquire) => step.acquire(acquire),
        Op::Renew(renew) => step.renew(renew),
        Op::Release { id, token, used } => step.release(*id, *token, *used),
        Op::Leave { id, used } => step.leave(*id, *used),
        Op::CoolDown { id, used, for_ms } => step.cool_down(*id, *used, *for_ms),
        Op::Reserve { id, token, range } => step.reserve(*id, *token, *range),
        Op::Revoke { holder, token, grace_ms } => step.revoke(*holder, *token, *grace_ms),
        Op::Settle => (Outcome::Settled, step.settle()),
    };
    let answer = Answer {
        now_us: env.lease_us,
        highest: step.resource.last,
        contention: if is_on(Mutant::P9Silent) { Contention::None } else { step.resource.contention() },
        rest,
        handed_claim_ms: step.handed_claim_ms,
        outcome,
    };
    (answer, step.deliveries)
}

struct Step<'a, 'e> {
    resource: &'a mut Resource,
    env: &'a Env<'e>,
    deliveries: Vec<Delivery>,
    handed_claim_ms: Option<u64>,
}

impl Step<'_, '_> {
    fn settle(&mut self) -> Rest {
        let Settled { rest, handed_claim_ms, delivery } = settle(self.resource, self.env);
        self.handed_claim_ms = handed_claim_ms.or(self.handed_claim_ms);
        self.deliveries.extend(delivery);
        rest
    }

    fn acquire(&mut self, acquire: &Acquire) -> (Outcome, Rest) {
        if self.is_late(acquire.not_after_us) {
            hit(Mark::AcquireLate);
            return (Outcome::Late, self.settle());
        }
        // Before settling: a look shows that this waiter lives, so it must not be dropped for an older silence.
        self.touch(acquire);
        let rest = self.settle();
        if let Some(standing) = self.standing(acquire) {
            return (standing, rest);
        }
        // Only after MORE is a lease free with a queue: the queue comes first, and the caller settles again.
        let is_free = self.resource.grant.is_none();
        if is_free && (self.resource.queue.is_empty() || is_on(Mutant::P1Barging)) {
            return (self.grant(acquire), rest);
        }
        if is_free {
            hit(Mark::NewcomerBehindMore);
        }
        let place = match &acquire.patience {
            Patience::Try => return (Outcome::Busy { left_us: self.holder_left_us() }, rest),
            Patience::Queue(_) if self.resource.queue.len() >= QUEUE_MAX => {
                hit(Mark::QueueFull);
                return (Outcome::Full, rest);
            }
            Patience::Queue(place) => place,
        };
        let ticket = self.enqueue(acquire, place);
        (Outcome::Queued { ticket, left_us: self.holder_left_us(), joined: Joined::Now }, rest)
    }

    /// The answer to an attempt that the record knows already (P3). It never lengthens a lease (P2).
    fn standing(&mut self, acquire: &Acquire) -> Option<Outcome> {
        let now_us = self.env.lease_us;
        let is_its = |g: &&mut Grant| g.id == acquire.id && (g.is_held() || is_on(Mutant::P23GrantsAgain));
        if let Some(grant) = self.resource.grant.as_mut().filter(is_its) {
            hit(Mark::AcquireRepeatedGranted);
            if is_on(Mutant::P2RepeatExtends) {
                (grant.since_us, grant.length_ms) = (now_us, acquire.lease_ms);
            }
            let left_us = if is_on(Mutant::P2WholeLease) { grant.length_ms * 1000 } else { grant.left_us(now_us) };
            return Some(Outcome::Granted { token: grant.token, left_us, range: grant.range });
        }
        if self.resource.was_given_back(acquire.id) {
            hit(Mark::AcquireGone);
            return Some(Outcome::Gone);
        }
        let entry = &self.resource.queue[self.resource.position(acquire.id)?];
        hit(Mark::AcquireRepeatedQueued);
        Some(Outcome::Queued { ticket: entry.ticket, left_us: self.holder_left_us(), joined: Joined::Before })
    }

    fn grant(&mut self, acquire: &Acquire) -> Outcome {
        let now_us = self.env.lease_us;
        self.resource.last = self.resource.last.next(self.env.wall_us);
        let grant = Grant {
            id: acquire.id,
            token: self.resource.last,
            range: range(acquire.range.clamp(1, RANGE_MAX), self.resource.last, self.env.wall_us),
            since_us: now_us,
            length_ms: acquire.lease_ms,
            state: GrantState::Held,
            label: acquire.label.clone(),
        };
        self.resource.keep_until_us = grant.keep_until_us(self.env);
        let granted = Outcome::Granted { token: grant.token, left_us: grant.left_us(now_us), range: grant.range };
        self.resource.grant = Some(grant);
        granted
    }

    fn enqueue(&mut self, acquire: &Acquire, place: &Place) -> u64 {
        let now_us = self.env.lease_us;
        let holds_range = self.resource.grant.as_ref().is_some_and(|grant| grant.range > 1);
        let before = holds_range.then(|| self.resource.contention());
        if self.resource.queue.is_empty() {
            let held = self.resource.grant.as_ref().map(|grant| grant.keep_until_us(self.env));
            let needed = held.unwrap_or(Resource::keep_from(now_us));
            self.resource.keep_until_us = self.resource.keep_until_us.max(needed);
        }
        let queue = &mut self.resource.queue;
        let fresh = queue.back().map_or(now_us, |tail| now_us.max(tail.ticket + 1));
        let kept = place.ticket.filter(|_| !is_on(Mutant::P6LosesPlace));
        let spot = kept.and_then(|ticket| match queue.back() {
            Some(tail) if tail.ticket >= ticket => {
                Some((ticket, queue.iter().take(TICKET_STEPS).position(|e| e.ticket > ticket)?))
            }
            _ => Some((ticket, queue.len())),
        });
        match (kept, spot) {
            (Some(_), Some(_)) => hit(Mark::TicketBack),
            (Some(_), None) => hit(Mark::TicketTooFar),
            (None, _) => {}
        }
        // Too far from the head to be found by a bounded walk: a place at the tail, as for a newcomer.
        let (ticket, at) = spot.unwrap_or((fresh, queue.len()));
        queue.insert(
            at,
            Entry {
                id: acquire.id,
                ticket,
                lease_ms: acquire.lease_ms,
                range: acquire.range.clamp(1, RANGE_MAX),
                claim_ms: place.claim_ms,
                limit_us: place.limit_ms.map(|ms| now_us + ms * 1000),
                seen_us: now_us,
                hears: place.hears,
                order: place.order,
                label: acquire.label.clone(),
            },
        );
        if let Some(before) = before {
            self.tell_holder(before, place.order);
        }
        ticket
    }

    /// P9: the holder of a range may be handing on inside its session, and is told that somebody waits. Every later answer
    /// says so, too; this only saves the time until then.
    fn tell_holder(&mut self, before: Contention, order: Order) {
        let contention = match order {
            Order::Relaxed => Contention::Others,
            Order::Strict => Contention::Strict,
        };
        let Some(grant) = self.resource.grant.as_ref().filter(|_| contention > before) else { return };
        hit(Mark::HolderTold);
        if is_on(Mutant::P9TellsNoHolder) {
            return;
        }
        let now_us = self.env.lease_us;
        self.deliveries.push(Delivery {
            to: grant.id.session,
            now_us,
            contention,
            rest: Rest::Done,
            id: grant.id,
            token: grant.token,
            left_us: grant.left_us(now_us),
            range: grant.range,
            event: Event::Wanted,
        });
    }

    fn touch(&mut self, acquire: &Acquire) {
        let now_us = self.env.lease_us;
        let Patience::Queue(place) = &acquire.patience else { return };
        let queue = &mut self.resource.queue;
        let Some(mut at) = queue.iter().position(|entry| entry.id == acquire.id) else { return };
        let earlier = place.ticket.filter(|ticket| *ticket < queue[at].ticket && !is_on(Mutant::P6LosesPlace));
        let is_later = |ticket: u64| queue.iter().take(TICKET_STEPS).position(|e| e.ticket > ticket);
        let back = earlier.and_then(|ticket| Some((ticket, is_later(ticket)?)));
        let Some(mut entry) = queue.remove(at) else { return };
        entry.seen_us = now_us;
        entry.limit_us = place.limit_ms.map(|ms| now_us + ms * 1000);
        // It was passed over, and a copy of its first request, which knew no ticket yet, put it at the tail.
        if let Some((ticket, spot)) = back {
            hit(Mark::TicketMended);
            (entry.ticket, at) = (ticket, spot);
        }
        queue.insert(at, entry);
    }

    fn renew(&mut self, renew: &Renew) -> (Outcome, Rest) {
        let rest = self.settle();
        if self.is_late(renew.not_after_us) {
            hit(Mark::RenewLate);
            return (Outcome::Late, rest);
        }
        let now_us = self.env.lease_us;
        if self.resource.grant.is_none() && is_on(Mutant::P3RenewRecreates) {
            let Renew { id, token, lease_ms: length_ms, .. } = *renew;
            let (state, label) = (GrantState::Held, String::new());
            let range = 1;
            self.resource.grant = Some(Grant { id, token, range, since_us: now_us, length_ms, state, label });
        }
        let known = |g: &&mut Grant| match is_on(Mutant::P3RenewByAnyone) {
            true => g.id.session == renew.id.session,
            false => g.id == renew.id && g.token == renew.token && (g.is_held() || is_on(Mutant::P23RenewRevives)),
        };
        let Some(grant) = self.resource.grant.as_mut().filter(known) else {
            hit(Mark::RenewNotHeld);
            return (Outcome::Lost { how: LostHow::NotHeld }, rest);
        };
        if grant.state == GrantState::Revoked {
            hit(Mark::RenewRevoked);
            return (Outcome::Lost { how: LostHow::Revoked }, rest);
        }
        let is_kept = match (renew.from, grant.state) {
            (From::Now, _) => {
                let is_kept = grant.is_kept_until(now_us, renew.lease_ms);
                (grant.since_us, grant.length_ms) = (now_us, renew.lease_ms);
                is_kept
            }
            // Never a shorter one: a record that is kept until a moment that has passed is forgotten under its holder.
            (From::Grant, GrantState::Pushed) => {
                hit(Mark::FixedClaimed);
                grant.length_ms = grant.length_ms.max(renew.lease_ms);
                false
            }
            // Claimed before: the answer to that was lost. A fixed lease is never lengthened.
            (From::Grant, _) => {
                hit(Mark::FixedClaimedAgain);
                true
            }
        };
        grant.state = GrantState::Held;
        if !is_kept {
            self.resource.keep_until_us = grant.keep_until_us(self.env);
        }
        (Outcome::Renewed { left_us: grant.left_us(now_us) }, rest)
    }

    /// The grant that is given back is not ended for its age first: it ends here anyway, who comes next is the same, and
    /// the usual release needs no clock.
    fn release(&mut self, id: GrantId, token: Token, used: Token) -> (Outcome, Rest) {
        let held = self.resource.held_by(id).is_some_and(|g| g.token == token) || is_on(Mutant::P3ReleaseByAnyone);
        if held {
            return (Outcome::Released, self.give_back(used));
        }
        let repeated = self.resource.was_given_back(id) && !is_on(Mutant::P3ForgetsRelease);
        hit(if repeated { Mark::ReleaseRepeated } else { Mark::ReleaseNotHeld });
        let outcome = if repeated { Outcome::Released } else { Outcome::NotHeld };
        (outcome, self.settle())
    }

    fn leave(&mut self, id: GrantId, used: Token) -> (Outcome, Rest) {
        if let Some(at) = self.resource.position(id) {
            hit(Mark::LeftQueue);
            self.resource.queue.remove(at);
            let rest = self.settle();
            if !is_on(Mutant::P10TellsOnce) {
                self.deliveries.extend(next_waiters(self.resource, self.env));
            }
            return (Outcome::Left { was: Was::Queued }, rest);
        }
        if self.resource.held_by(id).is_some() && !is_on(Mutant::P16LeaveKeeps) {
            hit(Mark::LeftGranted);
            return (Outcome::Left { was: Was::Granted }, self.give_back(used));
        }
        hit(Mark::LeftAbsent);
        (Outcome::Left { was: Was::Absent }, self.settle())
    }

    fn cool_down(&mut self, id: GrantId, used: Token, for_ms: u64) -> (Outcome, Rest) {
        if !cool_down(self.resource, self.env, (id, used), for_ms) {
            return self.leave(id, used);
        }
        let rest = self.settle();
        self.deliveries.extend(next_waiters(self.resource, self.env));
        (Outcome::Left { was: Was::Granted }, rest)
    }

    /// More tokens for a grant that is held: nothing of it ends earlier or later by that, and it needs no `not_after`.
    fn reserve(&mut self, id: GrantId, token: Token, asked: u64) -> (Outcome, Rest) {
        let rest = self.settle();
        let wall_us = self.env.wall_us;
        let known = |g: &&mut Grant| g.id == id && g.token == token && g.is_held() || is_on(Mutant::P19ReservesForAll);
        let Some(grant) = self.resource.grant.as_mut().filter(known) else {
            hit(Mark::ReserveNotHeld);
            return (Outcome::Lost { how: LostHow::NotHeld }, rest);
        };
        if grant.state == GrantState::Revoked {
            return (Outcome::Lost { how: LostHow::Revoked }, rest);
        }
        grant.range = grant.range.max(range(asked, token, wall_us));
        hit(Mark::RangeExtended);
        let range = grant.range;
        if self.env.lease_us + grant.reserved().get().saturating_sub(wall_us) > grant.end_us() {
            self.resource.keep_until_us = self.resource.keep_until_us.max(grant.keep_until_us(self.env));
        }
        (Outcome::Reserved { range }, rest)
    }

    fn give_back(&mut self, used: Token) -> Rest {
        let Some(ended) = self.resource.grant.take() else { return Rest::Done };
        self.resource.last = ended.used(used);
        if self.resource.last > ended.token {
            hit(Mark::RangeUsed);
        }
        self.resource.released = Some(ended.id);
        if is_on(Mutant::P5WakeOnly) {
            return Rest::Done;
        }
        let rest = self.settle();
        let is_idle = self.resource.grant.is_none() && self.resource.queue.is_empty();
        if is_idle && ended.length_ms > RETENTION_MS {
            self.resource.keep_until_us = Resource::keep_from(self.env.lease_us);
        }
        rest
    }

    fn revoke(&mut self, holder: PublicId, token: Token, grace_ms: u64) -> (Outcome, Rest) {
        let rest = self.settle();
        let Some(told) = mark(self.resource, self.env, holder, token, grace_ms) else {
            hit(Mark::RevokeMissed);
            return (Outcome::NotHeld, rest);
        };
        let left_us = told.left_us;
        self.deliveries.push(told);
        let rest = self.settle();
        self.deliveries.extend(next_waiters(self.resource, self.env));
        (Outcome::Revoking { left_us }, rest)
    }

    fn inspect(&self) -> Outcome {
        let now_us = self.env.lease_us;
        let live = self.resource.grant.as_ref().filter(|g| g.end_us() > now_us);
        let holder = live.map(|g| Holder {
            id: g.id.public(),
            token: g.token,
            left_us: g.left_us(now_us),
            label: g.label.clone(),
            state: g.state,
        });
        Outcome::Inspected(Inspection { holder, waiters: self.resource.queue.len() as u64 })
    }

    fn is_late(&self, not_after_us: u64) -> bool {
        self.env.lease_us > not_after_us && !is_on(Mutant::P4RunsLate)
    }

    fn holder_left_us(&self) -> u64 {
        self.resource.grant.as_ref().map_or(0, |g| g.left_us(self.env.lease_us))
    }
}
