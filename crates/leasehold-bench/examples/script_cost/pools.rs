//! The cost of read-write locks and semaphores.

use std::thread::sleep;
use std::time::Duration;

use leasehold_spec::{Acquire, Contention, Op, Patience, Take};

use super::{Bench, TURNS, exchange, granted, id, is_usual_release};

/// The pairs with no other holder.
pub(super) const SINGLE: [&str; 4] =
    ["a reader of a new name", "a reader of a used name", "a permit of a new name", "a permit of a used name"];
/// The numbers of readers that hold beside the one that comes and goes.
pub(super) const HOLDERS: [usize; 3] = [1, 100, 10_000];
/// The numbers of writers that wait.
pub(super) const POOL_WAITERS: [usize; 3] = [1, 100, 9_999];

impl Bench<'_> {
    /// The pairs of pools, in the order in which they are printed.
    pub(super) fn pools(&mut self) -> Vec<[f64; 2]> {
        let mut measured = Vec::new();
        self.take = Take::READ;
        self.command(&["FLUSHALL"]);
        measured.push(self.pair(1, 0));
        measured.push(self.pair(2, 0));
        self.take = Take::permits(1, 5);
        self.command(&["FLUSHALL"]);
        measured.push(self.pair(1, 0));
        measured.push(self.pair(2, 0));
        self.take = Take::READ;
        for holders in HOLDERS {
            self.command(&["FLUSHALL"]);
            measured.push(self.beside(holders));
        }
        self.take = Take::WRITE;
        for waiters in POOL_WAITERS {
            self.command(&["FLUSHALL"]);
            measured.push(self.hand_over(waiters));
        }
        self.take = Take::MUTEX;
        measured
    }

    /// A reader comes and goes, `TURNS` times, beside `holders` others of the same name.
    fn beside(&mut self, holders: usize) -> [f64; 2] {
        let name = self.names[0].clone();
        let request =
            |bench: &Self, at: usize| bench.acquire(&name, id(at as u64, 1), &Patience::Try, Contention::None);
        let others: Vec<_> = (0..holders).map(|at| request(self, at)).collect();
        exchange(&mut self.stream, &others);
        let acquires: Vec<_> = (holders..holders + TURNS).map(|at| request(self, at)).collect();
        let (answers, acquire) = self.timed(&acquires);
        let releases = answers.iter().enumerate().map(|(at, answer)| {
            let token = granted(answer).expect("granted, in the usual way");
            let op = Op::Release { id: id((holders + at) as u64, 1), token, used: token };
            self.store.request(&name, &op, self.guess(Contention::None)).expect("a good request")
        });
        let releases: Vec<_> = releases.collect();
        let (answers, release) = self.timed(&releases);
        assert!(answers.iter().all(is_usual_release), "not the usual way");
        [acquire, release]
    }

    /// A lease has ended beside 10,000 others: the time of all steps that look for it.
    pub(super) fn scan(&mut self) -> f64 {
        let name = self.names[0].clone();
        let others: Vec<_> =
            (0..10_000).map(|at| self.acquire(&name, id(at, 1), &Patience::Try, Contention::None)).collect();
        exchange(&mut self.stream, &others);
        let short = Acquire { lease_ms: 100, ..self.request(id(10_000, 1), &Patience::Try) };
        let short =
            self.store.request(&name, &Op::Acquire(short), self.guess(Contention::None)).expect("a good request");
        exchange(&mut self.stream, &[short]);
        sleep(Duration::from_millis(150));
        let settle = self.store.request(&name, &Op::Settle, self.guess(Contention::None)).expect("a good request");
        let mut spent = 0.0;
        loop {
            let (answers, us) = self.timed(std::slice::from_ref(&settle));
            spent += us;
            let text = answers[0].text().expect("words").to_owned();
            if text.split(' ').nth(4) == Some("D") {
                return spent;
            }
        }
    }
}
