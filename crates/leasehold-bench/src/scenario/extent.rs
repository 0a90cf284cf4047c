//! How long a run is.

use serde::{Deserialize, Serialize};

use crate::system::System;
use crate::worker::Span;

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extent {
    /// Everything that is done within this time.
    WindowMs(u64),
    /// This many pairs, however long they take.
    Pairs(u64),
}

impl Extent {
    /// Returns when a run of `tasks` tasks ends.
    pub(super) fn span(self, tasks: u32, warm_up: impl FnOnce(u64) -> u64) -> Span {
        match self {
            Self::WindowMs(window_ms) => Span::Window { warm_up_ms: warm_up(window_ms), window_ms },
            Self::Pairs(pairs) => Span::Pairs { each: pairs.div_ceil(u64::from(tasks)) },
        }
    }
}

/// Returns the part of a run before its window, which is not counted: connections, buffers and the allocator reach their
/// sizes in it. It is longer for a peer, which may be compiled while it runs (one that needs more time takes it before it
/// is ready).
pub(super) fn warm_up_ms(system: &System, window_ms: u64) -> u64 {
    match system {
        System::Own(_) => (window_ms / 4).min(1_000),
        System::Peer(_) => window_ms.min(1_000),
    }
}
