//! Latches: they open once, for everybody.

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold};
use tokio::task::JoinHandle;

use crate::conformance::stage::{Stage, soon};

const SHORT: Duration = Duration::from_millis(50);

fn wait(client: &Leasehold, stage: &Stage) -> JoinHandle<leasehold::Result<()>> {
    let latch = client.latch(stage.name());
    tokio::spawn(async move { latch.wait().await })
}

/// A latch opens at the last count-down, for those that wait and those that come later. A part counts once.
pub(super) async fn a_latch_opens_once(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let latch = a.latch(stage.name());
    latch.create(3).await.expect("created");
    b.latch(stage.name()).create(3).await.expect("it is there");
    let waiting = [wait(&a, stage), wait(&b, stage), wait(&b, stage)];
    stage.waiters(&a, 3).await;
    assert!(!latch.wait_for(SHORT).await.expect("an answer"));
    assert!(!latch.wait_for(Duration::ZERO).await.expect("an answer"));
    for client in [&a, &b, &a] {
        client.latch(stage.name()).count_down_as("part 1").await.expect("counted");
        assert_eq!(latch.remaining().await.expect("an answer"), 2, "it counts once");
    }
    b.latch(stage.name()).count_down().await.expect("counted");
    assert_eq!(latch.remaining().await.expect("an answer"), 1);
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    latch.count_down().await.expect("counted");
    for waiting in waiting {
        soon("it is open", waiting).await.expect("no panic").expect("open");
    }
    assert!(latch.wait_for(Duration::ZERO).await.expect("an answer"));
    latch.count_down().await.expect("it changes nothing");
    latch.wait().await.expect("it stays open");
    assert_eq!(b.latch(stage.name()).remaining().await.expect("an answer"), 0);
}

/// A caller that names no latch, or another one, gets an error. A deleted latch releases its waiters with an error.
pub(super) async fn a_latch_that_is_gone_is_an_error(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let latch = a.latch(stage.name());
    for error in [
        latch.wait().await.expect_err("no latch"),
        latch.count_down().await.expect_err("no latch"),
        latch.remaining().await.expect_err("no latch"),
        latch.delete().await.expect_err("no latch"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Absent, "{error}");
    }
    latch.create(1).await.expect("created");
    assert_eq!(latch.create(2).await.expect_err("another number").kind(), ErrorKind::Mismatch);
    assert_eq!(latch.create(0).await.expect_err("no number").kind(), ErrorKind::Invalid);
    let error = a.mutex(stage.name()).try_lock().await.expect_err("another kind");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let waiting = wait(&b, stage);
    stage.waiters(&a, 1).await;
    latch.delete().await.expect("deleted");
    let error = soon("it is told", waiting).await.expect("no panic").expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Absent, "{error}");
    latch.create(2).await.expect("the name is free");
    assert_eq!(latch.remaining().await.expect("an answer"), 2);
    latch.delete().await.expect("deleted");
}

/// Threads use a latch as tasks do.
pub(super) async fn threads_use_a_latch(stage: &Stage) {
    let url = stage.url().to_owned();
    let used = tokio::task::spawn_blocking(move || {
        let client = leasehold::blocking::Leasehold::connect(&url)?;
        Ok::<_, leasehold::Error>(client)
    });
    let client = used.await.expect("no panic").expect("connected");
    stage.keep(client.clone());
    let latch = client.latch(stage.name());
    let used = tokio::task::spawn_blocking(move || {
        latch.create(2)?;
        let waits = latch.clone();
        let waiting = std::thread::spawn(move || waits.wait());
        latch.count_down_as("one")?;
        assert!(!latch.wait_for(SHORT)?);
        latch.count_down()?;
        waiting.join().expect("no panic")?;
        assert_eq!(latch.remaining()?, 0);
        latch.delete()
    });
    soon("it opens", used).await.expect("no panic").expect("an answer");
}
