//! One connection to Redis, for locks on one server and for nodes of a quorum. It moves requests, replies and messages, and
//! knows none of their fields.
//!
//! The client crate's driver writes requests in the order in which it gets them. It passes messages on in the order of
//! their arrival, from within the task that reads the socket. `many.rs` holds acquires and releases back until the next
//! write, but no later request passes them. There are two exceptions. If the server has forgotten a script
//! (`SCRIPT FLUSH`), it is sent again by its source. If the server refuses a batch, each of its requests is sent alone.
//! Both come after requests that were sent in the meantime, and only if the caller still waits. Nothing of them ran before.
//! A client that gives an attempt up by a leave repeats the leave until the server's time has passed `not_after` (P14).
//!
//! There is no timeout here: the session has one, and closes a link that it does not trust any more.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Op, SessionId};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{Notify, oneshot};

use super::batch_call::Part;
use super::call::Call;
use super::fault::{self, Asker, Trouble, is_forgotten};
use super::gather::{Gather, InFlight};
use super::keys::Keys;
use super::many::{BatchReply, Batches};
use super::words::Reply;
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Progress};
use crate::world::{Address, Pending, World};

/// The number of keys that the server visits in one step of a scan: half a millisecond of its time.
const SCANNED: u32 = 1_000;

/// The parts of a link that a request needs.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    pub(super) keys: Keys,
    pub(super) line: Arc<Line>,
}

/// The state that the link and its driver share.
pub(super) struct Line {
    /// The address of the server, for errors.
    pub(super) at: String,
    pub(super) asker: Asker,
    is_closed: AtomicBool,
    hang_up: Notify,
    attached: Mutex<Option<Attached>>,
    /// The number of our own requests to unsubscribe that the server has not confirmed.
    unsubscribing: AtomicUsize,
    /// How often scripts were loaded, because the server did not know one.
    loads: AtomicUsize,
    requests: Gather,
    batches: Batches,
}

/// An event on the channel of a session.
pub(super) enum Heard<'a> {
    Text(&'a str),
    /// Something that is no text.
    Garbled,
    /// The inbox is detached: the link is gone.
    Detached,
}

/// The receiver of events, in the order of their arrival. Must not block.
pub(super) type Ear = Arc<dyn Fn(Heard<'_>) + Send + Sync>;

struct Attached {
    ear: Ear,
    probe: Option<(String, oneshot::Sender<()>)>,
}

impl Line {
    pub(super) fn new(to: &Address, asker: Asker) -> Self {
        let (is_closed, hang_up) = (AtomicBool::new(false), Notify::new());
        Self {
            at: to.to_string(),
            asker,
            is_closed,
            hang_up,
            attached: Mutex::default(),
            unsubscribing: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            requests: Gather::default(),
            batches: Batches::default(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// See [`Link::check_driven`](crate::store::Link::check_driven).
    pub(super) fn check_driven(&self) -> Progress {
        self.requests.check_driven()
    }

    /// See [`Link::check_read`](crate::store::Link::check_read).
    pub(super) fn check_read(&self) -> Progress {
        self.requests.check_polled()
    }

    /// See [`Link::has_unsent`](crate::store::Link::has_unsent).
    pub(super) fn has_unsent(&self) -> bool {
        self.requests.has_unsent() || self.batches.has_unsent()
    }

    /// Runs the driver until it ends or the link is closed. The link also ends if this future is dropped with its runtime.
    pub(super) async fn drive(self: Arc<Self>, driver: impl Future<Output = ()>) {
        let line = Ending(self);
        let mut driver = pin!(driver);
        let driver = poll_fn(|context| {
            line.0.batches.send();
            let driven = driver.as_mut().poll(context);
            if !line.0.batches.deliver(line.0.requests.share(), context) {
                line.0.close();
            }
            driven
        });
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

    /// Takes a push of the server. The driver calls it, in order.
    pub(super) fn receive(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {}
            PushKind::Subscribe | PushKind::Disconnection => return,
            PushKind::Unsubscribe if self.takes_unsubscribed() => return,
            // Somebody else has detached the inbox.
            PushKind::Unsubscribe => return self.close(),
            _ => return self.tell(Heard::Garbled),
        }
        let text = match push.data.as_slice() {
            [_, Value::BulkString(text)] => std::str::from_utf8(text).ok(),
            _ => None,
        };
        match text {
            // A message may have several lines, each of which is a message: no name has a line break in it.
            Some(text) => text.split('\n').for_each(|line| self.receive_line(line)),
            None => self.tell(Heard::Garbled),
        }
    }

    /// Returns whether this client has asked to unsubscribe, and takes the request as confirmed.
    fn takes_unsubscribed(&self) -> bool {
        let less = |count: usize| count.checked_sub(1);
        self.unsubscribing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn receive_line(&self, line: &str) {
        let probe = self.attached().as_mut().and_then(|to| to.probe.take_if(|(probe, _)| probe == line));
        match probe {
            // If the receiver is gone, the attempt was given up.
            Some((_, arrived)) => drop(arrived.send(())),
            None => self.tell(Heard::Text(line)),
        }
    }

    fn tell(&self, heard: Heard<'_>) {
        let ear = self.attached().as_ref().map(|to| Arc::clone(&to.ear));
        if let Some(ear) = ear {
            ear(heard);
        }
    }

    fn attached(&self) -> MutexGuard<'_, Option<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the link and notifies its inbox when the driver ends in any way.
struct Ending(Arc<Line>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.batches.close();
        let attached = self.0.attached().take();
        if let Some(to) = attached {
            (to.ear)(Heard::Detached);
        }
    }
}

impl Wire {
    /// Sends a command, and returns the reply.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        // Requests that joined earlier are sent first (P53).
        if !is_on(Mutant::P53LetsPass) {
            self.line.batches.send();
        }
        let _in_flight = self.line.requests.begin();
        self.connection.send_packed_command(command).await?.extract_error()
    }

    /// Sends a request together with others if at least three are in flight. Returns the receiver of its part of the
    /// reply. `None`: it is to be sent alone.
    pub(super) fn join(&self, name: &Name, op: &Op) -> Option<(oneshot::Receiver<BatchReply>, InFlight<'_>)> {
        if !self.line.requests.is_crowded() {
            return None;
        }
        let part = Part::of(name, op)?;
        let in_flight = self.line.requests.begin();
        let (reply, is_first) = self.line.batches.join(&self.connection, &self.keys, (part, op))?;
        if is_first {
            self.line.requests.wake();
        }
        Some((reply, in_flight))
    }

    /// Runs a script, about one name or about many.
    pub(super) async fn run(&mut self, call: &Call, about: Option<&Name>) -> Result<String, Fault> {
        let loads = self.line.loads.load(Ordering::Relaxed);
        let mut answer = self.ask(call.by_digest()).await;
        if is_forgotten(&answer) && !is_on(Mutant::P8ForgetsScripts) {
            // It is certain that nothing ran.
            let unchanged = self.line.loads.compare_exchange(loads, loads + 1, Ordering::Relaxed, Ordering::Relaxed);
            answer = match unchanged {
                Ok(_) => self.bring(call).await,
                // They were loaded for another request, after this one was sent.
                Err(_) => self.ask(&call.by_source()).await,
            };
        }
        match answer.map_err(|error| self.fault(&error, about))? {
            Value::BulkString(text) => String::from_utf8(text).map_err(|_| self.garbled(about)),
            _ => Err(self.garbled(about)),
        }
    }

    /// Sends a script by its source, and before it those of its family that give something back. Otherwise the server would
    /// first miss such a script at a release, and the acquire behind the release would pass it: a client would be in its
    /// own way.
    ///
    /// If the server refuses to load the scripts, the reply to the call itself counts.
    async fn bring(&mut self, call: &Call) -> Result<Value, RedisError> {
        let mut load = redis::pipe();
        for script in call.script().family().scripts().filter(|script| script.gives_back()) {
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
            Some(Reply::Error(text)) => Err(fault::of_one(&text, &self.line.at, self.line.asker, &key())),
            Some(Reply::Damaged) => Err(fault::damaged(&self.line.at, &key())),
            // `link.rs` asks the script of a mutex first.
            Some(Reply::Other) | None => Err(self.garbled(Some(name))),
        }
    }

    pub(super) async fn names(mut self, from: u64) -> Result<(Vec<Name>, u64), Fault> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(from).arg("MATCH").arg(self.keys.pattern()).arg("COUNT").arg(SCANNED);
        let page = self.ask(&scan).await.map_err(|error| match error.code() {
            // No lock needs this right, so it is in no list, and the handshake does not check it.
            Some("NOPERM") => Fault::Refused(fault::lacking(&self.line.at, &["+scan"], self.line.asker.rights)),
            _ => self.fault(&error, None),
        })?;
        let (next, keys): (u64, Vec<String>) = redis::from_redis_value(page).map_err(|_| self.garbled(None))?;
        Ok((keys.iter().filter_map(|key| self.keys.name(key)).collect(), next))
    }

    /// Attaches the inbox of a session, and waits until a probe has arrived.
    pub(super) fn attach(&self, session: SessionId, world: &dyn World, ear: Ear) -> Pending<Result<(), Fault>> {
        let mut random = [0; 16];
        world.random(&mut random);
        let probe = self.keys.probe(u128::from_le_bytes(random));
        Box::pin(self.clone().attach_by(session, probe, ear))
    }

    async fn attach_by(mut self, session: SessionId, probe: String, ear: Ear) -> Result<(), Fault> {
        let channel = self.keys.inbox(session);
        let (arrived, seen) = oneshot::channel();
        *self.line.attached() = Some(Attached { ear, probe: Some((probe.clone(), arrived)) });
        let publish = redis::cmd("PUBLISH").arg(&channel).arg(&probe).clone();
        let mut prober = self.clone();
        // In one write and in this order. If the server refuses the first, nobody receives the second.
        let (subscribed, published) = tokio::join!(biased; self.connection.subscribe(&channel), prober.ask(&publish));
        if let Err(error) = subscribed.and(published) {
            *self.line.attached() = None;
            return Err(self.fault(&error, None));
        }
        seen.await.map_err(|_| gone())
    }

    /// Detaches the inbox of a session. A later [`Wire::attach`] on this link comes behind it.
    pub(super) async fn detach(mut self, session: SessionId) -> Result<(), Fault> {
        let line = Arc::clone(&self.line);
        let _in_flight = line.requests.begin();
        line.unsubscribing.fetch_add(1, Ordering::Relaxed);
        let unsubscribed = self.connection.unsubscribe(self.keys.inbox(session)).await;
        unsubscribed.map_err(|error| {
            line.takes_unsubscribed(); // The server has refused it, and confirms nothing.
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
        Trouble::of(error, &self.line.at, self.line.asker, key.as_deref()).into()
    }

    pub(super) fn garbled(&self, about: Option<&Name>) -> Fault {
        self.line.close();
        let key = about.map(|name| self.keys.record(name));
        fault::garbled(&self.line.at, key.as_deref())
    }
}

pub(super) fn gone() -> Fault {
    Fault::Gone(Error::new(ErrorKind::Unreachable, "the connection to Redis was closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(text: &str) -> PushInfo {
        let data = ["lh1:inbox:1", text].map(|text| Value::BulkString(text.as_bytes().to_vec()));
        PushInfo { kind: PushKind::Message, data: data.to_vec() }
    }

    #[test]
    fn a_message_of_several_lines_is_several_messages() {
        let line = Line::new(&Address { host: "h".to_owned(), port: 1 }, Asker::LOCKS);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ear = {
            let seen = Arc::clone(&seen);
            move |heard: Heard<'_>| {
                let text = if let Heard::Text(text) = heard { text } else { "garbled" };
                seen.lock().unwrap().push(text.to_owned());
            }
        };
        let (arrived, mut probed) = oneshot::channel();
        *line.attached() = Some(Attached { ear: Arc::new(ear), probe: Some(("probe".to_owned(), arrived)) });
        for message in ["a b", "c\nd\ne", "f\nprobe\ng", "probe", "h\n"] {
            line.receive(&push(message));
        }
        assert_eq!(*seen.lock().unwrap(), ["a b", "c", "d", "e", "f", "g", "probe", "h", ""]);
        assert_eq!(probed.try_recv(), Ok(()));
    }

    #[test]
    fn only_a_detachment_that_nobody_here_asked_for_closes_the_link() {
        let line = Line::new(&Address { host: "h".to_owned(), port: 1 }, Asker::LOCKS);
        let detached = PushInfo { kind: PushKind::Unsubscribe, data: Vec::new() };
        line.unsubscribing.fetch_add(1, Ordering::Relaxed);
        line.receive(&detached);
        assert!(!line.is_closed());
        line.receive(&detached);
        assert!(line.is_closed());
    }
}
