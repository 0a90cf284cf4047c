//! Requests, messages and broken connections that arrive when no caller waits for them any more (P13, P14).

use std::time::{Duration, Instant};

use leasehold::seam::{Real, Script, choose};
use leasehold::{Guard, Leasehold};
use leasehold_spec::limits::NOT_AFTER_MAX_US;
use leasehold_spec::{
    Acquire, Contention, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, PublicId, SessionId, Take,
};
use leasehold_testkit::proxy::{Command, Fault, Requests};

use crate::hand::{Driven, until};
use crate::harness::Harness;
use crate::on_all_stores;

const SOON: Duration = Duration::from_secs(20);
/// Longer than a request may be in flight.
const TOO_LATE: Duration = Duration::from_secs(3);

fn take(harness: &Harness, client: &Leasehold, name: &str) -> Guard {
    harness.block_on(client.mutex(name).try_lock()).expect("an answer").expect("free")
}

// The acquire is held up on its way. Its client gives up, finds the connection dead, and sends the leave on another
// connection. There the leave finds nothing. Then the acquire arrives.
//
// All of that has to happen within the two seconds that a request may be in flight. If a busy machine is too slow, the
// test tries again.
#[test]
fn an_acquire_that_arrives_behind_its_leave_is_given_back() {
    let harness = Harness::redis();
    let other = harness.connect_straight("other");
    let met = (0..5).any(|round| meets_a_late_acquire(&harness, &other, &format!("round {round}")));
    assert!(met, "in five rounds the acquire was never executed in time");
}

/// Returns whether the schedule was achieved.
fn meets_a_late_acquire(harness: &Harness, other: &Leasehold, name: &str) -> bool {
    let (proxy, _) = harness.wires();
    let subject = harness.connect("subject");
    let held_up = proxy.inject(Fault::hold(Requests::script(Script::Acquire.sha())).once());
    // The connection is suspect after a sixth of that, and is given up half a second later: well before the request is
    // too late.
    let mutex = subject.mutex(name).lease(Duration::from_millis(900));
    let mut locking = Driven::new(async move { mutex.lock().await });
    assert!(locking.poll().is_pending());
    held_up.wait(1, SOON);
    let is_call = |command: &Command, script: Script| command.argument(0) == Some(script.sha());
    let acquire = proxy.commands().into_iter().rfind(|command| is_call(command, Script::Acquire));
    let acquire = acquire.expect("it has come");
    // Every leave after the acquire gets lost.
    let behind = acquire.connection;
    let leaves = move |command: &Command| command.at_us >= acquire.at_us && is_call(command, Script::Leave);
    let lost = Requests::matching(move |command| command.connection == behind && is_call(command, Script::Leave));
    let lost = proxy.inject(Fault::refuse(lost, "ERR lost"));
    drop(locking);
    lost.wait(1, SOON);
    until("a leave goes by another connection", || {
        proxy.commands().iter().any(|command| command.connection != behind && leaves(command))
    });
    let lifted = Instant::now();
    held_up.lift();
    let mut met = false;
    until("the acquire is executed without a caller, or it is too late", || {
        met = harness.inspect(other, name).holder().is_some();
        met || lifted.elapsed() > TOO_LATE
    });
    assert!(harness.block_on(subject.close()).unconfirmed().is_empty());
    assert_eq!(harness.inspect(other, name).holder(), None, "closed only when no request can arrive any more");
    met
}

// A message says that an attempt was granted, and the session does not know the attempt any more.
on_all_stores!(a_grant_that_nobody_asked_for_is_given_back, |harness| {
    let (subject, other) = (harness.connect_straight("subject"), harness.connect_straight("other"));
    let guard = take(&harness, &subject, "b");
    let holder = harness.inspect(&other, "b").holder().expect("held").id();
    let (session, _) = holder.split_once('-').expect("session and counter");
    let session = SessionId(u128::from_str_radix(session, 16).expect("hexadecimal"));
    let ghost = GrantId { session, counter: 1 << 40, nonce: 7 };
    assert_ne!(ghost.public(), PublicId { session, counter: 1 });

    let held = take(&harness, &other, "a");
    harness.block_on(async {
        let link = choose(&harness.url(), None, &Real::world()).expect("a good URL").open().await.expect("connected");
        let place =
            Place { claim_ms: 60_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed };
        let not_after_us = link.ping().await.expect("an answer") + NOT_AFTER_MAX_US;
        let patience = Patience::Queue(place);
        let acquire = Acquire {
            id: ghost,
            take: Take::MUTEX,
            lease_ms: 60_000,
            not_after_us,
            patience,
            label: "ghost".into(),
            range: 1,
        };
        let name = Name::new("a").expect("a good name");
        let answer = link.apply(&name, &Op::Acquire(acquire), Contention::None.into()).await.expect("an answer");
        assert!(matches!(answer.outcome, Outcome::Queued { .. }));
    });
    drop(held);
    until("the session that got the message gives the grant back", || {
        harness.occupancy(&other, &["a".to_owned()]) == 0
    });
    assert!(guard.is_valid());
});

// The connection breaks in front of the release. Only the session can repeat it.
#[test]
fn a_guard_whose_release_was_lost_is_released_all_the_same() {
    let harness = Harness::redis();
    let (proxy, _) = harness.wires();
    let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
    let lost = proxy.inject(Fault::cut_before(Requests::script(Script::Release.sha())).times(2));
    let (dropped, released) = (take(&harness, &subject, "a"), take(&harness, &subject, "b"));
    drop(dropped);
    lost.wait(1, SOON);
    let mut releasing = Driven::new(released.release());
    let _ = releasing.poll();
    drop(releasing);
    lost.wait(2, SOON);
    until("both are free", || harness.occupancy(&other, &["a".to_owned(), "b".to_owned()]) == 0);
    assert!(harness.block_on(subject.close()).unconfirmed().is_empty());
}
