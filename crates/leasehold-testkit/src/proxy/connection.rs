//! One connection through the proxy: two streams, two lanes, four threads.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::control::{Direction, Shared, Verdict};
use super::fault::{Command, ReplyFault};
use super::lane::{Lane, Parcel};
use super::replies::{Arrived, Replies};
use crate::clock::boottime_us;
use crate::resp::Value;

const CONNECT: Duration = Duration::from_secs(1);
/// How often a write to a receiver that does not read checks whether the connection was cut.
const WRITE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    client: TcpStream,
    server: TcpStream,
    to_server: Lane,
    to_client: Lane,
    replies: Mutex<Replies<Option<ReplyFault>>>,
    /// Whether the client gets nothing more.
    is_mute: AtomicBool,
}

impl Connection {
    /// Connects a client to the server and forwards everything until one of them hangs up.
    pub(super) fn open(shared: &Arc<Shared>, id: u64, client: TcpStream, target: u16) -> io::Result<()> {
        let server = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, target)), CONNECT);
        let server = match server.and_then(|server| prepare(&client, server)) {
            Ok(server) => server,
            Err(e) => {
                refuse(client);
                return Err(e);
            }
        };
        let connection = Arc::new(Self {
            id,
            client,
            server,
            to_server: Lane::new(Direction::ToServer),
            to_client: Lane::new(Direction::ToClient),
            replies: Mutex::new(Replies::new()),
            is_mute: AtomicBool::new(false),
        });
        shared.change(|control| {
            control.seen.accepted += 1;
            control.seen.open += 1;
            control.connections.insert(id, Arc::clone(&connection));
        });
        for work in [Self::read_client, Self::write_server, Self::read_server, Self::write_client] {
            let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
            let thread = thread::Builder::new().name(format!("proxy-{id}"));
            thread.spawn(move || work(&connection, &shared)).expect("the system has threads left");
        }
        Ok(())
    }

    /// Breaks the connection: the client sees a reset. The server sees an end of stream, so that it still carries out
    /// what it has received. Returns whether the connection was still there.
    pub(super) fn cut(&self, shared: &Shared) -> Cut {
        let Cut::Now = self.forget(shared) else { return Cut::Before };
        // With a linger of zero the last close sends a reset. Only reading is shut down before, which sends nothing.
        let _ = set_socket_linger(&self.client, Some(Duration::ZERO));
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
        shared.change(|control| control.seen.cut += 1);
        Cut::Now
    }

    pub(super) fn recheck(&self) {
        self.to_server.recheck();
        self.to_client.recheck();
    }

    /// Ends both lanes. The first caller also sees to the streams.
    fn forget(&self, shared: &Shared) -> Cut {
        // The connection leaves the list before the lanes end: the thread that sees its lane end comes here too, and must
        // be second.
        let was = shared.change(|control| {
            let was = control.connections.remove(&self.id);
            control.seen.open -= u64::from(was.is_some());
            was
        });
        self.to_server.cut();
        self.to_client.cut();
        if was.is_some() { Cut::Now } else { Cut::Before }
    }

    fn read_client(&self, shared: &Shared) {
        let read = each_value(&self.client, |value, bytes| self.request(shared, value, bytes));
        self.end_reading(shared, read);
        self.to_server.finish();
    }

    fn write_server(&self, shared: &Shared) {
        self.to_server.deliver(shared, &self.server);
        let _ = self.server.shutdown(Shutdown::Write);
    }

    fn read_server(&self, shared: &Shared) {
        let read = each_value(&self.server, |value, bytes| self.arrival(shared, value, bytes));
        self.end_reading(shared, read);
        self.to_client.finish();
    }

    fn write_client(&self, shared: &Shared) {
        self.to_client.deliver(shared, &self.client);
        // The server has hung up, and the client has got everything that the server sent.
        if let Cut::Now = self.forget(shared) {
            let _ = self.client.shutdown(Shutdown::Both);
            let _ = self.server.shutdown(Shutdown::Both);
        }
    }

    fn end_reading(&self, shared: &Shared, read: Result<(), Stop>) {
        if read == Err(Stop::Garbled) {
            shared.change(|control| control.seen.garbled += 1);
            self.cut(shared);
        }
    }

    /// Handles a request.
    fn request(&self, shared: &Shared, value: &Value, bytes: &[u8]) -> Result<(), Stop> {
        let command = command(self.id, value)?;
        match shared.change(|control| control.judge(&command)) {
            Verdict::Forward { due, held_by } => {
                // Before the request leaves: the reply could otherwise arrive first.
                self.replies().ask(command);
                self.to_server.push(Parcel::new(bytes.to_vec(), due, held_by));
            }
            Verdict::Answer(answer) => {
                let mut replies = self.replies();
                replies.answer(command, answer);
                self.answer_in_turn(shared, &mut replies);
            }
            Verdict::Cut => {
                self.cut(shared);
                return Err(Stop::Cut);
            }
        }
        Ok(())
    }

    /// Handles a value from the server.
    fn arrival(&self, shared: &Shared, value: &Value, bytes: &[u8]) -> Result<(), Stop> {
        let mut replies = self.replies();
        if self.is_mute.load(Ordering::Relaxed) {
            return Ok(());
        }
        let pass = |bytes: Vec<u8>| {
            let due = shared.change(|control| control.due());
            self.to_client.push(Parcel::new(bytes, due, None));
        };
        match replies.arrived(value, |command| shared.change(|control| control.judge_reply(command))) {
            Arrived::Push => {
                if !shared.change(|control| control.drops_push()) {
                    pass(bytes.to_vec());
                }
            }
            Arrived::Unasked | Arrived::Part(None) | Arrived::Reply(None) => pass(bytes.to_vec()),
            Arrived::Part(Some(ReplyFault::Cut)) | Arrived::Reply(Some(ReplyFault::Cut)) => {
                self.cut(shared);
                return Err(Stop::Cut);
            }
            Arrived::Part(Some(ReplyFault::Mute)) | Arrived::Reply(Some(ReplyFault::Mute)) => {
                self.is_mute.store(true, Ordering::Relaxed);
                return Ok(());
            }
            Arrived::Part(Some(_)) | Arrived::Reply(Some(ReplyFault::Drop)) => {}
            Arrived::Reply(Some(ReplyFault::Replace(with))) => pass(with),
        }
        self.answer_in_turn(shared, &mut replies);
        Ok(())
    }

    fn answer_in_turn(&self, shared: &Shared, replies: &mut Replies<Option<ReplyFault>>) {
        while let Some(answer) = replies.our_turn() {
            let due = shared.change(|control| control.due());
            self.to_client.push(Parcel::new(answer, due, None));
        }
    }

    fn replies(&self) -> MutexGuard<'_, Replies<Option<ReplyFault>>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection was cut now, or had ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Now,
    Before,
}

/// Ends a client's connection with a reset.
pub(super) fn refuse(client: TcpStream) {
    let _ = set_socket_linger(&client, Some(Duration::ZERO));
    drop(client);
}

fn prepare(client: &TcpStream, server: TcpStream) -> io::Result<TcpStream> {
    for stream in [client, &server] {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE))?;
    }
    Ok(server)
}

/// Why a stream is read no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Not RESP, or not what a client sends.
    Garbled,
    /// A fault has cut the connection.
    Cut,
}

/// Reads a stream to its end, value by value.
fn each_value(mut stream: &TcpStream, mut take: impl FnMut(&Value, &[u8]) -> Result<(), Stop>) -> Result<(), Stop> {
    let mut unread = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => unread.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // A reset ends a stream like an end of stream: the bytes before it were sent.
            Err(_) => return Ok(()),
        }
        let mut at = 0;
        while let Some((value, len)) = Value::parse(&unread[at..]).map_err(|_| Stop::Garbled)? {
            take(&value, &unread[at..at + len])?;
            at += len;
        }
        unread.drain(..at);
    }
}

fn command(connection: u64, value: &Value) -> Result<Command, Stop> {
    let Value::Array(words) = value else { return Err(Stop::Garbled) };
    let mut words = words.iter().map(|word| match word {
        Value::Bulk(word) => Ok(word.clone()),
        _ => Err(Stop::Garbled),
    });
    let name = words.next().ok_or(Stop::Garbled)??;
    let name = String::from_utf8_lossy(&name).to_ascii_uppercase();
    Ok(Command { connection, at_us: boottime_us(), name, arguments: words.collect::<Result<_, _>>()? })
}
