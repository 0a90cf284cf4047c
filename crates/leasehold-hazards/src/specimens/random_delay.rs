//! S12: a lock that polls, with random delays "so that nobody starves".
//!
//! A random delay makes it unlikely that one waiter always comes too late. It gives nobody a place: each release starts a
//! race, and a waiter can lose every race.

use super::compare_and_delete::CompareAndDelete;
use super::{Grant, Lock};
use crate::client::Client;

/// [`CompareAndDelete`], with random delays between its tries.
#[derive(Clone, Debug)]
pub struct RandomDelay {
    lock: CompareAndDelete,
}

impl RandomDelay {
    /// The longest delay.
    const MOST_MS: u64 = 100;

    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64) -> Self {
        Self { lock: CompareAndDelete::new(key, lease_s) }
    }
}

impl Lock for RandomDelay {
    async fn lock(&self, client: &Client) -> Grant {
        loop {
            if let Some(grant) = self.lock.try_lock(client).await {
                return grant;
            }
            client.sleep_ms(client.random() % Self::MOST_MS).await;
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        self.lock.unlock(client, grant).await;
    }
}
