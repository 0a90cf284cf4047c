//! For how long a lease is ours: clocks that are apart, buffers that hold a message back, a clock that is set.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_spec::{Op, Outcome};
use tokio::time::timeout;

use crate::bench::{Bench, MS, pass, pause, queued, token};

#[tokio::test]
async fn p12_validity_counts_from_before_the_sending() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, _) = bench.next_acquire().await;
    pause(300).await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 3_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(2_700 - 30), "{:?}", guard.remaining());
    assert!(guard.is_valid());
}

#[tokio::test]
async fn p12_a_push_counts_from_the_moment_that_it_was_made() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    // It lay in a buffer for 0.3 s of its claim of 1 s.
    bench.push(acquire.id, 8, bench.store.server_us() - 300 * MS, 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(700), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_a_push_that_is_old_is_claimed_before_it_is_entered() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    bench.push(acquire.id, 8, bench.store.server_us() - 600 * MS, 1_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
    pause(50).await;
    assert!(!locking.is_finished(), "not entered on the strength of an old push");
    bench.say(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
    assert!(locking.await.unwrap().unwrap().remaining() > Duration::from_secs(29));
}

#[tokio::test]
async fn p12_a_push_from_the_future_is_claimed_too() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    bench.push(acquire.id, 8, bench.store.server_us() + 60_000 * MS, 1_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(_)), "{:?}", claim.op);
    assert!(!locking.is_finished());
}

#[tokio::test]
async fn p12_a_forward_jump_of_the_servers_clock_is_taken_off_every_lease() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    bench.store.ahead_us.fetch_add(20_000 * MS, Ordering::SeqCst);
    // Any answer shows it: here, of a look at another lock.
    let mutex = bench.leasehold.mutex("other");
    let looking = tokio::spawn(async move { mutex.try_lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(9_750), "{:?}", guard.remaining());
    assert!(guard.remaining() > Duration::from_secs(5), "no more than that: {:?}", guard.remaining());
    let renewal = bench.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "asked for at once: {:?}", renewal.op);
}

/// The server's clock jumps past the end of the lease, and the next holder has a larger token already. No answer has told
/// this client, so it hands the lease on inside itself, with the tokens that it has reserved: the README says so of
/// tokens. The first answer ends that. (Without an answer: `p20_a_run_ends_without_a_word_from_the_store`.)
#[tokio::test]
async fn p19_a_lease_that_a_clock_has_ended_is_handed_on_until_an_answer_tells() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 2).await.into();
    bench.store.ahead_us.fetch_add(40_000 * MS, Ordering::SeqCst);
    let guard = pass(guard, &mut waiting).await;
    assert_eq!(guard.token(), token(8), "nobody has told it");
    let looking = bench.try_lock("other");
    let asked = bench.next_but_renewals().await;
    bench.say(asked, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told").reason().is_expiry());
    // The third in line asks the store anew, and no token of that range is used any more.
    drop(guard);
    let asks_anew = |op: &Op| matches!(op, Op::Acquire(acquire) if acquire.id != id);
    bench.next_but(|op| !asks_anew(op)).await;
    assert!(!waiting[0].is_finished());
}

/// The session's link is slow: the answer to a renewal was given before the server's clock jumped, and is heard after the
/// jump was seen on the callers' link. What it says to be left was true on the old clock.
#[tokio::test]
async fn p12_an_answer_from_before_a_jump_gives_nothing_back() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(6_000, 7).await;
    let renewal = bench.next().await;
    let renewed = bench.answer(Outcome::Renewed { left_us: 6_000 * MS }, 7);
    let ends = Instant::now() + Duration::from_millis(4_000);
    bench.store.ahead_us.fetch_add(2_000 * MS, Ordering::SeqCst);
    let mutex = bench.leasehold.mutex("other");
    let looking = tokio::spawn(async move { mutex.try_lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(renewal.reply.send(Ok(renewed)).is_ok());
    // It is asked again, as that answer is worth little, and is not answered any more.
    let again = bench.next().await;
    assert!(matches!(again.op, Op::Renew(_)), "{:?}", again.op);
    assert!(Instant::now() + guard.remaining() < ends, "{:?} left at {:?}", guard.remaining(), ends - Instant::now());
}

/// The answer came so late that its lease has ended.
#[tokio::test]
async fn p12_nobody_gets_a_guard_that_is_lost_already() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, first) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: MS, range: 1 }, 7);
    let (mut release, mut again) = (bench.next_but_renewals().await, bench.next_but_renewals().await);
    if matches!(release.op, Op::Acquire(_)) {
        std::mem::swap(&mut release, &mut again);
    }
    assert_eq!(release.op, Op::Release { id: first.id, token: token(7), used: token(7) });
    bench.say(again, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().check(), Ok(token(8)));
}
