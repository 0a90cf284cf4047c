//! The mutex.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_spec::{Name, Order};

use crate::client::Handle;
use crate::error::{Error, Operation, Result};
use crate::guard::Guard;
use crate::owner::Owner;
use crate::reentry::enter;
use crate::session::{Entry, Renewal, Terms, Wait};
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

    /// Sets the lease: how long a lock lasts without a renewal by its holder, from 100 ms to 24 h.
    ///
    /// The default is that of [`crate::Builder::lease`]: 30 s, or the `max_lease` of a quorum if that is shorter. A
    /// quorum refuses a longer lease. The client renews the lease at each third of it while the guard lives. If the
    /// holder dies, others wait until its lease ends: so a short lease is a short wait. The first call reports a lease
    /// out of range.
    ///
    /// This replaces `fixed_lease`.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|settings| {
            let renewal = if settings.renewal == Renewal::Never { Renewal::Always } else { settings.renewal };
            Settings { lease, renewal, ..settings }
        })
    }

    /// Sets a lease of this length (100 ms to 24 h) that is never renewed. It ends by itself, and the guard is then
    /// lost for [`LostReason::FixedLease`](crate::LostReason::FixedLease). The client does not hand such a lock on
    /// inside itself.
    ///
    /// This replaces `lease` and `max_hold`.
    #[must_use]
    pub fn fixed_lease(self, lease: Duration) -> Self {
        self.with(|settings| Settings { lease, renewal: Renewal::Never, ..settings })
    }

    /// Sets the longest time for which a guard can hold the lock. The client stops renewing, so that the lease ends
    /// this long after the grant, whether or not others wait. The guard is then lost for
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold). Use it for work that may hang.
    ///
    /// It must be at least the lease. By default there is no limit. The client does not hand such a lock on inside
    /// itself.
    ///
    /// This replaces `fixed_lease`.
    #[must_use]
    pub fn max_hold(self, hold: Duration) -> Self {
        let renewal = u64::try_from(hold.as_micros()).map_or(Renewal::Always, |hold_us| Renewal::For { hold_us });
        self.with(|settings| Settings { renewal, ..settings })
    }

    /// Sets the shortest time for which nobody else can hold the lock, counted from the moment at which a guard of this
    /// mutex is acquired. The default is zero.
    ///
    /// If the guard goes earlier, the lease is released, but nobody is granted it before this time is over: it *cools
    /// down*. The store keeps others out, also if this process has exited by then. Use it for a job that several
    /// machines start at about the same time and one of them shall run: without it, a second machine that starts a
    /// little later runs a short job again. ShedLock calls this `lockAtLeastFor`.
    ///
    /// - A `try_lock` returns `None` while the lock cools down, and a `lock` waits, also in this client.
    ///   [`Mutex::inspect`] shows it. A [revocation](Mutex::revoke) ends it at once.
    /// - [`Guard::release`](crate::Guard::release) returns when the store has confirmed that, and not when the time is
    ///   over. It costs one round trip.
    /// - The time is not kept if the process dies before the guard goes, if the lease is lost, or if the release does
    ///   not reach the store before the lease ends. The lock is free then as soon as it would be without this setting.
    ///
    /// If it is longer than `max_hold`, `fixed_lease`, 24 h or the `max_lease` of a quorum, or if it is combined with
    /// [`sticky`](Mutex::sticky), the first call fails with `Invalid`. The client hands no such lock on inside itself.
    #[must_use]
    pub fn min_hold(self, hold: Duration) -> Self {
        self.with(|settings| Settings { min_hold: hold, ..settings })
    }

    /// Serves this call in strict order, first come, first served, over all clients. The call waits in the queue of the
    /// store, and no client passes the lock on to a later call of its own (see [Who is next](Mutex#who-is-next)).
    ///
    /// Each lock and each release costs one round trip, even if no other client wants the lock.
    #[must_use]
    pub fn fair(self) -> Self {
        self.with(|settings| Settings { order: Order::Strict, ..settings })
    }

    /// Sets the owner of the lock: this owner may lock again what it holds, from any task and any number of times.
    /// Without an owner there is no re-entry.
    ///
    /// Locking again costs no round trip. All guards of the owner share one grant and one token. The last guard to go,
    /// in any order, releases the lease.
    ///
    /// If two tasks of an owner lock at the same time, the second waits for the first and shares its grant. If the
    /// first task gave up or failed, the second asks the store itself, at the end of the queue. While the first is on
    /// its way, [`Mutex::try_lock`] by the same owner returns `None`.
    ///
    /// The tasks of one owner do not exclude each other. That is the purpose of an owner.
    ///
    /// # Settings on re-entry
    ///
    /// If a guard with a longer [`lease`](Mutex::lease) is added to a lease that is renewed, the longer lease applies
    /// to all guards until the last one has gone. The client renews to that length at once, in the background.
    ///
    /// All other settings stay as the first guard asked for them. A shorter lease, `max_hold`, `min_hold` or `fair`
    /// changes nothing. A fixed lease stays fixed and keeps its end. A lease that is renewed stays so, even if the
    /// re-entry asks for `fixed_lease`.
    ///
    /// # After a loss
    ///
    /// If the lease is lost, locking again fails with kind `Lost` until the last guard of the lost lease has gone. The
    /// work under that lease may not have been exclusive, and a new token would hide this.
    ///
    /// # Clients
    ///
    /// Owners belong to one client. From another client, also in this process, the same owner contends like any other
    /// caller.
    ///
    /// ```
    /// # async fn example(leasehold: &leasehold::Leasehold) -> leasehold::Result<()> {
    /// let mutex = leasehold.mutex("stock:42").owner(&leasehold::Owner::new());
    /// let outer = mutex.lock().await?;
    /// let inner = mutex.lock().await?; // at once
    /// assert_eq!(inner.token(), outer.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Makes every guard start with a whole lease.
    ///
    /// Without this setting, a guard that had to wait starts with a claim of about 1 s. Its first renewal, which
    /// follows at once, brings the whole lease. That is enough if the work checks the guard before each effect. It is
    /// too little for work that cannot be aborted before the first renewal: use this setting then.
    ///
    /// It costs one more round trip after a wait, and none if the lock was free. The client does not hand such a lock
    /// on inside itself.
    #[must_use]
    pub fn full_lease(self) -> Self {
        self.with(|settings| Settings { entry: Entry::OnLease, ..settings })
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
        self.with(|settings| Settings { sticky: keep, ..settings })
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
    /// - `Invalid`: the name or the lease is invalid, or `max_hold` is shorter than the lease.
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

    /// Changes the settings, and forgets the terms that were computed from the former ones.
    fn with(self, change: impl FnOnce(Settings) -> Settings) -> Self {
        Self { settings: change(self.settings), terms: OnceLock::new(), ..self }
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

// Behind the methods above on the page of the type.
mod operators;
