//! P10: waiters of a lease that was revoked, and the client that revoked it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Revoked;
use leasehold::seam::{Message, World};
use leasehold_spec::{
    Contention, Delivery, Event, GrantId, GrantState, Holder, Inspection, Op, Outcome, PublicId, Rest, SessionId,
};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, queued, token};

/// Long before the waiter's own re-check, in four seconds at the earliest.
const BEFORE_ITS_OWN: Duration = Duration::from_millis(3_500);

/// What the store says to this waiter: the lease with token 7 ends in so long.
fn ends(bench: &Bench, id: GrantId, left_ms: u64) {
    ends_said_before(bench, id, left_ms, 0);
}

/// The same in a message that was on its way for so long.
fn ends_said_before(bench: &Bench, id: GrantId, left_ms: u64, ago_ms: u64) {
    bench.deliver(Delivery {
        to: id.session,
        now_us: bench.store.server_us() - ago_ms * MS,
        contention: Contention::Others,
        rest: Rest::Done,
        id,
        token: token(7),
        left_us: left_ms * MS,
        range: 1,
        event: Event::Ending,
    });
}

/// The next request is a look of this attempt, not before `from` has passed and long before it is due of itself.
async fn looks(bench: &mut Bench, id: GrantId, begun: Instant, from_ms: u64) -> crate::store::Asked {
    let (asked, look) = timeout(BEFORE_ITS_OWN, bench.next_acquire()).await.expect("a look");
    assert_eq!(look.id, id);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(from_ms), "the lease had not ended yet: {waited:?}");
    asked
}

#[tokio::test]
async fn p10_a_waiter_looks_when_the_grace_is_over() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    pause(100).await;
    let begun = Instant::now();
    ends(&bench, acquire.id, 300);
    let asked = looks(&mut bench, acquire.id, begun, 298).await;
    // The server's clock is a little slower than ours.
    bench.say(asked, queued(42, 50), 7);
    looks(&mut bench, acquire.id, begun, 350).await;
}

/// The answer goes by another link than the message, and what it says was so before.
#[tokio::test]
async fn p10_an_answer_from_before_the_revocation_takes_nothing_back() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    // So that nothing falls due before the answer is heard, nor the waiter's own look ever.
    world.stand_still();
    ends(&bench, acquire.id, 300);
    bench.say(asked, queued(42, 60_000), 7);
    pause(100).await;
    bench.nothing();
    world.set_on(310 * MS);
    looks(&mut bench, acquire.id, Instant::now(), 0).await;
}

/// A look for another reason is under way when the message comes, and was carried out before the revocation.
#[tokio::test]
async fn p10_an_end_is_not_forgotten_with_an_earlier_one() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 200), 7);
    pause(50).await;
    bench.tell(Message::LookAtAll);
    let (look, _) = bench.next_acquire().await;
    let begun = Instant::now();
    ends(&bench, acquire.id, 500);
    let settling = bench.next().await;
    assert_eq!(settling.op, Op::Settle, "the end that it was told first");
    bench.say(settling, Outcome::Settled, 7);
    bench.say(look, queued(42, 60_000), 7);
    looks(&mut bench, acquire.id, begun, 498).await;
}

/// It counts from when the message was made: one that lay in a buffer is about what has ended already.
#[tokio::test]
async fn p10_a_late_message_costs_no_second_grace() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    pause(100).await;
    let begun = Instant::now();
    ends_said_before(&bench, acquire.id, 5_000, 4_900);
    looks(&mut bench, acquire.id, begun, 0).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn p10_a_second_revocation_brings_the_end_nearer_and_a_repeated_one_not_further() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    pause(100).await;
    let begun = Instant::now();
    for left_ms in [3_000, 300, 2_000] {
        ends(&bench, acquire.id, left_ms);
    }
    let asked = looks(&mut bench, acquire.id, begun, 298).await;
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    bench.say(asked, queued(42, 60_000), 7);
    pause(100).await;
    bench.nothing();
}

/// The attempt that was told has gone, and another one of this client waits.
#[tokio::test]
async fn p10_whichever_attempt_waits_then_looks() {
    let mut bench = Bench::new().await;
    let first = bench.lock_apart(30_000);
    let (asked, told) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    let _second = bench.lock_apart(30_000);
    let (asked, waits) = bench.next_acquire().await;
    bench.say(asked, queued(2, 60_000), 7);
    pause(50).await;
    let begun = Instant::now();
    ends(&bench, told.id, 300);
    first.abort();
    let (leave, left) = bench.next_leave().await;
    assert_eq!(left, told.id);
    bench.say(leave, Outcome::Left { was: leasehold_spec::Was::Queued }, 7);
    looks(&mut bench, waits.id, begun, 298).await;
}

#[tokio::test]
async fn p10_an_end_of_what_nobody_waits_for_is_nothing() {
    let mut bench = Bench::new().await;
    ends(&bench, GrantId { session: SessionId(1), counter: 9, nonce: 9 }, 0);
    pause(100).await;
    bench.nothing();
}

/// Without a waiter of its own it settles, which hands over to whoever waits.
#[tokio::test]
async fn p10_the_client_that_revoked_looks_after_the_grace_as_well() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let inspecting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.inspect().await }
    });
    let (id, label) = (PublicId { session: SessionId(5), counter: 5 }, "somebody".to_owned());
    let (left_us, state) = (60_000 * MS, GrantState::Held);
    let holder = Holder { id, token: token(7), left_us, label, state };
    let asked = bench.next().await;
    bench.say(asked, Outcome::Inspected(Inspection { holder: Some(holder), waiters: 1 }), 7);
    let seen = inspecting.await.unwrap().unwrap().holder.expect("it holds");
    let revoking = tokio::spawn(async move { mutex.revoke(&seen, Duration::from_millis(300)).await });
    let asked = bench.next().await;
    assert_eq!(asked.op, Op::Revoke { holder: id, token: token(7), grace_ms: 300 });
    let begun = Instant::now();
    bench.say(asked, Outcome::Revoking { left_us: 300 * MS }, 7);
    assert_eq!(revoking.await.unwrap().unwrap(), Revoked::Within(Duration::from_millis(300)));
    let settling = timeout(BEFORE_ITS_OWN, bench.next()).await.expect("it looks after the name");
    assert_eq!(settling.op, Op::Settle);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
}
