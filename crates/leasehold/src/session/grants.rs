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
use leasehold_spec::{Answer, Contention, Delivery, Event, GrantId, LostHow, Name, Outcome, Renew, Rest, Token};

use super::attempt::{Asked, Attempt, Claim, Holding, Phase, Shortened, Verdict};
use super::errand::Reserving;
use super::expiry::Lifetime;
use super::heard::Heard;
use super::hold::{Grant, Hold};
use super::lines::Line;
use super::run::Run;
use super::state::State;
use super::terms::Renewal;
use super::watch::Then;
use crate::clock::{Term, margin_us};
use crate::error::LostReason;

/// How a lease is entered.
#[derive(Clone, Copy)]
pub(crate) struct Entering {
    pub(crate) token: Token,
    /// How many tokens are reserved (P19).
    pub(crate) range: u64,
    pub(crate) term: Term,
    pub(crate) claim: Claim,
    /// Whether others wait, and when the store said so.
    pub(crate) level: Contention,
    pub(crate) said_us: u64,
}

impl State {
    /// A message came: a grant was made, or marked, or others wait for it, or what we wait for ends.
    pub(crate) fn pushed(&mut self, name: Name, push: &Delivery) {
        let now_us = self.world.now_us();
        if push.event == Event::Ending {
            // Of the name, whichever attempt of ours waits for it by now.
            return self.ending(&name, now_us, push);
        }
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
            (Event::Granted, Phase::Returning(_)) => self.there_behind_a_leave(counter, push.now_us, now_us),
            (Event::Granted, _) => hit(Mark::OlderPush),
            (Event::Revoked, Phase::Held(holding))
                if holding.run.grant() == push.token && !is_on(Mutant::P10Unheard) =>
            {
                self.revoked(counter, now_us, push);
            }
            (Event::Wanted, Phase::Held(holding)) if holding.run.grant() == push.token => {
                hit(Mark::WantedHeard);
                self.heard_of_others(counter, push.contention, push.now_us, now_us);
            }
            // It has overtaken the answer, or the message, by which the grant is told: nobody enters on that any more.
            (Event::Revoked, Phase::Asking { .. } | Phase::Queued { .. }) if push.token > attempt.latest => {
                self.finish(counter, Verdict::Again);
            }
            // The answer to the claim is on its way, says what was left before, and would be entered on for longer than the
            // store keeps the grant.
            (Event::Revoked, Phase::Claiming { token, .. }) if *token == push.token => {
                self.finish(counter, Verdict::Again);
            }
            // The answer goes by another link than this: kept for when the grant is entered.
            (Event::Wanted, Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. })
                if push.token >= attempt.latest =>
            {
                hit(Mark::WantedEarly);
                attempt.wanted = Some((push.token, push.contention, push.now_us));
            }
            (Event::Revoked | Event::Wanted | Event::Ending, _) => {}
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
        self.end(counter, LostReason::Revoked, now_us.saturating_add(push.left_us));
    }

    /// A part of the store keeps a grant for less time than it had said, or than an answer says that is on its way.
    pub(crate) fn shortened(&mut self, id: GrantId, word: Shortened) {
        let Some(attempt) = self.attempts.get_mut(&id.counter).filter(|attempt| attempt.id == id) else { return };
        attempt.shortened = Some(attempt.shortened.map_or(word, |before| before.and(word)));
        let sure_us = word.until_us.saturating_sub(margin_us(attempt.terms.lease_us()));
        let Phase::Held(holding) = &mut attempt.phase else { return };
        if holding.run.grant() == word.token {
            let by_us = holding.hold.valid_until_us().saturating_sub(sure_us);
            holding.hold.shorten(by_us);
            holding.run.shorten(by_us);
            self.arm(id.counter);
        }
    }

    /// Enters without a round trip when the push can be placed in time, and asks first when it cannot (P12).
    fn pushed_grant(&mut self, counter: u64, now_us: u64, push: &Delivery) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let made_us = match is_on(Mutant::P12PushFromReceipt) {
            true => Some(now_us),
            // A moment later than the arrival is nonsense: the server's clock jumped.
            false => self.clock.local_of(push.now_us, now_us).filter(|made_us| *made_us <= now_us),
        };
        let left_us = attempt.left_us(push.token, made_us.unwrap_or(now_us), push.left_us);
        match made_us {
            Some(made_us) if now_us < made_us + left_us / 2 && attempt.may_enter_on_a_claim(left_us) => {
                hit(Mark::PushEntered);
                let (token, range, level, said_us) = (push.token, push.range, push.contention, push.now_us);
                let (term, claim) = (Term::of(made_us, left_us), Claim::Due);
                self.enter(counter, now_us, Entering { token, range, term, claim, level, said_us });
            }
            _ => {
                hit(Mark::PushClaimed);
                self.claim_first(counter, now_us, (push.token, push.range), now_us + left_us);
            }
        }
    }

    /// Claims a grant before anybody enters on it.
    pub(crate) fn claim_first(&mut self, counter: u64, now_us: u64, (token, range): (Token, u64), until_us: u64) {
        let usual_us = now_us + self.usual_us();
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        // Said again while its claim is under way.
        if attempt.token() != Some(token) {
            attempt.latest = token;
            self.set_phase(counter, Phase::Claiming { token, range, until_us, next_us: now_us, usual_us });
        }
    }

    /// Makes the attempt a held lease and tells its caller, or the first who waits in its line.
    pub(crate) fn enter(&mut self, counter: u64, now_us: u64, entering: Entering) {
        let Entering { token, range, term, claim, level, said_us } = entering;
        let (world, rtt_us) = (Arc::clone(&self.world), self.rtt_us);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.latest = token;
        let lease_us = attempt.terms.lease_us();
        if let Phase::Held(holding) = &mut attempt.phase {
            if holding.run.grant() == token {
                // The same grant, said again.
                holding.hold.extend(&term);
                holding.run.reserved(Some(range));
                holding.run.heard(&term, lease_us, rtt_us);
                self.heard_of_others(counter, level, said_us, now_us);
                return;
            }
            self.superseded(counter, token, now_us);
            return;
        }
        let (number, caller, sticky_us) = match attempt.line.map(|line| self.lines.get_mut(&line).and_then(Line::next))
        {
            None => (counter, attempt.caller.take(), attempt.terms.sticky_us),
            Some(Some(waiter)) => (waiter.number, Some(waiter.caller), waiter.sticky_us),
            Some(None) => {
                // They have gone, all of them, and their futures are about to say so.
                let (until_us, next_us) = (term.until_us, u64::MAX);
                attempt.phase = Phase::Claiming { token, range, until_us, next_us, usual_us: 0 };
                self.give_back(counter, now_us);
                return;
            }
        };
        let mut run = Run::new(token, range);
        run.heard(&term, lease_us, rtt_us);
        run.hear_of_others(level, said_us, now_us, lease_us);
        if let Some((_, level, said_us)) = attempt.wanted.take().filter(|(wanted, ..)| *wanted == token) {
            run.hear_of_others(level, said_us, now_us, lease_us);
        }
        let end = Lifetime::new(&self.contact, &attempt.terms, &term, now_us);
        let grant = Grant { name: attempt.name.clone(), id: attempt.id, world, end };
        let hold = Arc::new(Hold::new(grant, token, term.until_us));
        hold.set_contention(run.others());
        let is_whole = attempt.terms.renewal == Renewal::Never && claim == Claim::Done;
        let renew_us = if is_whole { u64::MAX } else { term.renew_us };
        let (kept_until_us, granted_us) = (None, now_us);
        let holding = Holding { hold: Arc::clone(&hold), run, kept_until_us, sticky_us, granted_us, renew_us, claim };
        attempt.phase = Phase::Held(holding);
        self.words.verdict(number, caller, Verdict::Granted(hold));
        self.adopt(counter);
    }

    /// Whether others wait for what this attempt holds. What is kept for nobody goes back then.
    pub(crate) fn heard_of_others(&mut self, counter: u64, level: Contention, said_us: u64, now_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let lease_us = attempt.terms.lease_us();
        let Phase::Held(holding) = &mut attempt.phase else { return };
        holding.run.hear_of_others(level, said_us, now_us, lease_us);
        holding.hold.set_contention(holding.run.others());
        if !holding.is_in_use() && holding.run.others() != Contention::None {
            self.give_back(counter, now_us);
        }
    }

    /// The grant that is held has ended, and a late look had the same attempt granted anew: somebody may have held in
    /// between, so the guard must not live on by it.
    fn superseded(&mut self, counter: u64, token: Token, now_us: u64) {
        hit(Mark::Superseded);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        if let Phase::Held(holding) = &attempt.phase {
            self.words.lost(&holding.hold, LostReason::Superseded);
        }
        attempt.phase = Phase::Ended { token, used: token, until_us: u64::MAX };
        self.give_back(counter, now_us);
    }

    /// The answer to a renewal or a claim.
    pub(crate) fn heard_renew(
        &mut self,
        counter: u64,
        (name, renew): (&Name, &Renew),
        asked: &Asked,
        heard: Heard,
        heard_us: u64,
    ) {
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
        // The usual renewal, of a name of which nothing is new: it need not be looked up.
        let is_known = heard.as_ref().is_ok_and(|answer| attempt.knows(answer));
        match heard {
            Ok(answer) => {
                let since_us = match is_known {
                    true => self.note_time(&answer, asked.sent_us, heard_us),
                    false => self.note(name, &answer, asked.sent_us, heard_us),
                };
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
        if is_known && self.attempts.get(&counter).is_some_and(Attempt::is_held) {
            self.arm_alone(counter);
        } else {
            self.arm(counter);
        }
    }

    fn renew_says(&mut self, counter: u64, asked_ms: u64, since_us: u64, heard_us: u64, answer: &Answer) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let Some(token) = attempt.token() else { return };
        let (lease_us, rtt_us) = (attempt.terms.lease_us(), self.rtt_us);
        let from_us = if is_on(Mutant::P12FromReceipt) { heard_us } else { since_us };
        let said_us = if let Outcome::Renewed { left_us } = answer.outcome { left_us } else { 0 };
        let term = Term::of(from_us, attempt.left_us(token, from_us, said_us));
        match (&mut attempt.phase, &answer.outcome) {
            (Phase::Held(holding), Outcome::Renewed { .. }) => {
                holding.hold.extend(&term);
                holding.run.heard(&term, lease_us, rtt_us);
                holding.claim = Claim::Done;
                holding.renew_us = match attempt.terms.renewal {
                    Renewal::Never => u64::MAX,
                    // Lengthened meanwhile, or the last piece of a longest hold: the next look at it knows.
                    _ if asked_ms < attempt.terms.lease_ms => heard_us,
                    _ if !holding.is_in_use() => term.renew_us.min(holding.run.refresh_us()),
                    _ => self.pace.plan(heard_us, term.renew_us),
                };
                self.heard_of_others(counter, answer.contention, answer.now_us, heard_us);
            }
            (Phase::Claiming { range, .. }, Outcome::Renewed { .. }) => {
                let (range, level, said_us) = (*range, answer.contention, answer.now_us);
                self.enter(counter, heard_us, Entering { token, range, term, claim: Claim::Done, level, said_us });
            }
            (Phase::Held(_), Outcome::Lost { how }) => {
                hit(Mark::RenewalLost);
                self.lost(counter, *how, answer.highest, heard_us);
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

    /// The answer to a reservation of tokens. It lengthens nothing: who hears none only hands on no further.
    pub(crate) fn heard_reserve(&mut self, one: &Reserving, heard: Heard) {
        let Reserving { counter, name, grant, asked, .. } = one;
        let (counter, heard_us) = (*counter, self.world.now_us());
        let heard = self.hear(asked, heard);
        let answer = heard.ok().inspect(|answer| {
            self.note(name, answer, asked.sent_us, heard_us);
        });
        let Some(attempt) = self.attempts.get_mut(&counter).filter(|attempt| attempt.token() == Some(*grant)) else {
            return;
        };
        let Phase::Held(holding) = &mut attempt.phase else { return };
        match answer {
            Some(Answer { outcome: Outcome::Reserved { range }, contention, now_us, .. }) => {
                holding.run.reserved(Some(range));
                self.heard_of_others(counter, contention, now_us, heard_us);
            }
            Some(Answer { outcome: Outcome::Lost { how }, highest, .. }) => self.lost(counter, how, highest, heard_us),
            _ => holding.run.reserved(None),
        }
        self.arm(counter);
    }

    /// The store says that a grant is not ours any more.
    fn lost(&mut self, counter: u64, how: LostHow, highest: Token, heard_us: u64) {
        let Some(Phase::Held(holding)) = self.attempts.get(&counter).map(|attempt| &attempt.phase) else { return };
        let why = holding.run.why_lost(how, highest);
        // Revoked: the store waits for our release until its grace is over. Otherwise nothing is left there.
        let left_us = if why == LostReason::Revoked { REVOKE_GRACE_MS * 1000 } else { 0 };
        self.end(counter, why, heard_us + left_us);
    }

    /// The store ended a lease. Its guard may still be out: what is left goes back when that is dropped.
    pub(super) fn end(&mut self, counter: u64, why: LostReason, until_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let Phase::Held(holding) = &attempt.phase else { return };
        let (token, used, is_in_use) = (holding.run.grant(), holding.hold.token, holding.is_in_use());
        self.words.lost(&holding.hold, why);
        attempt.asked = None;
        attempt.phase = Phase::Ended { token, used, until_us };
        let now_us = self.world.now_us();
        // Who waits behind it goes on at once, however long its guard stays out.
        self.go_on(counter, now_us);
        if !is_in_use {
            self.give_back(counter, now_us);
        }
    }
}
