//! A minimum hold: what a session asks for when the guard goes earlier (P23).

use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::World;
use leasehold::{ErrorKind, Guard, Mutex, Released};
use leasehold_spec::{Acquire, GrantId, Op, Outcome, Was};

use crate::bench::{Altered, Bench, MS, pause, queued, token};
use crate::store::gone;

const HOLD_MS: u64 = 20_000;

fn mutex(bench: &Bench) -> Mutex {
    bench.leasehold.mutex("name").min_hold(Duration::from_millis(HOLD_MS))
}

/// Locks with a minimum hold, and is granted at once.
async fn locked(bench: &mut Bench) -> (Guard, GrantId) {
    let mutex = mutex(bench);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, Acquire { id, range, .. }) = bench.next_acquire().await;
    assert_eq!(range, 1, "nothing is handed on inside");
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    (locking.await.unwrap().unwrap(), id)
}

/// The length of the cool-down that is asked for.
fn asked_for(op: &Op, of: GrantId) -> u64 {
    match *op {
        Op::CoolDown { id, used, for_ms } if (id, used) == (of, token(7)) => for_ms,
        ref other => panic!("a cool-down was expected: {other:?}"),
    }
}

#[tokio::test]
async fn p23_a_release_asks_for_the_rest_of_the_minimum_hold() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (guard, id) = locked(&mut bench).await;
    world.set_on(5_000 * MS);
    let releasing = tokio::spawn(guard.release());
    let asked = bench.next().await;
    assert_eq!(asked_for(&asked.op, id), HOLD_MS - 5_000);
    bench.say(asked, Outcome::Left { was: Was::Granted }, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    pause(50).await;
    bench.nothing();
}

#[tokio::test]
async fn p23_a_dropped_guard_does_so_too() {
    let mut bench = Bench::new().await;
    let (guard, id) = locked(&mut bench).await;
    drop(guard);
    let asked = bench.next().await;
    assert!((HOLD_MS - 5_000..=HOLD_MS).contains(&asked_for(&asked.op, id)));
}

#[tokio::test]
async fn p23_a_closed_client_does_so_too() {
    let mut bench = Bench::new().await;
    let (_guard, id) = locked(&mut bench).await;
    let closing = tokio::spawn(bench.leasehold.clone().close());
    let asked = bench.next().await;
    assert!((HOLD_MS - 5_000..=HOLD_MS).contains(&asked_for(&asked.op, id)));
    bench.say(asked, Outcome::Left { was: Was::Granted }, 7);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
}

#[tokio::test]
async fn p23_a_release_after_the_minimum_hold_is_a_release() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (guard, id) = locked(&mut bench).await;
    world.set_on(HOLD_MS * MS);
    drop(guard);
    let asked = bench.next_but_renewals().await;
    assert_eq!(asked.op, Op::Release { id, token: token(7), used: token(7) });
}

/// The reply is lost. 5 s later the session asks again, for what is left by then; and when nothing is left, it leaves.
#[tokio::test]
async fn p23_a_repeated_cool_down_asks_for_what_is_left() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (guard, id) = locked(&mut bench).await;
    let releasing = tokio::spawn(guard.release());
    let lost = bench.next().await;
    assert_eq!(asked_for(&lost.op, id), HOLD_MS);
    world.set_on(5_000 * MS);
    drop(lost.reply.send(Err(gone())));
    let again = bench.next().await;
    assert_eq!(asked_for(&again.op, id), HOLD_MS - 5_000);
    world.set_on((HOLD_MS - 5_000) * MS);
    drop(again.reply.send(Err(gone())));
    let last = bench.next().await;
    assert_eq!(last.op, Op::Leave { id, used: token(7) });
    bench.say(last, Outcome::Left { was: Was::Absent }, 7);
    // Nobody knows which of the three ended it.
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// There was nothing to release: the work outlived its lease, and the caller must know.
#[tokio::test]
async fn p23_a_cool_down_of_nothing_is_not_held() {
    let mut bench = Bench::new().await;
    let (guard, id) = locked(&mut bench).await;
    let releasing = tokio::spawn(guard.release());
    let asked = bench.next().await;
    asked_for(&asked.op, id);
    bench.say(asked, Outcome::Left { was: Was::Absent }, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

/// A failover lost the cool-down: it is said to the new run, for what is left.
#[tokio::test]
async fn p23_a_cool_down_is_said_again_to_another_run() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (guard, id) = locked(&mut bench).await;
    let releasing = tokio::spawn(guard.release());
    let asked = bench.next().await;
    bench.say(asked, Outcome::Left { was: Was::Granted }, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    world.set_on(3_000 * MS);
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let again = bench.next().await;
    assert_eq!(asked_for(&again.op, id), HOLD_MS - 3_000);
}

/// A second task of the client waits. It is not handed the lease, because nobody may hold before the time is over.
#[tokio::test]
async fn p23_a_lease_with_a_minimum_hold_is_not_handed_on_inside() {
    let mut bench = Bench::new().await;
    let (guard, id) = locked(&mut bench).await;
    let mutex = mutex(&bench);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let (asked, acquire) = bench.next_acquire().await;
    assert_ne!(acquire.id, id, "it asks the store");
    bench.say(asked, queued(1, 30_000), 7);
    drop(guard);
    let asked = bench.next_but(|op| matches!(op, Op::Acquire(_))).await;
    asked_for(&asked.op, id);
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test]
async fn a_minimum_hold_out_of_range_is_invalid() {
    let mut bench = Bench::new().await;
    let minute = Duration::from_secs(60);
    let of = || bench.leasehold.mutex("name").min_hold(minute);
    let too_long = [
        (of().max_hold(minute / 2), "a min_hold of 60s is longer than max_hold: use a shorter one"),
        (of().fixed_lease(minute / 2), "a min_hold of 60s is longer than the fixed lease: use a shorter one"),
        (of().min_hold(Duration::MAX), "is longer than 24 h: use a shorter one"),
        (of().sticky(minute), "sticky cannot be combined with"),
    ];
    for (mutex, why) in too_long {
        let error = mutex.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
    }
    bench.nothing();
}

/// Queues the next acquire and pushes its grant. The push is processed on this stack, so the caller has not seen it yet.
async fn granted_unseen(bench: &mut Bench) {
    let (asked, Acquire { id, .. }) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    pause(50).await;
    bench.push(id, 8, bench.store.server_us(), 1_000 * MS);
}

async fn goes_back_at_once(bench: &mut Bench) {
    let asked = bench.next_but_renewals().await;
    assert!(!matches!(asked.op, Op::CoolDown { .. }), "{:?}", asked.op);
}

/// The future of `lock` is dropped in the moment in which its lease is granted. No guard ever existed.
#[tokio::test]
async fn p23_an_untaken_grant_does_not_cool_down() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench);
    let locking = tokio::spawn(async move { mutex.lock().await });
    granted_unseen(&mut bench).await;
    locking.abort();
    goes_back_at_once(&mut bench).await;
}

/// The same by `select!`, as any program does it.
#[tokio::test]
async fn p23_a_select_that_drops_a_granted_lock_does_not_cool_down() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let locking = tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = stopped => None,
            guard = mutex.lock() => Some(guard.unwrap()),
        }
    });
    granted_unseen(&mut bench).await;
    stop.send(()).unwrap();
    assert!(locking.await.unwrap().is_none(), "the caller never had a guard");
    goes_back_at_once(&mut bench).await;
}

/// The client is closed in the moment in which the lease is granted.
#[tokio::test]
async fn p23_a_close_before_the_guard_is_taken_does_not_cool_down() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench);
    let _locking = tokio::spawn(async move { mutex.lock().await });
    granted_unseen(&mut bench).await;
    let _closing = bench.leasehold.clone().close();
    goes_back_at_once(&mut bench).await;
}

/// The lease was lost: nobody promises anything of it.
#[tokio::test]
async fn p23_a_lease_that_was_lost_by_time_does_not_cool_down() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench).lease(Duration::from_millis(1_000));
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (asked, Acquire { .. }) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 1_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let asked = bench.next_but_renewals().await;
    assert!(guard.check().is_err());
    assert!(!matches!(asked.op, Op::CoolDown { .. }), "{:?}", asked.op);
}

/// They share one lease, and with it one minimum hold.
#[tokio::test]
async fn p23_a_guard_that_waives_speaks_for_all_of_its_owner() {
    let mut bench = Bench::new().await;
    let owner = leasehold::Owner::new();
    let mutex = mutex(&bench).owner(&owner);
    let locking = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    let (asked, Acquire { id, .. }) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let worked = locking.await.unwrap().unwrap();
    let idle = mutex.lock().await.unwrap();
    idle.waive_min_hold();
    drop(idle);
    drop(worked);
    let asked = bench.next_but_renewals().await;
    assert_eq!(asked.op, Op::Release { id, token: token(7), used: token(7) });
}
