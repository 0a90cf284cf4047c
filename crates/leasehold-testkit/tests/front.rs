//! The front answers like Redis: both get the same requests, and each reply and each message is compared byte by byte.
//!
//! The real server has a clock of its own. So it gets the request first, and the front gets the time of the real answer:
//! every script reads the clock once. Leases of a few milliseconds end by themselves in between.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use leasehold::seam::{Family, Guess, Real, RedisStore, Script};
use leasehold_spec::limits::RANGE_MAX;
use leasehold_spec::{
    Acquire, Contention, From, GrantId, Hears, Kind, Name, Op, Order, Patience, Place, PublicId, Renew, SessionId,
    Take, Token,
};
use leasehold_testkit::front::{self, Client, Front, Mood};
use leasehold_testkit::resp::encode;
use leasehold_testkit::{Random, RedisServer, Value};

/// Each session has a connection: its inbox, which carries requests, too.
const SESSIONS: usize = 3;
const NAMES: [&str; 3] = ["a", "b {%}", "ä"];
const STEPS: u64 = 6_000;

#[test]
fn the_front_answers_like_redis() {
    let seed = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut play = Play::new(seed);
    play.greet();
    for step in 0..STEPS {
        play.step(&format!("step {step} of LEASEHOLD_SEED={seed}"));
    }
    let mut wanted = WORDS.map(|word| (word, 0)).to_vec();
    for (word, count) in &mut wanted {
        *count = play.seen.get(*word).copied().unwrap_or(0);
    }
    println!("{wanted:?}");
    assert!(wanted.iter().all(|(_, count)| *count > 5), "too few answers of some kinds were compared: {wanted:?}");
}

/// The kinds of answers that must have been compared: the first word of a reply, `message` for a push, `digits` for a
/// grant in one word, `R` for such a renewal.
const WORDS: [&str; 20] = [
    "digits",
    "GRANTED",
    "QUEUED",
    "BUSY",
    "GONE",
    "LATE",
    "RENEWED",
    "R",
    "RESERVED",
    "LOST",
    "RELEASED",
    "NOTHELD",
    "LEFT",
    "REVOKING",
    "SETTLED",
    "INSPECTED",
    "message",
    "wanted",
    "-NOSCRIPT",
    "alone",
];

/// A connection to the real server, and one to the front.
struct Pair {
    real: TcpStream,
    unread: Vec<u8>,
    front: Client,
    /// Bytes from the front that have not been compared yet.
    fronts: Vec<u8>,
}

struct Play {
    random: Random,
    _server: RedisServer,
    store: RedisStore,
    front: Front,
    pairs: Vec<Pair>,
    now_us: u64,
    /// The attempts so far, the tokens of the granted ones, the tickets of the waiting ones.
    ids: Vec<GrantId>,
    tokens: BTreeMap<GrantId, Token>,
    tickets: BTreeMap<GrantId, u64>,
    /// The last granted attempt, by the key of the name.
    holders: BTreeMap<String, GrantId>,
    seen: BTreeMap<String, u64>,
}

impl Play {
    fn new(seed: u64) -> Self {
        let server = RedisServer::start();
        let mut front = Front::new(7);
        let pairs = (0..SESSIONS).map(|_| {
            let real = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
            real.set_nodelay(true).unwrap();
            real.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            Pair { real, unread: Vec::new(), front: front.connect(), fronts: Vec::new() }
        });
        Self {
            random: Random::new(seed),
            pairs: pairs.collect(),
            store: RedisStore::new("redis://localhost/?prefix=p:", Real::world()).unwrap(),
            _server: server,
            front,
            now_us: 0,
            ids: Vec::new(),
            tokens: BTreeMap::new(),
            tickets: BTreeMap::new(),
            holders: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Sends the first commands, whose answers have numbers of the server's own: only their shapes are compared.
    fn greet(&mut self) {
        for at in 0..SESSIONS {
            let (real, front) = self.both(at, &encode(&["HELLO", "3"]));
            assert_eq!(masked(&real, &["version", "id"]), masked(&front, &["version", "id"]));
            let (real, front) = self.both(at, &encode(&["ROLE"]));
            assert_eq!(real, front);
            let (real, front) = self.both(at, &encode(&["TIME"]));
            assert_eq!(real.iter().filter(|b| **b == b'$').count(), front.iter().filter(|b| **b == b'$').count());
            let (real, front) = self.both(at, &encode(&["INFO", "server"]));
            for info in [real, front] {
                let info = String::from_utf8(info).unwrap();
                assert!(info.starts_with('=') && info.contains("\r\ntxt:# Server\r\nredis_version:7."), "{info}");
                let run = info.split("\r\nrun_id:").nth(1).unwrap();
                assert!(
                    run.split("\r\n").next().unwrap().len() == 40 && info.contains("\r\nredis_mode:standalone\r\n")
                );
            }
            self.same(at, &encode(&["PUBLISH", &channel(at), "nobody hears"]), "publish");
            self.same(at, &encode(&["SUBSCRIBE", &channel(at)]), "subscribe");
            self.same(at, &encode(&["PUBLISH", &channel(at), "lh1 probe 1"]), "probe");
        }
        self.same(0, &encode(&["EVALSHA", Script::Acquire.sha(), "0"]), "an unknown script");
        self.load();
    }

    fn load(&mut self) {
        for script in Family::Locks.scripts() {
            self.same(0, &encode(&["SCRIPT", "LOAD", script.source()]), script.name());
        }
    }

    fn step(&mut self, what: &str) {
        if self.random.chance(1) {
            self.same(0, &encode(&["SCRIPT", "FLUSH"]), what);
            self.send(what);
            self.load();
        } else if self.random.chance(2) {
            let text = format!("text {}", self.random.below(9));
            let to = channel(self.random.index(SESSIONS));
            self.same(0, &encode(&["PUBLISH", &to, &text]), what);
        } else {
            self.send(what);
        }
    }

    /// Sends one request of a lock, by any connection.
    fn send(&mut self, what: &str) {
        let name = Name::new(NAMES[self.random.index(NAMES.len())]).unwrap();
        let guess = *self.random.pick(&[Contention::None, Contention::None, Contention::Others, Contention::Strict]);
        let at = self.random.index(SESSIONS);
        let (bytes, id) = if self.random.chance(15) {
            // Never the same name twice: no session sends that, and the script reads everything before it writes.
            let count = self.random.within(1, NAMES.len() as u64);
            let names = NAMES.iter().map(|name| Name::new(name).unwrap()).take(usize::try_from(count).unwrap());
            let batch: Vec<(Name, Renew)> = names.map(|name| (name.clone(), self.renew(&name))).collect();
            (self.store.renewal(&batch, Kind::Mutex).unwrap(), None)
        } else {
            let (op, id) = self.op(&name);
            (self.store.request(&name, &op, guess.into()).unwrap(), id)
        };
        let text = self.same(at, &bytes, what);
        self.learn(&name, id, &text);
    }

    fn op(&mut self, name: &Name) -> (Op, Option<GrantId>) {
        let old = (!self.ids.is_empty()).then(|| self.recent(name));
        let choice = self.random.below(100);
        match old {
            Some(id) if choice < 25 => (Op::Release { id, token: self.token(id), used: self.used(id) }, None),
            Some(id) if choice < 31 => {
                let used = if self.random.chance(50) { Token::NONE } else { self.used(id) };
                (Op::Leave { id, used }, None)
            }
            Some(id) if choice < 33 => {
                let range = *self.random.pick(&[0, 1, 2, 2_000, 1_000_000, u64::MAX]);
                (Op::Reserve { id, token: self.token(id), range }, None)
            }
            Some(id) if choice < 34 => {
                let label = (*self.random.pick(&["", "leader/2", "ö"])).to_owned();
                (Op::Put { id, token: self.token(id), label }, None)
            }
            Some(id) if choice < 35 => {
                let label = (*self.random.pick(&["", "leader/2", "ö"])).to_owned();
                (Op::HandTo { id, token: self.token(id), label }, None)
            }
            Some(id) if choice < 39 => {
                let holder: PublicId = id.public();
                let grace_ms = *self.random.pick(&[0, 1, 5, 5_000]);
                (Op::Revoke { holder, token: self.token(id), grace_ms }, None)
            }
            _ if choice < 42 => (Op::Settle, None),
            _ if choice < 50 => (Op::Inspect, None),
            Some(id) if choice < 65 => (self.acquire(id), Some(id)),
            _ => {
                let session = SessionId(self.random.below(SESSIONS as u64 + 1).into());
                let id = GrantId { session, counter: self.ids.len() as u64, nonce: self.random.number() };
                self.ids.push(id);
                (self.acquire(id), Some(id))
            }
        }
    }

    fn acquire(&mut self, id: GrantId) -> Op {
        let place = Place {
            claim_ms: *self.random.pick(&[1, 3, 1_000]),
            limit_ms: *self.random.pick(&[None, None, Some(1), Some(60_000)]),
            ticket: self.tickets.get(&id).copied(),
            hears: *self.random.pick(&[Hears::Listens, Hears::Listens, Hears::Polls]),
            order: *self.random.pick(&[Order::Relaxed, Order::Relaxed, Order::Relaxed, Order::Strict]),
        };
        Op::Acquire(Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: *self.random.pick(&[1, 2, 10, 1_000, 1_000, 1_000, 61_000]),
            not_after_us: self.not_after_us(),
            patience: if self.random.chance(30) { Patience::Try } else { Patience::Queue(place) },
            label: (*self.random.pick(&["", "host/1", "ä b"])).into(),
            range: *self.random.pick(&[0, 1, 1, 2, RANGE_MAX, RANGE_MAX, RANGE_MAX + 1]),
        })
    }

    fn renew(&mut self, name: &Name) -> Renew {
        let nobody = GrantId { session: SessionId(9), counter: 0, nonce: 0 };
        let id = if self.ids.is_empty() { nobody } else { self.recent(name) };
        let from = *self.random.pick(&[From::Now, From::Now, From::Grant]);
        let lease_ms = *self.random.pick(&[1, 10, 1_000]);
        Renew { id, token: self.token(id), from, lease_ms, not_after_us: self.not_after_us() }
    }

    fn not_after_us(&mut self) -> u64 {
        if self.random.chance(5) { self.now_us.saturating_sub(1) } else { self.now_us + 2_000_000 }
    }

    /// Returns an earlier attempt: often the last granted one.
    fn recent(&mut self, name: &Name) -> GrantId {
        let holder = self.holders.get(&key(name)).copied();
        if let Some(holder) = holder.filter(|_| self.random.chance(60)) {
            return holder;
        }
        let from = self.ids.len().saturating_sub(8);
        let at = from + self.random.index(self.ids.len() - from);
        self.ids[at]
    }

    fn token(&self, id: GrantId) -> Token {
        self.tokens.get(&id).copied().unwrap_or(Token::new(1).unwrap())
    }

    /// Returns up to where its range was used: mostly in it, often its own token, now and then nonsense.
    fn used(&mut self, id: GrantId) -> Token {
        let token = self.token(id);
        match self.random.below(8) {
            0..=3 => token,
            4 => token.plus(1),
            5 => token.plus(self.random.below(RANGE_MAX)),
            _ => *self.random.pick(&[Token::NONE, token.plus(3_000), Token::HIGHEST]),
        }
    }

    /// Takes tokens and tickets from a reply, like a session.
    fn learn(&mut self, name: &Name, id: Option<GrantId>, text: &str) {
        for line in text.split('\n') {
            let words: Vec<&str> = line.split(' ').collect();
            let first = match words[0].strip_prefix('R').unwrap_or(words[0]) {
                number if digits(number).is_none() => words[0],
                number if number.len() < words[0].len() => "R",
                _ => "digits",
            };
            *self.seen.entry(first.to_owned()).or_default() += 1;
            if line == "RELEASED" {
                *self.seen.entry("alone".to_owned()).or_default() += 1;
            }
            let (Some(id), number) = (id, words.get(6).and_then(|word| word.parse().ok())) else { continue };
            match (first, number) {
                ("digits", _) => self.granted(key(name), id, digits(words[0]).unwrap()),
                ("GRANTED", Some(token)) => self.granted(key(name), id, token),
                ("QUEUED", Some(ticket)) => drop(self.tickets.insert(id, ticket)),
                _ => {}
            }
        }
    }

    fn granted(&mut self, key: String, id: GrantId, token: u64) {
        self.tokens.insert(id, Token::new(token).unwrap());
        self.holders.insert(key, id);
    }

    /// Sends a request to both, whose replies and messages must be the same. Returns the reply's text.
    fn same(&mut self, at: usize, request: &[u8], what: &str) -> String {
        let (real, front) = self.both(at, request);
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(shown(&real), shown(&front), "{what}: the reply to {}", shown(request));
        for at in 0..SESSIONS {
            // The reply to a PING comes after all messages that were pushed.
            let (real, front) = self.both(at, &encode(&["PING"]));
            assert_eq!(shown(&real), shown(&front), "{what}: the messages to {at} after {}", shown(request));
            self.take_messages(&real);
        }
        self.take_messages(&real);
        reply_of(&real)
    }

    /// Takes the tokens that were pushed.
    fn take_messages(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Ok(Some((value, len))) = Value::parse(&bytes[at..]) {
            at += len;
            let Value::Push(items) = value else { continue };
            let text = items.get(2).and_then(Value::text).unwrap_or_default();
            let words: Vec<&str> = text.splitn(10, ' ').collect();
            if let ["lh1", "G", id, token, .., key] = words[..] {
                self.granted(key.to_owned(), id.parse().unwrap(), token.parse().unwrap());
                *self.seen.entry("message".to_owned()).or_default() += 1;
            }
            if let ["lh1", "W", ..] = words[..] {
                *self.seen.entry("wanted".to_owned()).or_default() += 1;
            }
        }
    }

    /// Returns all bytes of one exchange, of the real server and of the front.
    fn both(&mut self, at: usize, request: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let pair = &mut self.pairs[at];
        pair.real.write_all(request).unwrap();
        let real = until_reply(&mut pair.real, &mut pair.unread);
        if let Some(now_us) = time_of(&reply_of(&real)) {
            self.now_us = now_us;
        }
        let (words, len) = front::request(request).unwrap().unwrap();
        assert_eq!(len, request.len());
        for sent in self.front.answer(pair.front, self.now_us, &words) {
            let to = self.pairs.iter_mut().find(|pair| pair.front == sent.to).unwrap();
            to.fronts.extend(sent.bytes);
        }
        (real, std::mem::take(&mut self.pairs[at].fronts))
    }
}

/// Builds a key like `part/open.lua`.
fn key(name: &Name) -> String {
    let escaped = name.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("p:lh1:{{{escaped}}}")
}

fn channel(session: usize) -> String {
    format!("p:lh1:inbox:{}", SessionId(session as u128))
}

/// Reads through the end of the next reply, with the messages before it.
fn until_reply(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    loop {
        while let Some((value, len)) = Value::parse(&unread[at..]).unwrap() {
            at += len;
            let is_subscribed = matches!(&value, Value::Push(items) if items[0].text() == Some("subscribe"));
            if is_subscribed || !matches!(value, Value::Push(_)) {
                return unread.drain(..at).collect();
            }
        }
        let mut more = [0; 4096];
        let len = stream.read(&mut more).unwrap();
        assert!(len > 0, "the server hung up");
        unread.extend_from_slice(&more[..len]);
    }
}

/// Returns the reply among messages, as text.
fn reply_of(bytes: &[u8]) -> String {
    let (mut at, mut text) = (0, String::new());
    while let Ok(Some((value, len))) = Value::parse(&bytes[at..]) {
        at += len;
        match value {
            Value::Push(_) => {}
            Value::Error(error) => text = format!("-{error}"),
            other => text = other.text().unwrap_or_default().to_owned(),
        }
    }
    text
}

/// Returns the server's time in an answer.
fn time_of(text: &str) -> Option<u64> {
    let mut words = text.split([' ', '\n']);
    let first = words.next()?;
    digits(first.strip_prefix('R').unwrap_or(first)).or_else(|| digits(words.next()?))
}

fn digits(word: &str) -> Option<u64> {
    (word.len() == 16).then(|| word.parse().ok())?
}

/// Returns a map without the values of these keys.
fn masked(bytes: &[u8], keys: &[&str]) -> Vec<(String, String)> {
    let (value, _) = Value::parse(bytes).unwrap().unwrap();
    let pairs = value.items().unwrap().chunks(2).map(|pair| {
        let key = pair[0].text().unwrap().to_owned();
        let value = if keys.contains(&key.as_str()) { String::new() } else { format!("{:?}", pair[1]) };
        (key, value)
    });
    pairs.collect()
}

/// The answers of a server that is a replica, is loading, or is full.
#[test]
fn the_front_fails_like_redis() {
    let server = RedisServer::start();
    let mut resp = leasehold_testkit::Resp::connect(server.port());
    let store = RedisStore::new("redis://localhost", Real::world()).unwrap();
    let name = Name::new("n").unwrap();
    let id = GrantId { session: SessionId(1), counter: 1, nonce: 1 };
    let acquire = Acquire {
        id,
        take: Take::MUTEX,
        lease_ms: 1_000,
        not_after_us: u64::MAX,
        patience: Patience::Try,
        label: "".into(),
        range: 1,
    };
    let requests = [Op::Acquire(acquire), Op::Settle, Op::Inspect];
    for script in Family::Locks.scripts() {
        resp.command(&["SCRIPT", "LOAD", script.source()]);
    }
    let mut front = Front::new(1);
    for script in Family::Locks.scripts() {
        let client = front.connect();
        front.answer(client, 1, &["SCRIPT".into(), "LOAD".into(), script.source().into()]);
    }
    for (mood, trouble) in [
        (Mood::Replica, ["REPLICAOF", "127.0.0.1", "1"].as_slice()),
        (Mood::Full, ["CONFIG", "SET", "maxmemory", "1"].as_slice()),
    ] {
        resp.command(trouble);
        front.mood = mood;
        for op in &requests {
            let request = store.request(&name, op, Guess::default()).unwrap();
            let (words, _) = front::request(&request).unwrap().unwrap();
            let real = resp.command(&words);
            let client = front.connect();
            let sent = front.answer(client, 1, &words);
            let (fronts, _) = Value::parse(&sent[0].bytes).unwrap().unwrap();
            match (&real, &fronts) {
                (Value::Error(real), Value::Error(front)) => assert_eq!(real, front),
                (real, front) => assert_eq!(real.text().is_some(), front.text().is_some(), "{real:?} {front:?}"),
            }
        }
        resp.command(&["REPLICAOF", "NO", "ONE"]);
    }
}
