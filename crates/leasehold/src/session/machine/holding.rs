//! A grant that is held: its hold, how far it may be handed on, and when something is due.

use std::sync::Arc;

use leasehold_spec::Token;

use super::effects::Effects;
use crate::lost::LostReason;
use crate::session::hold::Hold;
use crate::session::local::budget::HandOverBudget;

pub(crate) struct Holding {
    /// The hold of the guard that is out, or of the next one.
    pub(crate) hold: Arc<Hold>,
    /// The grant of the store, and how far it may be handed on.
    pub(crate) budget: HandOverBudget,
    /// How long it is kept for the next caller; `None` while a guard is out.
    pub(crate) kept_until_us: Option<u64>,
    /// How long it is kept after its last use.
    pub(crate) sticky_us: u64,
    pub(crate) granted_us: u64,
    /// When to renew it; `u64::MAX` for a fixed lease.
    pub(crate) renew_us: u64,
    /// A fixed lease that a message brought is claimed once.
    pub(crate) claim: Claim,
    /// The units that its guard has given back, if any.
    pub(crate) lowered: Option<Lowered>,
    /// Whether it is a notification whose receiver acts on it (P42): it ends by a spend.
    pub(crate) is_spent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Due,
    Done,
}

/// The units that a grant keeps, and when to ask for that.
#[derive(Clone, Copy)]
pub(crate) struct Lowered {
    pub(crate) units: u32,
    /// `u64::MAX`: the request is in flight, or the store has confirmed it.
    pub(crate) next_us: u64,
}

/// Whether the session's own connection is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Online,
    /// The connection is up, but no connection has the inbox: no acquire that may queue is sent (P11).
    WithoutInbox,
    Offline,
}

impl Holding {
    /// Returns whether a guard of it is out.
    pub(crate) fn is_in_use(&self) -> bool {
        self.kept_until_us.is_none()
    }

    /// Returns whether it has been kept for long enough.
    pub(crate) fn is_kept_no_longer(&self, now_us: u64) -> bool {
        self.kept_until_us.is_some_and(|until_us| until_us <= now_us)
    }

    /// Returns whether units have to be given back that its guard has given up.
    pub(crate) fn owes_lower(&self, now_us: u64) -> bool {
        self.lowered.is_some_and(|lowered| lowered.next_us <= now_us)
    }

    /// Replaces the hold by the next one of the same grant.
    pub(crate) fn succeed(&mut self, token: Token, effects: &mut Effects) {
        let hold = Arc::new(self.hold.next(token, self.budget.contention()));
        effects.end_hold(&self.hold, LostReason::Released);
        self.hold = hold;
    }

    pub(crate) fn shorten(&mut self, by_us: u64) {
        self.hold.shorten(by_us);
        self.budget.shorten(by_us);
    }

    /// Returns when something is due, whatever is in flight.
    pub(crate) fn due_us(&self, reach: Reach) -> u64 {
        let kept_until_us = self.kept_until_us.unwrap_or(u64::MAX);
        let reserve_us = if reach != Reach::Offline && self.budget.wants_range() { 0 } else { u64::MAX };
        let lower_us = self.lowered.filter(|_| reach != Reach::Offline).map_or(u64::MAX, |lowered| lowered.next_us);
        self.hold.valid_until_us().min(kept_until_us).min(reserve_us).min(lower_us)
    }
}
