//! The floor: a hand-over in two scripts that does only what every fair hand-over must do. It queues, makes the next
//! waiter the holder, and notifies it. It has no renewal, no retry, no reconnect, no claim, no lateness and no
//! cancellation, and one lost message stops it for the length of a lease. The cost of a lock above this floor is the
//! price of the rules.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot};

use super::{Client, LEASE_MS, Lock, connection_with, load};
use crate::error::{Context, Failure, Result};

#[derive(Clone)]
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

struct Shared {
    acquire: String,
    release: String,
    inbox: String,
    attempts: AtomicU64,
    waiting: Waiting,
}

/// The waiters of this process, by the attempt's number.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>);

impl Waiting {
    fn enter(&self, attempt: u64) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt, wake);
        woken
    }

    fn leave(&self, attempt: u64) -> Option<oneshot::Sender<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&attempt)
    }
}

impl Client for Floor {
    type Lock = FloorLock;

    async fn connect(url: &str) -> Result<Self> {
        let (pushes, mut arrived) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(pushes);
        let mut connection = connection_with(&with_resp3(url), config).await?;
        let acquire = load(&mut connection, include_str!("floor_acquire.lua")).await?;
        let release = load(&mut connection, include_str!("floor_release.lua")).await?;
        let number: u64 =
            redis::cmd("CLIENT").arg("ID").query_async(&mut connection).await.context("asking for an id")?;
        let inbox = format!("floor:{number}");
        connection.subscribe(&inbox).await.context("subscribing")?;
        let waiting = Waiting::default();
        let woken = waiting.clone();
        tokio::spawn(async move {
            while let Some(push) = arrived.recv().await {
                if let Some(wake) = granted_attempt(&push).and_then(|attempt| woken.leave(attempt)) {
                    // If the receiver is gone, its task was dropped: the run is over.
                    let _ = wake.send(());
                }
            }
        });
        let shared = Shared { acquire, release, inbox, attempts: AtomicU64::new(0), waiting };
        Ok(Self { connection, shared: Arc::new(shared) })
    }

    fn lock(&self, name: String) -> FloorLock {
        FloorLock { client: self.clone(), state: format!("floor:{{{name}}}"), queue: format!("floor:{{{name}}}:q") }
    }
}

fn with_resp3(url: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}protocol=resp3")
}

/// Returns the attempt that a message grants: `inbox attempt time`.
fn granted_attempt(push: &PushInfo) -> Option<u64> {
    match (&push.kind, push.data.last()?) {
        (PushKind::Message, Value::BulkString(text)) => std::str::from_utf8(text).ok()?.split(' ').nth(1)?.parse().ok(),
        _ => None,
    }
}

pub(crate) struct FloorLock {
    client: Floor,
    state: String,
    queue: String,
}

pub(crate) struct FloorHeld {
    entry: String,
}

impl FloorLock {
    async fn call(&self, script: &str, entry: &str) -> Result<u64> {
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(script).arg(2).arg(&self.state).arg(&self.queue).arg(entry).arg(LEASE_MS);
        evalsha.query_async(&mut self.client.connection.clone()).await.context("floor")
    }
}

impl Lock for FloorLock {
    type Held<'lock> = FloorHeld;

    async fn acquire(&self) -> Result<FloorHeld> {
        let shared = &self.client.shared;
        let attempt = shared.attempts.fetch_add(1, Ordering::Relaxed);
        let entry = format!("{} {attempt}", shared.inbox);
        // Registered before the request is sent: the message may arrive at this task before the reply.
        let woken = shared.waiting.enter(attempt);
        match self.call(&shared.acquire, &entry).await? {
            0 => woken.await.context("floor: the connection is gone")?,
            _token => drop(shared.waiting.leave(attempt)),
        }
        Ok(FloorHeld { entry })
    }

    async fn release(&self, held: FloorHeld) -> Result<()> {
        match self.call(&self.client.shared.release, &held.entry).await? {
            0 => Err(Failure::from(format!("floor: {} was not held any more", self.state))),
            _ => Ok(()),
        }
    }

    fn token(_held: &FloorHeld) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_url_gets_the_protocol() {
        assert_eq!(with_resp3("redis://127.0.0.1:1"), "redis://127.0.0.1:1?protocol=resp3");
        assert_eq!(with_resp3("redis://h/0?x=1"), "redis://h/0?x=1&protocol=resp3");
    }

    #[test]
    fn only_a_message_names_an_attempt() {
        let message = |kind, text: &str| PushInfo {
            kind,
            data: vec![Value::BulkString(b"floor:1".to_vec()), Value::BulkString(text.into())],
        };
        assert_eq!(granted_attempt(&message(PushKind::Message, "floor:1 42 1700000000000001")), Some(42));
        assert_eq!(granted_attempt(&message(PushKind::Message, "floor:1")), None);
        assert_eq!(granted_attempt(&message(PushKind::Subscribe, "floor:1 42 17")), None);
    }
}
