//! N9: the release uses the context of the request, and does nothing if that context is cancelled.
//!
//! In Go: `defer lock.Unlock(ctx)`. If the caller goes away during the work, `ctx` is cancelled, and `Unlock` sends
//! nothing. The lock stays taken until it expires.

use std::cell::Cell;

use super::compare_and_delete::CompareAndDelete;
use super::{Grant, Lock};
use crate::client::Client;

/// [`CompareAndDelete`], whose release needs a context that is not cancelled.
#[derive(Debug)]
pub struct Cancelled {
    lock: CompareAndDelete,
    /// Whether the context of the request is cancelled.
    pub is_cancelled: Cell<bool>,
}

impl Cancelled {
    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { lock: CompareAndDelete::new(key, lease_s), is_cancelled: Cell::new(false) }
    }
}

impl Lock for Cancelled {
    async fn lock(&self, client: &Client) -> Grant {
        self.lock.lock(client).await
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        if !self.is_cancelled.get() {
            self.lock.unlock(client, grant).await;
        }
    }
}
