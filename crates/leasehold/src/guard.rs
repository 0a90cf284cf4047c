//! What a holder has in its hands.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, Token};

use crate::client::Handle;
use crate::error::{Lost, Result};
use crate::reentry::Share;
use crate::session::{GIVEN_BACK_WITHIN_US, GivenBack, Hold, Seat};

/// A held lease. Dropping it gives the lease back in the background, with a runtime or without; [`Guard::release`] does
/// so and tells how it went. What this client asks for next by that name comes behind it: who drops a guard and tries again
/// does not meet itself.
///
/// A guard is bound to no thread and no task. It is a *lease*: it can be lost, and then says so. Put [`Guard::check`]
/// before each effect, or wait for [`Guard::lost`] beside the work.
#[must_use = "dropping the guard gives the lease back at once"]
pub struct Guard {
    hold: Arc<Hold>,
    /// `None` once released.
    keeps: Option<Keeps>,
}

/// What a guard has a part in until it goes.
enum Keeps {
    /// The lease is its own.
    Alone(Arc<Handle>),
    /// The lease is its owner's: see [`Mutex::owner`](crate::Mutex::owner).
    Shared(Arc<Share>),
}

/// What became of a release.
#[must_use = "NotHeld means that the work outlived its lease"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lease is given back, or handed on inside this client; the next waiter holds already. Also where the answer to
    /// the first request was lost and the second found nothing, if the lease was valid by our own clock: the first has
    /// given it back, as far as anybody knows.
    Released,
    /// There was nothing to give back: the lease had ended before, was revoked, or was lost. Somebody should hear of it:
    /// the work outlived its lease.
    NotHeld,
}

impl Guard {
    pub(crate) fn alone(hold: Arc<Hold>, client: Arc<Handle>) -> Self {
        Self { hold, keeps: Some(Keeps::Alone(client)) }
    }

    pub(crate) fn shared(share: Arc<Share>) -> Self {
        Self { hold: Arc::clone(share.hold()), keeps: Some(Keeps::Shared(share)) }
    }

    /// The fencing token: larger than that of every earlier grant of this name, and the same for all guards of an owner
    /// that holds. Hand it to the resource, which refuses a smaller one (see [`fence`](crate::fence)).
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// The token, if the lease is surely still ours. No round trip: a look at a clock that also runs while the machine
    /// sleeps, so the first call after a stop of an hour tells the truth.
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
    /// Why it is not: see [`Lost`].
    pub fn check(&self) -> std::result::Result<Token, Lost> {
        self.hold.check()
    }

    /// Whether the lease is surely still ours. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.check().is_ok()
    }

    /// For how long the lease is surely still ours if it is not renewed; zero once lost. No round trip.
    ///
    /// Not how long the lock may be held: renewals go on. After a wait this begins at a second or so, whatever the lease,
    /// because a grant that was handed over lasts for one claim until its first renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        Duration::from_micros(self.hold.remaining_us())
    }

    /// For how long the store surely keeps others out: [`Guard::remaining`] while the lease is held, what is left of the
    /// grace once it was revoked, and zero after any other loss. It is the time in which to stop. Zero, too, where the
    /// revocation was heard of by a renewal only: how long ago it began is not known then. No round trip.
    #[must_use]
    pub fn grace(&self) -> Duration {
        Duration::from_micros(self.hold.kept_us())
    }

    /// Whether others were waiting, in other clients or for strict order, when the store was last heard: a long holder may
    /// want to give way. It says so at once where this client hands on (see [`Mutex`](crate::Mutex#who-is-next)), and is
    /// as old as the last renewal otherwise. No round trip.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.hold.contention() != Contention::None
    }

    /// A future that is ready when the lease is lost, before it ends at the store. It is owned: it outlives this borrow
    /// and goes to other tasks. No round trip. Dropping it changes nothing, and any number of them may wait. It is of the
    /// lease: where that has several guards of one owner, it says `Released` when the last of them has gone.
    pub fn lost(&self) -> LostSignal {
        LostSignal::new(&self.hold)
    }

    /// Gives the lease back, and answers once the store has said so: one round trip. From the moment of this call the
    /// lease is no longer ours. Where it goes to the next one who waits in this client, or is [kept](crate::Mutex::sticky)
    /// for it, this answers at once and asks nobody.
    ///
    /// While the store is away it waits for it, until the lease must have ended there: at most for the lease and 2 s. Put a
    /// time-out around it to wait for less: what is dropped goes on in the background.
    ///
    /// # Cancel safety
    /// The lease goes back whether this future is finished or dropped.
    ///
    /// # Errors
    /// `Denied`, `Foreign` or `Store` where the store refused, and `Unreachable` (of a quorum `Quorum`) where it did not
    /// answer for as long as that. After an error, too, the client repeats the release until it is answered, or the lease
    /// has ended by itself. `Closed`, `Unsupported` after a fork.
    ///
    /// # Owners
    /// Of several guards of one owner the last to go gives back, whichever that is. The others answer at once and without a
    /// round trip: `Released` while the lease is surely its owner's, `NotHeld` once it is not.
    pub async fn release(mut self) -> Result<Released> {
        let (client, last) = match self.keeps.take() {
            None => return Ok(Released::NotHeld),
            Some(Keeps::Alone(client)) => (client, None),
            Some(Keeps::Shared(share)) => {
                let client = Arc::clone(share.client());
                client.session().check_usable()?;
                // While this one still counts: afterwards the last may go at any moment.
                let was_valid = self.is_valid();
                match Arc::into_inner(share) {
                    None if is_on(Mutant::P16InnerReleases) => (client, None),
                    None if was_valid => return Ok(Released::Released),
                    None => return Ok(Released::NotHeld),
                    last => (client, last),
                }
            }
        };
        // Dropped here before its end, this future hands the release to the session.
        let given_back = client.session().release(&self.hold).await;
        drop(last);
        Ok(match given_back? {
            GivenBack::Released => Released::Released,
            GivenBack::NotHeld => Released::NotHeld,
        })
    }

    /// Gives back, and waits for the store's word no longer than anything depends on it: the session sees to it.
    pub(crate) async fn finish(self) {
        let client = self.client().map(Arc::clone);
        if let Some(client) = client {
            drop(client.session().within(GIVEN_BACK_WITHIN_US, self.release()).await);
        }
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
            // In a forked child: the lease is the parent's, and nobody would ever tell.
            _ => Some(Lost::Closed),
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

/// Ready when a lease is lost: see [`Guard::lost`]. A lease that is given back is not lost; its signal then says
/// [`Lost::Released`].
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
