//! The mutex.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::Take;

use crate::acquirer::{Acquirer, setting_methods};
use crate::error::Result;
use crate::guard::Guard;
use crate::inspection::{Holder, Inspection, Revoked};
use crate::member::Member;
use crate::reentry::Handle;

/// A lock on a name. At most one client holds it at a time. Waiters are served first come, first served, within the
/// limits of [Who is next](Mutex#who-is-next).
///
/// A mutex is cheap to create and to clone. Creating one does no I/O, and the first call reports an invalid name or
/// lease. A second `lock` by the same task waits like every other caller, and so for ever if that task holds the first
/// guard. There is no re-entry, unless the mutex has an [owner](Mutex::owner).
///
/// # Who is next
///
/// Clients are served in the order in which they came. Within a client, calls with the same lease are served in their
/// order. The client hands the lock on among these calls [without a round trip](crate#hand-over-inside-a-client).
///
/// When a call of another client waits, the store notifies the client that holds the lock. (If that message is lost,
/// the holding client learns of it within 1 s.) From then on the holding client starts at most 64 more guards, and none
/// after 10 ms. Then it releases the lock to the store, and its own waiters go to the end of the store's queue.
///
/// With [`fair`](Mutex::fair), calls are served in the order of all calls of all clients.
#[derive(Clone)]
pub struct Mutex(Acquirer);

impl Mutex {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        Self(Acquirer::new(client, name, Take::MUTEX))
    }

    /// Waits until the lock is acquired, for as long as that takes, also while the store restarts or is unreachable.
    ///
    /// It takes one round trip if the lock is free, and none if this client holds the lock and hands it on in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the call from the queue. If the grant is already on its way, it is released.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the name or a setting is invalid, or the settings contradict each other (for example, `max_hold` is
    ///   shorter than the lease).
    /// - `Full`: 10,000 waiters are in the queue.
    /// - `Lost`: the [owner](Mutex::owner) has a guard of a lease that was lost.
    /// - `Foreign`, `Denied`, `Closed`, `Unsupported` (after a fork), and `Store` (for example if the store is out of
    ///   memory).
    ///
    /// It never fails with `Unreachable` or `Quorum`: it waits.
    pub async fn lock(&self) -> Result<Guard> {
        self.0.acquire().await.map(Guard::new)
    }

    /// Acquires the lock if it is free and nobody waits for it, and returns `None` otherwise.
    ///
    /// It takes one round trip. It takes none in three cases. If this client [keeps](Mutex::sticky) the lease, the result
    /// is a guard. If this client holds the lock with the same settings, the result is `None`, unless the
    /// [owner](Mutex::owner) of the lock calls. If other calls of this client wait for the lock with the same settings,
    /// the result is `None`, also while the store is unreachable: nobody overtakes them.
    ///
    /// A `try_lock` after a drop does not contend with the pending release of the same client: a guard that was dropped
    /// before, or a lease that the client [keeps](Mutex::sticky) with other settings, is released first, within the
    /// same round trip. (A `lock` of this client whose future was dropped a moment ago may still be in the way.)
    ///
    /// # Cancel safety
    ///
    /// See [`Mutex::lock`].
    ///
    /// # Errors
    ///
    /// See [`Mutex::lock`]. Also `Unreachable` if the store does not reply within a sixth of the lease (at least 50 ms,
    /// at most 2 s), and `Quorum` if too few nodes of a quorum vote.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        Ok(self.0.try_acquire().await?.map(Guard::new))
    }

    /// Waits for the lock for at most `wait`, and returns `None` if it was not acquired by then. It takes one round
    /// trip if the lock is free.
    ///
    /// The store is asked even if `wait` is zero, which is not an error. If `wait` ends before the store has replied,
    /// the call waits for the reply until 0.5 s after its request, or for four round trips if these take longer (at most
    /// 2 s after the end of `wait`). The same applies with [`full_lease`](Mutex::full_lease), if the lock was handed over
    /// before `wait` ended and its first renewal is still pending.
    ///
    /// # Cancel safety
    ///
    /// See [`Mutex::lock`].
    ///
    /// # Errors
    ///
    /// See [`Mutex::lock`]. Also `Unreachable` or `Quorum` if the time is over and the store has not replied that
    /// somebody else holds the lock.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        Ok(self.0.try_acquire_for(wait).await?.map(Guard::new))
    }

    /// Acquires the lock, runs the work, and releases the lock. It takes one round trip before the work and one after
    /// it, like [`Mutex::lock`] and [`Guard::release`].
    ///
    /// If the lease is lost, the work is dropped where it stands, and the result is an error of kind `Lost`. Work that
    /// blocks its thread cannot be dropped: it runs to its end, and the result is the same error. If the work returns a
    /// `Result`, the results are nested: use `run(…).await??` if the errors convert.
    ///
    /// The lease is released before this call returns. There is one exception: if the store does not confirm the
    /// release within 5 s, the call returns the result of the work, and the release continues in the background.
    ///
    /// ```
    /// # async fn example(leasehold: &leasehold::Leasehold) -> leasehold::Result<()> {
    /// let sold = leasehold.mutex("stock:42").run(async |guard| sell(guard.token()).await).await?;
    /// # let _: u32 = sold; Ok(()) }
    /// # async fn sell(_: leasehold::Token) -> u32 { 1 }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lease.
    ///
    /// # Errors
    ///
    /// See [`Mutex::lock`]. Also `Lost`.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let done = tokio::select! {
            biased;
            // Polled before the work: after a loss the work is no longer exclusive.
            lost = guard.lost() => Err(lost),
            // Checked after it, too: work that blocks its thread is not interrupted by a loss.
            value = work(&guard) => guard.check().map(|_| value),
        };
        match done {
            Ok(value) => {
                // The work was exclusive. The session repeats the release if it gets no reply.
                guard.finish().await;
                Ok(value)
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Returns who holds the lock, with which token, for how long, and the queue. It takes one round trip and changes
    /// nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Unreachable`, `Quorum`, `Foreign`, `Denied`, `Unsupported`, `Closed`.
    pub async fn inspect(&self) -> Result<Inspection> {
        self.0.inspect().await
    }

    /// Takes the lease away from the holder that [`Mutex::inspect`] returned. It takes one round trip. A later holder
    /// is not affected.
    ///
    /// The store notifies the holder at once. The lease ends when the holder releases it, and at the latest after
    /// `grace` (at most 5 s; zero ends it at once). The next waiter holds the lock within 1 s after that, even if the
    /// former holder is stopped, and even if the program that revoked has ended.
    ///
    /// Two messages can get lost:
    ///
    /// - The message to the holder. The holder then learns of the revocation at its next renewal, up to a third of its
    ///   lease later. The next holder may work at the same time. Only a fence keeps the two apart.
    /// - The messages to the waiters. The store notifies the first waiters of two clients. If both clients die within
    ///   the grace, or both messages are lost, the lock is handed on at the next re-check of any waiter. A waiter
    ///   re-checks after at most 40 % of the lease that it asked for, and at most 6 s.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lease may or may not be revoked.
    ///
    /// # Errors
    ///
    /// See [`Mutex::inspect`]. Also `Invalid` for a longer grace.
    pub async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        self.0.revoke(holder, grace).await
    }

    setting_methods!();
    setting_methods!(owner);

    /// Sets the shortest time for which nobody else can hold the lock, counted from the moment at which a guard of this
    /// mutex is acquired. The default is zero.
    ///
    /// If the guard goes earlier, the lease is released, but nobody is granted it before this time is over: the lock
    /// *cools down*. The store keeps others out, even if this process has exited by then. Use it for a job that several
    /// machines start at about the same time, and that only one of them is to run. Without it, a second machine that
    /// starts a little later runs a short job again. ShedLock calls this `lockAtLeastFor`.
    ///
    /// - While the lock cools down, a `try_lock` returns `None` and a `lock` waits, also in this client.
    ///   [`Mutex::inspect`] shows the cool-down. A [revocation](Mutex::revoke) ends it at once.
    /// - [`Guard::release`](crate::Guard::release) returns when the store has confirmed the release, and not when the
    ///   cool-down is over. It takes one round trip.
    /// - [`Guard::waive_min_hold`](crate::Guard::waive_min_hold) turns this off for one guard.
    /// - The time is not kept if the process dies before the guard goes, if the lease is lost, or if the release does
    ///   not reach the store before the lease ends. The lock is then free as soon as without this setting.
    ///
    /// If this time is longer than `max_hold`, `fixed_lease`, 24 h or the `max_lease` of a quorum, or if it is combined
    /// with [`sticky`](Mutex::sticky), the first call fails with `Invalid`. The client does not hand such a lock on
    /// inside itself.
    #[must_use]
    pub fn min_hold(self, hold: Duration) -> Self {
        Self(self.0.min_hold(hold))
    }

    /// Serves this call in strict order, first come, first served, over all clients. The call waits in the queue of the
    /// store, and no client passes the lock on to a later call of its own (see [Who is next](Mutex#who-is-next)).
    ///
    /// Each lock and each release costs one round trip, even if no other client wants the lock.
    #[must_use]
    pub fn fair(self) -> Self {
        Self(self.0.fair())
    }

    /// Keeps the lease for up to this long (at most 1 min) after the last guard of this client has gone, if nobody else
    /// waits. The next lock by this client with the same settings is then granted without a round trip, with a new
    /// token. The default is zero, which keeps nothing.
    ///
    /// Use it for a lock that one client takes again and again.
    ///
    /// - When another client waits for the lock, the lease is released at once. That client waits for one message and
    ///   one release more, or for 1 s if the message is lost.
    /// - The client renews a kept lease at least twice a second.
    /// - Other clients see the lock as held: [`Mutex::inspect`] shows it. A [`Mutex::try_lock`] in another client
    ///   returns `None`, and does not make this client release it.
    /// - Closing the client releases the lease. If the process dies, others wait until the lease ends, as for every
    ///   holder that died.
    /// - If a kept lease is lost or revoked, nobody has to be notified: the next lock asks the store.
    ///
    /// A lease that cannot be handed on cannot be kept. With `fair`, `fixed_lease`, `max_hold`, `min_hold` or
    /// `full_lease`, or with more than 1 min, the first call fails with `Invalid`.
    #[must_use]
    pub fn sticky(self, keep: Duration) -> Self {
        Self(self.0.sticky(keep))
    }

    fn with(self, change: impl Fn(Acquirer) -> Acquirer) -> Self {
        Self(change(self.0))
    }
}

impl From<Mutex> for Member {
    fn from(mutex: Mutex) -> Self {
        Self(mutex.0)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("Mutex", f)
    }
}
