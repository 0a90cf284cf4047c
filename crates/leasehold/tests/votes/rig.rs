//! A real server with a movable clock, real subscribers, and the specification of a node.
//!
//! Each request runs on the server first, through the crate's own link and the shipped scripts. Then [`node::vote`] runs it
//! on the model, at the time in the server's answer, and with the subscribers that the script could see. The answers, the
//! stored states and the published messages must be equal. The same holds for markers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::ErrorKind;
use leasehold::seam::node::{Begin, NoVote, Node, NodeLink, NodeMessage};
use leasehold::seam::{Fault, Real, RedisNode, Script};
use leasehold_spec::node::{
    self, Abstention, Bell, Charter, Marker, Record, Renewal, Request, Rings, Said, Vote, rest_ms, vote,
};
use leasehold_spec::{Contention, Env, GrantId, LostHow, Name, Order, SessionId, Was};
use leasehold_testkit::{RedisServer, Resp, Value};
use tokio::runtime::Runtime;

use crate::decode;

/// The tolerance for the end of a key: a script calls TIME and SET at two times, and a busy machine can suspend the server
/// between them.
const TTL_TOLERANCE_US: u64 = 250_000;
/// No request is made so close to the time at which a record is forgotten: its result would depend on the tolerance.
const CLEARANCE_US: u64 = 400_000;
const MARKER: &str = "lq1:marker";
pub(crate) const CHARTER: Charter = Charter { nodes: 3, max_lease_ms: 60_000 };

/// The number of times that each event was seen.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

/// The number of steps that the report of a failure shows.
const SHOWN: usize = 60;

/// One name in the model.
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) key: String,
    pub(crate) queue: String,
    pub(crate) model: Record,
}

impl Lock {
    pub(crate) fn new(text: &str) -> Self {
        let escaped = text.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        let name = Name::new(text).expect("the test uses good names");
        let (key, queue) = (format!("lq1:{{{escaped}}}"), format!("lq1q:{{{escaped}}}"));
        Self { name, key, queue, model: Record::default() }
    }
}

/// One client, with a subscription that comes and goes. The first client uses the subscription of the crate.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    connection: Option<Resp>,
    pub(crate) is_attached: bool,
}

/// One step of a history, for the report of a failure.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug, in the report of a failure")]
enum Done {
    Request(String, Box<Request>, String),
    Renew(Vec<(Name, Renewal)>, Vec<String>),
    Clock(i64),
    Attached(usize, bool),
    Memory(bool),
    Marker(&'static str, Option<Marker>),
}

pub(crate) struct Rig {
    runtime: Runtime,
    pub(crate) server: RedisServer,
    resp: Resp,
    node: RedisNode,
    link: Arc<dyn NodeLink>,
    /// The marker that the link has seen, and the stored one.
    seen_marker: Marker,
    marker: Option<Marker>,
    /// Has the inbox of the first session.
    listener: Arc<dyn NodeLink>,
    /// Subscribed by pattern: it receives messages to dead inboxes, too, and makes PUBLISH return one for a dead inbox.
    monitor: Resp,
    pub(crate) sessions: Vec<Session>,
    inbox: Arc<Mutex<Vec<(Name, Bell)>>>,
    inbox_due: Vec<(Name, Bell)>,
    pub(crate) is_full: bool,
    /// A full queue takes too long to read after each request.
    pub(crate) is_unread: bool,
    shift_us: i64,
    pings: u64,
    pub(crate) requests: u64,
    history: Vec<Done>,
    pub(crate) seen: Seen,
}

impl Rig {
    pub(crate) fn start(sessions: usize) -> Self {
        let server = RedisServer::builder().skew().config("maxmemory-policy", "noeviction").start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let node = RedisNode::parse(&server.url(), Real::world()).expect("a good URL");
        runtime
            .block_on(async { node.prepare(CHARTER).await?.begin(Begin::Forced).await })
            .expect("the server is there");
        let link = runtime.block_on(node.open(CHARTER)).expect("the server is there");
        let listener = runtime.block_on(node.open(CHARTER)).expect("the server is there");
        let mut monitor = server.resp();
        assert!(monitor.command(&["PSUBSCRIBE", "lq1:inbox:*"]).items().is_some());
        let session = |number: usize| Session {
            id: SessionId(0x1000_0000_0000_0000_0000_0000_0000_0000 + number as u128),
            connection: (number > 0).then(|| server.resp()),
            is_attached: number == 0,
        };
        let sessions: Vec<_> = (0..sessions).map(session).collect();
        let inbox: Arc<Mutex<Vec<_>>> = Arc::default();
        let heard = Arc::clone(&inbox);
        let hear = Arc::new(move |rung| match rung {
            NodeMessage::Bell(name, bell) => heard.lock().unwrap().push((name, bell)),
            NodeMessage::Garbled => panic!("garbage in an inbox"),
            // The link is dropped with the rig. If it were dropped before, it would answer nothing.
            NodeMessage::Detached => {}
        });
        runtime.block_on(listener.attach(sessions[0].id, hear)).expect("an inbox");
        let mut resp = server.resp();
        let marker = decode::marker(&mut resp, MARKER).unwrap().expect("it was begun").0;
        assert_eq!(marker, node::begin(CHARTER, link.run_id(), true));
        let mut rig = Self {
            runtime,
            server,
            resp,
            node,
            link,
            seen_marker: marker.clone(),
            marker: Some(marker),
            listener,
            monitor,
            sessions,
            inbox,
            inbox_due: Vec::new(),
            is_full: false,
            is_unread: false,
            shift_us: 0,
            pings: 0,
            requests: 0,
            history: Vec::new(),
            seen: BTreeMap::new(),
        };
        // The probe of the inbox.
        assert_eq!(rig.published().len(), 1);
        rig
    }

    /// Returns the server's clock, as far as it is known here.
    pub(crate) fn now_us(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        u64::try_from(now).expect("before the year 586524").saturating_add_signed(self.shift_us)
    }

    /// Moves the server's clock. A record that is forgotten by then is gone, even if the clock goes back later.
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
        if self.now_us().abs_diff(lock.model.keep_until_us) < CLEARANCE_US {
            self.shift_us += 2 * i64::try_from(CLEARANCE_US).expect("less than a second");
            self.server.shift_clock(self.shift_us);
            self.forget(lock);
        }
    }

    /// Forgets a name if its keys have ended.
    fn forget(&mut self, lock: &mut Lock) {
        if lock.model.keep_until_us <= self.now_us() {
            assert_eq!(self.resp.command(&["EXISTS", &lock.key, &lock.queue]), Value::Int(0), "{}", lock.key);
            self.count(if lock.model == Record::default() { "never known" } else { "forgotten" });
            lock.model = Record::default();
        }
    }

    /// Has the server refuse commands that need memory.
    pub(crate) fn fill_memory(&mut self, is_full: bool) {
        if self.is_full != is_full {
            let bytes = if is_full { "1" } else { "0" };
            assert_eq!(self.resp.command(&["CONFIG", "SET", "maxmemory", bytes]), Value::Status("OK".into()));
            self.is_full = is_full;
            self.history.push(Done::Memory(is_full));
        }
    }

    pub(crate) fn attach(&mut self, number: usize) {
        self.turn(number, true, "SUBSCRIBE");
    }

    pub(crate) fn detach(&mut self, number: usize) {
        self.turn(number, false, "UNSUBSCRIBE");
    }

    fn turn(&mut self, number: usize, is_attached: bool, command: &str) {
        let session = &mut self.sessions[number];
        let Some(connection) = session.connection.as_mut().filter(|_| session.is_attached != is_attached) else {
            return;
        };
        connection.send(&[command, &format!("lq1:inbox:{}", session.id)]).unwrap();
        // Messages that were published to it arrive before. The monitor has already received them.
        while connection.receive().unwrap().items().unwrap()[0].text() != Some(command.to_lowercase().as_str()) {}
        session.is_attached = is_attached;
        self.history.push(Done::Attached(number, is_attached));
    }

    /// Runs one request on both sides, and returns the decision, if the node has made one.
    pub(crate) fn ask(&mut self, lock: &mut Lock, request: &Request) -> Option<Said> {
        self.steer_clear(lock);
        let answered = self.runtime.block_on(self.link.ask(&lock.name, request));
        self.history.push(Done::Request(lock.key.clone(), Box::new(request.clone()), format!("{answered:?}")));
        self.requests += 1;
        let mut due = Vec::new();
        let said = match answered {
            Err(NoVote::Fault(Fault::NoMemory(_))) if self.is_full && matches!(request, Request::Ask(_)) => {
                self.count("no memory");
                None
            }
            answered => self.check(lock, request, answered, &mut due),
        };
        self.check_stored(lock);
        self.check_bells(&due);
        said
    }

    /// Runs a batch of renewals on both sides.
    pub(crate) fn renew(&mut self, locks: &mut [Lock], batch: &[(usize, Renewal)]) {
        for (number, _) in batch {
            self.steer_clear(&mut locks[*number]);
        }
        let named: Vec<_> = batch.iter().map(|(number, renew)| (locks[*number].name.clone(), renew.clone())).collect();
        let votes = self.runtime.block_on(self.link.renew(&named));
        self.history.push(Done::Renew(named, votes.iter().map(|vote| format!("{vote:?}")).collect()));
        if votes.len() != batch.len() {
            self.fail("some names have no answer");
        }
        self.requests += votes.len() as u64;
        // The script first does the usual renewals, which publish nothing. So messages come in the order of the names.
        let mut due = Vec::new();
        for ((number, renewal), vote) in batch.iter().zip(votes) {
            self.check(&mut locks[*number], &Request::Renew(renewal.clone()), vote, &mut due);
            self.check_stored(&locks[*number]);
        }
        self.check_bells(&due);
    }

    fn check(
        &mut self,
        lock: &mut Lock,
        request: &Request,
        answered: Result<Vote, NoVote>,
        due: &mut Vec<(Name, Bell)>,
    ) -> Option<Said> {
        let gives = matches!(request, Request::Ask(_) | Request::Renew(_));
        let answer = match answered {
            Ok(answer) => answer,
            Err(NoVote::Abstains(abstains)) if gives => {
                let now_us = match abstains {
                    Abstention::Unmarked => self.now_us(),
                    Abstention::Resting { left_us } => self.seen_marker.rests_until_us - left_us,
                };
                if self.seen_marker.abstains(self.marker.as_ref(), now_us) != Some(abstains) {
                    self.fail(&format!("{abstains:?}, and there is {:?}", self.marker));
                }
                self.count(if abstains == Abstention::Unmarked { "unmarked" } else { "resting" });
                return None;
            }
            Err(no_vote) => self.fail(&format!("{no_vote:?}")),
        };
        let abstains = self.seen_marker.abstains(self.marker.as_ref(), answer.now_us);
        if gives && abstains.is_some() {
            self.fail(&format!("{answer:?} is to be {abstains:?}, for there is {:?}", self.marker));
        }
        let attached = |id: SessionId| self.sessions.iter().any(|session| session.id == id && session.is_attached);
        let env = Env { wall_us: answer.now_us, lease_us: answer.now_us, attached: &attached };
        let before = lock.model.clone();
        let (expected, bells) = vote(&mut lock.model, &env, request);
        self.count_future(&before, &lock.model, answer.now_us);
        let cools = |record: &Record| record.grant.as_ref().is_some_and(|granted| !granted.is_held());
        if cools(&lock.model) {
            self.count(if cools(&before) { "late in a cool-down" } else { "a cool-down begun" });
        }
        self.count(kind(&expected.said));
        for bell in &bells {
            self.count(match bell.rings {
                Rings::Call => "call",
                Rings::Wanted { .. } => "wanted",
                Rings::Revoked { .. } => "notified of a revocation",
                Rings::Ending { .. } => "notified of an end",
            });
        }
        if answer != expected {
            self.fail(&format!("the answer is to be\n{expected:?}\nand it is\n{answer:?}"));
        }
        due.extend(bells.into_iter().map(|bell| (lock.name.clone(), bell)));
        Some(expected.said)
    }

    /// Counts times in the future of a clock that was set back.
    fn count_future(&mut self, before: &Record, after: &Record, now_us: u64) {
        let since = |record: &Record| record.grant.as_ref().map(|granted| (granted.id, granted.since_us));
        if since(before).is_some_and(|(_, since_us)| since_us > now_us) && since(before) != since(after) {
            self.count("a vote dated anew");
        }
        let call = |record: &Record| record.called.map(|called| (called.id, called.until_us));
        let is_cut = |(id, until_us)| call(before).is_some_and(|before| before.0 == id && before.1 > until_us);
        if call(after).is_some_and(is_cut) {
            self.count("a call cut short");
        }
    }

    /// Checks that the stored state and its end are those of the specification.
    pub(crate) fn check_stored(&mut self, lock: &Lock) {
        if self.is_unread {
            return;
        }
        let stored = match decode::look(&mut self.resp, &lock.key, &lock.queue) {
            Ok(stored) => stored,
            Err(why) => self.fail(&format!("{}: {why}", lock.key)),
        };
        let Some(stored) = stored else {
            if lock.model != Record::default() {
                self.fail(&format!("nothing is stored, and it is to be\n{:?}", lock.model));
            }
            return;
        };
        if stored.record != lock.model {
            // The next request that writes removes a grant that has ended.
            self.fail(&format!("the record is to be\n{:?}\nand it is\n{:?}", lock.model, stored.record));
        }
        let end_us = lock.model.keep_until_us;
        if stored.ends_ms.iter().any(|ms| (ms * 1000).abs_diff(end_us) > TTL_TOLERANCE_US) {
            self.fail(&format!("all is to end at {end_us}, and it ends at {:?} ms", stored.ends_ms));
        }
    }

    /// Puts this many waiters into the queue of a free name, with tickets from `first` on.
    pub(crate) fn crowd(&mut self, lock: &mut Lock, first: u64, count: u64) {
        let holder = lock.model.grant.clone().expect("a client has the vote");
        let mut command: Vec<String> = vec!["ZADD".into(), lock.queue.clone()];
        for number in 0..count {
            let id = GrantId { session: SessionId(0xf), counter: number, nonce: 7 };
            lock.model.queue.insert((first + number, id), Order::Relaxed);
            command.push((first + number).to_string());
            command.push(format!("{}r", id.wire()));
        }
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        assert_eq!(self.resp.command(&words), Value::Int(i64::try_from(count).unwrap()));
        assert_eq!(self.resp.command(&["SETRANGE", &lock.key, "4", "O"]).int().map(|len| len > 200), Some(true));
        let end_ms = lock.model.keep_until_us.div_ceil(1000).to_string();
        assert_eq!(self.resp.command(&["PEXPIREAT", &lock.queue, &end_ms]), Value::Int(1));
        assert_eq!(holder.state, leasehold_spec::GrantState::Held);
        self.check_stored(lock);
    }

    /// Has a client greet the node, whose server reports that it forgets.
    pub(crate) fn greet(&mut self) {
        let opened = self.runtime.block_on(self.node.open(CHARTER));
        let stored = decode::marker(&mut self.resp, MARKER).unwrap();
        self.history.push(Done::Marker("opened", stored.as_ref().map(|(marker, _)| marker.clone())));
        let run = self.link.run_id().to_owned();
        let entered = |now_us| node::enter(self.marker.as_ref(), CHARTER, &run, true, now_us);
        match opened {
            Ok(link) => {
                let (stored, _) = stored.expect("it was greeted");
                // The time of the script is unknown: a quarantine began then, or the time does not matter.
                let began_us = stored.rests_until_us.saturating_sub(rest_ms(CHARTER.max_lease_ms) * 1000);
                let now_us = self.now_us();
                let began_us = if now_us.abs_diff(began_us) < TTL_TOLERANCE_US { began_us } else { now_us };
                if entered(began_us).as_ref() != Ok(&stored) {
                    self.fail(&format!("entered {:?}, and it is to be {:?}", stored, entered(began_us)));
                }
                self.link.close();
                (self.link, self.seen_marker, self.marker) = (link, stored.clone(), Some(stored));
                self.count("greeted");
            }
            Err(error) => {
                let now_us = self.now_us();
                if entered(now_us).is_ok() || error.kind() != ErrorKind::Invalid {
                    self.fail(&format!("{error:?}"));
                }
                self.count("unlike");
            }
        }
    }

    /// Has an operator initialize the node.
    pub(crate) fn begin(&mut self) {
        let begun = async { self.node.prepare(CHARTER).await?.begin(Begin::Asked).await };
        self.runtime.block_on(begun).unwrap();
        self.marker = Some(node::begin(CHARTER, self.link.run_id(), true));
        self.check_marker("begun");
    }

    /// Has an operator initialize the node, which had this marker at its inspection.
    pub(crate) fn begin_as_asked(&mut self, asked: Option<&Marker>) {
        let run = self.link.run_id().to_owned();
        let of_this_run = asked.filter(|asked| asked.run == run).map(written).unwrap_or_default();
        let charter_text = format!("{:04}{:08}", CHARTER.nodes, CHARTER.max_lease_ms);
        let said = self.resp.command(&[
            "EVALSHA",
            Script::NodeBegin.sha(),
            "1",
            MARKER,
            &charter_text,
            &run,
            "F",
            &of_this_run,
        ]);
        let said = said.text().unwrap_or_else(|| self.fail(&format!("{said:?}"))).to_owned();
        let has_lost = node::has_lost(self.marker.as_ref(), asked, &run);
        match (said.split(' ').next(), has_lost) {
            (Some("MARKED"), false) => self.marker = Some(node::begin(CHARTER, &run, true)),
            (Some("CHANGED"), true) => self.count("changed"),
            _ => self.fail(&format!("{said}, and it is {has_lost} that it has lost what {asked:?} had")),
        }
        self.check_marker("begun");
    }

    /// Has a client greet the node with any run, charter and memory.
    pub(crate) fn greet_as(&mut self, charter: Charter, run: &str, forgets: bool) {
        let charter_text = format!("{:04}{:08}", charter.nodes, charter.max_lease_ms);
        let memory = if forgets { "F" } else { "K" };
        let rest_us = (rest_ms(charter.max_lease_ms) * 1000).to_string();
        let said =
            self.resp.command(&["EVALSHA", Script::NodeEnter.sha(), "1", MARKER, &charter_text, run, memory, &rest_us]);
        let said = said.text().unwrap_or_else(|| self.fail(&format!("{said:?}"))).to_owned();
        let words: Vec<&str> = said.splitn(3, ' ').collect();
        let entered = node::enter(self.marker.as_ref(), charter, run, forgets, words[1].parse().unwrap());
        match (words[0], entered) {
            ("MARKED", Ok(marker)) => {
                self.marker = Some(marker);
                let text = self.check_marker("entered");
                assert_eq!(words[2], text, "the reply contains the stored marker");
            }
            ("UNLIKE", Err(node::Unlike(other))) => {
                assert_eq!(words[2], format!("{:04}{:08}", other.nodes, other.max_lease_ms));
                self.count("unlike");
            }
            (_, entered) => self.fail(&format!("{said}, and it is to be {entered:?}")),
        }
    }

    /// Deletes the marker, or restores an older one.
    pub(crate) fn put_marker(&mut self, marker: Option<Marker>) {
        self.fill_memory(false);
        match &marker {
            None => drop(self.resp.command(&["DEL", MARKER])),
            Some(marker) => {
                let text = written(marker);
                self.resp.command(&["SET", MARKER, &text]);
            }
        }
        self.marker = marker;
        self.check_marker("put");
    }

    /// Returns the stored marker.
    pub(crate) fn marker(&self) -> Option<Marker> {
        self.marker.clone()
    }

    pub(crate) fn run(&self) -> String {
        self.link.run_id().to_owned()
    }

    fn check_marker(&mut self, what: &'static str) -> String {
        let stored = decode::marker(&mut self.resp, MARKER).unwrap_or_else(|why| self.fail(&why));
        let (stored, text) = stored.unzip();
        self.history.push(Done::Marker(what, stored.clone()));
        if stored != self.marker {
            self.fail(&format!("the marker is to be {:?}, and it is {stored:?}", self.marker));
        }
        self.count(what);
        text.unwrap_or_default()
    }

    fn check_bells(&mut self, due: &[(Name, Bell)]) {
        let published = self.published();
        let expected: Vec<_> = due.iter().map(|(name, bell)| message(name, bell)).collect();
        if published != expected {
            self.fail(&format!("published is to be\n{expected:?}\nand it is\n{published:?}"));
        }
        let own = self.sessions[0].id;
        self.inbox_due.extend(due.iter().filter(|(_, bell)| bell.to == own).cloned());
    }

    /// Returns the messages that were published since the last call, as channel and text. The reply to a PING arrives after
    /// every earlier message, so the test needs no wait.
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

    /// Ends a history, and checks that the subscriber has received all its messages. The next history begins with an empty
    /// server.
    pub(crate) fn end_history(&mut self) {
        self.fill_memory(false);
        for number in 1..self.sessions.len() {
            self.detach(number);
        }
        // An answer arrives after every message that was sent before it.
        self.runtime.block_on(self.listener.ping()).unwrap();
        let heard = std::mem::take(&mut *self.inbox.lock().unwrap());
        let due = std::mem::take(&mut self.inbox_due);
        if heard != due {
            self.fail(&format!("the subscriber is to receive\n{due:?}\nand it has received\n{heard:?}"));
        }
        assert_eq!(self.resp.command(&["FLUSHDB"]), Value::Status("OK".into()));
        self.shift_us = 0;
        self.server.shift_clock(0);
        self.begin();
        self.greet();
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

/// Returns the message of a bell, as channel and text.
fn message(name: &Name, bell: &Bell) -> (String, String) {
    let Bell { to, now_us, highest, contention, id, rings } = bell;
    let (event, of, left) = match rings {
        Rings::Call => ('C', "-".to_owned(), "-".to_owned()),
        Rings::Wanted { token } => ('W', format!("{:016}", token.get()), "-".to_owned()),
        Rings::Revoked { token, left_us } => ('R', format!("{:016}", token.get()), left_us.to_string()),
        Rings::Ending { token, left_us } => ('E', format!("{:016}", token.get()), left_us.to_string()),
    };
    let contention = match contention {
        Contention::None => 'N',
        Contention::Others => 'O',
        Contention::Strict => 'S',
    };
    let key = Lock::new(name.as_str()).key;
    let text = format!("lq1 {event} {} {:016} {now_us} {contention} {of} {left} {key}", id.wire(), highest.get());
    (format!("lq1:inbox:{to}"), text)
}

fn kind(said: &Said) -> &'static str {
    match said {
        Said::Granted { .. } => "granted",
        Said::Refused { holder: Some(_), .. } => "refused: held",
        Said::Refused { holder: None, .. } => "refused: called",
        Said::Below => "below",
        Said::Far => "far",
        Said::Late => "late",
        Said::Full => "full",
        Said::Renewed { .. } => "renewed",
        Said::Filled { .. } => "filled",
        Said::Lost { how: LostHow::Revoked } => "lost: revoked",
        Said::Lost { how: LostHow::NotHeld } => "lost: not held",
        Said::GivenBack { was: Was::Granted } => "given back: granted",
        Said::GivenBack { was: Was::Queued } => "given back: queued",
        Said::GivenBack { was: Was::Absent } => "given back: absent",
        Said::Revoking { .. } => "revoking",
        Said::NotHeld => "not held",
        Said::Settled => "settled",
        Said::Inspected(_) => "inspected",
    }
}

/// The events that every run must have seen at least twenty times.
pub(crate) const WANTED: [&str; 36] = [
    "granted",
    "refused: held",
    "refused: called",
    "below",
    "far",
    "late",
    "full",
    "renewed",
    "filled",
    "lost: revoked",
    "lost: not held",
    "given back: granted",
    "given back: queued",
    "given back: absent",
    "revoking",
    "not held",
    "settled",
    "inspected",
    "no memory",
    "call",
    "wanted",
    "notified of a revocation",
    "notified of an end",
    "a cool-down begun",
    "late in a cool-down",
    "a vote dated anew",
    "a call cut short",
    "forgotten",
    "unmarked",
    "resting",
    "unlike",
    "greeted",
    "begun",
    "changed",
    "entered",
    "put",
];

/// Returns a marker in its stored form.
fn written(marker: &Marker) -> String {
    let Marker { charter, run, forgets, rests_until_us, was_used } = marker;
    let (memory, past) = (if *forgets { "F" } else { "K" }, if *was_used { "U" } else { "N" });
    format!("lq1m{rests_until_us:016}{:04}{:08}{memory}{past}{run}", charter.nodes, charter.max_lease_ms)
}
