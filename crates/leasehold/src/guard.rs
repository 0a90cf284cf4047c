//! The guard of a lock, and the signal of its loss.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, Token};

use crate::error::{Error, Operation, Result};
use crate::lost::{Lost, Released};
use crate::reentry::{Handle, Share};
use crate::session::{GIVEN_BACK_WITHIN_US, Hold, Seat};

/// A held lock. Dropping the guard releases the lease in the background, with or without a runtime. [`Guard::release`]
/// releases it and returns the result. Later calls of this client for the same name do not contend with the pending
/// release.
///
/// A guard is not bound to a thread or a task. It stands for a *lease*, which can be lost. Call [`Guard::check`] before
/// each effect, or wait for [`Guard::lost`] beside the work.
#[must_use = "dropping the guard gives the lease back at once"]
pub struct Guard {
    hold: Arc<Hold>,
    /// `None` once released.
    keeps: Option<Keeps>,
}

/// The part that a guard keeps alive until it is released.
enum Keeps {
    /// The lease belongs to this guard alone.
    Alone(Arc<Handle>),
    /// The lease belongs to an owner: see [`Mutex::owner`](crate::Mutex::owner).
    Shared(Arc<Share>),
}

impl Guard {
    pub(crate) fn alone(hold: Arc<Hold>, client: Arc<Handle>) -> Self {
        Self { hold, keeps: Some(Keeps::Alone(client)) }
    }

    pub(crate) fn shared(share: Arc<Share>) -> Self {
        Self { hold: Arc::clone(share.hold()), keeps: Some(Keeps::Shared(share)) }
    }

    /// Returns the fencing token. It is larger than the token of every earlier grant of this name. All guards of one
    /// owner have the same token.
    ///
    /// Pass it to the resource, which refuses smaller tokens (see [`fence`](crate::fence)).
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// Returns the token if the lease is certainly still held. No round trip.
    ///
    /// This reads a clock that also runs while the machine sleeps. So the first call after a stop of an hour returns
    /// the truth.
    ///
    /// ```
    /// # tokio_test(async {
    /// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leasehold.mutex("stock:42").lock().await?;
    /// let token = guard.check()?; // before each effect
    /// # let _ = token;
    /// # guard.release().await?;
    /// # leasehold::Result::Ok(()) });
    /// # fn tokio_test(f: impl Future<Output = leasehold::Result<()>>) {
    /// #     tokio::runtime::Runtime::new().unwrap().block_on(f).unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Which lock is lost, and why: see [`Lost`].
    pub fn check(&self) -> std::result::Result<Token, Lost> {
        self.hold.check()
    }

    /// Returns whether the lease is certainly still held. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.check().is_ok()
    }

    /// Returns for how long the lease is certainly held if it is not renewed, or zero if it is lost. No round trip.
    ///
    /// This is not a limit for the work, because renewals continue. After a wait it starts at 1 s or so, whatever the
    /// lease: a grant by hand-over lasts for one claim until its first renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        Duration::from_micros(self.hold.remaining_us())
    }

    /// Returns for how long the store certainly keeps others out. Use it as the time in which to stop. No round trip.
    ///
    /// It equals [`Guard::remaining`] while the lease is held, the rest of the grace after a revocation, and zero after
    /// any other loss. It is also zero if the client learned of the revocation by a renewal only, because it does not
    /// know then how long ago the grace began.
    #[must_use]
    pub fn grace(&self) -> Duration {
        Duration::from_micros(self.hold.kept_us())
    }

    /// Returns whether others were waiting, according to the last message from the store: in other clients, or in
    /// strict order. A long holder may want to release the lock then. No round trip.
    ///
    /// If the client can hand this lock on (see [`Mutex`](crate::Mutex#who-is-next)), it is notified at once. Otherwise
    /// this information is as old as the last renewal.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.hold.contention() != Contention::None
    }

    /// Waives the [`min_hold`](crate::Mutex::min_hold): when this guard goes, others can be granted the lock at once. Use
    /// it if the work was not done. It does nothing if there is no `min_hold`. No round trip.
    ///
    /// The guards of one owner share a lease: if one of them waives, all do.
    pub fn waive_min_hold(&self) {
        self.hold.waive_min_hold();
    }

    /// Returns a future that completes when the lease is lost, before the lease ends in the store. No round trip.
    ///
    /// The future is owned: it can outlive the guard, and move to other tasks. Any number of them may wait, and
    /// dropping one changes nothing. It belongs to the lease. If several guards of an owner share the lease, the reason
    /// is `Released` when the last of them has gone.
    pub fn lost(&self) -> LostSignal {
        LostSignal::new(&self.hold)
    }

    /// Releases the lease, and waits until the store has confirmed that: one round trip. From the moment of the call
    /// the lease is no longer held. If the lease goes to the next waiter in this client, or is
    /// [kept](crate::Mutex::sticky), this returns at once without a round trip.
    ///
    /// While the store is unreachable, this waits until the lease must have ended there: at most the lease and 2 s. Use
    /// a timeout around it to wait for less. The release then continues in the background.
    ///
    /// # Cancel safety
    ///
    /// The lease is released whether the future is completed or dropped.
    ///
    /// # Errors
    ///
    /// - `Denied`, `Foreign`, `Store`: the store refused.
    /// - `Unreachable` (on a quorum `Quorum`): the store did not reply in the time above.
    /// - `Closed`, and `Unsupported` after a fork.
    ///
    /// After an error, too, the client repeats the release until it gets a reply or the lease has ended.
    ///
    /// # Owners
    ///
    /// If several guards of one owner share the lease, the last one to go releases it. The release of the others
    /// returns at once and without a round trip: `Released` while the owner certainly holds the lease, and `NotHeld`
    /// otherwise.
    pub async fn release(mut self) -> Result<Released> {
        let (client, last) = match self.keeps.take() {
            None => return Ok(Released::NotHeld),
            Some(Keeps::Alone(client)) => (client, None),
            Some(Keeps::Shared(share)) => {
                let client = Arc::clone(share.client());
                client.session().check_usable().map_err(|error| self.failed(error))?;
                // Checked while this guard still counts: after that the last guard may go at any moment.
                let was_valid = self.is_valid();
                match Arc::into_inner(share) {
                    None if is_on(Mutant::P16InnerReleases) => (client, None),
                    None if was_valid => return Ok(Released::Released),
                    None => return Ok(Released::NotHeld),
                    last => (client, last),
                }
            }
        };
        // If this future is dropped here, the session continues the release.
        let released = client.session().release(&self.hold).await;
        drop(last);
        released.map_err(|error| self.failed(error))
    }

    /// Releases, and stops waiting for the reply of the store as soon as no result depends on it. The session repeats
    /// the request.
    pub(crate) async fn finish(self) {
        let client = self.client().map(Arc::clone);
        if let Some(client) = client {
            drop(client.session().within(GIVEN_BACK_WITHIN_US, self.release()).await);
        }
    }

    #[cold]
    fn failed(&self, error: Error) -> Error {
        error.of(Operation::Release, Some(self.name()))
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    #[cfg(feature = "blocking")]
    pub(crate) async fn lost_within(&self, at_most: Duration) -> Option<Lost> {
        let within_us = u64::try_from(at_most.as_micros()).unwrap_or(u64::MAX);
        match self.client() {
            Some(client) if client.session().is_surely_ours() => client.session().within(within_us, self.lost()).await,
            // In a forked child: the lease belongs to the parent, so no message about it ever comes here.
            _ => Some(self.hold.lost(crate::lost::LostReason::Closed)),
        }
    }

    fn client(&self) -> Option<&Arc<Handle>> {
        match self.keeps.as_ref()? {
            Keeps::Alone(client) => Some(client),
            Keeps::Shared(share) => Some(share.client()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Keeps::Alone(client)) = &self.keeps {
            client.session().drop_hold(&self.hold);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.hold.name)
            .field("token", &self.token().get())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// A future that completes when a lease is lost: see [`Guard::lost`]. If the lease was released instead, its reason
/// is [`LostReason::Released`](crate::LostReason::Released).
#[must_use = "a signal does nothing unless it is awaited"]
pub struct LostSignal {
    hold: Arc<Hold>,
    seat: Seat,
}

impl LostSignal {
    fn new(hold: &Arc<Hold>) -> Self {
        Self { hold: Arc::clone(hold), seat: Seat::default() }
    }
}

impl Clone for LostSignal {
    fn clone(&self) -> Self {
        Self::new(&self.hold)
    }
}

impl Future for LostSignal {
    type Output = Lost;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lost> {
        let signal = self.get_mut();
        signal.hold.poll_lost(&mut signal.seat, context)
    }
}

impl Drop for LostSignal {
    fn drop(&mut self) {
        self.hold.leave(&self.seat);
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("lost", &self.hold.why_lost()).finish()
    }
}
