//! The seam between an algorithm and the world that it runs in.
//!
//! A specimen asks for everything through its [`Client`]: commands to a server, its clock, random numbers, time to pass.
//! So the same source runs in two worlds. In the [model](crate::world) a search chooses the order of all asks. On real
//! servers the asks travel through a proxy, which forces the order that the search found.
//!
//! A client belongs to one thread of one process. A thread has one ask at a time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::redis::{BEGINNING_MS, Command, Message, Reply};

/// A future that stays on its thread.
pub type Local<T> = Pin<Box<dyn Future<Output = T>>>;

/// The number of a thread in its world. Threads of all processes are counted together.
pub type ThreadId = usize;

/// The number of a server in its world.
pub type ServerId = usize;

/// The reply did not arrive. The client cannot know whether the command was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoReply;

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no reply")
    }
}

impl std::error::Error for NoReply {}

/// A request of a thread to its world. The world decides when each ask takes effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// A command to a server, and its reply.
    Command(ServerId, Command),
    /// The clock of the process.
    Clock,
    /// The end of a wait of this many milliseconds.
    Sleep(u64),
    /// A message on a channel that the thread subscribed to, or the end of this many milliseconds.
    Message(u64),
    /// A write to the resource that the lock protects, with the token of the grant, if the lock has tokens.
    Write(Option<u64>),
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The reply to a command.
    Reply(Result<Reply, NoReply>),
    /// The clock of the process, in milliseconds.
    Clock(u64),
    /// The wait is over.
    Awake,
    /// A message, or `None` at the end of the time.
    Message(Option<Message>),
    /// The write is done, or was refused.
    Written,
}

/// A report of a thread to the judge. A report takes no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The thread wants the lock, and will wait for at most this time.
    Wants(Option<u64>),
    /// The thread begins a request that can make it the holder. A token that it is granted by this request must be above
    /// the tokens of all who entered before.
    Asks,
    /// The thread gave up.
    GivesUp,
    /// The thread begins its critical section.
    Enters(Held),
    /// The thread believes from now on that it holds until this time on the clock of its process.
    Believes(u64),
    /// The thread ends its critical section.
    Leaves,
}

impl Mark {
    /// Returns the mark with true times. The clock of the process is ahead by this much, and all clocks begin at
    /// [`BEGINNING_MS`].
    pub(crate) fn in_true_time(self, ahead_ms: u64) -> Self {
        let true_ms = |ms: u64| ms.saturating_sub(BEGINNING_MS + ahead_ms);
        match self {
            Self::Enters(held) => Self::Enters(Held { until_ms: held.until_ms.map(true_ms), ..held }),
            Self::Believes(until_ms) => Self::Believes(true_ms(until_ms)),
            other => other,
        }
    }
}

/// The knowledge of a thread about the lock that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// The fencing token, if the lock has tokens.
    pub token: Option<u64>,
    /// The time for which the server keeps the lock, counted from the acquisition. `None` if it keeps the lock until
    /// somebody deletes it, or if something renews the lock.
    pub lease_ms: Option<u64>,
    /// The time on the clock of the process at which the holder stops to believe that it holds. `None`: it never stops.
    pub until_ms: Option<u64>,
}

/// A world, as its threads see it.
pub trait Port {
    /// Asks the world, and waits for its answer.
    fn ask(&self, thread: ThreadId, ask: Ask) -> Local<Answer>;
    /// Reports to the judge.
    fn mark(&self, thread: ThreadId, mark: Mark);
    /// Returns the clock of the process, in milliseconds, at once.
    fn clock_ms(&self, thread: ThreadId) -> u64;
    /// Starts another thread in the process of `thread`, and returns its number.
    fn spawn(&self, thread: ThreadId, body: Box<dyn FnOnce(Client) -> Local<()>>) -> ThreadId;
    /// Ends a thread.
    fn stop(&self, thread: ThreadId);
    /// Returns a random number that no other call returns.
    fn random(&self, thread: ThreadId) -> u64;
    /// Returns the number of the thread within its process. The first thread has 1, as in Java.
    fn number(&self, thread: ThreadId) -> usize;
}

/// Returns the `count`th random number of a process. It is not random, so that a search can repeat a schedule.
pub(crate) fn unique_number(process: usize, count: u64) -> u64 {
    /// The numbers of a process. A further one would belong to the next process.
    const EACH: u64 = 16;
    assert!(count < EACH, "the scene draws more than {EACH} random numbers in a process");
    (process as u64 + 10) * EACH + count
}

/// The world, as one thread uses it.
#[derive(Clone)]
pub struct Client {
    port: Rc<dyn Port>,
    thread: ThreadId,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes the client of a thread.
    #[must_use]
    pub fn new(port: Rc<dyn Port>, thread: ThreadId) -> Self {
        Self { port, thread }
    }

    /// Returns the number of the thread in its world.
    #[must_use]
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Returns the number of the thread within its process: 1 for the first thread of each process.
    #[must_use]
    pub fn number(&self) -> usize {
        self.port.number(self.thread)
    }

    /// Sends a command to the first server, and waits for the reply.
    ///
    /// # Errors
    /// If the reply does not arrive.
    pub async fn call(&self, command: Command) -> Result<Reply, NoReply> {
        self.call_at(0, command).await
    }

    /// Sends a command to a server, and waits for the reply.
    ///
    /// # Errors
    /// If the reply does not arrive.
    pub async fn call_at(&self, server: ServerId, command: Command) -> Result<Reply, NoReply> {
        match self.port.ask(self.thread, Ask::Command(server, command)).await {
            Answer::Reply(reply) => reply,
            other => unreachable!("a command was answered by {other:?}"),
        }
    }

    /// Reads the clock of the process as a part of what the thread does next. Use this for a time that is read right
    /// before a command is sent: a pause after the reading is a command that arrives late, and a pause before the reading
    /// is a thread that began later. The search does not have to try both.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.port.clock_ms(self.thread)
    }

    /// Reads the clock of the process, in milliseconds. The thread can pause before the reading.
    pub async fn now_ms(&self) -> u64 {
        match self.port.ask(self.thread, Ask::Clock).await {
            Answer::Clock(now_ms) => now_ms,
            other => unreachable!("the clock was answered by {other:?}"),
        }
    }

    /// Waits for this time.
    pub async fn sleep_ms(&self, ms: u64) {
        self.port.ask(self.thread, Ask::Sleep(ms)).await;
    }

    /// Waits for a message on the channels that the thread subscribed to. Returns `None` after `limit_ms`.
    pub async fn message(&self, limit_ms: u64) -> Option<Message> {
        match self.port.ask(self.thread, Ask::Message(limit_ms)).await {
            Answer::Message(message) => message,
            other => unreachable!("a message was answered by {other:?}"),
        }
    }

    /// Writes to the resource that the lock protects.
    pub async fn write(&self, held: Held) {
        self.port.ask(self.thread, Ask::Write(held.token)).await;
    }

    /// Starts another thread in the process, and returns its number.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, body: impl FnOnce(Self) -> F + 'static) -> ThreadId {
        self.port.spawn(self.thread, Box::new(move |client| Box::pin(body(client))))
    }

    /// Ends a thread that [`spawn`](Self::spawn) has started.
    pub fn stop(&self, thread: ThreadId) {
        self.port.stop(thread);
    }

    /// Returns a random text that nobody else has.
    #[must_use]
    pub fn unique(&self) -> String {
        format!("{:08x}", self.port.random(self.thread))
    }

    /// Returns a random number that nobody else has.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.port.random(self.thread)
    }

    /// Reports to the judge.
    pub fn mark(&self, mark: Mark) {
        self.port.mark(self.thread, mark);
    }
}
