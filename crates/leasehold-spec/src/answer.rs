//! The answers and the messages of a store. The name of a number ends with its unit.

use crate::id::{GrantId, SessionId, Token};
use crate::inspection::Inspection;
use crate::take::Kind;

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The clock of the store on which leases are counted. 0 if the client made the answer itself, without the store.
    pub now_us: u64,
    /// The highest token granted so far. Of two statements about one ID, the one with the larger number is the later
    /// one (P3).
    pub highest: Token,
    /// Whether others wait (P9).
    pub contention: Contention,
    /// Whether the caller must call settle again.
    pub rest: Rest,
    /// The length of the claim, if this step granted the lease to a waiter. The caller re-checks once after that time
    /// (P7).
    pub handed_claim_ms: Option<u64>,
    /// The decision.
    pub outcome: Outcome,
}

/// Whether others wait for a lease (P9). This is a level, repeated in every answer, and not an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contention {
    /// Nobody waits.
    #[default]
    None,
    /// At least one client waits.
    Others,
    /// At least one client waits and asks for strict order.
    Strict,
}

/// Whether a step stopped before it was done (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rest {
    /// The queue is settled.
    #[default]
    Done,
    /// The step checked 64 waiters, and there are more: call settle again.
    More,
}

/// The decision of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The attempt holds.
    Granted {
        /// The fencing token.
        token: Token,
        /// The time left of the lease, counted from the `now_us` of the answer.
        left_us: u64,
        /// The number of tokens that are reserved, counted from `token`. Of a barrier: the place of the arrival, counted
        /// from the last one of its round, which has 1 (P52).
        range: u64,
    },
    /// The attempt waits.
    Queued {
        /// The place to come back to.
        ticket: u64,
        /// The time left of the holder's lease.
        left_us: u64,
        /// Whether this request put the attempt into the queue.
        joined: Joined,
    },
    /// Another client holds, and the attempt does not wait.
    Busy {
        /// The time left of the holder's lease.
        left_us: u64,
    },
    /// The attempt is over: its grant was given back.
    Gone,
    /// The request came after its `not_after`: nothing was done.
    Late,
    /// The queue is full: nothing was done.
    Full,
    /// The lease was extended.
    Renewed {
        /// The time left of the lease.
        left_us: u64,
    },
    /// Tokens are reserved, counted from the token of the grant.
    Reserved {
        /// The number of tokens.
        range: u64,
    },
    /// The client does not hold the grant, or no longer.
    Lost {
        /// The reason, as far as the store knows it.
        how: LostHow,
    },
    /// The grant is given back.
    Released,
    /// There was nothing to give back: the lease had ended before.
    NotHeld,
    /// The attempt neither waits nor holds.
    Left {
        /// The state of the attempt before.
        was: Was,
    },
    /// The name does not allow this. Nothing was changed.
    Refused(Refusal),
    /// The grant takes fewer units now, or as many as before.
    Lowered,
    /// The name has this many units from now on.
    Resized,
    /// Waiters of the condition variable are notified.
    Notified {
        /// The number of waiters.
        count: u32,
    },
    /// The notification is spent.
    Spent,
    /// The state of the latch.
    Counted {
        /// The number of count-downs that are missing.
        left: u32,
        /// The token of its creation.
        born: Token,
    },
    /// The grant has another label now.
    Put,
    /// No live waiter has the label: nothing was changed.
    NoWaiter,
    /// The latch is gone.
    Deleted,
    /// The grant is marked for revocation.
    Revoking {
        /// The time left to the holder.
        left_us: u64,
    },
    /// The queue was settled.
    Settled,
    /// The holders, the queue, and what the name is.
    Inspected(Inspection),
}

impl Outcome {
    /// Returns the decision in a word or two, in lower case, for reports and traces.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Granted { .. } => "granted",
            Self::Queued { .. } => "queued",
            Self::Busy { .. } => "busy",
            Self::Gone => "gone",
            Self::Late => "late",
            Self::Full => "full",
            Self::Refused(_) => "refused",
            Self::Lowered => "lowered",
            Self::Resized => "resized",
            Self::Notified { .. } => "notified",
            Self::Spent => "spent",
            Self::Counted { .. } => "counted",
            Self::Deleted => "deleted",
            Self::Put => "put",
            Self::NoWaiter => "no waiter",
            Self::Renewed { .. } => "renewed",
            Self::Reserved { .. } => "reserved",
            Self::Lost { how: LostHow::Revoked } => "revoked",
            Self::Lost { how: LostHow::NotHeld } => "lost",
            Self::Released => "released",
            Self::NotHeld => "not held",
            Self::Left { was: Was::Queued } => "waited",
            Self::Left { was: Was::Granted } => "held",
            Self::Left { was: Was::Absent } => "absent",
            Self::Revoking { .. } => "marked",
            Self::Settled => "settled",
            Self::Inspected(_) => "inspected",
        }
    }
}

/// Whether an attempt that waits joined the queue by this request or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Joined {
    /// By this request. If the request had a ticket, the attempt had been dropped from the queue, and other waiters of
    /// its session may have been dropped, too (P15).
    Now,
    /// By an earlier request.
    Before,
}

/// The reason for which a renewal or a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostHow {
    /// The grant was revoked.
    Revoked,
    /// The grant has ended, or the store does not know it: compare tokens.
    NotHeld,
}

/// The state of an attempt before it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Was {
    /// The attempt waited.
    Queued,
    /// The attempt held, and the lease was handed on.
    Granted,
    /// The attempt neither waited nor held.
    Absent,
}

/// The reason for which a name does not allow a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The name is of another kind, or has another limit: these (P31).
    Other {
        /// The kind of the name.
        kind: Kind,
        /// The number of units of the name.
        limit: u32,
    },
    /// The request asks for no unit, or for more units than the name has (P40).
    TooMany {
        /// The number of units of the name.
        limit: u32,
    },
    /// There is no such latch: it was not created, was deleted, or has expired (P44). Or the round of a barrier was broken
    /// (P52).
    Absent,
    /// An upgrade names a grant that is not held, or that cannot be upgraded (P37).
    NoGrant,
}

/// A message to the inbox of a session. It can be lost: nothing depends on the message alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The session that receives the message.
    pub to: SessionId,
    /// The clock of the store.
    pub now_us: u64,
    /// Whether others wait.
    pub contention: Contention,
    /// Whether the receiver must call settle again.
    pub rest: Rest,
    /// The grant that the message concerns. For [`Event::Ending`], the attempt that waits.
    pub id: GrantId,
    /// The token of the grant. For [`Event::Ending`], the token of the grant that ends.
    pub token: Token,
    /// The time left of the lease. For [`Event::Ending`], the time left of the lease that ends.
    pub left_us: u64,
    /// The number of tokens that are reserved for the grant, counted from `token`. Of a barrier: see [`Outcome::Granted`].
    pub range: u64,
    /// The event that the message reports.
    pub event: Event,
}

/// An event that a store reports to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The grant was made: the receiver holds already.
    Granted,
    /// The grant was marked for revocation.
    Revoked,
    /// Another client waits now, or asks for strict order now, and nobody did before (P9). The store sends this only to
    /// holders of a range, because they may be handing on inside their session. The message can come more than once,
    /// and late: it reports the state at its own time.
    Wanted,
    /// The lease that the receiver waits for was marked (P10), or cools down (P23). It ends at another time than the
    /// receiver knows. The message can come more than once.
    Ending,
}
