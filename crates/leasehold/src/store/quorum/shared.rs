//! The state that the links of one client share: the nodes, the attempts, the known tokens, timers and work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_spec::limits::{NOT_AFTER_MAX_US, TOKEN_END};
use leasehold_spec::node::Charter;
use leasehold_spec::{Acquire, Contention, GrantId, Name, Token};

use super::attempts::{Attempts, Nodes};
use super::member::{Member, NodeStatus};
use super::node::Node;
use super::releases::Releases;
use super::runs::Runs;
use super::tally::Tally;
use super::timers::{Due, Timers};
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, StoreProfile};
use crate::world::{Pending, World};

/// The time that a node has for an answer, in addition to the round trip.
const ANSWER_US: u64 = 50_000;
/// The time that a bare majority has for its answers, in addition to four round trips.
const BARE_MAJORITY_US: u64 = 2_000;
/// The most names whose tokens are remembered. A token is ahead of the clock for as many microseconds as its grant has
/// tokens, about a millisecond, unless a clock is wrong.
const NAMES: usize = 4_096;

pub(super) struct Shared {
    pub(super) world: Arc<dyn World>,
    pub(super) charter: Charter,
    pub(super) members: Vec<Member>,
    pub(super) timers: Arc<Timers>,
    attempts: Mutex<Attempts>,
    tokens: Mutex<KnownTokens>,
    pub(super) runs: Runs,
    pub(super) releases: Releases,
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
            runs: Runs::default(),
            releases: Releases::default(),
            links: AtomicU64::default(),
        }
    }

    /// Returns what the session must know about this store.
    ///
    /// A majority may have ended a grant while the other nodes keep the grant, or a place in their queues, until it lapses.
    ///
    /// A node never votes below a token for which it has voted. While a reserved range is ahead of the clock, the next
    /// client proposes too small a token, and needs a second round.
    pub(super) fn profile(&self) -> StoreProfile {
        let longest_lease_ms = Some(self.charter.max_lease_ms);
        StoreProfile { longest_lease_ms, partial_grants: true, burns_unused_tokens: true, ..StoreProfile::default() }
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

    /// Waits until the spawned work has finished, at most for a timeout: a stalled node must not keep a client from
    /// closing.
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

    /// Returns a token above all known tokens of a name. No promise depends on it: nodes refuse a token that is too small.
    pub(super) fn propose(&self, name: &Name, now_us: u64) -> Token {
        let clock = Token::new(self.time_us(now_us).min(TOKEN_END - 1)).unwrap_or(Token::NONE);
        let above = Token::new(self.tokens().of(name).get() + 1).unwrap_or(Token::HIGHEST);
        clock.max(above)
    }

    pub(super) fn note_token(&self, name: &Name, token: Token, now_us: u64) {
        let time_us = self.time_us(now_us);
        self.tokens().note(name, token, time_us);
    }

    fn tokens(&self) -> MutexGuard<'_, KnownTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an attempt asks for a lock which this client may have released a moment ago.
    pub(super) fn note_ask(&self, name: &Name, acquire: &Acquire, now_us: u64) {
        self.runs.note_ask(name, acquire, now_us, || self.rtt_us());
    }

    /// Notes a grant by the votes of these nodes. In a run these may be a bare majority. Then an alarm makes the client ask
    /// the others.
    pub(super) fn note_grant(&self, name: &Name, id: GrantId, voters: Nodes) {
        let alarm = |at_us, lease_ms| self.timers.due_at(at_us, Due::AskOthers { name: name.clone(), id, lease_ms });
        self.runs.note_grant(name, &id, voters, self.now_us(), alarm);
    }

    /// Notes the answer to a release. If that began a pause, an alarm ends the pause.
    pub(super) fn note_release(&self, name: &Name, id: GrantId, contention: Contention) {
        let now_us = self.now_us();
        let alarm = |at_us| self.timers.due_at(at_us, Due::PauseOver(name.clone(), id));
        self.runs.note_release(name, &id, contention, now_us, alarm);
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

    /// Returns how long a bare majority may take for its answers. After that, all nodes are asked.
    pub(super) fn bare_majority_timeout_us(&self, lease_ms: u64) -> u64 {
        (BARE_MAJORITY_US + 4 * self.rtt_us()).min(self.timeout_us(lease_ms))
    }

    /// Notes the run ID of a node. If another node has the same, the two are one server, and this returns the other node.
    pub(super) fn note_run_id(&self, node: usize, run_id: &str) -> Result<(), usize> {
        // Without the lock, two connections at the same time would not see each other's run ID.
        let _one_at_a_time = self.attempts();
        match (0..self.nodes()).find(|&other| other != node && self.members[other].run_id() == run_id) {
            Some(other) => Err(other),
            None => {
                self.members[node].note_run_id(run_id);
                Ok(())
            }
        }
    }

    /// Returns the fault of a question that too few nodes answered. If a majority answered with the same kind of error, it
    /// has that error: the error is about the name or this client, and not about the quorum.
    pub(super) fn undecided(&self, tally: &Tally) -> Fault {
        let failed = tally.failed();
        let same = |kind: ErrorKind| failed.iter().filter(|(other, _)| *other == kind).count();
        let is_common = |kind: ErrorKind| kind != ErrorKind::Unreachable && same(kind) >= tally.majority();
        Fault::Undecided(match failed.iter().find(|(kind, _)| is_common(*kind)) {
            Some((kind, text)) => Error::new(*kind, text.clone()),
            None => self.no_majority(),
        })
    }

    /// Returns the error of a link that cannot be opened. If all unreachable nodes have the same kind of error, and waiting
    /// does not help against it, the error has that kind.
    pub(super) fn cannot_open(&self, away: &[(usize, Error)]) -> Error {
        let kind = away.first().map(|(_, error)| error.kind());
        let is_same = kind.is_some_and(|kind| away.iter().all(|(_, error)| error.kind() == kind));
        match kind {
            Some(kind @ (ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Foreign)) if is_same => {
                Error::new(kind, self.no_majority().to_string())
            }
            _ => self.no_majority(),
        }
    }

    /// Returns the error of a quorum without a majority, with the status of each node.
    pub(super) fn no_majority(&self) -> Error {
        let (members, nodes, now_us) = (&self.members, self.nodes(), self.now_us());
        let voting = members.iter().filter(|member| matches!(member.status(), NodeStatus::Votes)).count();
        let each = members.iter().map(|member| format!("{} {}", member.node.at(), member.describe(now_us)));
        let needed = self.majority();
        let hint = self.advice(needed.saturating_sub(voting), now_us);
        let missing = match voting < needed {
            true => format!("no majority of the quorum: {voting} of {nodes} nodes vote"),
            // These replies came too late for the request.
            false => format!("no majority of the quorum replied in time: {voting} of {nodes} nodes vote now"),
        };
        let each = each.collect::<Vec<_>>().join("; ");
        let message = format!("{missing} and {needed} are needed ({each}){hint}");
        Error::new(ErrorKind::Quorum, message)
    }

    /// Says what to do if so many votes are missing: because of nodes in quarantine, or of nodes that reply too late.
    ///
    /// A new quorum needs to be initialized. If an operator initializes a quorum that was in use, there may be two holders:
    /// the nodes may have forgotten a lease that is held. A quorum looks new if all nodes are in quarantine, and none shows
    /// an earlier use. All of them may have been emptied before this client met them, so the advice is for a quorum that
    /// nobody has used.
    fn advice(&self, missing: usize, now_us: u64) -> String {
        let members = &self.members;
        let mut left: Vec<u64> = members.iter().filter_map(|member| member.status().quarantine_us(now_us)).collect();
        if left.len() == members.len() && !members.iter().any(Member::was_used) {
            return "; if this quorum was never used, run `leasehold quorum begin`; if its servers were restarted or \
                    emptied, wait: a client may still hold a lease that they have forgotten"
                .to_owned();
        }
        left.sort_unstable();
        match missing.checked_sub(1).and_then(|last| left.get(last)) {
            Some(left_us) => {
                let left_s = left_us.div_ceil(1_000_000);
                format!(
                    "; wait: a majority votes in {left_s} s, and until then a client may still hold a lease that these \
                     nodes have forgotten"
                )
            }
            // The client itself needs time for each request.
            None if missing == 0 || members.iter().any(|member| matches!(member.status(), NodeStatus::Silent)) => {
                "; if this client makes thousands of calls at a time, make fewer".to_owned()
            }
            None => String::new(),
        }
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
