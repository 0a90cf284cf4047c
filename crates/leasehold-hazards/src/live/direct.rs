//! A world without a gate: every ask takes effect at once, on real servers.
//!
//! Nobody chooses a schedule here, and nobody judges. This is the world of an application that uses a specimen, such as the
//! example `shop`. Random numbers are random, the clock is that of the machine, and marks are ignored.
//!
//! All threads of a [`Process`] are tasks of one [`LocalSet`](tokio::task::LocalSet), because the futures of a specimen
//! stay on their thread. They share connections as an application does: a command takes an idle one, or opens another one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::wire;
use crate::client::{Answer, Ask, Client, Local, Mark, NoReply, Port, ServerId, ThreadId};
use crate::redis::{Command, Message, Reply};

/// The time in which a server must reply.
const REPLIES_WITHIN: Duration = Duration::from_secs(5);

type Connection = wire::Connection<TcpStream>;

/// A process whose threads use real servers.
#[derive(Clone)]
pub struct Process(Rc<Shared>);

struct Shared {
    servers: Vec<String>,
    threads: Cell<usize>,
    /// The threads that [`Client::spawn`] has started.
    tasks: RefCell<BTreeMap<ThreadId, AbortHandle>>,
    idle: RefCell<BTreeMap<ServerId, Vec<Connection>>>,
    /// Redis takes no other commands on a connection that has subscribed, so a thread has one of its own for that.
    subscribed: RefCell<BTreeMap<ThreadId, Connection>>,
    limits: RefCell<BTreeMap<ThreadId, Rc<Limit>>>,
}

/// The end of the time for which a thread waits.
struct Limit {
    at: Instant,
    is_over: Notify,
}

impl Process {
    /// Makes a process that knows these servers. Each is a host and a port.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Self(Rc::new(Shared {
            servers,
            threads: Cell::default(),
            tasks: RefCell::default(),
            idle: RefCell::default(),
            subscribed: RefCell::default(),
            limits: RefCell::default(),
        }))
    }

    /// Makes the client of another thread.
    #[must_use]
    pub fn client(&self) -> Client {
        let thread = self.0.threads.replace(self.0.threads.get() + 1);
        Client::new(Rc::new(self.clone()), thread)
    }

    /// Waits for at most `limit`, and returns `None` if the time is over.
    ///
    /// The wait ends while its thread sleeps or waits for a message: between two tries, and never between a command and its
    /// reply. Otherwise a thread that gave up could have acquired the lock, and nobody would know it.
    pub async fn within<T>(&self, client: &Client, limit: Duration, wait: impl Future<Output = T>) -> Option<T> {
        let limit = Rc::new(Limit { at: Instant::now() + limit, is_over: Notify::new() });
        self.0.limits.borrow_mut().insert(client.thread(), Rc::clone(&limit));
        let result = tokio::select! {
            biased;
            result = wait => Some(result),
            () = limit.is_over.notified() => None,
        };
        self.0.limits.borrow_mut().remove(&client.thread());
        result
    }

    /// Waits for something that may be given up.
    async fn pause<T>(&self, thread: ThreadId, until: impl Future<Output = T>) -> T {
        let limit = self.0.limits.borrow().get(&thread).cloned();
        let Some(limit) = limit else { return until.await };
        tokio::select! {
            biased;
            () = sleep_until(limit.at) => {
                limit.is_over.notify_one();
                pending().await
            }
            result = until => result,
        }
    }

    async fn answer(&self, thread: ThreadId, ask: Ask) -> Answer {
        match ask {
            Ask::Command(server, command) => {
                let reply = timeout(REPLIES_WITHIN, self.call(thread, server, &command)).await;
                Answer::Reply(reply.map_or(Err(NoReply), |reply| reply.map_err(|_| NoReply)))
            }
            Ask::Clock => Answer::Clock(self.clock_ms(thread)),
            Ask::Sleep(ms) => {
                self.pause(thread, sleep(Duration::from_millis(ms))).await;
                Answer::Awake
            }
            Ask::Message(limit_ms) => {
                let message = self.message(thread, Duration::from_millis(limit_ms));
                Answer::Message(self.pause(thread, message).await)
            }
            Ask::Write(_) => Answer::Written,
        }
    }

    async fn call(&self, thread: ThreadId, server: ServerId, command: &Command) -> io::Result<Reply> {
        match command {
            Command::Step(..) | Command::Vote(..) => Err(io::ErrorKind::Unsupported.into()),
            Command::Subscribe(_) => {
                let known = self.0.subscribed.borrow_mut().remove(&thread);
                let mut connection = self.or_connect(known, server).await?;
                let reply = connection.call(command).await?;
                // The messages of earlier waits say nothing about this one.
                connection.forget_messages();
                self.0.subscribed.borrow_mut().insert(thread, connection);
                Ok(reply)
            }
            _ => {
                let known = self.0.idle.borrow_mut().entry(server).or_default().pop();
                let mut connection = self.or_connect(known, server).await?;
                let reply = connection.call(command).await?;
                self.0.idle.borrow_mut().entry(server).or_default().push(connection);
                Ok(reply)
            }
        }
    }

    async fn or_connect(&self, known: Option<Connection>, server: ServerId) -> io::Result<Connection> {
        if let Some(connection) = known {
            return Ok(connection);
        }
        let address = self.0.servers.get(server).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection::new(stream))
    }

    async fn message(&self, thread: ThreadId, limit: Duration) -> Option<Message> {
        let known = self.0.subscribed.borrow_mut().remove(&thread);
        let Some(mut connection) = known else {
            sleep(limit).await;
            return None;
        };
        let received = timeout(limit, connection.message()).await;
        if !matches!(received, Ok(Err(_))) {
            self.0.subscribed.borrow_mut().insert(thread, connection);
        }
        received.ok()?.ok()
    }

    fn ended(&self, thread: ThreadId) {
        self.0.tasks.borrow_mut().remove(&thread);
        self.0.subscribed.borrow_mut().remove(&thread);
    }
}

impl Port for Process {
    fn ask(&self, thread: ThreadId, ask: Ask) -> Local<Answer> {
        let process = self.clone();
        Box::pin(async move { process.answer(thread, ask).await })
    }

    fn mark(&self, _thread: ThreadId, _mark: Mark) {}

    fn clock_ms(&self, _thread: ThreadId) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn spawn(&self, _thread: ThreadId, body: Box<dyn FnOnce(Client) -> Local<()>>) -> ThreadId {
        let (client, process) = (self.client(), self.clone());
        let thread = client.thread();
        let task = spawn_local(async move {
            body(client).await;
            process.ended(thread);
        });
        self.0.tasks.borrow_mut().insert(thread, task.abort_handle());
        thread
    }

    fn stop(&self, thread: ThreadId) {
        let task = self.0.tasks.borrow_mut().remove(&thread);
        if let Some(task) = task {
            task.abort();
        }
        self.ended(thread);
    }

    fn random(&self, thread: ThreadId) -> u64 {
        RandomState::new().hash_one(thread)
    }

    fn number(&self, thread: ThreadId) -> usize {
        thread + 1
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("servers", &self.0.servers).finish_non_exhaustive()
    }
}
