//! The live world, as its threads see it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::gate::{self, Turn};
use super::wire::Connection;
use crate::client::{Answer, Ask, Client, Local, Mark, NoReply, Port, ServerId, ThreadId, unique_number};
use crate::judge::{Harm, Judge};
use crate::redis::{BEGINNING_MS, Command, Message, Reply};

/// The state that the director and the threads share.
pub(super) struct Live {
    pub(super) began: Instant,
    pub(super) judge: Judge,
    pub(super) harm: Vec<Harm>,
    pub(super) processes: Vec<Process>,
    pub(super) threads: Vec<Thread>,
    /// The socket of each server. `None` if the server is stopped.
    pub(super) sockets: Vec<Option<PathBuf>>,
    /// Notified whenever a thread asks, or ends.
    pub(super) changed: Rc<Notify>,
}

pub(super) struct Process {
    pub(super) ahead_ms: u64,
    pub(super) random: u64,
}

pub(super) struct Thread {
    pub(super) process: usize,
    pub(super) number: usize,
    /// The kinds of all asks so far.
    pub(super) asks: Vec<Kind>,
    pub(super) has_ended: bool,
    pub(super) turn: Rc<Turn>,
    pub(super) task: Option<JoinHandle<()>>,
}

/// The kind of an ask, for the director.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command, which takes effect when the schedule says so.
    Command,
    /// Another ask that takes effect when the schedule says so.
    Scheduled,
    /// The ask ends by itself, when its time is over.
    Sleep,
}

impl Live {
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn add_thread(&mut self, process: usize) -> ThreadId {
        let number = 1 + self.threads.iter().filter(|thread| thread.process == process).count();
        let (asks, turn) = (vec![], Rc::default());
        self.threads.push(Thread { process, number, asks, has_ended: false, turn, task: None });
        self.threads.len() - 1
    }
}

/// The port of all threads.
#[derive(Clone)]
pub(super) struct LivePort {
    live: Rc<RefCell<Live>>,
    connections: Connections,
}

/// The connections of each thread. A connection is opened when it is first used, and again after an error.
type Connections = Rc<RefCell<BTreeMap<(ThreadId, ServerId, Purpose), Connection<UnixStream>>>>;

/// The purpose of a connection. Redis takes no other commands on a connection that has subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Commands,
    Messages,
}

impl LivePort {
    pub(super) fn new(live: Rc<RefCell<Live>>) -> Self {
        Self { live, connections: Rc::default() }
    }

    /// Starts the body of a thread.
    pub(super) fn start(&self, thread: ThreadId, body: impl FnOnce(Client) -> Local<()> + 'static) {
        let client = Client::new(Rc::new(self.clone()), thread);
        let live = Rc::clone(&self.live);
        let task = tokio::task::spawn_local(async move {
            body(client).await;
            let mut live = live.borrow_mut();
            live.threads[thread].has_ended = true;
            live.changed.notify_waiters();
        });
        self.live.borrow_mut().threads[thread].task = Some(task);
    }
}

impl Port for LivePort {
    fn ask(&self, thread: ThreadId, ask: Ask) -> Local<Answer> {
        let port = self.clone();
        {
            let mut live = self.live.borrow_mut();
            let kind = match ask {
                Ask::Sleep(ms) if ms > 0 => Kind::Sleep,
                Ask::Command(..) => Kind::Command,
                _ => Kind::Scheduled,
            };
            live.threads[thread].asks.push(kind);
            live.changed.notify_waiters();
        }
        Box::pin(async move { port.answer(thread, ask).await })
    }

    fn mark(&self, thread: ThreadId, mark: Mark) {
        let mut live = self.live.borrow_mut();
        let now_ms = live.now_ms();
        let ahead_ms = live.processes[live.threads[thread].process].ahead_ms;
        let mark = mark.in_true_time(ahead_ms);
        let harm = live.judge.mark(now_ms, thread, mark);
        live.harm.extend(harm);
    }

    fn clock_ms(&self, thread: ThreadId) -> u64 {
        let live = self.live.borrow();
        BEGINNING_MS + live.now_ms() + live.processes[live.threads[thread].process].ahead_ms
    }

    fn spawn(&self, thread: ThreadId, body: Box<dyn FnOnce(Client) -> Local<()>>) -> ThreadId {
        let process = self.live.borrow().threads[thread].process;
        let thread = self.live.borrow_mut().add_thread(process);
        self.start(thread, body);
        thread
    }

    fn stop(&self, thread: ThreadId) {
        let mut live = self.live.borrow_mut();
        live.threads[thread].has_ended = true;
        if let Some(task) = live.threads[thread].task.take() {
            task.abort();
        }
    }

    fn random(&self, thread: ThreadId) -> u64 {
        let mut live = self.live.borrow_mut();
        let process = live.threads[thread].process;
        live.processes[process].random += 1;
        unique_number(process, live.processes[process].random)
    }

    fn number(&self, thread: ThreadId) -> usize {
        self.live.borrow().threads[thread].number
    }
}

impl LivePort {
    async fn answer(&self, thread: ThreadId, ask: Ask) -> Answer {
        let turn = Rc::clone(&self.live.borrow().threads[thread].turn);
        match ask {
            Ask::Command(server, command) => {
                Answer::Reply(self.call(thread, server, &command).await.map_err(|_| NoReply))
            }
            Ask::Clock => {
                turn.pass().await;
                Answer::Clock(self.clock_ms(thread))
            }
            Ask::Sleep(0) => {
                turn.pass().await;
                Answer::Awake
            }
            Ask::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Answer::Awake
            }
            Ask::Message(limit_ms) => Answer::Message(self.message(thread, Duration::from_millis(limit_ms)).await),
            Ask::Write(token) => {
                turn.pass().await;
                let mut live = self.live.borrow_mut();
                let (_, harm) = live.judge.write(thread, token);
                live.harm.extend(harm);
                Answer::Written
            }
        }
    }

    async fn call(&self, thread: ThreadId, server: ServerId, command: &Command) -> io::Result<Reply> {
        let purpose = match command {
            Command::Subscribe(_) => Purpose::Messages,
            _ => Purpose::Commands,
        };
        let known = self.connections.borrow_mut().remove(&(thread, server, purpose));
        let mut connection = match known {
            Some(connection) => connection,
            None => self.connect(thread, server)?,
        };
        let reply = connection.call(command).await?;
        self.connections.borrow_mut().insert((thread, server, purpose), connection);
        Ok(reply)
    }

    /// Waits for a message of the first server.
    async fn message(&self, thread: ThreadId, limit: Duration) -> Option<Message> {
        let mut connection = self.connections.borrow_mut().remove(&(thread, 0, Purpose::Messages))?;
        let received = tokio::time::timeout(limit, connection.message()).await;
        if !matches!(received, Ok(Err(_))) {
            self.connections.borrow_mut().insert((thread, 0, Purpose::Messages), connection);
        }
        received.ok()?.ok()
    }

    fn connect(&self, thread: ThreadId, server: ServerId) -> io::Result<Connection<UnixStream>> {
        let (near, far) = UnixStream::pair()?;
        let live = Rc::clone(&self.live);
        let turn = Rc::clone(&live.borrow().threads[thread].turn);
        let socket = move || live.borrow().sockets[server].clone();
        tokio::task::spawn_local(gate::serve(far, socket, turn));
        Ok(Connection::new(near))
    }
}
