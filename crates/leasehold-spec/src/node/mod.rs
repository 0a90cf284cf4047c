//! One of the independent nodes of a quorum: what it votes, and when it has no vote.
//!
//! A node is no lock. It gives its vote for a name to one grant at a time, and a grant that has the votes of a majority is
//! a lease. So a node does less than [`step`](crate::step): it makes no grant for a waiter, since one node's vote is worth
//! nothing to somebody who does not get the others'; it *calls* the next waiter, who asks all nodes. And it does one thing
//! more: the token comes with the request, and the node votes for it only if that is above every token for which it has
//! voted before. Any two majorities share a node, so no token is granted twice, and whoever begins behind another's grant
//! gets a larger one; a node that counted for itself could not promise either (`leasehold-lab models`).
//!
//! What a node forgets breaks that promise, and the one that only one client holds. So a node that may have forgotten
//! something abstains until nothing that it may have forgotten matters: [`Marker`].

mod marker;
mod vote;

use std::collections::BTreeMap;

pub use marker::{Abstention, Charter, Marker, Unlike, begin, enter, has_lost, rest_ms};
pub use vote::vote;

use crate::id::{GrantId, PublicId, SessionId, Token};
use crate::mutant::{Mutant, is_on};
use crate::op::{Contention, From, GrantState, Inspection, LostHow, Order, Was};

/// What a node keeps of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The largest token for which it has voted, the end of its range included. It never falls.
    pub highest: Token,
    /// Who has its vote.
    pub grant: Option<Granted>,
    /// Who has given it back last, for good, or was revoked: a late renewal of theirs does not take it again.
    pub released: Option<GrantId>,
    /// Whom it has called last: until then nobody who came later gets the vote.
    pub called: Option<Called>,
    /// Who waits, by ticket. Tickets are the same on all nodes, so that all of them call the same one.
    pub queue: BTreeMap<(u64, GrantId), Order>,
    /// It is kept at least until then (on the node's clock).
    pub keep_until_us: u64,
}

/// A vote that is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// To whom.
    pub id: GrantId,
    /// For which token.
    pub token: Token,
    /// And how many of them.
    pub range: u64,
    /// When it was given or last renewed. Of one that is marked for revocation: that much before its end.
    pub since_us: u64,
    /// For how long from there.
    pub length_ms: u64,
    /// Whether it was marked for revocation, or was given back and cools down.
    pub state: GrantState,
    /// What the holder calls itself.
    pub label: String,
}

/// A waiter that was told to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Called {
    /// Whose turn it is, and that of its session's others.
    pub id: GrantId,
    /// Its place in the queue: who has an earlier one need not wait for it.
    pub ticket: u64,
    /// Until when.
    pub until_us: u64,
}

/// What is asked of one node about one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A vote, for a token that the client proposes.
    Ask(Ask),
    /// Keep the vote.
    Renew(Renewal),
    /// Give the vote back, and stop waiting.
    GiveBack {
        /// Whose.
        id: GrantId,
        /// Up to the vote for this token. What gives back a round that was lost can be carried out behind a later one of
        /// the same attempt, which was won: it leaves that alone.
        upto: Token,
        /// The place to wait at from now on: the round was not won, and the next one is to be. `None`: it is over.
        wait: Option<Wait>,
    },
    /// Give the vote back for good, and give it to nobody for a while (P23). An attempt that has no vote gives back as by
    /// [`Request::GiveBack`].
    CoolDown {
        /// Whose.
        id: GrantId,
        /// Up to the vote for this token.
        upto: Token,
        /// For how long nobody gets the vote, from now on. A repeat does not begin it anew.
        for_ms: u64,
    },
    /// Ask the holder to stop, and end its lease after the grace.
    Revoke {
        /// Whom the caller saw.
        holder: PublicId,
        /// The token that the caller saw.
        token: Token,
        /// What is left to the holder, at most.
        grace_ms: u64,
    },
    /// Only look after the queue.
    Settle,
    /// Look, and change nothing.
    Inspect,
}

/// A vote, please.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// The attempt. The same in all of its rounds.
    pub id: GrantId,
    /// The token that it proposes: another one in each round.
    pub token: Token,
    /// How many tokens it wants, from that one on.
    pub range: u64,
    /// How long the lease lasts.
    pub lease_ms: u64,
    /// The node's time after which this request is refused as late (P4).
    pub not_after_us: u64,
    /// Whether to wait if it gets no vote.
    pub wait: Option<Wait>,
    /// What the holder calls itself.
    pub label: String,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// When the attempt began to wait, by the clock of its client's choice: the same on all nodes and in all rounds.
    pub ticket: u64,
    /// Whether others' local hand-overs must stop for it.
    pub order: Order,
}

/// Keep the vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The grant.
    pub id: GrantId,
    /// Its token.
    pub token: Token,
    /// How many tokens it has.
    pub range: u64,
    /// From when the new end counts.
    pub from: From,
    /// How long the lease lasts from there.
    pub lease_ms: u64,
    /// The node's time after which this request is refused as late.
    pub not_after_us: u64,
    /// What the holder calls itself, if a node that does not know of it, and is free, is to give it its vote from now on.
    /// One that has voted for a larger token does not: others may have held by that since. It counts at the next renewal.
    pub fill: Option<String>,
}

impl Renewal {
    /// The last of its tokens.
    #[must_use]
    pub fn last(&self) -> Token {
        self.token.plus(self.range.max(1) - 1)
    }
}

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// The node's clock.
    pub now_us: u64,
    /// The largest token for which it has voted.
    pub highest: Token,
    /// Whether others wait.
    pub contention: Contention,
    /// Whether this request made the node call a waiter: whoever sent it looks after the queue once that call has lapsed.
    pub has_called: bool,
    /// The decision.
    pub said: Said,
}

/// What a node decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// The attempt has the vote.
    Granted {
        /// For this token: of a repeated request, that of the first.
        token: Token,
        /// How many tokens, from that one on.
        range: u64,
        /// What is left of it.
        left_us: u64,
    },
    /// Somebody else has it, or is called.
    Refused {
        /// Who has it; `None`: nobody yet.
        holder: Option<PublicId>,
        /// What is left of that.
        left_us: u64,
    },
    /// Nobody has it, and the token is not above all that the node has voted for: propose one above `highest`.
    Below,
    /// The token is too far from the node's clock.
    Far,
    /// The request came after its `not_after`: nothing was done.
    Late,
    /// The queue is full: nothing was done.
    Full,
    /// The vote is kept.
    Renewed {
        /// What is left of it.
        left_us: u64,
    },
    /// The node did not know of the grant, and gives it its vote from now on.
    Filled {
        /// What is left of it.
        left_us: u64,
    },
    /// The vote is not, or no longer, that grant's.
    Lost {
        /// What the node can say about why.
        how: LostHow,
    },
    /// The attempt neither waits nor has the vote, or it waits at the place that it asked for.
    GivenBack {
        /// What it was before.
        was: Was,
    },
    /// The grant is marked; its holder has this long.
    Revoking {
        /// What is left to the holder.
        left_us: u64,
    },
    /// There is no such grant to revoke.
    NotHeld,
    /// The queue was looked after.
    Settled,
    /// What there is.
    Inspected(Inspection),
}

/// A message to a session's inbox. It can be lost: nothing waits for it alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bell {
    /// Whose inbox.
    pub to: SessionId,
    /// The node's clock.
    pub now_us: u64,
    /// The largest token for which it has voted.
    pub highest: Token,
    /// Whether others wait.
    pub contention: Contention,
    /// The attempt that it is about.
    pub id: GrantId,
    /// What it says.
    pub rings: Rings,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rings {
    /// It is your turn: ask all nodes.
    Call,
    /// Somebody waits now, and nobody did before (P9).
    Wanted {
        /// The token of the grant that is wanted.
        token: Token,
    },
    /// Your grant was marked for revocation.
    Revoked {
        /// Its token.
        token: Token,
        /// What is left of it.
        left_us: u64,
    },
    /// The vote that you wait for was marked (P10), or cools down (P23): it ends at another time than you were told.
    Ending {
        /// The token of the grant that has it.
        token: Token,
        /// What is left of that.
        left_us: u64,
    },
}

impl Granted {
    /// Whether anybody holds by it: a vote that cools down was given back (P23).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state != GrantState::CoolingDown
    }

    /// Whether it is the vote of this attempt.
    fn is_for(&self, id: GrantId) -> bool {
        self.id == id && (self.is_held() || is_on(Mutant::P23GrantsAgain))
    }

    /// Whether this renewal is for it.
    fn is_kept_by(&self, renewal: &Renewal) -> bool {
        let is_held = self.is_held() || is_on(Mutant::P23RenewRevives);
        self.id == renewal.id && self.token == renewal.token && is_held
    }

    /// When it ends.
    #[must_use]
    pub const fn end_us(&self) -> u64 {
        self.since_us + self.length_ms * 1000
    }

    /// What is left at `now_us`: of one that begins in the future, because the clock was set back since, its length.
    #[must_use]
    pub const fn left_us(&self, now_us: u64) -> u64 {
        let (left_us, length_us) = (self.end_us().saturating_sub(now_us), self.length_ms * 1000);
        if left_us < length_us { left_us } else { length_us }
    }
}

impl Record {
    /// Whether anybody waits, and whether the first who does asks for strict order.
    #[must_use]
    pub fn contention(&self) -> Contention {
        match self.queue.values().next() {
            None => Contention::None,
            Some(Order::Relaxed) => Contention::Others,
            Some(Order::Strict) => Contention::Strict,
        }
    }
}
