//! S6: a hash with owner and count, scripts, and a timer that renews; behind `java.util.concurrent.locks.Lock`.
//!
//! The idea is sound on one server. The code, as its tutorial prints it, is not:
//!
//! - The owner is the literal text `uuid:` and the number of the thread *that made the lock object* (H16). Two threads that
//!   share the object are one owner, and so are the first threads of two processes.
//! - `tryLock(time)` makes the lease as long as the caller wants to wait, and then waits without an end (H17).
//! - Each acquisition starts a timer that renews as long as the owner's field exists. Unlock does not cancel it (H18).
//! - `lockInterruptibly` is empty. It returns at once, and its caller believes that it holds the lock.
//! - `newCondition` returns null.

use super::{Grant, Lock};
use crate::client::{Client, Held};
use crate::redis::{Command, Reply, Script};

/// The re-entrant lock of the tutorial.
#[derive(Clone, Debug)]
pub struct Reentrant {
    key: String,
    lease_s: u64,
    owner: String,
}

impl Reentrant {
    /// The time between two tries.
    const SPIN_MS: u64 = 50;

    /// Makes a lock object. The thread that makes it is the owner of all acquisitions.
    #[must_use]
    pub fn new(client: &Client, key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s, owner: format!("uuid:{}", client.number()) }
    }

    /// `tryLock(time)`: takes the time to wait for the lease, and waits without an end.
    pub async fn try_lock(&self, client: &Client, time_s: u64) -> Grant {
        let arguments = || vec![self.owner.clone(), time_s.to_string()];
        let take = || Command::Eval(Script::ReentrantLock, self.key.clone(), arguments());
        while client.call(take()).await != Ok(Reply::Number(1)) {
            client.sleep_ms(Self::SPIN_MS).await;
        }
        self.renew(client, time_s);
        Grant { owner: self.owner.clone(), held: Held::default() }
    }

    /// `lockInterruptibly()`: empty, as the tutorial has it.
    pub async fn lock_interruptibly(&self, _client: &Client) {}

    /// `newCondition()`: null, as the tutorial has it.
    #[must_use]
    pub const fn new_condition(&self) -> Option<()> {
        None
    }

    /// Starts a timer that renews every third of the lease. It ends when the field of the owner is gone.
    fn renew(&self, client: &Client, lease_s: u64) {
        let lock = self.clone();
        client.spawn(move |client| async move {
            loop {
                client.sleep_ms(lease_s * 1000 / 3).await;
                let arguments = vec![lock.owner.clone(), lease_s.to_string()];
                let renewed = client.call(Command::Eval(Script::ReentrantRenew, lock.key.clone(), arguments)).await;
                if renewed == Ok(Reply::Number(0)) {
                    return;
                }
            }
        });
    }
}

impl Lock for Reentrant {
    async fn lock(&self, client: &Client) -> Grant {
        self.try_lock(client, self.lease_s).await
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let unlock = Command::Eval(Script::ReentrantUnlock, self.key.clone(), vec![grant.owner.clone()]);
        let _ignored = client.call(unlock).await;
    }
}
