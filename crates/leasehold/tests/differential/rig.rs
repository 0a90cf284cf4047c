//! A real server with a clock that can be moved, real subscribers, and the specification beside it.
//!
//! Each operation runs on the server first, through the crate's own link and with the shipped scripts. Then `step` runs
//! it on the model, at the time of the server's reply, with the attachments that the script could see. The answer, the
//! stored data and the published messages must be the same.

use std::sync::Arc;

use leasehold::seam::{Fault, Guess, Link, Message, Real, RedisStore, Store};
use leasehold_spec::limits::RETENTION_US;
use leasehold_spec::{
    Acquire, Answer, Delivery, Env, Kind, Name, Op, Outcome, Renew, Resource, SessionId, Token, acquire_all, step,
};
use leasehold_testkit::Value;
use leasehold_testkit::differential::{Harness, Inbox, Log, TTL_TOLERANCE_US, key};
use tokio::runtime::Runtime;

use crate::cases::{self, Before};
use crate::decode::{self, Encoding};
use crate::wire::{message, plain};

/// One name in the model.
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) key: String,
    pub(crate) model: Resource,
}

impl Lock {
    pub(crate) fn new(text: &str) -> Self {
        let name = Name::new(text).expect("the test uses good names");
        Self { name, key: key("lh1:", text), model: Resource::default() }
    }

    /// Returns the time when the record may be forgotten.
    pub(crate) fn end_us(&self) -> u64 {
        self.model.keep_until_us.max(self.model.reserved().get() + RETENTION_US)
    }
}

/// An event of a history, which is printed when the history fails.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug, in the report of a failure")]
pub(crate) enum Done {
    Op(String, Box<Op>, Guess, Box<Result<Answer, String>>),
    Renew(Vec<(Name, Renew)>, Vec<Result<Answer, String>>),
    Many(Vec<(usize, Op)>, Vec<Result<Answer, String>>),
    Clock(i64),
    Attached(usize, bool),
    Memory(bool),
}

pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) harness: Harness,
    pub(crate) link: Arc<dyn Link>,
    inbox: Inbox<(Name, Delivery)>,
    /// A record with a few waiters less than the maximum. It is kept in another database.
    pub(crate) full_queue: Option<Resource>,
    /// A full queue takes too long to be read after each operation.
    pub(crate) is_unread: bool,
    pub(crate) log: Log<Done>,
}

/// Returns what the specification makes of a request for several mutexes.
fn expect_all(locks: &[Lock], members: &[(usize, Acquire)], now_us: u64) -> (Option<Vec<Answer>>, Vec<Resource>) {
    let env = Env { wall_us: now_us, lease_us: now_us, attached: &|_| true };
    let mut models: Vec<_> = members.iter().map(|(number, _)| locks[*number].model.clone()).collect();
    let mut asked: Vec<_> = models.iter_mut().zip(members.iter().map(|(_, acquire)| acquire)).collect();
    (acquire_all(&mut asked, &env), models)
}

impl Rig {
    pub(crate) fn start(sessions: usize) -> Self {
        let mut harness = Harness::start("lh1:inbox:", sessions);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = RedisStore::new(&harness.server().url(), Real::world()).expect("a good URL");
        let link = runtime.block_on(store.open()).expect("the server is there");
        let inbox = Inbox::default();
        let receive = inbox.receiver();
        let on_message = Arc::new(move |message| match message {
            Message::Delivery(name, delivery) => receive((name, delivery)),
            Message::RecheckAll | Message::Recheck(_) | Message::Ending { .. } | Message::Shortened { .. } => {
                panic!("garbage in an inbox")
            }
            // The link is dropped with the rig, and not before.
            Message::Detached => {}
        });
        runtime.block_on(link.attach(harness.session(0), on_message)).expect("an inbox");
        // The probe of the inbox.
        assert_eq!(harness.published().len(), 1);
        Self { runtime, harness, link, inbox, full_queue: None, is_unread: false, log: Log::default() }
    }

    /// Returns the time of the server's clock, as far as it is known here.
    pub(crate) fn now_us(&self) -> u64 {
        self.harness.now_us()
    }

    /// Moves the clock of the server. A record that is forgotten before or after that does not come back, even if the clock
    /// steps back.
    pub(crate) fn move_clock(&mut self, by_us: i64, locks: &mut [Lock]) {
        self.forget_ended(locks);
        self.harness.move_clock(by_us);
        self.log.push(Done::Clock(by_us));
        self.forget_ended(locks);
    }

    /// Forgets the models of all names whose keys have ended. To step away from the end of one can lead to that of another.
    fn forget_ended(&mut self, locks: &mut [Lock]) {
        while locks.iter().any(|lock| self.harness.steer_clear(lock.end_us())) {}
        locks.iter_mut().for_each(|lock| self.forget(lock));
    }

    pub(crate) fn steer_clear(&mut self, lock: &mut Lock) {
        if self.harness.steer_clear(lock.end_us()) {
            self.forget(lock);
        }
    }

    /// Forgets the model of a name if its key has ended.
    pub(crate) fn forget(&mut self, lock: &mut Lock) {
        let now_us = self.now_us();
        if lock.model.is_forgotten(now_us, now_us) {
            assert_eq!(self.harness.resp().command(&["EXISTS", &lock.key]), Value::Int(0), "{}", lock.key);
            self.count(if lock.model == Resource::default() { "never known" } else { "forgotten" });
            lock.model = Resource::default();
        }
    }

    /// Makes the server refuse commands that need memory.
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

    /// Runs one operation on both. Returns the outcome, if the store did anything.
    pub(crate) fn apply(&mut self, lock: &mut Lock, op: &Op, guess: impl Into<Guess>) -> Option<Outcome> {
        let guess = guess.into();
        self.steer_clear(lock);
        let answered = self.runtime.block_on(self.link.apply(&lock.name, op, guess));
        let told = answered.as_ref().map(Answer::clone).map_err(|fault| format!("{fault:?}"));
        self.log.push(Done::Op(lock.key.clone(), Box::new(op.clone()), guess, Box::new(told)));
        match answered {
            Ok(answer) => {
                let mut due = Vec::new();
                self.check(lock, op, &answer, &mut due);
                self.check_deliveries(&due);
                Some(answer.outcome)
            }
            Err(Fault::NoMemory(_))
                if self.harness.is_full() && matches!(op, Op::Acquire(_) | Op::CreateLatch { limit: 1.., .. }) =>
            {
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

    /// Runs a request for several mutexes on both (P46).
    pub(crate) fn acquire_all(&mut self, locks: &mut [Lock], members: &[(usize, Acquire)]) {
        for (number, _) in members {
            self.steer_clear(&mut locks[*number]);
        }
        let named: Vec<_> = members.iter().map(|(number, one)| (locks[*number].name.clone(), one.clone())).collect();
        let before_us = self.now_us();
        let answers = match self.runtime.block_on(self.link.acquire_all(&named)) {
            Ok(answers) => answers,
            Err(Fault::NoMemory(_)) if self.harness.is_full() => {
                self.count("no memory for several");
                return self.check_deliveries(&[]);
            }
            Err(fault) => self.fail(&format!("{fault:?}")),
        };
        let said_us = answers.iter().flatten().map(|answer| answer.now_us).next();
        // A refusal does not say its time: a token can be in the future when the script reads it, and in the past now.
        let now_us = said_us.unwrap_or(before_us);
        let (mut expected, mut models) = expect_all(locks, members, now_us);
        if said_us.is_none() && expected.is_some() {
            (expected, models) = expect_all(locks, members, self.now_us());
        }
        if answers != expected {
            self.fail(&format!("{members:?}: the answers are to be\n{expected:?}\nand they are\n{answers:?}"));
        }
        self.count(if expected.is_some() { "all acquired" } else { "none acquired" });
        for ((number, _), model) in members.iter().zip(models) {
            locks[*number].model = model;
            self.check_stored(&locks[*number]);
        }
        self.check_deliveries(&[]);
    }

    /// Runs a batch of renewals on both.
    pub(crate) fn renew(&mut self, locks: &mut [Lock], batch: &[(usize, Renew)], kind: Kind) {
        for (number, _) in batch {
            self.steer_clear(&mut locks[*number]);
        }
        let named: Vec<_> = batch.iter().map(|(number, renew)| (locks[*number].name.clone(), renew.clone())).collect();
        let answers = self.runtime.block_on(self.link.renew(&named, kind));
        let told = answers.iter().map(|one| one.as_ref().cloned().map_err(|fault| format!("{fault:?}")));
        self.log.push(Done::Renew(named, told.collect()));
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
        self.compare(lock, op, answer, due);
        self.check_stored(lock);
    }

    /// Runs a request on the model, and compares the answers.
    pub(crate) fn compare(&mut self, lock: &mut Lock, op: &Op, answer: &Answer, due: &mut Vec<(Name, Delivery)>) {
        let is_timeless = answer.now_us == 0 && answer.outcome == Outcome::Released;
        let now_us = if is_timeless { self.now_us() } else { answer.now_us };
        let attached = |id: SessionId| self.harness.is_attached(id);
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &attached };
        let before = Before::of(&lock.model, op);
        let (mut expected, deliveries) = step(&mut lock.model, &env, op);
        match lock.model.kind.is_pool() {
            true => before.cases_of_pool(&lock.model, &expected).into_iter().for_each(|case| self.count(case)),
            false => before.cases(&lock.model, op, &expected, now_us).into_iter().for_each(|case| self.count(case)),
        }
        deliveries.iter().for_each(|delivery| self.count(cases::pushed(delivery.event)));
        if is_timeless {
            expected.now_us = 0;
        }
        if !agree(answer, &expected, lock.model.kind) {
            self.fail(&format!("the answer is to be\n{expected:?}\nand it is\n{answer:?}"));
        }
        due.extend(deliveries.into_iter().map(|delivery| (lock.name.clone(), delivery)));
    }

    /// Checks that the stored record equals the record of the specification, and has the right TTL.
    pub(crate) fn check_stored(&mut self, lock: &Lock) {
        if self.is_unread {
            return;
        }
        let stored = match decode::look(self.harness.resp(), &lock.key) {
            Ok(stored) => stored,
            Err(why) => self.fail(&format!("{}: {why}", lock.key)),
        };
        let Some(mut stored) = stored else {
            // A request that granted nothing leaves nothing behind.
            if lock.model.last != Token::NONE || !lock.model.is_idle() {
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
            Encoding::Pool => lock.model.kind.is_pool(),
        };
        if stored.resource != lock.model || !fits {
            self.fail(&format!("the record is to be\n{:?}\nand it is\n{stored:?}", lock.model));
        }
        self.count(match stored.encoding {
            Encoding::Short => "stored as a string",
            Encoding::Hash if lock.model.queue.is_empty() => "stored as a hash without a queue",
            Encoding::Hash => "stored as a hash",
            Encoding::Pool => "stored as a pool",
        });
        let (ends_us, end_us) = (stored.expires_ms * 1000, lock.end_us());
        if ends_us.abs_diff(end_us) > TTL_TOLERANCE_US {
            self.fail(&format!("the record is to end at {end_us}, and it ends at {ends_us}: {stored:?}"));
        }
    }

    pub(crate) fn check_deliveries(&mut self, due: &[(Name, Delivery)]) {
        let texts = self.harness.published();
        let expected: Vec<_> = due.iter().map(|(name, delivery)| message(name, delivery)).collect();
        let published: Vec<_> = texts.iter().map(|(channel, text)| (channel.clone(), plain(text))).collect();
        if published != expected {
            self.fail(&format!("published is to be\n{expected:?}\nand it is\n{published:?}"));
        }
        for (due, (_, text)) in due.iter().zip(texts) {
            if due.1.to == self.harness.session(0) {
                self.inbox.expect(due.clone());
            }
            self.harness.deliver(due.1.to, text);
        }
    }

    /// Ends a history: each subscriber must have got its messages. The next history begins with an empty server.
    pub(crate) fn end_history(&mut self) {
        // A reply comes after every message that was sent before it.
        self.runtime.block_on(self.link.ping()).unwrap();
        self.inbox.compare().unwrap_or_else(|why| self.fail(&why));
        self.harness.end_history();
        self.is_unread = false;
        self.log.clear();
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        self.log.count(what);
    }

    pub(crate) fn fail(&self, what: &str) -> ! {
        self.log.fail(what)
    }
}

/// Whether an answer is the one that is expected. Of a pool the store knows a bound of the first end. So the reply to a
/// waiter has at most the rest of the first lease, rounded up to ms.
fn agree(answer: &Answer, expected: &Answer, kind: Kind) -> bool {
    let left = |answer: &Answer| match answer.outcome {
        Outcome::Queued { left_us, .. } | Outcome::Busy { left_us } if kind.is_pool() => Some(left_us),
        _ => None,
    };
    let with_left = |answer: &Answer, left_us: u64| {
        let mut answer = answer.clone();
        if let Outcome::Queued { left_us: left, .. } | Outcome::Busy { left_us: left } = &mut answer.outcome {
            *left = left_us;
        }
        answer
    };
    match (left(answer), left(expected)) {
        (Some(told_us), Some(left_us)) => told_us < left_us + 1_000 && with_left(answer, 0) == with_left(expected, 0),
        _ => answer == expected,
    }
}
