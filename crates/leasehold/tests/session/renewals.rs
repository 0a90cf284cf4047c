//! Renewals of leases, and connections that leave a renewal unanswered.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_spec::{Op, Outcome};
use tokio::time::timeout;

use crate::harness::{Harness, MS, pause, token};

/// The last piece of a maximum hold gets smaller with each third of it. Once a renewal would gain no more than its own
/// margin, no other renewal is sent.
#[tokio::test]
async fn the_end_of_max_hold_is_not_renewed_over_and_over() {
    let mut harness = Harness::new().await;
    let (lease, hold) = (Duration::from_millis(600), Duration::from_millis(1_200));
    let mutex = harness.leasehold.mutex("name").lease(lease).max_hold(hold);
    let begun = Instant::now();
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 600 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let (mut lost, mut renewals) = (guard.lost(), 0);
    let why = loop {
        tokio::select! {
            biased;
            why = &mut lost => break why,
            request = harness.next() => {
                let Op::Renew(renew) = request.op.clone() else { panic!("{:?}", request.op) };
                harness.reply(request, Outcome::Renewed { left_us: renew.lease_ms * MS }, 7);
                renewals += 1;
            }
        }
    };
    assert!(why.reason().is_expiry(), "{why:?}");
    // The hold is never cut short, and the loss is reported in time, with a second of slack for a busy machine.
    let within = hold - lease / 20..hold + Duration::from_secs(1);
    assert!(within.contains(&begun.elapsed()), "{:?}", begun.elapsed());
    // One renewal at each third as long as a whole lease is left, and one more after that.
    assert!((2..=5).contains(&renewals), "{renewals} renewals");
}

/// If the round trip is long, a ping takes as long. A connection that left a request unanswered is not given up for
/// that.
#[tokio::test]
async fn a_link_is_not_replaced_for_being_slow() {
    let mut harness = Harness::far(700).await;
    let _guard = harness.locked(1_200, 7).await;
    let unanswered = harness.next().await;
    assert!(matches!(unanswered.op, Op::Renew(_)), "{:?}", unanswered.op);
    let pings = harness.store.pings.load(Ordering::SeqCst);
    // After a sixth of the lease the connection is suspect, and the session pings it.
    pause(1_500).await;
    assert!(harness.store.pings.load(Ordering::SeqCst) > pings, "the connection was never suspect");
    assert_eq!(harness.store.links().len(), 2, "it was replaced");
}

/// So many leases are due at once, on a new connection, that the server would be behind for longer than a connection is
/// trusted. They are renewed in the order in which they end, never too many at a time, and none is forgotten.
#[tokio::test]
async fn many_due_leases_are_renewed_in_turn_and_the_earliest_end_first() {
    const LEASES: u64 = 6_000;
    const SHORT: u64 = 100;
    let mut harness = Harness::new().await;
    let mut guards = Vec::new();
    for number in 1..=LEASES {
        // The last ones end first.
        let lease_ms = if number > LEASES - SHORT { 600_000 } else { 900_000 };
        guards.push(harness.locked_as(&format!("name {number}"), lease_ms, number).await);
    }
    harness.break_session_link();
    let (mut unanswered, mut renewed) = (VecDeque::new(), BTreeSet::new());
    let mut most = 0;
    while (renewed.len() as u64) < LEASES {
        // Answer when no further request comes.
        let within = Duration::from_millis(if unanswered.is_empty() { 10_000 } else { 100 });
        let next = timeout(within, harness.requests.recv()).await;
        if let Ok(Some(request)) = next {
            unanswered.push_back(request);
            most = most.max(unanswered.len());
            continue;
        }
        assert!(!unanswered.is_empty(), "{} of {LEASES} are forgotten", LEASES - renewed.len() as u64);
        for request in unanswered.drain(..) {
            let Op::Renew(renew) = request.op.clone() else { panic!("{:?}", request.op) };
            assert!(renewed.insert(renew.token), "renewed twice");
            let is_short = renew.token > token(LEASES - SHORT);
            assert_eq!(is_short, renewed.len() as u64 <= SHORT, "number {} is {:?}", renewed.len(), renew.token);
            harness.reply(request, Outcome::Renewed { left_us: renew.lease_ms * MS }, renew.token.get());
        }
    }
    assert!(most < LEASES as usize, "all at once");
    assert!(guards.iter().all(leasehold::Guard::is_valid));
}
