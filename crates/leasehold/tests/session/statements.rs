//! Contradictory messages and replies: which of two statements about one attempt, or about one lease, the session
//! believes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::seam::Fault;
use leasehold::{LostReason, Released};
use leasehold_spec::{LostHow, Op, Outcome};
use tokio::time::timeout;

use crate::harness::{Harness, MS, pause, queued, token};
use crate::store::any_error;

#[tokio::test]
async fn p3_the_statement_with_the_larger_token_is_the_later_one() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(3_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    // A re-check is in flight when the push comes. Its reply was made before the push, and arrives after it.
    let (recheck, _) = harness.next_acquire().await;
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    harness.reply(recheck, queued(42, 60_000), 7);
    pause(50).await;
    assert_eq!(guard.check(), Ok(token(8)));
}

/// The store was flushed while its clock was behind. So the waiter is granted a token below the last one that it knows. The
/// first such reply may be an old one. A request that is sent after it proves that the store has forgotten.
#[tokio::test]
async fn p3_a_smaller_token_is_believed_when_a_later_request_gets_it_again() {
    // Beside a reader, others may have been granted larger tokens since.
    for highest in [8, 900] {
        let mut harness = Harness::new().await;
        let mut locking = harness.lock(3_000);
        let (request, acquire) = harness.next_acquire().await;
        harness.reply(request, queued(42, 60_000), 700);
        let smaller = || Outcome::Granted { token: token(8), left_us: 3_000 * MS, range: 1 };
        let (recheck, _) = harness.next_acquire().await;
        harness.reply(recheck, smaller(), highest);
        timeout(Duration::from_millis(50), &mut locking).await.expect_err("it may be an old reply");
        let (recheck, again) = harness.next_acquire().await;
        assert_eq!(again.id, acquire.id);
        harness.reply(recheck, smaller(), highest);
        let guard = timeout(Duration::from_secs(10), locking).await.expect("believed").unwrap().unwrap();
        assert_eq!(guard.check(), Ok(token(8)));
    }
}

/// A re-check was in flight when the push came. The lease ended at the store (its clock jumped), and the re-check was
/// granted a new one. The guard has the old token, and nobody holds the new grant.
#[tokio::test]
async fn p3_a_second_grant_is_not_taken_for_the_first() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(3_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    let (recheck, _) = harness.next_acquire().await;
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    harness.reply(recheck, Outcome::Granted { token: token(9), left_us: 3_000 * MS, range: 1 }, 9);
    assert_eq!(
        timeout(Duration::from_secs(10), guard.lost()).await.expect("notified").reason(),
        LostReason::Superseded
    );
    let release = harness.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(9), used: token(9) });
    harness.reply(release, Outcome::Released, 9);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// A re-check was in flight when the push came. Before the store executed the re-check, the lease was revoked without
/// grace, and the message of that was lost. So the re-check finds the grant gone. The guard must report the revocation,
/// and not that it was released.
#[tokio::test]
async fn p10_a_recheck_that_finds_its_grant_gone_reports_a_revocation() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(3_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    let (recheck, _) = harness.next_acquire().await;
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    harness.reply(recheck, Outcome::Gone, 8);
    assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("notified").reason(), LostReason::Revoked);
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// An old push has to be claimed first, while a re-check is still in flight. The store was slow: the claim has ended,
/// the re-check gets a new grant, and only then the claim of the first grant finds nothing.
#[tokio::test]
async fn p3_the_claim_of_an_earlier_grant_does_not_end_the_later_one() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(6_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    let (recheck, _) = harness.next_acquire().await;
    harness.push(acquire.id, 8, harness.store.server_us() - 1_700 * MS, 3_000 * MS);
    let claim = harness.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
    harness.reply(recheck, Outcome::Granted { token: token(9), left_us: 6_000 * MS, range: 1 }, 9);
    let guard = locking.await.unwrap().unwrap();
    harness.reply(claim, Outcome::Lost { how: LostHow::NotHeld }, 9);
    pause(50).await;
    assert_eq!(guard.check(), Ok(token(9)));
    drop(guard);
    assert_eq!(harness.next().await.op, Op::Release { id: acquire.id, token: token(9), used: token(9) });
}

/// A store that restarted empty, with its clock behind, begins with tokens below those that its waiters know.
#[tokio::test]
async fn p3_tokens_of_two_runs_are_not_compared() {
    let mut harness = Harness::new().await;
    let locking = [harness.lock_apart(30_000), harness.lock_apart(30_000)];
    for ticket in [1, 2] {
        let (request, _) = harness.next_acquire().await;
        harness.reply(request, queued(ticket, 60_000), 1_000);
    }
    pause(50).await;
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let (first, _) = harness.next_acquire().await;
    let (second, waiter) = harness.next_acquire().await;
    harness.reply(first, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    harness.reply(second, queued(2, 60_000), 7);
    pause(100).await;
    harness.expect_no_request();
    harness.push(waiter.id, 8, harness.store.server_us(), 1_000 * MS);
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
async fn an_unknown_state_is_not_a_loss_and_a_loss_has_a_reason() {
    let mut harness = Harness::new().await;
    for (number, highest, why) in
        [(7, 9, LostReason::Superseded), (17, 17, LostReason::Expired), (27, 3, LostReason::Forgotten)]
    {
        let guard = harness.locked(600, number).await;
        let first = harness.next().await;
        drop(first.reply.send(Err(Fault::NoMemory(any_error()))));
        let second = harness.next().await;
        assert_eq!(guard.check(), Ok(token(number)), "a missing reply is no loss");
        harness.reply(second, Outcome::Lost { how: LostHow::NotHeld }, highest);
        assert_eq!(timeout(Duration::from_millis(200), guard.lost()).await.unwrap().reason(), why);
    }
}

/// Each superfluous wake-up is another poll of the task, and wakes another thread of its runtime.
#[tokio::test]
async fn an_answer_wakes_its_caller_once() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let mut harness = Harness::new().await;
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mutex = harness.leasehold.mutex("name");
    let mut locking = pin!(mutex.lock());
    assert!(locking.as_mut().poll(&mut context).is_pending());
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let Poll::Ready(guard) = locking.as_mut().poll(&mut context) else { panic!("the reply has arrived") };
    assert_eq!(guard.unwrap().token(), token(7));
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}
