//! The cost of condition variables, of latches, of barriers, and of a hand-over to a named candidate.

use std::collections::VecDeque;

use leasehold_spec::limits::COUNTS_MAX;
use leasehold_spec::{Contention, GrantId, Op, Take, Token};
use leasehold_testkit::Value;

use super::{Bench, FAR_US, TURNS, exchange, id, queues};

/// The number of waiters of the condition variable.
const STANDING: u64 = 100;

/// The rows, in the order in which they are printed.
pub(super) const GATES: [&str; 12] = [
    "queue at a condition, beside 100",
    "notify one of 100 waiters",
    "spend",
    "count down a new latch",
    "count down after 99,000 others",
    "delete a latch with 100,000 counts",
    "look for a candidate among 100",
    "look for a candidate among 9,999",
    "arrive first at a barrier of 2",
    "arrive last at a barrier of 2",
    "arrive first at a barrier of 256",
    "arrive last at a barrier of 256",
];

impl Bench<'_> {
    pub(super) fn gates(&mut self) -> [f64; GATES.len()] {
        self.command(&["FLUSHALL"]);
        let [queue, notify, spend] = self.condition();
        self.command(&["FLUSHALL"]);
        let [first, last, delete] = self.latch();
        let [few, many] = [100, 9_999].map(|candidates| self.absent_candidate(candidates));
        let [[first_of_2, last_of_2], [first_of_256, last_of_256]] = [2, 256].map(|parties| self.barrier(parties));
        let arrivals = [first_of_2, last_of_2, first_of_256, last_of_256];
        let mut all = [0.0; GATES.len()];
        all[..8].copy_from_slice(&[queue, notify, spend, first, last, delete, few, many]);
        all[8..].copy_from_slice(&arrivals);
        all
    }

    /// The first arrival of a round, and the last one, which lets all parties through.
    fn barrier(&mut self, parties: u32) -> [f64; 2] {
        const ROUNDS: u64 = 20;
        self.command(&["FLUSHALL"]);
        let _subscriber = self.subscriber();
        self.take = Take::arrival(parties);
        let name = self.names[0].clone();
        let mut spent = [0.0; 2];
        for round in 0..ROUNDS {
            let arrivals: Vec<_> = (0..u64::from(parties))
                .map(|at| self.acquire(&name, id(round * 1_000 + at, 1), &queues(), Contention::Others))
                .collect();
            let [first, between @ .., last] = arrivals.as_slice() else { unreachable!("two parties") };
            spent[0] += self.timed(std::slice::from_ref(first)).1;
            if !between.is_empty() {
                exchange(&mut self.stream, between);
            }
            let (answers, us) = self.timed(std::slice::from_ref(last));
            assert!(answers[0].text().is_some_and(|text| text.starts_with("GRANTED")), "{:?}", answers[0]);
            spent[1] += us;
        }
        self.take = Take::MUTEX;
        spent.map(|us| us / ROUNDS as f64)
    }

    /// A leader hands over to somebody who is not there: the script looks at each candidate, and changes nothing.
    fn absent_candidate(&mut self, candidates: usize) -> f64 {
        const REPEATS: u32 = 20;
        self.command(&["FLUSHALL"]);
        let name = self.names[0].clone();
        let (ids, token) = self.queue(&name, candidates);
        let mut spent = 0.0;
        for _ in 0..REPEATS {
            let (answer, us) = self.ask(&Op::HandTo { id: ids[0], token, label: "nobody".into() });
            assert!(answer.starts_with("NOWAITER"), "{answer}");
            spent += us;
        }
        spent / f64::from(REPEATS)
    }

    /// In each turn the first waiter is notified, spends the notification, and another one comes.
    fn condition(&mut self) -> [f64; 3] {
        let _subscriber = self.subscriber();
        self.take = Take::NOTIFICATION;
        let name = self.names[0].clone();
        let mut order: VecDeque<GrantId> = (0..STANDING).map(|at| id(at, 1)).collect();
        let queue = |bench: &Self, id| bench.acquire(&name, id, &queues(), Contention::Others);
        let requests: Vec<_> = order.iter().map(|&id| queue(self, id)).collect();
        exchange(&mut self.stream, &requests);
        let mut spent = [0.0; 3];
        for at in 0..TURNS as u64 {
            let notify = self.ask(&Op::Notify { count: 1 });
            let token = Token::new(number(&notify.0, 2)).expect("a token");
            assert_eq!(number(&notify.0, 6), 1, "a waiter is notified");
            let notified = order.pop_front().expect("somebody waits");
            let spend = self.ask(&Op::Spend { id: notified, token });
            assert!(spend.0.starts_with("SPENT"), "{}", spend.0);
            order.push_back(id(STANDING + at, 1));
            let request = queue(self, id(STANDING + at, 1));
            let (answers, us) = self.timed(&[request]);
            assert!(answers[0].text().is_some_and(|text| text.starts_with("QUEUED")), "a waiter");
            for (sum, us) in spent.iter_mut().zip([us, notify.1, spend.1]) {
                *sum += us;
            }
        }
        self.take = Take::MUTEX;
        spent.map(|us| us / TURNS as f64)
    }

    fn latch(&mut self) -> [f64; 3] {
        let (limit, turns) = (COUNTS_MAX, TURNS as u64);
        let create = self.ask(&Op::CreateLatch { limit, keep_ms: 3_600_000, not_after_us: FAR_US }).0;
        let born = Token::new(number(&create, 7)).expect("a token");
        let name = self.names[0].clone();
        let counts = |bench: &Self, from: u64, to: u64| -> Vec<_> {
            let ops = (from..to).map(|at| Op::CountDown { id: id(at, 1), born });
            let request = |op| bench.store.request(&name, &op, bench.guess(Contention::None)).expect("a good request");
            ops.map(request).collect()
        };
        let requests = counts(self, 0, turns);
        let first = self.timed(&requests).1;
        let requests = counts(self, turns, u64::from(limit) - turns);
        exchange(&mut self.stream, &requests);
        let requests = counts(self, u64::from(limit) - turns, u64::from(limit));
        let (answers, last) = self.timed(&requests);
        assert_eq!(answers.last().and_then(Value::text).map(|text| number(text, 6)), Some(0), "it is open");
        let delete = self.ask(&Op::DeleteLatch { born }).1;
        [first, last, delete]
    }

    /// Returns the answer to one request for the first name, and its time.
    fn ask(&mut self, op: &Op) -> (String, f64) {
        let request = self.store.request(&self.names[0], op, self.guess(Contention::None)).expect("a good request");
        let (answers, us) = self.timed(&[request]);
        (answers[0].text().expect("words").to_owned(), us)
    }
}

fn number(answer: &str, at: usize) -> u64 {
    answer.split(' ').nth(at).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("a number in {answer:?}"))
}
