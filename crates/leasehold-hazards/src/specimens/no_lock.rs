//! S0: no lock.

use super::{Grant, Lock};
use crate::client::Client;

/// No lock at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLock;

impl Lock for NoLock {
    async fn lock(&self, _client: &Client) -> Grant {
        Grant::default()
    }

    async fn unlock(&self, _client: &Client, _grant: &Grant) {}
}
