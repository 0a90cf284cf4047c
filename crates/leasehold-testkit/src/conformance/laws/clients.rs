//! Clients, their handles and what others see of them.

use std::time::{Duration, SystemTime};

use leasehold::{ErrorKind, Kind, Leasehold, LostReason, Mode, Released};

use crate::conformance::stage::{Stage, eventually, release, renewal, soon};
use crate::conformance::{Backend, Verdict};

pub(super) async fn inspect_changes_nothing(stage: &Stage) {
    let (a, b, looks) = (stage.client("a").await, stage.client("b").await, stage.client("looks").await);
    let before = SystemTime::now();
    let guard = a.mutex(stage.name()).lock().await.expect("granted");
    let waits = b.mutex(stage.name());
    let waiting = tokio::spawn(async move { waits.lock().await.expect("granted") });
    stage.waiters(&looks, 1).await;
    let first = stage.inspect(&looks).await;
    assert_eq!((first.kind, first.limit, first.units, first.holder_count), (Kind::Mutex, 1, 1, 1));
    assert!(first.holder().is_some_and(|holder| a.is_holder(holder) && !b.is_holder(holder)));
    match stage.running().backend() {
        Backend::Quorum => assert!(first.queue.is_empty(), "a quorum does not show its queue"),
        _ => {
            let [waiter] = &first.queue[..] else { panic!("one waits: {first:?}") };
            assert_eq!((waiter.label.as_str(), waiter.mode, waiter.units), ("b", Mode::Lock, 1));
            assert!(b.is_waiter(waiter) && waiter.remaining.is_none());
        }
    }
    let since = first.holder().expect("held").held_since();
    let slack = Duration::from_secs(1);
    assert!(before - slack <= since && since <= SystemTime::now() + slack, "{since:?} and {before:?}");
    for _ in 0..20 {
        let (before, after) = (first.holder().expect("held"), stage.inspect(&looks).await);
        let now = after.holder().cloned().expect("held");
        assert_eq!((now.token, now.id(), after.waiters), (before.token, before.id(), 1));
        assert!(now.remaining < before.remaining, "its lease runs on");
    }
    assert!(guard.is_valid());
    release(guard).await;
    release(soon("it is granted", waiting).await.expect("no panic")).await;
}

pub(super) async fn labels_are_shown(stage: &Stage) {
    let (named, nameless) = (stage.client("build/7 on host").await, stage.client_with(|builder| builder).await);
    let guard = named.mutex(stage.name()).lock().await.expect("granted");
    assert_eq!(stage.inspect(&nameless).await.holder().expect("held").label, "build/7 on host");
    release(guard).await;
    let guard = nameless.mutex(stage.name()).lock().await.expect("granted");
    let label = stage.inspect(&named).await.holder().expect("held").label.clone();
    assert!(label.ends_with(&format!("/{}", std::process::id())), "{label}");
    release(guard).await;
}

pub(super) async fn last_handle_gives_back(stage: &Stage) {
    let witness = stage.client("witness").await;
    let client = Leasehold::connect(stage.url()).await.expect("connected");
    let (mutex, clone) = (client.mutex(stage.name()), client.clone());
    let guard = mutex.lock().await.expect("granted");
    drop(client);
    drop(clone);
    assert!(guard.is_valid() && mutex.try_lock().await.expect("a mutex is a handle").is_none());
    drop(mutex);
    assert!(guard.is_valid(), "so is a guard");
    drop(guard);
    eventually("it is given back", async || stage.inspect(&witness).await.holder().is_none()).await;
}

pub(super) async fn guard_keeps_its_client(stage: &Stage) {
    let lease = Duration::from_millis(900);
    let client = Leasehold::connect(stage.url()).await.expect("connected");
    let guard = client.mutex(stage.name()).lease(lease).lock().await.expect("granted");
    drop(client);
    renewal(&guard, lease).await;
    assert_eq!(guard.release().await.expect("an answer"), Released::Released);
}

pub(super) async fn close_is_for_all_clones(stage: &Stage) {
    let (client, other) = (stage.client("a").await, stage.client("b").await);
    let clone = client.clone();
    let guard = clone.mutex(stage.name()).lock().await.expect("granted");
    let (theirs, name) = (other.mutex(stage.name_of("theirs")).lock().await.expect("granted"), stage.name_of("theirs"));
    let waits = clone.mutex(&name);
    let waiting = tokio::spawn(async move { waits.lock().await.map(drop) });
    let looks = other.mutex(&name);
    eventually("it waits", async || looks.inspect().await.expect("an answer").waiters == 1).await;
    assert!(client.close().await.unconfirmed().is_empty());
    let error = soon("the waiter is notified", waiting).await.expect("no panic").expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("connect a new one"), "{error}");
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Closed));
    assert_eq!(clone.mutex(stage.name()).lock().await.expect_err("closed").kind(), ErrorKind::Closed);
    // `close` waits for a majority of a quorum, and for the other nodes only as long as a node has to reply. A slow node
    // carries the request out later, and until then an inspection can still count the waiter.
    let has_left = async || looks.inspect().await.expect("an answer").waiters == 0;
    match stage.running().backend() {
        Backend::Quorum => eventually("it has left the queue", has_left).await,
        _ => assert!(has_left().await, "it has left the queue"),
    }
    assert!(theirs.is_valid(), "no other client is disturbed");
    release(theirs).await;
}

pub(super) async fn prefixes_separate(stage: &Stage) -> Verdict {
    stage.begin_below(["one:", "two:"]).await;
    let below = |prefix: &'static str| Leasehold::builder(stage.url()).prefix(prefix).connect();
    let one = match below("one:").await {
        Ok(client) => client,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("takes no prefix"), "{error}");
            return Verdict::Unsupported("an embedded store is named by its URL, and takes no prefix");
        }
    };
    let two = below("two:").await.expect("connected");
    let first = one.mutex(stage.name()).lock().await.expect("granted");
    let second = two.mutex(stage.name()).try_lock().await.expect("an answer").expect("another lock");
    assert_eq!(
        one.mutex(stage.name()).inspect().await.expect("an answer").holder().expect("held").token,
        first.token()
    );
    release(first).await;
    release(second).await;
    for client in [one, two] {
        assert!(client.close().await.unconfirmed().is_empty());
    }
    Verdict::Passed
}
