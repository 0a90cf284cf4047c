//! Looking after a name when somebody's lease on it has ended.
//!
//! A push can be lost, and its receiver be frozen or dead: nothing at the store happens by itself when a lease runs out, so
//! somebody has to ask. One timer per name and session does, however many wait: whoever handed over sets it to the end of
//! the claim (P7), waiters to the end of the lease that they queue for (P15), a revocation to the end of its grace (P10),
//! and an answer that says MORE to now (P1).

use std::sync::Arc;

use leasehold_spec::limits::REVOKE_GRACE_MS;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Delivery, Name, Token};

use super::attempt::{Asked, Attempt, Phase};
use super::bounds::{ANSWER_MAX_US, RETRY_US};
use super::errand::Errand;
use super::heard::Heard;
use super::state::{State, Wake};
use super::window::Kind;
use crate::store::Fault;

/// So much later than a lease has ended: earlier the answer would be that it has not.
const SETTLED_US: u64 = 2_000;

/// When to look after a lease of which so much is left. Not before its end: the answer would be "nothing to do", and nobody
/// would ask again.
const fn behind_us(now_us: u64, left_us: u64) -> u64 {
    now_us.saturating_add(left_us).saturating_add(left_us / 500 + SETTLED_US)
}

/// Whose lease to look after, and when that ends.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    token: Token,
    /// When that lease ends. `u64::MAX`: that was looked after.
    due_us: u64,
    /// When to look because the store has said that the holder died, or was revoked: what was answered before that, and is
    /// heard later, moves only the end. `u64::MAX`: it has said nothing.
    told_us: u64,
    /// The alarm that is set for the first of them: earlier, where the end has been moved back since.
    alarm_us: u64,
    then: Then,
}

/// What to do when a watched lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// A waiter of ours looks, if there is one: it settles as well, and hears when to look again. A settle alone would
    /// find a lease that was renewed, and the waiter would miss its new end by up to its own floor.
    Look,
    /// Settle only: a look would be refused, or there is more to settle.
    Settle,
}

impl State {
    /// Looks after a name when the lease with this token has ended: one timer per name and session, however many wait.
    pub(crate) fn watch(&mut self, name: &Name, token: Token, now_us: u64, left_us: u64, then: Then) {
        let slot = self.slots.entry(name.clone()).or_default();
        // What was said of an earlier grant no longer matters.
        if slot.watch.is_some_and(|watch| watch.token > token) {
            return;
        }
        let due_us = behind_us(now_us, left_us);
        let (told_us, alarm_us) = slot.watch.map_or((u64::MAX, u64::MAX), |watch| (watch.told_us, watch.alarm_us));
        slot.watch = Some(Watch { token, due_us, told_us, alarm_us, then });
        self.ring_at(name, due_us);
    }

    /// Sets an earlier alarm.
    fn ring_at(&mut self, name: &Name, at_us: u64) {
        let Some(watch) = self.slots.get_mut(name).and_then(|slot| slot.watch.as_mut()) else { return };
        if at_us < watch.alarm_us {
            watch.alarm_us = at_us;
            self.watches.set(at_us, name.clone());
        }
        if at_us < self.planned_us {
            self.wake = Wake::Now;
        }
    }

    /// The lease that we wait for was revoked, and ends earlier than we were told (P10). The message may be an old one:
    /// what it says to be left counts from when it was made. Counted from too early, it costs a look that hears the rest.
    pub(crate) fn ending(&mut self, name: &Name, now_us: u64, push: &Delivery) {
        hit(Mark::PushEnding);
        if is_on(Mutant::P10WaitsOn) {
            return;
        }
        let made_us = self.clock.local_of(push.now_us, now_us).map_or(now_us, |made_us| made_us.min(now_us));
        self.look_behind(name, made_us, push.left_us.min(REVOKE_GRACE_MS * 1000));
    }

    /// The store says how much is left of the lease on this name, now that its holder was revoked, or has died. A look that
    /// is under way may have been carried out before: then a settle hands over. So may a request that is answered only now,
    /// and what it says to be left is left no more.
    pub(crate) fn look_behind(&mut self, name: &Name, now_us: u64, left_us: u64) {
        let Some(slot) = self.slots.get_mut(name).filter(|slot| slot.attempts > 0) else { return };
        let at_us = behind_us(now_us, left_us);
        let unknown = Watch { token: Token::NONE, due_us: at_us, told_us: at_us, alarm_us: u64::MAX, then: Then::Look };
        let watch = slot.watch.get_or_insert(unknown);
        watch.told_us = watch.told_us.min(at_us);
        self.ring_at(name, at_us);
    }

    /// The names whose watched lease has ended, and what to do about it.
    fn ended_watches(&mut self, now_us: u64) -> Vec<(Name, Then)> {
        let mut ended = Vec::new();
        while let Some((_, name)) = self.watches.pop(now_us) {
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            let Some(watch) = &mut slot.watch else { continue };
            let (is_told, is_due) = (watch.told_us <= now_us, watch.due_us <= now_us);
            let then = if is_told { Then::Look } else { watch.then };
            if is_told {
                watch.told_us = u64::MAX;
            }
            if is_due {
                watch.due_us = u64::MAX;
            }
            // The end was moved back since, by a hand-over, or by a renewal that somebody heard of. Or the store has named
            // another moment, which no answer that is on its way takes back.
            watch.alarm_us = watch.due_us.min(watch.told_us);
            if watch.alarm_us < u64::MAX {
                self.watches.set(watch.alarm_us, name.clone());
            } else {
                slot.watch = None;
                self.sweep(&name);
            }
            if is_told || is_due {
                ended.push((name, then));
            }
        }
        ended
    }

    /// A waiter of ours looks where the lease that it waits for has ended; without one the name is settled.
    pub(crate) fn look_where_a_watch_ended(&mut self, now_us: u64, errands: &mut Vec<Errand>) {
        let Some(home) = self.home().cloned() else { return };
        for (name, then) in self.ended_watches(now_us) {
            let waiter = if then == Then::Look { self.waiter_of(&name) } else { None };
            hit(if waiter.is_some() { Mark::WatchLooked } else { Mark::WatchSettled });
            if let Some(counter) = waiter {
                self.set_next(counter, now_us);
                self.windows.wait(Kind::Look, now_us, counter);
                continue;
            }
            self.windows.settle(name);
        }
        while self.windows.may_settle() {
            let Some(name) = self.windows.next_settle() else { return };
            let asked = self.asked_within(Arc::clone(&home), ANSWER_MAX_US, now_us);
            errands.push(Errand::Settle { name, asked });
            self.windows.sent(Kind::Settle);
        }
    }

    /// A waiter of ours for this name with no look under way, if there is one.
    fn waiter_of(&self, name: &Name) -> Option<u64> {
        let waits = |a: &Attempt| matches!(a.phase, Phase::Queued { .. }) && a.asked.is_none() && a.name == *name;
        let known = self.slots.get(name)?.waiter;
        match self.attempts.get(&known).filter(|attempt| waits(attempt)) {
            Some(_) => Some(known),
            // It went: seldom, so that looking at all of them is cheap enough.
            None => self.attempts.iter().find(|(_, attempt)| waits(attempt)).map(|(counter, _)| *counter),
        }
    }

    /// The answer to a settle that nobody but the queue waited for.
    pub(crate) fn heard_settle(&mut self, name: &Name, asked: &Asked, heard: Heard) {
        let heard_us = self.world.now_us();
        match self.hear(asked, heard) {
            Ok(answer) => {
                self.note(name, &answer, asked.sent_us, heard_us);
            }
            // Damaged, and nobody here wants it.
            Err(Fault::Damaged(_)) if self.slots.get(name).is_none_or(|slot| slot.attempts == 0) => {}
            Err(_) => self.watch(name, Token::NONE, heard_us, RETRY_US, Then::Settle),
        }
    }
}
