//! S5: an owner in the value, and a script that compares and deletes.
//!
//! Nobody deletes the lock of another client anymore. The lock holds as long as the work ends before the expiry, as long
//! as the server forgets nothing, and as long as every reply arrives.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply, Script};

/// SET NX EX with an owner, and a script that compares and deletes.
#[derive(Clone, Debug)]
pub struct CompareAndDelete {
    key: String,
    lease_s: u64,
}

impl CompareAndDelete {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s }
    }

    /// Tries once. A try whose reply is lost counts as failed, and the next try has another owner.
    pub(super) async fn try_lock(&self, client: &Client) -> Option<Grant> {
        let owner = client.unique();
        let set = Command::SetNxEx(self.key.clone(), owner.clone(), self.lease_s);
        (client.call(set).await == Ok(Reply::Ok)).then(|| Grant::for_s(owner, self.lease_s))
    }
}

impl Lock for CompareAndDelete {
    async fn lock(&self, client: &Client) -> Grant {
        loop {
            if let Some(grant) = self.try_lock(client).await {
                return grant;
            }
            client.sleep_ms(RETRY_MS).await;
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let script = Command::Eval(Script::CompareAndDelete, self.key.clone(), vec![grant.owner.clone()]);
        let _ignored = client.call(script).await;
    }
}
