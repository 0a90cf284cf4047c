//! S1: SETNX, then EXPIRE, then DEL.
//!
//! The expiry is set by a second command. If the process dies between the two, the key never expires.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply};

/// SETNX, EXPIRE and DEL.
#[derive(Clone, Debug)]
pub struct SetNxExpire {
    key: String,
    lease_s: u64,
}

impl SetNxExpire {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s }
    }
}

impl Lock for SetNxExpire {
    async fn lock(&self, client: &Client) -> Grant {
        while client.call(Command::SetNx(self.key.clone(), "1".into())).await != Ok(Reply::Number(1)) {
            client.sleep_ms(RETRY_MS).await;
        }
        let _ignored = client.call(Command::Expire(self.key.clone(), self.lease_s)).await;
        Grant::for_s("1", self.lease_s)
    }

    async fn unlock(&self, client: &Client, _grant: &Grant) {
        let _ignored = client.call(Command::Del(self.key.clone())).await;
    }
}
