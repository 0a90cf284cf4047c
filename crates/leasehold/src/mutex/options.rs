//! The settings of a mutex, each a method that returns the mutex with that setting.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold_spec::Order;

use super::Mutex;
use crate::owner::Owner;
use crate::session::{Entry, Renewal};
use crate::settings::Settings;

impl Mutex {
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
    /// Without this setting, a guard that had to wait starts with a claim of about 1 s. Its first renewal, at a third of
    /// the claim, brings the whole lease. That is enough if the work checks the guard before each effect. It is too
    /// little for work that cannot be aborted before the first renewal: use this setting then.
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

    /// Changes the settings, and forgets the terms that were computed from the former ones.
    fn with(self, change: impl FnOnce(Settings) -> Settings) -> Self {
        Self { settings: change(self.settings), terms: OnceLock::new(), ..self }
    }
}
