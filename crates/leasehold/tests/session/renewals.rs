//! Leases that are renewed, and links that leave a renewal unanswered.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_spec::{Op, Outcome};
use tokio::time::timeout;

use crate::bench::{Bench, MS, pause, token};

/// The last piece of a longest hold gets smaller with each third of it. Once a renewal would win no more than its own
/// margin there is no other.
#[tokio::test]
async fn the_end_of_a_longest_hold_is_not_renewed_over_and_over() {
    let mut bench = Bench::new().await;
    let (lease, hold) = (Duration::from_millis(600), Duration::from_millis(1_200));
    let mutex = bench.leasehold.mutex("name").lease(lease).max_hold(hold);
    let begun = Instant::now();
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 600 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let (mut lost, mut renewals) = (guard.lost(), 0);
    let why = loop {
        tokio::select! {
            biased;
            why = &mut lost => break why,
            asked = bench.next() => {
                let Op::Renew(renew) = asked.op.clone() else { panic!("{:?}", asked.op) };
                bench.say(asked, Outcome::Renewed { left_us: renew.lease_ms * MS }, 7);
                renewals += 1;
            }
        }
    };
    assert!(why.reason().is_expiry(), "{why:?}");
    // Never cut short; and told in time, with a second for a busy machine.
    let within = hold - lease / 20..hold + Duration::from_secs(1);
    assert!(within.contains(&begun.elapsed()), "{:?}", begun.elapsed());
    // At each third for as long as that is a whole lease, and once when it is not.
    assert!((2..=5).contains(&renewals), "{renewals} renewals");
}

/// Where the way is long, a ping takes as long: a link that left a request unanswered is not given up for that.
#[tokio::test]
async fn a_link_is_not_replaced_for_being_slow() {
    let mut bench = Bench::far(700).await;
    let _guard = bench.locked(1_200, 7).await;
    let unanswered = bench.next().await;
    assert!(matches!(unanswered.op, Op::Renew(_)), "{:?}", unanswered.op);
    let pings = bench.store.pings.load(Ordering::SeqCst);
    // In doubt after a sixth of the lease, and pinged.
    pause(1_500).await;
    assert!(bench.store.pings.load(Ordering::SeqCst) > pings, "nobody was in doubt");
    assert_eq!(bench.store.links().len(), 2, "it was replaced");
}

/// So many leases fall due at once, on a new link, that the server would be behind for longer than a link is believed.
/// They are asked for in the order in which they end, never too many at a time; and none is forgotten.
#[tokio::test]
async fn what_is_due_at_once_is_renewed_in_turn_and_the_earliest_end_first() {
    const LEASES: u64 = 6_000;
    const SHORT: u64 = 100;
    let mut bench = Bench::new().await;
    let mut guards = Vec::new();
    for number in 1..=LEASES {
        // The last ones end first.
        let lease_ms = if number > LEASES - SHORT { 600_000 } else { 900_000 };
        guards.push(bench.locked_as(&format!("name {number}"), lease_ms, number).await);
    }
    bench.cut_home();
    let (mut unanswered, mut renewed) = (VecDeque::new(), BTreeSet::new());
    let mut most = 0;
    while (renewed.len() as u64) < LEASES {
        // Answered where nothing more comes.
        let within = Duration::from_millis(if unanswered.is_empty() { 10_000 } else { 100 });
        let next = timeout(within, bench.requests.recv()).await;
        if let Ok(Some(asked)) = next {
            unanswered.push_back(asked);
            most = most.max(unanswered.len());
            continue;
        }
        assert!(!unanswered.is_empty(), "{} of {LEASES} are forgotten", LEASES - renewed.len() as u64);
        for asked in unanswered.drain(..) {
            let Op::Renew(renew) = asked.op.clone() else { panic!("{:?}", asked.op) };
            assert!(renewed.insert(renew.token), "asked for twice");
            let is_short = renew.token > token(LEASES - SHORT);
            assert_eq!(is_short, renewed.len() as u64 <= SHORT, "number {} is {:?}", renewed.len(), renew.token);
            bench.say(asked, Outcome::Renewed { left_us: renew.lease_ms * MS }, renew.token.get());
        }
    }
    assert!(most < LEASES as usize, "all at once");
    assert!(guards.iter().all(leasehold::Guard::is_valid));
}
