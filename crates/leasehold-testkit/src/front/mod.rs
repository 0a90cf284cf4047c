//! A Redis that has nothing but Leasehold's scripts, implemented by [`step`](leasehold_spec::step). A client exchanges
//! the same bytes with it as with a real Redis.
//!
//! It does no I/O and has no clock. The caller passes a request of a connection and the time, and gets the bytes to
//! write, with their receivers, in order. So the same front serves a simulated network, where a seed decides when each
//! byte moves, and a real listener that a test makes misbehave after the fifth answer.
//!
//! Its answers about mutexes are equal to those of Redis, to the byte: `tests/front.rs` sends the same requests to both.
//! Those about pools say the same, but it knows when a lease ends where Redis knows a bound (`pool.rs`). That includes
//! facts that `step` does not model, such as whether a record is a string or a hash, since the scripts have shorter
//! answers for a string. It knows the commands that the client sends (`handshake.rs`, `link.rs` and `call.rs` of the
//! library), and no other part of Redis.
//!
//! A flaw that is switched on in `step` is a flaw of this server, too.

mod decode;
mod pool;
mod reply;
mod run;

use std::collections::{BTreeMap, BTreeSet};

use leasehold::seam::{Family, Flags, Script};

use self::reply::{array, bulk, error, int, map, push, status};
use self::run::Record;
use crate::resp::{Garbled, Value};

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(u64);

/// Bytes for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The receiver.
    pub to: Client,
    /// Their kind.
    pub what: What,
    /// A whole reply, or a whole message.
    pub bytes: Vec<u8>,
}

/// The kind of bytes sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The answer to the request.
    Reply,
    /// A message that a client published: a session's proof of its inbox.
    Published,
    /// A message that a script published: a grant, or a revocation.
    Push,
}

/// The present state of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// A primary that answers.
    #[default]
    Primary,
    /// A replica, which writes nothing.
    Replica,
    /// Loading its data, and running no script.
    Loading,
    /// Its memory is full.
    Full,
}

/// The server.
#[derive(Debug)]
pub struct Front {
    /// Its present state.
    pub mood: Mood,
    run: String,
    records: BTreeMap<String, Record>,
    known: BTreeSet<&'static str>,
    clients: BTreeMap<Client, Seat>,
    clients_ever: u64,
}

/// The server's state of a connection.
#[derive(Debug, Default)]
struct Seat {
    protocol: Protocol,
    channels: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Protocol {
    #[default]
    Two,
    Three,
}

/// A command and its arguments.
pub type Words = Vec<Vec<u8>>;

/// Parses the request that `bytes` begin with. Returns it with its length; `None` if its end has not arrived.
pub fn request(bytes: &[u8]) -> Result<Option<(Words, usize)>, Garbled> {
    let Some((value, len)) = Value::parse(bytes)? else { return Ok(None) };
    let word = |value: &Value| match value {
        Value::Bulk(word) => word.clone(),
        _ => Vec::new(),
    };
    Ok(Some((value.items().unwrap_or_default().iter().map(word).collect(), len)))
}

impl Front {
    /// Starts a server with no data. Its run ID is 40 hexadecimal digits.
    #[must_use]
    pub fn new(run: u128) -> Self {
        Self {
            mood: Mood::Primary,
            run: format!("{run:040x}"),
            records: BTreeMap::new(),
            known: BTreeSet::new(),
            clients: BTreeMap::new(),
            clients_ever: 0,
        }
    }

    /// Opens a connection.
    pub fn connect(&mut self) -> Client {
        self.clients_ever += 1;
        let client = Client(self.clients_ever);
        self.clients.insert(client, Seat::default());
        client
    }

    /// Closes a connection.
    pub fn hang_up(&mut self, client: Client) {
        self.clients.remove(&client);
    }

    /// Does a `SCRIPT FLUSH`.
    pub fn flush_scripts(&mut self) {
        self.known.clear();
    }

    /// Does a `FLUSHALL`, or a restart of a server that keeps nothing.
    pub fn flush_records(&mut self) {
        self.records.clear();
    }

    /// Ends the process and starts another with its data. No client is connected, and no script is loaded.
    pub fn restart(&mut self, run: u128) {
        self.run = format!("{run:040x}");
        self.clients.clear();
        self.known.clear();
    }

    /// Returns the channels that have subscribers.
    #[must_use]
    pub fn channels(&self) -> Vec<String> {
        self.clients.values().flat_map(|seat| seat.channels.iter().cloned()).collect()
    }

    /// Executes a request of a connection at a time of the server's clock. Returns the bytes to write and their
    /// receivers, in order.
    pub fn answer(&mut self, client: Client, now_us: u64, request: &[Vec<u8>]) -> Vec<Sent> {
        let mut sent = Vec::new();
        if !self.clients.contains_key(&client) {
            return sent; // The connection was killed while its request was read.
        }
        let bytes = self.carry_out(client, now_us, request, &mut sent);
        sent.push(Sent { to: client, what: What::Reply, bytes });
        sent
    }

    fn carry_out(&mut self, client: Client, now_us: u64, request: &[Vec<u8>], sent: &mut Vec<Sent>) -> Vec<u8> {
        let words: Vec<&str> = request.iter().map(|word| str::from_utf8(word).unwrap_or_default()).collect();
        let Some((name, rest)) = words.split_first() else { return error("ERR an empty request") };
        match (name.to_ascii_uppercase().as_str(), rest) {
            ("HELLO", ["3", ..]) => self.hello(client),
            ("SELECT", ["0"]) | ("AUTH", [..]) => status("OK"),
            ("PING", []) => status("PONG"),
            ("CLIENT", ["SETINFO" | "SETNAME", ..]) => status("OK"),
            ("ROLE", []) => self.role(),
            ("INFO", ["server"]) => self.info(),
            ("TIME", []) => array(&[bulk(&(now_us / 1_000_000).to_string()), bulk(&(now_us % 1_000_000).to_string())]),
            ("SUBSCRIBE", [channel]) => self.subscribe(client, channel),
            ("UNSUBSCRIBE", [channel]) => self.unsubscribe(client, channel),
            ("PUBLISH", [channel, text]) => {
                let receivers = self.publish(channel, text, What::Published, sent);
                int(receivers)
            }
            ("SCAN", ["0", ..]) => {
                let keys: Vec<Vec<u8>> = self.records.keys().map(|key| bulk(key)).collect();
                array(&[bulk("0"), array(&keys)])
            }
            ("SCRIPT", ["FLUSH"]) => {
                self.flush_scripts();
                status("OK")
            }
            ("SCRIPT", ["LOAD", source]) => match self.load(source) {
                Some(sha) => bulk(sha),
                None => error(NOT_OURS),
            },
            ("EVALSHA", [sha, rest @ ..]) => match self.known.get(*sha).copied() {
                Some(sha) => self.eval(sha, now_us, rest, sent),
                None => error("NOSCRIPT No matching script. Please use EVAL."),
            },
            ("EVAL", [source, rest @ ..]) => match self.load(source) {
                Some(sha) => self.eval(sha, now_us, rest, sent),
                None => error(NOT_OURS),
            },
            _ => error(&format!("ERR unknown command '{name}'")),
        }
    }

    fn hello(&mut self, client: Client) -> Vec<u8> {
        self.clients.entry(client).or_default().protocol = Protocol::Three;
        map(&[
            ("server", bulk("redis")),
            ("version", bulk(VERSION)),
            ("proto", int(3)),
            ("id", int(client.0)),
            ("mode", bulk("standalone")),
            ("role", bulk(if self.mood == Mood::Replica { "replica" } else { "master" })),
            ("modules", array(&[])),
        ])
    }

    fn role(&self) -> Vec<u8> {
        match self.mood {
            Mood::Replica => array(&[bulk("slave"), bulk("primary"), int(6379), bulk("connected"), int(0)]),
            _ => array(&[bulk("master"), int(0), array(&[])]),
        }
    }

    /// RESP3 has a type for text with its format.
    fn info(&self) -> Vec<u8> {
        let text =
            format!("txt:# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nrun_id:{}\r\n", self.run);
        format!("={}\r\n{text}\r\n", text.len()).into_bytes()
    }

    fn subscribe(&mut self, client: Client, channel: &str) -> Vec<u8> {
        let seat = self.clients.entry(client).or_default();
        seat.channels.insert(channel.to_owned());
        let items = [bulk("subscribe"), bulk(channel), int(seat.channels.len() as u64)];
        if seat.protocol == Protocol::Three { push(&items) } else { array(&items) }
    }

    fn unsubscribe(&mut self, client: Client, channel: &str) -> Vec<u8> {
        let seat = self.clients.entry(client).or_default();
        seat.channels.remove(channel);
        let items = [bulk("unsubscribe"), bulk(channel), int(seat.channels.len() as u64)];
        if seat.protocol == Protocol::Three { push(&items) } else { array(&items) }
    }

    /// Sends a message to the subscribers, and returns their number.
    fn publish(&self, channel: &str, text: &str, what: What, sent: &mut Vec<Sent>) -> u64 {
        let items = [bulk("message"), bulk(channel), bulk(text)];
        let before = sent.len();
        for (&to, seat) in self.clients.iter().filter(|(_, seat)| seat.channels.contains(channel)) {
            let bytes = if seat.protocol == Protocol::Three { push(&items) } else { array(&items) };
            sent.push(Sent { to, what, bytes });
        }
        (sent.len() - before) as u64
    }

    fn is_listened_to(&self, channel: &str) -> bool {
        self.clients.values().any(|seat| seat.channels.contains(channel))
    }

    fn load(&mut self, source: &str) -> Option<&'static str> {
        let question = Family::Locks.question();
        let is_asked = source == question.text;
        let known = || scripts().find(|script| script.source() == source).map(Script::sha);
        let sha = if is_asked { &question.sha } else { known()? };
        self.known.insert(sha);
        Some(sha)
    }

    fn eval(&mut self, sha: &'static str, now_us: u64, rest: &[&str], sent: &mut Vec<Sent>) -> Vec<u8> {
        // The script that checks our rights is not in the table.
        let script = scripts().find(|script| script.sha() == sha);
        let flags = script.map_or(Flags::NoWrites, Script::flags);
        match self.mood {
            Mood::Loading => return error("LOADING Redis is loading the dataset in memory"),
            Mood::Replica if flags != Flags::NoWrites => {
                return error("READONLY You can't write against a read only replica.");
            }
            Mood::Full if flags == Flags::Plain => {
                return error("OOM command not allowed when used memory > 'maxmemory'.");
            }
            _ => {}
        }
        let Some(script) = script else { return array(&[]) };
        match self.run_script(script, now_us, rest, sent) {
            Some(text) => bulk(&text),
            None => error("ERR these are no arguments of this script"),
        }
    }
}

fn scripts() -> impl Iterator<Item = Script> {
    Family::Locks.scripts().chain(Family::Pools.scripts())
}

const NOT_OURS: &str = "ERR Error compiling script: it is none of Leasehold's";
/// The version that it reports.
const VERSION: &str = "7.0.15";
