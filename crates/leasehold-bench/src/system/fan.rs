//! The floor of a quorum: one script to each server at once, decided as soon as a majority has answered. It has no token,
//! no renewal, no queue and no clock, and does not follow up servers that did not answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use redis::aio::MultiplexedConnection;

use super::{Client, LEASE_MS, Lock, connection, load};
use crate::error::{Context, Failure, Result};
use crate::nodes;

#[derive(Clone)]
pub(crate) struct Fan(Arc<Shared>);

struct Shared {
    connections: Vec<MultiplexedConnection>,
    acquire: String,
    release: String,
    /// A value of 32 digits that no other attempt has, with the process's number: in this scenario the names belong to
    /// one process.
    attempts: AtomicU64,
}

impl Client for Fan {
    type Lock = FanLock;

    async fn connect(url: &str) -> Result<Self> {
        let (mut connections, mut acquire, mut release) = (Vec::new(), String::new(), String::new());
        for node in nodes::of_url(url) {
            let mut connection = connection(node).await?;
            acquire = load(&mut connection, include_str!("s5_acquire.lua")).await?;
            release = load(&mut connection, include_str!("s5_release.lua")).await?;
            connections.push(connection);
        }
        let attempts = AtomicU64::new(0);
        Ok(Self(Arc::new(Shared { connections, acquire, release, attempts })))
    }

    fn lock(&self, name: String) -> FanLock {
        FanLock { client: self.clone(), key: format!("fan:{name}") }
    }
}

pub(crate) struct FanLock {
    client: Fan,
    key: String,
}

type Asking = Pin<Box<dyn Future<Output = redis::RedisResult<bool>> + Send>>;

impl FanLock {
    /// Sends to all servers, and waits for a majority. It does not wait for the other replies: the requests were sent,
    /// and each connection answers in order.
    async fn call(&self, script: &str, value: &str) -> Result<()> {
        let shared = &self.client.0;
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(script).arg(1).arg(&self.key).arg(value).arg(LEASE_MS);
        let ask = |connection: &MultiplexedConnection| -> Asking {
            let (mut connection, evalsha) = (connection.clone(), evalsha.clone());
            Box::pin(async move { evalsha.query_async(&mut connection).await })
        };
        let mut asking: Vec<Asking> = shared.connections.iter().map(ask).collect();
        let (majority, mut votes) = (asking.len() / 2 + 1, 0);
        poll_fn(|context| {
            let mut failed = None;
            asking.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(vote)) => {
                    votes += usize::from(vote);
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed = Some(error);
                    false
                }
            });
            match failed {
                Some(error) => Poll::Ready(Err(error).context("fan")),
                None if votes >= majority => Poll::Ready(Ok(())),
                None if asking.is_empty() => {
                    Poll::Ready(Err(Failure::from(format!("fan: no majority for {}", self.key))))
                }
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl Lock for FanLock {
    type Held<'lock> = String;

    async fn acquire(&self) -> Result<String> {
        let shared = &self.client.0;
        let attempt = shared.attempts.fetch_add(1, Ordering::Relaxed);
        let value = format!("{:016x}{attempt:016x}", std::process::id());
        self.call(&shared.acquire, &value).await?;
        Ok(value)
    }

    async fn release(&self, value: String) -> Result<()> {
        self.call(&self.client.0.release, &value).await
    }

    fn token(_held: &String) -> Option<u64> {
        None
    }
}
