//! The settings that primitives share, each a method that returns the primitive with that setting.

/// Writes the methods, for a face with the method `fn with(self, impl Fn(Acquirer) -> Acquirer) -> Self`: the settings of
/// every primitive, or `owner` for those that can be re-entered.
macro_rules! setting_methods {
    (owner) => {
        /// Sets the owner of the lock: this owner may lock again what it holds, from any task or thread and any number of
        /// times. Without an owner there is no re-entry.
        ///
        /// Locking again costs no round trip. All guards of the owner share one grant and one token. The last guard to go,
        /// in any order, releases the lease.
        ///
        /// If two calls of an owner lock at the same time, the second waits for the first and shares its grant. If the
        /// first call gave up or failed, the second asks the store itself, at the end of the queue. While the first is
        /// still acquiring, [`Mutex::try_lock`] by the same owner returns `None`.
        ///
        /// The calls of one owner do not exclude each other. That is the purpose of an owner.
        ///
        /// # Settings on re-entry
        ///
        /// If a guard with a longer [`lease`](Self::lease) is added to a lease that is renewed, the longer lease
        /// applies to all guards until the last one has gone. The client renews to that length at once, in the background.
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
        #[must_use]
        pub fn owner(self, owner: &crate::owner::Owner) -> Self {
            self.with(|inner| inner.owner(owner))
        }
    };
    () => {
        /// Sets the lease: how long a lock lasts without a renewal by its holder, from 100 ms to 24 h.
        ///
        /// The default is that of [`crate::Builder::lease`]: 30 s, or the `max_lease` of a quorum if that is shorter. A
        /// quorum refuses a longer lease. The client renews the lease at each third of it while the guard lives. If the
        /// holder dies, others wait until its lease ends: a short lease means a short wait. The first call reports a lease
        /// that is out of range.
        ///
        /// This replaces `fixed_lease`.
        #[must_use]
        pub fn lease(self, lease: std::time::Duration) -> Self {
            self.with(|inner| inner.lease(lease))
        }

        /// Sets a lease of this length (100 ms to 24 h) that is never renewed. It ends by itself, and the guard is then
        /// lost for [`LostReason::FixedLease`](crate::LostReason::FixedLease). The client does not hand such a lock on
        /// inside itself.
        ///
        /// This replaces `lease` and `max_hold`.
        #[must_use]
        pub fn fixed_lease(self, lease: std::time::Duration) -> Self {
            self.with(|inner| inner.fixed_lease(lease))
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
        pub fn max_hold(self, hold: std::time::Duration) -> Self {
            self.with(|inner| inner.max_hold(hold))
        }

        /// Makes every guard start with a whole lease.
        ///
        /// Without this setting, a guard that had to wait starts with a claim of about 1 s. Its first renewal, at a third
        /// of the claim, brings the whole lease. That is enough if the work checks the guard before each effect. It is too
        /// little for work that cannot be aborted before the first renewal: use this setting then.
        ///
        /// It costs one more round trip after a wait, and none if the lock was free. The client does not hand such a lock
        /// on inside itself.
        #[must_use]
        pub fn full_lease(self) -> Self {
            self.with(|inner| inner.full_lease())
        }
    };
}
pub(crate) use setting_methods;
