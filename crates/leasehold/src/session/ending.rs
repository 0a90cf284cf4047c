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
    /// A leave that keeps others out until then, by our clock (P23).
    CoolDown {
        used: Token,
        until_us: u64,
    },
}

impl What {
    /// The request, if it is sent now. A repeat asks for what is left of a cool-down, and leaves if nothing is.
    pub(crate) fn op(self, id: GrantId, now_us: u64) -> Op {
        match self {
            Self::Release { token, used } => Op::Release { id, token, used },
            Self::CoolDown { used, until_us } if until_us > now_us => {
                Op::CoolDown { id, used, for_ms: (until_us - now_us).div_ceil(1000) }
            }
            Self::Leave { used } | Self::CoolDown { used, .. } => Op::Leave { id, used },
        }
    }

    /// The same without the token of the grant: it ends whatever the attempt was granted.
    pub(crate) fn of_any_grant(self) -> Self {
        match self {
            Self::Release { used, .. } => Self::Leave { used },
            Self::Leave { .. } | Self::CoolDown { .. } => self,
        }
    }
}
