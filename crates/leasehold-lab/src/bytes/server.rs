//! The simulated server: the front of the test kit behind a listener of turmoil's, and the faults of its bytes.
//!
//! The code that injects faults is outside the simulation and changes [`Server`] between two ticks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use leasehold_testkit::Random;
use leasehold_testkit::front::{Client, Front, Mood, What, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

use super::trace::Trace;
use super::world::{Clock, wall_us};

pub(super) const HOST: &str = "redis";
pub(super) const PORT: u16 = 6379;

/// The server, as the code that injects its faults sees it.
pub(super) struct Server {
    pub(super) front: RefCell<Front>,
    pub(super) trace: Trace,
    clock: Clock,
    random: RefCell<Random>,
    connections: RefCell<BTreeMap<Client, Connection>>,
    /// Nothing is read until this time.
    pub(super) frozen_until_us: Cell<u64>,
    /// How many of a hundred replies are sent in pieces.
    pub(super) split_percent: Cell<u64>,
    /// How many connections break within their next reply.
    pub(super) cuts: Cell<u64>,
    /// How many of the next messages to inboxes are lost.
    pub(super) lost_pushes: Cell<u64>,
}

/// A connection.
struct Connection {
    out: UnboundedSender<Out>,
    /// Nothing is read from it until this time.
    stalled_until_us: u64,
}

enum Out {
    Bytes(Vec<u8>),
    /// This many bytes of it, and then the connection ends.
    Cut(Vec<u8>),
    Close,
}

impl Server {
    pub(super) fn new(clock: &Clock, trace: &Trace, mut random: Random) -> Rc<Self> {
        let front = Front::new(u128::from(random.number()));
        Rc::new(Self {
            front: RefCell::new(front),
            trace: trace.clone(),
            clock: clock.clone(),
            random: RefCell::new(random),
            connections: RefCell::default(),
            frozen_until_us: Cell::new(0),
            split_percent: Cell::new(0),
            cuts: Cell::new(0),
            lost_pushes: Cell::new(0),
        })
    }

    /// Runs the program on its host. It starts anew when the host does.
    pub(super) async fn run(self: Rc<Self>) -> turmoil::Result {
        self.connections.borrow_mut().clear();
        let run = u128::from(self.random.borrow_mut().number());
        self.front.borrow_mut().restart(run);
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            self.serve(stream);
        }
    }

    /// Does `CLIENT KILL` for one connection. Returns whether there was one.
    pub(super) fn kill_one(&self) -> bool {
        self.with_one(|connection| drop(connection.out.send(Out::Close)))
    }

    /// Stops reading from one connection for this time, including all that is in its buffers.
    pub(super) fn stall_one(&self, for_us: u64) -> bool {
        let until_us = self.clock.now_us() + for_us;
        self.with_one(|connection| connection.stalled_until_us = until_us)
    }

    fn with_one(&self, change: impl FnOnce(&mut Connection)) -> bool {
        let mut connections = self.connections.borrow_mut();
        if connections.is_empty() {
            return false;
        }
        let at = self.random.borrow_mut().index(connections.len());
        connections.values_mut().nth(at).map(change).is_some()
    }

    fn serve(self: &Rc<Self>, stream: TcpStream) {
        let client = self.front.borrow_mut().connect();
        let (out, outgoing) = unbounded_channel();
        self.connections.borrow_mut().insert(client, Connection { out, stalled_until_us: 0 });
        let (read, write) = stream.into_split();
        let reading = Rc::clone(self);
        let reader = tokio::task::spawn_local(async move {
            reading.read(client, read).await;
            reading.forget(client);
        });
        let writing = Rc::clone(self);
        tokio::task::spawn_local(async move {
            writing.write(write, outgoing).await;
            // The other half of a broken connection is useless.
            reader.abort();
            writing.forget(client);
        });
    }

    fn forget(&self, client: Client) {
        self.front.borrow_mut().hang_up(client);
        self.connections.borrow_mut().remove(&client);
    }

    async fn read(&self, client: Client, mut stream: OwnedReadHalf) {
        let mut unread = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        loop {
            while let Ok(Some((args, len))) = request(&unread) {
                unread.drain(..len);
                self.thaw(client).await;
                self.answer(client, &args);
            }
            match stream.read(&mut chunk).await {
                Ok(len) if len > 0 => unread.extend_from_slice(&chunk[..len]),
                _ => return,
            }
        }
    }

    /// Waits until the server, and this connection, continue.
    async fn thaw(&self, client: Client) {
        loop {
            let stalled_until_us =
                self.connections.borrow().get(&client).map_or(0, |connection| connection.stalled_until_us);
            let until_us = stalled_until_us.max(self.frozen_until_us.get());
            let left_us = until_us.saturating_sub(self.clock.now_us());
            if left_us == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_micros(left_us)).await;
        }
    }

    fn answer(&self, client: Client, args: &[Vec<u8>]) {
        for arg in args {
            // A script has 20 kB; its beginning and its length identify it.
            self.trace.bytes("in", &arg[..arg.len().min(200)]);
            self.trace.bytes("of", &arg.len().to_le_bytes());
        }
        let sent = self.front.borrow_mut().answer(client, wall_us(&self.clock), args);
        let connections = self.connections.borrow();
        for sent in sent {
            self.trace.bytes("out", &sent.bytes);
            // The proof of an inbox is never lost: without it there is no connection.
            if sent.what == What::Push && take_one(&self.lost_pushes) {
                self.trace.record("lose push", &String::from_utf8_lossy(&sent.bytes[..1]));
                continue;
            }
            let Some(connection) = connections.get(&sent.to) else { continue };
            let is_cut = take_one(&self.cuts);
            // The writer may have ended with its connection.
            let _ = connection.out.send(if is_cut { Out::Cut(sent.bytes) } else { Out::Bytes(sent.bytes) });
        }
    }

    async fn write(&self, mut stream: OwnedWriteHalf, mut outgoing: UnboundedReceiver<Out>) {
        while let Some(out) = outgoing.recv().await {
            let (bytes, is_last) = match out {
                Out::Bytes(bytes) => (bytes, false),
                Out::Cut(mut bytes) => {
                    let keep = self.random.borrow_mut().index(bytes.len());
                    bytes.truncate(keep);
                    self.trace.record("cut reply", &keep.to_string());
                    (bytes, true)
                }
                Out::Close => (Vec::new(), true),
            };
            if self.in_pieces(&mut stream, &bytes).await.is_err() || is_last {
                return;
            }
        }
    }

    /// Writes, sometimes with a pause at any byte.
    async fn in_pieces(&self, stream: &mut OwnedWriteHalf, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let (mut len, mut pause_ms) = (bytes.len(), 0);
            if self.random.borrow_mut().chance(self.split_percent.get()) {
                len = 1 + self.random.borrow_mut().index(bytes.len());
                pause_ms = self.random.borrow_mut().within(1, 20);
                self.trace.record("split reply", &len.to_string());
            }
            stream.write_all(&bytes[..len]).await?;
            if pause_ms > 0 {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
            bytes = &bytes[len..];
        }
        Ok(())
    }

    /// Sets the abnormal replies of a server in trouble.
    pub(super) fn set_mood(&self, mood: Mood) {
        self.front.borrow_mut().mood = mood;
    }
}

fn take_one(left: &Cell<u64>) -> bool {
    let before = left.get();
    left.set(before.saturating_sub(1));
    before > 0
}
