//! How long a run lasts, and which clients have one.

use std::cell::Cell;
use std::sync::Arc;

use leasehold_spec::limits::RUN_MAX_US;
use leasehold_spec::{Hears, Place, SessionId, Take};

use super::*;
use crate::store::quorum::timers::{Due, Timers};

const LEASE_MS: u64 = 30_000;
const RTT_US: u64 = 100;

/// One client that uses one lock, and its clock.
struct Client {
    runs: Runs,
    timers: Arc<Timers>,
    name: Name,
    now_us: u64,
    counter: u64,
    /// The nodes that its last acquire asks first.
    asks_first: Option<Nodes>,
    /// When it asks the others.
    asks_others_us: Cell<Option<u64>>,
}

/// The nodes that vote for the client first.
fn voters() -> Nodes {
    Nodes::of([0, 2].into_iter())
}

impl Client {
    fn new() -> Self {
        let name = Name::new("a").unwrap();
        let (runs, timers, asks_others_us) = (Runs::default(), Arc::default(), Cell::default());
        Self { runs, timers, name, now_us: 1_000_000, counter: 0, asks_first: None, asks_others_us }
    }

    fn id(&self) -> GrantId {
        GrantId { session: SessionId(1), counter: self.counter, nonce: 0 }
    }

    /// Asks after a pause of this length, and is granted the lock.
    fn acquire(&mut self, after_us: u64, range: u64, order: Order) {
        self.ask(after_us, range, order);
        self.asks_first = self.runs.last_voters(&self.name, &self.id());
        let alarm = |at_us, lease_ms| {
            let due = Due::AskOthers { name: self.name.clone(), id: self.id(), lease_ms };
            self.asks_others_us.set(Some(at_us));
            self.timers.due_at(at_us, due)
        };
        self.asks_others_us.set(None);
        self.runs.note_grant(&self.name, &self.id(), voters(), self.now_us, alarm);
    }

    fn ask(&mut self, after_us: u64, range: u64, order: Order) {
        self.now_us += after_us;
        self.counter += 1;
        let place = Place { ticket: None, claim_ms: 1_000, limit_ms: None, hears: Hears::Listens, order };
        let acquire = Acquire {
            id: self.id(),
            lease_ms: LEASE_MS,
            range,
            not_after_us: self.now_us,
            patience: Patience::Queue(place),
            label: "".into(),
            take: Take::MUTEX,
        };
        self.runs.note_ask(&self.name, &acquire, self.now_us, || RTT_US);
    }

    fn release(&mut self, was_passed: bool, others: Contention) -> Option<Pause> {
        let pause = self.begin_release(was_passed);
        self.end_release(self.id(), others);
        pause
    }

    fn begin_release(&mut self, was_passed: bool) -> Option<Pause> {
        self.runs.begin_release(&self.name, self.id(), was_passed, self.now_us)
    }

    fn end_release(&self, id: GrantId, others: Contention) {
        let alarm = |at_us| self.timers.due_at(at_us, Due::PauseOver(self.name.clone(), id));
        self.runs.note_release(&self.name, &id, others, self.now_us, alarm);
    }

    /// Takes the lock once, so that it is known that others wait, and comes back at once.
    fn returned() -> Self {
        let mut client = Self::new();
        client.acquire(0, 64, Order::Relaxed);
        assert_eq!(client.release(false, Contention::Others), None, "nobody knows yet that it comes back");
        client.acquire(50, 64, Order::Relaxed);
        client
    }
}

#[test]
fn a_client_that_comes_back_at_once_pauses_while_others_wait() {
    let mut client = Client::returned();
    assert_eq!(client.release(false, Contention::Others), Some(Pause { notice_ms: NOTICE_MS }));
    client.acquire(50, 64, Order::Relaxed);
    assert_eq!(client.release(false, Contention::Others), Some(Pause { notice_ms: 0 }), "the waiters are notified");
}

#[test]
fn a_run_ends_after_its_passes() {
    let mut client = Client::returned();
    for _ in 0..RUN_PASSES {
        assert!(client.release(false, Contention::Others).is_some());
        client.acquire(1, 64, Order::Relaxed);
    }
    assert_eq!(client.release(false, Contention::Others), None);
    client.acquire(1, 64, Order::Relaxed);
    assert_eq!(client.release(false, Contention::Others), Some(Pause { notice_ms: NOTICE_MS }), "the next run begins");
}

#[test]
fn a_run_ends_after_its_time() {
    let mut client = Client::returned();
    client.now_us += RUN_MAX_US - 1;
    assert!(client.release(false, Contention::Others).is_some());
    client.acquire(1, 64, Order::Relaxed);
    assert_eq!(client.release(false, Contention::Others), None);
}

#[test]
fn a_client_that_comes_back_late_does_not_pause() {
    let mut client = Client::returned();
    assert!(client.release(false, Contention::Others).is_some());
    client.acquire(BACK_US + 1, 64, Order::Relaxed);
    assert_eq!(client.release(false, Contention::Others), None);
}

#[test]
fn only_a_relaxed_lease_that_may_be_handed_on_has_a_run() {
    for (range, order) in [(1, Order::Relaxed), (64, Order::Strict)] {
        let mut client = Client::new();
        client.acquire(0, 64, Order::Relaxed);
        client.release(false, Contention::Others);
        client.acquire(50, range, order);
        assert_eq!(client.release(false, Contention::Others), None, "{range}, {order:?}");
    }
}

#[test]
fn a_lease_that_was_handed_on_inside_the_client_ends_the_run() {
    let mut client = Client::returned();
    assert_eq!(client.release(true, Contention::Others), None);
}

#[test]
fn nothing_is_kept_of_a_lock_that_nobody_waits_for() {
    let mut client = Client::returned();
    assert!(client.release(false, Contention::None).is_some());
    assert!(client.runs.runs().is_empty());
    client.acquire(50, 64, Order::Relaxed);
    assert_eq!(client.release(false, Contention::None), None);
}

#[test]
fn a_pause_is_ended_by_an_acquire_or_by_its_end_and_only_once() {
    let mut client = Client::returned();
    assert!(client.release(false, Contention::Others).is_some());
    let paused = client.id();
    client.acquire(50, 64, Order::Relaxed);
    assert!(!client.runs.end_pause(&client.name, &paused), "the client has come back");
    assert!(client.release(false, Contention::Others).is_some());
    assert!(client.runs.end_pause(&client.name, &client.id()));
    client.acquire(50, 64, Order::Relaxed);
    assert_eq!(client.release(false, Contention::Others), None, "the waiter was called");
    assert_eq!(client.runs.end_pauses(), []);
}

/// Otherwise an acquire that overtakes the pause would lose, wait, and not be called.
#[test]
fn an_acquire_before_the_answer_does_not_end_the_pause() {
    let mut client = Client::returned();
    assert!(client.begin_release(false).is_some());
    let paused = client.id();
    client.ask(50, 64, Order::Relaxed);
    client.end_release(paused, Contention::Others);
    assert!(client.runs.end_pause(&client.name, &paused));
}

#[test]
fn an_acquire_ends_a_pause_whose_answer_was_lost() {
    let mut client = Client::returned();
    assert!(client.begin_release(false).is_some());
    for _ in 0..10 {
        client.acquire(IDLE_US / 10, 64, Order::Relaxed);
        client.release(false, Contention::Others);
    }
    client.acquire(50, 64, Order::Relaxed);
    assert!(client.release(false, Contention::Others).is_some(), "the next run begins");
}

#[test]
fn an_earlier_release_that_is_answered_late_does_not_end_a_pause() {
    for others in [Contention::None, Contention::Others] {
        let mut client = Client::returned();
        let earlier = client.id();
        client.acquire(50, 64, Order::Relaxed);
        client.release(false, Contention::Others);
        client.acquire(50, 64, Order::Relaxed);
        assert!(client.release(false, Contention::Others).is_some());
        client.runs.note_release(&client.name, &earlier, others, client.now_us, |_| unreachable!("another release"));
        assert!(client.runs.end_pause(&client.name, &client.id()), "{others:?}");
    }
}

#[test]
fn another_answer_to_an_earlier_release_does_not_end_the_run() {
    for others in [Contention::None, Contention::Others] {
        let mut client = Client::returned();
        let earlier = client.id();
        client.release(false, Contention::Others);
        client.acquire(50, 64, Order::Relaxed);
        client.end_release(earlier, others);
        assert_eq!(
            client.release(false, Contention::Others),
            Some(Pause { notice_ms: 0 }),
            "{others:?}: the run goes on"
        );
    }
}

#[test]
fn a_release_of_another_attempt_ends_the_run() {
    let mut client = Client::returned();
    assert!(client.release(false, Contention::Others).is_some());
    client.acquire(50, 64, Order::Relaxed);
    let another = GrantId { nonce: 1, ..client.id() };
    assert_eq!(client.runs.begin_release(&client.name, another, false, client.now_us), None);
    client.end_release(another, Contention::Others);
    client.acquire(50, 64, Order::Relaxed);
    assert_eq!(client.asks_first, None, "the nodes that voted last may not be free");
}

#[test]
fn more_names_have_no_run_until_others_are_idle() {
    let mut client = Client::new();
    for number in 0..NAMES {
        let name = Name::new(&format!("other-{number}")).unwrap();
        client.runs.note_release(&name, &client.id(), Contention::Others, client.now_us, |_| unreachable!("no pause"));
    }
    for has_run in [false, true] {
        client.acquire(0, 64, Order::Relaxed);
        client.release(false, Contention::Others);
        client.acquire(50, 64, Order::Relaxed);
        assert_eq!(client.release(false, Contention::Others).is_some(), has_run);
        client.now_us += IDLE_US;
    }
}

#[test]
fn a_client_that_comes_back_in_a_run_asks_the_nodes_that_voted_for_it() {
    let mut client = Client::returned();
    assert_eq!(client.asks_first, None, "the last release was no pause");
    assert!(client.release(false, Contention::Others).is_some());
    client.acquire(50, 64, Order::Relaxed);
    assert_eq!(client.asks_first, Some(voters()));
    let others_us = client.asks_others_us.get();
    assert_eq!(others_us, Some(client.now_us + RUN_MAX_US), "it asks the others if it holds for long");
    client.release(true, Contention::Others);
    client.acquire(50, 64, Order::Relaxed);
    assert_eq!(client.asks_first, None, "the run was over");
    assert_eq!(client.asks_others_us.get(), None, "it has asked all");
}
