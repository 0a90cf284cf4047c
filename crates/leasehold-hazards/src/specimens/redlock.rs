//! S9: Redlock, as published.
//!
//! The same key and value on N masters that do not know each other. A client holds if a majority agrees and the time that
//! this took is below the lease. Otherwise it deletes the key on all masters, those that refused included.
//!
//! A master that restarts without its data votes twice (H10). A master whose clock jumps ahead ends a vote early (H11).
//! And a holder that pauses works on after its validity (H5): there is no token that a resource could check.

use super::{Grant, Lock, RETRY_MS};
use crate::client::{Client, Held};
use crate::redis::{Command, Reply, Script};

/// Redlock.
#[derive(Clone, Debug)]
pub struct Redlock {
    key: String,
    lease_s: u64,
    servers: usize,
}

impl Redlock {
    /// Makes a lock on the first `servers` servers.
    #[must_use]
    pub fn new(key: &str, lease_s: u64, servers: usize) -> Self {
        Self { key: key.to_owned(), lease_s, servers }
    }

    async fn unlock_all(&self, client: &Client, owner: &str) {
        for server in 0..self.servers {
            let script = Command::Eval(Script::CompareAndDelete, self.key.clone(), vec![owner.to_owned()]);
            let _ignored = client.call_at(server, script).await;
        }
    }
}

impl Lock for Redlock {
    async fn lock(&self, client: &Client) -> Grant {
        let lease_ms = self.lease_s * 1000;
        loop {
            let (owner, began_ms, mut votes) = (client.unique(), client.clock_ms(), 0);
            for server in 0..self.servers {
                let set = Command::SetNxPx(self.key.clone(), owner.clone(), lease_ms);
                votes += usize::from(client.call_at(server, set).await == Ok(Reply::Ok));
            }
            let took_ms = client.now_ms().await - began_ms;
            if votes > self.servers / 2 && took_ms < lease_ms {
                let held = Held { lease_ms: Some(lease_ms - took_ms), ..Held::default() };
                return Grant { owner, held };
            }
            self.unlock_all(client, &owner).await;
            client.sleep_ms(RETRY_MS).await;
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        self.unlock_all(client, &grant.owner).await;
    }
}
