//! Elections: one leads, and everybody sees who.

use std::time::Duration;

use leasehold::{ErrorKind, Leader, Observer, Released};
use leasehold_spec::{Kind, limits};

use crate::conformance::stage::{Stage, soon};

async fn next(observer: &mut Observer) -> Option<Leader> {
    soon("a change is seen", observer.next()).await.expect("an answer")
}

fn value(leader: Option<Leader>) -> Option<String> {
    leader.map(|leader| leader.value)
}

/// Observers of every client see each leader that stays, its value, and its end.
pub(super) async fn a_leader_is_seen(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.election(stage.name()), b.election(stage.name()));
    let mut observers = [ours.observe(), theirs.observe()];
    for observer in &mut observers {
        assert_eq!(next(observer).await, None, "nobody leads");
    }
    let first = ours.campaign("first").await.expect("elected");
    for observer in &mut observers {
        let leader = next(observer).await.expect("it leads");
        assert_eq!((leader.value.as_str(), leader.token), ("first", first.token()));
    }
    assert!(theirs.try_campaign("other").await.expect("an answer").is_none());
    let waits = theirs.clone();
    let candidate = tokio::spawn(async move { waits.campaign("second").await });
    stage.waiters(&a, 1).await;
    if stage.has(Kind::Condition) {
        first.put("renamed").await.expect("it leads");
        for observer in &mut observers {
            let leader = next(observer).await.expect("it leads");
            assert_eq!((leader.value.as_str(), leader.token), ("renamed", first.token()));
        }
    } else {
        assert_eq!(first.put("renamed").await.expect_err("no such store").kind(), ErrorKind::Unsupported);
    }
    let token = first.token();
    assert_eq!(first.resign().await.expect("an answer"), Released::Released);
    let second = soon("it is next", candidate).await.expect("no panic").expect("elected");
    assert!(second.token() > token);
    for observer in &mut observers {
        // On a quorum, an observer can look between the two.
        let mut leader = next(observer).await;
        if leader.is_none() {
            leader = next(observer).await;
        }
        assert_eq!(value(leader).as_deref(), Some("second"));
    }
    assert_eq!(value(ours.leader().await.expect("an answer")).as_deref(), Some("second"));
    drop(second);
    for observer in &mut observers {
        assert_eq!(next(observer).await, None, "it has resigned");
    }
}

/// A leader that has lost the election does not rename its successor. Values are checked.
pub(super) async fn a_value_is_the_leaders(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.election(stage.name()), b.election(stage.name()));
    for bad in ["with\nlines".to_owned(), "x".repeat(limits::LABEL_MAX + 1)] {
        assert_eq!(ours.campaign(&bad).await.expect_err("a bad value").kind(), ErrorKind::Invalid);
    }
    let first = ours.campaign("first").await.expect("elected");
    let holder = stage.inspect(&b).await.holder().cloned().expect("it leads");
    let mutex = b.mutex(stage.name());
    let _revoked = mutex.revoke(&holder, Duration::ZERO).await.expect("an answer");
    let second = soon("it is free", theirs.campaign("second")).await.expect("elected");
    soon("it is told", first.lost()).await;
    let error = first.put("first again").await.expect_err("it does not lead");
    assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::Unsupported), "{error}");
    assert_eq!(value(ours.leader().await.expect("an answer")).as_deref(), Some("second"));
    assert!(b.mutex(stage.name()).try_lock().await.expect("an answer").is_none(), "a lock of the name is taken");
    let names = if stage.has(Kind::Condition) { a.names().await.expect("an answer") } else { Vec::new() };
    assert!(names.iter().all(|name| !name.contains(char::is_control)), "{names:?}");
    assert_eq!(second.resign().await.expect("an answer"), Released::Released);
}

/// The named candidate leads, before those that have waited longer. If it is not there, or if it is gone, the leader leads
/// on. On stores without this, the leader resigns.
pub(super) async fn a_leader_names_its_successor(stage: &Stage) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let [ours, first, named] = [&a, &b, &c].map(|client| client.election(stage.name()));
    let mut observer = ours.observe();
    assert_eq!(next(&mut observer).await, None);
    let leader = ours.campaign("leader").await.expect("elected");
    assert_eq!(value(next(&mut observer).await).as_deref(), Some("leader"));
    let waits = first.clone();
    let mut first = tokio::spawn(async move { waits.campaign("first").await });
    stage.waiters(&a, 1).await;
    // Only a quorum cannot name successors, and it has no condition variables either.
    assert_eq!(stage.profile().names_successors, stage.has(Kind::Condition), "the documentation promises it");
    if !stage.profile().names_successors {
        assert_eq!(leader.hand_to("first").await.expect_err("no such store").kind(), ErrorKind::Unsupported);
        let first = soon("it is next", &mut first).await.expect("no panic").expect("elected");
        assert_eq!(first.resign().await.expect("an answer"), Released::Released);
        return;
    }
    let gone = tokio::spawn({
        let named = named.clone();
        async move { named.campaign("named").await }
    });
    stage.waiters(&a, 2).await;
    gone.abort();
    stage.waiters(&a, 1).await;
    let leader = leader.hand_to("named").await.expect("an answer").expect("it is gone");
    assert!(leader.check().is_ok(), "it leads on");
    let waits = named.clone();
    let named = tokio::spawn(async move { waits.campaign("named").await });
    stage.waiters(&a, 2).await;
    let token = leader.token();
    assert!(leader.hand_to("named").await.expect("an answer").is_none(), "it is there");
    let named = soon("it is named", named).await.expect("no panic").expect("elected");
    assert!(named.token() > token);
    assert_eq!(value(next(&mut observer).await).as_deref(), Some("named"));
    assert!(!first.is_finished(), "it waits on");
    drop(named.hand_to("leader").await.expect("an answer"));
    let first = soon("it is next", &mut first).await.expect("no panic").expect("elected");
    first.check().expect("it leads");
}

/// Threads elect and observe as tasks do.
pub(super) async fn threads_elect(stage: &Stage) {
    let url = stage.url().to_owned();
    let connected = tokio::task::spawn_blocking(move || leasehold::blocking::Leasehold::connect(&url));
    let client = connected.await.expect("no panic").expect("connected");
    stage.keep(client.clone());
    let election = client.election(stage.name());
    let (has_put, names_successors) = (stage.has(Kind::Condition), stage.profile().names_successors);
    let played = tokio::task::spawn_blocking(move || {
        let mut observer = election.observe();
        assert_eq!(observer.next()?, None);
        let leadership = election.campaign("thread")?;
        assert_eq!(value(observer.next()?).as_deref(), Some("thread"));
        if has_put {
            leadership.put("renamed")?;
            assert_eq!(value(observer.next()?).as_deref(), Some("renamed"));
        }
        assert!(election.try_campaign("other")?.is_none());
        let leadership = match leadership.hand_to("nobody") {
            Err(error) if !names_successors && error.kind() == ErrorKind::Unsupported => election.campaign("thread")?,
            handed => handed?.expect("nobody has this name"),
        };
        assert_eq!(leadership.resign()?, Released::Released);
        assert_eq!(observer.next()?, None);
        Ok::<_, leasehold::Error>(())
    });
    soon("they are elected", played).await.expect("no panic").expect("no error");
}
