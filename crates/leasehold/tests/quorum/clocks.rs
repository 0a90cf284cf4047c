//! Servers whose clocks jump. A node counts its votes on its wall clock, and votes only for tokens near that clock.

use std::time::{Duration, Instant};

use leasehold::fence::Fenced;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::{Quorum, RedisServer, wait_until};

use crate::common::{
    LONG, NAME, PROMPT, TAKEOVER_SLACK, assert_busy, assert_kept, await_full_set, client, five_of, granted, join,
    taken, vote, votes, within,
};

const LEASE: Duration = Duration::from_millis(1200);
/// Longer than the lease, and shorter than the token window.
const AHEAD_US: i64 = 5_000_000;
/// Longer than the token window.
const FAR_US: i64 = 60_000_000;
const HOUR_US: i64 = 3_600_000_000;

async fn skewed() -> Quorum {
    five_of(RedisServer::builder().skew()).await
}

fn shift(servers: &[RedisServer], by_us: i64) {
    servers.iter().for_each(|server| server.shift_clock(by_us));
}

/// A minority of the clocks jumps: the other nodes keep the lock, no other client gets it, and the next token is larger.
async fn a_minority_jumps(by_us: i64) {
    let quorum = skewed().await;
    let (a, b) = (client(&quorum.url(), LEASE).await, client(&quorum.url(), LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    await_full_set(quorum.servers(), guard.token());
    let waiting = join(&b, quorum.servers()).await;
    shift(&quorum.servers()[..2], by_us);
    // The vote of a node that is ahead has ended. The node is free, but is no majority.
    assert_busy(&b.mutex(NAME)).await;
    assert_kept(&guard, 2 * LEASE).await;
    assert_busy(&b.mutex(NAME)).await;
    assert!(!waiting.is_finished());
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = granted(LONG, waiting).await;
    assert!(next.token() > token);
    // Two votes that end early are a minority of five votes, and a majority of three. So all five votes must exist, and
    // their replies must have arrived, like the inspection after them.
    await_full_set(quorum.servers(), next.token());
    b.mutex(NAME).inspect().await.unwrap();
    shift(&quorum.servers()[..2], 0);
    assert_kept(&next, LEASE * 4 / 3).await;
    let token = next.token();
    assert_eq!(next.release().await.unwrap(), Released::Released);
    let last = within(LONG, "the lock", a.mutex(NAME).lock()).await.unwrap();
    assert!(last.token() > token);
    assert_eq!(last.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_forward_and_back() {
    // By more than the lease, and by an hour. The tests mostly wait for time to pass.
    let cases = [AHEAD_US, -AHEAD_US, HOUR_US, -HOUR_US].map(|by_us| (by_us, tokio::spawn(a_minority_jumps(by_us))));
    for (by_us, case) in cases {
        case.await.unwrap_or_else(|error| panic!("by {by_us} µs: {error}"));
    }
}

/// No lease survives this, but its fence does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_forward_makes_a_second_holder_that_fences_the_first() {
    let (quorum, stock) = (skewed().await, Fenced::new(0));
    let (a, b) = (client(&quorum.url(), LEASE).await, client(&quorum.url(), LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    *stock.write(guard.token()).unwrap() += 1;
    shift(&quorum.servers()[..3], AHEAD_US);
    let second = within(PROMPT, "a free majority", b.mutex(NAME).lock()).await.unwrap();
    assert!(second.token() > guard.token());
    *stock.write(second.token()).unwrap() += 1;
    assert!(stock.write(guard.token()).is_err(), "the older token is refused");
    // The first holder learns of the loss with its next renewal at the latest.
    within(LEASE, "the loss", guard.lost()).await;
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert_kept(&second, LEASE).await;
    // And back: votes last longer now, and tokens still grow.
    let token = second.token();
    assert_eq!(second.release().await.unwrap(), Released::Released);
    shift(&quorum.servers()[..3], 0);
    let third = within(LONG, "the lock", a.mutex(NAME).lock()).await.unwrap();
    assert!(third.token() > token);
    *stock.write(third.token()).unwrap() += 1;
}

/// The votes begin again at the next request. That is the request of the waiter, at the latest at the end of the lease that
/// the waiter knows. So there is no early grant, and the waiter follows the dead holder within twice its lease, however far
/// the clocks were set back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_back_is_followed_within_two_leases() {
    let quorum = skewed().await;
    let lease = Duration::from_secs(1);
    let (a, b) = (client(&quorum.url_by_proxy(), lease).await, client(&quorum.url(), lease).await);
    let guard = a.mutex(NAME).fixed_lease(lease).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    // As good as dead: it releases nothing.
    for proxy in quorum.proxies() {
        proxy.refuse_connections();
        proxy.cut_all();
    }
    let set_back = Instant::now();
    shift(&quorum.servers()[..3], -8_000_000);
    within(lease + TAKEOVER_SLACK, "its end", guard.lost()).await;
    assert!(!waiting.is_finished(), "it ends here before another client has it");
    let next = granted(2 * lease + TAKEOVER_SLACK, waiting).await;
    let took = set_back.elapsed();
    assert!(took <= 2 * lease + TAKEOVER_SLACK, "{took:?}");
    println!("followed after {took:?}");
    assert!(next.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_clocks_far_from_the_others_do_not_vote() {
    for by_us in [FAR_US, -FAR_US] {
        let quorum = skewed().await;
        let (far, near) = quorum.servers().split_at(2);
        shift(far, by_us);
        let (a, b) = (client(&quorum.url(), LEASE).await, client(&quorum.url(), LEASE).await);
        let guard = within(PROMPT, "the lock", a.mutex(NAME).lock()).await.unwrap();
        assert_eq!(votes(near, guard.token()), 3);
        assert_busy(&b.mutex(NAME)).await;
        assert!(far.iter().all(|server| vote(server).is_none_or(|vote| vote.token == guard.token().get())));
        let waiting = join(&b, near).await;
        let token = guard.token();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let next = granted(LONG, waiting).await;
        assert!(next.token() > token);
        assert_eq!(next.release().await.unwrap(), Released::Released);
        wait_until("no votes are left", LONG, || taken(quorum.servers()) == 0);
    }
}

/// No three clocks are near each other: there is no majority, and the answer is not Busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_names_clocks_without_an_agreeing_majority() {
    let quorum = skewed().await;
    for (at, server) in (-2i64..).zip(quorum.servers()) {
        server.shift_clock(at * FAR_US);
    }
    let a = client(&quorum.url(), LEASE).await;
    let begun = Instant::now();
    loop {
        let answer = within(LONG, "an answer", a.mutex(NAME).try_lock()).await;
        let error = answer.expect_err("there is no holder, and no majority");
        assert_eq!(error.kind(), ErrorKind::Quorum);
        if error.to_string().contains("clock") {
            return;
        }
        // On a busy machine the answers of the nodes may be too late.
        assert!(error.to_string().contains("replied in time") && begun.elapsed() < LONG, "{error}");
    }
}
