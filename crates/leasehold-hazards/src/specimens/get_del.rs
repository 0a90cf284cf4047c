//! S4: an owner in the value, and GET before DEL.
//!
//! The check and the deletion are two commands. Between them the lock can expire, and somebody else can acquire it.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply};

/// SET NX EX with an owner; GET, compare and DEL.
#[derive(Clone, Debug)]
pub struct GetDel {
    key: String,
    lease_s: u64,
}

impl GetDel {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s }
    }
}

impl Lock for GetDel {
    async fn lock(&self, client: &Client) -> Grant {
        loop {
            let owner = client.unique();
            let set = Command::SetNxEx(self.key.clone(), owner.clone(), self.lease_s);
            if client.call(set).await == Ok(Reply::Ok) {
                return Grant::for_s(owner, self.lease_s);
            }
            client.sleep_ms(RETRY_MS).await;
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let value = client.call(Command::Get(self.key.clone())).await;
        if value == Ok(Reply::Text(grant.owner.clone())) {
            let _ignored = client.call(Command::Del(self.key.clone())).await;
        }
    }
}
