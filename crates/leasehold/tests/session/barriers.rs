//! Barriers: a party arrives once, and the store says how its round has ended (P52).

use std::time::{Duration, Instant};

use leasehold::seam::Fault;
use leasehold::{BarrierWaitResult, ErrorKind};
use leasehold_spec::{Acquire, GrantId, Joined, Op, Outcome, Patience, Refusal, Take, Was};
use tokio::task::JoinHandle;

use crate::harness::{Harness, MS, pause, token};
use crate::store::{any_error, gone};

const LEASE_MS: u64 = 300;
const TICKET: u64 = 42;
/// A moment at which a call has ended that ends at all.
const SOON: Duration = Duration::from_secs(10);

type Arrival = JoinHandle<leasehold::Result<Option<BarrierWaitResult>>>;

fn through(place: u64) -> Outcome {
    Outcome::Granted { token: token(9), left_us: LEASE_MS * MS, range: place }
}

/// Begins to wait. Returns the arrival once the store has put it into the queue.
async fn waits(harness: &mut Harness, within: Duration) -> (Arrival, GrantId) {
    waits_with(harness, Duration::from_millis(LEASE_MS), within).await
}

async fn waits_with(harness: &mut Harness, lease: Duration, within: Duration) -> (Arrival, GrantId) {
    let barrier = harness.leasehold.barrier("name", 3).lease(lease);
    let waiting = tokio::spawn(async move { barrier.wait_for(within).await });
    let (request, Acquire { id, take, .. }) = harness.next_acquire().await;
    assert_eq!(take, Take::arrival(3));
    harness.reply(request, Outcome::Queued { ticket: TICKET, left_us: 0, joined: Joined::Now }, 7);
    (waiting, id)
}

async fn end(waiting: Arrival) -> leasehold::Result<Option<BarrierWaitResult>> {
    tokio::time::timeout(SOON, waiting).await.expect("it ends").unwrap()
}

async fn is_broken(waiting: Arrival) {
    assert_eq!(end(waiting).await.unwrap_err().kind(), ErrorKind::Broken);
}

/// The message says the place. The grant guards nothing, and is released.
#[tokio::test]
async fn p52_a_message_lets_a_party_through() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, SOON).await;
    harness.push_range(id, 9, 3);
    assert_eq!(end(waiting).await.unwrap().unwrap().index(), 2);
    let release = harness.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
}

/// The round was broken: a re-check is refused, or the attempt is over. The party does not arrive again.
#[tokio::test]
async fn p52_a_party_of_a_broken_round_does_not_arrive_again() {
    for outcome in [Outcome::Refused(Refusal::Absent), Outcome::Gone] {
        let mut harness = Harness::new().await;
        let (waiting, _) = waits(&mut harness, SOON).await;
        let (request, again) = harness.next_acquire().await;
        assert!(matches!(again.patience, Patience::Queue(place) if place.ticket == Some(TICKET)));
        harness.reply(request, outcome, 7);
        is_broken(waiting).await;
        pause(LEASE_MS).await;
        while let Some(request) = harness.try_next() {
            assert!(!matches!(request.op, Op::Acquire(_)), "{:?}", request.op);
        }
    }
}

/// No reply comes for a lease. The party may have arrived, and its round may have been let through and forgotten. It fails,
/// and no request of it can be executed later.
#[tokio::test]
async fn p52_a_party_without_a_reply_does_not_arrive_later() {
    let mut harness = Harness::new().await;
    let barrier = harness.leasehold.barrier("name", 3).lease(Duration::from_millis(LEASE_MS));
    let begun = Instant::now();
    let server_us = harness.store.server_us();
    let waiting = tokio::spawn(async move { barrier.wait_for(SOON).await });
    let mut requests = 0;
    while !waiting.is_finished() && begun.elapsed() < SOON {
        let Some(request) = harness.try_next() else {
            pause(1).await;
            continue;
        };
        match &request.op {
            Op::Acquire(acquire) => {
                requests += 1;
                // The clock of the store is known to some milliseconds, and the first request was sent a moment later.
                let within_us = acquire.not_after_us.saturating_sub(server_us);
                assert!(within_us <= LEASE_MS * MS + 50 * MS, "executed after {within_us} µs");
                drop(request.reply.send(Err(gone())));
            }
            Op::Leave { .. } => harness.reply(request, Outcome::Left { was: Was::Absent }, 7),
            other => panic!("{other:?}"),
        }
    }
    is_broken(waiting).await;
    assert!(requests > 0 && begun.elapsed() >= Duration::from_millis(LEASE_MS), "{requests} requests");
}

/// The first request may be executed late. If the repeated one had ended in a round, the late one would count in the next.
#[tokio::test]
async fn p52_a_party_does_not_arrive_again_while_its_first_request_may_be_executed() {
    let mut harness = Harness::new().await;
    let barrier = harness.leasehold.barrier("name", 3).lease(Duration::from_secs(30));
    let _waiting = tokio::spawn(async move { barrier.wait().await });
    let (request, first) = harness.next_acquire().await;
    drop(request.reply.send(Err(gone())));
    let (request, again) = harness.next_acquire().await;
    assert_eq!(again.id, first.id);
    let now_us = harness.store.server_us();
    assert!(now_us > first.not_after_us, "{} µs too early", first.not_after_us - now_us);
    harness.reply(request, Outcome::Queued { ticket: TICKET, left_us: 0, joined: Joined::Now }, 7);
}

/// A failover can bring a place back that was given up, and it would count in the round of others.
#[tokio::test]
async fn p52_at_a_new_run_a_party_leaves_the_places_that_it_has_given_up() {
    for ends in ["through", "dismissed", "dropped"] {
        let mut harness = Harness::new().await;
        let (waiting, id) = waits(&mut harness, SOON).await;
        if ends == "dropped" {
            waiting.abort();
            let (leave, left) = harness.next_leave().await;
            assert_eq!(left, id);
            harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
        } else if ends == "through" {
            harness.push_range(id, 9, 3);
            end(waiting).await.unwrap().unwrap();
            let release = harness.next_but_renewals().await;
            harness.reply(release, Outcome::Released, 9);
        } else {
            let (request, _) = harness.next_acquire().await;
            harness.reply(request, Outcome::Refused(Refusal::Absent), 7);
            is_broken(waiting).await;
        }
        pause(50).await;
        harness.expect_no_request();
        *harness.store.run.lock().unwrap() = "another run".into();
        harness.break_session_link();
        let (leave, left) = harness.next_leave().await;
        assert_eq!(left, id, "{ends}");
        harness.reply(leave, Outcome::Left { was: Was::Absent }, 9);
    }
}

/// The time of a party is over. It asks once more, with no time left, and the store decides.
#[tokio::test]
async fn p52_a_party_whose_time_is_over_asks_how_its_round_ends() {
    for (outcome, index) in [(through(2), Some(1)), (Outcome::Refused(Refusal::Absent), None)] {
        let mut harness = Harness::new().await;
        // Shorter than the time to the first re-check.
        let (waiting, id) = waits(&mut harness, Duration::from_millis(40)).await;
        let (request, last) = harness.next_acquire().await;
        assert_eq!(last.id, id);
        let Patience::Queue(place) = last.patience else { panic!("it does not wait") };
        assert_eq!((place.ticket, place.limit_ms), (Some(TICKET), Some(0)));
        assert!(!waiting.is_finished());
        harness.reply(request, outcome, 9);
        assert_eq!(end(waiting).await.unwrap().map(|passed| passed.index()), index);
    }
}

/// The store is busy. Its reply comes a second later, and is still in time.
#[tokio::test]
async fn p52_a_party_whose_time_is_over_waits_for_a_slow_reply() {
    let mut harness = Harness::new().await;
    let (waiting, _) = waits_with(&mut harness, Duration::from_secs(30), Duration::from_millis(40)).await;
    let (request, _) = harness.next_acquire().await;
    pause(1_000).await;
    assert!(!waiting.is_finished());
    harness.reply(request, Outcome::Refused(Refusal::Absent), 9);
    assert!(end(waiting).await.unwrap().is_none());
}

/// The last request has no reply either. Then nobody knows, and the caller gets an error.
#[tokio::test]
async fn p52_a_party_whose_last_request_has_no_reply_does_not_say_none() {
    let mut harness = Harness::new().await;
    let (waiting, _) = waits(&mut harness, Duration::from_millis(40)).await;
    let (_unanswered, _) = harness.next_acquire().await;
    assert_eq!(end(waiting).await.unwrap_err().kind(), ErrorKind::Unreachable);
}

/// The store has the party, and the others may be let through with it. An error must not say that nothing was done.
#[tokio::test]
async fn p52_a_party_that_fails_may_have_arrived() {
    let mut harness = Harness::new().await;
    let (waiting, _) = waits_with(&mut harness, Duration::from_secs(30), Duration::from_millis(40)).await;
    let (request, _) = harness.next_acquire().await;
    drop(request.reply.send(Err(Fault::NoMemory(any_error()))));
    let error = end(waiting).await.unwrap_err();
    assert!(error.may_have_acted(), "the memory of the store is full: {error}");

    let mut harness = Harness::new().await;
    let (waiting, _) = waits_with(&mut harness, Duration::from_secs(30), Duration::from_millis(200)).await;
    harness.store.go_away();
    let error = end(waiting).await.unwrap_err();
    assert!(error.may_have_acted(), "the store is out of reach: {error}");
}
