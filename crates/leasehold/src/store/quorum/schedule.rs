//! When a waiter that has lost a round asks again.

use leasehold_spec::GrantId;
use leasehold_spec::mark::{Mark, hit};

use super::shared::Shared;
use super::tally::Refusal;
use super::timers::Due;

/// When to ask again if too few nodes vote.
const TOO_FEW_US: u64 = 250_000;
/// The shortest mean of a random backoff, and the longest.
pub(super) const BACKOFF_MIN_US: u64 = 2_000;
const BACKOFF_MAX_US: u64 = 500_000;

/// Why a waiter has lost its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundEnd {
    /// There is a holder.
    Held,
    /// There is no holder yet, and another waiter was called.
    Called,
    /// There is no holder.
    Split,
    /// Too few nodes vote.
    TooFew,
}

impl From<Refusal> for RoundEnd {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal { is_held: true, .. } => Self::Held,
            Refusal { is_called: true, .. } => Self::Called,
            _ => Self::Split,
        }
    }
}

/// Schedules the next round of a waiter that has lost one.
pub(super) fn schedule(shared: &Shared, id: &GrantId, end: RoundEnd) {
    let (calls, splits) = {
        let mut attempts = shared.attempts();
        let Some(waiting) = attempts.waiting(id) else { return };
        waiting.splits = if end == RoundEnd::Held { 0 } else { waiting.splits + 1 };
        (waiting.calls(), waiting.splits)
    };
    let now_us = shared.now_us();
    match end {
        // The calls arrived during the round.
        _ if calls >= shared.majority() => {
            hit(Mark::CalledInRound);
            set_alarm(shared, id, now_us + backoff_us(shared, splits));
        }
        RoundEnd::Held if calls > 0 => set_alarm(shared, id, now_us + shared.timeout_us(u64::MAX)),
        // The release of the holder calls the waiter.
        RoundEnd::Held => {}
        // A round would disturb the called waiter. Its release calls the next one. If it does not win, no message may come.
        RoundEnd::Called => {
            let backoff_us = backoff_us(shared, splits);
            set_alarm(shared, id, now_us + backoff_us.max(shared.timeout_us(u64::MAX)));
        }
        RoundEnd::Split => set_alarm(shared, id, now_us + backoff_us(shared, splits)),
        RoundEnd::TooFew => set_alarm(shared, id, now_us + TOO_FEW_US),
    }
}

/// Has a waiter ask again at this time, unless another alarm is set or a round begins before.
pub(super) fn set_alarm(shared: &Shared, id: &GrantId, at_us: u64) {
    if let Some(waiting) = shared.attempts().waiting(id) {
        waiting.alarm += 1;
        shared.timers.handle_at(at_us, Due::AskAgain(*id, waiting.alarm));
    }
}

/// Returns a random backoff before another round: half its mean to one and a half times its mean. The mean is two round
/// trips, at least [`BACKOFF_MIN_US`]. It doubles with each lost round, up to [`BACKOFF_MAX_US`].
pub(super) fn backoff_us(shared: &Shared, lost: u32) -> u64 {
    let mut random = [0; 8];
    shared.world.random(&mut random);
    let mean_us = ((2 * shared.rtt_us()).max(BACKOFF_MIN_US) << lost.min(8)).min(BACKOFF_MAX_US);
    mean_us / 2 + u64::from_ne_bytes(random) % mean_us
}
