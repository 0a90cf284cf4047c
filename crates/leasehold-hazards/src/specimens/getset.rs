//! S2: the value is the time at which the lock ends, by the clock of the client that wrote it.
//!
//! A waiter that finds the time in the past writes its own time with GETSET. It has the lock if the old value was in the
//! past (or, in a variant, if the old value is the one that it had read before).
//!
//! The mistakes: the clocks of two clients differ. A waiter that loses the GETSET has nevertheless moved the winner's
//! time. Nobody can tell from the value who holds the lock.

use super::{Grant, Lock};
use crate::client::Client;
use crate::redis::{Command, Reply};

/// How a waiter decides whether its GETSET has won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The old value was in the past.
    OldIsPast,
    /// The old value is the one that the waiter had read before.
    OldIsCurrent,
}

/// SETNX and GETSET with timestamps.
#[derive(Clone, Debug)]
pub struct GetSet {
    key: String,
    lease_s: u64,
    test: Test,
}

impl GetSet {
    /// The tutorial retries every millisecond.
    const RETRY_MS: u64 = 1;

    /// Makes a lock with this key.
    #[must_use]
    pub fn new(key: &str, lease_s: u64, test: Test) -> Self {
        Self { key: key.to_owned(), lease_s, test }
    }

    /// Returns the value of a lock that begins now.
    async fn end_ms(&self, client: &Client) -> u64 {
        client.now_ms().await + self.lease_s * 1000 + 1
    }
}

impl Lock for GetSet {
    async fn lock(&self, client: &Client) -> Grant {
        let key = || self.key.clone();
        loop {
            let end_ms = self.end_ms(client).await;
            if client.call(Command::SetNx(key(), end_ms.to_string())).await == Ok(Reply::Number(1)) {
                return Grant::for_s(end_ms.to_string(), self.lease_s);
            }
            let current = time(client.call(Command::Get(key())).await);
            if let Some(current) = current
                && current < client.now_ms().await
            {
                let end_ms = self.end_ms(client).await;
                let old = time(client.call(Command::GetSet(key(), end_ms.to_string())).await);
                let has_won = match self.test {
                    Test::OldIsPast => match old {
                        Some(old) => old < client.now_ms().await,
                        None => true,
                    },
                    Test::OldIsCurrent => old == Some(current),
                };
                if has_won {
                    return Grant::for_s(end_ms.to_string(), self.lease_s);
                }
            }
            client.sleep_ms(Self::RETRY_MS).await;
        }
    }

    /// Deletes the key only while the own time has not passed. Afterward somebody else may hold the lock.
    async fn unlock(&self, client: &Client, grant: &Grant) {
        let end_ms = grant.owner.parse().unwrap_or(0);
        if client.now_ms().await < end_ms {
            let _ignored = client.call(Command::Del(self.key.clone())).await;
        }
    }
}

/// Reads a time from a reply.
pub(super) fn time<E>(reply: Result<Reply, E>) -> Option<u64> {
    reply.ok()?.text()?.parse().ok()
}
