//! How a record is stored: as a mutex, or as a pool.

use leasehold_spec::{Kind, Op};

use crate::store::Guess;

/// The scripts that know a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Encoding {
    Mutex,
    Pool,
}

impl Encoding {
    /// Returns the encoding of a name of this kind.
    pub(in crate::store::redis) const fn of(kind: Kind) -> Self {
        if kind.is_pool() { Self::Pool } else { Self::Mutex }
    }

    /// Returns the encoding that a request probably finds.
    pub(in crate::store::redis) const fn expected(op: &Op, guess: Guess) -> Self {
        match op {
            Op::Acquire(acquire) => Self::of(acquire.take.kind),
            Op::Lower { .. }
            | Op::Resize { .. }
            | Op::Notify { .. }
            | Op::Spend { .. }
            | Op::CreateLatch { .. }
            | Op::CountDown { .. }
            | Op::DeleteLatch { .. } => Self::Pool,
            Op::Reserve { .. } | Op::Put { .. } | Op::HandTo { .. } => Self::Mutex,
            _ => Self::of(guess.kind),
        }
    }

    pub(in crate::store::redis) const fn other(self) -> Self {
        match self {
            Self::Mutex => Self::Pool,
            Self::Pool => Self::Mutex,
        }
    }
}
