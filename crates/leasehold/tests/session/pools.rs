//! Pools: upgrades whose messages are lost or late (P37, P38), and units that are given back (P39).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LostReason, ReadGuard, UpgradeableReadGuard, WriteGuard};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Event, GrantId, LostHow, Mode, Op, Outcome, Patience, Refusal, Rest, Take,
    Was,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{Harness, MS, pause, queued, token};
use crate::store::{Request, gone};

const LEASE_MS: u64 = 3_000;

type Upgrading = JoinHandle<leasehold::Result<WriteGuard>>;
type TryingToUpgrade = JoinHandle<leasehold::Result<Result<WriteGuard, UpgradeableReadGuard>>>;

fn granted(number: u64) -> Outcome {
    Outcome::Granted { token: token(number), left_us: LEASE_MS * MS, range: 1 }
}

/// Acquires a guard that may be upgraded, with token 7.
async fn upgradeable(harness: &mut Harness) -> (UpgradeableReadGuard, GrantId) {
    let lock = harness.leasehold.rw_lock("name").lease(Duration::from_millis(LEASE_MS));
    let reading = tokio::spawn(async move { lock.upgradeable_read().await });
    let (request, Acquire { id, take, .. }) = harness.next_acquire().await;
    assert_eq!(take, Take::UPGRADEABLE_READ);
    harness.reply(request, granted(7), 7);
    (reading.await.unwrap().unwrap(), id)
}

/// Begins to upgrade, and queues the upgrade.
async fn waiting_upgrade(harness: &mut Harness) -> (Upgrading, GrantId, GrantId) {
    let (guard, id) = upgradeable(harness).await;
    let upgrading = tokio::spawn(guard.upgrade());
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(acquire.take, Take::upgrade(id, token(7)));
    assert_ne!(acquire.id, id, "an upgrade is an attempt of its own");
    harness.reply(request, queued(42, 60_000), 7);
    (upgrading, id, acquire.id)
}

/// Returns the next request that is not a renewal, and renews what is asked meanwhile.
async fn next_and_renew(harness: &mut Harness) -> Request {
    loop {
        let request = harness.next().await;
        if !matches!(request.op, Op::Renew(_)) {
            return request;
        }
        harness.reply(request, Outcome::Renewed { left_us: LEASE_MS * MS }, 7);
    }
}

/// The store has granted the upgrade, and the message is lost. The next renewal of the read grant finds nothing. The
/// session asks before it believes that.
#[tokio::test]
async fn p37_a_renewal_that_finds_nothing_is_no_loss_while_an_upgrade_waits() {
    let mut harness = Harness::new().await;
    let (guard, read) = upgradeable(&mut harness).await;
    let lost = guard.lost();
    let upgrading = tokio::spawn(guard.upgrade());
    let (request, Acquire { id: upgrade, .. }) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    let renewal = loop {
        let request = harness.next().await;
        match request.op {
            Op::Renew(_) => break request,
            // A re-check of its own.
            _ => harness.reply(request, queued(42, 60_000), 7),
        }
    };
    assert!(matches!(&renewal.op, Op::Renew(renew) if renew.id == read));
    harness.reply(renewal, Outcome::Lost { how: LostHow::NotHeld }, 8);
    let (recheck, acquire) = timeout(Duration::from_millis(300), harness.next_acquire()).await.expect("at once");
    assert_eq!(acquire.id, upgrade);
    harness.reply(recheck, granted(8), 8);
    let guard = timeout(Duration::from_secs(5), upgrading).await.expect("granted").unwrap().unwrap();
    assert_eq!(guard.check(), Ok(token(8)));
    assert_eq!(lost.await.reason(), LostReason::Released, "it was no loss");
    drop(guard);
    // The read grant is not released: the store has ended it.
    let release = harness.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: upgrade, token: token(8), used: token(8) });
    harness.reply(release, Outcome::Released, 8);
    pause(100).await;
    harness.expect_no_request();
}

/// The store forgets the upgrade in a failover, and has the read grant again. Nobody holds it.
#[tokio::test]
async fn p37_at_a_new_run_the_upgraded_grant_is_released() {
    let mut harness = Harness::new().await;
    let (guard, read) = upgradeable(&mut harness).await;
    let upgrading = tokio::spawn(guard.upgrade());
    let (request, Acquire { id: upgrade, .. }) = harness.next_acquire().await;
    harness.reply(request, granted(8), 8);
    let guard = upgrading.await.unwrap().unwrap();
    drop(guard);
    let release = harness.next().await;
    harness.reply(release, Outcome::Released, 8);
    pause(50).await;
    *harness.store.run.lock().unwrap() = "another run".into();
    harness.break_session_link();
    let mut released = Vec::new();
    while released.len() < 2 {
        let release = timeout(Duration::from_secs(5), harness.next()).await.expect("both are released");
        let Op::Leave { id, used } = release.op else { panic!("{:?}", release.op) };
        released.push((id, used));
        harness.reply(release, Outcome::Left { was: Was::Absent }, 8);
    }
    assert_eq!(released, [(read, token(7)), (upgrade, token(8))]);
}

/// A pool counts up its last token when a lease ends. So the next number belongs to no other holder.
#[tokio::test]
async fn a_writer_whose_lease_has_ended_is_not_told_of_another_holder() {
    for (highest, reason) in [(7, LostReason::Expired), (8, LostReason::Expired), (9, LostReason::Superseded)] {
        let mut harness = Harness::new().await;
        let lock = harness.leasehold.rw_lock("name").lease(Duration::from_millis(LEASE_MS));
        let writing = tokio::spawn(async move { lock.write().await });
        let (request, _) = harness.next_acquire().await;
        harness.reply(request, granted(7), 7);
        let guard = writing.await.unwrap().unwrap();
        let renewal = harness.next().await;
        assert!(matches!(renewal.op, Op::Renew(_)));
        harness.reply(renewal, Outcome::Lost { how: LostHow::NotHeld }, highest);
        let lost = timeout(Duration::from_secs(5), guard.lost()).await.expect("lost");
        assert_eq!(lost.reason(), reason, "the highest token is {highest}");
    }
}

/// The re-check finds that the read grant is gone: the lock is lost, and the caller gets an error.
#[tokio::test]
async fn p37_an_upgrade_of_a_lost_grant_is_a_loss() {
    let mut harness = Harness::new().await;
    let (guard, _) = upgradeable(&mut harness).await;
    let lost = guard.lost();
    let upgrading = tokio::spawn(guard.upgrade());
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Refused(Refusal::NoGrant), 9);
    let error = upgrading.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(timeout(Duration::from_secs(5), lost).await.expect("told").reason(), LostReason::Expired);
}

/// Begins an upgrade that waits for 100 ms, queues it, and returns what the session sends when that time is over.
async fn end_of_wait(harness: &mut Harness) -> (TryingToUpgrade, GrantId, Request, Acquire) {
    let (guard, read) = upgradeable(harness).await;
    let upgrading = tokio::spawn(guard.try_upgrade_for(Duration::from_millis(100)));
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    let last = next_and_renew(harness).await;
    let Op::Acquire(tried) = last.op.clone() else { panic!("not a try: {:?}", last.op) };
    assert_eq!((tried.id, tried.patience.clone()), (acquire.id, Patience::Try));
    (upgrading, read, last, tried)
}

/// The caller stops waiting. The session does not leave: it tries once more, and the caller keeps what it has.
#[tokio::test]
async fn p38_a_caller_that_stops_waiting_keeps_its_read_guard() {
    let mut harness = Harness::new().await;
    let (upgrading, read, last, _) = end_of_wait(&mut harness).await;
    harness.reply(last, Outcome::Busy { left_us: 60_000 * MS }, 7);
    let guard = upgrading.await.unwrap().unwrap().expect_err("others read");
    assert_eq!(guard.check(), Ok(token(7)));
    pause(100).await;
    harness.expect_no_request();
    drop(guard);
    let release = next_and_renew(&mut harness).await;
    assert_eq!(release.op, Op::Release { id: read, token: token(7), used: token(7) });
}

/// The upgrade was granted at that very moment, and its message is lost.
#[tokio::test]
async fn p38_the_last_try_finds_an_upgrade_that_was_granted() {
    let mut harness = Harness::new().await;
    let (upgrading, _, last, tried) = end_of_wait(&mut harness).await;
    assert!(matches!(tried.take.mode, Mode::Instead { .. }));
    harness.reply(last, granted(8), 8);
    let guard = upgrading.await.unwrap().unwrap().expect("granted");
    assert_eq!(guard.check(), Ok(token(8)));
}

/// The upgrade waits, the store goes away, and the time of the caller is over: it gets an error. The last try was never
/// sent, and the store may have granted the upgrade meanwhile.
#[tokio::test]
async fn p38_an_upgrade_that_could_not_try_once_more_is_left() {
    let mut harness = Harness::new().await;
    let (guard, _) = upgradeable(&mut harness).await;
    let upgrading = tokio::spawn(guard.try_upgrade_for(Duration::from_millis(100)));
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    harness.store.is_away.store(true, Ordering::SeqCst);
    harness.break_session_link();
    let error = timeout(Duration::from_secs(10), upgrading).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    while harness.try_next().is_some() {}
    harness.store.is_away.store(false, Ordering::SeqCst);
    let leave = harness.next_but(|op| !matches!(op, Op::Leave { id: left, .. } if *left == id)).await;
    harness.reply(leave, Outcome::Left { was: Was::Granted }, 8);
}

/// A dropped upgrade ends both: nobody can tell which of the two the store has.
#[tokio::test]
async fn a_dropped_upgrade_leaves_and_releases() {
    let mut harness = Harness::new().await;
    let (upgrading, read, upgrade) = waiting_upgrade(&mut harness).await;
    upgrading.abort();
    let mut ended = [false, false];
    while ended != [true, true] {
        let request = next_and_renew(&mut harness).await;
        match request.op {
            Op::Leave { id, .. } if id == upgrade => ended[0] = true,
            Op::Release { id, .. } if id == read => ended[1] = true,
            ref other => panic!("unexpected: {other:?}"),
        }
        let outcome = if ended[1] { Outcome::Released } else { Outcome::Left { was: Was::Queued } };
        harness.reply(request, outcome, 7);
    }
}

/// Acquires a write guard with token 7, makes it a read guard, and returns the request of that.
async fn downgraded(harness: &mut Harness) -> (ReadGuard, GrantId, Request) {
    let lock = harness.leasehold.rw_lock("name").lease(Duration::from_millis(LEASE_MS));
    let writing = tokio::spawn(async move { lock.write().await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, granted(7), 7);
    let guard = writing.await.unwrap().unwrap().downgrade();
    let lower = next_and_renew(harness).await;
    assert_eq!(lower.op, Op::Lower { id, token: token(7), units: 1 });
    (guard, id, lower)
}

/// The reply to a downgrade is lost: it is asked for again. Meanwhile the guard is what it was.
#[tokio::test]
async fn p39_a_downgrade_is_repeated_until_it_has_a_reply() {
    let mut harness = Harness::new().await;
    let (guard, id, lower) = downgraded(&mut harness).await;
    drop(lower.reply.send(Err(gone())));
    let again = next_and_renew(&mut harness).await;
    assert_eq!(again.op, Op::Lower { id, token: token(7), units: 1 });
    harness.reply(again, Outcome::Lowered, 7);
    assert_eq!(guard.check(), Ok(token(7)));
    let more = timeout(Duration::from_millis(600), next_and_renew(&mut harness)).await;
    assert!(more.is_err(), "it is confirmed");
}

/// A failover may have forgotten a downgrade that was confirmed. The readers that it admitted would wait for ever.
#[tokio::test]
async fn p39_a_downgrade_is_repeated_at_a_new_run() {
    let mut harness = Harness::new().await;
    let (guard, id, lower) = downgraded(&mut harness).await;
    harness.reply(lower, Outcome::Lowered, 7);
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let again = next_and_renew(&mut harness).await;
    assert_eq!(again.op, Op::Lower { id, token: token(7), units: 1 });
    harness.reply(again, Outcome::Lost { how: LostHow::NotHeld }, 3);
    assert_eq!(timeout(Duration::from_secs(5), guard.lost()).await.expect("told").reason(), LostReason::Forgotten);
}

/// The acquire of an upgrade is stuck on its way, and its caller stops waiting. The store could still carry that acquire
/// out after a try: the upgrade would be granted behind the back of its caller, and the leave of it would free the lock
/// under the read guard.
#[tokio::test]
async fn p38_a_caller_keeps_its_read_guard_only_when_no_upgrade_can_follow() {
    let mut harness = Harness::new().await;
    let (guard, read) = upgradeable(&mut harness).await;
    let upgrading = tokio::spawn(guard.try_upgrade_for(Duration::from_millis(100)));
    let (stuck, acquire) = harness.next_acquire().await;
    let begun = Instant::now();
    while !upgrading.is_finished() {
        let Ok(request) = timeout(Duration::from_millis(500), next_and_renew(&mut harness)).await else { continue };
        match request.op {
            Op::Acquire(ref tried) if tried.id == acquire.id => {
                assert_eq!(tried.patience, Patience::Try);
                harness.reply(request, Outcome::Busy { left_us: 60_000 * MS }, 7);
            }
            Op::Leave { id, .. } if id == acquire.id => {
                harness.reply(request, Outcome::Left { was: Was::Absent }, 7);
            }
            ref other => panic!("unexpected: {other:?}"),
        }
    }
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "the acquire may be carried out: {:?}", begun.elapsed());
    let guard = upgrading.await.unwrap().unwrap().expect_err("others read");
    assert_eq!(guard.check(), Ok(token(7)));
    drop((guard, stuck, read));
}

/// The same, and the stuck acquire is answered soon: from then on a try is enough.
#[tokio::test]
async fn p38_the_reply_to_a_stuck_acquire_is_waited_for() {
    let mut harness = Harness::new().await;
    let (guard, _) = upgradeable(&mut harness).await;
    let upgrading = tokio::spawn(guard.try_upgrade_for(Duration::from_millis(100)));
    let (stuck, acquire) = harness.next_acquire().await;
    let request = next_and_renew(&mut harness).await;
    assert!(matches!(&request.op, Op::Acquire(tried) if tried.patience == Patience::Try));
    harness.reply(request, Outcome::Busy { left_us: 60_000 * MS }, 7);
    pause(20).await;
    assert!(!upgrading.is_finished());
    harness.reply(stuck, queued(42, 60_000), 7);
    let again = timeout(Duration::from_millis(200), next_and_renew(&mut harness)).await.expect("at once");
    assert!(matches!(&again.op, Op::Acquire(tried) if tried.id == acquire.id && tried.patience == Patience::Try));
    harness.reply(again, Outcome::Busy { left_us: 60_000 * MS }, 7);
    let guard =
        timeout(Duration::from_millis(200), upgrading).await.expect("told").unwrap().unwrap().expect_err("busy");
    assert_eq!(guard.check(), Ok(token(7)));
}

/// A re-check of the read lock is in flight when a message grants it, and its upgrade follows at once. Carried out later,
/// the re-check would acquire for nobody.
#[tokio::test]
async fn p14_an_upgraded_reader_takes_its_last_recheck_back() {
    let mut harness = Harness::new().await;
    let lock = harness.leasehold.rw_lock("name").lease(Duration::from_millis(LEASE_MS));
    let reading = tokio::spawn(async move { lock.upgradeable_read().await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 6);
    let (recheck, _) = harness.next_acquire().await;
    harness.push(id, 7, harness.store.server_us(), LEASE_MS * MS);
    let guard = timeout(Duration::from_secs(5), reading).await.expect("granted").unwrap().unwrap();
    let upgrading = tokio::spawn(guard.upgrade());
    let request = next_and_renew(&mut harness).await;
    assert!(matches!(&request.op, Op::Acquire(acquire) if acquire.take == Take::upgrade(id, token(7))));
    harness.reply(request, granted(8), 8);
    let writer = timeout(Duration::from_secs(5), upgrading).await.expect("granted").unwrap().unwrap();
    let leave = timeout(Duration::from_secs(5), next_and_renew(&mut harness)).await.expect("a leave");
    assert!(matches!(leave.op, Op::Leave { id: left, .. } if left == id), "{:?}", leave.op);
    assert_eq!(writer.check(), Ok(token(8)));
    drop(recheck);
}

/// An operator revokes a reader whose upgrade waits. The upgrade asks at once, and its caller gets an error while the grace
/// is not over.
#[tokio::test]
async fn p10_an_upgrade_of_a_revoked_reader_asks_at_once() {
    let mut harness = Harness::new().await;
    let (upgrading, read, upgrade) = waiting_upgrade(&mut harness).await;
    pause(20).await; // Its session knows that it waits.
    harness.deliver(Delivery {
        to: read.session,
        now_us: harness.store.server_us(),
        contention: Contention::None,
        rest: Rest::Done,
        id: read,
        token: token(7),
        left_us: 5_000 * MS,
        event: Event::Revoked,
        range: 1,
    });
    let (recheck, acquire) = timeout(Duration::from_millis(200), harness.next_acquire()).await.expect("at once");
    assert_eq!(acquire.id, upgrade);
    harness.reply(recheck, Outcome::Refused(Refusal::NoGrant), 7);
    let error = timeout(Duration::from_millis(500), upgrading).await.expect("told").unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost), "{error}");
    assert!(error.to_string().contains("revoked"), "{error}");
    loop {
        let request = next_and_renew(&mut harness).await;
        match request.op {
            Op::Release { id, .. } if id == read => break,
            Op::Leave { id, .. } if id == upgrade => {
                harness.reply(request, Outcome::Left { was: Was::Absent }, 7);
            }
            ref other => panic!("unexpected: {other:?}"),
        }
    }
}

/// The connection of the caller stands still with its try on it, and the session tries again on its own. The first try may
/// be carried out after the second one, and be granted then.
#[tokio::test]
async fn p38_a_try_on_a_connection_that_stands_still_is_not_forgotten() {
    const LANE: usize = 1;
    let mut harness = Harness::new().await;
    let (guard, _) = upgradeable(&mut harness).await;
    let upgrading = tokio::spawn(guard.try_upgrade());
    let (stuck, acquire) = harness.next_acquire().await;
    assert_eq!(stuck.link, LANE);
    let begun = Instant::now();
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    while !upgrading.is_finished() {
        let Ok(request) = timeout(Duration::from_millis(500), next_and_renew(&mut harness)).await else { continue };
        match request.op {
            Op::Acquire(ref tried) if tried.id == acquire.id => {
                harness.reply(request, Outcome::Busy { left_us: 60_000 * MS }, 7);
            }
            Op::Leave { id, .. } if id == acquire.id => {
                harness.reply(request, Outcome::Left { was: Was::Absent }, 7);
            }
            ref other => panic!("unexpected: {other:?}"),
        }
    }
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "the try may be carried out: {:?}", begun.elapsed());
    assert!(upgrading.await.unwrap().unwrap().is_err(), "others read");
    drop(stuck);
}

/// The step of an acquire stopped at its bound. The first lease ends in an hour, and before that nothing else happens at
/// the store.
#[tokio::test]
async fn p34_a_waiter_that_is_told_of_more_asks_again_at_once() {
    let mut harness = Harness::new().await;
    let semaphore = harness.leasehold.semaphore("name", 2);
    let acquiring = tokio::spawn(async move { semaphore.acquire().await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    let answer = Answer { rest: Rest::More, ..harness.answer(queued(42, 3_600_000), 7) };
    assert!(request.reply.send(Ok(answer)).is_ok());
    let (request, again) = timeout(Duration::from_millis(500), harness.next_acquire()).await.expect("at once");
    assert_eq!(again.id, id);
    harness.reply(request, granted(8), 8);
    assert!(acquiring.await.unwrap().unwrap().is_valid());
}
