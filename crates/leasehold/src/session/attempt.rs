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
use leasehold_spec::{GrantId, Name, Op, Order, Token};
use tokio::sync::oneshot;

use super::bounds::{ANSWER_MAX_US, RETRY_US};
use super::hold::Hold;
use super::words::Words;
use crate::error::Error;
use crate::store::Link;

/// What a caller asked for.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease_ms: u64,
    pub(crate) renewal: Renewal,
    pub(crate) order: Order,
    pub(crate) entry: Entry,
    pub(crate) label: Arc<str>,
}

/// When a lease is entered that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// On its claim, where that can be placed in time.
    OnClaim,
    /// Once the claim was renewed to a whole lease (P29).
    OnLease,
}

/// How a lease goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Renewed each third.
    Always,
    /// Renewed until this long after the grant.
    For { hold_us: u64 },
    /// Never: it ends by itself.
    Never,
}

impl Terms {
    pub(crate) fn lease_us(&self) -> u64 {
        self.lease_ms * 1000
    }

    /// How long a request may stay unanswered before its link is doubted.
    pub(crate) fn answer_within_us(&self) -> u64 {
        (self.lease_us() / 6).clamp(ANSWER_MIN_US, ANSWER_MAX_US)
    }
}

/// No link is doubted earlier than this: a scheduler's hiccup is not a dead server.
const ANSWER_MIN_US: u64 = 50_000;

/// How many answers in a row make no sense before it is surely the record that is damaged: one may be a proxy's hiccup.
const DAMAGED_TRIES: u32 = 3;

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    Until { until_us: u64 },
    ForEver,
}

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
    pub(crate) caller: Option<oneshot::Sender<Verdict>>,
    /// The request in flight, if any.
    pub(crate) asked: Option<Asked>,
    /// How many answers in a row made no sense.
    pub(crate) damaged: u32,
    /// The earliest alarm that is set.
    pub(crate) alarm_us: u64,
}

pub(crate) enum Phase {
    /// Nothing was heard yet.
    Asking { next_us: u64 },
    /// In the store's queue.
    Queued { next_us: u64 },
    /// Pushed a grant that cannot be placed in time: claim first, then enter (P12).
    Claiming { token: Token, until_us: u64, next_us: u64 },
    /// Ours.
    Held(Holding),
    /// Lost, and its guard is still out: what is left is given back when that ends, until the store has ended it itself.
    Ended { token: Token, until_us: u64 },
    /// Being given back.
    Returning(Returning),
}

pub(crate) struct Holding {
    pub(crate) hold: Arc<Hold>,
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
    /// How many of its requests have found no answer.
    pub(crate) unheard: u32,
    pub(crate) caller: Option<oneshot::Sender<Result<GivenBack, Error>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Release(Token),
    Leave,
}

impl What {
    pub(crate) fn op(self, id: GrantId) -> Op {
        match self {
            Self::Release(token) => Op::Release { id, token },
            Self::Leave => Op::Leave { id },
        }
    }
}

/// What the store said to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    Released,
    NotHeld,
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

/// The acquires of one attempt that may yet be carried out (P14).
#[derive(Default)]
pub(crate) struct Tries {
    in_flight: u32,
    /// The one link that all of them are on; `None` when they are spread, or on a link that is gone.
    link: Option<Arc<dyn Link>>,
    spread: bool,
    /// The latest `not_after` of them, in server time.
    pub(crate) until_us: u64,
    /// The requests up to this serial may have been sent before one of them.
    before: u64,
}

impl Tries {
    pub(crate) fn sent(&mut self, link: &Arc<dyn Link>, not_after_us: u64) {
        self.spread |= self.link.as_ref().is_some_and(|known| !same(known, link));
        self.link = Some(Arc::clone(link));
        self.in_flight += 1;
        self.until_us = self.until_us.max(not_after_us);
    }

    /// The one that was noted last is its caller's to send. It may be stopped before that, and whatever we send meanwhile
    /// would overtake it.
    pub(crate) fn left_to_caller(&mut self) {
        self.before = u64::MAX;
    }

    /// The caller has sent it, or never will. The requests after that of this serial come behind it.
    pub(crate) fn sent_by_caller(&mut self, last_serial: u64) {
        self.before = self.before.min(last_serial);
    }

    /// One was answered, or surely not carried out.
    pub(crate) fn answered(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 && !self.spread {
            *self = Self::default();
        }
    }

    /// One went down with its link: it may be carried out until its `not_after`.
    pub(crate) fn gone(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.spread = true;
    }

    /// The store's clock shows this: those of an earlier `not_after` are refused from now on, whatever became of them.
    pub(crate) fn passed(&mut self, now_us: u64) {
        if now_us > self.until_us {
            *self = Self::default();
        }
    }

    /// Where a leave should go, so that it comes after what it ends.
    pub(crate) fn follow(&self) -> Option<&Arc<dyn Link>> {
        self.link.as_ref().filter(|link| self.in_flight > 0 && !self.spread && !link.is_closed())
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight == 0 && !self.spread
    }

    /// Whether a leave that was answered at server time `now_us` was the last word: nothing can come after it.
    pub(crate) fn closed_by(&self, leave: &Asked, now_us: u64) -> bool {
        let is_same_link = !self.spread && self.link.as_ref().is_none_or(|known| same(known, &leave.link));
        (is_same_link && leave.serial > self.before) || now_us > self.until_us
    }
}

/// Whether the session has a link of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Online,
    Offline,
}

pub(crate) fn same(a: &Arc<dyn Link>, b: &Arc<dyn Link>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

impl Attempt {
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
            Phase::Asking { next_us } if self.wait == Wait::No && self.asked.is_none() => *next_us,
            Phase::Asking { next_us } | Phase::Queued { next_us } => next(*next_us),
            Phase::Claiming { until_us, next_us, .. } => next(*next_us).min(*until_us),
            Phase::Held(holding) => next(holding.renew_us).min(holding.hold.valid_until_us()),
            Phase::Ended { until_us, .. } => *until_us,
            // A leave may follow its acquire on the callers' link, which can be up when ours is not.
            Phase::Returning(returning) if self.asked.is_none() && self.tries.follow().is_some() => returning.next_us,
            Phase::Returning(returning) => next(returning.next_us).min(returning.until_us),
        };
        phase_us.min(self.patience_us())
    }

    /// When the caller stops waiting. Who has no time at all still waits for one answer: "nobody knows" is no use to it.
    pub(crate) fn patience_us(&self) -> u64 {
        match (&self.phase, self.wait, &self.asked) {
            (Phase::Asking { .. }, Wait::Until { until_us }, Some(asked)) => until_us.max(asked.usual_us),
            (Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. }, Wait::Until { until_us }, _) => {
                until_us
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

    /// Ends the wait for an answer: for this request, not for a later one.
    pub(crate) fn unask(&mut self, asked: &Asked) {
        if self.asked.as_ref().is_some_and(|current| current.serial == asked.serial) {
            self.asked = None;
        }
    }

    /// The token of the grant that it holds, or is about to claim.
    pub(crate) fn token(&self) -> Option<Token> {
        match &self.phase {
            Phase::Held(holding) => Some(holding.hold.token),
            Phase::Claiming { token, .. } => Some(*token),
            Phase::Asking { .. } | Phase::Queued { .. } | Phase::Ended { .. } | Phase::Returning(_) => None,
        }
    }

    /// Whether so short a lease is enough to enter on, or has to be renewed to a whole one first (P29).
    pub(crate) fn may_enter_on_a_claim(&self, left_us: u64) -> bool {
        self.terms.entry == Entry::OnClaim || left_us >= self.terms.lease_us() || is_on(Mutant::P29StartsOnClaim)
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// Whether it holds an earlier grant than that of this token.
    pub(crate) fn holds_before(&self, token: Token) -> bool {
        matches!(&self.phase, Phase::Held(holding) if holding.hold.token < token)
    }

    /// One more answer made no sense. Answers when to ask again, and `None` once that was tried often enough.
    pub(crate) fn damaged_again(&mut self) -> Option<u64> {
        self.damaged += 1;
        (self.damaged < DAMAGED_TRIES).then_some(RETRY_US)
    }

    /// Tells the caller, once.
    pub(crate) fn tell(&mut self, words: &mut Words, verdict: Verdict) {
        words.verdict(self.id.counter, self.caller.take(), verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_doubted_after_a_sixth_of_the_lease_within_bounds() {
        let terms = |lease_ms| Terms {
            lease_ms,
            renewal: Renewal::Always,
            order: Order::Relaxed,
            entry: Entry::OnClaim,
            label: "".into(),
        };
        assert_eq!(terms(3_000).answer_within_us(), 500_000);
        assert_eq!(terms(30_000).answer_within_us(), ANSWER_MAX_US);
        assert_eq!(terms(100).answer_within_us(), ANSWER_MIN_US);
    }
}
