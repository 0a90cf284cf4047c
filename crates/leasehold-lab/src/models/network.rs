//! Requests, replies, and the connections between a session and the store.
//!
//! A connection is two queues. A message may stay in a queue for any time. When the connection breaks, its replies are
//! lost. Its requests are lost too, or, if the store had them in a buffer, are still carried out later, in order.

use std::collections::VecDeque;

use leasehold_spec::{Answer, Delivery, Event, Order, Token};

/// A request that a session sends. `n` is the attempt's number, the model's grant ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) n: u8,
    pub(crate) ask: Ask,
    /// The session's clock just before the request was sent.
    pub(crate) sent: u8,
    /// The request must not be carried out after this time (P4), in ticks of the store's clock.
    pub(crate) not_after: u8,
    /// P14, on a leave or a cool-down: until when an acquire of this attempt that had no reply when this request was
    /// sent may still be carried out.
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
    /// The grant's own token, and the last of its tokens that was used.
    Release {
        token: Token,
        used: Token,
    },
    Leave {
        used: Token,
    },
    /// The number of ticks for which nobody is to be granted the lease (P23).
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

/// A message that a session receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Subscribed,
    /// The script's reply. `others`: whether another session really waited when the script ran.
    Answer {
        to: Request,
        answer: Answer,
        others: bool,
    },
    /// The script was refused or failed: an error, and by rule P8 nothing was changed.
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

    /// Whether a pushed grant is in flight on this connection. If the push is lost, its grant costs a claim.
    pub(crate) fn has_pushed_grant(&self) -> bool {
        self.back.iter().any(|m| matches!(m, Message::Push(push) if push.event == Event::Granted))
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.out.is_empty() && self.back.is_empty()
    }

    /// Breaks the connection. Returns the requests that the store may still carry out.
    pub(crate) fn cut(&mut self) -> VecDeque<Request> {
        self.is_up = false;
        self.is_subscribed = false;
        self.back.clear();
        std::mem::take(&mut self.out)
    }
}

/// The fate of the requests on a connection that broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// They never arrive.
    Gone,
    /// The store has them in a buffer.
    Late,
}
