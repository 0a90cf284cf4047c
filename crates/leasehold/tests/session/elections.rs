//! Elections: an observer misses no change between its requests (P48). A leader that hands over is sure of the result, or
//! does not lead any more (P51).

use std::sync::Arc;
use std::time::Duration;

use leasehold::{ErrorKind, Leadership};
use leasehold_spec::{Acquire, GrantId, Inspection, Joined, Kind, LostHow, Op, Outcome, Take, Was};
use tokio::task::JoinHandle;

use crate::harness::{Harness, pause, token};
use crate::store::{Request, gone};

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

/// Elects a leader that begins to hand over. Returns its request, and its grant.
async fn hand_over(harness: &mut Harness) -> (JoinHandle<leasehold::Result<Option<Leadership>>>, Request, GrantId) {
    let election = harness.leasehold.election("name");
    let handing = tokio::spawn(async move { election.campaign("a").await?.hand_to("b").await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000_000, range: 1 }, 7);
    let notify = harness.next().await;
    harness.reply(notify, Outcome::Notified { count: 0 }, 7);
    let request = harness.next().await;
    assert_eq!(request.op, Op::HandTo { id, token: token(7), label: "b".into() });
    (handing, request, id)
}

/// The leader cannot know whether the named candidate leads. It is not to lead on, and the request is not to be repeated: a
/// late copy could take the leadership from a leader that has learned that the candidate is not there.
#[tokio::test]
async fn p51_a_leader_without_a_reply_does_not_lead_on() {
    let mut harness = Harness::new().await;
    let (handing, request, id) = hand_over(&mut harness).await;
    drop(request.reply.send(Err(gone())));
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(7) });
    harness.reply(release, Outcome::Released, 7);
    handing.await.unwrap().expect_err("it does not know whether it leads");
    pause(50).await;
    harness.expect_no_request();
}

/// The same if the future is dropped.
#[tokio::test]
async fn p51_a_leader_whose_hand_over_is_dropped_does_not_lead_on() {
    let mut harness = Harness::new().await;
    let (handing, request, id) = hand_over(&mut harness).await;
    handing.abort();
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(7) });
    harness.reply(release, Outcome::Released, 7);
    harness.reply_if_heard(request, Outcome::NoWaiter, 7);
    pause(50).await;
    harness.expect_no_request();
}

#[tokio::test]
async fn a_leader_leads_on_if_its_candidate_is_not_there() {
    let mut harness = Harness::new().await;
    let (handing, request, _) = hand_over(&mut harness).await;
    harness.reply(request, Outcome::NoWaiter, 7);
    let leadership = handing.await.unwrap().unwrap().expect("it leads on");
    leadership.check().expect("it leads");
    harness.expect_no_request();
}

/// The store replies to `put` that the leadership is lost. Tasks that ask the guard learn it as well, and not only from the
/// next renewal.
#[tokio::test]
async fn a_leader_that_learns_of_its_loss_from_put_has_lost() {
    let mut harness = Harness::new().await;
    let election = harness.leasehold.election("name");
    let leading = tokio::spawn(async move { election.campaign("a").await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000_000, range: 1 }, 7);
    let notify = harness.next().await;
    harness.reply(notify, Outcome::Notified { count: 0 }, 7);
    let leadership = Arc::new(leading.await.unwrap().unwrap());
    let putting = tokio::spawn({
        let leadership = Arc::clone(&leadership);
        async move { leadership.put("b").await }
    });
    let put = harness.next().await;
    assert_eq!(put.op, Op::Put { id, token: token(7), label: "b".into() });
    harness.reply(put, Outcome::Lost { how: LostHow::NotHeld }, 8);
    assert_eq!(putting.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    assert!(leadership.check().is_err());
    leadership.lost().await;
}

/// The reply to the notification of the observers is slow, and the lease ends meanwhile.
#[tokio::test]
async fn a_leader_that_lost_its_lease_before_it_leads_is_a_candidate_again() {
    let mut harness = Harness::new().await;
    let election = harness.leasehold.election("name").lease(Duration::from_millis(200));
    let campaigning = tokio::spawn(async move { election.campaign("a").await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 200_000, range: 1 }, 7);
    let _unanswered = harness.next().await;
    assert_eq!(_unanswered.op, Op::Notify { count: u32::MAX });
    let again = loop {
        let request = harness.next().await;
        match &request.op {
            Op::Renew(_) => harness.reply(request, Outcome::Lost { how: LostHow::NotHeld }, 8),
            Op::Release { .. } | Op::Leave { .. } => harness.reply(request, Outcome::NotHeld, 8),
            _ => break request,
        }
    };
    assert!(matches!(&again.op, Op::Acquire(again) if again.id != id), "{:?}", again.op);
    harness.reply(again, Outcome::Granted { token: token(9), left_us: 200_000, range: 1 }, 9);
    let notify = harness.next_but_renewals().await;
    assert_eq!(notify.op, Op::Notify { count: u32::MAX });
    harness.reply(notify, Outcome::Notified { count: 0 }, 9);
    let leadership = campaigning.await.unwrap().unwrap();
    assert_eq!(leadership.token(), token(9));
    leadership.check().expect("it leads");
}

/// The message of a notification is faster than the reply that says the place in the queue. The observer's future is
/// dropped before it has looked.
#[tokio::test]
async fn p42_an_observer_that_is_dropped_gives_its_notification_back() {
    let mut harness = Harness::new().await;
    let mut observer = harness.leasehold.election("name").observe();
    let observing = tokio::spawn(async move { observer.next().await });
    let (_unanswered, Acquire { id, .. }) = harness.next_acquire().await;
    harness.push(id, 8, harness.store.server_us(), 30_000_000);
    let look = harness.next().await;
    assert_eq!(look.op, Op::Inspect);
    observing.abort();
    let (_, left) = harness.next_leave().await;
    assert_eq!(left, id);
}

/// The name is a semaphore. One of its holders is no leader.
#[tokio::test]
async fn a_name_of_another_kind_has_no_leader() {
    let mut harness = Harness::new().await;
    let (election, mut observer) = (harness.leasehold.election("name"), harness.leasehold.election("name").observe());
    let asking = tokio::spawn(async move { election.leader().await });
    let inspection = || Outcome::Inspected(Inspection { kind: Kind::Semaphore, ..Inspection::default() });
    let look = harness.next().await;
    harness.reply(look, inspection(), 7);
    assert_eq!(asking.await.unwrap().unwrap_err().kind(), ErrorKind::Mismatch);
    let observing = tokio::spawn(async move { observer.next().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Queued { ticket: 42, left_us: 0, joined: Joined::Now }, 7);
    let look = harness.next().await;
    harness.reply(look, inspection(), 7);
    assert_eq!(observing.await.unwrap().unwrap_err().kind(), ErrorKind::Mismatch);
}
