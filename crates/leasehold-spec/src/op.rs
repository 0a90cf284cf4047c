//! The requests of a session to a store. The name of a number ends with its unit. The rules (P1 …) are in
//! docs/PROTOCOL.md.

use std::sync::Arc;

use crate::id::{GrantId, PublicId, Token};
use crate::take::{Kind, Take};

/// One request about one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Acquires the lease, or joins the queue for it. A waiter sends the same request again to re-check its state.
    Acquire(Acquire),
    /// Extends the lease that `id` holds with `token`.
    Renew(Renew),
    /// Gives the lease back. The next waiter holds the lease before the store replies.
    Release {
        /// The grant.
        id: GrantId,
        /// The token of the grant.
        token: Token,
        /// The highest token of the range that was used (P19): the token of the next grant is above it. If the session
        /// handed nothing on inside itself, this is the token of the grant.
        used: Token,
    },
    /// Stops waiting. If the grant was already made, the store hands the lease on.
    Leave {
        /// The attempt that ends.
        id: GrantId,
        /// The highest token that was used under any grant of the attempt. [`Token::NONE`] if no grant of it was
        /// entered.
        used: Token,
    },
    /// Ends the attempt, and keeps all clients out for a while (P23). If the attempt holds the lease, nobody is granted
    /// the lease before that time is over. If the attempt does not hold, this is a leave.
    CoolDown {
        /// The attempt that ends.
        id: GrantId,
        /// The highest token that was used under any grant of the attempt.
        used: Token,
        /// The time for which nobody is granted the lease, from now on. A repeat does not restart it.
        for_ms: u64,
    },
    /// Reserves more tokens for the grant that `id` holds with `token` (P19). The rest of the grant stays as it is.
    Reserve {
        /// The grant.
        id: GrantId,
        /// The token of the grant.
        token: Token,
        /// The number of tokens that the range is to have, counted from `token`. The grant gets as many as the clock
        /// allows, and never fewer than it has.
        range: u64,
    },
    /// Gives a part of the units of the grant back, or its right to an upgrade (P39). ID and token stay.
    Lower {
        /// The grant.
        id: GrantId,
        /// The token of the grant.
        token: Token,
        /// The number of units that the grant keeps. They never become more.
        units: u32,
    },
    /// Changes the number of permits of a semaphore (P40). Grants beyond a smaller number live on.
    Resize {
        /// The number that the caller saw. A late repeat does not undo a later change.
        from: u32,
        /// The number from now on.
        to: u32,
        /// The server time after which the store refuses the request as late.
        not_after_us: u64,
    },
    /// Notifies the first waiters of a condition variable. If fewer wait, it notifies those. If nobody waits, it does
    /// nothing. A repeat notifies others, for nothing: that is allowed (P43).
    Notify {
        /// The number of waiters.
        count: u32,
    },
    /// Ends a notification whose receiver acts on it (P42). A notification that ends in any other way goes to the next
    /// waiter.
    Spend {
        /// The grant.
        id: GrantId,
        /// The token of the grant.
        token: Token,
    },
    /// Creates a latch, or returns its state (P44).
    CreateLatch {
        /// The number of count-downs that open it. 0 creates nothing.
        limit: u32,
        /// For how long the latch is kept after its creation and after each count-down.
        keep_ms: u64,
        /// The server time after which the store refuses the request as late.
        not_after_us: u64,
    },
    /// Counts a latch down, once for each ID (P44).
    CountDown {
        /// The ID of the count-down.
        id: GrantId,
        /// The latch: the token of its creation.
        born: Token,
    },
    /// Deletes a latch. Its waiters learn that it is gone.
    DeleteLatch {
        /// The latch: the token of its creation.
        born: Token,
    },
    /// Changes the label of the grant that `id` holds with `token`: the value of a leader (P48).
    Put {
        /// The grant.
        id: GrantId,
        /// The token of the grant.
        token: Token,
        /// The label from now on.
        label: String,
    },
    /// Gives the grant to the first live waiter with this label. Without one, the grant stays as it is (P51).
    HandTo {
        /// The grant.
        id: GrantId,
        /// The token of the grant.
        token: Token,
        /// The label of the waiter.
        label: String,
    },
    /// Asks the holder to stop, and ends its lease after the grace.
    Revoke {
        /// The holder that the caller saw.
        holder: PublicId,
        /// The token that the caller saw.
        token: Token,
        /// The longest time that is left to the holder. 0 ends the lease at once.
        grace_ms: u64,
    },
    /// Only settles the queue: after a claim has ended, after MORE, and when the memory is full.
    Settle,
    /// Returns the holders and the queue, and changes nothing.
    Inspect,
}

impl Acquire {
    /// Returns the place to which the request comes back, if it knows one.
    pub(crate) fn ticket(&self) -> Option<u64> {
        match &self.patience {
            Patience::Try => None,
            Patience::Queue(place) => place.ticket,
        }
    }
}

impl Op {
    /// Returns the grant or the attempt that the request concerns, if it names one by its whole ID. Of the waiters, the
    /// request can put only this one into the queue, or move or change it.
    #[must_use]
    pub const fn subject(&self) -> Option<GrantId> {
        match self {
            Self::Acquire(acquire) => Some(acquire.id),
            Self::Renew(renew) => Some(renew.id),
            Self::Release { id, .. }
            | Self::Leave { id, .. }
            | Self::CoolDown { id, .. }
            | Self::Reserve { id, .. }
            | Self::Lower { id, .. }
            | Self::Spend { id, .. }
            | Self::Put { id, .. }
            | Self::HandTo { id, .. } => Some(*id),
            Self::Resize { .. }
            | Self::Notify { .. }
            | Self::CreateLatch { .. }
            | Self::CountDown { .. }
            | Self::DeleteLatch { .. }
            | Self::Revoke { .. }
            | Self::Settle
            | Self::Inspect => None,
        }
    }

    /// Returns the kind of name that the operation is for, if it is for only one.
    #[must_use]
    pub const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Lower { .. } => Some(Kind::ReadWrite),
            Self::Resize { .. } => Some(Kind::Semaphore),
            Self::Notify { .. } | Self::Spend { .. } => Some(Kind::Condition),
            Self::CreateLatch { .. } | Self::CountDown { .. } | Self::DeleteLatch { .. } => Some(Kind::Latch),
            Self::Acquire(Acquire { take: Take { kind, .. }, .. }) => Some(*kind),
            _ => None,
        }
    }

    /// Returns the name of the operation, in lower case, for reports and traces.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Acquire(_) => "acquire",
            Self::Renew(_) => "renew",
            Self::Release { .. } => "release",
            Self::Leave { .. } => "leave",
            Self::CoolDown { .. } => "cool down",
            Self::Reserve { .. } => "reserve",
            Self::Lower { .. } => "lower",
            Self::Resize { .. } => "resize",
            Self::Notify { .. } => "notify",
            Self::Spend { .. } => "spend",
            Self::Put { .. } => "put",
            Self::HandTo { .. } => "hand to",
            Self::CreateLatch { .. } => "create latch",
            Self::CountDown { .. } => "count down",
            Self::DeleteLatch { .. } => "delete latch",
            Self::Revoke { .. } => "revoke",
            Self::Settle => "settle",
            Self::Inspect => "inspect",
        }
    }
}

/// A request to take the lease, or to wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The attempt. Every retry and every re-check has the same ID.
    pub id: GrantId,
    /// The share of the name that the attempt takes.
    pub take: Take,
    /// The length of the lease.
    pub lease_ms: u64,
    /// The number of tokens to reserve with the grant, its own included. A client that hands nothing on inside its
    /// session asks for 1. The limit is [`RANGE_MAX`](crate::limits::RANGE_MAX).
    pub range: u64,
    /// The server time after which the store refuses the request as late (P4).
    pub not_after_us: u64,
    /// The choice between waiting and not waiting while another client holds.
    pub patience: Patience,
    /// The label of the client, which `inspect` shows.
    pub label: Arc<str>,
}

/// The choice between waiting and not waiting while another client holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Patience {
    /// Does not wait: the answer is Busy.
    Try,
    /// Joins the queue.
    Queue(Place),
}

/// The terms on which an attempt waits in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The time for which a pushed grant lasts before its receiver has sent a request (P7).
    pub claim_ms: u64,
    /// The timeout of the caller, from now on. After this time the entry counts as gone. `None` waits forever.
    pub limit_ms: Option<u64>,
    /// The ticket from an earlier QUEUED: the place to which the attempt comes back (P6).
    pub ticket: Option<u64>,
    /// The way in which the waiter learns of its grant.
    pub hears: Hears,
    /// Whether local hand-overs of other sessions must stop for this waiter.
    pub order: Order,
}

/// The way in which a waiter learns of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hears {
    /// Through its inbox. If the inbox is detached, the waiter is gone.
    Listens,
    /// By polling. If the waiter has not polled for three re-check intervals, it is gone.
    Polls,
}

/// The order that a waiter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// First come, first served between sessions.
    Relaxed,
    /// Strict global order: no session hands on locally while this waiter waits.
    Strict,
}

/// A request to extend a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// The grant.
    pub id: GrantId,
    /// The token of the grant.
    pub token: Token,
    /// The moment from which the new lease counts.
    pub from: From,
    /// The length of the lease from that moment on.
    pub lease_ms: u64,
    /// The server time after which the store refuses the request as late: the end of the holder's validity.
    pub not_after_us: u64,
}

/// The moment from which a renewed lease counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum From {
    /// The time at which the server carries out the renewal.
    Now,
    /// The time of the grant, and only while the grant is an unclaimed push. A fixed lease is claimed like this, once.
    Grant,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;

    #[test]
    fn only_a_request_that_names_a_whole_id_has_a_subject() {
        let id = GrantId { session: SessionId(1), counter: 2, nonce: 3 };
        let (token, used, holder) = (Token::NONE, Token::NONE, id.public());
        let renew = Renew { id, token, from: From::Now, lease_ms: 1, not_after_us: 1 };
        let named = [
            Op::Renew(renew),
            Op::Release { id, token, used },
            Op::Leave { id, used },
            Op::CoolDown { id, used, for_ms: 1 },
            Op::Reserve { id, token, range: 1 },
        ];
        assert_eq!(named.map(|op| op.subject()), [Some(id); 5]);
        let others = [Op::Revoke { holder, token, grace_ms: 0 }, Op::Settle, Op::Inspect];
        assert_eq!(others.map(|op| op.subject()), [None; 3]);
    }
}
