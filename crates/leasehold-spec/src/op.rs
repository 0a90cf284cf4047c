//! What a session asks of a store, and what it may hear. The unit of a number is the end of its name; the rules (P1 …)
//! are in docs/PROTOCOL.md.

use crate::id::{GrantId, PublicId, SessionId, Token};

/// One request about one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Take the lease, or join the queue for it. Sent again, it is also how a waiter looks.
    Acquire(Acquire),
    /// Lengthen the lease that `id` holds with `token`.
    Renew(Renew),
    /// Give the lease back; the next waiter holds before this returns.
    Release {
        /// The grant.
        id: GrantId,
        /// Its token.
        token: Token,
        /// The highest token of its range that was used (P19): the next grant's is above that. Its own, where nothing was
        /// handed on inside the session.
        used: Token,
    },
    /// Stop waiting. If the grant was already made, hand it on.
    Leave {
        /// The attempt that ends.
        id: GrantId,
        /// The highest token that was used under any grant of it; [`Token::NONE`] where none was entered.
        used: Token,
    },
    /// End the attempt, and keep everybody out for a while (P23). If it holds the lease, nobody is granted it before that
    /// time is over. If it does not hold, this is a leave.
    CoolDown {
        /// The attempt that ends.
        id: GrantId,
        /// The highest token that was used under any grant of it.
        used: Token,
        /// For how long nobody is granted the lease, from now on. A repeat does not begin it anew.
        for_ms: u64,
    },
    /// Reserve more tokens for the grant that `id` holds with `token` (P19). Nothing else about it changes.
    Reserve {
        /// The grant.
        id: GrantId,
        /// Its token.
        token: Token,
        /// How many tokens its range is to have, counted from its own; it gets as many as the clock allows, and never fewer
        /// than it has.
        range: u64,
    },
    /// Ask the holder to stop, and end its lease after the grace.
    Revoke {
        /// Whom the caller saw.
        holder: PublicId,
        /// The token that the caller saw.
        token: Token,
        /// What is left to the holder, at most. 0 ends the lease at once.
        grace_ms: u64,
    },
    /// Only look after the queue: after a claim has ended, after MORE, and when the memory is full.
    Settle,
    /// Look, and change nothing.
    Inspect,
}

/// Take the lease, or queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The attempt. The same id on every retry and every look.
    pub id: GrantId,
    /// How long the lease lasts.
    pub lease_ms: u64,
    /// How many tokens to reserve with the grant, its own included: 1 by who hands nothing on inside its session, and at
    /// most [`RANGE_MAX`](crate::limits::RANGE_MAX).
    pub range: u64,
    /// Server time after which this request is refused as late (P4).
    pub not_after_us: u64,
    /// What to do while somebody else holds.
    pub patience: Patience,
    /// Shown by `inspect`: who holds.
    pub label: String,
}

/// What to do while somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Patience {
    /// Answer Busy.
    Try,
    /// Join the queue.
    Queue(Place),
}

/// How an attempt stands in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// How long a pushed grant lasts before its receiver has answered (P7).
    pub claim_ms: u64,
    /// The caller's patience, from now on: after this the entry counts as gone. `None` waits for ever.
    pub limit_ms: Option<u64>,
    /// The ticket from an earlier QUEUED: the place to come back to (P6).
    pub ticket: Option<u64>,
    /// How the waiter hears of its grant.
    pub hears: Hears,
    /// Whether local hand-overs of other sessions must stop for it.
    pub order: Order,
}

/// How a waiter hears of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hears {
    /// Through its inbox: detached means gone.
    Listens,
    /// By looking: gone after three floors without a look.
    Polls,
}

/// What order a waiter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// First come, first served between sessions.
    Relaxed,
    /// Strict global order: no local runs while it waits.
    Strict,
}

/// Lengthen a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// The grant.
    pub id: GrantId,
    /// Its token.
    pub token: Token,
    /// From when the new end counts.
    pub from: From,
    /// How long the lease lasts from there.
    pub lease_ms: u64,
    /// Server time after which this request is refused as late: the end of the holder's validity.
    pub not_after_us: u64,
}

/// From when a renewed lease counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum From {
    /// From the server's now.
    Now,
    /// From the moment of the grant, and only while it is an unclaimed push: how a fixed lease is claimed, once.
    Grant,
}

/// Whether others wait for a lease (P9): a level, repeated in every answer, never an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contention {
    /// Nobody waits.
    #[default]
    None,
    /// Somebody waits.
    Others,
    /// Somebody waits who asks for strict order.
    Strict,
}

/// Whether a step stopped before it was done (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rest {
    /// The queue is in order.
    #[default]
    Done,
    /// 64 waiters were looked at and there are more: call settle again.
    More,
}

/// An answer: when the store said it, whether it is done, whom it gave the lease, and what it decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The store's clock: what leases are counted on. 0: the client said it itself, and the store was not asked.
    pub now_us: u64,
    /// The highest token granted so far: of two statements about one id the one with the larger is the later (P3).
    pub highest: Token,
    /// Whether others wait (P9).
    pub contention: Contention,
    /// Whether to call settle again.
    pub rest: Rest,
    /// Set when this step made a waiter the holder: how long its claim lasts. The caller looks once after that (P7).
    pub handed_claim_ms: Option<u64>,
    /// The decision.
    pub outcome: Outcome,
}

/// What a step decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The attempt holds.
    Granted {
        /// The fencing token.
        token: Token,
        /// What is left of the lease, from the answer's `now_us` on.
        left_us: u64,
        /// How many tokens are reserved, from that one on.
        range: u64,
    },
    /// The attempt waits.
    Queued {
        /// Its place, to come back to.
        ticket: u64,
        /// What is left of the holder's lease.
        left_us: u64,
        /// Since when.
        joined: Joined,
    },
    /// Somebody else holds, and the attempt does not wait.
    Busy {
        /// What is left of the holder's lease.
        left_us: u64,
    },
    /// The attempt is over: its grant was given back.
    Gone,
    /// The request came after its `not_after`: nothing was done.
    Late,
    /// The queue is full: nothing was done.
    Full,
    /// The lease is longer now.
    Renewed {
        /// What is left of it.
        left_us: u64,
    },
    /// So many tokens are reserved, from the grant's own on.
    Reserved {
        /// How many.
        range: u64,
    },
    /// The grant is not, or no longer, the holder's.
    Lost {
        /// What the store can say about why.
        how: LostHow,
    },
    /// The grant is given back.
    Released,
    /// There was nothing to give back: the lease had ended before.
    NotHeld,
    /// The attempt neither waits nor holds.
    Left {
        /// What it was before.
        was: Was,
    },
    /// The grant is marked; its holder has this long.
    Revoking {
        /// What is left to the holder.
        left_us: u64,
    },
    /// The queue was looked after.
    Settled,
    /// What there is.
    Inspected(Inspection),
}

/// Since when an attempt waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Joined {
    /// Since this request. One that came with a ticket had been dropped: its session's others may have been, too (P15).
    Now,
    /// Since an earlier one.
    Before,
}

/// Why a renewal or a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostHow {
    /// Somebody revoked the grant.
    Revoked,
    /// The grant has ended, or the store knows nothing of it: compare tokens.
    NotHeld,
}

/// What an attempt was when it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Was {
    /// It waited.
    Queued,
    /// It held: the grant was handed on.
    Granted,
    /// It was neither.
    Absent,
}

/// What `inspect` sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// Who holds, if anybody.
    pub holder: Option<Holder>,
    /// How many wait (dead waiters count until their turn comes).
    pub waiters: u64,
}

/// Who holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The public part of the grant id.
    pub id: PublicId,
    /// The fencing token.
    pub token: Token,
    /// What is left of the lease.
    pub left_us: u64,
    /// What the holder calls itself.
    pub label: String,
    /// How far the grant is.
    pub state: GrantState,
}

/// How far a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantState {
    /// Pushed to a waiter that has not been heard since.
    Pushed,
    /// Held.
    Held,
    /// Marked: it ends after the grace.
    Revoked,
    /// Given back, and held by nobody. Others are kept out until its end (P23).
    CoolingDown,
}

/// A message to a session's inbox. It can be lost: nothing waits for it alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Whose inbox.
    pub to: SessionId,
    /// The store's clock.
    pub now_us: u64,
    /// Whether others wait.
    pub contention: Contention,
    /// Whether to call settle again.
    pub rest: Rest,
    /// The grant that it is about; of [`Event::Ending`] the attempt that waits.
    pub id: GrantId,
    /// Its token; of [`Event::Ending`] that of the grant that ends.
    pub token: Token,
    /// What is left of its lease; of [`Event::Ending`] of the lease that ends.
    pub left_us: u64,
    /// How many tokens are reserved for it, from its own on.
    pub range: u64,
    /// What happened to it.
    pub event: Event,
}

/// What happened to a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// It was made: the receiver holds already.
    Granted,
    /// It was marked for revocation.
    Revoked,
    /// Somebody waits now, or asks for strict order now, and nobody did before (P9). Sent only to holders of a range: they
    /// may be handing on inside their session. It can come more than once, and late: it says how things stood at its time.
    Wanted,
    /// The lease that its receiver waits for was marked (P10), or cools down (P23): it ends at another time than the
    /// receiver was told. It can come more than once.
    Ending,
}
