//! The inbox, which moves to the callers' lane and back (P17).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::seam::{Fault, Message, World};
use leasehold::{LostReason, Released};
use leasehold_spec::{Contention, Delivery, Event, GrantId, LostHow, Name, Op, Outcome, Rest};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, Locking, MS, guard_of, pause, queued, token};
use crate::store::{Request, gone, refused};

const HOME: usize = 0;
const LANE: usize = 1;
/// How long the thread may take to notice that nobody reads the lane: two checks, and slack for a busy machine.
const NOTICED: Duration = Duration::from_secs(2);
/// So many grants in quick succession move the inbox.
const BRISK: u64 = 4;

/// Connects to a store whose inboxes can move to the lane.
async fn connect(world: Arc<dyn World>) -> Harness {
    let store = Harness::store(0);
    store.0.moves_inbox.store(true, Ordering::SeqCst);
    Harness::connect(world, store).await
}

/// Lets the store answer every detach with this fault.
fn refuse_detaches(harness: &Harness, fault: fn() -> Fault) {
    *harness.store.detach_fault.lock().unwrap() = Some(fault);
}

/// Waits until this is true.
async fn until(what: &str, is_true: impl Fn() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    };
    assert!(timeout(Duration::from_secs(10), waiting).await.is_ok(), "{what}");
}

fn has_inbox(harness: &Harness, link: usize) -> bool {
    harness.store.links()[link].inbox.lock().unwrap().is_some()
}

fn is_closed(harness: &Harness, link: usize) -> bool {
    harness.store.links()[link].closed.load(Ordering::SeqCst)
}

/// Waits in the queue of the store. Returns the connection of the request, too.
async fn waiter(harness: &mut Harness, number: u64) -> (Locking, GrantId, usize) {
    let locking = harness.lock_apart(30_000);
    let (request, acquire) = harness.next_acquire().await;
    let link = request.link;
    harness.reply(request, queued(number, 60_000), number - 1);
    (locking, acquire.id, link)
}

/// Waits until this attempt asks again, by the session's connection. Other attempts wait on.
async fn asked_again(harness: &mut Harness, id: GrantId) -> Request {
    loop {
        let (request, acquire) = timeout(NOTICED, harness.next_acquire()).await.expect("asked again");
        assert_eq!(request.link, HOME);
        if acquire.id == id {
            return request;
        }
        harness.reply(request, queued(6, 60_000), 4);
    }
}

/// Receives this many grants by messages, and releases each.
async fn receive_grants(harness: &mut Harness, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let (locking, id, _) = waiter(harness, number).await;
        harness.push_range(id, number, 1);
        let releasing = tokio::spawn(guard_of(locking).await.release());
        let release = harness.next_but_renewals().await;
        harness.reply(release, Outcome::Released, number);
        assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    }
}

/// Returns a client whose lane has the inbox.
async fn at_lane() -> (Harness, Arc<Altered>) {
    let world = Altered::world();
    let mut harness = connect(Arc::clone(&world) as Arc<dyn World>).await;
    receive_grants(&mut harness, 1..=BRISK).await;
    until("the inbox moves", || has_inbox(&harness, LANE) && !has_inbox(&harness, HOME)).await;
    (harness, world)
}

#[tokio::test]
async fn p17_the_inbox_is_detached_only_after_the_lane_is_proved() {
    let mut harness = connect(Altered::world()).await;
    harness.store.may_attach.store(false, Ordering::SeqCst);
    receive_grants(&mut harness, 1..=BRISK).await;
    until("the move begins", || harness.store.attaches.load(Ordering::SeqCst) == 2).await;
    assert!(has_inbox(&harness, HOME) && !has_inbox(&harness, LANE), "the lane is not proved");
    receive_grants(&mut harness, 5..=6).await;
    assert!(has_inbox(&harness, HOME));
    harness.store.may_attach.store(true, Ordering::SeqCst);
    until("the inbox moves", || has_inbox(&harness, LANE) && !has_inbox(&harness, HOME)).await;
    receive_grants(&mut harness, 7..=8).await;
}

#[tokio::test]
async fn p17_few_messages_do_not_move_the_inbox() {
    let mut harness = connect(Altered::world()).await;
    receive_grants(&mut harness, 1..BRISK).await;
    pause(50).await;
    assert_eq!(harness.store.attaches.load(Ordering::SeqCst), 1);
    assert!(has_inbox(&harness, HOME));
}

/// The runtime of the lane is blocked. A grant was sent to the lane, where nobody reads it.
#[tokio::test]
async fn p17_a_waiter_whose_grant_nobody_reads_asks_again() {
    let (mut harness, _world) = at_lane().await;
    let (locking, id, link) = waiter(&mut harness, 5).await;
    assert_eq!(link, LANE);
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    let (request, again) = timeout(NOTICED, harness.next_acquire()).await.expect("asked again");
    assert_eq!((request.link, again.id), (HOME, id));
    assert!(has_inbox(&harness, HOME));
    harness.reply(request, Outcome::Granted { token: token(5), left_us: 700 * MS, range: 1 }, 5);
    assert_eq!(guard_of(locking).await.token(), token(5));
    until("the lane is closed", || is_closed(&harness, LANE)).await;
}

/// The message that the lease was revoked was sent to the lane, where nobody reads it.
#[tokio::test]
async fn p17_a_holder_learns_of_a_revocation_that_nobody_reads() {
    let (mut harness, _world) = at_lane().await;
    let guard = harness.locked(30_000, 5).await;
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    let request = timeout(NOTICED, harness.next()).await.expect("renewed at once");
    assert!(matches!(request.op, Op::Renew(_)) && request.link == HOME, "{:?}", request.op);
    harness.reply(request, Outcome::Lost { how: LostHow::Revoked }, 5);
    assert_eq!(timeout(NOTICED, guard.lost()).await.expect("lost").reason(), LostReason::Revoked);
}

/// A request was sent before the inbox came back, and its reply may be older than a message that nobody has read.
#[tokio::test]
async fn p17_a_reply_from_before_the_return_is_asked_for_again() {
    let (mut harness, _world) = at_lane().await;
    let (locking, id, _) = waiter(&mut harness, 5).await;
    // The caller takes its reply in first. Otherwise its next request is an ordinary re-check, seconds later, and the inbox
    // of an idle lane is back by then.
    pause(50).await;
    let inbox = harness.store.links()[LANE].inbox.lock().unwrap().clone().unwrap();
    inbox(Message::RecheckAll);
    let (early, _) = timeout(NOTICED, harness.next_acquire()).await.expect("asked at once");
    assert_eq!(early.link, HOME);
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    until("the lane is closed", || is_closed(&harness, LANE)).await;
    harness.reply(early, queued(5, 60_000), 4);
    let (request, again) = timeout(NOTICED, harness.next_acquire()).await.expect("asked again");
    assert_eq!((request.link, again.id), (HOME, id));
    harness.reply(request, Outcome::Granted { token: token(5), left_us: 700 * MS, range: 1 }, 5);
    assert_eq!(guard_of(locking).await.token(), token(5));
}

/// The lane breaks. Until the session's connection has the inbox, nothing that may queue is sent.
#[tokio::test]
async fn p17_the_inbox_comes_back_if_its_lane_breaks() {
    let (mut harness, _world) = at_lane().await;
    let (waiting, id, _) = waiter(&mut harness, 5).await;
    harness.store.may_attach.store(false, Ordering::SeqCst);
    harness.store.links()[LANE].closed.store(true, Ordering::SeqCst);
    let inbox = harness.store.links()[LANE].inbox.lock().unwrap().take().unwrap();
    inbox(Message::Detached);
    until("the return begins", || harness.store.attaches.load(Ordering::SeqCst) == 3).await;
    let _locking = harness.lock_apart(30_000);
    pause(50).await;
    harness.expect_no_request();
    harness.store.may_attach.store(true, Ordering::SeqCst);
    let mut asked = Vec::new();
    for _ in 0..2 {
        let (request, acquire) = timeout(NOTICED, harness.next_acquire()).await.expect("asked");
        assert_eq!(request.link, HOME);
        asked.push(acquire.id);
        let outcome = if acquire.id == id {
            Outcome::Granted { token: token(5), left_us: 700 * MS, range: 1 }
        } else {
            queued(6, 60_000)
        };
        harness.reply(request, outcome, 5);
    }
    assert!(asked.contains(&id), "the waiter asks again");
    assert_eq!(guard_of(waiting).await.token(), token(5));
}

/// A caller on another runtime does not read the lane.
#[tokio::test]
async fn p17_a_waiter_on_another_runtime_brings_the_inbox_back() {
    let (mut harness, world) = at_lane().await;
    world.runtime.store(1, Ordering::SeqCst);
    let (locking, id, link) = waiter(&mut harness, 5).await;
    assert_eq!(link, HOME);
    until("the inbox is back", || has_inbox(&harness, HOME) && !has_inbox(&harness, LANE)).await;
    assert!(!is_closed(&harness, LANE), "its runtime reads it");
    harness.expect_no_request();
    harness.push_range(id, 5, 1);
    assert_eq!(guard_of(locking).await.token(), token(5));
}

/// The store does not detach the inbox from the session's connection, so it would not detach it from a lane either.
#[tokio::test]
async fn p17_the_inbox_never_moves_again_after_a_refused_detach() {
    let mut harness = connect(Altered::world()).await;
    harness.store.may_attach.store(false, Ordering::SeqCst);
    receive_grants(&mut harness, 1..=BRISK).await;
    until("the move begins", || harness.store.attaches.load(Ordering::SeqCst) == 2).await;
    refuse_detaches(&harness, refused);
    harness.store.may_attach.store(true, Ordering::SeqCst);
    until("the lane is closed", || is_closed(&harness, LANE)).await;
    assert!(has_inbox(&harness, HOME));
    assert_eq!(harness.store.attaches.load(Ordering::SeqCst), 3, "to both, and to the session's connection again");
    harness.store.links()[LANE].inbox.lock().unwrap().take();
    receive_grants(&mut harness, 5..=4 + BRISK).await;
    pause(50).await;
    let (_locking, _, link) = waiter(&mut harness, 9).await;
    assert_eq!(link, 2, "there is another lane");
    assert_eq!(harness.store.attaches.load(Ordering::SeqCst), 3);
}

/// The inbox is back, and the store does not detach it from the lane.
#[tokio::test]
async fn p17_a_lane_that_keeps_the_inbox_is_closed() {
    let (mut harness, world) = at_lane().await;
    refuse_detaches(&harness, refused);
    world.runtime.store(1, Ordering::SeqCst);
    let (locking, id, link) = waiter(&mut harness, 5).await;
    assert_eq!(link, HOME);
    until("the lane is closed", || is_closed(&harness, LANE)).await;
    harness.store.links()[LANE].inbox.lock().unwrap().take();
    harness.expect_no_request();
    harness.push_range(id, 5, 1);
    assert_eq!(guard_of(locking).await.token(), token(5));
}

/// The inbox is back. The lane breaks before the inbox is detached from it, perhaps with a message that nobody has read.
#[tokio::test]
async fn p17_everything_is_asked_again_if_the_lane_breaks_before_the_detach() {
    let (mut harness, world) = at_lane().await;
    let (locking, id, link) = waiter(&mut harness, 5).await;
    assert_eq!(link, LANE);
    refuse_detaches(&harness, gone);
    world.runtime.store(1, Ordering::SeqCst);
    let _other = harness.lock_apart(30_000);
    let request = asked_again(&mut harness, id).await;
    assert!(!is_closed(&harness, LANE), "the lane itself is no reason to ask again");
    harness.reply(request, Outcome::Granted { token: token(5), left_us: 700 * MS, range: 1 }, 5);
    assert_eq!(guard_of(locking).await.token(), token(5));
}

/// The inbox is back because of a caller on another runtime. Nobody reads the lane any more, so the store is never seen to
/// detach the inbox from it, and a grant may lie there.
#[tokio::test]
async fn p17_a_detach_that_is_never_confirmed_is_a_loss() {
    let (mut harness, world) = at_lane().await;
    let (locking, id, link) = waiter(&mut harness, 5).await;
    assert_eq!(link, LANE);
    pause(50).await;
    harness.store.links()[LANE].is_stalled.store(true, Ordering::SeqCst);
    world.runtime.store(1, Ordering::SeqCst);
    let _other = harness.lock_apart(30_000);
    let (first, other) = harness.next_acquire().await;
    assert_ne!(other.id, id);
    harness.reply(first, queued(6, 60_000), 4);
    until("the lane is closed", || is_closed(&harness, LANE)).await;
    let request = asked_again(&mut harness, id).await;
    harness.reply(request, Outcome::Granted { token: token(5), left_us: 700 * MS, range: 1 }, 5);
    assert_eq!(guard_of(locking).await.token(), token(5));
}

/// The session has met another run of the store. The lane still leads to an old primary, which grants.
#[tokio::test]
async fn p17_a_message_of_another_run_is_not_believed() {
    let (mut harness, _world) = at_lane().await;
    let (locking, id, _) = waiter(&mut harness, 5).await;
    let lane = harness.store.links()[LANE].inbox.lock().unwrap().clone().unwrap();
    *harness.store.run.lock().unwrap() = "second".into();
    harness.store.links()[HOME].closed.store(true, Ordering::SeqCst);
    // A new run also gets a leave for each grant that was released.
    let asking = harness.next_but(|op| matches!(op, Op::Leave { .. }));
    let request = timeout(NOTICED, asking).await.expect("asked again");
    assert!(matches!(&request.op, Op::Acquire(again) if again.id == id) && request.link == 2, "{:?}", request.op);
    let (now_us, contention, rest) = (harness.store.server_us(), Contention::None, Rest::Done);
    let (left_us, range, event, token_of_old) = (1_000 * MS, 1, Event::Granted, token(9));
    let old = Delivery { to: id.session, now_us, contention, rest, id, token: token_of_old, left_us, range, event };
    lane(Message::Delivery(Name::new("name").unwrap(), old));
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(guard_of(locking).await.token(), token(8));
}
