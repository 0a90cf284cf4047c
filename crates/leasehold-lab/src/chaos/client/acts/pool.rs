//! The acts of read-write locks and of semaphores: a task waits, tries, waits for a while, or gives up.

use std::time::Duration;

use leasehold::Result;
use leasehold_testkit::history::GaveUp;

use super::super::super::names::Class;
use super::super::section;
use super::super::turn::Turn;
use crate::lease::Lease;

/// Returns the lease of a grant: mostly the longest one of its name.
pub(super) fn lease(turn: &mut Turn<'_>) -> Duration {
    let longest = Class::of(turn.name).longest_lease(turn.shift.store);
    if turn.random.chance(70) { longest } else { longest / 2 }
}

/// How a task asks: it waits, waits for a while, tries, or drops its future after a while.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Wait,
    For(Duration),
    Once,
    Dropped(Duration),
}

impl Way {
    pub(super) fn pick(turn: &mut Turn<'_>) -> Self {
        let wait = Duration::from_micros(turn.random.within(1, 1_000_000));
        let after = Duration::from_micros(turn.random.below(60_000));
        turn.random.weighted(&[(50, Self::Wait), (20, Self::For(wait)), (15, Self::Once), (15, Self::Dropped(after))])
    }

    const fn gave_up(self) -> GaveUp {
        match self {
            Self::Wait | Self::Dropped(_) => GaveUp::Cancelled,
            Self::For(_) => GaveUp::TimedOut,
            Self::Once => GaveUp::Busy,
        }
    }
}

/// Asks for a grant by one of three calls, and works under it.
pub(super) async fn run<L: Lease>(
    turn: Turn<'_>,
    (way, lease): (Way, Duration),
    wait: impl Future<Output = Result<L>>,
    wait_for: impl AsyncFnOnce(Duration) -> Result<Option<L>>,
    once: impl Future<Output = Result<Option<L>>>,
) {
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    let asked = match way {
        Way::Wait => wait.await.map(Some),
        Way::For(time) => wait_for(time).await,
        Way::Once => once.await,
        Way::Dropped(after) => tokio::time::timeout(after, wait).await.map_or(Ok(None), |granted| granted.map(Some)),
    };
    match asked {
        Ok(Some(guard)) => section::run(turn, attempt, vec![guard], lease).await,
        Ok(None) => section::gave_up(&turn, attempt, way.gave_up()),
        Err(error) => section::failed(&turn, attempt, &error).await,
    }
}
