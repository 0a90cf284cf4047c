//! The five phases of a `lock()` future, and what is left of it when it is dropped in each.
//!
//! ```text
//!   before send ──► in flight ──► queued ──► granted unseen ──► held
//! ```
//!
//! No phase is counted because the test meant it: each is read off what happened. *Before send*: nothing more came to the
//! store, or ever does. *In flight*: the request has been sent and the future was not woken since. *Queued*: the answer was
//! heard, and the store counts the waiter. *Granted unseen*: the store names us as the holder, and the future was woken and
//! not polled. *Held*: the caller had its guard.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Guard, Leasehold, Mutex, Released};

use crate::bench::{Bench, Way};
use crate::hand::{Driven, drive, poll_all, until};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    BeforeSend,
    InFlight,
    Queued,
    GrantedUnseen,
    Held,
}

impl Phase {
    pub(crate) const ALL: [Self; 5] = [Self::BeforeSend, Self::InFlight, Self::Queued, Self::GrantedUnseen, Self::Held];
}

/// How many futures were seen dropped in each phase.
pub(crate) type Tally = BTreeMap<Phase, usize>;

/// Who waits behind whom.
const LINE: usize = 25;

/// A client whose futures are dropped, and one that looks on and holds what it is to wait for.
pub(crate) struct Ward {
    pub(crate) bench: Bench,
    pub(crate) subject: Leasehold,
    pub(crate) other: Leasehold,
    pub(crate) names: Vec<String>,
    pub(crate) tally: Tally,
}

impl Ward {
    pub(crate) fn new(bench: Bench) -> Self {
        let (subject, other) = (bench.connect("subject"), bench.connect_straight("other"));
        Self { bench, subject, other, names: Vec::new(), tally: Tally::new() }
    }

    pub(crate) fn drop_in(&mut self, phase: Phase, count: usize) {
        match phase {
            Phase::BeforeSend => self.before_send(count),
            Phase::InFlight => {
                self.in_flight(count / 2, Way::Requests);
                self.in_flight(count - count / 2, Way::Replies);
            }
            Phase::Queued => self.queued(count),
            Phase::GrantedUnseen => {
                self.pushed_unseen(count / 2);
                self.answered_unseen(count - count / 2);
            }
            Phase::Held => self.held(count),
        }
    }

    fn count(&mut self, phase: Phase, seen: usize) {
        *self.tally.entry(phase).or_default() += seen;
    }

    fn fresh_names(&mut self, count: usize) -> Vec<String> {
        let begin = self.names.len();
        self.names.extend((begin..begin + count).map(|number| format!("name {number}")));
        self.names[begin..].to_vec()
    }

    fn lock(&self, name: &str) -> Driven<leasehold::Result<Guard>> {
        let mutex = self.subject.mutex(name);
        Driven::new(async move { mutex.lock().await })
    }

    /// Futures for these names, `LINE` for each, and each with an attempt of its own.
    fn line_up(&self, names: &[String], count: usize) -> Vec<Driven<leasehold::Result<Guard>>> {
        let mutexes = (0..count).map(|number| self.subject.mutex(&names[number / LINE]).fair());
        mutexes.map(|mutex| Driven::new(async move { mutex.lock().await })).collect()
    }

    fn hold_all(&self, names: &[String]) -> Vec<Guard> {
        let locked = async |name: &String| self.other.mutex(name).try_lock().await.expect("an answer").expect("free");
        names.iter().map(|name| self.bench.block_on(locked(name))).collect()
    }

    /// Polls them until each has heard that it waits: what wakes it from then on is the grant.
    #[track_caller]
    fn wait_all(&self, names: &[String], futures: &mut [Driven<leasehold::Result<Guard>>], there: usize) {
        poll_all(futures);
        until("all stand in the queue", || self.bench.there(&self.other, names) == there);
        futures.iter_mut().filter(|future| future.is_woken()).for_each(|future| assert!(future.poll().is_pending()));
    }

    /// Nobody holds and nobody waits, without anybody's help.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self, names: &[String]) {
        let mut rest = names.to_vec();
        until("nobody holds and nobody waits", || {
            rest.retain(|name| self.bench.there(&self.other, std::slice::from_ref(name)) > 0);
            rest.is_empty()
        });
    }

    fn before_send(&mut self, count: usize) {
        let names = self.fresh_names(count.div_ceil(LINE));
        self.bench.cut();
        let before = self.bench.sent();
        let mut futures = self.line_up(&names, count);
        poll_all(&mut futures);
        let unwoken = futures.iter().filter(|future| !future.is_woken()).count();
        drop(futures);
        self.bench.mend();
        // Whatever they had left would go out before this, which is younger, or be in the store then.
        let guard = self.lock("probe").finish("the client is back");
        assert_eq!(self.bench.block_on(guard.expect("granted").release()).expect("an answer"), Released::Released);
        let after = self.bench.sent();
        assert_eq!(after.acquires - before.acquires, 1, "none of them was ever sent");
        assert_eq!(self.bench.there(&self.other, &names), 0);
        self.count(Phase::BeforeSend, unwoken);
    }

    /// Held up on the way there, or on the way back.
    fn in_flight(&mut self, count: usize, way: Way) {
        let names = self.fresh_names(count.div_ceil(LINE));
        let before = self.bench.sent().acquires;
        self.bench.hold(way);
        let mut futures = self.line_up(&names, count);
        poll_all(&mut futures);
        until("all are sent", || self.bench.sent().acquires - before == count as u64);
        match way {
            Way::Requests => assert_eq!(self.bench.there(&self.other, &names), 0, "none has come to the store"),
            Way::Replies => until("all are carried out", || self.bench.there(&self.other, &names) == count),
        }
        let unanswered = futures.iter().filter(|future| !future.is_woken()).count();
        drop(futures);
        self.bench.resume(&self.subject);
        self.nothing_is_left(&names);
        self.count(Phase::InFlight, unanswered);
    }

    fn queued(&mut self, count: usize) {
        let names = self.fresh_names(count.div_ceil(LINE));
        let held = self.hold_all(&names);
        let mut futures = self.line_up(&names, count);
        self.wait_all(&names, &mut futures, names.len() + count);
        let there = || self.bench.there(&self.other, &names) - names.len();
        // From the middle, the end and the head of each queue.
        let (odd, even): (Vec<_>, Vec<_>) = futures.into_iter().enumerate().partition(|(at, _)| at % 2 == 1);
        drop(odd);
        even.into_iter().rev().for_each(drop);
        until("the queues are empty", || there() == 0);
        drop(held);
        self.nothing_is_left(&names);
        self.count(Phase::Queued, count);
    }

    /// The holder gives back, the message has come, and nobody looks.
    fn pushed_unseen(&mut self, count: usize) {
        let names = self.fresh_names(count);
        let held = self.hold_all(&names);
        let mut futures: Vec<_> = names.iter().map(|name| self.lock(name)).collect();
        self.wait_all(&names, &mut futures, 2 * count);
        // Some have somebody behind them, who must get what they do not take.
        let behind: Vec<Mutex> = names.iter().step_by(10).map(|name| self.other.mutex(name).fair()).collect();
        let mut behind: Vec<_> = behind.into_iter().map(|m| Driven::new(async move { m.lock().await })).collect();
        let all = 2 * count + behind.len();
        self.wait_all(&names, &mut behind, all);
        drop(held);
        until("all are woken", || futures.iter().all(Driven::is_woken));
        let ours = self.held_by_subject(&names);
        drop(futures);
        for waiter in behind {
            let guard = waiter.finish("the next in the queue is granted").expect("granted");
            assert!(guard.is_valid());
        }
        self.nothing_is_left(&names);
        self.count(Phase::GrantedUnseen, ours);
    }

    /// The lock was free; its answer has come, and nobody looks.
    fn answered_unseen(&mut self, count: usize) {
        let names = self.fresh_names(count);
        self.bench.hold(Way::Replies);
        let mut futures: Vec<_> = names.iter().map(|name| self.lock(name)).collect();
        poll_all(&mut futures);
        until("all are carried out", || self.bench.there(&self.other, &names) == count);
        assert!(futures.iter().all(|future| !future.is_woken()));
        self.bench.resume(&self.subject);
        until("all are woken", || futures.iter().all(Driven::is_woken));
        let ours = self.held_by_subject(&names);
        drop(futures);
        self.nothing_is_left(&names);
        self.count(Phase::GrantedUnseen, ours);
    }

    fn held_by_subject(&self, names: &[String]) -> usize {
        let label = |name: &String| self.bench.inspect(&self.other, name).holder.map(|holder| holder.label);
        names.iter().filter(|name| label(name).as_deref() == Some("subject")).count()
    }

    /// The future that holds goes, and its guard with it: every other one in the work of `run`.
    fn held(&mut self, count: usize) {
        let names = self.fresh_names(count);
        let inside = Arc::new(AtomicUsize::new(0));
        let mut futures: Vec<Driven<()>> = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let (mutex, inside) = (self.subject.mutex(name), Arc::clone(&inside));
            futures.push(match number % 2 {
                0 => Driven::new(async move {
                    let guard = mutex.lock().await.expect("granted");
                    inside.fetch_add(usize::from(guard.is_valid()), Ordering::SeqCst);
                    pending::<()>().await;
                }),
                _ => Driven::new(async move {
                    let work = mutex.run(async |guard: &Guard| {
                        inside.fetch_add(usize::from(guard.is_valid()), Ordering::SeqCst);
                        pending::<()>().await;
                    });
                    work.await.expect("not lost");
                }),
            });
        }
        poll_all(&mut futures);
        drive("all hold", &mut futures, || inside.load(Ordering::SeqCst) == count);
        let ours = self.held_by_subject(&names);
        drop(futures);
        self.nothing_is_left(&names);
        self.count(Phase::Held, ours);
    }
}
