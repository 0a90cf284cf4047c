//! A name with an almost full queue.

use leasehold_spec::limits::{LEASE_MAX_MS, QUEUE_MAX};
use leasehold_spec::{
    Acquire, Contention, Entry, GrantId, Hears, Mode, Op, Order, Outcome, Patience, Place, SessionId, Take,
};
use leasehold_testkit::Value;

use crate::rig::{Lock, Rig};

impl Rig {
    /// Returns a name with an almost full queue. The scripts fill it once, and each history gets a copy.
    pub(crate) fn full_queue(&mut self) -> Lock {
        let mut lock = Lock::new("full");
        self.is_unread = true;
        if self.full_queue.is_none() {
            self.fill(&mut lock);
            self.check_full_queue(&lock);
            assert_eq!(self.harness.resp().command(&["MOVE", &lock.key, "1"]), Value::Int(1));
            let mut other = self.harness.server().resp();
            assert_eq!(other.command(&["SELECT", "1"]), Value::Status("OK".into()));
            // The clock will be moved by days before the next history of this kind.
            assert_eq!(other.command(&["PERSIST", &lock.key]), Value::Int(1));
            self.full_queue = Some(lock.model.clone());
            self.log.clear();
        }
        self.is_unread = true;
        let mut other = self.harness.server().resp();
        assert_eq!(other.command(&["SELECT", "1"]), Value::Status("OK".into()));
        assert_eq!(other.command(&["COPY", &lock.key, &lock.key, "DB", "0"]), Value::Int(1));
        lock.model = self.full_queue.clone().expect("it was just filled");
        let end_ms = lock.end_us().div_ceil(1000).to_string();
        assert_eq!(self.harness.resp().command(&["PEXPIREAT", &lock.key, &end_ms]), Value::Int(1));
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
                mode: Mode::Plain,
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
}
