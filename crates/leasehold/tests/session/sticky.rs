//! Leases that are kept when nobody uses them: entered without a request, and given back as soon as somebody else asks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::World;
use leasehold::{ErrorKind, Guard, Mutex, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, GrantId, LostHow, Op, Outcome, Rest};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, token};

fn sticky(bench: &Bench, ms: u64) -> Mutex {
    bench.leasehold.mutex("name").sticky(Duration::from_millis(ms))
}

/// Locks, is granted by the store, and gives back what is kept then.
async fn kept(bench: &mut Bench, ms: u64) -> (Mutex, GrantId) {
    let mutex = sticky(bench, ms);
    let locks = mutex.clone();
    let locking = tokio::spawn(async move { locks.lock().await });
    let (asked, Acquire { id, .. }) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    bench.nothing();
    (mutex, id)
}

async fn at_once(mutex: &Mutex) -> Guard {
    timeout(Duration::from_secs(10), mutex.lock()).await.expect("at once").unwrap()
}

/// The lease goes back, and this was used of it.
async fn goes_back(bench: &mut Bench, id: GrantId, used: u64) {
    let release = bench.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(used) });
    bench.say(release, Outcome::Released, used);
}

#[tokio::test]
async fn a_lease_that_is_kept_is_entered_without_a_request() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (mutex, _) = kept(&mut bench, 60_000).await;
    let mut tokens = BTreeSet::from([token(7)]);
    for number in 0..100 {
        let guard = match number % 3 {
            0 => at_once(&mutex).await,
            1 => mutex.try_lock().await.unwrap().expect("nobody has it"),
            _ => mutex.try_lock_for(Duration::ZERO).await.unwrap().expect("nobody has it"),
        };
        assert!(guard.check().unwrap() > *tokens.last().unwrap(), "each has a token of its own");
        tokens.insert(guard.token());
        drop(guard);
    }
    bench.nothing();
}

#[tokio::test]
async fn it_goes_back_when_its_time_is_over() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (mutex, id) = kept(&mut bench, 200).await;
    // Longer than the thread sleeps, so that it looks at the clock.
    world.set_on(100 * MS);
    pause(300).await;
    bench.nothing();
    drop(at_once(&mutex).await);
    world.set_on(150 * MS);
    pause(300).await;
    bench.nothing();
    world.set_on(100 * MS);
    goes_back(&mut bench, id, 9).await;
}

/// By whichever way it is heard that somebody waits.
#[tokio::test]
async fn it_goes_back_when_somebody_else_asks() {
    let mut bench = Bench::new().await;
    let (_, id) = kept(&mut bench, 60_000).await;
    bench.want(id, 7, Contention::Others);
    goes_back(&mut bench, id, 8).await;
    // The message was lost: it is renewed twice a second, and the answer says so.
    let (_, id) = kept(&mut bench, 60_000).await;
    let renewal = timeout(Duration::from_secs(1), bench.next()).await.expect("renewed within a second");
    assert!(matches!(&renewal.op, Op::Renew(renew) if renew.id == id), "{:?}", renewal.op);
    let answer = bench.answer(Outcome::Renewed { left_us: 30_000 * MS }, 7);
    renewal.reply.send(Ok(Answer { contention: Contention::Others, ..answer })).unwrap();
    goes_back(&mut bench, id, 8).await;
}

/// Renewed on and on, and entered in between.
#[tokio::test]
async fn it_is_renewed_for_as_long_as_it_is_kept() {
    let mut bench = Bench::new().await;
    let (mutex, _) = kept(&mut bench, 60_000).await;
    for _ in 0..3 {
        let renewal = timeout(Duration::from_secs(1), bench.next()).await.expect("renewed within a second");
        assert!(matches!(&renewal.op, Op::Renew(_)), "{:?}", renewal.op);
        bench.say(renewal, Outcome::Renewed { left_us: 30_000 * MS }, 7);
        pause(20).await;
        drop(at_once(&mutex).await);
    }
}

/// What nobody has heard of for a second is not entered: others may wait. It is asked for anew.
#[tokio::test]
async fn it_is_not_entered_when_the_store_is_silent() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (mutex, id) = kept(&mut bench, 60_000).await;
    world.set_on(1_100_000);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (mut is_back, mut anew) = (false, None);
    while !is_back || anew.is_none() {
        let asked = bench.next_but_renewals().await;
        match asked.op.clone() {
            Op::Release { id: of, .. } | Op::Leave { id: of, .. } if of == id => {
                is_back = true;
                bench.say(asked, Outcome::Released, 8);
            }
            Op::Acquire(acquire) if acquire.id != id => anew = Some(asked),
            other => panic!("{other:?}"),
        }
    }
    bench.say(anew.unwrap(), Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 2 }, 9);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(9));
}

#[tokio::test]
async fn one_that_is_lost_is_forgotten_and_a_closed_client_keeps_none() {
    let mut bench = Bench::new().await;
    let (mutex, _) = kept(&mut bench, 60_000).await;
    let renewal = bench.next().await;
    bench.say(renewal, Outcome::Lost { how: LostHow::NotHeld }, 99);
    pause(20).await;
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(100), left_us: 30_000 * MS, range: 4 }, 100);
    drop(locking.await.unwrap().unwrap());
    let closing = tokio::spawn(bench.leasehold.clone().close());
    let release = bench.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(101)), "{:?}", release.op);
    bench.say(release, Outcome::Released, 101);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
}

/// The store waits for its release until the grace is over.
#[tokio::test]
async fn one_that_is_revoked_goes_back_at_once() {
    let mut bench = Bench::new().await;
    let (_, id) = kept(&mut bench, 60_000).await;
    let (to, now_us, rest) = (id.session, bench.store.server_us(), Rest::Done);
    let (contention, event) = (Contention::None, Event::Revoked);
    bench.deliver(Delivery {
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
    goes_back(&mut bench, id, 8).await;
}

/// The one behind the sticky one says what becomes of it then.
#[tokio::test]
async fn who_waits_comes_before_what_is_kept() {
    let mut bench = Bench::new().await;
    let mutex = sticky(&bench, 60_000);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, Acquire { id, .. }) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 4 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let mut waiting = bench.in_line(30_000, 1).await;
    drop(guard);
    let guard = waiting.remove(0).await.unwrap().unwrap();
    assert_eq!(guard.token(), token(8));
    drop(guard);
    goes_back(&mut bench, id, 8).await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let bench = Bench::new().await;
    let lease = Duration::from_secs(30);
    for refused in [
        sticky(&bench, 60_001),
        sticky(&bench, 1).fair(),
        sticky(&bench, 1).fixed_lease(lease),
        sticky(&bench, 1).max_hold(lease),
        sticky(&bench, 1).full_lease(),
    ] {
        assert_eq!(refused.lock().await.expect_err("refused").kind(), ErrorKind::Invalid);
        assert_eq!(refused.try_lock().await.expect_err("refused").kind(), ErrorKind::Invalid);
    }
}
