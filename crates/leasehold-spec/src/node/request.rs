//! Requests to a node, its answers, and its messages.

use crate::answer::{Contention, LostHow, Was};
use crate::id::{GrantId, PublicId, SessionId, Token};
use crate::inspection::Inspection;
use crate::op::{From, Order};

/// A request to one node about one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Asks for the vote, for a token that the client proposes.
    Ask(Ask),
    /// Keeps the vote.
    Renew(Renewal),
    /// Gives the vote back, and stops waiting.
    GiveBack {
        /// The attempt.
        id: GrantId,
        /// The largest token whose vote is given back. A request that gives back a lost round can arrive after a later
        /// round of the same attempt was won. It must not give back the vote of that round.
        upto: Token,
        /// The place to wait at, if the attempt goes on: the round was lost, and there will be another one. `None` if
        /// the attempt is over.
        wait: Option<Wait>,
    },
    /// Gives the vote back for good, like [`Request::GiveBack`] without a place, and calls nobody for now: the client is
    /// expected to ask again at once, as part of a *run*. The vote is free meanwhile, and the first client that asks gets
    /// it. If the first waiter asks for strict order, this is a [`Request::GiveBack`].
    Pause {
        /// The attempt.
        id: GrantId,
        /// The largest token whose vote is given back.
        upto: Token,
        /// The time after which the next waiters ask by themselves, in case the client does not come back and calls
        /// nobody. 0: they were notified before in this run.
        notice_ms: u64,
    },
    /// Gives the vote back for good, and makes the node give it to nobody for a while (P23). If the attempt does not
    /// have the vote, this is a [`Request::GiveBack`].
    CoolDown {
        /// The attempt.
        id: GrantId,
        /// The largest token whose vote is given back.
        upto: Token,
        /// The time for which nobody gets the vote, from now on. A repeat does not restart it.
        for_ms: u64,
    },
    /// Asks the holder to stop, and ends its vote after the grace.
    Revoke {
        /// The holder that the caller saw.
        holder: PublicId,
        /// The token that the caller saw.
        token: Token,
        /// The longest time that is left to the holder.
        grace_ms: u64,
    },
    /// Only settles the queue.
    Settle,
    /// Returns the holder and the number of waiters, and changes nothing.
    Inspect,
}

/// A request for a vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// The attempt. All of its rounds have the same ID.
    pub id: GrantId,
    /// The token that the client proposes: another one in each round.
    pub token: Token,
    /// The number of tokens that the client asks for, counted from `token`.
    pub range: u64,
    /// The length of the lease.
    pub lease_ms: u64,
    /// The time of the node after which it refuses the request as late (P4).
    pub not_after_us: u64,
    /// The place to wait at if the attempt gets no vote. `None`: the attempt does not wait.
    pub wait: Option<Wait>,
    /// The label of the client.
    pub label: String,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// The time at which the attempt began to wait, on a clock that its client chooses. It is the same on all nodes and
    /// in all rounds.
    pub ticket: u64,
    /// Whether local hand-overs of other sessions must stop for this waiter.
    pub order: Order,
}

/// A request to keep the vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The grant.
    pub id: GrantId,
    /// The token of the grant.
    pub token: Token,
    /// The number of tokens of the grant.
    pub range: u64,
    /// The moment from which the new lease counts.
    pub from: From,
    /// The length of the lease from that moment on.
    pub lease_ms: u64,
    /// The time of the node after which it refuses the request as late.
    pub not_after_us: u64,
    /// The label of the holder, if a free node that does not know the grant is to be *filled*: to give the grant its
    /// vote from now on. A node that has voted for a larger token is not filled, because others may have held by that
    /// token since. The new vote counts at the next renewal.
    pub fill: Option<String>,
}

impl Renewal {
    /// Returns the last token of the grant.
    #[must_use]
    pub fn last(&self) -> Token {
        self.token.plus(self.range.max(1) - 1)
    }
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// The clock of the node.
    pub now_us: u64,
    /// The largest token for which the node has voted.
    pub highest: Token,
    /// Whether others wait.
    pub contention: Contention,
    /// Whether this request made the node call a waiter. The client that sent the request settles the queue when that
    /// call has lapsed.
    pub has_called: bool,
    /// The decision.
    pub said: Said,
}

/// The decision of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// The attempt has the vote.
    Granted {
        /// The token. If the request was repeated, the token of the first request.
        token: Token,
        /// The number of tokens, counted from `token`.
        range: u64,
        /// The time left of the vote.
        left_us: u64,
    },
    /// Another attempt has the vote, or is called.
    Refused {
        /// The attempt that has the vote. `None` if an attempt is called and has no vote yet.
        holder: Option<PublicId>,
        /// The time left of the vote or of the call.
        left_us: u64,
    },
    /// Nobody has the vote, and the token is not above all tokens for which the node has voted. The client proposes a
    /// token above `highest` next.
    Below,
    /// The token is too far from the clock of the node.
    Far,
    /// The request came after its `not_after`: nothing was done.
    Late,
    /// The queue is full: nothing was done.
    Full,
    /// The vote is kept.
    Renewed {
        /// The time left of the vote.
        left_us: u64,
    },
    /// The node did not know the grant, and gives it its vote from now on.
    Filled {
        /// The time left of the vote.
        left_us: u64,
    },
    /// The grant does not have the vote, or no longer.
    Lost {
        /// The reason, as far as the node knows it.
        how: LostHow,
    },
    /// The attempt neither waits nor has the vote, or it waits at the place that it asked for.
    GivenBack {
        /// The state of the attempt before.
        was: Was,
    },
    /// The grant is marked for revocation.
    Revoking {
        /// The time left to the holder.
        left_us: u64,
    },
    /// There is no such grant to revoke.
    NotHeld,
    /// The queue was settled.
    Settled,
    /// The holder and the number of waiters.
    Inspected(Inspection),
}

/// A message to the inbox of a session. It can be lost: nothing depends on the message alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bell {
    /// The session that receives the message.
    pub to: SessionId,
    /// The clock of the node.
    pub now_us: u64,
    /// The largest token for which the node has voted.
    pub highest: Token,
    /// Whether others wait.
    pub contention: Contention,
    /// The attempt that the message concerns.
    pub id: GrantId,
    /// The event that the message reports.
    pub rings: Rings,
}

/// An event that a node reports to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rings {
    /// It is the turn of the attempt: its client asks all nodes.
    Call,
    /// Another attempt waits now, and none did before (P9).
    Wanted {
        /// The token of the grant that the receiver holds.
        token: Token,
    },
    /// The grant of the receiver was marked for revocation.
    Revoked {
        /// The token of the grant.
        token: Token,
        /// The time left of the grant.
        left_us: u64,
    },
    /// The vote that the receiver waits for was marked (P10), or cools down (P23), and ends at another time than the
    /// receiver knows. Or a client pauses in a run, and will have called somebody by then.
    Ending {
        /// The token of the grant that has the vote, or had it until the pause.
        token: Token,
        /// The time after which the receiver asks.
        left_us: u64,
    },
}
