//! How long each call may take: the documented bound, and the slack of a machine that has other work.
//!
//! The documented bounds are those of the table *Time* on the crate's front page, and of the methods' own pages. If the
//! store answers, most of them would hide a fault for seconds. So a healthy store has tighter bounds, except where the
//! caller blocks its own runtime.

use std::time::Duration;

use super::{Call, Place, Weather};

/// How much later than documented a thread of a busy machine may notice that its time is over.
pub(super) const SLACK: Duration = Duration::from_millis(500);
/// The longest that any call may take with a healthy store: a thousand times the duration of an undisturbed call.
const PROMPT: Duration = Duration::from_secs(1);
/// The longest that the best of several later calls may take there. Well below every timeout and every poll of the
/// client.
const AGAIN: Duration = Duration::from_millis(100);
/// The time limit given to `try_lock_for`.
pub(super) const WAIT: Duration = Duration::from_millis(50);
/// The lease of a guard that is released.
const RELEASED: Duration = Duration::from_secs(2);
/// The lease of every other guard: longer than every bound here, so that no lease ends meanwhile.
const HELD: Duration = Duration::from_secs(30);

const ANSWER: Duration = Duration::from_secs(2);
const FIVE: Duration = Duration::from_secs(5);
/// After this time a `lock` whose request got no answer sends it again: the request has 2 s, and then the ping that its
/// connection has to answer has 2 s.
const ASKED_AGAIN: Duration = Duration::from_secs(4);
/// A store that is back is tried within 1 s, and then the connection is made.
const BACK: Duration = Duration::from_secs(2);

/// The bounds of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The documented bound.
    pub documented: Duration,
    /// How long the first call may take, slack included.
    pub first: Duration,
    /// How long the best of the later calls may take.
    pub again: Duration,
}

impl Bound {
    const fn of(documented: Duration) -> Self {
        let first = documented.saturating_add(SLACK);
        Self { documented, first, again: first }
    }
}

/// Returns the bound of this call in this place and weather; `None` for a combination without meaning.
#[must_use]
pub fn bound(call: Call, place: Place, weather: Weather) -> Option<Bound> {
    match weather {
        Weather::Silent => silent(call).map(Bound::of),
        Weather::Healthy => {
            let documented = Bound::of(healthy(call));
            let wait = wait(call);
            Some(match place.is_own_blocked() {
                true => documented,
                false => Bound { first: PROMPT + wait, again: AGAIN + wait, ..documented },
            })
        }
    }
}

/// Returns the documented bound for a store that answers nothing. `lock` never gives up, and goes on when the store is
/// back: its time counts from then.
#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
fn silent(call: Call) -> Option<Duration> {
    match call {
        Call::Connect | Call::Run | Call::Close => Some(FIVE),
        Call::Lock => Some(BACK),
        Call::TryLock | Call::DropThenTry | Call::Inspect | Call::Revoke | Call::Names => Some(ANSWER),
        Call::TryLockFor => Some(WAIT + Duration::from_millis(500)),
        Call::Release => Some(RELEASED + ANSWER),
        // Another client has to hold, to release or to revoke, and cannot.
        Call::LockReleased
        | Call::TryLockHeld
        | Call::TryLockForHeld
        | Call::FullLeaseHeld
        | Call::LockOrCancel
        | Call::Lost => None,
    }
}

/// Returns the documented bound, where that is no more than for a silent store.
#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
const fn healthy(call: Call) -> Duration {
    match call {
        Call::Connect | Call::Run | Call::Close => FIVE,
        Call::Lock | Call::LockReleased => ASKED_AGAIN,
        Call::TryLock | Call::TryLockHeld | Call::DropThenTry | Call::Inspect | Call::Revoke | Call::Names => ANSWER,
        Call::TryLockFor | Call::TryLockForHeld | Call::FullLeaseHeld => {
            WAIT.saturating_add(Duration::from_millis(500))
        }
        Call::Release => RELEASED.saturating_add(ANSWER),
        // The client's own thread does it at once: the caller's runtime has no part in it.
        Call::Lost | Call::LockOrCancel => SLACK,
    }
}

/// Returns how long the call waits by its nature.
const fn wait(call: Call) -> Duration {
    match call {
        Call::TryLockForHeld | Call::FullLeaseHeld => WAIT,
        _ => Duration::ZERO,
    }
}

/// Returns the lease of a call's guard. A release that gets no answer takes as long as the lease.
pub(super) const fn lease(call: Call) -> Duration {
    match call {
        Call::Release => RELEASED,
        _ => HELD,
    }
}

/// Returns the documented bound as the table shows it.
#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
pub(super) const fn documented(call: Call, weather: Weather) -> &'static str {
    match (call, weather) {
        (Call::Connect | Call::Run | Call::Close, _) => "5 s",
        (Call::Lock, Weather::Silent) => "2 s after the store is back",
        (Call::Lock | Call::LockReleased, _) => "none; asked again after 4 s at most",
        (Call::TryLock | Call::TryLockHeld | Call::DropThenTry | Call::Inspect | Call::Revoke | Call::Names, _) => {
            "2 s"
        }
        (Call::TryLockFor | Call::TryLockForHeld | Call::FullLeaseHeld, _) => "50 ms + 0.5 s",
        (Call::Release, _) => "the lease of 2 s + 2 s",
        (Call::Lost | Call::LockOrCancel, _) => "at once",
    }
}
