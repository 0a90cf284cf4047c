//! Sticky leases: kept while nobody uses them, entered without a request, and released as soon as another client asks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::World;
use leasehold::{ErrorKind, Guard, Mutex, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, GrantId, LostHow, Op, Outcome, Rest};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, pause, token};

fn sticky(harness: &Harness, ms: u64) -> Mutex {
    harness.leasehold.mutex("name").sticky(Duration::from_millis(ms))
}

/// Locks, is granted the lock by the store, and releases. The lease is kept.
async fn kept(harness: &mut Harness, ms: u64) -> (Mutex, GrantId) {
    let mutex = sticky(harness, ms);
    let locks = mutex.clone();
    let locking = tokio::spawn(async move { locks.lock().await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    harness.expect_no_request();
    (mutex, id)
}

async fn at_once(mutex: &Mutex) -> Guard {
    timeout(Duration::from_secs(10), mutex.lock()).await.expect("at once").unwrap()
}

/// Expects that the lease is released, and that `used` is the last token that was used.
async fn expect_release(harness: &mut Harness, id: GrantId, used: u64) {
    let release = harness.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(used) });
    harness.reply(release, Outcome::Released, used);
}

#[tokio::test]
async fn a_kept_lease_is_entered_without_a_request() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (mutex, _) = kept(&mut harness, 60_000).await;
    let mut tokens = BTreeSet::from([token(7)]);
    for number in 0..100 {
        let guard = match number % 3 {
            0 => at_once(&mutex).await,
            1 => mutex.try_lock().await.unwrap().expect("the lease is free"),
            _ => mutex.try_lock_for(Duration::ZERO).await.unwrap().expect("the lease is free"),
        };
        assert!(guard.check().unwrap() > *tokens.last().unwrap(), "each has a token of its own");
        tokens.insert(guard.token());
        drop(guard);
    }
    harness.expect_no_request();
}

#[tokio::test]
async fn a_kept_lease_is_released_when_its_time_is_over() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (mutex, id) = kept(&mut harness, 200).await;
    // Longer than the thread sleeps, so that it reads the clock.
    world.advance(100 * MS);
    pause(300).await;
    harness.expect_no_request();
    drop(at_once(&mutex).await);
    world.advance(150 * MS);
    pause(300).await;
    harness.expect_no_request();
    world.advance(100 * MS);
    expect_release(&mut harness, id, 9).await;
}

/// The session may learn from a message or from a reply that others wait.
#[tokio::test]
async fn a_kept_lease_is_released_when_others_wait() {
    let mut harness = Harness::new().await;
    let (_, id) = kept(&mut harness, 60_000).await;
    harness.notify_contention(id, 7, Contention::Others);
    expect_release(&mut harness, id, 8).await;
    // The message was lost. The lease is renewed twice a second, and the reply says that others wait.
    let (_, id) = kept(&mut harness, 60_000).await;
    let renewal = timeout(Duration::from_secs(1), harness.next()).await.expect("renewed within a second");
    assert!(matches!(&renewal.op, Op::Renew(renew) if renew.id == id), "{:?}", renewal.op);
    let answer = harness.answer(Outcome::Renewed { left_us: 30_000 * MS }, 7);
    renewal.reply.send(Ok(Answer { contention: Contention::Others, ..answer })).unwrap();
    expect_release(&mut harness, id, 8).await;
}

/// A kept lease is renewed repeatedly, and entered in between.
#[tokio::test]
async fn a_kept_lease_is_renewed() {
    let mut harness = Harness::new().await;
    let (mutex, _) = kept(&mut harness, 60_000).await;
    for _ in 0..3 {
        let renewal = timeout(Duration::from_secs(1), harness.next()).await.expect("renewed within a second");
        assert!(matches!(&renewal.op, Op::Renew(_)), "{:?}", renewal.op);
        harness.reply(renewal, Outcome::Renewed { left_us: 30_000 * MS }, 7);
        pause(20).await;
        drop(at_once(&mutex).await);
    }
}

/// If the store was silent for a second, a kept lease is not entered, because others may wait. The session acquires
/// anew.
#[tokio::test]
async fn a_kept_lease_is_not_entered_when_the_store_is_silent() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (mutex, id) = kept(&mut harness, 60_000).await;
    world.advance(1_100_000);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (mut is_back, mut anew) = (false, None);
    while !is_back || anew.is_none() {
        let request = harness.next_but_renewals().await;
        match request.op.clone() {
            Op::Release { id: of, .. } | Op::Leave { id: of, .. } if of == id => {
                is_back = true;
                harness.reply(request, Outcome::Released, 8);
            }
            Op::Acquire(acquire) if acquire.id != id => anew = Some(request),
            other => panic!("{other:?}"),
        }
    }
    harness.reply(anew.unwrap(), Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 2 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}

#[tokio::test]
async fn a_lost_lease_is_not_kept_and_a_closed_client_keeps_none() {
    let mut harness = Harness::new().await;
    let (mutex, _) = kept(&mut harness, 60_000).await;
    let renewal = harness.next().await;
    harness.reply(renewal, Outcome::Lost { how: LostHow::NotHeld }, 99);
    pause(20).await;
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(100), left_us: 30_000 * MS, range: 4 }, 100);
    drop(locking.await.unwrap().unwrap());
    let closing = tokio::spawn(harness.leasehold.clone().close());
    let release = harness.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(101)), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 101);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
}

/// The store waits for the release until the grace is over.
#[tokio::test]
async fn a_revoked_kept_lease_is_released_at_once() {
    let mut harness = Harness::new().await;
    let (_, id) = kept(&mut harness, 60_000).await;
    let (to, now_us, rest) = (id.session, harness.store.server_us(), Rest::Done);
    let (contention, event) = (Contention::None, Event::Revoked);
    harness.deliver(Delivery {
        to,
        now_us,
        contention,
        rest,
        id,
        token: token(7),
        left_us: 5_000 * MS,
        range: 1_024,
        event,
    });
    expect_release(&mut harness, id, 8).await;
}

/// The waiter behind the sticky holder decides whether the lease is kept after it.
#[tokio::test]
async fn a_waiter_gets_the_lease_before_it_is_kept() {
    let mut harness = Harness::new().await;
    let mutex = sticky(&harness, 60_000);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 4 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let mut waiting = harness.add_local_waiters(30_000, 1).await;
    drop(guard);
    let guard = waiting.remove(0).await.unwrap().unwrap();
    assert_eq!(guard.token(), token(8));
    drop(guard);
    expect_release(&mut harness, id, 8).await;
}

#[tokio::test]
async fn invalid_sticky_settings_are_refused() {
    let harness = Harness::new().await;
    let lease = Duration::from_secs(30);
    for refused in [
        sticky(&harness, 60_001),
        sticky(&harness, 1).fair(),
        sticky(&harness, 1).fixed_lease(lease),
        sticky(&harness, 1).max_hold(lease),
        sticky(&harness, 1).full_lease(),
    ] {
        assert_eq!(refused.lock().await.expect_err("refused").kind(), ErrorKind::Invalid);
        assert_eq!(refused.try_lock().await.expect_err("refused").kind(), ErrorKind::Invalid);
    }
}
