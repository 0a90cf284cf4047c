//! How an attempt ends at the store: by a release, a leave, or a cool-down.

use leasehold_spec::{GrantId, Op, Token};

/// The request by which an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Release {
        token: Token,
        used: Token,
    },
    Leave {
        used: Token,
    },
    /// A leave that keeps others out until `until_us`, by the client's clock (P23).
    CoolDown {
        used: Token,
        until_us: u64,
    },
}

impl What {
    /// Returns the request, as it is sent now. A repeated cool-down asks for the rest of the time. If no time is left, it
    /// is a leave.
    pub(crate) fn op(self, id: GrantId, now_us: u64) -> Op {
        match self {
            Self::Release { token, used } => Op::Release { id, token, used },
            Self::CoolDown { used, until_us } if until_us > now_us => {
                Op::CoolDown { id, used, for_ms: (until_us - now_us).div_ceil(1000) }
            }
            Self::Leave { used } | Self::CoolDown { used, .. } => Op::Leave { id, used },
        }
    }

    /// Returns the same request without the token of a grant: it ends any grant of the attempt.
    pub(crate) fn of_any_grant(self) -> Self {
        match self {
            Self::Release { used, .. } => Self::Leave { used },
            Self::Leave { .. } | Self::CoolDown { .. } => self,
        }
    }
}
