//! An attempt: one grant ID, from before its first request until the last confirmation.
//!
//! ```text
//!                     QUEUED                     message
//!   Asking ────────────────────────► Queued ───────────────────► Claiming
//!     │ GRANTED                        │ re-check GRANTED, or      │ claim confirmed
//!     ▼                                ▼ message in time           ▼
//!   Held ◄──────────────────────────────────────────────────────────
//!     │ released, dropped, or validity over     │ lost, and its guard is still out
//!     ▼                                         ▼
//!   Returning ◄───────────────────────────── Ended          any phase: given up ──► Returning ──► gone
//! ```
//!
//! The attempt lives as long as the store may have something of it, whatever becomes of the caller. A caller owns a
//! receiver, and a guard owns a [`Hold`].

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Contention, GrantId, Mode, Name, Outcome, Rest, Token};
use tokio::sync::oneshot;

use super::effects::{Effects, Verdict};
use super::holding::{Holding, Reach};
use super::order::{InFlight, SendOrder};
use super::returning::Returning;
use crate::clock::margin_us;
use crate::error::Error;
use crate::session::bounds::{ANSWER_MAX_US, RETRY_US};
use crate::session::hold::Hold;
use crate::session::inbox_keeper::InboxKeeper;
use crate::session::terms::{Entry, Terms, Wait};

/// How many damaged replies in a row show that the record is damaged. One may be the hiccup of a proxy.
const DAMAGED_TRIES: u32 = 3;

pub(crate) struct Attempt {
    pub(crate) id: GrantId,
    pub(crate) name: Name,
    pub(crate) terms: Arc<Terms>,
    pub(crate) requester: Requester,
    pub(crate) wait: Wait,
    pub(crate) phase: Phase,
    pub(crate) order: SendOrder,
    /// The largest token in a statement about this ID that was believed (P3).
    pub(crate) latest: Token,
    /// The token that a reply contradicted, and the last request that had been sent by then.
    pub(crate) doubted: Option<(Token, u64)>,
    /// Whether its grant is one of an earlier run of the store, and this run has not confirmed it (P13).
    pub(crate) is_of_earlier_run: bool,
    pub(crate) ticket: Option<u64>,
    /// Until when a party may repeat its arrival without a place (P52).
    pub(crate) arrive_by_us: u64,
    /// From when on no earlier arrival without a place can be executed (P52).
    pub(crate) arrive_again_us: u64,
    /// Whether the time of a party is over, and it asks how its round ends (P52).
    pub(crate) asks_last: bool,
    /// How many tokens it asks for (P19).
    pub(crate) range: u64,
    /// Statements about a grant that arrived before the grant itself.
    pub(crate) early: Early,
    pub(crate) in_flight: Option<InFlight>,
    /// How many damaged replies came in a row, and the last of them.
    pub(crate) damaged: Option<(u32, Error)>,
    pub(crate) _keeps_inbox: Option<InboxKeeper>,
    /// The attempt that upgrades this one; 0: none.
    pub(crate) upgrade: u64,
    /// The earliest alarm that is set.
    pub(crate) alarm_us: u64,
}

/// The receiver of the grant.
pub(crate) enum Requester {
    /// Nobody any more: the caller has its result, or is gone.
    Nobody,
    Caller(oneshot::Sender<Verdict>),
    /// The next waiter of a local queue (P21).
    Queue(u64),
}

pub(crate) enum Phase {
    /// No reply has come yet. A caller whose deadline ends before `usual_us` waits until then, also while the request is
    /// about to be repeated: a store that replies is given the time to do so.
    Asking {
        next_us: u64,
        usual_us: u64,
    },
    /// In the queue of the store.
    Queued {
        next_us: u64,
    },
    /// A message brought a grant, and the client cannot tell how much of it is left: it claims first, and enters then
    /// (P12). `usual_us` is that of `Asking`, for the reply to the claim.
    Claiming {
        token: Token,
        range: u64,
        until_us: u64,
        next_us: u64,
        usual_us: u64,
    },
    Held(Holding),
    /// Lost, and its guard is still out. The rest is returned when the guard ends, until the store has ended it itself.
    Ended {
        token: Token,
        used: Token,
        until_us: u64,
    },
    Returning(Returning),
}

/// Statements about a grant that can arrive before it.
#[derive(Default)]
pub(crate) struct Early {
    /// Others wait for the grant with this token, as the server said at this time of its clock.
    pub(crate) wanted: Option<(Token, Contention, u64)>,
    /// The store keeps the grant for less time than it had said.
    pub(crate) shortened: Option<Shortened>,
}

/// A grant that the store keeps for less time than it had said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortened {
    pub(crate) token: Token,
    /// How long it is kept at most.
    pub(crate) until_us: u64,
    /// Since when this is known. The reply to a later request takes it into account; a request of the same microsecond may
    /// not.
    pub(crate) since_us: u64,
}

impl Shortened {
    /// Combines two statements about one grant. Two threads can deliver them in the wrong order, so neither is surely the
    /// later one: the shorter time counts, until the reply to a request that was sent after both.
    pub(crate) fn and(self, other: Self) -> Self {
        let Self { token, until_us, since_us } = other;
        if self.token != token {
            return other;
        }
        Self { token, until_us: until_us.min(self.until_us), since_us: since_us.max(self.since_us) }
    }
}

/// Returns when a caller with this deadline stops waiting. If a reply is due later than the deadline, the caller waits for
/// it, but no longer than [`ANSWER_MAX_US`] after the deadline.
pub(crate) fn wait_ends_us(until_us: u64, answer_us: u64) -> u64 {
    until_us.max(answer_us.min(until_us.saturating_add(ANSWER_MAX_US)))
}

impl Attempt {
    /// Returns an attempt that has sent nothing yet, and asks for one token.
    pub(crate) fn new(
        id: GrantId,
        name: Name,
        terms: Arc<Terms>,
        requester: Requester,
        wait: Wait,
        phase: Phase,
    ) -> Self {
        Self {
            id,
            name,
            terms,
            requester,
            wait,
            phase,
            order: SendOrder::default(),
            latest: Token::NONE,
            doubted: None,
            is_of_earlier_run: false,
            ticket: None,
            arrive_by_us: u64::MAX,
            arrive_again_us: 0,
            asks_last: false,
            range: 1,
            early: Early::default(),
            in_flight: None,
            damaged: None,
            _keeps_inbox: None,
            upgrade: 0,
            alarm_us: u64::MAX,
        }
    }

    /// Returns whether the store can have no other grant of this attempt than the one that is known here: no acquire may
    /// still be carried out, and no failover can have brought an earlier state back.
    pub(crate) fn is_known(&self) -> bool {
        self.order.is_settled() && !self.is_of_earlier_run
    }

    /// Returns when the next step is due if no reply comes before. Without a connection, only time matters.
    pub(crate) fn due_us(&self, reach: Reach) -> u64 {
        let answer_us = self.in_flight.as_ref().map_or(u64::MAX, |request| request.until_us);
        // While a request is in flight, the next one waits for its reply or its timeout.
        let next = |next_us: u64| match reach {
            _ if self.in_flight.is_some() => answer_us,
            Reach::Online | Reach::WithoutInbox => next_us,
            Reach::Offline => u64::MAX,
        };
        let phase_us = match &self.phase {
            // A caller that does not wait gets the error that there is no connection.
            Phase::Asking { next_us, .. } if self.wait == Wait::No && self.in_flight.is_none() => *next_us,
            Phase::Asking { .. } | Phase::Queued { .. } if reach == Reach::WithoutInbox => answer_us,
            Phase::Asking { next_us, .. } | Phase::Queued { next_us } => next(*next_us),
            Phase::Claiming { until_us, next_us, .. } => next(*next_us).min(*until_us),
            Phase::Held(holding) => next(holding.renew_us).min(holding.due_us(reach)),
            Phase::Ended { until_us, .. } => *until_us,
            // A leave may follow its acquire on the callers' connection, which can be up when the session's is not.
            Phase::Returning(returning) if self.in_flight.is_none() && self.order.follow().is_some() => {
                returning.next_us
            }
            Phase::Returning(returning) => next(returning.next_us).min(returning.until_us),
        };
        phase_us.min(self.wait_ends_us())
    }

    /// Moves the next request of the attempt.
    pub(crate) fn set_next(&mut self, at_us: u64) {
        match &mut self.phase {
            Phase::Asking { next_us, .. } | Phase::Queued { next_us } | Phase::Claiming { next_us, .. } => {
                *next_us = at_us;
            }
            Phase::Held(holding) if holding.renew_us != u64::MAX => holding.renew_us = at_us,
            Phase::Held(_) | Phase::Ended { .. } => {}
            Phase::Returning(returning) => returning.next_us = at_us,
        }
    }

    /// Returns when the caller stops waiting. A caller whose deadline is near still waits for the reply to its first
    /// request, or to a claim: an error that says that nobody knows is of no use to it.
    pub(crate) fn wait_ends_us(&self) -> u64 {
        match (&self.phase, self.wait) {
            (Phase::Asking { .. } | Phase::Claiming { .. } | Phase::Queued { .. }, Wait::Until { until_us }) => {
                wait_ends_us(until_us, self.first_answer_us())
            }
            _ => u64::MAX,
        }
    }

    /// Returns when the first reply, or the reply to a claim, is late. Until then no waiter gets the error that nobody
    /// knows.
    pub(crate) fn first_answer_us(&self) -> u64 {
        match (&self.phase, &self.in_flight) {
            // With a short lease the connection is doubted, and the request repeated, before a reply is late.
            (Phase::Asking { usual_us, .. }, Some(request)) => request.usual_us.max(*usual_us),
            (Phase::Asking { usual_us, .. } | Phase::Claiming { usual_us, .. }, _) => *usual_us,
            _ => 0,
        }
    }

    /// Returns whether a statement made when `highest` was the last token is newer than what is believed. A grant wins a
    /// tie.
    pub(crate) fn believes(&self, highest: Token) -> bool {
        match self.phase {
            _ if is_on(Mutant::P3OlderWins) => true,
            Phase::Held(_) | Phase::Ended { .. } | Phase::Claiming { .. } => highest > self.latest,
            _ => highest >= self.latest,
        }
    }

    /// Notes a reply that contradicts `latest`. Such a reply may be an old one. But if its request was sent after another
    /// reply had contradicted the same token, the store has forgotten that token: then nothing is known any more (P3).
    pub(crate) fn note_contradiction(&mut self, answer: &Answer, serial: u64, last_serial: u64) {
        let contradicts = match answer.outcome {
            Outcome::Granted { token, .. } => token < self.latest,
            Outcome::Queued { .. } => !self.believes(answer.highest),
            _ => false,
        };
        let is_waiting = matches!(self.phase, Phase::Asking { .. } | Phase::Queued { .. });
        match self.doubted {
            _ if !contradicts || !is_waiting => {}
            Some((token, sent)) if token == self.latest && serial > sent => self.latest = Token::NONE,
            Some((token, _)) if token == self.latest => {}
            _ => self.doubted = Some((self.latest, last_serial)),
        }
    }

    /// Ends the wait for the reply to this request, but not to a later one. Returns whether the attempt waited for this
    /// request. If not, it has sent another request or is about to, and a fault of this one means nothing to it.
    pub(crate) fn end_wait(&mut self, request: &InFlight) -> bool {
        self.in_flight.take_if(|current| current.serial == request.serial).is_some()
    }

    /// Returns the token of the grant that it holds, or is about to claim.
    pub(crate) fn token(&self) -> Option<Token> {
        match &self.phase {
            Phase::Held(holding) => Some(holding.budget.grant()),
            Phase::Claiming { token, .. } => Some(*token),
            Phase::Asking { .. } | Phase::Queued { .. } | Phase::Ended { .. } | Phase::Returning(_) => None,
        }
    }

    /// Returns how much of a grant was left at a moment of our clock, if its store said so much.
    pub(crate) fn left_us(&self, token: Token, from_us: u64, said_us: u64) -> u64 {
        let shortened = self.early.shortened.filter(|early| early.token == token && from_us <= early.since_us);
        let lease_us = self.terms.lease_us();
        // The statement can rest on a vote that is nearly a whole lease old, and its clock had that long to run ahead.
        let most_us = shortened.map_or(u64::MAX, |early| early.until_us.saturating_sub(margin_us(lease_us) + from_us));
        said_us.min(lease_us).min(most_us)
    }

    /// Returns whether the caller may enter on so short a lease, or has to renew it to a whole one first (P29).
    pub(crate) fn may_enter_on_a_claim(&self, left_us: u64) -> bool {
        self.terms.entry == Entry::OnClaim || left_us >= self.terms.lease_us() || is_on(Mutant::P29StartsOnClaim)
    }

    /// Returns whether the reply to a renewal says nothing new about the name.
    pub(crate) fn knows(&self, answer: &Answer) -> bool {
        let is_quiet = answer.rest == Rest::Done && answer.handed_claim_ms.is_none();
        is_quiet && matches!(&self.phase, Phase::Held(holding) if holding.budget.contention() == answer.contention)
    }

    /// Returns whether another caller than its own has the grant.
    pub(crate) fn is_handed_on(&self) -> bool {
        match &self.phase {
            Phase::Held(holding) => holding.hold.token != holding.budget.grant(),
            Phase::Ended { token, used, .. } => token != used,
            _ => false,
        }
    }

    /// Returns whether the guard with this hold is the one that is out. A hold that was handed on is not, although its
    /// attempt still holds.
    pub(crate) fn is_out(&self, hold: &Hold) -> bool {
        self.id == hold.id
            && match &self.phase {
                Phase::Held(holding) => holding.hold.token == hold.token && holding.is_in_use(),
                Phase::Ended { used, .. } => *used == hold.token,
                _ => false,
            }
    }

    /// Returns whether it is an arrival that the store may have counted: the others of its round may be let through.
    pub(crate) fn may_have_arrived(&self) -> bool {
        self.terms.is_arrival() && (self.ticket.is_some() || !self.order.is_settled())
    }

    /// Returns whether it is an upgrade whose caller does not wait.
    pub(crate) fn only_tries_to_upgrade(&self) -> bool {
        self.wait == Wait::No && matches!(self.terms.take.mode, Mode::Instead { .. })
    }

    /// Returns the hold of a held lease.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        match &self.phase {
            Phase::Held(holding) => Some(Arc::clone(&holding.hold)),
            _ => None,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// Returns whether it waits in the queue of the store for this name, with no request in flight.
    pub(crate) fn may_recheck(&self, name: &Name) -> bool {
        matches!(self.phase, Phase::Queued { .. }) && self.in_flight.is_none() && self.name == *name
    }

    /// Returns whether it holds an earlier grant than the one with this token.
    pub(crate) fn holds_before(&self, token: Token) -> bool {
        matches!(&self.phase, Phase::Held(holding) if holding.budget.grant() < token)
    }

    pub(crate) fn queue(&self) -> Option<u64> {
        match self.requester {
            Requester::Queue(queue) => Some(queue),
            Requester::Nobody | Requester::Caller(_) => None,
        }
    }

    /// Counts one more damaged reply. Returns the pause before the next try, and `None` after enough tries.
    pub(crate) fn note_damaged(&mut self, error: &Error) -> Option<u64> {
        let tries = self.damaged.as_ref().map_or(0, |(tries, _)| *tries) + 1;
        self.damaged = Some((tries, error.share()));
        (tries < DAMAGED_TRIES).then_some(RETRY_US)
    }

    /// Tells its own caller the result, once.
    pub(crate) fn tell(&mut self, effects: &mut Effects, verdict: Verdict) {
        effects.verdict(self.id.counter, self.take_caller(), verdict);
    }

    pub(crate) fn take_caller(&mut self) -> Option<oneshot::Sender<Verdict>> {
        match std::mem::replace(&mut self.requester, Requester::Nobody) {
            Requester::Caller(caller) => Some(caller),
            other => {
                self.requester = other;
                None
            }
        }
    }
}
