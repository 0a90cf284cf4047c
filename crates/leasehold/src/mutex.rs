//! The mutex.

mod options;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_spec::limits::REVOKE_GRACE_MS;
use leasehold_spec::{Name, Op, Outcome};

use crate::error::{Error, Operation, Result};
use crate::guard::Guard;
use crate::inspection::{Holder, Inspection, Revoked};
use crate::owner::Owner;
use crate::reentry::{Handle, enter};
use crate::session::{Terms, Wait};
use crate::settings::Settings;

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
pub struct Mutex {
    client: Arc<Handle>,
    name: Result<Name, Arc<Error>>,
    settings: Settings,
    owner: Option<Owner>,
    // Computed from the settings at the first call.
    terms: OnceLock<Arc<Terms>>,
}

impl Mutex {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        let settings = Settings::new(client.lease());
        let name = Name::new(name).map_err(|bad| Arc::new(Error::from(bad)));
        Self { client, name, settings, owner: None, terms: OnceLock::new() }
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
        loop {
            // `None` cannot occur here: only calls with a time limit return it.
            if let Some(guard) = self.acquire(Wait::ForEver).await? {
                return Ok(guard);
            }
        }
    }

    /// Acquires the lock if it is free and nobody waits for it, and returns `None` otherwise.
    ///
    /// It takes one round trip. It takes none in two cases. If this client [keeps](Mutex::sticky) the lease, the result
    /// is a guard. If this client holds the lock with the same settings, the result is `None`, unless the
    /// [owner](Mutex::owner) of the lock calls.
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
        self.acquire(Wait::No).await
    }

    /// Waits for the lock for at most `wait`, and returns `None` if it was not acquired by then. It takes one round
    /// trip if the lock is free.
    ///
    /// The store is asked even if `wait` is zero, which is not an error. If `wait` ends before the store has replied,
    /// the call waits for the reply for another 0.5 s, or for four round trips if these take longer (2 s at most). The
    /// same applies with [`full_lease`](Mutex::full_lease), if the lock was handed over before `wait` ended and its
    /// first renewal is still pending.
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
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let until_us = self.client.session().world.now_us().checked_add(wait_us);
        self.acquire(until_us.map_or(Wait::ForEver, |until_us| Wait::Until { until_us })).await
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

    /// Returns who holds the lock, with which token, for how long, and the length of the queue. It takes one round trip
    /// and changes nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Unreachable`, `Quorum`, `Foreign`, `Denied`, `Unsupported`, `Closed`.
    pub async fn inspect(&self) -> Result<Inspection> {
        let failed = |error: Error| self.failed(Operation::Inspect, error);
        let name = self.name().map_err(failed)?;
        let (inspection, nodes) = self.client.session().inspect(name).await.map_err(failed)?;
        let waiters = usize::try_from(inspection.waiters).unwrap_or(usize::MAX);
        Ok(Inspection { holder: inspection.holder.map(Holder::from), waiters, nodes })
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
        let failed = |error: Error| self.failed(Operation::Revoke, error);
        let grace_ms = grace.as_millis();
        if grace_ms > u128::from(REVOKE_GRACE_MS) {
            let message = format!("a grace of {grace:?} is too long: use at most {REVOKE_GRACE_MS} ms");
            return Err(failed(Error::invalid(message)));
        }
        let op = Op::Revoke { holder: holder.id, token: holder.token, grace_ms: grace_ms as u64 };
        let name = self.name().map_err(failed)?;
        match self.client.session().revoke(name, op).await.map_err(failed)? {
            Outcome::Revoking { left_us } => Ok(Revoked::Within(Duration::from_micros(left_us))),
            _ => Ok(Revoked::NotHeld),
        }
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<Guard>> {
        self.enter(wait).await.map_err(|error| self.failed(Operation::Lock, error))
    }

    async fn enter(&self, wait: Wait) -> Result<Option<Guard>> {
        let name = self.name()?;
        let terms = match self.terms.get() {
            Some(terms) => terms,
            None => {
                let terms = Arc::new(self.settings.terms(self.client.label())?);
                self.client.session().check_min_hold(&terms)?;
                self.terms.get_or_init(|| terms)
            }
        };
        if let Some(owner) = &self.owner {
            return Ok(enter(&self.client, (name, owner), terms, wait).await?.map(Guard::shared));
        }
        let hold = self.client.session().acquire(name, terms, wait).await?;
        Ok(hold.map(|hold| Guard::alone(hold, Arc::clone(&self.client))))
    }

    /// Returns the error with the operation that failed, and the name of this lock.
    #[cold]
    fn failed(&self, operation: Operation, error: Error) -> Error {
        error.of(operation, self.name.as_ref().ok().map(Name::as_str))
    }

    fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(|error| error.share())
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("lease", &self.settings.lease).finish_non_exhaustive()
    }
}
