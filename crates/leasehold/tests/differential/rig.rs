//! A real server with a clock that can be moved, real subscribers, and the specification beside it.
//!
//! Each operation runs on the server first, through the crate's own link and with the shipped scripts. Then `step` runs
//! it on the model, at the time of the server's reply, with the attachments that the script could see. The answer, the
//! stored data and the published messages must be the same.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::seam::{Fault, Link, Message, Real, RedisStore, Store};
use leasehold_spec::limits::{LEASE_MAX_MS, QUEUE_MAX, RETENTION_US};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Entry, Env, Event, From, Grant, GrantId, Hears, Name, Op, Order, Outcome,
    Patience, Place, Renew, Resource, Rest, SessionId, Take, step,
};
use leasehold_testkit::{RedisServer, Resp, Value};
use tokio::runtime::Runtime;

use crate::decode::{self, Encoding};

/// The tolerance for the end of a key: TIME and SET are two moments of one script, and a busy machine can suspend the
/// server between them.
const TTL_TOLERANCE_US: u64 = 250_000;
/// No operation runs this close to the time when a record is forgotten: there the result depends on that tolerance.
const CLEARANCE_US: u64 = 400_000;

/// The number of times that each case occurred.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

/// The number of requests of a history that are printed when it fails.
const SHOWN: usize = 100;

/// One name in the model.
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) key: String,
    pub(crate) model: Resource,
}

impl Lock {
    pub(crate) fn new(text: &str) -> Self {
        let escaped = text.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        let name = Name::new(text).expect("the test uses good names");
        Self { name, key: format!("lh1:{{{escaped}}}"), model: Resource::default() }
    }

    /// Returns the time when the record may be forgotten.
    fn end_us(&self) -> u64 {
        self.model.keep_until_us.max(self.model.reserved().get() + RETENTION_US)
    }
}

/// One client, with a subscription that comes and goes. The subscription of the first client is that of the crate.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    connection: Option<Resp>,
    pub(crate) is_attached: bool,
    due: Vec<String>,
}

/// An event of a history, which is printed when the history fails.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug, in the report of a failure")]
enum Done {
    Op(String, Box<Op>, Contention, Box<Result<Answer, String>>),
    Renew(Vec<(Name, Renew)>, Vec<Result<Answer, String>>),
    Clock(i64),
    Attached(usize, bool),
    Memory(bool),
}

pub(crate) struct Rig {
    runtime: Runtime,
    server: RedisServer,
    resp: Resp,
    link: Arc<dyn Link>,
    /// Subscribed by pattern: it receives every message, and makes PUBLISH count one for a dead inbox.
    monitor: Resp,
    pub(crate) sessions: Vec<Session>,
    inbox: Arc<Mutex<Vec<(Name, Delivery)>>>,
    inbox_due: Vec<(Name, Delivery)>,
    pub(crate) is_full: bool,
    /// A record with a few waiters less than the maximum. It is kept in another database.
    full_queue: Option<Resource>,
    /// A full queue takes too long to be read after each operation.
    is_unread: bool,
    shift_us: i64,
    pings: u64,
    history: Vec<Done>,
    pub(crate) seen: Seen,
}

impl Rig {
    pub(crate) fn start(sessions: usize) -> Self {
        let server = RedisServer::builder().skew().config("maxmemory-policy", "noeviction").start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = RedisStore::new(&server.url(), Real::world()).expect("a good URL");
        let link = runtime.block_on(store.open()).expect("the server is there");
        let mut monitor = server.resp();
        assert!(monitor.command(&["PSUBSCRIBE", "lh1:inbox:*"]).items().is_some());
        let session = |number: usize| Session {
            id: SessionId(0x1000_0000_0000_0000_0000_0000_0000_0000 + number as u128),
            connection: (number > 0).then(|| server.resp()),
            is_attached: number == 0,
            due: Vec::new(),
        };
        let sessions: Vec<_> = (0..sessions).map(session).collect();
        let inbox: Arc<Mutex<Vec<_>>> = Arc::default();
        let heard = Arc::clone(&inbox);
        let hear = Arc::new(move |message| match message {
            Message::Delivery(name, delivery) => heard.lock().unwrap().push((name, delivery)),
            Message::LookAtAll | Message::Look(_) | Message::Ending { .. } | Message::Shortened { .. } => {
                panic!("garbage in an inbox")
            }
            // The link is dropped with the rig, and not before.
            Message::Detached => {}
        });
        runtime.block_on(link.attach(sessions[0].id, hear)).expect("an inbox");
        let resp = server.resp();
        let mut rig = Self {
            runtime,
            server,
            resp,
            link,
            monitor,
            sessions,
            inbox,
            inbox_due: Vec::new(),
            is_full: false,
            full_queue: None,
            is_unread: false,
            shift_us: 0,
            pings: 0,
            history: Vec::new(),
            seen: BTreeMap::new(),
        };
        // The probe of the inbox.
        assert_eq!(rig.published().len(), 1);
        rig
    }

    /// Returns the time of the server's clock, as far as it is known here.
    pub(crate) fn now_us(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        u64::try_from(now).expect("before the year 586524").saturating_add_signed(self.shift_us)
    }

    /// Moves the clock of the server. A record that is forgotten by then does not come back, even if the clock steps back.
    pub(crate) fn move_clock(&mut self, by_us: i64, locks: &mut [Lock]) {
        self.shift_us += by_us;
        self.server.shift_clock(self.shift_us);
        self.history.push(Done::Clock(by_us));
        for lock in locks {
            self.steer_clear(lock);
            self.forget(lock);
        }
    }

    fn steer_clear(&mut self, lock: &mut Lock) {
        if self.now_us().abs_diff(lock.end_us()) < CLEARANCE_US {
            self.shift_us += 2 * i64::try_from(CLEARANCE_US).expect("less than a second");
            self.server.shift_clock(self.shift_us);
            self.forget(lock);
        }
    }

    /// Forgets the model of a name if its key has ended.
    fn forget(&mut self, lock: &mut Lock) {
        let now_us = self.now_us();
        if lock.model.is_forgotten(now_us, now_us) {
            assert_eq!(self.resp.command(&["EXISTS", &lock.key]), Value::Int(0), "{}", lock.key);
            self.count(if lock.model == Resource::default() { "never known" } else { "forgotten" });
            lock.model = Resource::default();
        }
    }

    /// Makes the server refuse commands that need memory.
    pub(crate) fn fill_memory(&mut self, is_full: bool) {
        if self.is_full != is_full {
            let bytes = if is_full { "1" } else { "0" };
            assert_eq!(self.resp.command(&["CONFIG", "SET", "maxmemory", bytes]), Value::Status("OK".into()));
            self.is_full = is_full;
            self.history.push(Done::Memory(is_full));
        }
    }

    pub(crate) fn attach(&mut self, number: usize) {
        let session = &mut self.sessions[number];
        if let (Some(connection), false) = (&mut session.connection, session.is_attached) {
            let channel = format!("lh1:inbox:{}", session.id);
            assert!(connection.command(&["SUBSCRIBE", &channel]).items().is_some());
            session.is_attached = true;
            self.history.push(Done::Attached(number, true));
        }
    }

    pub(crate) fn detach(&mut self, number: usize) {
        let session = &mut self.sessions[number];
        if let (Some(connection), true) = (&mut session.connection, session.is_attached) {
            connection.send(&["UNSUBSCRIBE"]).unwrap();
            let heard = messages_until(connection, "unsubscribe");
            assert_eq!(heard, std::mem::take(&mut session.due), "what session {number} heard");
            session.is_attached = false;
            self.history.push(Done::Attached(number, false));
        }
    }

    /// Runs one operation on both. Returns the outcome, if the store did anything.
    pub(crate) fn apply(&mut self, lock: &mut Lock, op: &Op, guess: Contention) -> Option<Outcome> {
        self.steer_clear(lock);
        let answered = self.runtime.block_on(self.link.apply(&lock.name, op, guess.into()));
        let told = answered.as_ref().map(Answer::clone).map_err(|fault| format!("{fault:?}"));
        self.history.push(Done::Op(lock.key.clone(), Box::new(op.clone()), guess, Box::new(told)));
        match answered {
            Ok(answer) => {
                let mut due = Vec::new();
                self.check(lock, op, &answer, &mut due);
                self.check_deliveries(&due);
                Some(answer.outcome)
            }
            Err(Fault::NoMemory(_)) if self.is_full && matches!(op, Op::Acquire(_)) => {
                self.count("no memory");
                // No step of the specification has read it, and it can have ended in the meantime.
                let now_us = self.now_us();
                if lock.model.is_forgotten(now_us, now_us) {
                    lock.model = Resource::default();
                }
                self.check_stored(lock);
                self.check_deliveries(&[]);
                None
            }
            Err(fault) => self.fail(&format!("{fault:?}")),
        }
    }

    /// Runs a batch of renewals on both.
    pub(crate) fn renew(&mut self, locks: &mut [Lock], batch: &[(usize, Renew)]) {
        for (number, _) in batch {
            self.steer_clear(&mut locks[*number]);
        }
        let named: Vec<_> = batch.iter().map(|(number, renew)| (locks[*number].name.clone(), renew.clone())).collect();
        let answers = self.runtime.block_on(self.link.renew(&named));
        let told = answers.iter().map(|one| one.as_ref().cloned().map_err(|fault| format!("{fault:?}")));
        self.history.push(Done::Renew(named, told.collect()));
        if answers.len() != batch.len() {
            self.fail("not an answer for each name");
        }
        // The script settles names with a queue last, and messages come in that order.
        let mut due = Vec::new();
        for ((number, renew), answer) in batch.iter().zip(answers) {
            match answer {
                Ok(answer) => self.check(&mut locks[*number], &Op::Renew(renew.clone()), &answer, &mut due),
                Err(fault) => self.fail(&format!("{fault:?}")),
            }
        }
        self.check_deliveries(&due);
    }

    fn check(&mut self, lock: &mut Lock, op: &Op, answer: &Answer, due: &mut Vec<(Name, Delivery)>) {
        let is_timeless = answer.now_us == 0 && answer.outcome == Outcome::Released;
        let now_us = if is_timeless { self.now_us() } else { answer.now_us };
        let attached = |id: SessionId| self.sessions.iter().any(|session| session.id == id && session.is_attached);
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &attached };
        let place = |model: &Resource| match op {
            Op::Acquire(acquire) => model.queue.iter().find(|entry| entry.id == acquire.id).map(|entry| entry.ticket),
            _ => None,
        };
        let (before, grant) = (place(&lock.model), lock.model.grants.sole().cloned());
        let lapses = lock.model.lapses.clone();
        let kept_until_us = lock.model.keep_until_us;
        let (mut expected, deliveries) = step(&mut lock.model, &env, op);
        if place(&lock.model).is_some_and(|ticket| before.is_some_and(|before| ticket < before)) {
            self.count("came back to its place");
        }
        if is_timeless {
            expected.now_us = 0;
        }
        self.count(expected.outcome.word());
        self.count_ranges(op, grant.as_ref(), &lock.model);
        let cools = |grant: Option<&Grant>| grant.is_some_and(|grant| !grant.is_held());
        match (cools(grant.as_ref()), cools(lock.model.grants.sole())) {
            (false, true) => self.count("cool-down begun"),
            (true, true) => self.count("late in a cool-down"),
            (true, false) => self.count("cool-down over"),
            (false, false) => {}
        }
        let is_ahead = |grant: &Grant| grant.since_us > now_us;
        if lock.model.grants.sole().zip(grant.as_ref()).is_some_and(|(now, was)| now.id == was.id && is_ahead(was)) {
            self.count("lease dated anew");
        }
        if lapses.iter().any(|lapse| lapse.at_us > now_us) && !lock.model.lapses.is_empty() {
            self.count("lapse dated anew");
        }
        if let (Op::Renew(Renew { from: From::Now, .. }), Outcome::Renewed { .. }) = (op, &expected.outcome) {
            let is_kept = lock.model.keep_until_us == kept_until_us;
            self.count(if is_kept { "renewed, kept until as before" } else { "renewed, kept for longer" });
        }
        if expected.rest == Rest::More {
            self.count("more");
        }
        for delivery in &deliveries {
            self.count(match delivery.event {
                Event::Granted => "push of a grant",
                Event::Revoked => "push of a revocation",
                Event::Wanted => "push that somebody waits",
                Event::Ending => "push of an end",
            });
        }
        if *answer != expected {
            self.fail(&format!("the answer is to be\n{expected:?}\nand it is\n{answer:?}"));
        }
        due.extend(deliveries.into_iter().map(|delivery| (lock.name.clone(), delivery)));
        self.check_stored(lock);
    }

    /// Counts what became of the tokens of a grant.
    fn count_ranges(&mut self, op: &Op, before: Option<&Grant>, model: &Resource) {
        if let (Op::Acquire(acquire), Some(grant), None) = (op, model.grants.sole(), before)
            && grant.id == acquire.id
            && grant.range < acquire.range
        {
            self.count("range cut");
        }
        let Some(before) = before.filter(|grant| model.held_by(grant.id).is_none() && grant.range > 1) else { return };
        match (op, model.released == Some(before.id)) {
            (_, false) => self.count("range burnt"),
            (Op::Release { used, .. } | Op::Leave { used, .. }, true) => match used.cmp(&before.reserved()) {
                _ if *used <= before.token => self.count("range unused"),
                Ordering::Greater => self.count("used beyond the range"),
                Ordering::Less | Ordering::Equal => self.count("range used"),
            },
            _ => {}
        }
    }

    /// Checks that the stored record equals the record of the specification, and has the right TTL.
    fn check_stored(&mut self, lock: &Lock) {
        if self.is_unread {
            return;
        }
        let stored = match decode::look(&mut self.resp, &lock.key) {
            Ok(stored) => stored,
            Err(why) => self.fail(&format!("{}: {why}", lock.key)),
        };
        let Some(mut stored) = stored else {
            if lock.model != Resource::default() {
                self.fail(&format!("nothing is stored, and it is to be\n{:?}", lock.model));
            }
            return;
        };
        if stored.encoding == Encoding::Short {
            stored.resource.keep_until_us = lock.model.keep_until_us;
        }
        let fits = match stored.encoding {
            Encoding::Short => lock.model.queue.is_empty(),
            Encoding::Hash => lock.model.grants.sole().is_some() || !lock.model.queue.is_empty(),
        };
        if stored.resource != lock.model || !fits {
            self.fail(&format!("the record is to be\n{:?}\nand it is\n{stored:?}", lock.model));
        }
        self.count(match stored.encoding {
            Encoding::Short => "stored as a string",
            Encoding::Hash if lock.model.queue.is_empty() => "stored as a hash without a queue",
            Encoding::Hash => "stored as a hash",
        });
        let (ends_us, end_us) = (stored.expires_ms * 1000, lock.end_us());
        if ends_us.abs_diff(end_us) > TTL_TOLERANCE_US {
            self.fail(&format!("the record is to end at {end_us}, and it ends at {ends_us}: {stored:?}"));
        }
    }

    /// Returns a name with an almost full queue. The scripts fill it once, and each history gets a copy.
    pub(crate) fn full_queue(&mut self) -> Lock {
        let mut lock = Lock::new("full");
        self.is_unread = true;
        if self.full_queue.is_none() {
            self.fill(&mut lock);
            self.check_full_queue(&lock);
            assert_eq!(self.resp.command(&["MOVE", &lock.key, "1"]), Value::Int(1));
            let mut other = self.server.resp();
            assert_eq!(other.command(&["SELECT", "1"]), Value::Status("OK".into()));
            // The clock will be moved by days before the next history of this kind.
            assert_eq!(other.command(&["PERSIST", &lock.key]), Value::Int(1));
            self.full_queue = Some(lock.model.clone());
            self.history.clear();
        }
        self.is_unread = true;
        let mut other = self.server.resp();
        assert_eq!(other.command(&["SELECT", "1"]), Value::Status("OK".into()));
        assert_eq!(other.command(&["COPY", &lock.key, &lock.key, "DB", "0"]), Value::Int(1));
        lock.model = self.full_queue.clone().expect("it was just filled");
        let end_ms = lock.end_us().div_ceil(1000).to_string();
        assert_eq!(self.resp.command(&["PEXPIREAT", &lock.key, &end_ms]), Value::Int(1));
        lock
    }

    /// Lets the scripts queue ten thousand waiters. `step` would read all of them for each new one. So the model is
    /// built from the replies instead, and compared once.
    fn fill(&mut self, lock: &mut Lock) {
        for counter in 0..QUEUE_MAX as u64 - 1 {
            let id = GrantId { session: SessionId(0xf), counter, nonce: 7 };
            let place =
                Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed };
            let patience = Patience::Queue(place);
            let not_after_us = self.now_us() + 2_000_000;
            let acquire = Acquire {
                id,
                take: Take::MUTEX,
                lease_ms: LEASE_MAX_MS,
                not_after_us,
                patience,
                label: "many".into(),
                range: 9,
            };
            let op = Op::Acquire(acquire);
            // The first waiter raises the contention level, and the holder is notified.
            if counter <= 1 {
                self.apply(lock, &op, Contention::None);
                continue;
            }
            let answer = self.runtime.block_on(self.link.apply(&lock.name, &op, Contention::Others.into())).unwrap();
            let Outcome::Queued { ticket, .. } = answer.outcome else { self.fail(&format!("{answer:?}")) };
            lock.model.queue.push_back(Entry {
                id,
                ticket,
                lease_ms: LEASE_MAX_MS,
                claim_ms: 1_000,
                limit_us: None,
                seen_us: answer.now_us,
                hears: Hears::Listens,
                order: Order::Relaxed,
                units: 1,
                label: "many".into(),
                range: 9,
            });
        }
    }

    /// Reads the whole queue.
    pub(crate) fn check_full_queue(&mut self, lock: &Lock) {
        self.is_unread = false;
        self.check_stored(lock);
    }

    fn check_deliveries(&mut self, due: &[(Name, Delivery)]) {
        let texts = self.published();
        let expected: Vec<_> = due.iter().map(|(name, delivery)| message(name, delivery)).collect();
        let published: Vec<_> = texts.iter().map(|(channel, text)| (channel.clone(), plain(text))).collect();
        if published != expected {
            self.fail(&format!("published is to be\n{expected:?}\nand it is\n{published:?}"));
        }
        for ((name, delivery), (_, text)) in due.iter().zip(texts) {
            match self.sessions.iter_mut().find(|session| session.id == delivery.to) {
                Some(Session { connection: None, .. }) => self.inbox_due.push((name.clone(), delivery.clone())),
                Some(session) if session.is_attached => session.due.push(text),
                // Nobody is subscribed.
                _ => {}
            }
        }
    }

    /// Returns the channel and the text of each message that was published since the last call. The reply to a PING comes
    /// after every message that was published before it, so no further wait is needed.
    fn published(&mut self) -> Vec<(String, String)> {
        self.pings += 1;
        let ping = self.pings.to_string();
        self.monitor.send(&["PING", &ping]).unwrap();
        let mut published = Vec::new();
        loop {
            let message = self.monitor.receive().unwrap();
            let items: Vec<_> = message.items().unwrap().iter().map(|item| item.text().unwrap_or_default()).collect();
            match items.as_slice() {
                ["pong", text] if *text == ping => return published,
                ["pmessage", _, channel, text] => published.push(((*channel).to_owned(), (*text).to_owned())),
                other => panic!("{other:?} on the monitor"),
            }
        }
    }

    /// Ends a history: each subscriber must have got its messages. The next history begins with an empty server.
    pub(crate) fn end_history(&mut self) {
        self.fill_memory(false);
        for number in 1..self.sessions.len() {
            self.detach(number);
        }
        // A reply comes after every message that was sent before it.
        self.runtime.block_on(self.link.ping()).unwrap();
        let heard = std::mem::take(&mut *self.inbox.lock().unwrap());
        let due = std::mem::take(&mut self.inbox_due);
        if heard != due {
            self.fail(&format!("heard is to be\n{due:?}\nand it is\n{heard:?}"));
        }
        assert_eq!(self.resp.command(&["FLUSHDB"]), Value::Status("OK".into()));
        self.is_unread = false;
        self.shift_us = 0;
        self.server.shift_clock(0);
        self.history.clear();
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn fail(&self, what: &str) -> ! {
        let skipped = self.history.len().saturating_sub(SHOWN);
        println!("{skipped} steps, then");
        for done in &self.history[skipped..] {
            println!("{done:?}");
        }
        panic!("{what}")
    }
}

fn messages_until(connection: &mut Resp, last: &str) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        let message = connection.receive().unwrap();
        let items = message.items().unwrap();
        match items[0].text() {
            Some("message") => heard.push(items[2].text().unwrap().to_owned()),
            Some(text) if text == last => return heard,
            other => panic!("{other:?} heard"),
        }
    }
}

/// Returns a message without the zeros that a script may write before the rest of a lease.
fn plain(text: &str) -> String {
    let mut words: Vec<_> = text.splitn(10, ' ').map(str::to_owned).collect();
    if let Some(left) = words.get_mut(4).filter(|left| left.parse::<u64>().is_ok()) {
        *left = left.parse::<u64>().unwrap().to_string();
    }
    words.join(" ")
}

/// Returns the channel and the text of a delivery.
fn message(name: &Name, delivery: &Delivery) -> (String, String) {
    let Delivery { to, now_us, contention, rest, id, token, left_us, range, event, .. } = delivery;
    let event = match event {
        Event::Granted => 'G',
        Event::Revoked => 'R',
        Event::Wanted => 'W',
        Event::Ending => 'E',
    };
    let contention = match contention {
        Contention::None => 'N',
        Contention::Others => 'O',
        Contention::Strict => 'S',
    };
    let rest = match rest {
        Rest::Done => 'D',
        Rest::More => 'M',
    };
    let key = Lock::new(name.as_str()).key;
    (
        format!("lh1:inbox:{to}"),
        format!("lh1 {event} {} {token} {left_us} {now_us} {contention} {rest} {range:08} {key}", id.wire()),
    )
}

/// The outcomes that every run must have seen, each in at least two of a hundred requests.
pub(crate) const OUTCOMES: [&str; 19] = [
    "granted",
    "queued",
    "busy",
    "gone",
    "late",
    "full",
    "renewed",
    "reserved",
    "revoked",
    "lost",
    "released",
    "not held",
    "waited",
    "held",
    "absent",
    "marked",
    "settled",
    "inspected",
    "no memory",
];
