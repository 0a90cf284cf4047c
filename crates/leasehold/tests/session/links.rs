//! Connections that break and reopen, and the replies that come over them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::seam::{Fault, World};
use leasehold::{LostReason, Released};
use leasehold_spec::{Op, Outcome, Was};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, pause, queued, token};
use crate::store::{any_error, gone};

#[tokio::test]
async fn p11_no_acquire_that_may_queue_is_sent_before_the_inbox_is_proved() {
    let mut harness = Harness::new().await;
    harness.store.may_attach.store(false, Ordering::SeqCst);
    harness.break_session_link();
    pause(50).await;
    let locking = harness.lock(30_000);
    pause(100).await;
    harness.expect_no_request();
    harness.store.may_attach.store(true, Ordering::SeqCst);
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    assert!(locking.await.unwrap().is_ok());
}

/// After a failover the old primary may live on, cut off, and grant locks to the clients that are still connected to
/// it.
#[tokio::test]
async fn p11_a_reply_of_another_run_is_not_believed() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (old, acquire) = harness.next_acquire().await;
    assert_eq!(old.link, 1, "the lane of the callers");
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    harness.await_session_link(3).await;
    harness.reply(old, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    let (request, again) = harness.next_acquire().await;
    assert_eq!((request.link, again.id), (2, acquire.id));
    pause(50).await;
    assert!(!locking.is_finished(), "granted by a run that is not the current one");
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

/// A reply was lost. Each request on this connection gets the reply to the request behind it.
#[tokio::test]
async fn p11_a_link_whose_answers_are_out_of_step_is_replaced() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(request.link, 1, "the lane of the callers");
    harness.reply(request, Outcome::Settled, 9);
    let (request, again) = harness.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    assert_ne!(request.link, 1, "no reply on this connection can be believed");
    assert!(harness.store.links()[1].closed.load(Ordering::SeqCst));
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

#[tokio::test]
async fn p11_a_leave_follows_its_acquire_on_the_same_link() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    locking.abort();
    let (leave, id) = harness.next_leave().await;
    assert_eq!((id, leave.link), (acquire.id, request.link));
    assert_eq!(request.link, 1, "the lane of the callers");
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(100).await;
    harness.expect_no_request();
    assert!(harness.leasehold.close().await.unconfirmed().is_empty());
}

/// A child that was forked from this process has the client's memory, and neither its thread nor its connections.
#[tokio::test]
async fn a_forked_child_changes_nothing_and_waits_for_nothing() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = harness.locked(30_000, 7).await;
    let (mutex, child) = (harness.leasehold.mutex("name"), harness.leasehold.clone());
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = leasehold::ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), unsupported);
    let closed = timeout(Duration::from_secs(1), child.close()).await.expect("no thread keeps the time in the child");
    assert!(closed.unconfirmed().is_empty(), "only the parent gives it back");
    pause(50).await;
    harness.expect_no_request();
    world.process.fetch_sub(1, Ordering::SeqCst);
    assert!(guard.is_valid(), "closed in the child alone");
}

/// A raw `clone` runs no fork handlers, so its child does not know that it is one. Before a request leaves the process,
/// the client asks the system for the process ID, and sends nothing from a child.
#[tokio::test]
async fn a_child_that_bypassed_the_fork_handlers_sends_nothing() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = harness.locked(30_000, 7).await;
    let (mutex, child) = (harness.leasehold.mutex("other"), harness.leasehold.clone());
    world.known_process.store(world.process(), Ordering::SeqCst);
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = leasehold::ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.try_lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), unsupported);
    assert_eq!(guard.release().await.unwrap_err().kind(), unsupported);
    let closed = timeout(Duration::from_secs(1), child.close()).await.expect("no thread keeps the time in the child");
    assert!(closed.unconfirmed().is_empty(), "only the parent gives it back");
    harness.expect_no_request();
}

/// The store refused a request for one lock. A waiter for another lock, whose request has no reply yet, must not get
/// that refusal.
#[tokio::test]
async fn a_refusal_reaches_no_other_caller() {
    let mut harness = Harness::new().await;
    let _guard = harness.locked(900, 7).await;
    let renewal = harness.next().await;
    let refused: leasehold::Error = leasehold::seam::lost("a", LostReason::Revoked).into();
    let text = refused.to_string();
    renewal.reply.send(Err(Fault::Refused(refused))).unwrap();
    pause(50).await;
    harness.store.may_attach.store(false, Ordering::SeqCst);
    harness.break_session_link();
    pause(50).await;
    let error = harness.leasehold.mutex("other").try_lock_for(Duration::from_millis(50)).await.unwrap_err();
    assert_ne!(error.to_string(), text);
}

/// The store is away, and the request was never sent: its caller may safely use another store.
#[tokio::test]
async fn a_call_that_was_never_sent_did_nothing() {
    let mut harness = Harness::new().await;
    let (first, second) = (harness.try_lock("one"), harness.try_lock("two"));
    let ((one, _), (two, _)) = (harness.next_acquire().await, harness.next_acquire().await);
    harness.store.go_away();
    drop(one.reply.send(Err(gone())));
    let error = first.await.unwrap().unwrap_err();
    assert!(error.may_have_acted(), "the request was sent, so the state is unknown");
    drop(two.reply.send(Err(Fault::Gone(error))));
    assert!(second.await.unwrap().unwrap_err().may_have_acted());
    // The errors of those requests say nothing about the next ones.
    let mutex = harness.leasehold.mutex("other");
    let at_once = mutex.try_lock().await.unwrap_err();
    let in_time = mutex.try_lock_for(Duration::from_millis(20)).await.unwrap_err();
    let rechecked = mutex.inspect().await.unwrap_err();
    let acted = [at_once, in_time, rechecked].map(|error| error.may_have_acted());
    assert_eq!(acted, [false; 3], "try_lock, try_lock_for and inspect");
    harness.expect_no_request();
}

/// The store said why it cannot be used, and the session closed the connection for that reason. The other requests on
/// this connection get the same reason, and not only "the connection broke".
#[tokio::test]
async fn every_request_on_a_closed_link_gets_the_reason() {
    let mut harness = Harness::new().await;
    let calls = ["one", "two"].map(|name| harness.try_lock(name));
    let ((one, _), (two, _)) = (harness.next_acquire().await, harness.next_acquire().await);
    assert_eq!(one.link, two.link);
    let reason: leasehold::Error = leasehold::seam::lost("a", LostReason::Forgotten).into();
    let text = reason.to_string();
    drop(one.reply.send(Err(Fault::Gone(reason))));
    pause(50).await;
    drop(two.reply.send(Err(gone())));
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.to_string().contains(&text) && error.may_have_acted(), "{error}");
    }
    // The next connection has its own reasons. For a moment there may be none. Then the request is not sent, and the
    // error says so.
    let (third, three) = loop {
        let mut third = harness.try_lock("three");
        // This leave is answered. Without a reply the session would give up its own connection, and this request may be
        // on its way to it.
        let three = async {
            loop {
                let request = harness.next().await;
                match request.op {
                    Op::Leave { .. } => harness.reply(request, Outcome::Left { was: Was::Absent }, 0),
                    _ => break request,
                }
            }
        };
        tokio::select! {
            three = three => break (third, three),
            early = &mut third => assert!(!early.unwrap().unwrap_err().may_have_acted()),
        }
    };
    assert_ne!(three.link, one.link);
    drop(three.reply.send(Err(gone())));
    let error = third.await.unwrap().unwrap_err();
    assert!(!error.to_string().contains(&text), "{error}");
}

/// A damaged record stays unreadable however often it is read. Callers of that name get an error after a few tries on a
/// connection that answers all other requests. No other caller is affected.
#[tokio::test]
async fn a_damaged_record_fails_its_own_callers_and_breaks_no_link() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let mutex = harness.leasehold.mutex("damaged");
    let locking = tokio::spawn(async move { mutex.lock().await });
    let pings = harness.store.pings.load(Ordering::SeqCst);
    for attempt in 0.. {
        let request = harness.next().await;
        let is_over = matches!(request.op, Op::Leave { .. });
        assert!(attempt < 10, "the session repeats the request for ever");
        drop(request.reply.send(Err(Fault::Damaged(any_error()))));
        if is_over {
            break;
        }
    }
    let error = timeout(Duration::from_secs(10), locking).await.expect("notified").unwrap().unwrap_err();
    assert_eq!((error.reason(), error.may_have_acted()), (any_error().reason(), true));
    assert!(harness.store.pings.load(Ordering::SeqCst) > pings, "the session pings the connection");
    assert_eq!(harness.store.links().len(), 2);
    assert_eq!(guard.check(), Ok(token(7)));
    // One unreadable reply counts as none: it may be a fault of a proxy. The next reply counts.
    let releasing = tokio::spawn(guard.release());
    let release = harness.next_but(|op| matches!(op, Op::Leave { .. })).await;
    drop(release.reply.send(Err(Fault::Damaged(any_error()))));
    let release = harness.next_but(|op| matches!(op, Op::Leave { .. })).await;
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// The wait is over before the session has asked again. The store has replied, so nobody has to look at the network.
#[tokio::test]
async fn a_short_wait_for_a_damaged_record_reports_the_damage() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("damaged");
    let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(20)).await });
    let request = harness.next().await;
    drop(request.reply.send(Err(Fault::Damaged(any_error()))));
    let error = timeout(Duration::from_secs(10), trying).await.expect("notified").unwrap().unwrap_err();
    assert_eq!((error.reason(), error.may_have_acted()), (any_error().reason(), true));
}

/// One request stays unanswered, and other requests on the same connection are answered all the time. The server is
/// behind, and the ping waits there like every other request. Returns whether the connection is given up before
/// `within_ms`.
async fn is_given_up(ping_ms: u64, within_ms: u64) -> bool {
    let mut harness = Harness::new().await;
    harness.store.ping_ms.store(ping_ms, Ordering::SeqCst);
    let _waiting = harness.lock(600);
    let (unanswered, first) = harness.next_acquire().await;
    let lane = Arc::clone(&harness.store.links()[1]);
    assert_eq!(unanswered.link, lane.number.load(Ordering::SeqCst), "the lane of the callers");
    let pings = harness.store.pings.load(Ordering::SeqCst);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(within_ms) && !lane.closed.load(Ordering::SeqCst) {
        let trying = harness.try_lock("other");
        loop {
            let request = harness.next().await;
            match &request.op {
                // The lane is suspect, so the session sends by its own connection.
                Op::Acquire(acquire) if acquire.id == first.id => harness.reply(request, queued(1, 60_000), 7),
                Op::Acquire(_) => {
                    harness.reply(request, Outcome::Busy { left_us: 60_000 * MS }, 7);
                    break;
                }
                // This try was never sent: the connection was given up before.
                _ => break,
            }
        }
        let tried = trying.await.unwrap();
        assert!(matches!(tried, Ok(None)) || lane.closed.load(Ordering::SeqCst), "{tried:?}");
        pause(5).await;
    }
    assert!(harness.store.pings.load(Ordering::SeqCst) > pings, "the connection was never suspect");
    lane.closed.load(Ordering::SeqCst)
}

#[tokio::test]
async fn p11_a_link_that_goes_on_answering_is_not_replaced() {
    assert!(!is_given_up(1_200, 2_000).await);
}

/// The server answers every request but the ping. The connection must not live on for ever in this way.
#[tokio::test]
async fn p11_a_link_that_never_answers_its_ping_is_replaced() {
    assert!(is_given_up(60_000, 30_000).await);
}
