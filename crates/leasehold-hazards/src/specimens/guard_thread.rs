//! S8: a guard thread that first renews at second 29 of 30, and then every 20 seconds.
//!
//! One second is left for the first renewal: for the pause of a garbage collector, a slow network and a busy server
//! together. The guard checks nothing and reports nothing. If it comes too late, the holder works on.

use std::cell::Cell;
use std::rc::Rc;

use super::compare_and_delete::CompareAndDelete;
use super::{Grant, Lock};
use crate::client::{Client, Held};
use crate::redis::{Command, Reply};

/// [`CompareAndDelete`], with the guard thread of one tutorial.
#[derive(Clone, Debug)]
pub struct GuardThread {
    key: String,
    lease_s: u64,
    lock: CompareAndDelete,
    works: Rc<Cell<bool>>,
}

impl GuardThread {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        let lock = CompareAndDelete::new(key, lease_s);
        Self { key: key.to_owned(), lease_s, lock, works: Rc::default() }
    }

    fn start_guard(&self, client: &Client, owner: String) {
        self.works.set(true);
        let guard = self.clone();
        client.spawn(move |client| async move {
            let mut pause_ms = guard.lease_s * 1000 * 29 / 30;
            while guard.works.get() {
                client.sleep_ms(pause_ms).await;
                let value = client.call(Command::Get(guard.key.clone())).await;
                if value == Ok(Reply::Text(owner.clone())) {
                    let _ignored = client.call(Command::Expire(guard.key.clone(), guard.lease_s)).await;
                }
                pause_ms = guard.lease_s * 1000 * 20 / 30;
            }
        });
    }
}

impl Lock for GuardThread {
    async fn lock(&self, client: &Client) -> Grant {
        let grant = self.lock.lock(client).await;
        self.start_guard(client, grant.owner.clone());
        Grant { held: Held::default(), ..grant }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        self.works.set(false);
        self.lock.unlock(client, grant).await;
    }
}
