//! A real server with a movable clock, real subscribers, and the specification of a node.
//!
//! Each request runs on the server first, through the crate's own link and the shipped scripts. Then [`node::vote`] runs it
//! on the model, at the time in the server's answer, and with the subscribers that the script could see. The answers, the
//! stored states and the published messages must be equal. The same holds for markers.

use std::sync::Arc;

use leasehold::seam::node::{Begin, NoVote, Node, NodeLink, NodeMessage};
use leasehold::seam::{Fault, Real, RedisNode};
use leasehold_spec::node::{self, Abstention, Bell, Charter, Marker, Record, Renewal, Request, Said, Vote, vote};
use leasehold_spec::{Env, GrantId, Name, Order, SessionId};
use leasehold_testkit::Value;
use leasehold_testkit::differential::{Harness, Inbox, Log, TTL_TOLERANCE_US, key};
use tokio::runtime::Runtime;

use crate::wire::message;
use crate::{cases, decode};

pub(crate) const MARKER: &str = "lq1:marker";
pub(crate) const CHARTER: Charter = Charter { nodes: 3, max_lease_ms: 60_000 };

/// One name in the model.
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) key: String,
    pub(crate) queue: String,
    pub(crate) model: Record,
}

impl Lock {
    pub(crate) fn new(text: &str) -> Self {
        let name = Name::new(text).expect("the test uses good names");
        Self { name, key: key("lq1:", text), queue: key("lq1q:", text), model: Record::default() }
    }
}

/// One step of a history, for the report of a failure.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug, in the report of a failure")]
pub(crate) enum Done {
    Request(String, Box<Request>, String),
    Renew(Vec<(Name, Renewal)>, Vec<String>),
    Clock(i64),
    Attached(usize, bool),
    Memory(bool),
    Marker(&'static str, Option<Marker>),
}

pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) harness: Harness,
    pub(crate) node: RedisNode,
    pub(crate) link: Arc<dyn NodeLink>,
    /// The marker that the link has seen, and the stored one.
    pub(crate) seen_marker: Marker,
    pub(crate) marker: Option<Marker>,
    /// The link with the inbox of the first session.
    listener: Arc<dyn NodeLink>,
    inbox: Inbox<(Name, Bell)>,
    /// A full queue takes too long to read after each request.
    pub(crate) is_unread: bool,
    pub(crate) log: Log<Done>,
}

impl Rig {
    pub(crate) fn start(sessions: usize) -> Self {
        let mut harness = Harness::start("lq1:inbox:", sessions);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let node = RedisNode::parse(&harness.server().url(), Real::world()).expect("a good URL");
        runtime
            .block_on(async { node.prepare(CHARTER).await?.begin(Begin::Forced).await })
            .expect("the server is there");
        let link = runtime.block_on(node.open(CHARTER)).expect("the server is there");
        let listener = runtime.block_on(node.open(CHARTER)).expect("the server is there");
        let inbox = Inbox::default();
        let receive = inbox.receiver();
        let on_message = Arc::new(move |rung| match rung {
            NodeMessage::Bell(name, bell) => receive((name, bell)),
            NodeMessage::Garbled => panic!("garbage in an inbox"),
            // The link is dropped with the rig, and not before.
            NodeMessage::Detached => {}
        });
        runtime.block_on(listener.attach(harness.session(0), on_message)).expect("an inbox");
        let marker = decode::marker(harness.resp(), MARKER).unwrap().expect("it was begun").0;
        assert_eq!(marker, node::begin(CHARTER, link.run_id(), true));
        // The probe of the inbox.
        assert_eq!(harness.published().len(), 1);
        let (seen_marker, marker, log) = (marker.clone(), Some(marker), Log::default());
        Self { runtime, harness, node, link, seen_marker, marker, listener, inbox, is_unread: false, log }
    }

    /// Returns the server's clock, as far as it is known here.
    pub(crate) fn now_us(&self) -> u64 {
        self.harness.now_us()
    }

    /// Moves the server's clock. A record that is forgotten by then is gone, even if the clock goes back later.
    pub(crate) fn move_clock(&mut self, by_us: i64, locks: &mut [Lock]) {
        self.harness.move_clock(by_us);
        self.log.push(Done::Clock(by_us));
        for lock in locks {
            self.steer_clear(lock);
            self.forget(lock);
        }
    }

    fn steer_clear(&mut self, lock: &mut Lock) {
        if self.harness.steer_clear(lock.model.keep_until_us) {
            self.forget(lock);
        }
    }

    /// Forgets a name if its keys have ended.
    fn forget(&mut self, lock: &mut Lock) {
        if lock.model.keep_until_us <= self.now_us() {
            assert_eq!(self.harness.resp().command(&["EXISTS", &lock.key, &lock.queue]), Value::Int(0), "{}", lock.key);
            self.count(if lock.model == Record::default() { "never known" } else { "forgotten" });
            lock.model = Record::default();
        }
    }

    /// Has the server refuse commands that need memory.
    pub(crate) fn fill_memory(&mut self, is_full: bool) {
        if self.harness.fill_memory(is_full) {
            self.log.push(Done::Memory(is_full));
        }
    }

    pub(crate) fn attach(&mut self, number: usize, is_attached: bool) {
        if self.harness.attach(number, is_attached) {
            self.log.push(Done::Attached(number, is_attached));
        }
    }

    /// Runs one request on both sides, and returns the decision, if the node has made one.
    pub(crate) fn ask(&mut self, lock: &mut Lock, request: &Request) -> Option<Said> {
        self.steer_clear(lock);
        let answered = self.runtime.block_on(self.link.ask(&lock.name, request));
        self.log.push(Done::Request(lock.key.clone(), Box::new(request.clone()), format!("{answered:?}")));
        self.count("requests");
        let mut due = Vec::new();
        let said = match answered {
            Err(NoVote::Fault(Fault::NoMemory(_))) if self.harness.is_full() && matches!(request, Request::Ask(_)) => {
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
        self.log.push(Done::Renew(named, votes.iter().map(|vote| format!("{vote:?}")).collect()));
        if votes.len() != batch.len() {
            self.fail("some names have no answer");
        }
        // The script first does the usual renewals, which publish nothing. So messages come in the order of the names.
        let mut due = Vec::new();
        for ((number, renewal), vote) in batch.iter().zip(votes) {
            self.count("requests");
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
        let attached = |id: SessionId| self.harness.is_attached(id);
        let env = Env { wall_us: answer.now_us, lease_us: answer.now_us, attached: &attached };
        let before = lock.model.clone();
        let (expected, bells) = vote(&mut lock.model, &env, request);
        cases::of(&before, &lock.model, &expected.said, answer.now_us).into_iter().for_each(|case| self.count(case));
        bells.iter().for_each(|bell| self.count(cases::rung(bell.rings)));
        if answer != expected {
            self.fail(&format!("the answer is to be\n{expected:?}\nand it is\n{answer:?}"));
        }
        due.extend(bells.into_iter().map(|bell| (lock.name.clone(), bell)));
        Some(expected.said)
    }

    /// Checks that the stored state and its end are those of the specification.
    pub(crate) fn check_stored(&mut self, lock: &Lock) {
        if self.is_unread {
            return;
        }
        let stored = match decode::look(self.harness.resp(), &lock.key, &lock.queue) {
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
        assert_eq!(self.harness.resp().command(&words), Value::Int(i64::try_from(count).unwrap()));
        assert_eq!(
            self.harness.resp().command(&["SETRANGE", &lock.key, "4", "O"]).int().map(|len| len > 200),
            Some(true)
        );
        let end_ms = lock.model.keep_until_us.div_ceil(1000).to_string();
        assert_eq!(self.harness.resp().command(&["PEXPIREAT", &lock.queue, &end_ms]), Value::Int(1));
        assert_eq!(holder.state, leasehold_spec::GrantState::Held);
        self.check_stored(lock);
    }

    fn check_bells(&mut self, due: &[(Name, Bell)]) {
        let published = self.harness.published();
        let expected: Vec<_> = due.iter().map(|(name, bell)| message(name, bell)).collect();
        if published != expected {
            self.fail(&format!("published is to be\n{expected:?}\nand it is\n{published:?}"));
        }
        for (due, (_, text)) in due.iter().zip(published) {
            if due.1.to == self.harness.session(0) {
                self.inbox.expect(due.clone());
            }
            self.harness.deliver(due.1.to, text);
        }
    }

    /// Ends a history, and checks that each subscriber has received all its messages. The next history begins with an
    /// empty server.
    pub(crate) fn end_history(&mut self) {
        // An answer arrives after every message that was sent before it.
        self.runtime.block_on(self.listener.ping()).unwrap();
        self.inbox.compare().unwrap_or_else(|why| self.fail(&why));
        self.harness.end_history();
        self.begin();
        self.greet();
        self.log.clear();
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        self.log.count(what);
    }

    pub(crate) fn fail(&self, what: &str) -> ! {
        self.log.fail(what)
    }
}
