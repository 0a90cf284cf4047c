//! One connection to Redis, for locks on one server and for nodes of a quorum. It moves requests, replies and messages, and
//! knows none of their fields.
//!
//! The client crate's driver writes requests in the order in which it gets them. It passes messages on in the order of
//! their arrival, from within the task that reads the socket. `many.rs` delays acquires and releases until the next write,
//! but no later request is sent before them. In three cases a request is sent a second time, behind requests that were sent
//! in the meantime:
//!
//! - The server does not know the script (`SCRIPT FLUSH`): the script is sent to the server, and then the request.
//! - The server refuses a batch: each of its requests is sent alone.
//! - The record has the other encoding (`link.rs`): the request is sent to the other script.
//!
//! The first attempt has changed nothing, and there is no second one if the caller is gone. So an acquire can arrive after
//! the leave of its attempt. The client repeats the leave until the server's time has passed `not_after` (P14).
//!
//! There is no timeout here: the session has one, and closes a link that it does not trust any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Op, SessionId};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::oneshot;

use super::batch_call::Part;
use super::call::Call;
use super::fault::{self, Trouble, is_forgotten};
use super::gather::InFlight;
use super::keys::Keys;
use super::link_state::{Attached, EventHandler, LinkState};
use super::many::BatchReply;
use super::scripts::Script;
use super::words::Reply;
use crate::error::{Error, ErrorKind};
use crate::store::Fault;
use crate::world::{Pending, World};

/// The number of keys that the server visits in one step of a scan: half a millisecond of its time.
const SCANNED: u32 = 1_000;

/// How often a request is sent by the digest of its script, before it sends the source itself.
const DIGEST_TRIES: usize = 3;

/// The parts of a link that a request needs.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    pub(super) keys: Keys,
    pub(super) state: Arc<LinkState>,
}

impl Wire {
    /// Sends a command, and returns the reply.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        // Requests that joined earlier are sent first (P53).
        if !is_on(Mutant::P53LetsPass) {
            self.state.batches.send();
        }
        let _in_flight = self.state.requests.begin();
        self.connection.send_packed_command(command).await?.extract_error()
    }

    /// Sends a request together with others if at least three are in flight. Returns the receiver of its part of the
    /// reply. `None`: it is to be sent alone.
    pub(super) fn join(&self, name: &Name, op: &Op) -> Option<(oneshot::Receiver<BatchReply>, InFlight<'_>)> {
        if !self.state.requests.is_crowded() {
            return None;
        }
        let part = Part::of(name, op)?;
        let in_flight = self.state.requests.begin();
        let (reply, is_first) = self.state.batches.join(&self.connection, &self.keys, (part, op))?;
        if is_first {
            self.state.requests.wake();
        }
        Some((reply, in_flight))
    }

    /// Runs a script, about one name or about many.
    pub(super) async fn run(&mut self, call: &Call, about: Option<&Name>) -> Result<String, Fault> {
        match self.run_known(call).await.map_err(|error| self.fault(&error, about))? {
            Value::BulkString(text) => String::from_utf8(text).map_err(|_| self.garbled(about)),
            _ => Err(self.garbled(about)),
        }
    }

    /// Runs a script by its digest. If the server does not know the script, it is certain that nothing ran.
    ///
    /// The first request that misses the script sends its source. The others, which may be thousands, send the digest
    /// once more, behind the source. If the caller of the first request has gone before the source was written, one of
    /// the others sends it.
    async fn run_known(&mut self, call: &Call) -> Result<Value, RedisError> {
        let script = call.script() as usize;
        for _ in 0..DIGEST_TRIES {
            let sent = self.state.sources[script].load(Ordering::Relaxed);
            let answer = self.ask(call.by_digest()).await;
            if !is_forgotten(&answer) || is_on(Mutant::P8ForgetsScripts) {
                return answer;
            }
            let sources = &self.state.sources[script];
            if sources.compare_exchange(sent, sent + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        self.load_and_ask(call).await
    }

    /// Loads the scripts of this family that may precede an acquire, and then sends this call by its source.
    ///
    /// Otherwise the server would miss such a script only at a release. The acquire behind the release would be carried out
    /// before the repeated release, and would be refused because of this client's own grant.
    ///
    /// If the server refuses to load the scripts, only the reply to the call counts.
    async fn load_and_ask(&mut self, call: &Call) -> Result<Value, RedisError> {
        let mut load = redis::pipe();
        let is_loaded = |script: &Script| match is_on(Mutant::P8LoadsOneScript) {
            true => *script == call.script(),
            false => script.may_precede_acquire(),
        };
        for script in call.script().family().scripts().filter(is_loaded) {
            load.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        let (mut loader, by_source) = (self.connection.clone(), call.by_source());
        let loading = loader.send_packed_commands(&load, 0, load.len());
        tokio::join!(biased; loading, self.ask(&by_source)).1
    }

    /// Splits the reply to a batch into the replies about its names.
    pub(super) fn lines<'a>(&self, text: &'a str, names: usize) -> Result<Vec<&'a str>, Fault> {
        let lines: Vec<&str> = text.split('\n').collect();
        if lines.len() == names { Ok(lines) } else { Err(self.garbled(None)) }
    }

    /// Returns what a reply about a name reports, or why it reports nothing. Closes the link after garbage.
    pub(super) fn read<T>(&self, name: &Name, reply: Option<Reply<T>>) -> Result<T, Fault> {
        let key = || self.keys.record(name);
        match reply {
            Some(Reply::Sound(report)) => Ok(report),
            Some(Reply::Foreign(kind)) => Err(fault::foreign(&key(), &kind)),
            Some(Reply::Newer(version)) => Err(fault::newer(&key(), &version)),
            Some(Reply::Error(text)) => Err(fault::of_one(&text, &self.state.at, self.state.asker, &key())),
            Some(Reply::Damaged) => Err(fault::damaged(&self.state.at, &key())),
            // `link.rs` asks the script of a mutex first.
            Some(Reply::Other) | None => Err(self.garbled(Some(name))),
        }
    }

    pub(super) async fn names(mut self, from: u64) -> Result<(Vec<Name>, u64), Fault> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(from).arg("MATCH").arg(self.keys.pattern()).arg("COUNT").arg(SCANNED);
        let page = self.ask(&scan).await.map_err(|error| match error.code() {
            // No lock needs this right, so it is in no list, and the handshake does not check it.
            Some("NOPERM") => Fault::Refused(fault::lacking(&self.state.at, &["+scan"], self.state.asker.rights)),
            _ => self.fault(&error, None),
        })?;
        let (next, keys): (u64, Vec<String>) = redis::from_redis_value(page).map_err(|_| self.garbled(None))?;
        Ok((keys.iter().filter_map(|key| self.keys.name(key)).collect(), next))
    }

    /// Attaches the inbox of a session, and waits until a probe has arrived.
    pub(super) fn attach(
        &self,
        session: SessionId,
        world: &dyn World,
        handler: EventHandler,
    ) -> Pending<Result<(), Fault>> {
        let mut random = [0; 16];
        world.random(&mut random);
        let probe = self.keys.probe(u128::from_le_bytes(random));
        Box::pin(self.clone().attach_by(session, probe, handler))
    }

    async fn attach_by(mut self, session: SessionId, probe: String, handler: EventHandler) -> Result<(), Fault> {
        let channel = self.keys.inbox(session);
        let (arrived, seen) = oneshot::channel();
        *self.state.attached() = Some(Attached { handler, probe: Some((probe.clone(), arrived)) });
        let publish = redis::cmd("PUBLISH").arg(&channel).arg(&probe).clone();
        let mut prober = self.clone();
        // In one write and in this order. If the server refuses the first, nobody receives the second.
        let (subscribed, published) = tokio::join!(biased; self.connection.subscribe(&channel), prober.ask(&publish));
        if let Err(error) = subscribed.and(published) {
            *self.state.attached() = None;
            return Err(self.fault(&error, None));
        }
        seen.await.map_err(|_| gone())
    }

    /// Detaches the inbox of a session. A later [`Wire::attach`] on this link comes behind it.
    pub(super) async fn detach(mut self, session: SessionId) -> Result<(), Fault> {
        let state = Arc::clone(&self.state);
        let _in_flight = state.requests.begin();
        state.unsubscribing.fetch_add(1, Ordering::Relaxed);
        let unsubscribed = self.connection.unsubscribe(self.keys.inbox(session)).await;
        unsubscribed.map_err(|error| {
            state.takes_unsubscribed(); // The server has refused it, and confirms nothing.
            self.fault(&error, None)
        })
    }

    pub(super) async fn ping(mut self) -> Result<u64, Fault> {
        let time = self.ask(&redis::cmd("TIME")).await.map_err(|error| self.fault(&error, None))?;
        match redis::from_redis_value::<(u64, u64)>(time) {
            Ok((seconds, micros)) if micros < 1_000_000 => Ok(seconds * 1_000_000 + micros),
            _ => Err(self.garbled(None)),
        }
    }

    pub(super) fn fault(&self, error: &RedisError, about: Option<&Name>) -> Fault {
        let key = about.map(|name| self.keys.record(name));
        Trouble::of(error, &self.state.at, self.state.asker, key.as_deref()).into()
    }

    pub(super) fn garbled(&self, about: Option<&Name>) -> Fault {
        self.state.close();
        let key = about.map(|name| self.keys.record(name));
        fault::garbled(&self.state.at, key.as_deref())
    }
}

pub(super) fn gone() -> Fault {
    Fault::Gone(Error::new(ErrorKind::Unreachable, "the connection to Redis was closed"))
}
