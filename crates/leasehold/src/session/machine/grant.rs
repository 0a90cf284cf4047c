//! Grants: how a lease is entered, shortened and lost.
//!
//! A grant reaches its session in three ways: in the reply to an acquire, as a message in the inbox, and in the reply to
//! the claim of such a message. All three come to [`enter`], which makes the hold and notifies the caller.
//!
//! The hard part is a grant that comes twice. A re-check that was in flight when the message came may be granted *again*,
//! with a larger token, after the first grant has lapsed. Somebody may have held in between, so the guard of the first
//! grant must not live on by the second. The tokens tell them apart: an equal token is the same grant, a larger one
//! supersedes it.

use std::sync::Arc;

use leasehold_spec::limits::REVOKE_GRACE_MS;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, Delivery, Event, GrantId, Kind, LostHow, Name, Rest, Token};

use super::attempt::{Phase, Requester, Shortened};
use super::effects::Verdict;
use super::hand_over::adopt;
use super::holding::{Claim, Holding};
use super::names::WatchAction;
use super::release::{finish, give_back, note_present, return_ghost};
use super::turn::Turn;
use super::upgrade;
use crate::clock::{Term, margin_us};
use crate::lost::LostReason;
use crate::session::expiry::Lifetime;
use crate::session::hold::{Grant, Hold};
use crate::session::local::budget::HandOverBudget;
use crate::session::terms::Renewal;

/// A grant that is entered.
#[derive(Clone, Copy)]
pub(crate) struct Entering {
    pub(crate) token: Token,
    /// How many tokens are reserved (P19). Of a barrier, the place of the arrival (P52).
    pub(crate) range: u64,
    pub(crate) term: Term,
    pub(crate) claim: Claim,
    pub(crate) others: Others,
}

/// Whether others wait, and when the store said so, by its clock.
#[derive(Clone, Copy)]
pub(crate) struct Others {
    pub(crate) level: Contention,
    pub(crate) said_us: u64,
}

/// Accepts a message: a grant was made or revoked, others wait for it, or the lease that a waiter waits for ends.
pub(crate) fn accept_message(turn: &mut Turn<'_>, name: &Name, message: &Delivery) {
    if message.event == Event::Ending {
        // It concerns the name, whichever attempt of ours waits for it by now.
        return end_of_another(turn, name, message);
    }
    if message.rest == Rest::More {
        turn.ledger.watch(name, message.token, turn.now.us(), 0, WatchAction::Settle);
    }
    let (counter, token) = (message.id.counter, message.token);
    let known = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.id == message.id);
    let Some(attempt) = known else {
        // A ghost: a closed attempt was granted. It is never believed, and is returned.
        let is_ours = message.id.session == turn.ledger.ids.session;
        if message.event == Event::Granted && is_ours && !is_on(Mutant::P14IgnoresGhost) {
            hit(Mark::GhostPush);
            return_ghost(turn, (name, message.id), message.left_us);
        }
        return;
    };
    let others = Others { level: message.contention, said_us: message.now_us };
    match (message.event, &attempt.phase) {
        (Event::Granted, Phase::Asking { .. } | Phase::Queued { .. }) if token > attempt.latest => {
            accept_granted_push(turn, counter, message);
        }
        (Event::Granted, _) if attempt.holds_before(token) => supersede(turn, counter, token),
        (Event::Granted, Phase::Returning(_)) => note_present(turn.ledger, counter, message.now_us, turn.now.us()),
        (Event::Granted, _) => hit(Mark::OlderPush),
        (Event::Revoked, Phase::Held(holding)) if holding.budget.grant() == token && !is_on(Mutant::P10Unheard) => {
            revoke(turn, counter, message);
        }
        (Event::Wanted, Phase::Held(holding)) if holding.budget.grant() == token => {
            hit(Mark::WantedHeard);
            note_others(turn, counter, others);
        }
        (Event::Revoked, Phase::Asking { .. } | Phase::Queued { .. }) if token > attempt.latest => {
            return_unentered(turn, counter, message);
        }
        // The reply to the claim is in flight and says what was left before: the client would use the grant for longer than
        // the store keeps it.
        (Event::Revoked, Phase::Claiming { token: claimed, .. }) if *claimed == token => {
            finish(turn, counter, Verdict::Again);
        }
        // The reply comes by another connection: keep the statement until the grant is entered.
        (Event::Wanted, Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. })
            if token >= attempt.latest =>
        {
            hit(Mark::WantedEarly);
            attempt.early.wanted = Some((token, message.contention, message.now_us));
        }
        (Event::Revoked | Event::Wanted | Event::Ending, _) => {}
    }
    turn.ledger.names.set_contention(name, message.contention);
    turn.arm(counter);
}

/// The lease that we wait for was revoked, and ends earlier than a reply said (P10). The message may be old: its time
/// counts from when it was made. Counted from too early, it costs a re-check that learns the rest.
fn end_of_another(turn: &mut Turn<'_>, name: &Name, message: &Delivery) {
    hit(Mark::PushEnding);
    if is_on(Mutant::P10WaitsOn) {
        return;
    }
    let made_us = turn
        .server
        .clock
        .local_of(message.now_us, turn.now.us())
        .map_or(turn.now.us(), |made_us| made_us.min(turn.now.us()));
    turn.ledger.recheck_in(name, made_us, message.left_us.min(REVOKE_GRACE_MS * 1000));
}

/// Accepts a grant that a message brings. If the client can tell how much of it is left, it enters without a round trip;
/// otherwise it claims first (P12).
fn accept_granted_push(turn: &mut Turn<'_>, counter: u64, message: &Delivery) {
    if turn.server.links.note_pushed(turn.now.us()) {
        turn.ledger.agenda.wake();
    }
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let (token, range) = (message.token, message.range);
    let made_us = match is_on(Mutant::P12PushFromReceipt) {
        true => Some(turn.now.us()),
        // A moment after the arrival makes no sense: the server's clock jumped.
        false => turn.server.clock.local_of(message.now_us, turn.now.us()).filter(|made_us| *made_us <= turn.now.us()),
    };
    let left_us = attempt.left_us(token, made_us.unwrap_or(turn.now.us()), message.left_us);
    match made_us {
        Some(made_us) if turn.now.us() < made_us + left_us / 2 && attempt.may_enter_on_a_claim(left_us) => {
            hit(Mark::PushEntered);
            let others = Others { level: message.contention, said_us: message.now_us };
            let (term, claim) = (Term::of(made_us, left_us), Claim::Due);
            enter(turn, counter, Entering { token, range, term, claim, others });
        }
        _ => {
            hit(Mark::PushClaimed);
            claim_first(turn, counter, (token, range), turn.now.us() + left_us);
        }
    }
}

/// Claims a grant before anybody enters on it. Repeated while its claim is in flight, this changes nothing.
pub(crate) fn claim_first(turn: &mut Turn<'_>, counter: u64, (token, range): (Token, u64), until_us: u64) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    if attempt.token() != Some(token) {
        attempt.latest = token;
        let usual_us = turn.now.us() + turn.server.usual_us();
        attempt.phase = Phase::Claiming { token, range, until_us, next_us: turn.now.us(), usual_us };
    }
}

/// Makes the attempt a held lease, and notifies its caller, or the first waiter of its local queue.
pub(crate) fn enter(turn: &mut Turn<'_>, counter: u64, entering: Entering) {
    let Entering { token, range, term, claim, others } = entering;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    attempt.latest = token;
    let (lease_us, rtt_us) = (attempt.terms.lease_us(), turn.server.rtt_us());
    if let Phase::Held(holding) = &mut attempt.phase {
        if holding.budget.grant() != token {
            return supersede(turn, counter, token);
        }
        // The same grant, repeated.
        attempt.is_of_earlier_run = false;
        holding.hold.extend(&term);
        holding.budget.reserved(Some(range));
        holding.budget.renewed(&term, lease_us, rtt_us);
        return note_others(turn, counter, others);
    }
    let (number, caller, sticky_us) = match &attempt.requester {
        Requester::Queue(queue) => match turn.ledger.queues.get_mut(*queue).and_then(|queue| queue.next()) {
            Some(waiter) => (waiter.number, Some(waiter.caller), waiter.sticky_us),
            None => {
                // All waiters are gone, and their dropped futures are about to say so.
                let until_us = term.until_us;
                attempt.phase = Phase::Claiming { token, range, until_us, next_us: u64::MAX, usual_us: 0 };
                return give_back(turn, counter);
            }
        },
        _ => (counter, attempt.take_caller(), attempt.terms.sticky_us),
    };
    let (place, range) = if attempt.terms.is_arrival() { (range, 1) } else { (1, range) };
    let mut budget = HandOverBudget::new(token, range);
    budget.renewed(&term, lease_us, rtt_us);
    budget.note_contention(others.level, others.said_us, turn.now.us(), lease_us);
    if let Some((_, level, said_us)) = attempt.early.wanted.take().filter(|(wanted, ..)| *wanted == token) {
        budget.note_contention(level, said_us, turn.now.us(), lease_us);
    }
    let lifetime = Lifetime::new(&turn.server.contact, &attempt.terms, &term, turn.now.us());
    let grant =
        Grant { name: attempt.name.clone(), id: attempt.id, world: Arc::clone(&turn.ledger.world), lifetime, place };
    let hold = Arc::new(Hold::new(grant, token, term.until_us));
    hold.set_contention(budget.contention());
    let is_whole = attempt.terms.renewal == Renewal::Never && claim == Claim::Done;
    let renew_us = if is_whole { u64::MAX } else { term.renew_us };
    let (kept_until_us, granted_us) = (None, turn.now.us());
    let (out, lowered, is_spent) = (Arc::clone(&hold), None, false);
    let holding =
        Holding { hold: out, budget, kept_until_us, sticky_us, granted_us, renew_us, claim, lowered, is_spent };
    attempt.phase = Phase::Held(holding);
    let terms = Arc::clone(&attempt.terms);
    upgrade::complete(turn, &terms);
    turn.ledger.effects.verdict(number, caller, Verdict::Granted(hold));
    adopt(turn.ledger, counter);
}

/// Notes whether others wait for what this attempt holds. If so, a lease that is kept for nobody is released.
pub(crate) fn note_others(turn: &mut Turn<'_>, counter: u64, others: Others) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let lease_us = attempt.terms.lease_us();
    let Phase::Held(holding) = &mut attempt.phase else { return };
    holding.budget.note_contention(others.level, others.said_us, turn.now.us(), lease_us);
    holding.hold.set_contention(holding.budget.contention());
    if !holding.is_in_use() && holding.budget.contention() != Contention::None {
        give_back(turn, counter);
    }
}

/// A part of the store keeps a grant for less time than it had said, or than a reply says that is in flight.
pub(crate) fn shorten(turn: &mut Turn<'_>, id: GrantId, to: Shortened) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&id.counter).filter(|attempt| attempt.id == id) else { return };
    attempt.early.shortened = Some(attempt.early.shortened.map_or(to, |before| before.and(to)));
    let sure_us = to.until_us.saturating_sub(margin_us(attempt.terms.lease_us()));
    let Phase::Held(holding) = &mut attempt.phase else { return };
    if holding.budget.grant() == to.token {
        holding.shorten(holding.hold.valid_until_us().saturating_sub(sure_us));
        turn.arm(id.counter);
    }
}

/// The held grant was revoked. The store waits for our release until the grace is over, which began when the message was
/// made.
fn revoke(turn: &mut Turn<'_>, counter: u64, message: &Delivery) {
    hit(Mark::PushRevoked);
    let made_us = turn.server.clock.local_of(message.now_us, turn.now.us()).filter(|made_us| *made_us <= turn.now.us());
    if let Some(Phase::Held(holding)) = turn.ledger.attempts.get(&counter).map(|attempt| &attempt.phase) {
        holding.hold.keep_until(made_us.map_or(0, |made_us| Term::of(made_us, message.left_us).until_us));
    }
    end(turn, counter, LostReason::Revoked, turn.now.us().saturating_add(message.left_us));
}

/// The message of a revocation came, and the one that brings the grant did not. Nobody enters on that grant any more. The
/// store keeps it until the grace is over, unless it is released.
fn return_unentered(turn: &mut Turn<'_>, counter: u64, message: &Delivery) {
    if is_on(Mutant::P10ForgetsUnentered) {
        return finish(turn, counter, Verdict::Again);
    }
    let until_us = turn.now.us().saturating_add(message.left_us);
    turn.ledger.tell(counter, Verdict::Again);
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    attempt.latest = message.token;
    attempt.phase = Phase::Ended { token: message.token, used: message.token, until_us };
    give_back(turn, counter);
}

/// The held grant has ended, and a late re-check had the same attempt granted anew.
fn supersede(turn: &mut Turn<'_>, counter: u64, token: Token) {
    hit(Mark::Superseded);
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    if let Phase::Held(holding) = &attempt.phase {
        turn.ledger.effects.end_hold(&holding.hold, LostReason::Superseded);
    }
    attempt.phase = Phase::Ended { token, used: token, until_us: u64::MAX };
    give_back(turn, counter);
}

/// The store says that a grant is not ours any more.
pub(crate) fn lose(turn: &mut Turn<'_>, counter: u64, how: LostHow, highest: Token) {
    if upgrade::awaits_upgrade(turn, counter, how) {
        return;
    }
    let Some(attempt) = turn.ledger.attempts.get(&counter) else { return };
    let Phase::Held(holding) = &attempt.phase else { return };
    // A pool counts its last token up when a lease ends (P32).
    let counted = u64::from(attempt.terms.take.kind != Kind::Mutex);
    let reason = match holding.budget.why_lost(how, highest, counted) {
        // The higher token belongs to a grant beside this one.
        LostReason::Superseded if !attempt.terms.take.is_exclusive() => LostReason::Expired,
        reason => reason,
    };
    // After a revocation the store waits for our release until its grace is over. Otherwise nothing is left there.
    let left_us = if reason == LostReason::Revoked { REVOKE_GRACE_MS * 1000 } else { 0 };
    end(turn, counter, reason, turn.now.us() + left_us);
}

/// The store has ended a lease. Its guard may still be out: the rest is returned when the guard is dropped.
pub(crate) fn end(turn: &mut Turn<'_>, counter: u64, reason: LostReason, until_us: u64) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let Phase::Held(holding) = &attempt.phase else { return };
    let (token, used, is_in_use) = (holding.budget.grant(), holding.hold.token, holding.is_in_use());
    turn.ledger.effects.end_hold(&holding.hold, reason);
    attempt.in_flight = None;
    attempt.phase = Phase::Ended { token, used, until_us };
    // The waiters behind it go on at once, however long its guard stays out.
    turn.ledger.go_on(counter, turn.now.us());
    upgrade::follow_end(turn, counter);
    if !is_in_use {
        give_back(turn, counter);
    }
}
