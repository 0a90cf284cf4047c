//! Leaves, and requests of callers that are sent before or behind them (P14).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_spec::{Answer, Contention, Op, Outcome, Rest, Was};

use crate::harness::{Harness, pause, queued, token};

/// The session's thread repeats the request of a waiter that has a short lease, on the same link. The first answer shows
/// that the waiter has sent its own request. So the leave behind both requests closes the attempt.
#[tokio::test]
async fn p14_one_leave_is_enough_behind_an_answered_request() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_millis(1_500));
    // This waiter has no runtime of its own, so it also sends by the session's connection.
    let trying = std::thread::spawn(move || pollster::block_on(mutex.try_lock_for(Duration::from_millis(5))));
    let (request, _) = harness.next_acquire().await;
    let (again, _) = harness.next_acquire().await;
    assert_eq!(request.link, again.link);
    harness.reply(request, queued(1, 60_000), 7);
    let result = tokio::task::spawn_blocking(|| trying.join().unwrap()).await.unwrap();
    assert!(result.expect("it was answered in time").is_none());
    let leave = harness.next_but(|op| matches!(op, Op::Acquire(_))).await;
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
    // The store would refuse the request after 2 s.
    pause(2_500).await;
    harness.expect_no_request();
}

/// The first waiter of a local queue has not sent its request when its deadline passes: its task has used up its budget
/// (`consume_budget`), and then blocks its runtime. The thread sends a leave for it. Then the task goes on, and sends
/// the request after that leave. The store grants a lease that nobody holds, so the session has to leave again.
#[tokio::test]
async fn p14_a_request_that_is_sent_behind_its_leave_is_left_again() {
    for is_local in [false, true] {
        let harness = Harness::new().await;
        let mut mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
        if !is_local {
            mutex = mutex.fair(); // An attempt of its own.
        }
        let result = tokio::spawn(async move {
            let mut locking = Box::pin(mutex.try_lock_for(Duration::from_millis(10)));
            let mut has_blocked = false;
            std::future::poll_fn(|context| {
                if !std::mem::replace(&mut has_blocked, true) {
                    while std::pin::pin!(tokio::task::consume_budget()).poll(context).is_ready() {}
                    assert!(locking.as_mut().poll(context).is_pending());
                    std::thread::sleep(Duration::from_millis(800));
                    context.waker().wake_by_ref();
                    return std::task::Poll::Pending;
                }
                locking.as_mut().poll(context)
            })
            .await
        });
        // The store replies at once, even while the runtime of the caller is blocked.
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let (said, store) = (Arc::clone(&order), Arc::clone(&harness.store));
        *harness.store.at_once.lock().unwrap() = Some(Box::new(move |op| {
            let mut order = said.lock().unwrap();
            let (outcome, highest) = match op {
                Op::Acquire(acquire) => {
                    assert!(store.server_us() < acquire.not_after_us, "the store executes the request");
                    // The reply is still in flight when the caller's deadline passes.
                    order.push("acquire: granted");
                    return None;
                }
                Op::Leave { .. } if order.last() == Some(&"acquire: granted") => {
                    order.push("leave: was granted");
                    (Outcome::Left { was: Was::Granted }, token(7))
                }
                Op::Leave { .. } => {
                    order.push("leave: absent");
                    (Outcome::Left { was: Was::Absent }, token(6))
                }
                other => panic!("{other:?}"),
            };
            let (contention, rest, now_us) = (Contention::None, Rest::Done, store.server_us());
            Some(Answer { now_us, highest, contention, rest, handed_claim_ms: None, outcome })
        }));
        let result = result.await.unwrap();
        assert!(!matches!(result, Ok(Some(_))), "its deadline had passed");
        // The store refuses the request after 2 s. One more second is slack.
        pause(3_500).await;
        let order = order.lock().unwrap().clone();
        println!("local queue: {is_local}: {order:?}, result {result:?}");
        let is_given_back = order.last() != Some(&"acquire: granted");
        assert!(is_given_back, "local queue: {is_local}: nobody holds the grant, for its whole lease: {order:?}");
    }
}
