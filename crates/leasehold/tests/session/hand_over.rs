//! What the session does about others: it settles, asks again, looks after a claim, gives way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::seam::{Message, World};
use leasehold::{ErrorKind, LostReason, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, LostHow, Name, Op, Outcome, Rest, Token, Was};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, queued, token};

/// The answer to the claim is older than the word of the revocation, which comes by another link: it would be entered on
/// for longer than the grace.
#[tokio::test]
async fn p10_a_grant_that_is_revoked_while_it_is_claimed_is_not_entered() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    bench.push(acquire.id, 8, bench.store.server_us() - 800 * MS, 1_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(claim.op, Op::Renew(_)), "{:?}", claim.op);
    let renewed = bench.answer(Outcome::Renewed { left_us: 30_000 * MS }, 8);
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(8),
        left_us: 50 * MS,
        event: Event::Revoked,
        range: 1,
    });
    let _late = claim.reply.send(Ok(renewed));
    let release = bench.next().await;
    assert!(
        matches!(release.op, Op::Release { id, .. } | Op::Leave { id, .. } if id == acquire.id),
        "{:?}",
        release.op
    );
    let (asked, again) = bench.next_acquire().await;
    assert_ne!(again.id, acquire.id, "who waits goes on");
    bench.say(asked, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}

#[tokio::test]
async fn p1_whoever_hears_more_settles_again() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let answer = Answer { rest: Rest::More, ..bench.answer(Outcome::Released, 7) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    let settle = bench.next().await;
    assert_eq!(settle.op, Op::Settle);
    bench.say(settle, Outcome::Settled, 7);

    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
        contention: Contention::Others,
        rest: Rest::More,
        id: acquire.id,
        token: token(8),
        left_us: 30_000 * MS,
        event: Event::Granted,
        range: 1,
    });
    assert_eq!(bench.next_but_renewals().await.op, Op::Settle);
}

/// As many names to settle at once as a server needs seconds for: they go in turn.
#[tokio::test]
async fn what_is_settled_at_once_goes_in_turn() {
    const NAMES: usize = 5_000;
    let mut bench = Bench::new().await;
    let mut guards = Vec::new();
    for number in 1..=NAMES {
        guards.push(bench.locked_as(&format!("name {number}"), 900_000, number as u64).await);
    }
    drop(guards);
    let (mut settles, mut released, mut settled, mut most) = (Vec::new(), 0, 0, 0);
    while settled < NAMES {
        let within = Duration::from_millis(if settles.is_empty() { 10_000 } else { 300 });
        match timeout(within, bench.requests.recv()).await {
            Ok(Some(asked)) if asked.op == Op::Settle => settles.push(asked),
            Ok(Some(asked)) => {
                released += 1;
                let answer = Answer { rest: Rest::More, ..bench.answer(Outcome::Released, 7) };
                assert!(asked.reply.send(Ok(answer)).is_ok());
            }
            _ => {
                assert!(!settles.is_empty(), "{} of {NAMES} are forgotten, of {released} released", NAMES - settled);
                (most, settled) = (most.max(settles.len()), settled + settles.len());
                settles.drain(..).for_each(|asked| bench.say(asked, Outcome::Settled, 7));
            }
        }
    }
    assert!(most < NAMES, "all at once");
}

#[tokio::test]
async fn p4_a_late_request_is_asked_again() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, first) = bench.next_acquire().await;
    bench.say(asked, Outcome::Late, 7);
    let (asked, again) = bench.next_acquire().await;
    assert_eq!(again.id, first.id);
    assert!(again.not_after_us >= first.not_after_us);
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert!(locking.await.unwrap().is_ok());
}

#[tokio::test]
async fn p7_whoever_handed_over_looks_after_the_claim() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let begun = Instant::now();
    let answer = Answer { handed_claim_ms: Some(200), ..bench.answer(Outcome::Released, 8) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    assert_eq!(bench.next().await.op, Op::Settle);
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
}

/// Also where it has heard of a death meanwhile: what it then asks comes too early for the claim.
#[tokio::test]
async fn p7_whoever_handed_over_behind_a_death_looks_after_the_claim() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = bench.locked(30_000, 7).await;
    world.stand_still();
    bench.tell(Message::Look(Name::new("name").unwrap()));
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let answer = Answer { handed_claim_ms: Some(1_000), ..bench.answer(Outcome::Released, 8) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    for set_on_ms in [10, 1_100] {
        world.set_on(set_on_ms * MS);
        let settle = bench.next().await;
        assert_eq!(settle.op, Op::Settle);
        bench.say(settle, Outcome::Settled, 8);
    }
}

/// The store waits for the release of a marked grant until its grace is over.
#[tokio::test]
async fn p10_a_revoked_guard_is_given_back_when_its_section_has_ended() {
    let mut bench = Bench::new().await;
    for by_message in [true, false] {
        let guard = bench.locked(600, 7).await;
        let renewal = bench.next().await;
        let Op::Renew(renew) = renewal.op.clone() else { panic!("{:?}", renewal.op) };
        let mut unanswered = None;
        if by_message {
            unanswered = Some(renewal);
            bench.deliver(Delivery {
                to: renew.id.session,
                now_us: bench.store.server_us(),
                contention: Contention::None,
                rest: Rest::Done,
                id: renew.id,
                token: token(7),
                left_us: 5_000 * MS,
                event: Event::Revoked,
                range: 1,
            });
        } else {
            bench.say(renewal, Outcome::Lost { how: LostHow::Revoked }, 7);
        }
        assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told").reason(), LostReason::Revoked);
        pause(100).await;
        bench.nothing();
        drop(guard);
        let release = bench.next().await;
        assert_eq!(release.op, Op::Release { id: renew.id, token: token(7), used: token(7) });
        bench.say(release, Outcome::Released, 7);
        // Dropped without an answer it would break the link, and with it what the next round asks first.
        unanswered.into_iter().for_each(|renewal| bench.say(renewal, Outcome::Lost { how: LostHow::NotHeld }, 7));
    }
}

/// What is started on a claim of a second, and cannot be stopped within that, would outlive it with a store that is gone.
#[tokio::test]
async fn p29_a_guard_that_asks_for_a_whole_lease_claims_before_it_enters() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30)).full_lease();
    for by_message in [true, false] {
        let waiting = mutex.clone();
        let locking = tokio::spawn(async move { waiting.lock().await });
        let (asked, acquire) = bench.next_acquire().await;
        if by_message {
            bench.say(asked, queued(1, 60_000), 7);
            bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
        } else {
            // The push was lost: a look finds the claim, with what is left of it.
            bench.say(asked, Outcome::Granted { token: token(8), left_us: 700 * MS, range: 1 }, 8);
        }
        let claim = bench.next().await;
        assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
        pause(50).await;
        assert!(!locking.is_finished(), "not entered on a claim");
        bench.say(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
        let guard = locking.await.unwrap().unwrap();
        assert!(guard.remaining() > Duration::from_secs(29), "{:?}", guard.remaining());
        drop(guard);
        let release = bench.next().await;
        bench.say(release, Outcome::Released, 8);
    }
    // A lock that is free costs no round trip more.
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert!(locking.await.unwrap().unwrap().remaining() > Duration::from_secs(29));
}

/// The deadline passes while the answer to the claim is on its way: it is awaited like a first answer, and decides.
#[tokio::test]
async fn p30_a_wait_that_ends_while_a_claim_is_under_way_hears_its_answer() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30)).full_lease();
    for is_renewed in [true, false] {
        let waiting = mutex.clone();
        let locking = tokio::spawn(async move { waiting.try_lock_for(Duration::from_millis(50)).await });
        let (asked, acquire) = bench.next_acquire().await;
        bench.say(asked, queued(1, 60_000), 7);
        bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
        let claim = bench.next().await;
        pause(100).await;
        assert!(!locking.is_finished(), "the answer is not late yet");
        if is_renewed {
            bench.say(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
            drop(locking.await.unwrap().unwrap().expect("it was granted in time"));
            let release = bench.next().await;
            bench.say(release, Outcome::Released, 8);
        } else {
            // Somebody else had it meanwhile: nothing is unknown.
            bench.say(claim, Outcome::Lost { how: LostHow::NotHeld }, 9);
            assert!(locking.await.unwrap().expect("somebody else had it").is_none());
        }
    }
}

/// The store's last word was that we hold; it never answered the claim. That is not "somebody else has it".
#[tokio::test]
async fn p30_a_wait_that_ends_in_an_unanswered_claim_is_not_busy() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30)).full_lease();
    let locking = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(300)).await });
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let _unanswered = bench.next().await;
    let error = locking.await.unwrap().expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.may_have_acted());
}

#[tokio::test]
async fn p10_a_revoked_guard_says_how_long_others_are_kept_out() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, Acquire { id, .. }) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.grace() > Duration::from_secs(29), "{:?}", guard.grace());
    let made_us = bench.store.server_us() - 1_000 * MS;
    bench.deliver(Delivery {
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
    assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told").reason(), LostReason::Revoked);
    let grace = guard.grace();
    assert!(grace < Duration::from_secs(4), "the message was made a second ago: {grace:?}");
    assert!(grace > Duration::from_secs(3), "{grace:?}");
    assert_eq!(guard.remaining(), Duration::ZERO);
}

/// The answer to an acquire and the word that its grant was revoked come by different ways, and the word is here first (the
/// caller's runtime is busy). Nobody enters on what the answer says after that.
#[tokio::test]
async fn p10_a_revocation_that_overtakes_its_grant_is_heeded() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (late, acquire) = bench.next_acquire().await;
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
        contention: Contention::Others,
        rest: Rest::Done,
        id: acquire.id,
        token: token(7),
        left_us: 500 * MS,
        event: Event::Revoked,
        range: 1,
    });
    // It is given back, and its caller asks anew.
    let (mut is_left, mut again) = (false, None);
    while !is_left || again.is_none() {
        let asked = bench.next().await;
        match asked.op.clone() {
            Op::Leave { id, used: Token::NONE } if id == acquire.id => {
                is_left = true;
                bench.say(asked, Outcome::Left { was: Was::Granted }, 7);
            }
            Op::Acquire(anew) if anew.id != acquire.id => again = Some(asked),
            other => panic!("{other:?}"),
        }
    }
    drop(late.reply.send(Ok(bench.answer(Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7))));
    bench.say(again.unwrap(), Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}
