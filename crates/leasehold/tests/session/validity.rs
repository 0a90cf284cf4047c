//! Validity of a lease: clocks that differ, buffers that hold a message back, and clocks that are set.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_spec::{Op, Outcome};
use tokio::time::timeout;

use crate::harness::{Harness, MS, hand_to_next, pause, queued, token};

#[tokio::test]
async fn p12_validity_counts_from_before_the_sending() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(3_000);
    let (request, _) = harness.next_acquire().await;
    pause(300).await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 3_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(2_700 - 30), "{:?}", guard.remaining());
    assert!(guard.is_valid());
}

#[tokio::test]
async fn p12_a_push_counts_from_the_moment_that_it_was_made() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    // The push lay in a buffer for 0.3 s of its claim of 1 s.
    harness.push(acquire.id, 8, harness.store.server_us() - 300 * MS, 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(700), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_a_push_that_is_old_is_claimed_before_it_is_entered() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    harness.push(acquire.id, 8, harness.store.server_us() - 600 * MS, 1_000 * MS);
    let claim = harness.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
    pause(50).await;
    assert!(!locking.is_finished(), "an old push does not suffice to enter");
    harness.reply(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
    assert!(locking.await.unwrap().unwrap().remaining() > Duration::from_secs(29));
}

#[tokio::test]
async fn p12_a_push_from_the_future_is_claimed_too() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    harness.push(acquire.id, 8, harness.store.server_us() + 60_000 * MS, 1_000 * MS);
    let claim = harness.next().await;
    assert!(matches!(&claim.op, Op::Renew(_)), "{:?}", claim.op);
    assert!(!locking.is_finished());
}

#[tokio::test]
async fn p12_a_forward_jump_of_the_servers_clock_is_taken_off_every_lease() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    harness.store.ahead_us.fetch_add(20_000 * MS, Ordering::SeqCst);
    // Any reply shows the jump: here, the reply to a `try_lock` of another name.
    let mutex = harness.leasehold.mutex("other");
    let looking = tokio::spawn(async move { mutex.try_lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(9_750), "{:?}", guard.remaining());
    assert!(guard.remaining() > Duration::from_secs(5), "no more than that: {:?}", guard.remaining());
    let renewal = harness.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "renewed at once: {:?}", renewal.op);
}

/// The server's clock jumps past the end of the lease, and the next holder has a larger token already. This client has
/// received no reply since, so it hands the lease on inside itself, with the tokens that it has reserved: the README
/// says so of tokens. The first reply ends that. (Without a reply: `p20_a_run_ends_without_a_reply_from_the_store`.)
#[tokio::test]
async fn p19_a_lease_that_a_clock_has_ended_is_handed_on_until_a_reply_comes() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 2).await.into();
    harness.store.ahead_us.fetch_add(40_000 * MS, Ordering::SeqCst);
    let guard = hand_to_next(guard, &mut waiting).await;
    assert_eq!(guard.token(), token(8), "no reply has come since the jump");
    let looking = harness.try_lock("other");
    let request = harness.next_but_renewals().await;
    harness.reply(request, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(timeout(Duration::from_secs(10), guard.lost()).await.expect("notified").reason().is_expiry());
    // The third waiter asks the store anew, and no token of that range is used any more.
    drop(guard);
    let asks_anew = |op: &Op| matches!(op, Op::Acquire(acquire) if acquire.id != id);
    harness.next_but(|op| !asks_anew(op)).await;
    assert!(!waiting[0].is_finished());
}

/// The session's connection is slow. The reply to a renewal was made before the server's clock jumped, and arrives
/// after the client saw the jump on the lane. The time that it reports was right on the old clock.
#[tokio::test]
async fn p12_a_reply_from_before_a_jump_restores_no_time() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(6_000, 7).await;
    let renewal = harness.next().await;
    let renewed = harness.answer(Outcome::Renewed { left_us: 6_000 * MS }, 7);
    let ends = Instant::now() + Duration::from_millis(4_000);
    harness.store.ahead_us.fetch_add(2_000 * MS, Ordering::SeqCst);
    let mutex = harness.leasehold.mutex("other");
    let looking = tokio::spawn(async move { mutex.try_lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(renewal.reply.send(Ok(renewed)).is_ok());
    // The session renews again, because that reply leaves little time. This request is not answered.
    let again = harness.next().await;
    assert!(matches!(again.op, Op::Renew(_)), "{:?}", again.op);
    assert!(Instant::now() + guard.remaining() < ends, "{:?} left at {:?}", guard.remaining(), ends - Instant::now());
}

/// The reply came so late that its lease has ended.
#[tokio::test]
async fn p12_nobody_gets_a_guard_that_is_lost_already() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, first) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: MS, range: 1 }, 7);
    let (mut release, mut again) = (harness.next_but_renewals().await, harness.next_but_renewals().await);
    if matches!(release.op, Op::Acquire(_)) {
        std::mem::swap(&mut release, &mut again);
    }
    assert_eq!(release.op, Op::Release { id: first.id, token: token(7), used: token(7) });
    harness.reply(again, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().check(), Ok(token(8)));
}
