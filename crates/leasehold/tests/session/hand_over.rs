//! Hand-overs and other requests for the sake of other clients: settling, repeated requests, claims, and revocations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::seam::{Message, World};
use leasehold::{ErrorKind, LostReason, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, LostHow, Name, Op, Outcome, Rest, Was};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, pause, queued, token};

/// The reply to the claim is older than the message of the revocation, which comes by another connection. If the waiter
/// entered on that reply, it would hold for longer than the grace.
#[tokio::test]
async fn p10_a_grant_that_is_revoked_while_it_is_claimed_is_not_entered() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    harness.push(acquire.id, 8, harness.store.server_us() - 800 * MS, 1_000 * MS);
    let claim = harness.next().await;
    assert!(matches!(claim.op, Op::Renew(_)), "{:?}", claim.op);
    let renewed = harness.answer(Outcome::Renewed { left_us: 30_000 * MS }, 8);
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us(),
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(8),
        left_us: 50 * MS,
        event: Event::Revoked,
        range: 1,
    });
    let _late = claim.reply.send(Ok(renewed));
    let release = harness.next().await;
    assert!(
        matches!(release.op, Op::Release { id, .. } | Op::Leave { id, .. } if id == acquire.id),
        "{:?}",
        release.op
    );
    let (request, again) = harness.next_acquire().await;
    assert_ne!(again.id, acquire.id, "the waiter asks anew");
    harness.reply(request, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}

/// A re-check and a message bring the same grant by different connections. The second one has nothing new, and its time is
/// older: it must not shorten the hold or take the lock away.
#[tokio::test]
async fn p3_a_message_of_a_grant_that_a_reply_has_brought_changes_nothing() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1).await;
    harness.push(id, 7, harness.store.server_us(), 1_000 * MS);
    pause(50).await;
    assert!(guard.remaining() > Duration::from_secs(20), "{:?}", guard.remaining());
    assert!(timeout(Duration::from_millis(50), guard.lost()).await.is_err(), "nothing was lost");
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { token: released, .. } if released == token(7)), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

#[tokio::test]
async fn p1_a_reply_that_says_more_is_followed_by_a_settle() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let answer = Answer { rest: Rest::More, ..harness.answer(Outcome::Released, 7) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    let settle = harness.next().await;
    assert_eq!(settle.op, Op::Settle);
    harness.reply(settle, Outcome::Settled, 7);

    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us(),
        contention: Contention::Others,
        rest: Rest::More,
        id: acquire.id,
        token: token(8),
        left_us: 30_000 * MS,
        event: Event::Granted,
        range: 1,
    });
    assert_eq!(harness.next_but_renewals().await.op, Op::Settle);
}

/// A server needs seconds to settle so many names. If they are due at once, the requests are sent in turn.
#[tokio::test]
async fn many_settles_are_sent_in_turn() {
    const NAMES: usize = 5_000;
    let mut harness = Harness::new().await;
    let mut guards = Vec::new();
    for number in 1..=NAMES {
        guards.push(harness.locked_as(&format!("name {number}"), 900_000, number as u64).await);
    }
    drop(guards);
    let (mut settles, mut released, mut settled, mut most) = (Vec::new(), 0, 0, 0);
    while settled < NAMES {
        let within = Duration::from_millis(if settles.is_empty() { 10_000 } else { 300 });
        match timeout(within, harness.requests.recv()).await {
            Ok(Some(request)) if request.op == Op::Settle => settles.push(request),
            Ok(Some(request)) => {
                released += 1;
                let answer = Answer { rest: Rest::More, ..harness.answer(Outcome::Released, 7) };
                assert!(request.reply.send(Ok(answer)).is_ok());
            }
            _ => {
                assert!(!settles.is_empty(), "{} of {NAMES} are forgotten, of {released} released", NAMES - settled);
                (most, settled) = (most.max(settles.len()), settled + settles.len());
                settles.drain(..).for_each(|request| harness.reply(request, Outcome::Settled, 7));
            }
        }
    }
    assert!(most < NAMES, "all at once");
}

#[tokio::test]
async fn p4_a_late_request_is_sent_again() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, first) = harness.next_acquire().await;
    harness.reply(request, Outcome::Late, 7);
    let (request, again) = harness.next_acquire().await;
    assert_eq!(again.id, first.id);
    assert!(again.not_after_us >= first.not_after_us);
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert!(locking.await.unwrap().is_ok());
}

#[tokio::test]
async fn p7_the_session_that_handed_over_settles_when_the_claim_ends() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let begun = Instant::now();
    let answer = Answer { handed_claim_ms: Some(200), ..harness.answer(Outcome::Released, 8) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    assert_eq!(harness.next().await.op, Op::Settle);
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
}

/// The same if the session has just been notified of a death: the settle for that death comes too early for the claim.
#[tokio::test]
async fn p7_a_hand_over_behind_a_death_still_settles_when_the_claim_ends() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = harness.locked(30_000, 7).await;
    world.freeze();
    harness.send_message(Message::Recheck(Name::new("name").unwrap()));
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let answer = Answer { handed_claim_ms: Some(1_000), ..harness.answer(Outcome::Released, 8) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    for set_on_ms in [10, 1_100] {
        world.advance(set_on_ms * MS);
        let settle = harness.next().await;
        assert_eq!(settle.op, Op::Settle);
        harness.reply(settle, Outcome::Settled, 8);
    }
}

/// The store waits for the release of a marked grant until its grace is over.
#[tokio::test]
async fn p10_a_revoked_guard_is_released_when_its_section_ends() {
    let mut harness = Harness::new().await;
    for by_message in [true, false] {
        let guard = harness.locked(600, 7).await;
        let renewal = harness.next().await;
        let Op::Renew(renew) = renewal.op.clone() else { panic!("{:?}", renewal.op) };
        let mut unanswered = None;
        if by_message {
            unanswered = Some(renewal);
            harness.deliver(Delivery {
                to: renew.id.session,
                now_us: harness.store.server_us(),
                contention: Contention::None,
                rest: Rest::Done,
                id: renew.id,
                token: token(7),
                left_us: 5_000 * MS,
                event: Event::Revoked,
                range: 1,
            });
        } else {
            harness.reply(renewal, Outcome::Lost { how: LostHow::Revoked }, 7);
        }
        assert_eq!(
            timeout(Duration::from_secs(10), guard.lost()).await.expect("notified").reason(),
            LostReason::Revoked
        );
        pause(100).await;
        harness.expect_no_request();
        drop(guard);
        let release = harness.next().await;
        assert_eq!(release.op, Op::Release { id: renew.id, token: token(7), used: token(7) });
        harness.reply(release, Outcome::Released, 7);
        // If the renewal were dropped without a reply, its connection would break, and with it the first requests of
        // the next round.
        unanswered.into_iter().for_each(|renewal| harness.reply(renewal, Outcome::Lost { how: LostHow::NotHeld }, 7));
    }
}

/// A claim lasts a second. Work that starts on a claim, and cannot be stopped within a second, would outlive it if the
/// store goes away.
#[tokio::test]
async fn p29_a_guard_that_asks_for_a_whole_lease_claims_before_it_enters() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30)).full_lease();
    for by_message in [true, false] {
        let waiting = mutex.clone();
        let locking = tokio::spawn(async move { waiting.lock().await });
        let (request, acquire) = harness.next_acquire().await;
        if by_message {
            harness.reply(request, queued(1, 60_000), 7);
            harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
        } else {
            // The push was lost. A re-check finds the claim, with the time that is left of it.
            harness.reply(request, Outcome::Granted { token: token(8), left_us: 700 * MS, range: 1 }, 8);
        }
        let claim = harness.next().await;
        assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
        pause(50).await;
        assert!(!locking.is_finished(), "not entered on a claim");
        harness.reply(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
        let guard = locking.await.unwrap().unwrap();
        assert!(guard.remaining() > Duration::from_secs(29), "{:?}", guard.remaining());
        drop(guard);
        let release = harness.next().await;
        harness.reply(release, Outcome::Released, 8);
    }
    // A free lock costs no additional round trip.
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert!(locking.await.unwrap().unwrap().remaining() > Duration::from_secs(29));
}

/// The deadline passes while the reply to the claim is in flight. The caller waits for this reply like for a first one,
/// and the reply decides.
#[tokio::test]
async fn p30_a_wait_that_ends_during_a_claim_gets_the_reply_to_it() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30)).full_lease();
    for is_renewed in [true, false] {
        let waiting = mutex.clone();
        let locking = tokio::spawn(async move { waiting.try_lock_for(Duration::from_millis(50)).await });
        let (request, acquire) = harness.next_acquire().await;
        harness.reply(request, queued(1, 60_000), 7);
        harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
        let claim = harness.next().await;
        pause(100).await;
        assert!(!locking.is_finished(), "the reply is not late yet");
        if is_renewed {
            harness.reply(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
            drop(locking.await.unwrap().unwrap().expect("it was granted in time"));
            let release = harness.next().await;
            harness.reply(release, Outcome::Released, 8);
        } else {
            // Another client held the lock meanwhile, so nothing is unknown.
            harness.reply(claim, Outcome::Lost { how: LostHow::NotHeld }, 9);
            assert!(locking.await.unwrap().expect("another client had it").is_none());
        }
    }
}

/// The last reply of the store was that this client holds, and the claim was never answered. So the result is not
/// "another client has it".
#[tokio::test]
async fn p30_a_wait_that_ends_in_an_unanswered_claim_is_not_busy() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30)).full_lease();
    let locking = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(300)).await });
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let _unanswered = harness.next().await;
    let error = locking.await.unwrap().expect_err("the state is unknown");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.may_have_acted());
}

#[tokio::test]
async fn p10_a_revoked_guard_returns_the_grace_that_is_left() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.grace() > Duration::from_secs(29), "{:?}", guard.grace());
    let made_us = harness.store.server_us() - 1_000 * MS;
    harness.deliver(Delivery {
        to: id.session,
        now_us: made_us,
        contention: Contention::Others,
        rest: Rest::Done,
        id,
        token: token(7),
        left_us: 5_000 * MS,
        event: Event::Revoked,
        range: 1,
    });
    assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("notified").reason(), LostReason::Revoked);
    let grace = guard.grace();
    assert!(grace < Duration::from_secs(4), "the message was made a second ago: {grace:?}");
    assert!(grace > Duration::from_secs(3), "{grace:?}");
    assert_eq!(guard.remaining(), Duration::ZERO);
}

/// The reply to an acquire and the message that its grant was revoked come by different connections. The message is
/// here first, because the caller's runtime is busy. Nobody may enter on the reply that comes after it.
#[tokio::test]
async fn p10_a_revocation_that_overtakes_its_grant_prevents_entry() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (late, acquire) = harness.next_acquire().await;
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us(),
        contention: Contention::Others,
        rest: Rest::Done,
        id: acquire.id,
        token: token(7),
        left_us: 500 * MS,
        event: Event::Revoked,
        range: 1,
    });
    // The session gives the grant back, and the caller asks anew.
    let (mut is_left, mut again) = (false, None);
    while !is_left || again.is_none() {
        let request = harness.next().await;
        match request.op.clone() {
            Op::Leave { id, used } if id == acquire.id => {
                assert_eq!(used, token(7));
                is_left = true;
                harness.reply(request, Outcome::Left { was: Was::Granted }, 7);
            }
            Op::Acquire(anew) if anew.id != acquire.id => again = Some(request),
            other => panic!("{other:?}"),
        }
    }
    drop(late.reply.send(Ok(harness.answer(Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7))));
    harness.reply(again.unwrap(), Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}

/// The same, and the message of the grant is lost: only that of the revocation comes. The store keeps a grant that is not
/// released until the grace is over, and its place would be free for nobody.
#[tokio::test]
async fn p10_a_grant_that_came_only_as_revoked_is_released() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, waiter) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 6);
    pause(50).await;
    harness.deliver(Delivery {
        to: waiter.id.session,
        now_us: harness.store.server_us(),
        contention: Contention::Others,
        rest: Rest::Done,
        id: waiter.id,
        token: token(7),
        left_us: 60_000 * MS,
        event: Event::Revoked,
        range: 1,
    });
    let (mut is_released, mut again) = (false, None);
    while !is_released || again.is_none() {
        let request = harness.next().await;
        match request.op.clone() {
            Op::Release { id, token: released, .. } if id == waiter.id => {
                assert_eq!(released, token(7));
                is_released = true;
                harness.reply(request, Outcome::Released, 7);
            }
            Op::Acquire(anew) if anew.id != waiter.id => again = Some(request),
            other => panic!("{other:?}"),
        }
    }
    harness.reply(again.unwrap(), Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}
