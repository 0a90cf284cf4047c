//! S3: SET NX EX, and DEL.
//!
//! The acquisition is one command. But a holder whose lock has expired deletes the lock of its successor.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply};

/// SET NX EX and DEL.
#[derive(Clone, Debug)]
pub struct SetEx {
    key: String,
    lease_s: u64,
}

impl SetEx {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s }
    }
}

impl Lock for SetEx {
    async fn lock(&self, client: &Client) -> Grant {
        let set = || Command::SetNxEx(self.key.clone(), "1".into(), self.lease_s);
        while client.call(set()).await != Ok(Reply::Ok) {
            client.sleep_ms(RETRY_MS).await;
        }
        Grant::for_s("1", self.lease_s)
    }

    async fn unlock(&self, client: &Client, _grant: &Grant) {
        let _ignored = client.call(Command::Del(self.key.clone())).await;
    }
}
