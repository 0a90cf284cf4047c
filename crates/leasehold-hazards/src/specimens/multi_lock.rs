//! S10: one lock on each of several masters. "A crashed master is harmless, and a restarted one resynchronizes."
//!
//! The client must have the lock on every master that replies. A master that does not reply is left out: that is what
//! makes its crash harmless. (Redisson's `RedissonMultiLock` is stricter. It fails if one master does not reply.)
//!
//! The mistake: nothing resynchronizes masters that do not know each other, so a master that restarts has
//! forgotten the holder. If the others are down then, somebody else has the lock on every master that replies.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply, Script};

/// A lock on every master that replies.
#[derive(Clone, Debug)]
pub struct MultiLock {
    key: String,
    lease_s: u64,
    servers: usize,
}

impl MultiLock {
    /// Makes a lock on the first `servers` servers.
    #[must_use]
    pub fn new(key: &str, lease_s: u64, servers: usize) -> Self {
        Self { key: key.to_owned(), lease_s, servers }
    }
}

impl Lock for MultiLock {
    async fn lock(&self, client: &Client) -> Grant {
        loop {
            let (owner, mut taken, mut refused) = (client.unique(), 0, 0);
            for server in 0..self.servers {
                let set = Command::SetNxEx(self.key.clone(), owner.clone(), self.lease_s);
                match client.call_at(server, set).await {
                    Ok(Reply::Ok) => taken += 1,
                    Ok(_) => refused += 1,
                    Err(_) => {}
                }
            }
            let grant = Grant::for_s(owner, self.lease_s);
            if taken > 0 && refused == 0 {
                return grant;
            }
            self.unlock(client, &grant).await;
            client.sleep_ms(RETRY_MS).await;
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        for server in 0..self.servers {
            let script = Command::Eval(Script::CompareAndDelete, self.key.clone(), vec![grant.owner.clone()]);
            let _ignored = client.call_at(server, script).await;
        }
    }
}
