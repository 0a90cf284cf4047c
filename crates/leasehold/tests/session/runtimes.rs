//! Callers on several runtimes, some of which are blocked (P17).

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

use crate::harness::{Altered, Harness, MS, pause, token};
use crate::store::any_error;

/// The numbers of the session's connection and of the callers' lane.
const HOME: usize = 0;
const LANE: usize = 1;
/// How long the thread may take to notice that nothing drives the lane: two checks, and slack for a busy machine.
const NOTICED: Duration = Duration::from_secs(2);

async fn harness() -> (Harness, Arc<Altered>) {
    let world = Altered::world();
    let harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    (harness, world)
}

/// Locks and releases. Returns the connections that carried the two requests.
async fn round(harness: &mut Harness, number: u64) -> (usize, usize) {
    round_of(harness, "name", number).await
}

async fn round_of(harness: &mut Harness, name: &str, number: u64) -> (usize, usize) {
    let locking = harness.lock_as(name, 30_000);
    let (request, _) = harness.next_acquire().await;
    let acquired_by = request.link;
    harness.reply(request, Outcome::Granted { token: token(number), left_us: 30_000 * MS, range: 1 }, number);
    let guard = locking.await.unwrap().unwrap();
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let released_by = release.link;
    harness.reply(release, Outcome::Released, number);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    (acquired_by, released_by)
}

/// Waits until callers use this connection as their lane.
async fn await_lane(harness: &mut Harness, link: usize) {
    for number in 1..100 {
        if round_of(harness, "another", number).await == (link, link) {
            return;
        }
    }
    panic!("link {link} is never used as the lane");
}

#[tokio::test]
async fn p17_only_the_runtime_that_drives_the_lane_uses_it() {
    let (mut harness, world) = harness().await;
    assert_eq!(round(&mut harness, 1).await, (LANE, LANE));
    world.runtime.store(1, Ordering::SeqCst);
    assert_eq!(round(&mut harness, 2).await, (HOME, HOME), "another runtime");
    world.is_without_runtime.store(true, Ordering::SeqCst);
    assert_eq!(round(&mut harness, 3).await, (HOME, HOME), "no runtime");
    world.is_without_runtime.store(false, Ordering::SeqCst);
    world.runtime.store(0, Ordering::SeqCst);
    assert_eq!(round(&mut harness, 4).await, (LANE, LANE), "the lane is still there");
}

#[tokio::test]
async fn p17_a_guard_from_the_lane_is_released_elsewhere_by_the_sessions_link() {
    let (mut harness, world) = harness().await;
    let guard = harness.locked(30_000, 7).await;
    world.runtime.store(1, Ordering::SeqCst);
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert_eq!(release.link, HOME);
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// A release was handed to the lane of a runtime that is blocked. It is in the way of the next acquire from another
/// runtime. So it is sent again, right before that acquire, on a connection that is driven.
#[tokio::test]
async fn p17_a_release_on_anothers_lane_is_sent_again_before_the_next_acquire() {
    let (mut harness, world) = harness().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = harness.next().await;
    assert_eq!(first.link, LANE);
    world.runtime.store(1, Ordering::SeqCst);
    let locking = harness.lock(30_000);
    let again = harness.next().await;
    assert_eq!((again.link, &again.op), (HOME, &first.op));
    let (request, _) = harness.next_acquire().await;
    assert_eq!(request.link, HOME);
    harness.reply(again, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

#[tokio::test]
async fn p17_a_lane_that_is_not_used_moves_to_the_runtime_that_calls() {
    let (mut harness, world) = harness().await;
    assert_eq!(round(&mut harness, 1).await, (LANE, LANE));
    world.freeze();
    world.advance(9_000 * MS);
    world.runtime.store(1, Ordering::SeqCst);
    assert_eq!(round(&mut harness, 2).await, (HOME, HOME));
    world.advance(2_000 * MS);
    assert_eq!(round(&mut harness, 3).await.0, HOME, "while it is opened");
    assert!(harness.store.links()[LANE].closed.load(Ordering::SeqCst), "the old lane is closed");
    await_lane(&mut harness, 2).await;
    assert_eq!(harness.store.links().len(), 3);
}

/// A thread may be within a runtime that nobody polls. A task that opens a lane there would never run, and each further
/// task would stay as well.
#[tokio::test]
async fn p17_a_runtime_that_is_never_polled_gets_one_task() {
    let (mut harness, world) = harness().await;
    world.freeze();
    world.is_unpolled.store(true, Ordering::SeqCst);
    world.runtime.store(1, Ordering::SeqCst);
    for number in 1..6 {
        world.advance(11_000 * MS);
        assert_eq!(round(&mut harness, number).await, (HOME, HOME));
    }
    assert_eq!(world.unpolled.lock().unwrap().len(), 1);
    // The runtime is polled after all: the abandoned task ends, and the next call opens a lane.
    world.is_unpolled.store(false, Ordering::SeqCst);
    let given_up = std::mem::take(&mut *world.unpolled.lock().unwrap());
    given_up.into_iter().for_each(|task| Real.spawn(task).ok().unwrap());
    await_lane(&mut harness, 2).await;
}

/// A quorum counts its votes in the task of its caller. If nothing sends the requests, no node has answered. That says
/// nothing about the nodes.
#[tokio::test]
async fn p17_too_few_replies_to_unsent_requests_decide_nothing() {
    for wait in [None, Some(Duration::ZERO)] {
        // The lane is given up each time.
        let (mut harness, _world) = harness().await;
        let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
        let trying = tokio::spawn(async move {
            match wait {
                None => mutex.try_lock().await,
                Some(wait) => mutex.try_lock_for(wait).await,
            }
        });
        let (unsent, first) = harness.next_acquire().await;
        assert_eq!(unsent.link, LANE);
        harness.store.links()[LANE].is_waiting.store(true, Ordering::SeqCst);
        drop(unsent.reply.send(Err(Fault::Undecided(any_error()))));
        let (request, again) = harness.next_acquire().await;
        assert_eq!((request.link, again.id), (HOME, first.id));
        harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
        drop(trying.await.unwrap().unwrap().expect("it is free"));
        let release = harness.next().await;
        harness.reply(release, Outcome::Released, 7);
        assert!(harness.store.links()[LANE].closed.load(Ordering::SeqCst), "none of these requests is sent later");
    }
}

/// A release and the next request for its name are in the lane, and neither is sent. Whichever of them fails first, and
/// however soon the other one fails, the session's connection sends the release first. Otherwise the store would refuse
/// the request.
#[tokio::test]
async fn p17_a_release_that_was_not_sent_is_sent_again_before_the_request_behind_it() {
    let orders = [("release", 20), ("request", 20), ("release", 0), ("request", 0)];
    for (ends_first, between_ms) in orders {
        let (mut harness, _world) = harness().await;
        let guard = harness.locked(30_000, 7).await;
        let _releasing = tokio::spawn(guard.release());
        let release = harness.next().await;
        let trying = harness.try_lock("name");
        let (request, _) = harness.next_acquire().await;
        assert_eq!((release.link, request.link), (LANE, LANE));
        harness.store.links()[LANE].is_waiting.store(true, Ordering::SeqCst);
        let (first, second) = if ends_first == "release" { (release, request) } else { (request, release) };
        drop(first.reply.send(Err(Fault::Undecided(any_error()))));
        if between_ms > 0 {
            pause(between_ms).await;
        }
        drop(second.reply.send(Err(Fault::Undecided(any_error()))));
        let again = timeout(NOTICED, harness.next()).await.expect("sent again");
        assert_eq!(again.link, HOME, "the {ends_first} ends first, by {between_ms} ms");
        assert!(
            matches!(again.op, Op::Release { .. } | Op::Leave { .. }),
            "the {ends_first} ends first, by {between_ms} ms: {:?}",
            again.op
        );
        harness.reply(again, Outcome::Released, 7);
        let (request, _) = timeout(NOTICED, harness.next_acquire()).await.expect("asked again");
        harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
        assert!(trying.await.unwrap().expect("the store has answered").is_some());
    }
}

/// The runtime is blocked by its own caller, which polls its future with another executor. Nothing writes the requests
/// of the runtime.
#[tokio::test]
async fn p17_a_lane_that_stands_still_is_given_up() {
    let (mut harness, _world) = harness().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    let trying = tokio::spawn(async move { mutex.try_lock().await });
    let (unsent, first) = harness.next_acquire().await;
    assert_eq!(unsent.link, LANE);
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    let (request, again) = timeout(NOTICED, harness.next_acquire()).await.expect("asked again");
    assert_eq!((request.link, again.id), (HOME, first.id));
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = timeout(NOTICED, trying).await.expect("the first one is never answered").unwrap().unwrap().unwrap();

    // Meanwhile there is another lane, and that one is blocked, too.
    await_lane(&mut harness, 2).await;
    let releasing = tokio::spawn(guard.release());
    let unsent = harness.next().await;
    assert_eq!(unsent.link, 2);
    harness.store.links()[2].is_stalled.store(true, Ordering::SeqCst);
    let release = timeout(NOTICED, harness.next()).await.expect("repeated");
    assert_eq!((release.link, &release.op), (HOME, &unsent.op));
    assert!(matches!(release.op, Op::Release { .. } | Op::Leave { .. }), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    let released = timeout(NOTICED, releasing).await.expect("the first one is never answered");
    assert_eq!(released.unwrap().unwrap(), Released::Released);
}

/// The runtime of the lane goes on and ends the lane, while the same request is in flight on the session's connection.
/// The error of the lane says nothing about that request.
#[tokio::test]
async fn p17_the_end_of_a_lane_fails_no_request_on_another_link() {
    let (mut harness, _world) = harness().await;
    let trying = harness.try_lock("name");
    let (unsent, _) = harness.next_acquire().await;
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    let (request, _) = timeout(NOTICED, harness.next_acquire()).await.expect("asked again");
    assert_eq!((unsent.link, request.link), (LANE, HOME));
    drop(unsent.reply);
    pause(50).await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = timeout(NOTICED, trying).await.expect("an answer").unwrap();
    assert_eq!(guard.expect("the store has answered").expect("nobody else has it").token(), token(7));
}

fn one_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs the tasks of this runtime that are ready, and no others.
fn turns(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..8 {
            yield_now().await;
        }
    });
}

/// A runtime is blocked while it opens a lane. Meanwhile another runtime opens its own lane. That lane stays, whatever
/// the result of the first one is.
#[test]
fn p17_a_lane_that_fails_late_takes_the_place_of_no_other() {
    let (ours, stands) = (one_threaded(), one_threaded());
    let (mut harness, world) = ours.block_on(harness());
    world.freeze();
    harness.store.links()[LANE].closed.store(true, Ordering::SeqCst);
    let (refuse, refused_after) = oneshot::channel();
    *harness.store.refused_after.lock().unwrap() = Some(refused_after);
    world.runtime.store(1, Ordering::SeqCst);
    let mutex = harness.leasehold.mutex("name");
    drop(stands.spawn(async move { mutex.try_lock().await }));
    turns(&stands);
    let (request, _) = ours.block_on(harness.next_acquire());
    harness.reply(request, Outcome::Busy { left_us: 1_000 * MS }, 1);
    turns(&stands);
    world.advance(6_000 * MS);
    world.runtime.store(0, Ordering::SeqCst);
    ours.block_on(await_lane(&mut harness, 2));
    refuse.send(()).unwrap();
    turns(&stands);
    assert_eq!(ours.block_on(round(&mut harness, 100)), (2, 2));
    assert_eq!(harness.store.links().len(), 3);
}
