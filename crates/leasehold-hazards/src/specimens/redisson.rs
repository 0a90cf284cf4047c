//! S7: Redisson's `RLock`: a loser subscribes to the channel of the lock, and sleeps until a message or the TTL.
//!
//! A watchdog renews the lock every third of its lease until unlock. On one server this lock is sound against everything
//! but a pause of its holder (H5) and the loss of data (H9). A release wakes a waiter of each process (H15), nobody has a
//! place (H14), and if the message is lost, the waiters sleep until the TTL has passed (H13).
//!
//! This is the lock as the tutorials describe it. Newer versions of Redisson also wait by default until the replicas have
//! received an acquisition. That makes the window of H9 smaller.

use std::cell::Cell;
use std::rc::Rc;

use super::{Grant, Lock};
use crate::client::{Client, Held};
use crate::redis::{Command, Reply, Script};

/// Redisson's lock, with a watchdog.
#[derive(Clone, Debug)]
pub struct Redisson {
    key: String,
    lease_ms: u64,
    id: String,
    /// Whether the watchdog of this process renews.
    renews: Rc<Cell<bool>>,
}

impl Redisson {
    /// Makes the lock of one process.
    #[must_use]
    pub fn new(client: &Client, key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_ms: lease_s * 1000, id: client.unique(), renews: Rc::default() }
    }

    fn channel(&self) -> String {
        format!("channel:{}", self.key)
    }

    fn owner(&self, client: &Client) -> String {
        format!("{}:{}", self.id, client.number())
    }

    /// Tries once. Returns the TTL of the holder's lock if there is one.
    async fn try_acquire(&self, client: &Client) -> Option<u64> {
        let arguments = vec![self.lease_ms.to_string(), self.owner(client)];
        match client.call(Command::Eval(Script::RedissonLock, self.key.clone(), arguments)).await {
            Ok(Reply::Nil) => None,
            Ok(reply) => Some(reply.number().unsigned_abs()),
            Err(_) => Some(0),
        }
    }

    fn start_watchdog(&self, client: &Client) {
        self.renews.set(true);
        let (lock, owner) = (self.clone(), self.owner(client));
        client.spawn(move |client| async move {
            loop {
                client.sleep_ms(lock.lease_ms / 3).await;
                let arguments = vec![lock.lease_ms.to_string(), owner.clone()];
                if !lock.renews.get() {
                    return;
                }
                let _ignored = client.call(Command::Eval(Script::RedissonRenew, lock.key.clone(), arguments)).await;
            }
        });
    }
}

impl Lock for Redisson {
    async fn lock(&self, client: &Client) -> Grant {
        if self.try_acquire(client).await.is_some() {
            let _ignored = client.call(Command::Subscribe(self.channel())).await;
            while let Some(left_ms) = self.try_acquire(client).await {
                client.message(left_ms).await;
            }
        }
        self.start_watchdog(client);
        Grant { owner: self.owner(client), held: Held::default() }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let arguments = vec![self.channel(), self.lease_ms.to_string(), grant.owner.clone()];
        let _ignored = client.call(Command::Eval(Script::RedissonUnlock, self.key.clone(), arguments)).await;
        self.renews.set(false);
    }
}
