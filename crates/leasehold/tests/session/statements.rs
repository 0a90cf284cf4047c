//! What is believed: of two statements about one attempt, and of one about a lease.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::seam::Fault;
use leasehold::{LostReason, Released};
use leasehold_spec::{LostHow, Op, Outcome};
use tokio::time::timeout;

use crate::bench::{Bench, MS, pause, queued, token};
use crate::store::any_error;

#[tokio::test]
async fn p3_the_statement_with_the_larger_token_is_the_later_one() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    // A look is under way when the push comes. Its answer was made before, and is heard after.
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    bench.say(look, queued(42, 60_000), 7);
    pause(50).await;
    assert_eq!(guard.check(), Ok(token(8)));
}

/// A look was under way when the push came; the lease lapsed at the store (its clock jumped), and the look was granted a
/// new one. The guard has the old token, and the new grant has nobody.
#[tokio::test]
async fn p3_a_second_grant_is_not_taken_for_the_first() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    bench.say(look, Outcome::Granted { token: token(9), left_us: 3_000 * MS, range: 1 }, 9);
    assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told").reason(), LostReason::Superseded);
    let release = bench.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(9), used: token(9) });
    bench.say(release, Outcome::Released, 9);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// A look was under way when the push came, and the lease was revoked, without grace and unheard of, before the look was
/// carried out: to that the grant is gone. Its guard is told why it lost, and not that it has given back itself.
#[tokio::test]
async fn p10_a_look_that_finds_its_grant_gone_tells_that_it_was_revoked() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    bench.say(look, Outcome::Gone, 8);
    assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told").reason(), LostReason::Revoked);
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// An old push is to be claimed first, behind a look that is still under way. The store was slow: the claim has lapsed, the
/// look is granted anew, and only then the claim of the first grant finds nothing.
#[tokio::test]
async fn p3_the_claim_of_an_earlier_grant_does_not_end_the_later_one() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(6_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us() - 1_700 * MS, 3_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
    bench.say(look, Outcome::Granted { token: token(9), left_us: 6_000 * MS, range: 1 }, 9);
    let guard = locking.await.unwrap().unwrap();
    bench.say(claim, Outcome::Lost { how: LostHow::NotHeld }, 9);
    pause(50).await;
    assert_eq!(guard.check(), Ok(token(9)));
    drop(guard);
    assert_eq!(bench.next().await.op, Op::Release { id: acquire.id, token: token(9), used: token(9) });
}

/// A store that restarted empty with its clock behind begins below the tokens that its waiters have heard of.
#[tokio::test]
async fn p3_tokens_of_two_runs_are_not_compared() {
    let mut bench = Bench::new().await;
    let locking = [bench.lock_apart(30_000), bench.lock_apart(30_000)];
    for ticket in [1, 2] {
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, queued(ticket, 60_000), 1_000);
    }
    pause(50).await;
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let (first, _) = bench.next_acquire().await;
    let (second, waiter) = bench.next_acquire().await;
    bench.say(first, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    bench.say(second, queued(2, 60_000), 7);
    pause(100).await;
    bench.nothing();
    bench.push(waiter.id, 8, bench.store.server_us(), 1_000 * MS);
    let mut tokens = Vec::new();
    for locking in locking {
        let guard = timeout(Duration::from_secs(10), locking).await.expect("granted").unwrap().unwrap();
        tokens.push(guard.token());
        std::mem::forget(guard);
    }
    tokens.sort();
    assert_eq!(tokens, [token(7), token(8)]);
}

#[tokio::test]
async fn unknown_is_not_lost_and_lost_says_why() {
    let mut bench = Bench::new().await;
    for (number, highest, why) in
        [(7, 9, LostReason::Superseded), (17, 17, LostReason::Expired), (27, 3, LostReason::Forgotten)]
    {
        let guard = bench.locked(600, number).await;
        let first = bench.next().await;
        drop(first.reply.send(Err(Fault::NoMemory(any_error()))));
        let second = bench.next().await;
        assert_eq!(guard.check(), Ok(token(number)), "no answer is no loss");
        bench.say(second, Outcome::Lost { how: LostHow::NotHeld }, highest);
        assert_eq!(timeout(Duration::from_millis(200), guard.lost()).await.unwrap().reason(), why);
    }
}

/// Each wake-up too many is another turn of the task, and calls another thread of its runtime for it.
#[tokio::test]
async fn an_answer_wakes_its_caller_once() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let mut bench = Bench::new().await;
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mutex = bench.leasehold.mutex("name");
    let mut locking = pin!(mutex.lock());
    assert!(locking.as_mut().poll(&mut context).is_pending());
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let Poll::Ready(guard) = locking.as_mut().poll(&mut context) else { panic!("the answer is there") };
    assert_eq!(guard.unwrap().token(), token(7));
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}
