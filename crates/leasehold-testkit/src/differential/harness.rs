//! A real server with a clock that can be moved, and real subscribers.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_spec::SessionId;

use crate::resp::{Resp, Value};
use crate::server::RedisServer;

/// The tolerance for the end of a key: a script calls TIME and SET at two moments, and a busy machine can suspend the
/// server between them.
pub const TTL_TOLERANCE_US: u64 = 250_000;
/// No request runs this close to the time when a record is forgotten: there the result depends on that tolerance.
const CLEARANCE_US: u64 = 400_000;

/// The server, and all of its clients that are not the crate's.
pub struct Harness {
    server: RedisServer,
    resp: Resp,
    /// Subscribed by pattern: it receives every message, and makes PUBLISH count one for a dead inbox.
    monitor: Resp,
    /// The beginning of the channel of each inbox.
    inboxes: &'static str,
    sessions: Vec<Session>,
    is_full: bool,
    shift_us: i64,
    pings: u64,
}

/// One client, with a subscription that comes and goes. The first client uses the subscription of the crate.
struct Session {
    id: SessionId,
    connection: Option<Resp>,
    is_attached: bool,
    due: Vec<String>,
}

impl Harness {
    /// Starts a server for this number of sessions. The crate's own link is to attach the first one.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start(inboxes: &'static str, sessions: usize) -> Self {
        let server = RedisServer::builder().skew().config("maxmemory-policy", "noeviction").start();
        let (resp, mut monitor) = (server.resp(), server.resp());
        assert!(monitor.command(&["PSUBSCRIBE", &format!("{inboxes}*")]).items().is_some());
        let session = |number: usize| Session {
            id: SessionId(0x1000_0000_0000_0000_0000_0000_0000_0000 + number as u128),
            connection: (number > 0).then(|| server.resp()),
            is_attached: number == 0,
            due: Vec::new(),
        };
        let sessions = (0..sessions).map(session).collect();
        Self { resp, monitor, inboxes, sessions, is_full: false, shift_us: 0, pings: 0, server }
    }

    /// Returns the server.
    #[must_use]
    pub const fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Returns the connection of the test's own commands.
    pub const fn resp(&mut self) -> &mut Resp {
        &mut self.resp
    }

    /// Whether the server refuses commands that need memory.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the time of the server's clock, as far as it is known here.
    ///
    /// # Panics
    /// Before 1970.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        u64::try_from(now).expect("before the year 586524").saturating_add_signed(self.shift_us)
    }

    /// Moves the clock of the server.
    pub fn move_clock(&mut self, by_us: i64) {
        self.shift_us += by_us;
        self.server.shift_clock(self.shift_us);
    }

    /// Moves the clock away from the time when a record ends. Returns whether that was necessary.
    pub fn steer_clear(&mut self, end_us: u64) -> bool {
        let is_close = self.now_us().abs_diff(end_us) < CLEARANCE_US;
        if is_close {
            self.move_clock(2 * i64::try_from(CLEARANCE_US).unwrap_or(i64::MAX));
        }
        is_close
    }

    /// Makes the server refuse commands that need memory, or accept them again. Returns whether that is a change.
    ///
    /// # Panics
    /// If the server refuses that.
    pub fn fill_memory(&mut self, is_full: bool) -> bool {
        let changes = self.is_full != is_full;
        if changes {
            let bytes = if is_full { "1" } else { "0" };
            assert_eq!(self.resp.command(&["CONFIG", "SET", "maxmemory", bytes]), Value::Status("OK".into()));
            self.is_full = is_full;
        }
        changes
    }

    /// Returns the ID of a session.
    #[must_use]
    pub fn session(&self, number: usize) -> SessionId {
        self.sessions[number].id
    }

    /// Whether a session has a subscription.
    #[must_use]
    pub fn is_attached(&self, id: SessionId) -> bool {
        self.sessions.iter().any(|session| session.id == id && session.is_attached)
    }

    /// Makes a session subscribe or unsubscribe. Returns whether that is a change. The session must have received every
    /// message that was published to it.
    ///
    /// # Panics
    /// If it has received others.
    pub fn attach(&mut self, number: usize, is_attached: bool) -> bool {
        let session = &mut self.sessions[number];
        let Some(connection) = session.connection.as_mut().filter(|_| session.is_attached != is_attached) else {
            return false;
        };
        let (command, reply) = if is_attached { ("SUBSCRIBE", "subscribe") } else { ("UNSUBSCRIBE", "unsubscribe") };
        connection.send(&[command, &format!("{}{}", self.inboxes, session.id)]).expect("sent");
        let received = messages_until(connection, reply);
        assert_eq!(received, std::mem::take(&mut session.due), "what session {number} received");
        session.is_attached = is_attached;
        true
    }

    /// Records a message that was published to a session.
    pub fn deliver(&mut self, to: SessionId, text: String) {
        let receives = |session: &&mut Session| session.id == to && session.is_attached && session.connection.is_some();
        if let Some(session) = self.sessions.iter_mut().find(receives) {
            session.due.push(text);
        }
    }

    /// Returns the channel and the text of each message that was published since the last call. The reply to a PING comes
    /// after every message that was published before it, so no further wait is needed.
    ///
    /// # Panics
    /// If the monitor receives anything else.
    pub fn published(&mut self) -> Vec<(String, String)> {
        self.pings += 1;
        let ping = self.pings.to_string();
        self.monitor.send(&["PING", &ping]).expect("sent");
        let mut published = Vec::new();
        loop {
            let message = self.monitor.receive().expect("a message");
            let items = message.items().expect("a list");
            let items: Vec<_> = items.iter().map(|item| item.text().unwrap_or_default()).collect();
            match items.as_slice() {
                ["pong", text] if *text == ping => return published,
                ["pmessage", _, channel, text] => published.push(((*channel).to_owned(), (*text).to_owned())),
                other => panic!("{other:?} on the monitor"),
            }
        }
    }

    /// Ends a history: each subscriber must have received its messages. The next history begins with an empty server.
    ///
    /// # Panics
    /// If a subscriber has received others.
    pub fn end_history(&mut self) {
        self.fill_memory(false);
        for number in 1..self.sessions.len() {
            self.attach(number, false);
        }
        assert_eq!(self.resp.command(&["FLUSHDB"]), Value::Status("OK".into()));
        self.move_clock(-self.shift_us);
    }
}

fn messages_until(connection: &mut Resp, last: &str) -> Vec<String> {
    let mut received = Vec::new();
    loop {
        let message = connection.receive().expect("a message");
        let items = message.items().expect("a list");
        match items[0].text() {
            Some("message") => received.push(items[2].text().expect("a text").to_owned()),
            Some(text) if text == last => return received,
            other => panic!("{other:?} received"),
        }
    }
}
