//! Latches: a count-down is repeated until it has a reply, and once more at a new run (P44).

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_spec::{GrantId, Joined, Op, Outcome, Refusal, Token};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{Harness, pause, token};
use crate::store::{Request, any_error, gone};
use leasehold::seam::Fault;

fn counted(left: u32) -> Outcome {
    Outcome::Counted { left, born: token(7) }
}

/// Begins a count-down. Returns the request that counts.
async fn begin(harness: &mut Harness) -> (JoinHandle<leasehold::Result<()>>, Request, GrantId) {
    let latch = harness.leasehold.latch("name");
    let counting = tokio::spawn(async move { latch.count_down().await });
    let look = harness.next().await;
    assert!(matches!(look.op, Op::CreateLatch { limit: 0, .. }), "{:?}", look.op);
    harness.reply(look, counted(2), 7);
    let count = harness.next().await;
    let (id, born) = count_of(&count);
    assert_eq!(born, token(7));
    (counting, count, id)
}

fn count_of(request: &Request) -> (GrantId, Token) {
    match request.op {
        Op::CountDown { id, born } => (id, born),
        ref other => panic!("not a count-down: {other:?}"),
    }
}

#[tokio::test]
async fn p44_a_count_down_is_repeated_with_its_id() {
    let mut harness = Harness::new().await;
    let (counting, count, id) = begin(&mut harness).await;
    drop(count.reply.send(Err(gone())));
    let again = harness.next().await;
    assert_eq!(count_of(&again), (id, token(7)));
    assert!(!counting.is_finished());
    harness.reply(again, counted(1), 7);
    counting.await.unwrap().unwrap();
    pause(50).await;
    harness.expect_no_request();
}

/// The caller knows that nothing was counted, and may count down again. A repeated request would count as well.
#[tokio::test]
async fn p44_a_count_down_that_the_store_refuses_is_not_repeated() {
    let mut harness = Harness::new().await;
    let (counting, count, _) = begin(&mut harness).await;
    drop(count.reply.send(Err(Fault::NoMemory(any_error()))));
    let error = counting.await.unwrap().unwrap_err();
    assert!(!error.may_have_acted(), "{error}");
    // It would be repeated after 250 ms.
    pause(400).await;
    harness.expect_no_request();
}

/// The first request may have counted: its reply was lost.
#[tokio::test]
async fn p44_a_count_down_that_is_refused_later_may_have_counted() {
    let mut harness = Harness::new().await;
    let (counting, count, id) = begin(&mut harness).await;
    drop(count.reply.send(Err(gone())));
    let again = harness.next().await;
    assert_eq!(count_of(&again).0, id);
    drop(again.reply.send(Err(Fault::NoMemory(any_error()))));
    let error = counting.await.unwrap().unwrap_err();
    assert!(error.may_have_acted(), "{error}");
}

/// Also if nobody waits for it any more.
#[tokio::test]
async fn p44_a_count_down_is_repeated_without_its_caller() {
    let mut harness = Harness::new().await;
    let (counting, count, id) = begin(&mut harness).await;
    counting.abort();
    drop(count.reply.send(Err(gone())));
    let again = harness.next().await;
    assert_eq!(count_of(&again).0, id);
    harness.reply(again, counted(1), 7);
    pause(50).await;
    harness.expect_no_request();
}

/// A failover may have forgotten a count-down that was confirmed. The latch would never open.
#[tokio::test]
async fn p44_a_count_down_is_repeated_at_a_new_run() {
    let mut harness = Harness::new().await;
    let (counting, count, id) = begin(&mut harness).await;
    harness.reply(count, counted(1), 7);
    counting.await.unwrap().unwrap();
    for run in ["second", "third"] {
        *harness.store.run.lock().unwrap() = run.into();
        harness.break_session_link();
        let again = timeout(Duration::from_secs(5), harness.next()).await.expect("repeated");
        assert_eq!(count_of(&again), (id, token(7)));
        harness.reply(again, counted(1), 7);
        pause(50).await;
    }
    harness.expect_no_request();
}

/// Nobody holds a closed latch, so there is no lease whose end a waiter could await. It asks at its usual pace.
#[tokio::test]
async fn a_waiter_of_a_closed_latch_asks_at_its_pace() {
    let mut harness = Harness::new().await;
    let latch = harness.leasehold.latch("name");
    let waiting = tokio::spawn(async move { latch.wait_for(Duration::from_secs(600)).await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Queued { ticket: 42, left_us: 0, joined: Joined::Now }, 7);
    pause(500).await;
    harness.expect_no_request();
    assert!(!waiting.is_finished());
}

/// The latch was deleted between the two requests of a count-down.
#[tokio::test]
async fn a_count_down_of_a_latch_that_is_gone_is_an_error() {
    let mut harness = Harness::new().await;
    let (counting, count, _) = begin(&mut harness).await;
    harness.reply(count, Outcome::Refused(Refusal::Absent), 7);
    let error = counting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Absent, "{error}");
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    harness.await_session_link(1).await;
    pause(50).await;
    harness.expect_no_request();
}
