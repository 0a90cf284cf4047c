//! The state that the links of one client share: the nodes, the attempts, the known tokens, timers and work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_spec::limits::{NOT_AFTER_MAX_US, TOKEN_END};
use leasehold_spec::node::Charter;
use leasehold_spec::{Name, Token};

use super::attempts::{Attempts, Nodes};
use super::member::Member;
use super::node::Node;
use super::shortage;
use super::tally::Tally;
use super::timers::Timers;
use crate::error::Error;
use crate::store::{Fault, StoreProfile};
use crate::world::{Pending, World};

/// The time that a node has for an answer, in addition to the round trip.
const ANSWER_US: u64 = 50_000;
/// The most names that are remembered. A name is ahead of the clock for as many microseconds as its grant has tokens, about
/// a millisecond, unless a clock is wrong.
const NAMES: usize = 4_096;

pub(super) struct Shared {
    pub(super) world: Arc<dyn World>,
    pub(super) charter: Charter,
    pub(super) members: Vec<Member>,
    pub(super) timers: Arc<Timers>,
    attempts: Mutex<Attempts>,
    tokens: Mutex<KnownTokens>,
    /// The number of links that were opened.
    links: AtomicU64,
}

impl Shared {
    pub(super) fn new(nodes: Vec<Arc<dyn Node>>, max_lease_ms: u64, world: Arc<dyn World>) -> Self {
        debug_assert!(nodes.len() <= Nodes::MOST, "the set of nodes is too small");
        Self {
            charter: Charter { nodes: nodes.len(), max_lease_ms },
            members: nodes.into_iter().map(Member::new).collect(),
            world,
            timers: Arc::default(),
            attempts: Mutex::default(),
            tokens: Mutex::default(),
            links: AtomicU64::default(),
        }
    }

    /// A majority may have ended a grant while the other nodes keep the grant, or a place in their queues, until it lapses.
    ///
    /// A node never votes below a token for which it has voted. While a reserved range is ahead of the clock, the next
    /// client proposes too small a token, and needs a second round.
    pub(super) fn profile(&self) -> StoreProfile {
        let longest_lease_ms = Some(self.charter.max_lease_ms);
        StoreProfile { longest_lease_ms, partial_grants: true, burns_unused_tokens: true }
    }

    pub(super) fn number_link(&self) -> u64 {
        self.links.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.world.now_us()
    }

    /// Runs work that no caller waits for.
    pub(super) fn spawn(&self, work: Pending<()>) {
        self.timers.spawn(&*self.world, work);
    }

    /// Waits until that work has finished, at most for the timeout of a request: a node that stands still must not keep a
    /// client from closing.
    pub(super) async fn idle(self: Arc<Self>) {
        tokio::select! {
            biased;
            () = self.timers.idle() => {}
            () = self.world.sleep(Duration::from_micros(self.timeout_us(u64::MAX))) => {}
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.members.len()
    }

    pub(super) fn majority(&self) -> usize {
        self.nodes() / 2 + 1
    }

    pub(super) fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the attempts, to begin one. Removes the ended ones first.
    pub(super) fn swept_attempts(&self, now_us: u64) -> MutexGuard<'_, Attempts> {
        let mut attempts = self.attempts();
        attempts.sweep(self.charter.max_lease_ms * 1000, now_us);
        attempts
    }

    /// Returns the median of the nodes' clocks.
    pub(super) fn time_us(&self, now_us: u64) -> u64 {
        let mut times: Vec<u64> = self.members.iter().filter_map(|member| member.time_at(now_us, now_us)).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_else(|| self.world.wall_us())
    }

    /// Returns a token above all known tokens of a name. No promise depends on it: a node that knows a larger token refuses
    /// this one.
    pub(super) fn propose(&self, name: &Name, now_us: u64) -> Token {
        let clock = Token::new(self.time_us(now_us).min(TOKEN_END - 1)).unwrap_or(Token::NONE);
        let above = Token::new(self.tokens().of(name).get() + 1).unwrap_or(Token::HIGHEST);
        clock.max(above)
    }

    /// Notes a token that a node knows.
    pub(super) fn note_token(&self, name: &Name, token: Token, now_us: u64) {
        let time_us = self.time_us(now_us);
        self.tokens().note(name, token, time_us);
    }

    fn tokens(&self) -> MutexGuard<'_, KnownTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the round-trip time to a majority.
    pub(super) fn rtt_us(&self) -> u64 {
        let mut trips: Vec<u64> = self.members.iter().map(Member::rtt_us).collect();
        trips.sort_unstable();
        trips[self.members.len() / 2]
    }

    /// Returns how long nodes may take for an answer: far less than the lease that the answer is part of.
    pub(super) fn timeout_us(&self, lease_ms: u64) -> u64 {
        (ANSWER_US + self.rtt_us()).min(lease_ms.saturating_mul(100)).min(NOT_AFTER_MAX_US)
    }

    /// Notes the run ID of a node. If another node has the same, the two are one server, and this returns the other node.
    pub(super) fn note_run(&self, node: usize, run_id: &str) -> Result<(), usize> {
        // Without the lock, two connections at the same time would not see each other's run ID.
        let _one_at_a_time = self.attempts();
        match (0..self.nodes()).find(|&other| other != node && self.members[other].run_id() == run_id) {
            Some(other) => Err(other),
            None => {
                self.members[node].note_run(run_id);
                Ok(())
            }
        }
    }

    /// Returns why there is no majority.
    pub(super) fn no_majority(&self) -> Error {
        shortage::no_majority(&self.members, self.now_us())
    }

    /// Returns the fault of a question that too few nodes answered.
    pub(super) fn undecided(&self, tally: &Tally) -> Fault {
        Fault::Undecided(shortage::undecided(&self.members, tally, self.now_us()))
    }
}

/// The largest known tokens of names, where they are ahead of the nodes' clocks.
#[derive(Default)]
struct KnownTokens(HashMap<Name, Token>);

impl KnownTokens {
    fn of(&self, name: &Name) -> Token {
        self.0.get(name).copied().unwrap_or(Token::NONE)
    }

    /// Notes a token, unless the nodes' clocks, which show `time_us`, are ahead of it.
    fn note(&mut self, name: &Name, token: Token, time_us: u64) {
        if token.get() < time_us {
            return;
        }
        if self.0.len() >= NAMES {
            self.0.retain(|_, known| known.get() >= time_us);
        }
        if self.0.len() >= NAMES {
            return; // The next acquire of the name takes one more round.
        }
        let known = self.0.entry(name.clone()).or_insert(token);
        *known = token.max(*known);
    }
}
