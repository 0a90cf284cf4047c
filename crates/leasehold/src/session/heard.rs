//! What the session makes of what it hears: answers to requests, and messages in its inbox.
//!
//! Two statements about one id can arrive in either order: the reply that says QUEUED and the push that says GRANTED come
//! by different ways. Each carries the highest token granted when it was made, and the larger one is the later (P3); on a
//! tie the grant is, because it is that token.

use std::sync::Arc;

use leasehold_spec::limits::{
    CLAIM_MIN_MS, LEASE_DEFAULT_MS, LEASE_MAX_MS, NOT_AFTER_MAX_MS, QUEUE_MAX, REVOKE_GRACE_MS,
};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{
    Answer, Contention, Delivery, Event, GrantId, Joined, LostHow, Name, Order, Outcome, Rest, Token, Was,
};

use super::attempt::{
    Asked, Attempt, Claim, GivenBack, Holding, Phase, Renewal, Returning, Terms, Tries, Verdict, Wait, What,
};
use super::clock::reliable_us;
use super::errand::Renewing;
use super::hold::Hold;
use super::silent;
use super::state::{GivenUp, State, Then};
use crate::error::{Error, ErrorKind, Lost};
use crate::store::Fault;

type Heard = Result<Answer, Fault>;

impl State {
    /// The answer to an acquire, first or repeated.
    pub(crate) fn heard_acquire(&mut self, name: &Name, id: GrantId, asked: &Asked, heard: Heard) {
        let heard_us = self.world.now_us();
        let heard = self.of_this_run(asked, heard);
        let counter = id.counter;
        let Some(attempt) = self.attempts.get_mut(&counter).filter(|attempt| attempt.id == id) else {
            // It was closed, and carried out all the same: a script that the server had forgotten is sent a second time,
            // and that can come behind the leave.
            match heard {
                Ok(Answer { outcome: Outcome::Granted { left_us, .. }, .. }) => {
                    self.return_ghost(name.clone(), id, heard_us, left_us);
                }
                Ok(Answer { outcome: Outcome::Queued { .. }, .. }) => {
                    self.return_ghost(name.clone(), id, heard_us, self.claim_ms() * 1000);
                }
                _ => {}
            }
            return;
        };
        attempt.unask(asked);
        match &heard {
            Err(Fault::Gone(_)) => attempt.tries.gone(),
            _ => attempt.tries.answered(),
        }
        self.give_up_on(asked, &heard);
        match heard {
            Ok(answer) => {
                let since_us = self.note(name, &answer, asked.sent_us, heard_us);
                self.acquire_says(counter, since_us, heard_us, name, &answer);
            }
            Err(fault) => self.acquire_failed(counter, heard_us, fault),
        }
        self.arm(counter);
    }

    /// What another run of the store says is no answer: after a failover the old primary may live on, cut off, and grant,
    /// renew and release to whoever is still connected to it. Nor is its clock to be compared with that of this one.
    fn of_this_run(&self, asked: &Asked, heard: Heard) -> Heard {
        if asked.link.run() == self.run { heard } else { heard.and_then(|_| Err(Fault::Gone(silent()))) }
    }

    /// A store that is not the one to ask (a replica, one that loads) goes on answering, and never with an answer: the link
    /// is given up, and the next one is greeted anew. What it says of itself concerns whoever waits for an answer, unlike
    /// what a store refuses of one name.
    fn give_up_on(&mut self, asked: &Asked, heard: &Heard) {
        if let Err(Fault::Gone(error)) = heard {
            asked.link.close();
            self.trouble = Some(error.share());
        }
    }

    fn acquire_says(&mut self, counter: u64, since_us: u64, heard_us: u64, name: &Name, answer: &Answer) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        if matches!(attempt.phase, Phase::Returning(_) | Phase::Ended { .. }) {
            return; // Given up meanwhile: whatever this grants, the leave behind it takes back.
        }
        match answer.outcome {
            Outcome::Granted { token, left_us } => {
                if token < attempt.latest {
                    self.not_at_once(counter, heard_us);
                    return;
                }
                let from_us = if is_on(Mutant::P12FromReceipt) { heard_us } else { since_us };
                let left_us = left_us.min(attempt.terms.lease_us());
                let until_us = from_us + reliable_us(left_us);
                // Not a whole lease: a grant whose push or whose answer was lost.
                let claim = if left_us < attempt.terms.lease_us() { Claim::Due } else { Claim::Done };
                let renew_us = from_us + left_us / 3;
                self.enter(counter, heard_us, Entry { token, until_us, renew_us, claim, level: answer.contention });
            }
            Outcome::Queued { ticket, left_us, joined } => {
                if !attempt.believes(answer.highest) {
                    self.not_at_once(counter, heard_us);
                    return;
                }
                let re_entered = joined == Joined::Now && attempt.ticket.is_some();
                attempt.latest = answer.highest;
                attempt.ticket = Some(ticket);
                let lease_ms = attempt.terms.lease_ms;
                if let Phase::Held(holding) = &attempt.phase {
                    // The grant lapsed, and a late look of ours put the same id into the queue again.
                    self.words.lost(&holding.hold, Lost::Superseded);
                    attempt.phase = Phase::Queued { next_us: heard_us };
                    self.give_back(counter, heard_us);
                    return;
                }
                let next_us = self.next_look_us(lease_ms, heard_us);
                self.set_phase(counter, Phase::Queued { next_us });
                if re_entered {
                    self.look_at_once(name, counter, heard_us);
                }
                if let Some(slot) = self.slots.get_mut(name) {
                    slot.waiter = counter;
                }
                self.watch(name, answer.highest, heard_us, left_us, Then::Look);
            }
            Outcome::Late => self.set_next(counter, heard_us), // Definite, and the clock is anchored anew: ask again.
            Outcome::Busy { .. } => self.finish(counter, Verdict::Busy),
            Outcome::Gone => self.finish(counter, Verdict::Again),
            Outcome::Full => self.finish(counter, Verdict::Failed(full(name))),
            _ => self.finish(counter, Verdict::Failed(nonsense("acquire"))),
        }
    }

    fn acquire_failed(&mut self, counter: u64, now_us: u64, fault: Fault) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let is_waiting = matches!(attempt.phase, Phase::Queued { .. });
        match (fault, attempt.wait, &attempt.phase) {
            (_, _, Phase::Held(_) | Phase::Ended { .. } | Phase::Claiming { .. } | Phase::Returning(_)) => {}
            (Fault::Gone(error), Wait::No, _) => self.fail(counter, error.may_act(), now_us),
            (Fault::Gone(_), ..) => self.set_next(counter, now_us),
            (Fault::NoMemory(_), ..) if is_waiting => {
                // New entries are refused then, hand-overs never: a settle makes the hand-over that this look wanted.
                let (name, lease_ms) = (attempt.name.clone(), attempt.terms.lease_ms);
                let token = attempt.latest;
                let next_us = self.next_look_us(lease_ms, now_us);
                self.set_phase(counter, Phase::Queued { next_us });
                self.watch(&name, token, now_us, 0, Then::Settle);
            }
            (Fault::NoMemory(error) | Fault::Refused(error), ..) => self.fail(counter, error, now_us),
        }
    }

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
                self.return_ghost(name, push.id, now_us, push.left_us);
            }
            return;
        };
        match (push.event, &attempt.phase) {
            (Event::Granted, Phase::Asking { .. } | Phase::Queued { .. }) if push.token > attempt.latest => {
                self.pushed_grant(counter, now_us, push);
            }
            (Event::Granted, _) if attempt.holds_before(push.token) => self.superseded(counter, push.token, now_us),
            (Event::Granted, _) => {}
            (Event::Revoked, Phase::Held(holding)) if holding.hold.token == push.token => {
                self.end(counter, Lost::Revoked, now_us.saturating_add(push.left_us));
            }
            (Event::Revoked, _) => {}
        }
        if let Some(slot) = self.slots.get_mut(&name) {
            slot.guess = push.contention;
        }
        self.arm(counter);
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
            Some(made_us) if now_us < made_us + left_us / 2 => {
                let (until_us, renew_us) = (made_us + reliable_us(left_us), made_us + left_us / 3);
                let (token, level) = (push.token, push.contention);
                self.enter(counter, now_us, Entry { token, until_us, renew_us, claim: Claim::Due, level });
            }
            _ => {
                attempt.latest = push.token;
                let phase = Phase::Claiming { token: push.token, until_us: now_us + left_us, next_us: now_us };
                self.set_phase(counter, phase);
            }
        }
    }

    /// Makes the attempt a held lease and tells the caller.
    fn enter(&mut self, counter: u64, now_us: u64, entry: Entry) {
        let Entry { token, until_us, renew_us, claim, level } = entry;
        let world = Arc::clone(&self.world);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.latest = token;
        if let Phase::Held(holding) = &attempt.phase {
            if holding.hold.token == token {
                // The same grant, said again.
                holding.hold.extend(until_us);
                return;
            }
            self.superseded(counter, token, now_us);
            return;
        }
        let hold = Arc::new(Hold::new(attempt.name.clone(), attempt.id, token, until_us, world));
        hold.set_contention(level);
        let is_whole = attempt.terms.renewal == Renewal::Never && claim == Claim::Done;
        let renew_us = if is_whole { u64::MAX } else { renew_us };
        attempt.phase = Phase::Held(Holding { hold: Arc::clone(&hold), granted_us: now_us, renew_us, claim });
        attempt.tell(&mut self.words, Verdict::Granted(hold));
    }

    /// The grant that is held has ended, and a late look had the same attempt granted anew: somebody may have held in
    /// between, so the guard must not live on by it.
    fn superseded(&mut self, counter: u64, token: Token, now_us: u64) {
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
        let heard = self.of_this_run(asked, heard);
        self.give_up_on(asked, &heard);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.unask(asked);
        if let Ok(answer) = &heard {
            attempt.tries.passed(answer.now_us);
        }
        // A look behind the claim of a grant that had lapsed may have been granted anew: what became of the first says
        // nothing of the second.
        let is_of_this_grant = attempt.token() == Some(renew.token);
        match heard {
            Ok(answer) => {
                let since_us = self.note(name, &answer, asked.sent_us, heard_us);
                if is_of_this_grant {
                    self.renew_says(counter, since_us, heard_us, &answer);
                }
            }
            Err(_) if !is_of_this_grant => {}
            // Unknown is not lost: it is asked again until the validity ends.
            Err(_) => {
                let pause_us = attempt.terms.answer_within_us() / 2;
                self.set_next(counter, heard_us + pause_us);
            }
        }
        self.arm(counter);
    }

    fn renew_says(&mut self, counter: u64, since_us: u64, heard_us: u64, answer: &Answer) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let lease_us = attempt.terms.lease_us();
        match (&mut attempt.phase, &answer.outcome) {
            (Phase::Held(holding), Outcome::Renewed { left_us }) => {
                let left_us = (*left_us).min(lease_us);
                let from_us = if is_on(Mutant::P12FromReceipt) { heard_us } else { since_us };
                holding.hold.extend(from_us + reliable_us(left_us));
                holding.hold.set_contention(answer.contention);
                holding.claim = Claim::Done;
                holding.renew_us = match attempt.terms.renewal {
                    Renewal::Never => u64::MAX,
                    _ => since_us + left_us / 3,
                };
            }
            (Phase::Claiming { token, .. }, Outcome::Renewed { left_us }) => {
                let (token, left_us) = (*token, (*left_us).min(lease_us));
                let (until_us, renew_us) = (since_us + reliable_us(left_us), since_us + left_us / 3);
                let (claim, level) = (Claim::Done, answer.contention);
                self.enter(counter, heard_us, Entry { token, until_us, renew_us, claim, level });
            }
            (Phase::Held(holding), Outcome::Lost { how }) => {
                let why = why_lost(*how, holding.hold.token, answer.highest);
                // Revoked: the store waits for our release until its grace is over. Otherwise nothing is left there.
                let left_us = if why == Lost::Revoked { REVOKE_GRACE_MS * 1000 } else { 0 };
                self.end(counter, why, heard_us + left_us);
            }
            (Phase::Claiming { .. }, Outcome::Lost { how: LostHow::Revoked }) => self.finish(counter, Verdict::Again),
            (Phase::Claiming { .. }, Outcome::Lost { .. }) => {
                attempt.latest = attempt.latest.max(answer.highest);
                attempt.phase = Phase::Queued { next_us: heard_us };
            }
            (Phase::Held(_) | Phase::Claiming { .. }, Outcome::Late) => self.set_next(counter, heard_us),
            _ => {}
        }
    }

    /// The store ended a lease. Its guard may still be out: what is left goes back when that is dropped.
    fn end(&mut self, counter: u64, why: Lost, until_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let Phase::Held(holding) = &attempt.phase else { return };
        let token = holding.hold.token;
        self.words.lost(&holding.hold, why);
        attempt.asked = None;
        attempt.phase = Phase::Ended { token, until_us };
    }

    /// The answer to a release or a leave.
    pub(crate) fn heard_return(&mut self, counter: u64, asked: &Asked, heard: Heard) {
        let heard_us = self.world.now_us();
        let heard = self.of_this_run(asked, heard);
        self.give_up_on(asked, &heard);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.unask(asked);
        let name = attempt.name.clone();
        let Phase::Returning(returning) = &mut attempt.phase else { return };
        let answer = match heard {
            Ok(answer) => answer,
            Err(Fault::Gone(_)) => {
                if is_on(Mutant::P13ReleaseOnce) {
                    self.remove(counter);
                    return;
                }
                self.set_next(counter, heard_us);
                self.arm(counter);
                return;
            }
            Err(Fault::Refused(error) | Fault::NoMemory(error)) => {
                self.words.given_back(returning.caller.take(), || Err(error));
                self.set_next(counter, heard_us + RETRY_US);
                self.arm(counter);
                return;
            }
        };
        let given_back = match answer.outcome {
            Outcome::NotHeld => GivenBack::NotHeld,
            _ => GivenBack::Released,
        };
        self.words.given_back(returning.caller.take(), || Ok(given_back));
        self.returned(counter, asked, heard_us, &answer);
        self.note(&name, &answer, asked.sent_us, heard_us);
        self.arm(counter);
    }

    /// Closes an attempt that was given back, unless an older request of it may yet be carried out (P14).
    fn returned(&mut self, counter: u64, asked: &Asked, now_us: u64, answer: &Answer) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let (id, name) = (attempt.id, attempt.name.clone());
        let Phase::Returning(returning) = &mut attempt.phase else { return };
        let closed = match returning.what {
            // The usual release does not say the time: it closes what went before it on its own link.
            What::Release(_) => attempt.tries.closed_by(asked, 0),
            What::Leave => attempt.tries.closed_by(asked, answer.now_us) || is_on(Mutant::P14FirstLeave),
        };
        // A leave that hands a grant on is a release by another name.
        let (what, until_us) = (returning.what, returning.until_us);
        let is_release = what != What::Leave || answer.outcome == Outcome::Left { was: Was::Granted };
        let released = is_release.then_some(GivenUp { name, id, what, until_us });
        if !closed {
            let wait_us = attempt.tries.until_us.saturating_sub(answer.now_us).min(MAX_TRY_US);
            returning.what = What::Leave;
            returning.next_us = now_us + wait_us + 1_000;
        } else {
            self.remove(counter);
        }
        // Closed or not: a failover can bring it back from now on.
        if let Some(released) = released {
            self.remember_release(released, now_us);
        }
    }

    /// The answer to a settle that nobody but the queue waited for.
    pub(crate) fn heard_settle(&mut self, name: &Name, asked: &Asked, heard: Heard) {
        let heard_us = self.world.now_us();
        let heard = self.of_this_run(asked, heard);
        self.give_up_on(asked, &heard);
        match heard {
            Ok(answer) => {
                self.note(name, &answer, asked.sent_us, heard_us);
            }
            Err(_) => self.watch(name, Token::NONE, heard_us, RETRY_US, Then::Settle),
        }
    }

    fn return_ghost(&mut self, name: Name, id: GrantId, now_us: u64, left_us: u64) {
        if self.attempts.contains_key(&id.counter) || self.attempts.len() >= GHOSTS {
            return; // Its end ends it.
        }
        // While the store cannot be reached it is kept for as long as the grant can last. Anybody can publish: within bounds.
        let left_us = left_us.clamp(CLAIM_MIN_MS * 1000, LEASE_MAX_MS * 1000);
        self.insert_return(name, id, What::Leave, now_us + left_us + MAX_TRY_US);
    }

    /// A release that was answered by a server that may not remember it: it is sent again (P13).
    pub(crate) fn return_again(&mut self, old: GivenUp) {
        self.insert_return(old.name, old.id, old.what, old.until_us);
    }

    fn insert_return(&mut self, name: Name, id: GrantId, what: What, until_us: u64) {
        self.insert(Attempt {
            id,
            name,
            terms: Arc::new(Terms {
                lease_ms: LEASE_DEFAULT_MS,
                renewal: Renewal::Never,
                order: Order::Relaxed,
                label: "".into(),
            }),
            wait: Wait::No,
            phase: Phase::Returning(Returning { what, until_us, next_us: 0, caller: None }),
            tries: Tries::default(),
            latest: Token::NONE,
            ticket: None,
            caller: None,
            asked: None,
            alarm_us: u64::MAX,
        });
    }

    /// Ends an attempt that neither waits nor holds.
    fn finish(&mut self, counter: u64, verdict: Verdict) {
        let now_us = self.world.now_us();
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.tell(&mut self.words, verdict);
            attempt.ticket = None;
        }
        self.give_back(counter, now_us);
    }

    pub(crate) fn fail(&mut self, counter: u64, error: Error, now_us: u64) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.tell(&mut self.words, Verdict::Failed(error));
        }
        self.give_back(counter, now_us);
    }

    /// A look that had to re-enter the queue means that the store dropped us: the others of that name look too (P15).
    fn look_at_once(&mut self, name: &Name, except: u64, now_us: u64) {
        match self.slots.get_mut(name) {
            // The others, looking because of this one, find the same: once is enough.
            Some(slot) if slot.rallied_us + RALLY_US < now_us => slot.rallied_us = now_us,
            _ => return,
        }
        let others: Vec<u64> = self
            .attempts
            .iter()
            .filter(|(counter, a)| **counter != except && a.name == *name && matches!(a.phase, Phase::Queued { .. }))
            .map(|(counter, _)| *counter)
            .collect();
        for counter in others {
            self.set_next(counter, now_us);
            self.arm(counter);
        }
    }

    /// An answer that is not believed, for an older one than was heard since, leaves its waiter where it was. Should that be
    /// "due", as with a store whose tokens have fallen, it would ask again in the same breath, and again.
    fn not_at_once(&mut self, counter: u64, now_us: u64) {
        if let Some(Attempt { phase: Phase::Queued { next_us }, .. }) = self.attempts.get_mut(&counter) {
            *next_us = (*next_us).max(now_us + RETRY_US);
        }
    }

    fn set_phase(&mut self, counter: u64, phase: Phase) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.phase = phase;
        }
    }

    pub(crate) fn set_next(&mut self, counter: u64, at_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        match &mut attempt.phase {
            Phase::Asking { next_us } | Phase::Queued { next_us } | Phase::Claiming { next_us, .. } => *next_us = at_us,
            Phase::Held(holding) if holding.renew_us != u64::MAX => holding.renew_us = at_us,
            Phase::Held(_) | Phase::Ended { .. } => {}
            Phase::Returning(returning) => returning.next_us = at_us,
        }
    }
}

/// How a lease is entered.
#[derive(Clone, Copy)]
struct Entry {
    token: Token,
    until_us: u64,
    renew_us: u64,
    claim: Claim,
    level: Contention,
}

/// Between two calls to all waiters of a name to look.
const RALLY_US: u64 = 100_000;
/// Between two tries of a request that the store refuses.
const RETRY_US: u64 = 250_000;
/// The longest that a request may be carried out late.
const MAX_TRY_US: u64 = NOT_AFTER_MAX_MS * 1000;
/// How many attempts a session may have for it to still chase ghosts: a rogue publisher must not fill the memory.
const GHOSTS: usize = 1_000_000;

impl Attempt {
    /// Whether a statement made when `highest` was the last token is newer than what is believed. A grant wins a tie.
    fn believes(&self, highest: Token) -> bool {
        match self.phase {
            _ if is_on(Mutant::P3OlderWins) => true,
            Phase::Held(_) | Phase::Ended { .. } | Phase::Claiming { .. } => highest > self.latest,
            _ => highest >= self.latest,
        }
    }

    /// The token of the grant that it holds, or is about to claim.
    fn token(&self) -> Option<Token> {
        match &self.phase {
            Phase::Held(holding) => Some(holding.hold.token),
            Phase::Claiming { token, .. } => Some(*token),
            Phase::Asking { .. } | Phase::Queued { .. } | Phase::Ended { .. } | Phase::Returning(_) => None,
        }
    }

    /// Whether it holds an earlier grant than that of this token.
    fn holds_before(&self, token: Token) -> bool {
        matches!(&self.phase, Phase::Held(holding) if holding.hold.token < token)
    }

    /// Ends the wait for an answer: for this request, not for a later one.
    fn unask(&mut self, asked: &Asked) {
        if self.asked.as_ref().is_some_and(|current| current.serial == asked.serial) {
            self.asked = None;
        }
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

fn full(name: &Name) -> Error {
    let message =
        format!("{QUEUE_MAX} wait for \"{name}\" already: nothing was queued; try again later, or split the name");
    Error::new(ErrorKind::Full, message)
}

fn nonsense(to: &str) -> Error {
    Error::new(
        ErrorKind::Store,
        format!("the store's answer to {to} makes no sense: is another program writing our keys?"),
    )
}
