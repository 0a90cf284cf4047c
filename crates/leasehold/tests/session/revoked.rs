//! P10: waiters of a lease that was revoked, and the client that revoked it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Revoked;
use leasehold::seam::{Message, World};
use leasehold_spec::{
    Contention, Delivery, Event, GrantId, GrantState, Holder, Inspection, Op, Outcome, PublicId, Rest, SessionId,
    ShownMode,
};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, pause, queued, token};

/// Before the waiter's own re-check, which is due in four seconds at the earliest.
const BEFORE_ITS_OWN: Duration = Duration::from_millis(3_500);

/// Sends a waiter the message that the lease with token 7 ends in `left_ms`.
fn ends(harness: &Harness, id: GrantId, left_ms: u64) {
    ends_said_before(harness, id, left_ms, 0);
}

/// The same in a message that was in flight for `ago_ms`.
fn ends_said_before(harness: &Harness, id: GrantId, left_ms: u64, ago_ms: u64) {
    harness.deliver(Delivery {
        to: id.session,
        now_us: harness.store.server_us() - ago_ms * MS,
        contention: Contention::Others,
        rest: Rest::Done,
        id,
        token: token(7),
        left_us: left_ms * MS,
        range: 1,
        event: Event::Ending,
    });
}

/// Expects that the next request is a re-check of this attempt, not before `from_ms` has passed and long before its own
/// re-check is due.
async fn expect_recheck(harness: &mut Harness, id: GrantId, begun: Instant, from_ms: u64) -> crate::store::Request {
    let (request, recheck) = timeout(BEFORE_ITS_OWN, harness.next_acquire()).await.expect("a re-check");
    assert_eq!(recheck.id, id);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(from_ms), "the lease had not ended yet: {waited:?}");
    request
}

#[tokio::test]
async fn p10_a_waiter_rechecks_when_the_grace_is_over() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    pause(100).await;
    let begun = Instant::now();
    ends(&harness, acquire.id, 300);
    let request = expect_recheck(&mut harness, acquire.id, begun, 298).await;
    // The server's clock is a little slower than the client's.
    harness.reply(request, queued(42, 50), 7);
    expect_recheck(&mut harness, acquire.id, begun, 350).await;
}

/// The reply comes by another connection than the message, and its content is older.
#[tokio::test]
async fn p10_a_reply_from_before_the_revocation_cancels_no_recheck() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    // Freeze the time, so that nothing is due before the reply arrives, and the waiter's own re-check never is.
    world.freeze();
    ends(&harness, acquire.id, 300);
    harness.reply(request, queued(42, 60_000), 7);
    pause(100).await;
    harness.expect_no_request();
    world.advance(310 * MS);
    expect_recheck(&mut harness, acquire.id, Instant::now(), 0).await;
}

/// A re-check for another reason is in flight when the message comes, and the store executed it before the revocation.
#[tokio::test]
async fn p10_an_end_is_not_forgotten_with_an_earlier_one() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 200), 7);
    pause(50).await;
    harness.send_message(Message::RecheckAll);
    let (recheck, _) = harness.next_acquire().await;
    let begun = Instant::now();
    ends(&harness, acquire.id, 500);
    let settling = harness.next().await;
    assert_eq!(settling.op, Op::Settle, "the end in the first message");
    harness.reply(settling, Outcome::Settled, 7);
    harness.reply(recheck, queued(42, 60_000), 7);
    expect_recheck(&mut harness, acquire.id, begun, 498).await;
}

/// The time counts from when the message was made. The grace of a message that lay in a buffer may have ended already.
#[tokio::test]
async fn p10_a_late_message_costs_no_second_grace() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    pause(100).await;
    let begun = Instant::now();
    ends_said_before(&harness, acquire.id, 5_000, 4_900);
    expect_recheck(&mut harness, acquire.id, begun, 0).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn p10_a_second_revocation_brings_the_end_nearer_and_a_repeated_one_not_further() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    pause(100).await;
    let begun = Instant::now();
    for left_ms in [3_000, 300, 2_000] {
        ends(&harness, acquire.id, left_ms);
    }
    let request = expect_recheck(&mut harness, acquire.id, begun, 298).await;
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    harness.reply(request, queued(42, 60_000), 7);
    pause(100).await;
    harness.expect_no_request();
}

/// The attempt that got the message has gone, and another attempt of this client waits.
#[tokio::test]
async fn p10_the_attempt_that_waits_then_rechecks() {
    let mut harness = Harness::new().await;
    let first = harness.lock_apart(30_000);
    let (request, notified) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    let _second = harness.lock_apart(30_000);
    let (request, waits) = harness.next_acquire().await;
    harness.reply(request, queued(2, 60_000), 7);
    pause(50).await;
    let begun = Instant::now();
    ends(&harness, notified.id, 300);
    first.abort();
    let (leave, left) = harness.next_leave().await;
    assert_eq!(left, notified.id);
    harness.reply(leave, Outcome::Left { was: leasehold_spec::Was::Queued }, 7);
    expect_recheck(&mut harness, waits.id, begun, 298).await;
}

#[tokio::test]
async fn p10_a_revocation_without_a_waiter_sends_nothing() {
    let mut harness = Harness::new().await;
    ends(&harness, GrantId { session: SessionId(1), counter: 9, nonce: 9 }, 0);
    pause(100).await;
    harness.expect_no_request();
}

/// A client without a waiter settles instead, which hands the lock over to any waiter.
#[tokio::test]
async fn p10_the_client_that_revoked_settles_after_the_grace_as_well() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name");
    let inspecting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.inspect().await }
    });
    let (id, label) = (PublicId { session: SessionId(5), counter: 5 }, "somebody".to_owned());
    let (left_us, state, units, mode) = (60_000 * MS, GrantState::Held, 1, ShownMode::Plain);
    let holder = Holder { id, token: token(7), left_us, label, state, units, mode };
    let request = harness.next().await;
    harness.reply(request, Outcome::Inspected(Inspection::of_mutex(Some(holder), 1)), 7);
    let seen = inspecting.await.unwrap().unwrap().holder().cloned().expect("it holds");
    let revoking = tokio::spawn(async move { mutex.revoke(&seen, Duration::from_millis(300)).await });
    let request = harness.next().await;
    assert_eq!(request.op, Op::Revoke { holder: id, token: token(7), grace_ms: 300 });
    let begun = Instant::now();
    harness.reply(request, Outcome::Revoking { left_us: 300 * MS }, 7);
    assert_eq!(revoking.await.unwrap().unwrap(), Revoked::Within(Duration::from_millis(300)));
    let settling = timeout(BEFORE_ITS_OWN, harness.next()).await.expect("it settles the name");
    assert_eq!(settling.op, Op::Settle);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
}
