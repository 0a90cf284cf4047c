//! A lease that its store keeps for less time than it had said: what becomes of the answers that are still on their way.

use std::time::Duration;

use leasehold::seam::{Message, Real};
use leasehold_spec::{GrantId, Op, Outcome};
use leasehold_testkit::wait_until;

use crate::bench::{Bench, MS, give_back, pause, queued, soon, token};

const LONG: Duration = Duration::from_secs(10);

/// The store keeps the grant with the token 7 until then.
fn word(bench: &Bench, id: GrantId, since_us: u64, for_ms: u64) {
    bench.tell(Message::Shortened { id, token: token(7), until_us: since_us + for_ms * MS, since_us });
}

fn now_us() -> u64 {
    Real::world().now_us()
}

fn whole(lease_ms: u64) -> Outcome {
    Outcome::Granted { token: token(7), left_us: lease_ms * MS, range: 8 }
}

/// A clock of one of its nodes is seen to be set while a quorum's answer is on its way.
#[tokio::test]
async fn p12_a_word_of_a_shortened_lease_overtakes_the_answer_that_grants_it() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    word(&bench, acquire.id, now_us(), 2_000);
    bench.say(asked, whole(30_000), 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
    let renewal = bench.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "asked for anew at once: {:?}", renewal.op);
    bench.say(renewal, Outcome::Renewed { left_us: 30_000 * MS }, 7);
    wait_until("what was asked later is believed", Duration::from_secs(5), || {
        guard.remaining() > Duration::from_secs(25)
    });
}

#[tokio::test]
async fn p12_a_word_of_a_shortened_lease_overtakes_the_answer_that_renews_it() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(3_000, 7).await;
    let renewal = bench.next().await;
    let Op::Renew(renew) = &renewal.op else { panic!("{:?}", renewal.op) };
    word(&bench, renew.id, now_us(), 1_000);
    assert!(guard.remaining() < Duration::from_secs(1), "{:?}", guard.remaining());
    bench.say(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    let again = bench.next().await;
    assert!(matches!(again.op, Op::Renew(_)), "that answer is worth little: {:?}", again.op);
    assert!(guard.remaining() < Duration::from_secs(1), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_a_word_of_a_shortened_lease_overtakes_the_message_that_grants_it() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 6);
    let made_us = bench.store.server_us();
    word(&bench, acquire.id, now_us(), 2_000);
    bench.push(acquire.id, 7, made_us, 30_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
}

/// The clocks of two nodes were set, and two threads say so: whoever was first to know is the last to say it.
#[tokio::test]
async fn p12_of_two_words_in_the_wrong_order_the_shorter_one_counts() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    let since_us = now_us();
    word(&bench, acquire.id, since_us + 10, 2_000);
    word(&bench, acquire.id, since_us, 20_000);
    bench.say(asked, whole(30_000), 7);
    let guard = soon(locking).await;
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
}

/// A majority can rest on a vote that is nearly a whole lease old: it is the lease that the margin is of.
#[tokio::test]
async fn p12_a_word_leaves_the_same_margin_before_an_answer_and_behind_it() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(60_000);
    let (asked, acquire) = bench.next_acquire().await;
    let since_us = now_us();
    word(&bench, acquire.id, since_us, 2_000);
    bench.say(asked, whole(60_000), 7);
    let guard = soon(locking).await;
    let (before_us, now_us) = (guard.remaining().as_micros(), now_us());
    let early = before_us + u128::from(now_us);
    word(&bench, acquire.id, since_us, 2_000);
    let (before_us, now_us) = (guard.remaining().as_micros(), self::now_us());
    let late = before_us + u128::from(now_us);
    // The margins of 2 s and of 60 s are 580 ms apart.
    let apart_us = early.abs_diff(late);
    assert!(apart_us < 300_000, "the same word twice, and the lease ends {apart_us} µs earlier");
}

/// Nothing is left by that word: it is asked again, once, and what that says is believed.
#[tokio::test]
async fn p12_a_word_that_leaves_nothing_is_asked_about_once() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(3_000, 7).await;
    let renewal = bench.next().await;
    let Op::Renew(renew) = renewal.op.clone() else { panic!("{:?}", renewal.op) };
    let since_us = now_us();
    word(&bench, renew.id, since_us, 300);
    bench.say(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    let again = bench.next().await;
    bench.say(again, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    pause(500).await;
    bench.nothing();
    assert!(guard.remaining() > Duration::from_secs(2), "{:?}", guard.remaining());
    bench.tell(Message::LookAtAll);
    let third = bench.next().await;
    bench.say(third, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    pause(300).await;
    bench.nothing();
    assert!(guard.check().is_ok());
}

#[tokio::test]
async fn p12_a_fixed_lease_that_is_shortened_on_its_way_is_confirmed_once() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").fixed_lease(LONG);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, acquire) = bench.next_acquire().await;
    word(&bench, acquire.id, now_us(), 2_000);
    bench.say(asked, whole(10_000), 7);
    let guard = soon(locking).await;
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.from == leasehold_spec::From::Grant), "{:?}", claim.op);
    bench.say(claim, Outcome::Renewed { left_us: 1_500 * MS }, 7);
    pause(300).await;
    bench.nothing();
    assert!(guard.remaining() < Duration::from_secs(2), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_a_fixed_lease_that_is_shortened_stays_so() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").fixed_lease(LONG);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, whole(10_000), 7);
    let guard = soon(locking).await;
    word(&bench, acquire.id, now_us(), 400);
    bench.tell(Message::LookAtAll);
    assert!(guard.remaining() < Duration::from_millis(400), "{:?}", guard.remaining());
    tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    let last = bench.next().await;
    assert!(matches!(last.op, Op::Release { .. }), "{:?}", last.op);
}

#[tokio::test]
async fn p20_a_shortened_lease_is_handed_on_as_short_as_it_is() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, whole(30_000), 7);
    let guard = soon(locking).await;
    let mut waiting = bench.in_line(30_000, 1).await;
    // By so little that it may still be handed on.
    word(&bench, acquire.id, now_us(), 29_600);
    let mine = guard.remaining();
    assert!(mine < Duration::from_millis(29_600), "{mine:?}");
    give_back(guard).await;
    let next = soon(waiting.remove(0)).await;
    assert_ne!(next.token(), token(7));
    assert!(next.remaining() <= mine, "{:?}", next.remaining());
    // And by a word behind the hand-over: of the same grant, with the token that the first one had.
    word(&bench, acquire.id, now_us(), 3_000);
    assert!(next.remaining() < Duration::from_secs(3), "{:?}", next.remaining());
}

/// Of which nothing but its arrival is known, or which is old: a claim is asked later than the word, and knows it.
#[tokio::test]
async fn p12_a_message_that_cannot_be_placed_is_claimed_and_the_claim_counts() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 6);
    pause(20).await;
    word(&bench, acquire.id, now_us(), 2_000);
    bench.push(acquire.id, 7, bench.store.server_us() + 60_000 * MS, 30_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(7)), "{:?}", claim.op);
    // A word behind the claim, before its answer.
    word(&bench, acquire.id, now_us(), 1_000);
    bench.say(claim, Outcome::Renewed { left_us: 30_000 * MS }, 7);
    let guard = soon(locking).await;
    assert!(guard.remaining() < Duration::from_secs(1), "{:?}", guard.remaining());
}
