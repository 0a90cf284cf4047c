//! Callers on several runtimes, of which some stand still (P17).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::Released;
use leasehold::seam::{Fault, Real, World};
use leasehold_spec::{Op, Outcome};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, token};
use crate::store::any_error;

/// The session's link, and the callers' lane.
const HOME: usize = 0;
const LANE: usize = 1;
/// What the thread may take to notice that nothing drives the lane: two looks, and a busy machine.
const NOTICED: Duration = Duration::from_secs(2);

async fn bench() -> (Bench, Arc<Altered>) {
    let world = Altered::world();
    let bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    (bench, world)
}

/// Locks and releases, and returns by which links the two requests came.
async fn round(bench: &mut Bench, number: u64) -> (usize, usize) {
    round_of(bench, "name", number).await
}

async fn round_of(bench: &mut Bench, name: &str, number: u64) -> (usize, usize) {
    let locking = bench.lock_as(name, 30_000);
    let (asked, _) = bench.next_acquire().await;
    let acquired_by = asked.link;
    bench.say(asked, Outcome::Granted { token: token(number), left_us: 30_000 * MS, range: 1 }, number);
    let guard = locking.await.unwrap().unwrap();
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let released_by = release.link;
    bench.say(release, Outcome::Released, number);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    (acquired_by, released_by)
}

/// Waits until callers use this link as their lane.
async fn await_lane(bench: &mut Bench, link: usize) {
    for number in 1..100 {
        if round_of(bench, "another", number).await == (link, link) {
            return;
        }
    }
    panic!("link {link} is never used as the lane");
}

#[tokio::test]
async fn p17_only_the_runtime_that_drives_the_lane_uses_it() {
    let (mut bench, world) = bench().await;
    assert_eq!(round(&mut bench, 1).await, (LANE, LANE));
    world.runtime.store(1, Ordering::SeqCst);
    assert_eq!(round(&mut bench, 2).await, (HOME, HOME), "another runtime");
    world.is_without_runtime.store(true, Ordering::SeqCst);
    assert_eq!(round(&mut bench, 3).await, (HOME, HOME), "no runtime");
    world.is_without_runtime.store(false, Ordering::SeqCst);
    world.runtime.store(0, Ordering::SeqCst);
    assert_eq!(round(&mut bench, 4).await, (LANE, LANE), "the lane is still there");
}

#[tokio::test]
async fn p17_a_guard_from_the_lane_is_released_elsewhere_by_the_sessions_link() {
    let (mut bench, world) = bench().await;
    let guard = bench.locked(30_000, 7).await;
    world.runtime.store(1, Ordering::SeqCst);
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    assert_eq!(release.link, HOME);
    bench.say(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// A release that was handed to the lane of a runtime that stands still is in the way of the next acquire elsewhere. It is
/// sent again, right before that acquire, by a link that is driven.
#[tokio::test]
async fn p17_a_release_on_anothers_lane_is_sent_again_before_the_next_acquire() {
    let (mut bench, world) = bench().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = bench.next().await;
    assert_eq!(first.link, LANE);
    world.runtime.store(1, Ordering::SeqCst);
    let locking = bench.lock(30_000);
    let again = bench.next().await;
    assert_eq!((again.link, &again.op), (HOME, &first.op));
    let (asked, _) = bench.next_acquire().await;
    assert_eq!(asked.link, HOME);
    bench.say(again, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

#[tokio::test]
async fn p17_a_lane_that_is_not_used_moves_to_the_runtime_that_calls() {
    let (mut bench, world) = bench().await;
    assert_eq!(round(&mut bench, 1).await, (LANE, LANE));
    world.stand_still();
    world.set_on(9_000 * MS);
    world.runtime.store(1, Ordering::SeqCst);
    assert_eq!(round(&mut bench, 2).await, (HOME, HOME));
    world.set_on(2_000 * MS);
    assert_eq!(round(&mut bench, 3).await.0, HOME, "while it is opened");
    assert!(bench.store.links()[LANE].closed.load(Ordering::SeqCst), "the old one is closed");
    await_lane(&mut bench, 2).await;
    assert_eq!(bench.store.links().len(), 3);
}

/// A thread may be within a runtime that nobody polls. What opens a lane there would never run, and each further task
/// would stay as well.
#[tokio::test]
async fn p17_a_runtime_that_is_never_polled_gets_one_task() {
    let (mut bench, world) = bench().await;
    world.stand_still();
    world.is_unpolled.store(true, Ordering::SeqCst);
    world.runtime.store(1, Ordering::SeqCst);
    for number in 1..6 {
        world.set_on(11_000 * MS);
        assert_eq!(round(&mut bench, number).await, (HOME, HOME));
    }
    assert_eq!(world.unpolled.lock().unwrap().len(), 1);
    // It is polled after all: the task that was given up ends, and the next call opens a lane.
    world.is_unpolled.store(false, Ordering::SeqCst);
    let given_up = std::mem::take(&mut *world.unpolled.lock().unwrap());
    given_up.into_iter().for_each(|task| Real.spawn(task).ok().unwrap());
    await_lane(&mut bench, 2).await;
}

/// A quorum counts its votes where its caller is polled. Where nothing sends the requests, no node has answered: that says
/// nothing about the nodes.
#[tokio::test]
async fn p17_too_few_answers_to_what_was_not_sent_are_no_answer() {
    for wait in [None, Some(Duration::ZERO)] {
        // The lane is given up each time.
        let (mut bench, _world) = bench().await;
        let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
        let trying = tokio::spawn(async move {
            match wait {
                None => mutex.try_lock().await,
                Some(wait) => mutex.try_lock_for(wait).await,
            }
        });
        let (unsent, first) = bench.next_acquire().await;
        assert_eq!(unsent.link, LANE);
        bench.store.links()[LANE].is_waiting.store(true, Ordering::SeqCst);
        drop(unsent.reply.send(Err(Fault::Undecided(any_error()))));
        let (asked, again) = bench.next_acquire().await;
        assert_eq!((asked.link, again.id), (HOME, first.id));
        bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
        drop(trying.await.unwrap().unwrap().expect("it is free"));
        let release = bench.next().await;
        bench.say(release, Outcome::Released, 7);
        assert!(bench.store.links()[LANE].closed.load(Ordering::SeqCst), "nothing of it is sent later");
    }
}

/// A release and the next request for its name are in the lane, and neither is sent. Whichever of them fails first, and
/// however soon the other one fails, the session's link sends the release first. Otherwise the store would refuse the
/// request.
#[tokio::test]
async fn p17_a_release_that_was_not_sent_is_sent_again_before_the_request_behind_it() {
    let orders = [("release", 20), ("request", 20), ("release", 0), ("request", 0)];
    for (ends_first, between_ms) in orders {
        let (mut bench, _world) = bench().await;
        let guard = bench.locked(30_000, 7).await;
        let _releasing = tokio::spawn(guard.release());
        let release = bench.next().await;
        let trying = bench.try_lock("name");
        let (request, _) = bench.next_acquire().await;
        assert_eq!((release.link, request.link), (LANE, LANE));
        bench.store.links()[LANE].is_waiting.store(true, Ordering::SeqCst);
        let (first, second) = if ends_first == "release" { (release, request) } else { (request, release) };
        drop(first.reply.send(Err(Fault::Undecided(any_error()))));
        if between_ms > 0 {
            pause(between_ms).await;
        }
        drop(second.reply.send(Err(Fault::Undecided(any_error()))));
        let again = timeout(NOTICED, bench.next()).await.expect("sent again");
        assert_eq!(again.link, HOME, "the {ends_first} ends first, by {between_ms} ms");
        assert!(
            matches!(again.op, Op::Release { .. } | Op::Leave { .. }),
            "the {ends_first} ends first, by {between_ms} ms: {:?}",
            again.op
        );
        bench.say(again, Outcome::Released, 7);
        let (asked, _) = timeout(NOTICED, bench.next_acquire()).await.expect("asked again");
        bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
        assert!(trying.await.unwrap().expect("the store has answered").is_some());
    }
}

/// The runtime is blocked by its own caller, which polls its future by something else. Nothing writes its requests.
#[tokio::test]
async fn p17_a_lane_that_stands_still_is_given_up() {
    let (mut bench, _world) = bench().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
    let trying = tokio::spawn(async move { mutex.try_lock().await });
    let (unsent, first) = bench.next_acquire().await;
    assert_eq!(unsent.link, LANE);
    bench.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    let (asked, again) = timeout(NOTICED, bench.next_acquire()).await.expect("asked again");
    assert_eq!((asked.link, again.id), (HOME, first.id));
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = timeout(NOTICED, trying).await.expect("the first one is never answered").unwrap().unwrap().unwrap();

    // Meanwhile there is another lane, and that stands still, too.
    await_lane(&mut bench, 2).await;
    let releasing = tokio::spawn(guard.release());
    let unsent = bench.next().await;
    assert_eq!(unsent.link, 2);
    bench.store.links()[2].is_stalled.store(true, Ordering::SeqCst);
    let release = timeout(NOTICED, bench.next()).await.expect("repeated");
    assert_eq!((release.link, &release.op), (HOME, &unsent.op));
    assert!(matches!(release.op, Op::Release { .. } | Op::Leave { .. }), "{:?}", release.op);
    bench.say(release, Outcome::Released, 7);
    let released = timeout(NOTICED, releasing).await.expect("the first one is never answered");
    assert_eq!(released.unwrap().unwrap(), Released::Released);
}

/// The runtime of the lane goes on, and ends the lane, while the same request is under way by the session's link. What the
/// lane says then is no word about that one.
#[tokio::test]
async fn p17_the_end_of_a_lane_fails_nobody_who_is_asked_for_elsewhere() {
    let (mut bench, _world) = bench().await;
    let trying = bench.try_lock("name");
    let (unsent, _) = bench.next_acquire().await;
    bench.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    let (asked, _) = timeout(NOTICED, bench.next_acquire()).await.expect("asked again");
    assert_eq!((unsent.link, asked.link), (LANE, HOME));
    drop(unsent.reply);
    pause(50).await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = timeout(NOTICED, trying).await.expect("an answer").unwrap();
    assert_eq!(guard.expect("the store has answered").expect("nobody else has it").token(), token(7));
}

fn one_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Lets what is ready on this runtime run, and no more.
fn turns(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..8 {
            yield_now().await;
        }
    });
}

/// A runtime stands still while it opens a lane, and another one opens its own meanwhile. That stays, whatever the first
/// one comes to.
#[test]
fn p17_a_lane_that_fails_late_takes_the_place_of_no_other() {
    let (ours, stands) = (one_threaded(), one_threaded());
    let (mut bench, world) = ours.block_on(bench());
    world.stand_still();
    bench.store.links()[LANE].closed.store(true, Ordering::SeqCst);
    let (refuse, refused_after) = oneshot::channel();
    *bench.store.refused_after.lock().unwrap() = Some(refused_after);
    world.runtime.store(1, Ordering::SeqCst);
    let mutex = bench.leasehold.mutex("name");
    drop(stands.spawn(async move { mutex.try_lock().await }));
    turns(&stands);
    let (asked, _) = ours.block_on(bench.next_acquire());
    bench.say(asked, Outcome::Busy { left_us: 1_000 * MS }, 1);
    turns(&stands);
    world.set_on(6_000 * MS);
    world.runtime.store(0, Ordering::SeqCst);
    ours.block_on(await_lane(&mut bench, 2));
    refuse.send(()).unwrap();
    turns(&stands);
    assert_eq!(ours.block_on(round(&mut bench, 100)), (2, 2));
    assert_eq!(bench.store.links().len(), 3);
}
