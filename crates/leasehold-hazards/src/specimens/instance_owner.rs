//! N7: the owner is the process, and not the acquisition.
//!
//! Two tasks of one process have the same owner. A late task releases the lock of another task, which acquired it after
//! the lease of the late task had ended. The same happens if the owner is the name of a host or of a pod: a process that
//! was started again is taken for its dead predecessor.

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;
use crate::redis::{Command, Reply, Script};

/// SET NX EX and a script that compares and deletes, with an ID of the process as the owner.
#[derive(Clone, Debug)]
pub struct InstanceOwner {
    key: String,
    lease_s: u64,
    instance: String,
}

impl InstanceOwner {
    /// Makes a lock with this key, once for each process.
    #[must_use]
    pub fn new(client: &Client, key: &str, lease_s: u64) -> Self {
        Self { key: key.to_owned(), lease_s, instance: client.unique() }
    }
}

impl Lock for InstanceOwner {
    async fn lock(&self, client: &Client) -> Grant {
        let set = || Command::SetNxEx(self.key.clone(), self.instance.clone(), self.lease_s);
        while client.call(set()).await != Ok(Reply::Ok) {
            client.sleep_ms(RETRY_MS).await;
        }
        Grant::for_s(self.instance.clone(), self.lease_s)
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let script = Command::Eval(Script::CompareAndDelete, self.key.clone(), vec![grant.owner.clone()]);
        let _ignored = client.call(script).await;
    }
}
