//! The guard of a multi-lock.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_spec::Token;
use leasehold_spec::mutant::{Mutant, is_on};

use crate::error::Result;
use crate::lease::Lease;
use crate::lost::{Lost, Released};
use crate::lost_signal::LostSignal;

/// The guards of all members of a multi-lock. Dropping it releases all of them in the background.
#[must_use = "dropping the guard releases all leases at once"]
pub struct AllGuard {
    /// In the order in which the program named the members.
    leases: Vec<Lease>,
}

impl AllGuard {
    pub(super) fn new(leases: Vec<Lease>) -> Self {
        Self { leases }
    }

    /// Returns the fencing tokens, one for each member, in the order in which the members were named. Each fence takes the
    /// token of its own lock.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        self.leases.iter().map(Lease::token).collect()
    }

    /// Checks that every member is certainly still held. No round trip.
    ///
    /// # Errors
    ///
    /// The loss of the first member that is lost. The others stay held until this guard goes, so that nobody enters a half
    /// of what the members protect while the other half is being changed (P47).
    pub fn check(&self) -> std::result::Result<(), Lost> {
        self.counted().try_for_each(|lease| lease.check().map(drop))
    }

    /// Returns whether every member is certainly still held. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns for how long every member is certainly held if no lease is renewed. No round trip.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.counted().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Returns for how long the stores certainly keep others out of every member. Use it as the time in which to stop. No
    /// round trip.
    ///
    /// It equals [`Self::remaining`] while all members are held. If one was revoked, it is at most the rest of its grace:
    /// see [`Guard::grace`](crate::Guard::grace).
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.counted().map(Lease::grace).min().unwrap_or_default()
    }

    /// Waives the [`min_hold`](crate::Mutex::min_hold) of all members: see
    /// [`Guard::waive_min_hold`](crate::Guard::waive_min_hold). No round trip.
    pub fn waive_min_hold(&self) {
        self.leases.iter().for_each(Lease::waive_min_hold);
    }

    /// Returns whether others were waiting for one of the members, according to the last message from its store. No round
    /// trip.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.leases.iter().any(Lease::others_wait)
    }

    /// Returns a future that completes when the first member is lost, with its loss. If the guard is released instead, the
    /// reason is `Released`. The future is owned, and dropping it changes nothing. No round trip.
    pub fn lost(&self) -> AllLost {
        AllLost(self.counted().map(Lease::lost).collect())
    }

    /// Releases all members at once, and waits until each store has confirmed that: one round trip.
    ///
    /// The result is `Released` if all members were held until then, and `NotHeld` otherwise.
    ///
    /// # Cancel safety
    ///
    /// All members are released whether the future is completed or dropped.
    ///
    /// # Errors
    ///
    /// The first error of a member: see [`Guard::release`](crate::Guard::release). The others are released all the same.
    pub async fn release(self) -> Result<Released> {
        let mut releasing: Vec<_> = self.leases.into_iter().map(|lease| Some(Box::pin(lease.release()))).collect();
        let mut results = Vec::with_capacity(releasing.len());
        poll_fn(|context| {
            for one in &mut releasing {
                if let Some(Poll::Ready(result)) = one.as_mut().map(|one| one.as_mut().poll(context)) {
                    results.push(result);
                    *one = None;
                }
            }
            if releasing.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let mut released = Released::Released;
        for result in results {
            if result? == Released::NotHeld {
                released = Released::NotHeld;
            }
        }
        Ok(released)
    }

    /// Returns the leases whose loss is the loss of all: every one (P47).
    fn counted(&self) -> impl Iterator<Item = &Lease> {
        let count = if is_on(Mutant::P47FirstCounts) { 1 } else { self.leases.len() };
        self.leases.iter().take(count)
    }

    #[cfg(feature = "blocking")]
    pub(crate) async fn lost_within(&self, at_most: Duration) -> Option<Lost> {
        let first = self.leases.first()?;
        first.within(at_most, self.lost()).await
    }
}

/// A future that completes when the first member of a multi-lock is lost: see [`AllGuard::lost`].
#[must_use = "a signal does nothing unless it is awaited"]
#[derive(Clone, Debug)]
pub struct AllLost(Vec<LostSignal>);

impl Future for AllLost {
    type Output = Lost;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lost> {
        for signal in &mut self.0 {
            if let Poll::Ready(lost) = Pin::new(signal).poll(context) {
                return Poll::Ready(lost);
            }
        }
        Poll::Pending
    }
}

impl fmt::Debug for AllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllGuard").field("tokens", &self.tokens()).field("remaining", &self.remaining()).finish()
    }
}
