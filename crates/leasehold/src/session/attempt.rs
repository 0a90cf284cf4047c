//! One attempt at a lease, from its first request to the last word about it.
//!
//! ```text
//!              GRANTED, or a push that can be placed in time
//!   Asking ───────────────────────────────────────────────► Held ──┐ guard dropped or released,
//!     │ QUEUED                            RENEWED ▲                │ validity over
//!     ▼              a push that cannot be placed │                ▼
//!   Queued ───────────────────────────────────► Claiming      Returning ──► closed by an answer, or by time
//!     └──────────── caller gone, or out of patience ───────────────▲
//! ```
//!
//! (Held goes through Ended where the store itself ended the lease and the guard is still out.)
//!
//! The session owns an attempt in every phase, so that nothing leaks when a future, a guard or a runtime goes away.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Contention, GrantId, Name, Rest, Token};
use tokio::sync::oneshot;

use super::bounds::{ANSWER_MAX_US, RETRY_US};
use super::ending::What;
use super::hold::Hold;
use super::run::Run;
use super::terms::{Entry, Terms, Wait};
use super::tries::Tries;
use super::words::Words;
use crate::clock::margin_us;
use crate::error::Error;
use crate::store::Link;

/// Returns when a caller with this deadline stops waiting. If an answer is due later than the deadline, the caller waits
/// for it, but no longer than [`ANSWER_MAX_US`] after the deadline.
pub(super) fn wait_ends_us(until_us: u64, answer_us: u64) -> u64 {
    until_us.max(answer_us.min(until_us.saturating_add(ANSWER_MAX_US)))
}

/// How many answers in a row make no sense before it is surely the record that is damaged: one may be a proxy's hiccup.
const DAMAGED_TRIES: u32 = 3;

/// What the caller hears, once.
pub(crate) enum Verdict {
    Granted(Arc<Hold>),
    /// Somebody else holds, and the caller does not wait, or no longer.
    Busy,
    /// The id was used up by an answer to something older: ask again with a new one.
    Again,
    Failed(Error),
}

pub(crate) struct Attempt {
    pub(crate) id: GrantId,
    pub(crate) name: Name,
    pub(crate) terms: Arc<Terms>,
    pub(crate) wait: Wait,
    pub(crate) phase: Phase,
    pub(crate) tries: Tries,
    /// The largest token in a statement about this id that was believed (P3).
    pub(crate) latest: Token,
    pub(crate) ticket: Option<u64>,
    /// Who hears the verdict, of an attempt that is somebody's own.
    pub(crate) caller: Option<oneshot::Sender<Verdict>>,
    /// The line that it stands for (P21).
    pub(crate) line: Option<u64>,
    /// How many tokens it asks for (P19).
    pub(crate) range: u64,
    /// That others wait for the grant of this token, as the store said at a moment of its clock. It overtook the grant.
    pub(crate) wanted: Option<(Token, Contention, u64)>,
    /// What the store said last of a grant that it keeps for less time than it had said. The answer that makes it ours can
    /// still be on its way.
    pub(crate) shortened: Option<Shortened>,
    /// The request in flight, if any.
    pub(crate) asked: Option<Asked>,
    /// How many answers in a row made no sense.
    pub(crate) damaged: u32,
    /// The earliest alarm that is set.
    pub(crate) alarm_us: u64,
}

pub(crate) enum Phase {
    /// No answer has come yet. A deadline of the caller that ends before `usual_us` waits until then, also while the
    /// request is about to be repeated: a store that answers is given the time to do so.
    Asking { next_us: u64, usual_us: u64 },
    /// In the store's queue.
    Queued { next_us: u64 },
    /// Pushed a grant that cannot be placed in time: claim first, then enter (P12).
    /// `usual_us` is that of `Asking`, for the answer to the claim.
    Claiming { token: Token, range: u64, until_us: u64, next_us: u64, usual_us: u64 },
    /// Ours.
    Held(Holding),
    /// Lost, and its guard is still out: what is left is given back when that ends, until the store has ended it itself.
    Ended { token: Token, used: Token, until_us: u64 },
    /// Being given back.
    Returning(Returning),
}

pub(crate) struct Holding {
    /// What the guard that is out has, or the next one will have.
    pub(crate) hold: Arc<Hold>,
    /// What the store granted, and how far it may be handed on.
    pub(crate) run: Run,
    /// Until when it is kept for the next one here; `None` while a guard of it is out.
    pub(crate) kept_until_us: Option<u64>,
    /// For how long it is kept once nobody uses it.
    pub(crate) sticky_us: u64,
    pub(crate) granted_us: u64,
    /// When to renew next; `u64::MAX` for a fixed lease.
    pub(crate) renew_us: u64,
    /// A pushed fixed lease is claimed once.
    pub(crate) claim: Claim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Due,
    Done,
}

pub(crate) struct Returning {
    pub(crate) what: What,
    /// After this the store has ended it by itself.
    pub(crate) until_us: u64,
    pub(crate) next_us: u64,
    /// When the store has said last, in its time, that the attempt is there: it waits, or holds.
    there_us: u64,
    /// The store's time in the latest answer to one of its requests.
    answered_us: u64,
    /// How many of its requests have found no answer.
    pub(crate) unheard: u32,
    /// The serial of its latest request that has surely left, or is its caller's to send.
    pub(crate) left: u64,
    /// Who waits for the one behind that to leave.
    pub(crate) behind: Vec<oneshot::Sender<()>>,
    pub(crate) caller: Option<oneshot::Sender<Result<GivenBack, Error>>>,
}

impl Returning {
    pub(crate) fn new(what: What, until_us: u64, next_us: u64) -> Self {
        let (there_us, answered_us, unheard, left) = (0, 0, 0, 0);
        Self { what, until_us, next_us, there_us, answered_us, unheard, left, behind: Vec::new(), caller: None }
    }

    /// Notes that the store said, at `said_us` of its time, that the attempt waits or holds. Returns whether that is later
    /// than the last answer to a leave: then another leave is due at once, and not only when its acquire is too late (P14).
    pub(crate) fn note_present(&mut self, said_us: u64) -> bool {
        self.there_us = self.there_us.max(said_us);
        self.there_us > self.answered_us
    }

    /// Notes that the store answered a leave at `answered_us` of its time. Returns whether it had said that the attempt was
    /// there after that time. Each such statement counts once: a store that lies causes no endless repetition.
    pub(crate) fn note_answered(&mut self, answered_us: u64) -> bool {
        self.answered_us = answered_us;
        std::mem::take(&mut self.there_us) > answered_us
    }
}

/// What the store said to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    Released,
    NotHeld,
}

/// A grant that the store keeps for less time than it had said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortened {
    pub(crate) token: Token,
    /// Until when it is kept at most.
    pub(crate) until_us: u64,
    /// Since when that is known: an answer to what was asked later knows it as well; one of the same microsecond need not.
    pub(crate) since_us: u64,
}

impl Shortened {
    /// This word and another of the same grant. Two threads can say them in the wrong order, so that neither is the later
    /// one: the shorter time counts, until an answer to what was asked behind both.
    pub(crate) fn and(self, other: Self) -> Self {
        let Self { token, until_us, since_us } = other;
        if self.token != token {
            return other;
        }
        Self { token, until_us: until_us.min(self.until_us), since_us: since_us.max(self.since_us) }
    }
}

/// A request in flight.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) sent_us: u64,
    pub(crate) until_us: u64,
    /// A patience that ends before this is too short for any store: its caller hears this answer all the same.
    pub(crate) usual_us: u64,
    /// Which one: the answer to an older one does not end the wait for this.
    pub(crate) serial: u64,
}

/// Whether the session has a link of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Online,
    Offline,
}

impl Holding {
    /// Whether a guard of it is out.
    pub(crate) fn is_in_use(&self) -> bool {
        self.kept_until_us.is_none()
    }

    /// Whether it has been kept for long enough.
    pub(crate) fn is_kept_no_longer(&self, now_us: u64) -> bool {
        self.kept_until_us.is_some_and(|until_us| until_us <= now_us)
    }

    /// When something is due of it, whatever is under way.
    fn due_us(&self, reach: Reach) -> u64 {
        let kept_until_us = self.kept_until_us.unwrap_or(u64::MAX);
        let reserve_us = if reach == Reach::Online && self.run.wants_more() { 0 } else { u64::MAX };
        self.hold.valid_until_us().min(kept_until_us).min(reserve_us)
    }
}

impl Attempt {
    /// One of which nothing was sent or heard, and of whose grant one token is all that is wanted.
    pub(crate) fn new(id: GrantId, name: Name, terms: Arc<Terms>, wait: Wait, phase: Phase) -> Self {
        Self {
            id,
            name,
            terms,
            wait,
            phase,
            tries: Tries::default(),
            latest: Token::NONE,
            ticket: None,
            caller: None,
            line: None,
            range: 1,
            wanted: None,
            shortened: None,
            asked: None,
            damaged: 0,
            alarm_us: u64::MAX,
        }
    }

    /// When something is to be done next, if no answer comes before. Without a link only what time alone decides is.
    pub(crate) fn due_us(&self, reach: Reach) -> u64 {
        let answer_us = self.asked.as_ref().map_or(u64::MAX, |asked| asked.until_us);
        // While a request is in flight the next one waits for its answer, or for its time-out.
        let next = |next_us: u64| match reach {
            _ if self.asked.is_some() => answer_us,
            Reach::Online => next_us,
            Reach::Offline => u64::MAX,
        };
        let phase_us = match &self.phase {
            // Who does not wait hears that there is no store.
            Phase::Asking { next_us, .. } if self.wait == Wait::No && self.asked.is_none() => *next_us,
            Phase::Asking { next_us, .. } | Phase::Queued { next_us } => next(*next_us),
            Phase::Claiming { until_us, next_us, .. } => next(*next_us).min(*until_us),
            Phase::Held(holding) => next(holding.renew_us).min(holding.due_us(reach)),
            Phase::Ended { until_us, .. } => *until_us,
            // A leave may follow its acquire on the callers' link, which can be up when ours is not.
            Phase::Returning(returning) if self.asked.is_none() && self.tries.follow().is_some() => returning.next_us,
            Phase::Returning(returning) => next(returning.next_us).min(returning.until_us),
        };
        phase_us.min(self.patience_us())
    }

    /// Returns when the caller stops waiting. A caller whose deadline is near still waits for the answer to its first
    /// request, or to a claim: an error that says that nobody knows is of no use to it.
    pub(crate) fn patience_us(&self) -> u64 {
        match (&self.phase, self.wait) {
            (Phase::Asking { .. } | Phase::Claiming { .. } | Phase::Queued { .. }, Wait::Until { until_us }) => {
                wait_ends_us(until_us, self.first_answer_us())
            }
            _ => u64::MAX,
        }
    }

    /// Whether a statement made when `highest` was the last token is newer than what is believed. A grant wins a tie.
    pub(crate) fn believes(&self, highest: Token) -> bool {
        match self.phase {
            _ if is_on(Mutant::P3OlderWins) => true,
            Phase::Held(_) | Phase::Ended { .. } | Phase::Claiming { .. } => highest > self.latest,
            _ => highest >= self.latest,
        }
    }

    /// Ends the wait for an answer to this request, but not to a later one. Returns whether the attempt waited for this
    /// request. If not, it has asked again or is about to, and a fault of this request has no meaning for it.
    pub(crate) fn unask(&mut self, asked: &Asked) -> bool {
        self.asked.take_if(|current| current.serial == asked.serial).is_some()
    }

    /// The token of the grant that it holds, or is about to claim.
    pub(crate) fn token(&self) -> Option<Token> {
        match &self.phase {
            Phase::Held(holding) => Some(holding.run.grant()),
            Phase::Claiming { token, .. } => Some(*token),
            Phase::Asking { .. } | Phase::Queued { .. } | Phase::Ended { .. } | Phase::Returning(_) => None,
        }
    }

    /// How much was left of a grant at a moment of our clock, when its store said so much.
    pub(crate) fn left_us(&self, token: Token, from_us: u64, said_us: u64) -> u64 {
        let word = self.shortened.filter(|word| word.token == token && from_us <= word.since_us);
        let lease_us = self.terms.lease_us();
        // That can rest on a vote which is nearly a whole lease old, and its clock has had as long to run ahead.
        let most_us = word.map_or(u64::MAX, |word| word.until_us.saturating_sub(margin_us(lease_us) + from_us));
        said_us.min(lease_us).min(most_us)
    }

    /// Whether so short a lease is enough to enter on, or has to be renewed to a whole one first (P29).
    pub(crate) fn may_enter_on_a_claim(&self, left_us: u64) -> bool {
        self.terms.entry == Entry::OnClaim || left_us >= self.terms.lease_us() || is_on(Mutant::P29StartsOnClaim)
    }

    /// Whether a renewal was answered with nothing new about its name: nobody, or somebody, waits as before.
    pub(crate) fn knows(&self, answer: &Answer) -> bool {
        let is_quiet = answer.rest == Rest::Done && answer.handed_claim_ms.is_none();
        is_quiet && matches!(&self.phase, Phase::Held(holding) if holding.run.others() == answer.contention)
    }

    /// Returns until when no waiter is told that nobody knows: the first answer, or that to a claim, is not late yet.
    pub(crate) fn first_answer_us(&self) -> u64 {
        match (&self.phase, &self.asked) {
            // A short lease doubts its link, and asks again, before an answer is late.
            (Phase::Asking { usual_us, .. }, Some(asked)) => asked.usual_us.max(*usual_us),
            (Phase::Asking { usual_us, .. } | Phase::Claiming { usual_us, .. }, _) => *usual_us,
            _ => 0,
        }
    }

    /// Whether another than its own caller has what it was granted.
    pub(crate) fn is_passed_on(&self) -> bool {
        match &self.phase {
            Phase::Held(holding) => holding.hold.token != holding.run.grant(),
            Phase::Ended { token, used, .. } => token != used,
            _ => false,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// Whether it holds an earlier grant than that of this token.
    pub(crate) fn holds_before(&self, token: Token) -> bool {
        matches!(&self.phase, Phase::Held(holding) if holding.run.grant() < token)
    }

    /// One more answer made no sense. Answers when to ask again, and `None` once that was tried often enough.
    pub(crate) fn damaged_again(&mut self) -> Option<u64> {
        self.damaged += 1;
        (self.damaged < DAMAGED_TRIES).then_some(RETRY_US)
    }

    /// Tells the caller, once. (Those in a line are told by the line.)
    pub(crate) fn tell(&mut self, words: &mut Words, verdict: Verdict) {
        words.verdict(self.id.counter, self.caller.take(), verdict);
    }
}
