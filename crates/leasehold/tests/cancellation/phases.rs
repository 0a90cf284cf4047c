//! The five phases of a `lock()` future, and the state that is left when it is dropped in each.
//!
//! ```text
//!   before send ──► in flight ──► queued ──► granted unseen ──► held
//! ```
//!
//! A phase is counted only if it was observed. *Before send*: no request reached the store, or ever does. *In flight*:
//! the request has been sent, and the future was not woken since. *Queued*: the reply was received, and the store
//! counts the waiter. *Granted unseen*: the store names the client as the holder, and the future was woken and not
//! polled. *Held*: the caller had its guard.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Guard, Leasehold, Mutex, Released};

use crate::hand::{Driven, drive, poll_all, until};
use crate::harness::{Harness, Way};

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

/// How many futures were dropped in each observed phase.
pub(crate) type Tally = BTreeMap<Phase, usize>;

/// The number of waiters behind one holder.
const PER_NAME: usize = 25;

/// A client whose futures are dropped, and one that observes and holds the locks that the first one waits for.
pub(crate) struct Fixture {
    pub(crate) harness: Harness,
    pub(crate) subject: Leasehold,
    pub(crate) other: Leasehold,
    pub(crate) names: Vec<String>,
    pub(crate) tally: Tally,
}

impl Fixture {
    pub(crate) fn new(harness: Harness) -> Self {
        let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
        Self { harness, subject, other, names: Vec::new(), tally: Tally::new() }
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

    /// Returns futures for these names, `PER_NAME` for each, and each with an attempt of its own.
    fn queue_futures(&self, names: &[String], count: usize) -> Vec<Driven<leasehold::Result<Guard>>> {
        let mutexes = (0..count).map(|number| self.subject.mutex(&names[number / PER_NAME]).fair());
        mutexes.map(|mutex| Driven::new(async move { mutex.lock().await })).collect()
    }

    fn hold_all(&self, names: &[String]) -> Vec<Guard> {
        let locked = async |name: &String| self.other.mutex(name).try_lock().await.expect("an answer").expect("free");
        names.iter().map(|name| self.harness.block_on(locked(name))).collect()
    }

    /// Polls the futures until each of them has the reply that it is queued. From then on only the grant wakes it.
    #[track_caller]
    fn wait_all(&self, names: &[String], futures: &mut [Driven<leasehold::Result<Guard>>], there: usize) {
        poll_all(futures);
        until("all stand in the queue", || self.harness.occupancy(&self.other, names) == there);
        futures.iter_mut().filter(|future| future.is_woken()).for_each(|future| assert!(future.poll().is_pending()));
    }

    /// Asserts that nobody holds and nobody waits, without any further request of the subject.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self, names: &[String]) {
        let mut rest = names.to_vec();
        until("nobody holds and nobody waits", || {
            rest.retain(|name| self.harness.occupancy(&self.other, std::slice::from_ref(name)) > 0);
            rest.is_empty()
        });
    }

    fn before_send(&mut self, count: usize) {
        let names = self.fresh_names(count.div_ceil(PER_NAME));
        self.harness.cut();
        let before = self.harness.sent();
        let mut futures = self.queue_futures(&names, count);
        poll_all(&mut futures);
        let unwoken = futures.iter().filter(|future| !future.is_woken()).count();
        drop(futures);
        self.harness.mend();
        // If the dropped futures had left any requests, these would be sent before this newer one, or would be in the
        // store already.
        let guard = self.lock("probe").finish("the client has reconnected");
        assert_eq!(self.harness.block_on(guard.expect("granted").release()).expect("an answer"), Released::Released);
        let after = self.harness.sent();
        assert_eq!(after.acquires - before.acquires, 1, "none of them was ever sent");
        assert_eq!(self.harness.occupancy(&self.other, &names), 0);
        self.count(Phase::BeforeSend, unwoken);
    }

    /// Holds the futures up on the way to the store, or on the way back.
    fn in_flight(&mut self, count: usize, way: Way) {
        let names = self.fresh_names(count.div_ceil(PER_NAME));
        let before = self.harness.sent().acquires;
        self.harness.hold(way);
        let mut futures = self.queue_futures(&names, count);
        poll_all(&mut futures);
        until("all are sent", || self.harness.sent().acquires - before == count as u64);
        match way {
            Way::Requests => assert_eq!(self.harness.occupancy(&self.other, &names), 0, "none has come to the store"),
            Way::Replies => until("all are executed", || self.harness.occupancy(&self.other, &names) == count),
        }
        let unanswered = futures.iter().filter(|future| !future.is_woken()).count();
        drop(futures);
        self.harness.resume(&self.subject);
        self.nothing_is_left(&names);
        self.count(Phase::InFlight, unanswered);
    }

    fn queued(&mut self, count: usize) {
        let names = self.fresh_names(count.div_ceil(PER_NAME));
        let held = self.hold_all(&names);
        let mut futures = self.queue_futures(&names, count);
        self.wait_all(&names, &mut futures, names.len() + count);
        let there = || self.harness.occupancy(&self.other, &names) - names.len();
        // From the middle, the end and the head of each queue.
        let (odd, even): (Vec<_>, Vec<_>) = futures.into_iter().enumerate().partition(|(at, _)| at % 2 == 1);
        drop(odd);
        even.into_iter().rev().for_each(drop);
        until("the queues are empty", || there() == 0);
        drop(held);
        self.nothing_is_left(&names);
        self.count(Phase::Queued, count);
    }

    /// The holder releases and the push arrives, but the future is not polled.
    fn pushed_unseen(&mut self, count: usize) {
        let names = self.fresh_names(count);
        let held = self.hold_all(&names);
        let mut futures: Vec<_> = names.iter().map(|name| self.lock(name)).collect();
        self.wait_all(&names, &mut futures, 2 * count);
        // Some have a waiter behind them, which must get the grants that they do not take.
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

    /// The lock was free and the reply has arrived, but the future is not polled.
    fn answered_unseen(&mut self, count: usize) {
        let names = self.fresh_names(count);
        self.harness.hold(Way::Replies);
        let mut futures: Vec<_> = names.iter().map(|name| self.lock(name)).collect();
        poll_all(&mut futures);
        until("all are executed", || self.harness.occupancy(&self.other, &names) == count);
        assert!(futures.iter().all(|future| !future.is_woken()));
        self.harness.resume(&self.subject);
        until("all are woken", || futures.iter().all(Driven::is_woken));
        let ours = self.held_by_subject(&names);
        drop(futures);
        self.nothing_is_left(&names);
        self.count(Phase::GrantedUnseen, ours);
    }

    fn held_by_subject(&self, names: &[String]) -> usize {
        let label = |name: &String| self.harness.inspect(&self.other, name).holder().map(|holder| holder.label.clone());
        names.iter().filter(|name| label(name).as_deref() == Some("subject")).count()
    }

    /// The future that holds is dropped, and its guard with it. In every second case it is in the work of `run`.
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
