//! The settings of a proxy and its counters, with one lock and one condition variable.
//!
//! Order of locks: a connection's `replies`, then a lane, then this one. A thread that holds this lock takes no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::fault::{At, Command, Fault, Latency, ReplyFault, RequestFault};

/// How many commands are kept with their arguments; all are counted.
const LOG: usize = 10_000;

/// The counters of a proxy since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Connections that were accepted.
    pub accepted: u64,
    /// How many of the accepted connections are open.
    pub open: u64,
    /// Connections refused on the test's request.
    pub refused: u64,
    /// Connections refused because the server could not be reached.
    pub unreachable: u64,
    /// Connections cut, by [`cut_all`](super::FaultProxy::cut_all) or by a fault.
    pub cut: u64,
    /// Connections closed because the bytes were not RESP.
    pub garbled: u64,
    /// Requests that a stall held up.
    pub stalled_requests: u64,
    /// Replies and messages that a stall held up.
    pub stalled_replies: u64,
    /// Requests, replies and messages that took longer because of a latency.
    pub delayed: u64,
    /// Messages that came from the server, dropped ones included.
    pub pushes: u64,
    /// Requests, by the name of the command in capitals.
    pub commands: BTreeMap<String, u64>,
}

impl Seen {
    /// Returns how many requests of this command came.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.commands.get(&name.to_ascii_uppercase()).copied().unwrap_or(0)
    }
}

/// One of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) target: u16,
    pub(super) refusing: bool,
    pub(super) stopping: bool,
    pub(super) requests_stalled: bool,
    pub(super) replies_stalled: bool,
    pub(super) latency: Option<Latency>,
    pub(super) faults: Vec<Armed>,
    pub(super) log: VecDeque<Command>,
    pub(super) seen: Seen,
    pub(super) connections: BTreeMap<u64, Arc<Connection>>,
}

/// An injected fault. Faults are never removed, because the index of a fault identifies it.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub(super) fault: Fault,
    pub(super) hits: u64,
    pub(super) lifted: bool,
}

pub(super) type FaultId = usize;

/// The decision about a request.
#[derive(Debug)]
pub(super) enum Verdict {
    Forward { due: Instant, held_by: Option<FaultId> },
    Answer(Vec<u8>),
    Cut,
}

impl Control {
    /// Records a request, and decides what happens to it.
    pub(super) fn judge(&mut self, command: &Command) -> Verdict {
        *self.seen.commands.entry(command.name.clone()).or_default() += 1;
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(command.clone());

        let due = self.due();
        let about = |at: &At| matches!(at, At::Request(requests, _) if requests.contains(command));
        match self.strike(about) {
            Some((_, At::Request(_, RequestFault::Refuse(answer)))) => Verdict::Answer(answer),
            Some((_, At::Request(_, RequestFault::Cut))) => Verdict::Cut,
            Some((id, At::Request(_, RequestFault::Hold))) => Verdict::Forward { due, held_by: Some(id) },
            Some((_, At::Request(_, RequestFault::Delay(by)))) => Verdict::Forward { due: due + by, held_by: None },
            _ => Verdict::Forward { due, held_by: None },
        }
    }

    /// Decides about the reply to this request, which begins to arrive. It decides now and not when the request came: a
    /// reply that never comes must not use up a fault that is to strike once.
    pub(super) fn judge_reply(&mut self, command: &Command) -> Option<ReplyFault> {
        let about = |at: &At| matches!(at, At::Reply(requests, _) if requests.contains(command));
        match self.strike(about) {
            Some((_, At::Reply(_, fault))) => Some(fault),
            _ => None,
        }
    }

    /// Whether the message that just came is to be dropped.
    pub(super) fn drops_push(&mut self) -> bool {
        self.seen.pushes += 1;
        self.strike(|at| matches!(at, At::Push)).is_some()
    }

    /// Returns when a parcel that arrived now is forwarded.
    pub(super) fn due(&mut self) -> Instant {
        let now = Instant::now();
        match &mut self.latency {
            None => now,
            Some(latency) => {
                self.seen.delayed += 1;
                now + latency.draw()
            }
        }
    }

    pub(super) fn is_stalled(&self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self.requests_stalled,
            Direction::ToClient => self.replies_stalled,
        }
    }

    pub(super) fn count_stalled(&mut self, direction: Direction) {
        match direction {
            Direction::ToServer => self.seen.stalled_requests += 1,
            Direction::ToClient => self.seen.stalled_replies += 1,
        }
    }

    /// The first fault of this kind that strikes now.
    fn strike(&mut self, about: impl Fn(&At) -> bool) -> Option<(FaultId, At)> {
        let mut faults = self.faults.iter_mut().enumerate();
        faults.find_map(|(id, armed)| {
            let strikes = !armed.lifted && about(&armed.fault.at) && armed.fault.strikes();
            strikes.then(|| {
                armed.hits += 1;
                (id, armed.fault.at.clone())
            })
        })
    }
}

/// The control and its condition variable, which is notified of every change.
#[derive(Debug)]
pub(super) struct Shared {
    control: Mutex<Control>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(target: u16) -> Self {
        let control = Control {
            target,
            refusing: false,
            stopping: false,
            requests_stalled: false,
            replies_stalled: false,
            latency: None,
            faults: Vec::new(),
            log: VecDeque::new(),
            seen: Seen::default(),
            connections: BTreeMap::new(),
        };
        Self { control: Mutex::new(control), changed: Condvar::new() }
    }

    /// Locks the control to read it. A test's predicate that panicked here has changed nothing.
    pub(super) fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the control, and notifies.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Control) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Changes the control so that parcels may go on.
    pub(super) fn release<T>(&self, change: impl FnOnce(&mut Control) -> T) -> T {
        let result = self.change(change);
        for connection in self.connections() {
            connection.recheck();
        }
        result
    }

    pub(super) fn connections(&self) -> Vec<Arc<Connection>> {
        self.lock().connections.values().cloned().collect()
    }

    /// Waits until `done`, and returns whether that was within the time.
    pub(super) fn wait(&self, within: Duration, done: impl Fn(&Control) -> bool) -> bool {
        let (control, _) = self
            .changed
            .wait_timeout_while(self.lock(), within, |control| !done(control))
            .unwrap_or_else(PoisonError::into_inner);
        done(&control)
    }
}
