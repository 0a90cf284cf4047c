//! Read-write locks and semaphores: who holds beside whom, upgrades, downgrades, and permits that come back.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Inspection, Kind, Leasehold, LostReason, Mode, Released, Revoked};
use leasehold_spec::Take;
use tokio::task::JoinHandle;

use crate::conformance::rules::Raw;
use crate::conformance::stage::{Stage, soon};

/// Shorter than any wait of these laws.
const SHORT: Duration = Duration::from_millis(50);
/// The shortest lease.
const SHORT_LEASE: Duration = Duration::from_millis(100);

/// Awaits a task that has been granted by now.
async fn granted<T>(what: &str, task: JoinHandle<leasehold::Result<T>>) -> T {
    soon(what, task).await.expect("no panic").expect("granted")
}

/// A mode, and a number of units.
type Share = (Mode, u32);

/// Returns the share of each holder and of each waiter that an inspection shows.
fn shown(seen: &Inspection) -> (Vec<Share>, Vec<Share>) {
    assert_eq!((seen.holder_count, seen.waiters), (seen.holders.len(), seen.queue.len()), "all are shown");
    let holders = seen.holders.iter().map(|holder| (holder.mode, holder.units));
    (holders.collect(), seen.queue.iter().map(|waiter| (waiter.mode, waiter.units)).collect())
}

/// Readers hold together, in one client and in several. A writer waits for the last of them, and is alone.
pub(super) async fn readers_share(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let lock = a.rw_lock(stage.name());
    let readers = [lock.read().await, lock.read().await, b.rw_lock(stage.name()).read().await];
    let readers = readers.map(|reader| reader.expect("beside the others"));
    assert!(readers.is_sorted_by(|one, other| one.token() < other.token()), "tokens rise");
    assert!(lock.try_write().await.expect("an answer").is_none());
    let writes = b.rw_lock(stage.name());
    let writer = tokio::spawn(async move { writes.write().await });
    stage.waiters(&a, 1).await;
    let seen = stage.inspect(&a).await;
    assert_eq!((seen.kind, seen.units), (Kind::ReadWrite, 3));
    assert_eq!(shown(&seen), (vec![(Mode::Read, 1); 3], vec![(Mode::Write, seen.limit)]));
    let tokens: Vec<_> = seen.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, readers.each_ref().map(|reader| reader.token()), "in the order of their tokens");
    assert_eq!(seen.holders.iter().map(|holder| a.is_holder(holder)).collect::<Vec<_>>(), [true, true, false]);
    let mut last = None;
    for reader in readers {
        assert!(!writer.is_finished(), "a reader holds");
        last = Some(reader.token());
        assert_eq!(reader.release().await.expect("an answer"), Released::Released);
    }
    let writer = granted("the last reader has gone", writer).await;
    assert!(Some(writer.token()) > last);
    assert!(lock.try_read().await.expect("an answer").is_none(), "a writer is alone");
    assert_eq!(writer.release().await.expect("an answer"), Released::Released);
}

/// A writer that waits stops later readers. They enter together behind it.
pub(super) async fn a_writer_stops_later_readers(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let lock = a.rw_lock(stage.name());
    let reader = lock.read().await.expect("free");
    let writes = b.rw_lock(stage.name());
    let writer = tokio::spawn(async move { writes.write().await });
    stage.waiters(&a, 1).await;
    assert!(lock.try_read().await.expect("an answer").is_none(), "a writer waits");
    let later: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    stage.waiters(&a, 4).await;
    assert_eq!(reader.release().await.expect("an answer"), Released::Released);
    let writer = granted("its turn", writer).await;
    assert!(later.iter().all(|later| !later.is_finished()));
    assert_eq!(writer.release().await.expect("an answer"), Released::Released);
    let mut readers = Vec::new();
    for later in later {
        readers.push(granted("all of them enter", later).await);
    }
    assert!(readers.iter().all(|reader| reader.is_valid()), "they hold together");
}

/// A downgrade keeps lease and token, and lets the waiting readers in, in the background.
pub(super) async fn a_downgrade_admits(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let writer = a.rw_lock(stage.name()).write().await.expect("free");
    let token = writer.token();
    let reads = b.rw_lock(stage.name());
    let reader = tokio::spawn(async move { reads.read().await });
    stage.waiters(&a, 1).await;
    let kept = writer.downgrade();
    assert_eq!(kept.check(), Ok(token), "the same grant");
    let reader = granted("the writer has become a reader", reader).await;
    assert!(b.rw_lock(stage.name()).try_write().await.expect("an answer").is_none());
    assert_eq!(kept.check(), Ok(token));
    for guard in [kept, reader] {
        assert_eq!(guard.release().await.expect("an answer"), Released::Released);
    }
}

/// An upgrade comes before every waiter, and nobody enters while it waits. The token is a new one.
pub(super) async fn an_upgrade_is_first(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.rw_lock(stage.name()), b.rw_lock(stage.name()));
    let upgradeable = ours.upgradeable_read().await.expect("free");
    let lost = upgradeable.lost();
    let reader = theirs.read().await.expect("beside it");
    let before = reader.token().max(upgradeable.token());
    let waits = theirs.clone();
    let writer = tokio::spawn(async move { waits.write().await });
    stage.waiters(&b, 1).await;
    let upgrade = tokio::spawn(upgradeable.upgrade());
    stage.waiters(&b, 2).await;
    assert!(!upgrade.is_finished() && !writer.is_finished(), "a reader holds");
    let (holders, queue) = shown(&stage.inspect(&b).await);
    assert_eq!(holders, [(Mode::UpgradeableRead, 1), (Mode::Read, 1)]);
    assert_eq!(queue.iter().map(|(mode, _)| *mode).collect::<Vec<_>>(), [Mode::Upgrade, Mode::Write]);
    assert_eq!(reader.release().await.expect("an answer"), Released::Released);
    let upgraded = granted("it comes before the writer", upgrade).await;
    assert!(upgraded.token() > before);
    assert_eq!(soon("its read lease ended", lost).await.reason(), LostReason::Released);
    assert!(!writer.is_finished());
    assert_eq!(stage.inspect(&b).await.holder().map(|holder| holder.mode), Some(Mode::Write));
    assert_eq!(upgraded.release().await.expect("an answer"), Released::Released);
    drop(granted("the writer is next", writer).await);
}

/// The only reader is upgraded at once. One of several is not, and keeps what it has.
pub(super) async fn an_upgrade_that_is_given_up_changes_nothing(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.rw_lock(stage.name()), b.rw_lock(stage.name()));
    let upgradeable = ours.upgradeable_read().await.expect("free");
    let token = upgradeable.token();
    let reader = theirs.read().await.expect("beside it");
    assert!(theirs.try_upgradeable_read().await.expect("an answer").is_none(), "one at a time");
    let upgradeable = upgradeable.try_upgrade().await.expect("an answer").expect_err("a reader holds");
    let begun = Instant::now();
    let upgradeable = upgradeable.try_upgrade_for(SHORT).await.expect("an answer").expect_err("a reader holds");
    assert!(begun.elapsed() >= SHORT);
    assert_eq!(upgradeable.check(), Ok(token));
    // Nobody is kept out any more.
    let later = theirs.try_read().await.expect("an answer").expect("beside both");
    for guard in [reader, later] {
        assert_eq!(guard.release().await.expect("an answer"), Released::Released);
    }
    let writer = upgradeable.try_upgrade().await.expect("an answer").expect("alone");
    assert!(writer.token() > token);
    assert_eq!(writer.release().await.expect("an answer"), Released::Released);
    drop(theirs.try_write().await.expect("an answer").expect("free"));
}

/// A dropped upgrade releases the lock, and those that it has kept out go on.
pub(super) async fn a_dropped_upgrade_releases(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let upgradeable = a.rw_lock(stage.name()).upgradeable_read().await.expect("free");
    let theirs = b.rw_lock(stage.name());
    let reader = theirs.read().await.expect("beside it");
    let upgrade = tokio::spawn(upgradeable.upgrade());
    stage.waiters(&a, 1).await;
    let waits = theirs.clone();
    let later = tokio::spawn(async move { waits.read().await });
    stage.waiters(&a, 2).await;
    upgrade.abort();
    let later = granted("nobody keeps it out", later).await;
    for guard in [reader, later] {
        assert_eq!(guard.release().await.expect("an answer"), Released::Released);
    }
    drop(soon("nobody holds", theirs.write()).await.expect("granted"));
}

/// An operator revokes a reader whose upgrade waits. The upgrade does not escape.
pub(super) async fn a_revoked_upgrade_is_lost(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let upgradeable = a.rw_lock(stage.name()).upgradeable_read().await.expect("free");
    let holder = stage.inspect(&b).await.holder().cloned().expect("it holds");
    let reader = b.rw_lock(stage.name()).read().await.expect("beside it");
    let upgrade = tokio::spawn(upgradeable.upgrade());
    stage.waiters(&b, 1).await;
    let answer = b.rw_lock(stage.name()).revoke(&holder, Duration::from_secs(5)).await.expect("an answer");
    assert!(matches!(answer, Revoked::Within(_)));
    assert_eq!(reader.release().await.expect("an answer"), Released::Released);
    let error = soon("it is told", upgrade).await.expect("no panic").expect_err("revoked");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    drop(soon("nobody holds", b.rw_lock(stage.name()).write()).await.expect("granted"));
}

/// A writer behind a reader has died. A reader behind the writer enters before the first reader has gone.
pub(super) async fn a_dead_head_blocks_nobody(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let reader = a.rw_lock(stage.name()).read().await.expect("free");
    Raw::attach_for(stage, Take::WRITE).await.queue_and_die(stage).await;
    stage.waiters(&a, 1).await;
    let later = soon("the writer is dead", b.rw_lock(stage.name()).read()).await.expect("granted");
    assert!(reader.is_valid() && later.is_valid());
}

/// A thousand readers behind a writer enter at once, although a step of the store serves 64.
///
/// They enter on whole leases: a machine that is too slow to claim a thousand grants within a second grants some of them
/// again.
pub(super) async fn a_wide_wake(stage: &Stage) {
    const READERS: usize = 1_000;
    let clients: Vec<Leasehold> = {
        let mut clients = Vec::new();
        for number in 0..4 {
            clients.push(stage.client(&format!("client {number}")).await);
        }
        clients
    };
    let writer = clients[0].rw_lock(stage.name()).write().await.expect("free");
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let lock = clients[number % clients.len()].rw_lock(stage.name()).full_lease();
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    stage.waiters(&clients[0], READERS).await;
    // The client of the writer goes at the same time: somebody else has to go on.
    drop(writer);
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(granted("all of them enter", reader).await);
    }
    assert!(guards.iter().all(|guard| guard.is_valid()), "they hold together");
}

/// As many permits are held at a time as there are, and nobody overtakes a waiter that needs more than are free.
pub(super) async fn permits_are_counted(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.semaphore(stage.name(), 3), b.semaphore(stage.name(), 3));
    let (first, second) = (ours.acquire().await.expect("free"), theirs.acquire().await.expect("free"));
    assert!(first.token() < second.token());
    assert!(theirs.try_acquire_many(2).await.expect("an answer").is_none(), "one is free");
    let all = theirs.clone();
    let big = tokio::spawn(async move { all.acquire_many(3).await });
    stage.waiters(&a, 1).await;
    let seen = stage.inspect(&a).await;
    assert_eq!((seen.kind, seen.limit, seen.units), (Kind::Semaphore, 3, 2));
    assert_eq!(shown(&seen), (vec![(Mode::Permits, 1); 2], vec![(Mode::Permits, 3)]));
    assert!(ours.try_acquire().await.expect("an answer").is_none(), "a permit is free, but others wait");
    assert_eq!(first.release().await.expect("an answer"), Released::Released);
    assert!(!big.is_finished(), "two of three are free");
    assert_eq!(second.release().await.expect("an answer"), Released::Released);
    let big = granted("all are free", big).await;
    assert!(ours.try_acquire().await.expect("an answer").is_none());
    assert_eq!(big.release().await.expect("an answer"), Released::Released);
}

/// A client that drops three permits and tries for three is not in its own way.
pub(super) async fn own_permits_are_released_first(stage: &Stage) {
    let client = stage.client("a").await;
    let semaphore = client.semaphore(stage.name(), 3);
    for _ in 0..50 {
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(semaphore.acquire().await.expect("free"));
        }
        drop(permits);
        let all = semaphore.try_acquire_many(3).await.expect("an answer").expect("nobody else holds");
        assert_eq!(all.release().await.expect("an answer"), Released::Released);
    }
}

/// The permits of a client that has crashed come back when its lease ends, and no earlier.
pub(super) async fn permits_come_back(stage: &Stage) {
    let mut crashed = Raw::attach_for(stage, Take::permits(2, 2)).await;
    crashed.take().await;
    let client = stage.client("a").await;
    let semaphore = client.semaphore(stage.name(), 2);
    assert!(semaphore.try_acquire().await.expect("an answer").is_none());
    let waits = semaphore.clone();
    let waiting = tokio::spawn(async move { waits.acquire().await });
    stage.waiters(&client, 1).await;
    crashed.shorten(SHORT_LEASE.as_millis() as u64).await;
    drop(granted("the lease has ended", waiting).await);
}

/// Clients that disagree about the kind or about the number get an error, and disturb nobody.
pub(super) async fn limits_disagree(stage: &Stage) {
    let client = stage.client("a").await;
    let held = client.semaphore(stage.name(), 3).acquire().await.expect("free");
    let other = client.semaphore(stage.name(), 5).try_acquire().await.expect_err("another number");
    assert_eq!(other.kind(), ErrorKind::Mismatch);
    let message = other.to_string();
    assert!(message.contains("3 permits") && message.contains("of 5 permits"), "it names both: {message}");
    let error = client.semaphore(stage.name(), 5).acquire().await.expect_err("another number");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let error = client.mutex(stage.name()).try_lock().await.expect_err("another kind");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let error = client.rw_lock(stage.name()).read().await.expect_err("another kind");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    for (permits, of) in [(0, 3), (4, 3), (1, 0), (1, 1_000_000)] {
        let error = client.semaphore(stage.name(), of).try_acquire_many(permits).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(held.release().await.expect("an answer"), Released::Released);
}

/// A resize changes the number for everybody. Waiters that can never be served any more get an error.
pub(super) async fn a_resize_is_for_all(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let four = a.semaphore(stage.name(), 4);
    let held = four.acquire_many(3).await.expect("free");
    let waits = b.semaphore(stage.name(), 4);
    let big = tokio::spawn(async move { waits.acquire_many(4).await });
    stage.waiters(&a, 1).await;
    let two = four.resize(2).await.expect("an answer");
    let error = soon("it is told", big).await.expect("no panic").expect_err("four of two");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert!(held.is_valid(), "grants beyond the number live on");
    assert!(two.try_acquire().await.expect("an answer").is_none());
    assert_eq!(held.release().await.expect("an answer"), Released::Released);
    let both = two.try_acquire_many(2).await.expect("an answer").expect("both are free");
    assert_eq!(four.try_acquire().await.expect_err("the old number").kind(), ErrorKind::Mismatch);
    assert_eq!(four.resize(9).await.expect_err("the old number").kind(), ErrorKind::Mismatch);
    let three = two.resize(3).await.expect("an answer");
    drop(three.try_acquire().await.expect("an answer").expect("one more"));
    drop(both);
}
