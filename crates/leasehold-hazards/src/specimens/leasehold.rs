//! Leasehold on one server.
//!
//! The server is the shipped one: `leasehold_spec::step`, which the Lua scripts are held to. The client here is a compact
//! one. It does what decides about exclusion: it counts its validity from before the request, repeats a request whose reply
//! was lost under the same ID, renews, checks before it writes, and repeats its release. The real client is proven by the
//! models, the simulation and the chaos of the laboratory.

use std::cell::Cell;
use std::rc::Rc;

use leasehold_spec::{
    Acquire, Answer, From, GrantId, Hears, Op, Order, Outcome, Patience, Place, Renew, Take, Token, limits,
};

use super::{Grant, Lock, RETRY_MS};
use crate::client::{Client, Held, Mark, ThreadId};
use crate::redis::{Command, Reply, session_of};

/// A mutex of Leasehold.
#[derive(Clone, Debug)]
pub struct Leasehold {
    name: String,
    label: String,
    lease_ms: u64,
    hold: Rc<Cell<Hold>>,
}

/// The knowledge of the client about its grant.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    id: Option<GrantId>,
    token: Token,
    /// The end of the validity, on the clock of the process.
    until_ms: u64,
    /// The end of the lease, on the clock of the server.
    end_us: u64,
    /// The thread that renews.
    renewer: Option<ThreadId>,
}

impl Leasehold {
    /// Makes the mutex of one process.
    #[must_use]
    pub fn new(name: &str, label: &str, lease_s: u64) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), lease_ms: lease_s * 1000, hold: Rc::default() }
    }

    async fn request(&self, client: &Client, op: Op) -> Option<Answer> {
        match client.call(Command::Step(self.name.clone(), Box::new(op))).await {
            Ok(Reply::Answer(answer)) => Some(*answer),
            _ => None,
        }
    }

    /// Waits for the lock for at most `limit_ms`.
    pub async fn lock_within(&self, client: &Client, limit_ms: Option<u64>) -> Option<Grant> {
        let began_ms = client.clock_ms();
        let id = GrantId { session: session_of(client.thread()), counter: client.random(), nonce: 0 };
        let mut ticket = None;
        loop {
            let sent_ms = client.clock_ms();
            client.mark(Mark::Asks);
            let left_ms = limit_ms.map(|limit_ms| (began_ms + limit_ms).saturating_sub(sent_ms));
            if left_ms == Some(0) {
                self.request(client, Op::Leave { id, used: Token::NONE }).await;
                return None;
            }
            let Some(answer) = self.request(client, self.acquire(id, ticket, left_ms)).await else {
                client.sleep_ms(RETRY_MS).await;
                continue;
            };
            match answer.outcome {
                Outcome::Granted { token, left_us, .. } => {
                    return Some(self.enter(client, id, token, sent_ms, answer.now_us, left_us));
                }
                Outcome::Queued { ticket: place, .. } => ticket = Some(place),
                _ => {}
            }
            let floor_ms = limits::recheck_floor_ms(self.lease_ms);
            client.message(left_ms.map_or(floor_ms, |left_ms| left_ms.min(floor_ms))).await;
        }
    }

    fn acquire(&self, id: GrantId, ticket: Option<u64>, limit_ms: Option<u64>) -> Op {
        let claim_ms = limits::CLAIM_MIN_MS;
        let place = Place { claim_ms, limit_ms, ticket, hears: Hears::Listens, order: Order::Relaxed };
        Op::Acquire(Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: self.lease_ms,
            range: 1,
            not_after_us: u64::MAX,
            patience: Patience::Queue(place),
            label: self.label.clone().into(),
        })
    }

    fn enter(&self, client: &Client, id: GrantId, token: Token, sent_ms: u64, now_us: u64, left_us: u64) -> Grant {
        let until_ms = validity_end_ms(sent_ms, left_us);
        let hold = Hold { id: Some(id), token, until_ms, end_us: now_us + left_us, renewer: None };
        self.hold.set(hold);
        let renewer = Some(self.start_renewals(client, id));
        self.hold.set(Hold { renewer, ..hold });
        let held = Held { token: Some(token.get()), lease_ms: None, until_ms: Some(until_ms) };
        Grant { owner: self.label.clone(), held }
    }

    /// Starts a thread that renews while the grant is the current one. The first renewal makes a claim a whole lease.
    fn start_renewals(&self, client: &Client, id: GrantId) -> ThreadId {
        let (lock, holder) = (self.clone(), client.clone());
        client.spawn(move |client| async move {
            loop {
                client.sleep_ms(lock.lease_ms / 3).await;
                let sent_ms = client.clock_ms();
                let hold = lock.hold.get();
                let lease_ms = lock.lease_ms;
                let renew = Renew { id, token: hold.token, from: From::Now, lease_ms, not_after_us: hold.end_us };
                let Some(answer) = lock.request(&client, Op::Renew(renew)).await else { continue };
                let until_ms = match answer.outcome {
                    Outcome::Renewed { left_us } => validity_end_ms(sent_ms, left_us),
                    _ => 0,
                };
                let end_us = answer.now_us + lease_ms * 1000;
                lock.hold.set(Hold { until_ms, end_us, ..hold });
                holder.mark(Mark::Believes(until_ms));
                if until_ms == 0 {
                    return;
                }
            }
        })
    }
}

/// Returns the time until which a holder may believe that it holds. The time counts from before the request, and one
/// percent is taken off for clocks that run at different rates.
fn validity_end_ms(sent_ms: u64, left_us: u64) -> u64 {
    let left_ms = left_us / 1000;
    sent_ms + left_ms - left_ms / 100
}

impl Lock for Leasehold {
    async fn lock(&self, client: &Client) -> Grant {
        loop {
            if let Some(grant) = self.lock_within(client, None).await {
                return grant;
            }
        }
    }

    async fn unlock(&self, client: &Client, _grant: &Grant) {
        let hold = self.hold.replace(Hold::default());
        let Some(id) = hold.id else { return };
        if let Some(renewer) = hold.renewer {
            client.stop(renewer);
        }
        let release = || Op::Release { id, token: hold.token, used: hold.token };
        while self.request(client, release()).await.is_none() {
            client.sleep_ms(RETRY_MS).await;
        }
    }

    async fn check(&self, client: &Client, _grant: &Grant) -> bool {
        client.now_ms().await < self.hold.get().until_ms
    }
}
