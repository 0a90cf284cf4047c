//! Re-checks: requests by which waiters ask the store whether they were granted (P15).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::seam::{Fault, Message, World};
use leasehold_spec::{Joined, Name, Op, Outcome, Patience};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, pause, queued, token};
use crate::store::any_error;

#[tokio::test]
async fn p15_a_waiter_whose_push_was_lost_rechecks() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(600);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    let begun = Instant::now();
    let (recheck, again) = harness.next_acquire().await;
    // At the earliest after a third of the lease, less a fifth.
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
    assert_eq!(again.id, acquire.id);
    assert!(matches!(again.patience, Patience::Queue(place) if place.ticket == Some(42)));
    harness.reply(recheck, Outcome::Granted { token: token(8), left_us: 600 * MS, range: 1 }, 8);
    assert!(locking.await.unwrap().is_ok());
}

#[tokio::test]
async fn p15_a_waiter_rechecks_when_the_awaited_lease_ends_and_again_when_it_was_renewed() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (mut request, acquire) = harness.next_acquire().await;
    let begun = Instant::now();
    for turn in 1..=3 {
        harness.reply(request, queued(42, 200), 7);
        let recheck;
        (request, recheck) = harness.next_acquire().await;
        assert_eq!(recheck.id, acquire.id);
        let waited = begun.elapsed();
        // This is long before the waiter's own re-check, which is due in four seconds at the earliest.
        assert!((turn * Duration::from_millis(200)..Duration::from_millis(3_500)).contains(&waited), "{waited:?}");
    }
}

/// A server that lies, or a damaged record, can name such an end for any lease.
#[tokio::test]
async fn p15_a_lease_that_ends_beyond_all_time_stops_no_waiter() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(600);
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Queued { ticket: 42, left_us: u64::MAX, joined: Joined::Before }, 7);
    let (recheck, _) = harness.next_acquire().await;
    harness.reply(recheck, Outcome::Granted { token: token(8), left_us: 600 * MS, range: 1 }, 8);
    assert!(locking.await.unwrap().is_ok());
}

/// The store has seen the holder die, long before the waiter's own re-check is due and long before the lease ends.
#[tokio::test]
async fn p26_a_waiter_rechecks_when_the_holder_died() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 7);
    // Wait until the reply has arrived. A task of the caller receives it, and notifies nobody.
    pause(100).await;
    let begun = Instant::now();
    harness.send_message(Message::Recheck(Name::new("name").unwrap()));
    harness.send_message(Message::Recheck(Name::new("nobody waits for this one").unwrap()));
    let (recheck, again) = harness.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    assert!(begun.elapsed() < Duration::from_millis(3_500));
    // The store may have executed that re-check before the death of this message.
    harness.send_message(Message::Recheck(Name::new("name").unwrap()));
    assert_eq!(harness.next().await.op, Op::Settle);
    harness.reply(recheck, queued(42, 60_000), 7);
    pause(100).await;
    harness.expect_no_request();
}

/// The reply that queued the waiter is older than the death, and the caller's task received it late.
#[tokio::test]
async fn p26_a_reply_from_before_the_death_cancels_no_recheck() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    // Freeze the time, so that nothing is due before the reply arrives, and the waiter's own re-check never is.
    world.freeze();
    harness.send_message(Message::Recheck(Name::new("name").unwrap()));
    harness.reply(request, queued(42, 60_000), 7);
    pause(100).await;
    world.advance(10 * MS);
    let (_, again) = harness.next_acquire().await;
    assert_eq!(again.id, acquire.id);
}

/// A re-check would be refused then, like every request that could need memory.
#[tokio::test]
async fn p15_a_name_is_settled_when_the_memory_is_full() {
    let mut harness = Harness::new().await;
    let _locking = harness.lock(30_000);
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, queued(42, 100), 7);
    let (recheck, _) = harness.next_acquire().await;
    recheck.reply.send(Err(Fault::NoMemory(any_error()))).unwrap();
    assert_eq!(harness.next().await.op, Op::Settle);
}

/// Requests that become due while there is no connection wait for one. The thread must not check for it a thousand
/// times a second.
#[tokio::test]
async fn p15_a_lease_that_ends_while_the_store_is_away_causes_no_busy_loop() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _waiting = harness.lock(30_000);
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, queued(1, 100), 7);
    harness.store.may_attach.store(false, Ordering::SeqCst);
    harness.break_session_link();
    pause(200).await;
    let before = world.sleeps.load(Ordering::SeqCst);
    pause(500).await;
    let sleeps = world.sleeps.load(Ordering::SeqCst) - before;
    // One in every 50 ms.
    assert!(sleeps <= 20, "{sleeps} in half a second");
    harness.store.may_attach.store(true, Ordering::SeqCst);
    let (recheck, _) = harness.next_acquire().await;
    harness.reply(recheck, queued(1, 60_000), 7);
}

#[tokio::test]
async fn p15_every_waiter_rechecks_after_a_reconnect() {
    let mut harness = Harness::new().await;
    let _waiting = [harness.lock_apart(30_000), harness.lock_apart(30_000)];
    for ticket in [1, 2] {
        let (request, _) = harness.next_acquire().await;
        harness.reply(request, queued(ticket, 60_000), 7);
    }
    pause(50).await;
    harness.break_session_link();
    harness.await_session_link(3).await;
    for _ in 0..2 {
        // At once: without the reconnect the re-check would be due in four to six seconds.
        let (recheck, acquire) = timeout(Duration::from_secs(2), harness.next_acquire()).await.expect("a re-check");
        assert!(matches!(acquire.patience, Patience::Queue(place) if place.ticket.is_some()));
        harness.reply(recheck, queued(1, 60_000), 7);
    }
}

/// With so many waiters the server would be behind for longer than a connection is trusted. On a new connection they
/// re-check in turn.
#[tokio::test]
async fn p15_many_waiters_recheck_in_turn_after_a_reconnect() {
    const WAITERS: usize = 6_000;
    let mut harness = Harness::new().await;
    let _waiting: Vec<_> = (0..WAITERS).map(|number| harness.lock_as(&format!("name {number}"), 900_000)).collect();
    let mut queued_up = BTreeSet::new();
    while queued_up.len() < WAITERS {
        let (request, acquire) = harness.next_acquire().await;
        queued_up.insert(acquire.id.counter);
        harness.reply(request, queued(1, 900_000), 7);
    }
    harness.break_session_link();
    harness.await_session_link(3).await;
    let (mut unanswered, mut rechecked) = (Vec::new(), BTreeSet::new());
    let mut most = 0;
    while rechecked.len() < WAITERS {
        // Answer when no further request comes.
        let within = Duration::from_millis(if unanswered.is_empty() { 10_000 } else { 100 });
        if let Ok(Some(request)) = timeout(within, harness.requests.recv()).await {
            unanswered.push(request);
            continue;
        }
        assert!(!unanswered.is_empty(), "{} of {WAITERS} are forgotten", WAITERS - rechecked.len());
        let mut together = BTreeSet::new();
        for request in unanswered.drain(..) {
            let Op::Acquire(acquire) = &request.op else { panic!("{:?}", request.op) };
            together.insert(acquire.id.counter);
            harness.reply(request, queued(1, 900_000), 7);
        }
        most = most.max(together.len());
        rechecked.append(&mut together);
    }
    assert!(most < WAITERS, "all at once");
}

#[tokio::test]
async fn p15_a_recheck_that_rejoins_the_queue_makes_the_others_recheck() {
    let mut harness = Harness::new().await;
    let _early = harness.lock(3_000);
    let (request, early) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    let _late = harness.lock(30_000);
    let (request, late) = harness.next_acquire().await;
    harness.reply(request, queued(2, 60_000), 7);
    // The first re-check finds that its entry had been dropped. The other waiter would re-check in four seconds at the
    // earliest.
    let (recheck, again) = harness.next_acquire().await;
    assert_eq!(again.id, early.id);
    let begun = Instant::now();
    harness.reply(recheck, Outcome::Queued { ticket: 1, left_us: 60_000 * MS, joined: Joined::Now }, 7);
    let (_, again) = harness.next_acquire().await;
    assert_eq!(again.id, late.id);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "{:?}", begun.elapsed());
}

/// The reply to a request in flight may be older than what the message, or the connection that was replaced, has lost.
#[tokio::test]
async fn p15_a_request_in_flight_does_not_answer_a_message_that_was_lost() {
    for is_replaced in [false, true] {
        let mut harness = Harness::new().await;
        let locking = harness.lock(30_000);
        let (request, acquire) = harness.next_acquire().await;
        if is_replaced {
            harness.break_session_link();
            harness.await_session_link(3).await;
        } else {
            harness.send_message(Message::RecheckAll);
            pause(50).await;
        }
        harness.reply(request, queued(42, 60_000), 7);
        let (again, recheck) =
            timeout(Duration::from_secs(1), harness.next_acquire()).await.expect("asked again at once");
        assert_eq!(recheck.id, acquire.id);
        harness.reply(again, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
        assert!(locking.await.unwrap().is_ok());
    }
}

/// A turn of the session's thread may make many requests. Each one is sent before the next one is made, and no later
/// request overtakes it.
#[tokio::test]
async fn p11_a_turn_sends_all_that_it_has_noted() {
    const WAITING: usize = 300;
    let mut harness = Harness::new().await;
    let mut waiting = Vec::new();
    for number in 0..WAITING {
        waiting.push(harness.lock_as(&format!("name {number}"), 30_000));
        let (request, _) = harness.next_acquire().await;
        harness.reply(request, queued(1, 60_000), 7);
    }
    pause(50).await;
    let (made, sent) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let (at_the_last, sending) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&sent));
    let last = Arc::clone(&at_the_last);
    *harness.store.at_once.lock().unwrap() = Some(Box::new(move |_| {
        sending.fetch_add(1, Ordering::SeqCst);
        None
    }));
    *harness.store.on_ask.lock().unwrap() = Some(Arc::new(move |_: &Op| {
        if made.fetch_add(1, Ordering::SeqCst) + 1 == WAITING {
            last.store(sent.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }));
    harness.send_message(Message::RecheckAll);
    for _ in 0..WAITING {
        let _recheck = harness.next_acquire().await;
    }
    assert_eq!(at_the_last.load(Ordering::SeqCst), WAITING - 1);
}
