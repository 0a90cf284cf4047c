//! Connections that come and go, and what is heard over them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::seam::{Fault, World};
use leasehold::{LostReason, Released};
use leasehold_spec::{Op, Outcome, Was};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, queued, token};
use crate::store::{any_error, gone};

#[tokio::test]
async fn p11_no_acquire_that_may_queue_leaves_before_the_inbox_is_proved() {
    let mut bench = Bench::new().await;
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(50).await;
    let locking = bench.lock(30_000);
    pause(100).await;
    bench.nothing();
    bench.store.may_attach.store(true, Ordering::SeqCst);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    assert!(locking.await.unwrap().is_ok());
}

/// After a failover the old primary may live on, cut off, and grant to whoever is still connected to it.
#[tokio::test]
async fn p11_what_another_run_says_is_no_answer() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (old, acquire) = bench.next_acquire().await;
    assert_eq!(old.link, 1, "the callers' lane");
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    bench.home_again(3).await;
    bench.say(old, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }, 9);
    let (asked, again) = bench.next_acquire().await;
    assert_eq!((asked.link, again.id), (2, acquire.id));
    pause(50).await;
    assert!(!locking.is_finished(), "granted by a store that is not the one any more");
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

/// An answer that got lost makes each request hear that of the one behind it.
#[tokio::test]
async fn p11_a_link_whose_answers_are_out_of_step_is_replaced() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!(asked.link, 1, "the callers' lane");
    bench.say(asked, Outcome::Settled, 9);
    let (asked, again) = bench.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    assert_ne!(asked.link, 1, "nothing that is heard on it can be believed");
    assert!(bench.store.links()[1].closed.load(Ordering::SeqCst));
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

#[tokio::test]
async fn p11_a_leave_follows_its_acquire_on_the_same_link() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    locking.abort();
    let (leave, id) = bench.next_leave().await;
    assert_eq!((id, leave.link), (acquire.id, asked.link));
    assert_eq!(asked.link, 1, "the callers' lane");
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(100).await;
    bench.nothing();
    assert!(bench.leasehold.close().await.unconfirmed().is_empty());
}

/// A child that was forked from this process has the client's memory, and neither its thread nor its connections.
#[tokio::test]
async fn a_forked_child_changes_nothing_and_waits_for_nothing() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = bench.locked(30_000, 7).await;
    let (mutex, child) = (bench.leasehold.mutex("name"), bench.leasehold.clone());
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = leasehold::ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), unsupported);
    let closed = timeout(Duration::from_secs(1), child.close()).await.expect("nobody keeps the time there");
    assert!(closed.unconfirmed().is_empty(), "it is the parent's to give back");
    pause(50).await;
    bench.nothing();
    world.process.fetch_sub(1, Ordering::SeqCst);
    assert!(guard.is_valid(), "closed in the child alone");
}

/// A raw `clone` runs no fork handlers, so its child is not told. What leaves the process asks the system, and stays there.
#[tokio::test]
async fn a_child_that_was_not_told_of_its_fork_sends_nothing() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = bench.locked(30_000, 7).await;
    let (mutex, child) = (bench.leasehold.mutex("other"), bench.leasehold.clone());
    world.known_process.store(world.process(), Ordering::SeqCst);
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = leasehold::ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.try_lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), unsupported);
    assert_eq!(guard.release().await.unwrap_err().kind(), unsupported);
    let closed = timeout(Duration::from_secs(1), child.close()).await.expect("nobody keeps the time there");
    assert!(closed.unconfirmed().is_empty(), "it is the parent's to give back");
    bench.nothing();
}

/// What the store refused of one lock is no answer to who waits for another, of which nothing was heard.
#[tokio::test]
async fn a_refusal_is_told_to_nobody_else() {
    let mut bench = Bench::new().await;
    let _guard = bench.locked(900, 7).await;
    let renewal = bench.next().await;
    let refused: leasehold::Error = leasehold::seam::lost("a", LostReason::Revoked).into();
    let text = refused.to_string();
    renewal.reply.send(Err(Fault::Refused(refused))).unwrap();
    pause(50).await;
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(50).await;
    let error = bench.leasehold.mutex("other").try_lock_for(Duration::from_millis(50)).await.unwrap_err();
    assert_ne!(error.to_string(), text);
}

/// The store is away, and the call was never sent: its caller may go elsewhere without a thought.
#[tokio::test]
async fn a_call_that_was_never_sent_did_nothing() {
    let mut bench = Bench::new().await;
    let (first, second) = (bench.try_lock("one"), bench.try_lock("two"));
    let ((one, _), (two, _)) = (bench.next_acquire().await, bench.next_acquire().await);
    bench.store.go_away();
    drop(one.reply.send(Err(gone())));
    let error = first.await.unwrap().unwrap_err();
    assert!(error.may_have_acted(), "it was sent, and nobody knows");
    drop(two.reply.send(Err(Fault::Gone(error))));
    assert!(second.await.unwrap().unwrap_err().may_have_acted());
    // What happened to those is no word about these.
    let mutex = bench.leasehold.mutex("other");
    let at_once = mutex.try_lock().await.unwrap_err();
    let in_time = mutex.try_lock_for(Duration::from_millis(20)).await.unwrap_err();
    let looked = mutex.inspect().await.unwrap_err();
    let acted = [at_once, in_time, looked].map(|error| error.may_have_acted());
    assert_eq!(acted, [false; 3], "at once, in time, and a look");
    bench.nothing();
}

/// The store said why it is not the one to ask, and the link was given up for it. Who had other requests on it hears that
/// reason, and not only that a connection broke.
#[tokio::test]
async fn what_ends_a_link_is_told_to_everybody_on_it() {
    let mut bench = Bench::new().await;
    let calls = ["one", "two"].map(|name| bench.try_lock(name));
    let ((one, _), (two, _)) = (bench.next_acquire().await, bench.next_acquire().await);
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
    // The next link's fate is its own. There may be none for a moment: then the call does not go out, and says so.
    let (third, three) = loop {
        let mut third = bench.try_lock("three");
        // Answered: a leave that were not would cost the session its own link, which this call may be on its way to.
        let three = async {
            loop {
                let asked = bench.next().await;
                match asked.op {
                    Op::Leave { .. } => bench.say(asked, Outcome::Left { was: Was::Absent }, 0),
                    _ => break asked,
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

/// A record that is damaged makes no sense however often it is asked for. Whoever wants that name hears so, after a few
/// tries on a link that answers everybody else; nobody else hears anything of it.
#[tokio::test]
async fn a_damaged_record_is_told_to_who_wants_it_and_costs_nobody_a_link() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let mutex = bench.leasehold.mutex("damaged");
    let locking = tokio::spawn(async move { mutex.lock().await });
    let pings = bench.store.pings.load(Ordering::SeqCst);
    for attempt in 0.. {
        let asked = bench.next().await;
        let is_over = matches!(asked.op, Op::Leave { .. });
        assert!(attempt < 10, "asked for ever");
        drop(asked.reply.send(Err(Fault::Damaged(any_error()))));
        if is_over {
            break;
        }
    }
    let error = timeout(Duration::from_secs(10), locking).await.expect("told").unwrap().unwrap_err();
    assert_eq!((error.reason(), error.may_have_acted()), (any_error().reason(), true));
    assert!(bench.store.pings.load(Ordering::SeqCst) > pings, "the link is asked whether it is sound");
    assert_eq!(bench.store.links().len(), 2);
    assert_eq!(guard.check(), Ok(token(7)));
    // One answer that makes no sense is none: a proxy's hiccup, and the next one counts.
    let releasing = tokio::spawn(guard.release());
    let release = bench.next_but(|op| matches!(op, Op::Leave { .. })).await;
    drop(release.reply.send(Err(Fault::Damaged(any_error()))));
    let release = bench.next_but(|op| matches!(op, Op::Leave { .. })).await;
    bench.say(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// One request stays unanswered, and others by the same link are answered all the time: the server is behind, and the ping
/// waits there like everything else. Answers whether the link is given up before `within_ms`.
async fn is_given_up(ping_ms: u64, within_ms: u64) -> bool {
    let mut bench = Bench::new().await;
    bench.store.ping_ms.store(ping_ms, Ordering::SeqCst);
    let _waiting = bench.lock(600);
    let (unanswered, first) = bench.next_acquire().await;
    let lane = Arc::clone(&bench.store.links()[1]);
    assert_eq!(unanswered.link, lane.number.load(Ordering::SeqCst), "the callers' lane");
    let pings = bench.store.pings.load(Ordering::SeqCst);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(within_ms) && !lane.closed.load(Ordering::SeqCst) {
        let trying = bench.try_lock("other");
        loop {
            let asked = bench.next().await;
            match &asked.op {
                // In doubt of the lane, the session asks by its own link.
                Op::Acquire(acquire) if acquire.id == first.id => bench.say(asked, queued(1, 60_000), 7),
                Op::Acquire(_) => {
                    bench.say(asked, Outcome::Busy { left_us: 60_000 * MS }, 7);
                    break;
                }
                // Given up before this try was sent on it.
                _ => break,
            }
        }
        let tried = trying.await.unwrap();
        assert!(matches!(tried, Ok(None)) || lane.closed.load(Ordering::SeqCst), "{tried:?}");
        pause(5).await;
    }
    assert!(bench.store.pings.load(Ordering::SeqCst) > pings, "nobody was in doubt");
    lane.closed.load(Ordering::SeqCst)
}

#[tokio::test]
async fn p11_a_link_that_goes_on_answering_is_not_replaced() {
    assert!(!is_given_up(1_200, 2_000).await);
}

/// It answers everything but a ping. That is no way to live on for ever.
#[tokio::test]
async fn p11_a_link_that_never_answers_its_ping_is_replaced() {
    assert!(is_given_up(60_000, 30_000).await);
}
