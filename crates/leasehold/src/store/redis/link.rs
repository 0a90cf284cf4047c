//! One connection to Redis, as a [`Link`].
//!
//! Requests, answers and messages share it: the client crate's driver writes requests in the order in which they are
//! handed to it, and hands messages on in the order of their arrival, from within the task that reads the socket. Nothing
//! in between queues or reorders, with one exception: a script that the server has forgotten (`SCRIPT FLUSH`) is sent
//! again by its source, and that request then comes after those that were sent meanwhile. Nothing of it ran before, and
//! whoever gives an attempt up by a leave goes on until the server's time has passed `not_after` (P14).
//!
//! No time-out is set here: the session has its own, and closes the link when it does not believe in it any more.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Contention, Name, Op, Renew, SessionId};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{Notify, oneshot};

use super::call::Call;
use super::fault::{self, Asker, Trouble};
use super::gather::Gather;
use super::keys::Keys;
use super::reply::{self, Said, To};
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Inbox, Link, Message};
use crate::world::{Address, Pending, World};

/// Keys that the server looks at in one step of a scan: half a millisecond of its time.
const SCANNED: u32 = 1_000;

/// A connection whose first exchange went well.
pub(super) struct RedisLink {
    pub(super) wire: Wire,
    pub(super) run: String,
    pub(super) world: Arc<dyn World>,
}

/// What a request needs of the link.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    pub(super) keys: Keys,
    pub(super) line: Arc<Line>,
}

/// What the link and its driver share.
pub(super) struct Line {
    /// Which server this is, for errors.
    at: String,
    is_closed: AtomicBool,
    hang_up: Notify,
    attached: Mutex<Option<Attached>>,
    requests: Gather,
}

struct Attached {
    session: SessionId,
    inbox: Inbox,
    probe: Option<(String, oneshot::Sender<()>)>,
}

impl Line {
    pub(super) fn new(to: &Address) -> Self {
        let (is_closed, hang_up) = (AtomicBool::new(false), Notify::new());
        Self { at: to.to_string(), is_closed, hang_up, attached: Mutex::default(), requests: Gather::default() }
    }

    /// Runs the driver until it ends or the link is given up. Dropping it (with its runtime) ends the link as well.
    pub(super) async fn drive(self: Arc<Self>, driver: impl Future<Output = ()>) {
        let line = Ending(self);
        tokio::select! {
            biased;
            () = line.0.hang_up.notified() => {}
            () = line.0.requests.drive(driver) => {}
        }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.hang_up.notify_one();
    }

    /// Takes what the server pushed. Called by the driver, in order.
    pub(super) fn receive(&self, keys: &Keys, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {}
            PushKind::Subscribe | PushKind::Disconnection => return,
            // We never unsubscribe. Whoever did it for us has detached the inbox.
            PushKind::Unsubscribe => return self.close(),
            _ => return self.tell(Message::Garbled),
        }
        let text = match push.data.as_slice() {
            [_, Value::BulkString(text)] => std::str::from_utf8(text).ok(),
            _ => None,
        };
        let mut attached = self.attached();
        let Some(to) = attached.as_mut() else { return };
        if let Some((_, arrived)) = to.probe.take_if(|(probe, _)| Some(probe.as_str()) == text) {
            // Nobody may be waiting any more: then the attempt was given up.
            let _ = arrived.send(());
            return;
        }
        let session = to.session;
        drop(attached);
        let delivery = text.and_then(|text| reply::delivery(keys, session, text));
        self.tell(delivery.map_or(Message::Garbled, |(name, delivery)| Message::Delivery(name, delivery)));
    }

    fn tell(&self, message: Message) {
        let inbox = self.attached().as_ref().map(|to| Arc::clone(&to.inbox));
        if let Some(inbox) = inbox {
            inbox(message);
        }
    }

    fn attached(&self) -> MutexGuard<'_, Option<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the link is gone, however the driver ended.
struct Ending(Arc<Line>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        let attached = self.0.attached().take();
        if let Some(to) = attached {
            (to.inbox)(Message::Detached);
        }
    }
}

impl Wire {
    /// Sends a command, and takes its answer as it is.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let _under_way = self.line.requests.begin();
        self.connection.send_packed_command(command).await?.extract_error()
    }

    /// Runs a script, about one name or about many.
    async fn run(&mut self, call: &Call, about: Option<&Name>) -> Result<String, Fault> {
        let mut answer = self.ask(call.by_digest()).await;
        let is_forgotten = answer.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT"));
        if is_forgotten && !is_on(Mutant::P8ForgetsScripts) {
            // Definite: nothing ran. Sent by its source it is known again from now on.
            answer = self.ask(&call.by_source()).await;
        }
        match answer.map_err(|error| self.fault(&error, about))? {
            Value::BulkString(text) => String::from_utf8(text).map_err(|_| self.garbled(about)),
            _ => Err(self.garbled(about)),
        }
    }

    async fn apply(mut self, name: Name, to: To, call: Result<Call, Error>) -> Result<Answer, Fault> {
        let text = self.run(&call.map_err(Fault::Refused)?, Some(&name)).await?;
        self.answer(&name, to, &text)
    }

    async fn renew(mut self, batch: Vec<(Name, Renew)>) -> Vec<Result<Answer, Fault>> {
        let each: Vec<_> = batch.iter().map(|(name, renew)| (name, renew)).collect();
        let call = Call::renew(&self.keys, &each);
        let said = match call {
            Ok(call) => self.run(&call, None).await,
            Err(error) => Err(Fault::Refused(error)),
        };
        let said = said.and_then(|text| {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            if lines == batch.len() { Ok(text) } else { Err(self.garbled(None)) }
        });
        match said {
            Ok(text) => {
                let each = batch.iter().zip(text.split('\n'));
                each.map(|((name, renew), text)| self.answer(name, To::from(renew), text)).collect()
            }
            Err(fault) => batch.iter().map(|_| Err(fault.share())).collect(),
        }
    }

    fn answer(&self, name: &Name, to: To, text: &str) -> Result<Answer, Fault> {
        let key = || self.keys.record(name);
        match reply::parse(to, text) {
            Some(Said::Answer(answer)) => Ok(answer),
            Some(Said::Foreign(kind)) => Err(fault::foreign(&key(), &kind)),
            Some(Said::Newer(version)) => Err(fault::newer(&key(), &version)),
            Some(Said::Error(text)) => Err(fault::of_one(&text, &self.line.at, &key())),
            Some(Said::Damaged) => Err(fault::damaged(&self.line.at, &key())),
            None => Err(self.garbled(Some(name))),
        }
    }

    async fn names(mut self, from: u64) -> Result<(Vec<Name>, u64), Fault> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(from).arg("MATCH").arg(self.keys.pattern()).arg("COUNT").arg(SCANNED);
        let page = self.ask(&scan).await.map_err(|error| match error.code() {
            // No lock needs it, so it is in no list of rights, and nobody asked for it beforehand.
            Some("NOPERM") => Fault::Refused(fault::lacking(&self.line.at, &["+scan"])),
            _ => self.fault(&error, None),
        })?;
        let (next, keys): (u64, Vec<String>) = redis::from_redis_value(page).map_err(|_| self.garbled(None))?;
        Ok((keys.iter().filter_map(|key| self.keys.name(key)).collect(), next))
    }

    async fn attach(mut self, session: SessionId, inbox: Inbox, probe: String) -> Result<(), Fault> {
        let channel = self.keys.inbox(session);
        let (arrived, seen) = oneshot::channel();
        *self.line.attached() = Some(Attached { session, inbox, probe: Some((probe.clone(), arrived)) });
        let publish = redis::cmd("PUBLISH").arg(&channel).arg(&probe).clone();
        let mut prober = self.clone();
        // In one breath and in this order. Where the first is refused, nobody hears the second.
        let (subscribed, published) = tokio::join!(biased; self.connection.subscribe(&channel), prober.ask(&publish));
        if let Err(error) = subscribed.and(published) {
            *self.line.attached() = None;
            return Err(self.fault(&error, None));
        }
        seen.await.map_err(|_| Fault::Gone(Error::new(ErrorKind::Unreachable, "the connection to Redis broke")))
    }

    async fn ping(mut self) -> Result<u64, Fault> {
        let time = self.ask(&redis::cmd("TIME")).await.map_err(|error| self.fault(&error, None))?;
        match redis::from_redis_value::<(u64, u64)>(time) {
            Ok((seconds, micros)) if micros < 1_000_000 => Ok(seconds * 1_000_000 + micros),
            _ => Err(self.garbled(None)),
        }
    }

    fn fault(&self, error: &RedisError, about: Option<&Name>) -> Fault {
        let key = about.map(|name| self.keys.record(name));
        Trouble::of(error, &self.line.at, Asker::LOCKS, key.as_deref()).into()
    }

    fn garbled(&self, about: Option<&Name>) -> Fault {
        self.line.close();
        let key = about.map(|name| self.keys.record(name));
        fault::garbled(&self.line.at, key.as_deref())
    }
}

impl Link for RedisLink {
    fn apply(&self, name: &Name, op: &Op, guess: Contention) -> Pending<Result<Answer, Fault>> {
        let call = Call::new(&self.wire.keys, name, op, guess);
        Box::pin(self.wire.clone().apply(name.clone(), To::from(op), call))
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        let mut parts: Vec<Pending<Vec<_>>> = Vec::new();
        for part in batch.chunks(RENEW_BATCH) {
            parts.push(Box::pin(self.wire.clone().renew(part.to_vec())));
        }
        Box::pin(all(parts))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.clone().names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let mut random = [0; 16];
        self.world.random(&mut random);
        let probe = format!("lh1 probe {:032x}", u128::from_le_bytes(random));
        Box::pin(self.wire.clone().attach(session, inbox, probe))
    }

    fn run(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(self.wire.clone().ping())
    }

    fn is_closed(&self) -> bool {
        self.wire.line.is_closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.wire.line.close();
    }
}

/// Runs all of them at once, so that they leave in one write, and joins what they give.
async fn all<T>(mut parts: Vec<Pending<Vec<T>>>) -> Vec<T> {
    let mut done: Vec<Option<Vec<T>>> = parts.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (part, done) in parts.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(answers) = Pin::new(part).poll(context) {
                *done = Some(answers);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().flatten().collect()
}
