//! How a lease is entered, kept and lost: grants that are pushed, claims, and renewals.
//!
//! A grant reaches its session in three ways: as the answer to an acquire (`heard.rs`), as a message in the inbox, and as
//! the answer to the claim of such a message. All three end in [`State::enter`], which makes the hold and tells the caller.
//!
//! The hard part is what comes twice. A look that was under way when the push came may be granted *again*, with a larger
//! token, after the first grant has lapsed: somebody may have held in between, so the guard of the first must not live on
//! by the second. The tokens tell them apart: the same one is the same grant, said again; a larger one supersedes it.

use std::sync::Arc;

use leasehold_spec::limits::REVOKE_GRACE_MS;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Contention, Delivery, Event, LostHow, Name, Outcome, Rest, Token};

use super::attempt::{Claim, Holding, Phase, Renewal, Verdict};
use super::clock::Term;
use super::errand::Renewing;
use super::heard::Heard;
use super::hold::Hold;
use super::state::State;
use super::watch::Then;
use crate::error::Lost;

/// How a lease is entered.
#[derive(Clone, Copy)]
pub(crate) struct Entering {
    pub(crate) token: Token,
    pub(crate) term: Term,
    pub(crate) claim: Claim,
    pub(crate) level: Contention,
}

impl State {
    /// A grant was pushed, or marked.
    pub(crate) fn pushed(&mut self, name: Name, push: &Delivery) {
        let now_us = self.world.now_us();
        if push.rest == Rest::More {
            self.watch(&name, push.token, now_us, 0, Then::Settle);
        }
        let counter = push.id.counter;
        let known = self.attempts.get_mut(&counter).filter(|attempt| attempt.id == push.id);
        let Some(attempt) = known else {
            // A ghost: an attempt that is closed was granted all the same. It is never believed, and given back.
            if push.event == Event::Granted && push.id.session == self.session && !is_on(Mutant::P14IgnoresGhost) {
                hit(Mark::GhostPush);
                self.return_ghost(name, push.id, now_us, push.left_us);
            }
            return;
        };
        match (push.event, &attempt.phase) {
            (Event::Granted, Phase::Asking { .. } | Phase::Queued { .. }) if push.token > attempt.latest => {
                self.pushed_grant(counter, now_us, push);
            }
            (Event::Granted, _) if attempt.holds_before(push.token) => self.superseded(counter, push.token, now_us),
            (Event::Granted, _) => hit(Mark::OlderPush),
            (Event::Revoked, Phase::Held(holding))
                if holding.hold.token == push.token && !is_on(Mutant::P10Unheard) =>
            {
                self.revoked(counter, now_us, push);
            }
            // It has overtaken the answer, or the message, by which the grant is told: nobody enters on that any more.
            (Event::Revoked, Phase::Asking { .. } | Phase::Queued { .. }) if push.token > attempt.latest => {
                self.finish(counter, Verdict::Again);
            }
            (Event::Revoked, _) => {}
        }
        if let Some(slot) = self.slots.get_mut(&name) {
            slot.guess = push.contention;
        }
        self.arm(counter);
    }

    /// Told in time: the store waits for our release until the grace is over, which began when the message was made.
    fn revoked(&mut self, counter: u64, now_us: u64, push: &Delivery) {
        hit(Mark::PushRevoked);
        let made_us = self.clock.local_of(push.now_us, now_us).filter(|made_us| *made_us <= now_us);
        if let Some(Phase::Held(holding)) = self.attempts.get(&counter).map(|attempt| &attempt.phase) {
            holding.hold.keep_until(made_us.map_or(0, |made_us| Term::of(made_us, push.left_us).until_us));
        }
        self.end(counter, Lost::Revoked, now_us.saturating_add(push.left_us));
    }

    /// Enters without a round trip when the push can be placed in time, and asks first when it cannot (P12).
    fn pushed_grant(&mut self, counter: u64, now_us: u64, push: &Delivery) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let left_us = push.left_us.min(attempt.terms.lease_us());
        let made_us = match is_on(Mutant::P12PushFromReceipt) {
            true => Some(now_us),
            // A moment later than the arrival is nonsense: the server's clock jumped.
            false => self.clock.local_of(push.now_us, now_us).filter(|made_us| *made_us <= now_us),
        };
        match made_us {
            Some(made_us) if now_us < made_us + left_us / 2 && attempt.may_enter_on_a_claim(left_us) => {
                hit(Mark::PushEntered);
                let (token, term, level) = (push.token, Term::of(made_us, left_us), push.contention);
                self.enter(counter, now_us, Entering { token, term, claim: Claim::Due, level });
            }
            _ => {
                hit(Mark::PushClaimed);
                self.claim_first(counter, now_us, push.token, now_us + left_us);
            }
        }
    }

    /// Claims a grant before anybody enters on it.
    pub(crate) fn claim_first(&mut self, counter: u64, now_us: u64, token: Token, until_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        // Said again while its claim is under way.
        if attempt.token() != Some(token) {
            attempt.latest = token;
            self.set_phase(counter, Phase::Claiming { token, until_us, next_us: now_us });
        }
    }

    /// Makes the attempt a held lease and tells the caller.
    pub(crate) fn enter(&mut self, counter: u64, now_us: u64, entering: Entering) {
        let Entering { token, term, claim, level } = entering;
        let world = Arc::clone(&self.world);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.latest = token;
        if let Phase::Held(holding) = &attempt.phase {
            if holding.hold.token == token {
                // The same grant, said again.
                holding.hold.extend(term.until_us);
                return;
            }
            self.superseded(counter, token, now_us);
            return;
        }
        let hold = Arc::new(Hold::new(attempt.name.clone(), attempt.id, token, term.until_us, world));
        hold.set_contention(level);
        let is_whole = attempt.terms.renewal == Renewal::Never && claim == Claim::Done;
        let renew_us = if is_whole { u64::MAX } else { term.renew_us };
        attempt.phase = Phase::Held(Holding { hold: Arc::clone(&hold), granted_us: now_us, renew_us, claim });
        attempt.tell(&mut self.words, Verdict::Granted(hold));
    }

    /// The grant that is held has ended, and a late look had the same attempt granted anew: somebody may have held in
    /// between, so the guard must not live on by it.
    fn superseded(&mut self, counter: u64, token: Token, now_us: u64) {
        hit(Mark::Superseded);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        if let Phase::Held(holding) = &attempt.phase {
            self.words.lost(&holding.hold, Lost::Superseded);
        }
        attempt.phase = Phase::Ended { token, until_us: u64::MAX };
        self.give_back(counter, now_us);
    }

    /// The answer to a renewal or a claim.
    pub(crate) fn heard_renew(&mut self, one: &Renewing, heard: Heard) {
        let Renewing { counter, name, renew, asked } = one;
        let (counter, heard_us) = (*counter, self.world.now_us());
        let heard = self.hear(asked, heard);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.unask(asked);
        if let Ok(answer) = &heard {
            attempt.tries.passed(answer.now_us);
        }
        // A look behind the claim of a grant that had lapsed may have been granted anew: what became of the first says
        // nothing of the second.
        let is_of_this_grant = attempt.token() == Some(renew.token);
        if !is_of_this_grant {
            hit(Mark::RenewalOfAnother);
        }
        match heard {
            Ok(answer) => {
                let since_us = self.note(name, &answer, asked.sent_us, heard_us);
                if is_of_this_grant {
                    self.renew_says(counter, renew.lease_ms, since_us, heard_us, &answer);
                }
            }
            Err(_) if !is_of_this_grant => {}
            // Unknown is not lost: it is asked again until the validity ends.
            Err(_) => {
                hit(Mark::RenewalUnanswered);
                let pause_us = match is_on(Mutant::P13RenewsOnce) {
                    true => attempt.terms.lease_us(),
                    false => attempt.terms.answer_within_us() / 2,
                };
                self.set_next(counter, heard_us + pause_us);
            }
        }
        self.arm(counter);
    }

    fn renew_says(&mut self, counter: u64, asked_ms: u64, since_us: u64, heard_us: u64, answer: &Answer) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let lease_us = attempt.terms.lease_us();
        match (&mut attempt.phase, &answer.outcome) {
            (Phase::Held(holding), Outcome::Renewed { left_us }) => {
                let from_us = if is_on(Mutant::P12FromReceipt) { heard_us } else { since_us };
                let term = Term::of(from_us, (*left_us).min(lease_us));
                holding.hold.extend(term.until_us);
                holding.hold.set_contention(answer.contention);
                holding.claim = Claim::Done;
                holding.renew_us = match attempt.terms.renewal {
                    Renewal::Never => u64::MAX,
                    // Lengthened meanwhile, or the last piece of a longest hold: the next look at it knows.
                    _ if asked_ms < attempt.terms.lease_ms => heard_us,
                    _ => term.renew_us,
                };
            }
            (Phase::Claiming { token, .. }, Outcome::Renewed { left_us }) => {
                let (token, term) = (*token, Term::of(since_us, (*left_us).min(lease_us)));
                self.enter(counter, heard_us, Entering { token, term, claim: Claim::Done, level: answer.contention });
            }
            (Phase::Held(holding), Outcome::Lost { how }) => {
                hit(Mark::RenewalLost);
                let why = why_lost(*how, holding.hold.token, answer.highest);
                // Revoked: the store waits for our release until its grace is over. Otherwise nothing is left there.
                let left_us = if why == Lost::Revoked { REVOKE_GRACE_MS * 1000 } else { 0 };
                self.end(counter, why, heard_us + left_us);
            }
            (Phase::Claiming { .. }, Outcome::Lost { how: LostHow::Revoked }) => self.finish(counter, Verdict::Again),
            (Phase::Claiming { .. }, Outcome::Lost { .. }) => {
                hit(Mark::ClaimLost);
                attempt.latest = attempt.latest.max(answer.highest);
                attempt.phase = Phase::Queued { next_us: heard_us };
            }
            (Phase::Held(_) | Phase::Claiming { .. }, Outcome::Late) => self.set_next(counter, heard_us),
            _ => {}
        }
    }

    /// The store ended a lease. Its guard may still be out: what is left goes back when that is dropped.
    pub(super) fn end(&mut self, counter: u64, why: Lost, until_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let Phase::Held(holding) = &attempt.phase else { return };
        let token = holding.hold.token;
        self.words.lost(&holding.hold, why);
        attempt.asked = None;
        attempt.phase = Phase::Ended { token, until_us };
    }
}

fn why_lost(how: LostHow, token: Token, highest: Token) -> Lost {
    match how {
        LostHow::Revoked => Lost::Revoked,
        LostHow::NotHeld if highest > token => Lost::Superseded,
        LostHow::NotHeld if highest == token => Lost::Expired,
        LostHow::NotHeld => Lost::Forgotten,
    }
}
