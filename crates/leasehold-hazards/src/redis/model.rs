//! A model of one server: the state that the commands read and write.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_spec::node::{Record, Request, Vote, rest_ms, vote};
use leasehold_spec::{Env, Op, Resource, SessionId, limits, step};

use super::command::Command;
use super::holding::Holding;
use super::keys::{Key, Keys};
use super::value::{Message, Reply};
use crate::client::ThreadId;

/// The channel of a session's messages.
const INBOX: &str = "inbox";

/// All clocks of the model begin at this time.
pub(crate) const BEGINNING_MS: u64 = 1_000_000;

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The time by which the clock of the server is ahead.
    ahead_ms: u64,
    keys: BTreeMap<String, Key>,
    subscribers: BTreeSet<(String, ThreadId)>,
    resources: BTreeMap<String, Resource>,
    nodes: BTreeMap<String, Record>,
    /// Whether a client has ever asked the server for a vote.
    is_node: bool,
    /// As a node of a quorum, the server has no vote until this time.
    quarantine_end_ms: u64,
}

impl Server {
    /// Carries out a command of `thread`. Returns the reply and the messages, each with the thread that receives it.
    pub fn execute(&mut self, true_ms: u64, thread: ThreadId, command: &Command) -> (Reply, Vec<(ThreadId, Message)>) {
        let now_ms = self.clock_ms(true_ms);
        self.keys.retain(|_, key| key.end_ms.is_none_or(|end_ms| now_ms < end_ms));
        let mut keys = Keys { keys: &mut self.keys, now_ms };
        let reply = match command {
            Command::Get(key) => keys.get(key).map_or(Reply::Nil, Reply::Text),
            Command::SetNx(key, value) => Reply::Number(i64::from(keys.set_if_absent(key, value, None))),
            Command::SetNxEx(key, value, s) => ok_or_nil(keys.set_if_absent(key, value, Some(s * 1000))),
            Command::SetNxPx(key, value, ms) => ok_or_nil(keys.set_if_absent(key, value, Some(*ms))),
            Command::GetSet(key, value) => {
                let old = keys.get(key).map_or(Reply::Nil, Reply::Text);
                keys.del(key);
                keys.set_if_absent(key, value, None);
                old
            }
            Command::Del(key) => Reply::Number(keys.del(key)),
            Command::Expire(key, s) => Reply::Number(keys.pexpire(key, s * 1000)),
            Command::Eval(script, key, arguments) => {
                let (reply, messages) = script.run(&mut keys, key, arguments);
                return (reply, self.published(messages));
            }
            Command::Subscribe(channel) => {
                self.subscribers.insert((channel.clone(), thread));
                Reply::Ok
            }
            Command::Step(name, op) => {
                // A client of Leasehold is subscribed to its inbox before it asks for anything.
                self.subscribers.insert((INBOX.to_owned(), thread));
                return self.step(now_ms, name, op);
            }
            Command::Vote(name, request) => Reply::Vote(self.vote(now_ms, name, request).map(Box::new)),
        };
        (reply, vec![])
    }

    /// Forgets everything, as a server without a disk does when it starts again.
    pub fn restart(&mut self, true_ms: u64) {
        let quarantine_end_ms = self.clock_ms(true_ms) + rest_ms(limits::QUORUM_LEASE_MAX_MS);
        *self = Self { ahead_ms: self.ahead_ms, is_node: self.is_node, quarantine_end_ms, ..Self::default() };
    }

    /// Sets the clock of the server forward.
    pub fn jump(&mut self, by_ms: u64) {
        self.ahead_ms += by_ms;
    }

    /// Ends the connections of a thread.
    pub fn disconnect(&mut self, thread: ThreadId) {
        self.subscribers.retain(|(_, subscriber)| *subscriber != thread);
    }

    /// Returns the times at which the server changes by itself, as true time.
    pub fn deadlines_ms(&self) -> impl Iterator<Item = u64> + '_ {
        let keys = self.keys.values().filter_map(|key| key.end_ms);
        let grants = self.resources.values().filter_map(|name| name.grants.sole().map(|grant| grant.end_us() / 1000));
        let votes = self.nodes.values().filter_map(|name| name.grant.as_ref().map(|grant| grant.end_us() / 1000));
        keys.chain(grants).chain(votes).map(|end_ms| end_ms.saturating_sub(BEGINNING_MS + self.ahead_ms))
    }

    /// Returns what the server holds.
    #[must_use]
    pub fn holdings(&self, true_ms: u64) -> Vec<Holding> {
        let now_ms = self.clock_ms(true_ms);
        let left_ms = |end_ms: u64| end_ms.saturating_sub(now_ms);
        let live = self.keys.iter().filter(|(_, key)| key.end_ms.is_none_or(|end_ms| now_ms < end_ms));
        let keys = live.map(|(name, key)| Holding::Key {
            name: name.clone(),
            value: key.value.clone(),
            left_ms: key.end_ms.map(left_ms),
        });
        let grants = self.resources.values().filter_map(|resource| {
            let grant = resource.grants.sole()?;
            Some(Holding::Grant {
                label: grant.label.clone(),
                token: grant.token.get(),
                waiting: resource.queue.len(),
                left_ms: left_ms(grant.end_us() / 1000),
            })
        });
        let is_in_quarantine = self.is_node && now_ms < self.quarantine_end_ms;
        let quarantine = is_in_quarantine.then_some(Holding::Quarantine);
        let votes = self.nodes.values().filter_map(|record| {
            let grant = record.grant.as_ref()?;
            let (label, token) = (grant.label.clone(), grant.token.get());
            Some(Holding::Vote { label, token, left_ms: left_ms(grant.end_us() / 1000) })
        });
        keys.chain(grants).chain(quarantine).chain(votes).collect()
    }

    /// Returns what the server holds, in words.
    #[must_use]
    pub fn describe(&self, true_ms: u64) -> String {
        let parts: Vec<_> = self.holdings(true_ms).iter().map(Holding::to_string).collect();
        if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
    }

    fn clock_ms(&self, true_ms: u64) -> u64 {
        BEGINNING_MS + true_ms + self.ahead_ms
    }

    fn step(&mut self, now_ms: u64, name: &str, op: &Op) -> (Reply, Vec<(ThreadId, Message)>) {
        let Self { subscribers, resources, .. } = self;
        let attached = |session: SessionId| subscribers.contains(&(INBOX.to_owned(), thread_of(session)));
        let env = Env { wall_us: now_ms * 1000, lease_us: now_ms * 1000, attached: &attached };
        let (answer, deliveries) = step(resources.entry(name.to_owned()).or_default(), &env, op);
        let delivered = deliveries.into_iter().filter(|delivery| attached(delivery.to));
        let messages =
            delivered.map(|delivery| (thread_of(delivery.to), Message::Delivery(Box::new(delivery)))).collect();
        (Reply::Answer(Box::new(answer)), messages)
    }

    fn vote(&mut self, now_ms: u64, name: &str, request: &Request) -> Option<Vote> {
        self.is_node = true;
        let gives_back = matches!(request, Request::GiveBack { .. } | Request::Inspect);
        if now_ms < self.quarantine_end_ms && !gives_back {
            return None;
        }
        let env = Env { wall_us: now_ms * 1000, lease_us: now_ms * 1000, attached: &|_| true };
        let (vote, _) = vote(self.nodes.entry(name.to_owned()).or_default(), &env, request);
        Some(vote)
    }

    fn published(&self, messages: Vec<(String, Message)>) -> Vec<(ThreadId, Message)> {
        let receivers = |channel: &str| {
            let channel = channel.to_owned();
            self.subscribers.iter().filter(move |(name, _)| *name == channel).map(|(_, thread)| *thread)
        };
        let each = |(channel, message): (String, Message)| {
            receivers(&channel).map(move |thread| (thread, message.clone())).collect::<Vec<_>>()
        };
        messages.into_iter().flat_map(each).collect()
    }
}

/// Returns the reply to `SET NX`.
fn ok_or_nil(is_set: bool) -> Reply {
    if is_set { Reply::Ok } else { Reply::Nil }
}

/// Returns the session of a thread: in a model they have the same number.
pub(crate) fn session_of(thread: ThreadId) -> SessionId {
    SessionId(thread as u128)
}

fn thread_of(session: SessionId) -> ThreadId {
    usize::try_from(session.0).expect("a session of the model is a thread")
}

/// Writes milliseconds as seconds.
pub(crate) fn seconds(ms: u64) -> String {
    match ms % 1000 {
        0 => (ms / 1000).to_string(),
        rest => format!("{}.{:03}", ms / 1000, rest).trim_end_matches('0').to_owned(),
    }
}
