//! Requests, answers, and the connections between a session and the store.
//!
//! A connection is two queues. What stands in one may wait for any time; when the connection breaks, the answers on it
//! are gone, and the requests on it are gone or (the store had them in a buffer) still carried out, in order, whenever
//! the store comes to them.

use std::collections::VecDeque;

use leasehold_spec::{Answer, Delivery, Event, Order, Token};

/// What a session sends. `n` is the attempt's number, the model's grant id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) n: u8,
    pub(crate) ask: Ask,
    /// The session's clock just before it left.
    pub(crate) sent: u8,
    /// P4, in ticks of the store's clock.
    pub(crate) not_after: u8,
    /// P14, on a leave or a cool-down: up to when an acquire of this attempt, unanswered when that left, may still be
    /// carried out.
    pub(crate) bar: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    Subscribe,
    Acquire {
        ticket: Option<u64>,
        order: Order,
    },
    Renew {
        token: Token,
    },
    /// Its last token that was used, beside its own.
    Release {
        token: Token,
        used: Token,
    },
    Leave {
        used: Token,
    },
    /// For how many ticks nobody is to be granted the lease (P23).
    CoolDown {
        used: Token,
        ticks: u8,
    },
    Reserve {
        token: Token,
        range: u8,
    },
    Settle,
}

/// What a session hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Subscribed,
    /// The script's answer; `others`: whether, in truth, another session waited when it ran.
    Answer {
        to: Request,
        answer: Answer,
        others: bool,
    },
    /// The script was refused or failed: an error, and by rule P8 nothing was done.
    Refused {
        to: Request,
    },
    Push(Delivery),
}

/// One connection of a session. The first one carries its inbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    pub(crate) is_subscribed: bool,
    pub(crate) out: VecDeque<Request>,
    pub(crate) back: VecDeque<Message>,
}

impl Link {
    pub(crate) fn open(is_subscribed: bool) -> Self {
        Self { is_up: true, is_subscribed, out: VecDeque::new(), back: VecDeque::new() }
    }

    /// Whether a grant is told on it: what that is about costs a claim if it is lost.
    pub(crate) fn tells_a_grant(&self) -> bool {
        self.back.iter().any(|m| matches!(m, Message::Push(push) if push.event == Event::Granted))
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.out.is_empty() && self.back.is_empty()
    }

    /// The connection breaks. Returns the requests that the store may still carry out.
    pub(crate) fn cut(&mut self) -> VecDeque<Request> {
        self.is_up = false;
        self.is_subscribed = false;
        self.back.clear();
        std::mem::take(&mut self.out)
    }
}

/// What becomes of the requests on a connection that broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// They never arrive.
    Gone,
    /// The store has them in a buffer.
    Late,
}
