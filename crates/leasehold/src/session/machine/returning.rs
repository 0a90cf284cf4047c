//! An attempt that is being returned to the store: by a release, a leave, a cool-down, or a spend.

use std::collections::VecDeque;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{GrantId, Name, Op, Token};
use tokio::sync::oneshot;

use crate::error::Result;
use crate::lost::Released;

pub(crate) struct Returning {
    pub(crate) kind: ReturnKind,
    /// When the store has ended the lease by itself.
    pub(crate) until_us: u64,
    pub(crate) next_us: u64,
    /// The latest time of the server at which it said that the attempt waits or holds.
    there_us: u64,
    /// The time of the server in the latest reply to a return.
    answered_us: u64,
    /// How many of its requests had no reply.
    pub(crate) unanswered: u32,
    pub(crate) caller: Option<oneshot::Sender<Result<Released>>>,
    /// Whether an earlier run of the store has confirmed the end already.
    pub(crate) is_repeated: bool,
}

impl Returning {
    pub(crate) fn new(kind: ReturnKind, until_us: u64, next_us: u64) -> Self {
        let (there_us, answered_us, unanswered) = (0, 0, 0);
        Self { kind, until_us, next_us, there_us, answered_us, unanswered, caller: None, is_repeated: false }
    }

    /// A return that an earlier run of the store has confirmed.
    pub(crate) fn repeated(kind: ReturnKind, until_us: u64) -> Self {
        Self { is_repeated: true, ..Self::new(kind, until_us, 0) }
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

/// The request by which an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnKind {
    Release {
        token: Token,
        used: Token,
    },
    Leave {
        used: Token,
    },
    /// The end of a notification that does not pass on (P42).
    Spend {
        token: Token,
    },
    /// A count-down of a latch, which is not the end of an attempt, and is repeated like one (P44).
    CountDown {
        counts: GrantId,
        born: Token,
    },
    /// A leave that keeps others out until `until_us`, by the client's clock (P23).
    CoolDown {
        used: Token,
        until_us: u64,
    },
}

impl ReturnKind {
    /// Returns the request, as it is sent now. A repeated cool-down asks for the rest of the time. If no time is left, it
    /// is a leave.
    pub(crate) fn op(self, id: GrantId, now_us: u64) -> Op {
        match self {
            Self::Release { token, used } => Op::Release { id, token, used },
            Self::Spend { token } => Op::Spend { id, token },
            Self::CountDown { counts, born } => Op::CountDown { id: counts, born },
            Self::CoolDown { used, until_us } if until_us > now_us => {
                Op::CoolDown { id, used, for_ms: (until_us - now_us).div_ceil(1000) }
            }
            Self::Leave { used } | Self::CoolDown { used, .. } => Op::Leave { id, used },
        }
    }

    /// Returns the request that a new run of the store gets. A failover can bring back a state in which the attempt still
    /// waited, and the release of the lease before it grants it anew. A release of the old token would not find that grant.
    /// A spent notification ends by its claim.
    pub(crate) fn at_a_new_run(self) -> Self {
        match self {
            Self::Release { .. } if !is_on(Mutant::P13SameToken) => self.of_any_grant(),
            other => other,
        }
    }

    /// Returns the same request without the token of a grant: it ends any grant of the attempt.
    pub(crate) fn of_any_grant(self) -> Self {
        match self {
            Self::Release { used, .. } | Self::Spend { token: used } => Self::Leave { used },
            Self::Leave { .. } | Self::CoolDown { .. } | Self::CountDown { .. } => self,
        }
    }
}

/// How many releases a session remembers.
const RELEASES: usize = 1024;

/// The leases that the store has confirmed as released, each until it must have ended anyway. A failover can bring them
/// back (P13).
#[derive(Default)]
pub(crate) struct Releases(VecDeque<GivenUp>);

/// A lease that was released.
pub(crate) struct GivenUp {
    pub(crate) name: Name,
    pub(crate) id: GrantId,
    pub(crate) kind: ReturnKind,
    pub(crate) until_us: u64,
}

impl Releases {
    pub(crate) fn remember(&mut self, released: GivenUp, now_us: u64) {
        while self.0.front().is_some_and(|old| old.until_us <= now_us) || self.0.len() >= RELEASES {
            self.0.pop_front();
        }
        self.0.push_back(released);
    }

    /// Removes and returns all of them.
    pub(crate) fn take(&mut self) -> VecDeque<GivenUp> {
        std::mem::take(&mut self.0)
    }
}
