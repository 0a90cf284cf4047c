//! A store shortens a lease: how the replies that are still in flight are evaluated.

use std::time::Duration;

use leasehold::seam::{Message, Real};
use leasehold_spec::{GrantId, Op, Outcome};
use leasehold_testkit::wait_until;

use crate::harness::{Harness, MS, guard_of, pause, queued, release_guard, token};

const LONG: Duration = Duration::from_secs(10);

/// Sends the message that the store keeps the grant with token 7 only for `for_ms` from `since_us` on.
fn shorten(harness: &Harness, id: GrantId, since_us: u64, for_ms: u64) {
    harness.send_message(Message::Shortened { id, token: token(7), until_us: since_us + for_ms * MS, since_us });
}

fn now_us() -> u64 {
    Real::world().now_us()
}

fn whole(lease_ms: u64) -> Outcome {
    Outcome::Granted { token: token(7), left_us: lease_ms * MS, range: 8 }
}

/// A quorum notices that the clock of one of its nodes was set while its reply is in flight.
#[tokio::test]
async fn p12_the_message_of_a_shortened_lease_overtakes_the_reply_that_grants_it() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    shorten(&harness, acquire.id, now_us(), 2_000);
    harness.reply(request, whole(30_000), 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
    let renewal = harness.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "it is renewed at once: {:?}", renewal.op);
    harness.reply(renewal, Outcome::Renewed { left_us: 30_000 * MS }, 7);
    wait_until("a reply to a later request counts", Duration::from_secs(5), || {
        guard.remaining() > Duration::from_secs(25)
    });
}

#[tokio::test]
async fn p12_the_message_of_a_shortened_lease_overtakes_the_reply_that_renews_it() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(3_000, 7).await;
    let renewal = harness.next().await;
    let Op::Renew(renew) = &renewal.op else { panic!("{:?}", renewal.op) };
    shorten(&harness, renew.id, now_us(), 1_000);
    assert!(guard.remaining() < Duration::from_secs(1), "{:?}", guard.remaining());
    harness.reply(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    let again = harness.next().await;
    assert!(matches!(again.op, Op::Renew(_)), "that reply leaves little time: {:?}", again.op);
    assert!(guard.remaining() < Duration::from_secs(1), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_the_message_of_a_shortened_lease_overtakes_the_push_that_grants_it() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 6);
    let made_us = harness.store.server_us();
    shorten(&harness, acquire.id, now_us(), 2_000);
    harness.push(acquire.id, 7, made_us, 30_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
}

/// The clocks of two nodes were set, and two threads send a message. The thread that noticed first may be the last to
/// send.
#[tokio::test]
async fn p12_of_two_messages_in_the_wrong_order_the_shorter_lease_counts() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    let since_us = now_us();
    shorten(&harness, acquire.id, since_us + 10, 2_000);
    shorten(&harness, acquire.id, since_us, 20_000);
    harness.reply(request, whole(30_000), 7);
    let guard = guard_of(locking).await;
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
}

/// A majority can include a vote that is nearly a whole lease old. So the margin is computed from the whole lease.
#[tokio::test]
async fn p12_a_shortening_leaves_the_same_margin_before_a_reply_and_behind_it() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(60_000);
    let (request, acquire) = harness.next_acquire().await;
    let since_us = now_us();
    shorten(&harness, acquire.id, since_us, 2_000);
    harness.reply(request, whole(60_000), 7);
    let guard = guard_of(locking).await;
    let (before_us, now_us) = (guard.remaining().as_micros(), now_us());
    let early = before_us + u128::from(now_us);
    shorten(&harness, acquire.id, since_us, 2_000);
    let (before_us, now_us) = (guard.remaining().as_micros(), self::now_us());
    let late = before_us + u128::from(now_us);
    // The margins of 2 s and of 60 s are 580 ms apart.
    let apart_us = early.abs_diff(late);
    assert!(apart_us < 300_000, "after the same message again the lease ends {apart_us} µs earlier");
}

/// The message leaves no time. The session checks with the store once, and believes the reply.
#[tokio::test]
async fn p12_a_shortening_that_leaves_nothing_is_checked_once() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(3_000, 7).await;
    let renewal = harness.next().await;
    let Op::Renew(renew) = renewal.op.clone() else { panic!("{:?}", renewal.op) };
    let since_us = now_us();
    shorten(&harness, renew.id, since_us, 300);
    harness.reply(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    let again = harness.next().await;
    harness.reply(again, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    pause(500).await;
    harness.expect_no_request();
    assert!(guard.remaining() > Duration::from_secs(2), "{:?}", guard.remaining());
    harness.send_message(Message::RecheckAll);
    let third = harness.next().await;
    harness.reply(third, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    pause(300).await;
    harness.expect_no_request();
    assert!(guard.check().is_ok());
}

#[tokio::test]
async fn p12_a_fixed_lease_that_is_shortened_on_its_way_is_confirmed_once() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").fixed_lease(LONG);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, acquire) = harness.next_acquire().await;
    shorten(&harness, acquire.id, now_us(), 2_000);
    harness.reply(request, whole(10_000), 7);
    let guard = guard_of(locking).await;
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
    let claim = harness.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.from == leasehold_spec::From::Grant), "{:?}", claim.op);
    harness.reply(claim, Outcome::Renewed { left_us: 1_500 * MS }, 7);
    pause(300).await;
    harness.expect_no_request();
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_a_fixed_lease_that_is_shortened_stays_so() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").fixed_lease(LONG);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, whole(10_000), 7);
    let guard = guard_of(locking).await;
    shorten(&harness, acquire.id, now_us(), 400);
    harness.send_message(Message::RecheckAll);
    assert!(guard.remaining() < Duration::from_millis(400), "{:?}", guard.remaining());
    tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    let last = harness.next().await;
    assert!(matches!(last.op, Op::Release { .. }), "{:?}", last.op);
}

#[tokio::test]
async fn p20_a_shortened_lease_is_handed_on_as_short_as_it_is() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, whole(30_000), 7);
    let guard = guard_of(locking).await;
    let mut waiting = harness.add_local_waiters(30_000, 1).await;
    // So little that the lease may still be handed on.
    shorten(&harness, acquire.id, now_us(), 29_600);
    let mine = guard.remaining();
    assert!(mine < Duration::from_millis(29_600), "{mine:?}");
    release_guard(guard).await;
    let next = guard_of(waiting.remove(0)).await;
    assert_ne!(next.token(), token(7));
    assert!(next.remaining() <= mine, "{:?}", next.remaining());
    // A second message, after the hand-over: for the same grant, with the token of its first holder.
    shorten(&harness, acquire.id, now_us(), 3_000);
    assert!(next.remaining() < Duration::from_secs(3), "{:?}", next.remaining());
}

/// Only the arrival time of the push is known, or the push is old. A claim is sent after the shortening, so its reply
/// includes it.
#[tokio::test]
async fn p12_a_message_that_cannot_be_placed_is_claimed_and_the_claim_counts() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 6);
    pause(20).await;
    shorten(&harness, acquire.id, now_us(), 2_000);
    harness.push(acquire.id, 7, harness.store.server_us() + 60_000 * MS, 30_000 * MS);
    let claim = harness.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(7)), "{:?}", claim.op);
    // A message after the claim, before its reply.
    shorten(&harness, acquire.id, now_us(), 1_000);
    harness.reply(claim, Outcome::Renewed { left_us: 30_000 * MS }, 7);
    let guard = guard_of(locking).await;
    assert!(guard.remaining() < Duration::from_secs(1), "{:?}", guard.remaining());
}
