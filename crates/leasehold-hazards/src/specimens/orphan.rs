//! N8: a watchdog that outlives the unlock.
//!
//! The watchdog stops when the release has succeeded. If the release fails, because its request is lost, the program goes
//! on and believes that it has unlocked. The watchdog goes on as well, and renews a lock that nobody holds: for ever.
//! Redisson had this mistake (its issue 4232), and has a race with the same end (7272).

use std::cell::Cell;
use std::rc::Rc;

use super::{Grant, Lock, RETRY_MS};
use crate::client::{Client, Held};
use crate::redis::{Command, Reply, Script};

/// A re-entrant lock with an owner of its own, and with a watchdog that stops only after a successful release.
#[derive(Clone, Debug)]
pub struct Orphan {
    key: String,
    lease_s: u64,
    owner: String,
    renews: Rc<Cell<bool>>,
}

impl Orphan {
    /// Makes the lock of one process.
    #[must_use]
    pub fn new(client: &Client, key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s, owner: client.unique(), renews: Rc::default() }
    }

    fn arguments(&self) -> Vec<String> {
        vec![self.owner.clone(), self.lease_s.to_string()]
    }

    fn start_watchdog(&self, client: &Client) {
        self.renews.set(true);
        let lock = self.clone();
        client.spawn(move |client| async move {
            loop {
                client.sleep_ms(lock.lease_s * 1000 / 3).await;
                if !lock.renews.get() {
                    return;
                }
                let _ignored =
                    client.call(Command::Eval(Script::ReentrantRenew, lock.key.clone(), lock.arguments())).await;
            }
        });
    }
}

impl Lock for Orphan {
    async fn lock(&self, client: &Client) -> Grant {
        let take = || Command::Eval(Script::ReentrantLock, self.key.clone(), self.arguments());
        while client.call(take()).await != Ok(Reply::Number(1)) {
            client.sleep_ms(RETRY_MS).await;
        }
        self.start_watchdog(client);
        Grant { owner: self.owner.clone(), held: Held::default() }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let unlock = Command::Eval(Script::ReentrantUnlock, self.key.clone(), vec![grant.owner.clone()]);
        if client.call(unlock).await.is_ok() {
            self.renews.set(false);
        }
    }
}
