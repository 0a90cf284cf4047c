//! S0: SETNX and DEL, without an expiry.
//!
//! If the holder dies, nobody deletes the key.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply};

/// SETNX and DEL.
#[derive(Clone, Debug)]
pub struct SetNx {
    key: String,
}

impl SetNx {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self { key: key.to_owned() }
    }
}

impl Lock for SetNx {
    async fn lock(&self, client: &Client) -> Grant {
        while client.call(Command::SetNx(self.key.clone(), "1".into())).await != Ok(Reply::Number(1)) {
            client.sleep_ms(RETRY_MS).await;
        }
        Grant::default()
    }

    async fn unlock(&self, client: &Client, _grant: &Grant) {
        let _ignored = client.call(Command::Del(self.key.clone())).await;
    }
}
