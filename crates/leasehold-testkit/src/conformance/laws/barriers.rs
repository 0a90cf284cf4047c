//! Barriers: a round ends for all of its parties in the same way.

use std::time::Duration;

use leasehold::{Barrier, BarrierWaitResult, ErrorKind};
use leasehold_spec::Take;
use tokio::task::JoinHandle;

use crate::conformance::rules::Raw;
use crate::conformance::stage::{Stage, soon};

const SHORT: Duration = Duration::from_millis(50);
/// A party asks again at each third of it.
const LEASE: Duration = Duration::from_secs(2);

type Arrival = JoinHandle<leasehold::Result<BarrierWaitResult>>;

fn arrive(barrier: &Barrier) -> Arrival {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait().await })
}

async fn ended(arrival: Arrival) -> leasehold::Result<BarrierWaitResult> {
    soon("the round has ended", arrival).await.expect("no panic")
}

async fn is_broken(what: &str, arrival: Arrival) {
    let error = ended(arrival).await.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Broken, "{what}: {error}");
}

/// Three parties of two clients go through round after round. Each round has one leader: the party that came last.
pub(super) async fn a_round_is_let_through(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let [barrier, other] = [a.barrier(stage.name(), 3), b.barrier(stage.name(), 3)];
    for round in 1..=3 {
        assert!(barrier.wait_for(Duration::ZERO).await.expect("an answer").is_none(), "it does not arrive");
        let first = arrive(&barrier);
        stage.waiters(&a, 1).await;
        let second = arrive(&other);
        stage.waiters(&a, 2).await;
        let seen = other.inspect().await.expect("an answer");
        assert_eq!((seen.limit, seen.waiters), (3, 2));
        assert!(!first.is_finished() && !second.is_finished());
        let last = soon("it completes the round", other.wait()).await.expect("let through");
        assert!(last.is_leader() && last.index() == 0, "round {round}");
        let (first, second) = (ended(first).await.expect("let through"), ended(second).await.expect("let through"));
        assert_eq!((first.index(), second.index()), (2, 1), "round {round}");
        assert!(!first.is_leader() && !second.is_leader());
    }
    let alone = a.barrier(stage.name_of("alone"), 1);
    assert!(alone.wait().await.expect("let through").is_leader());
    assert!(alone.wait_for(Duration::ZERO).await.expect("an answer").is_some());
}

/// A party stops waiting: its future is dropped, or its time is over. The others fail, and the next round is let through.
pub(super) async fn a_party_that_leaves_breaks_the_round(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let [barrier, other] = [a.barrier(stage.name(), 3), b.barrier(stage.name(), 3)];
    let [here, there] = [arrive(&barrier), arrive(&other)];
    stage.waiters(&a, 2).await;
    there.abort();
    is_broken("a future of another client was dropped", here).await;
    let [here, there] = [arrive(&barrier), arrive(&barrier)];
    stage.waiters(&a, 2).await;
    there.abort();
    is_broken("a future of its own client was dropped", here).await;
    let here = arrive(&barrier);
    stage.waiters(&a, 1).await;
    assert!(other.wait_for(SHORT).await.expect("an answer").is_none());
    is_broken("the time of a party was over", here).await;
    passes(stage, [&barrier, &other]).await;
}

/// A party dies. The others fail, and the next round is let through without it.
pub(super) async fn a_dead_party_breaks_the_round(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let [barrier, other] = [a.barrier(stage.name(), 3).lease(LEASE), b.barrier(stage.name(), 3).lease(LEASE)];
    let here = arrive(&barrier);
    stage.waiters(&a, 1).await;
    Raw::attach_for(stage, Take::arrival(3)).await.queue_and_die(stage).await;
    is_broken("a party died", here).await;
    passes(stage, [&barrier, &other]).await;
}

/// Three parties of two clients go through a round.
async fn passes(stage: &Stage, [barrier, other]: [&Barrier; 2]) {
    let waiting = [arrive(barrier), arrive(other), arrive(other)];
    let mut leaders = 0;
    for waiting in waiting {
        leaders += u32::from(ended(waiting).await.expect("let through").is_leader());
    }
    assert_eq!(leaders, 1, "{}", stage.name());
}

/// Parties that disagree about the number or the kind get an error, and break nothing.
pub(super) async fn parties_disagree(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let barrier = a.barrier(stage.name(), 2);
    let waiting = arrive(&barrier);
    stage.waiters(&a, 1).await;
    let error = b.barrier(stage.name(), 3).wait().await.expect_err("another number");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let message = error.to_string();
    assert!(message.contains("barrier of 2 parties") && message.contains("barrier of 3 parties"), "{message}");
    let error = b.mutex(stage.name()).try_lock().await.expect_err("another kind");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    for parties in [0, 257] {
        let error = b.barrier(stage.name(), parties).wait().await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    b.barrier(stage.name(), 2).wait().await.expect("let through");
    ended(waiting).await.expect("let through");
}

/// As many parties as a barrier can have, of one client, go through a round.
pub(super) async fn a_wide_round(stage: &Stage) {
    const PARTIES: u32 = 256;
    let client = stage.client("a").await;
    let barrier = client.barrier(stage.name(), PARTIES);
    let arrivals: Vec<_> = (0..PARTIES).map(|_| arrive(&barrier)).collect();
    let mut indexes = Vec::new();
    for arrival in arrivals {
        indexes.push(ended(arrival).await.expect("let through").index());
    }
    indexes.sort_unstable();
    assert_eq!(indexes, (0..PARTIES).collect::<Vec<_>>());
}

/// Threads use a barrier as tasks do.
pub(super) async fn threads_use_a_barrier(stage: &Stage) {
    let url = stage.url().to_owned();
    let connect = move || leasehold::blocking::Leasehold::connect(&url);
    let client = tokio::task::spawn_blocking(connect).await.expect("no panic").expect("connected");
    stage.keep(client.clone());
    let barrier = client.barrier(stage.name(), 2);
    let used = tokio::task::spawn_blocking(move || {
        assert!(barrier.wait_for(SHORT)?.is_none());
        assert_eq!(barrier.inspect()?.waiters, 0);
        let waits = barrier.clone();
        let waiting = std::thread::spawn(move || waits.wait());
        let here = barrier.wait()?;
        let there = waiting.join().expect("no panic")?;
        assert_ne!(here.is_leader(), there.is_leader());
        Ok::<_, leasehold::Error>(())
    });
    soon("it is let through", used).await.expect("no panic").expect("an answer");
}
