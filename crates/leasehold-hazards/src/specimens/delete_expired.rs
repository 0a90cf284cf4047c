//! S2, the variant with DEL: a waiter that finds the time in the past deletes the key, and tries SETNX again.
//!
//! Two waiters both find it in the past. The first one deletes the key and has the lock. The second one deletes the key of
//! the first one, and has the lock as well.

use super::getset::time;
use super::{Grant, Lock};
use crate::client::Client;
use crate::redis::{Command, Reply};

/// SETNX with timestamps, and DEL of a lock that has expired.
#[derive(Clone, Debug)]
pub struct DeleteExpired {
    key: String,
    lease_s: u64,
}

impl DeleteExpired {
    /// The variant retries every 100 ms.
    const RETRY_MS: u64 = 100;

    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s }
    }
}

impl Lock for DeleteExpired {
    async fn lock(&self, client: &Client) -> Grant {
        let key = || self.key.clone();
        loop {
            let end_ms = client.now_ms().await + self.lease_s * 1000 + 1;
            if client.call(Command::SetNx(key(), end_ms.to_string())).await == Ok(Reply::Number(1)) {
                return Grant::for_s(end_ms.to_string(), self.lease_s);
            }
            if let Some(current) = time(client.call(Command::Get(key())).await)
                && current < client.now_ms().await
            {
                let _ignored = client.call(Command::Del(key())).await;
            } else {
                client.sleep_ms(Self::RETRY_MS).await;
            }
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let end_ms = grant.owner.parse().unwrap_or(0);
        if client.now_ms().await < end_ms {
            let _ignored = client.call(Command::Del(self.key.clone())).await;
        }
    }
}
