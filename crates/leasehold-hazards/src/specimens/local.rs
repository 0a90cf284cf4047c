//! S0: a lock inside one process, such as `synchronized` or `std::sync::Mutex`.
//!
//! It excludes the threads of its own process. A second process has a lock of its own.

use std::cell::Cell;

use super::{Grant, Lock, RETRY_MS};
use crate::client::Client;

/// A lock in the memory of one process.
#[derive(Debug, Default)]
pub struct Local {
    is_taken: Cell<bool>,
}

impl Lock for Local {
    async fn lock(&self, client: &Client) -> Grant {
        while self.is_taken.replace(true) {
            client.sleep_ms(RETRY_MS).await;
        }
        Grant::default()
    }

    async fn unlock(&self, _client: &Client, _grant: &Grant) {
        self.is_taken.set(false);
    }
}
