//! Elections: an observer misses no change between its requests (P48).

use leasehold_spec::{Acquire, Inspection, Joined, Op, Outcome, Take, Was};

use crate::harness::{Harness, pause};

/// The observer enters the queue, and looks at the leader then. In the other order the leader could change between the two.
#[tokio::test]
async fn p48_an_observer_enters_the_queue_before_it_looks() {
    let mut harness = Harness::new().await;
    let mut observer = harness.leasehold.election("name").observe();
    let observing = tokio::spawn(async move { observer.next().await });
    let (request, Acquire { id, take, .. }) = harness.next_acquire().await;
    assert_eq!(take, Take::NOTIFICATION);
    pause(50).await;
    harness.expect_no_request();
    harness.reply(request, Outcome::Queued { ticket: 42, left_us: 0, joined: Joined::Now }, 7);
    let look = harness.next().await;
    assert_eq!(look.op, Op::Inspect);
    harness.reply(look, Outcome::Inspected(Inspection::default()), 7);
    assert_eq!(observing.await.unwrap().unwrap(), None);
    let (leave, left) = harness.next_leave().await;
    assert_eq!(left, id);
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
}
