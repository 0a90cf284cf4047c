//! Leasehold on a quorum of servers.
//!
//! Each node is the shipped one: `leasehold_spec::node::vote`, with its quarantine after a restart. The client is a compact
//! one, without renewals: it asks all nodes for one token, holds with the votes of a majority, and counts its validity from
//! before its first request.

use leasehold_spec::node::{Ask, Request, Said, Vote, Wait};
use leasehold_spec::{GrantId, Order, Token};

use super::{Grant, Lock, RETRY_MS};
use crate::client::{Client, Held, Mark};
use crate::redis::{Command, Reply, session_of};

/// A mutex of Leasehold on a quorum.
#[derive(Clone, Debug)]
pub struct Quorum {
    name: String,
    label: String,
    lease_ms: u64,
    nodes: usize,
}

impl Quorum {
    /// Makes the mutex of one process on the first `nodes` servers.
    #[must_use]
    pub fn new(name: &str, label: &str, lease_s: u64, nodes: usize) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), lease_ms: lease_s * 1000, nodes }
    }

    async fn request(&self, client: &Client, node: usize, request: Request) -> Option<Vote> {
        match client.call_at(node, Command::Vote(self.name.clone(), Box::new(request))).await {
            Ok(Reply::Vote(vote)) => vote.map(|vote| *vote),
            _ => None,
        }
    }

    /// Gives back all votes up to a token. The attempt goes on to wait at `wait`.
    async fn give_back(&self, client: &Client, id: GrantId, upto: Token, wait: Option<Wait>) {
        for node in 0..self.nodes {
            self.request(client, node, Request::GiveBack { id, upto, wait }).await;
        }
    }
}

impl Lock for Quorum {
    async fn lock(&self, client: &Client) -> Grant {
        let id = GrantId { session: session_of(client.thread()), counter: client.random(), nonce: 0 };
        let mut highest = Token::NONE;
        let mut wait = None;
        loop {
            let began_ms = client.clock_ms();
            client.mark(Mark::Asks);
            let wait = *wait.get_or_insert(Wait { ticket: began_ms, order: Order::Relaxed });
            let token = Token::new(began_ms * 1000).unwrap_or_default().max(highest.plus(1));
            let (mut votes, mut shortest_us, mut is_below) = (0, self.lease_ms * 1000, false);
            for node in 0..self.nodes {
                let (lease_ms, label) = (self.lease_ms, self.label.clone());
                let not_after_us = u64::MAX;
                let ask = Ask { id, token, range: 1, lease_ms, not_after_us, wait: Some(wait), label };
                let Some(vote) = self.request(client, node, Request::Ask(ask)).await else { continue };
                highest = highest.max(vote.highest);
                match vote.said {
                    Said::Granted { token: granted, left_us, .. } if granted == token => {
                        votes += 1;
                        shortest_us = shortest_us.min(left_us);
                    }
                    Said::Below => is_below = true,
                    _ => {}
                }
            }
            let left_ms = shortest_us / 1000;
            let until_ms = began_ms + left_ms - left_ms / 100;
            if votes > self.nodes / 2 && client.now_ms().await < until_ms {
                let held = Held { token: Some(token.get()), lease_ms: None, until_ms: Some(until_ms) };
                return Grant { owner: format!("{}:{}", id.counter, token.get()), held };
            }
            self.give_back(client, id, token, Some(wait)).await;
            // The token was too small: the next round proposes a larger one at once.
            if !is_below {
                client.sleep_ms(RETRY_MS).await;
            }
        }
    }

    async fn unlock(&self, client: &Client, grant: &Grant) {
        let counter = grant.owner.split(':').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let id = GrantId { session: session_of(client.thread()), counter, nonce: 0 };
        let token = grant.held.token.and_then(Token::new).unwrap_or_default();
        self.give_back(client, id, token, None).await;
    }

    async fn check(&self, client: &Client, grant: &Grant) -> bool {
        let now_ms = client.now_ms().await;
        grant.held.until_ms.is_none_or(|until_ms| now_ms < until_ms)
    }
}
