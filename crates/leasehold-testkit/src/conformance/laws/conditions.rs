//! Condition variables: notifications that are neither lost nor kept, and what a waiter holds when it wakes up.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Guard, Leasehold, Released, Token, Woken};
use leasehold_spec::Take;
use leasehold_spec::limits::CLAIM_MIN_MS;
use tokio::task::JoinHandle;

use crate::conformance::rules::Raw;
use crate::conformance::stage::{Stage, eventually, release, soon};

/// Shorter than any wait of these laws.
const SHORT: Duration = Duration::from_millis(50);
/// A claim lasts for at least this long after its holder has entered: see P12.
const PAUSE: Duration = Duration::from_millis(CLAIM_MIN_MS / 2 - 100);

type Waiting = JoinHandle<leasehold::Result<Guard>>;

/// Locks, and waits for the condition variable of the cell.
fn wait(client: &Leasehold, stage: &Stage) -> Waiting {
    let (mutex, condvar) = (client.mutex(stage.name_of("lock")), client.condvar(stage.name()));
    tokio::spawn(async move { condvar.wait(mutex.lock().await?).await })
}

async fn woken(what: &str, waiting: Waiting) -> Guard {
    soon(what, waiting).await.expect("no panic").expect("woken")
}

/// A buffer of three places behind a fence: it refuses the change of a holder if a later one has changed it.
#[derive(Default)]
struct Buffer(Mutex<(usize, Option<Token>)>);

impl Buffer {
    const PLACES: usize = 3;

    fn items(&self) -> usize {
        self.0.lock().expect("no panic").0
    }

    /// Returns whether the fence lets the change pass.
    fn change(&self, token: Token, is_put: bool) -> bool {
        let (items, newest) = &mut *self.0.lock().expect("no panic");
        if newest.is_some_and(|newest| newest > token) {
            return false;
        }
        *newest = Some(token);
        *items = if is_put { *items + 1 } else { items.checked_sub(1).expect("something to take") };
        assert!(*items <= Self::PLACES, "no room");
        true
    }
}

/// Producers and consumers of several clients share a buffer. Each item arrives once, and nobody sleeps on.
///
/// On a machine that stands still for a second, a claim lapses, and its holder honestly loses the lock. The fence refuses
/// its change, and it begins again. A loss without such a pause is an error.
pub(super) async fn a_notification_is_not_lost(stage: &Stage) {
    const ITEMS: usize = 60;
    let buffer = Arc::new(Buffer::default());
    let mut tasks = Vec::new();
    for number in 0..4 {
        let client = stage.client("one of four").await;
        let mutex = client.mutex(stage.name_of("lock"));
        let (not_empty, not_full) = (client.condvar(stage.name()), client.condvar(stage.name_of("not full")));
        let (buffer, is_put) = (Arc::clone(&buffer), number % 2 == 0);
        tasks.push(tokio::spawn(async move {
            let (waits_for, notifies) = if is_put { (&not_full, &not_empty) } else { (&not_empty, &not_full) };
            let must_wait = || buffer.items() == if is_put { Buffer::PLACES } else { 0 };
            let mut done = 0;
            while done < ITEMS {
                let mut guard = mutex.lock().await?;
                let mut held_since = Instant::now();
                while must_wait() {
                    guard = match waits_for.wait(guard).await {
                        Err(error) if error.kind() == ErrorKind::Lost => {
                            assert!(held_since.elapsed() > PAUSE, "{error}");
                            mutex.lock().await?
                        }
                        woken => woken?,
                    };
                    held_since = Instant::now();
                }
                tokio::task::yield_now().await;
                if buffer.change(guard.token(), is_put) {
                    done += 1;
                    notifies.notify_one().await?;
                }
                let released = guard.release().await?;
                assert!(released == Released::Released || held_since.elapsed() > PAUSE, "lost too early");
            }
            Ok::<_, leasehold::Error>(())
        }));
    }
    for task in tasks {
        soon("nobody sleeps on", task).await.expect("no panic").expect("no error");
    }
    assert_eq!(buffer.items(), 0, "what was put in was taken out");
}

/// The waiter that came first is notified. Nobody else wakes up.
pub(super) async fn waiters_wake_in_order(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(wait(if number % 2 == 0 { &a } else { &b }, stage));
        stage.waiters(&a, number + 1).await;
    }
    let condvar = b.condvar(stage.name());
    for left in (0..4).rev() {
        assert!(condvar.notify_one().await.expect("an answer"));
        let guard = woken("it is its turn", waiting.remove(0)).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "one is notified");
        stage.waiters(&a, left).await;
        release(guard).await;
    }
    assert!(!condvar.notify_one().await.expect("an answer"), "nobody waits");
}

/// A notification to all wakes all that wait, one after the other: they share a lock.
pub(super) async fn all_wake_up(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let waiting: Vec<_> = (0..20).map(|number| wait(if number % 2 == 0 { &a } else { &b }, stage)).collect();
    stage.waiters(&a, 20).await;
    assert_eq!(a.condvar(stage.name()).notify_all().await.expect("an answer"), 20);
    let releasing =
        waiting.into_iter().map(|waiting| async move { release(woken("all are notified", waiting).await).await });
    let releasing: Vec<_> = releasing.map(tokio::spawn).collect();
    for released in releasing {
        released.await.expect("no panic");
    }
}

/// A notification that nobody waits for is nothing.
pub(super) async fn a_notification_before_a_wait_is_nothing(stage: &Stage) {
    let client = stage.client("a").await;
    let condvar = client.condvar(stage.name());
    for round in 0..2 {
        assert!(!condvar.notify_one().await.expect("an answer"));
        assert_eq!(condvar.notify_all().await.expect("an answer"), 0);
        let guard = client.mutex(stage.name_of("lock")).lock().await.expect("free");
        let (guard, ended) = condvar.wait_for(guard, SHORT).await.expect("an answer");
        assert_eq!(ended, Woken::TimedOut, "round {round}");
        release(guard).await;
    }
}

/// A wait that times out holds the lock again, behind those that had it meanwhile.
pub(super) async fn a_wait_that_timed_out_holds(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.mutex(stage.name_of("lock")), b.mutex(stage.name_of("lock")));
    let (first, condvar) = (ours.lock().await.expect("free"), a.condvar(stage.name()));
    let token = first.token();
    // Before the wait begins: on a slow machine it may be over before another client has asked.
    let behind = tokio::spawn(async move { theirs.lock().await });
    eventually("another client waits", async || ours.inspect().await.expect("an answer").waiters == 1).await;
    let waiting = tokio::spawn(async move { condvar.wait_for(first, SHORT).await });
    let between = soon("a wait releases the lock", behind).await.expect("no panic").expect("an answer");
    tokio::time::sleep(4 * SHORT).await;
    assert!(!waiting.is_finished(), "another client holds the lock");
    let last = between.token();
    release(between).await;
    let (guard, ended) = soon("it holds again", waiting).await.expect("no panic").expect("an answer");
    assert_eq!(ended, Woken::TimedOut);
    assert_eq!(guard.check(), Ok(guard.token()));
    assert!(guard.token() > last && last > token, "tokens rise");
    release(guard).await;
    let condvar = a.condvar(stage.name());
    let guard = ours.lock().await.expect("free");
    let (guard, ended) = condvar.wait_while_for(guard, |_| ready(true), SHORT).await.expect("an answer");
    assert_eq!(ended, Woken::TimedOut);
    let (guard, ended) = condvar.wait_while_for(guard, |_| ready(false), SHORT).await.expect("an answer");
    assert_eq!(ended, Woken::Notified, "nothing to wait for");
    release(guard).await;
}

/// The receiver of a notification does not wake up, is gone, or drops its future. The next waiter is notified.
pub(super) async fn a_notification_passes_on(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let condvar = b.condvar(stage.name());
    // One that never wakes up: its claim ends.
    let mut frozen = Raw::attach_for(stage, Take::NOTIFICATION).await;
    frozen.stand().await;
    let next = wait(&a, stage);
    stage.waiters(&a, 2).await;
    assert!(condvar.notify_one().await.expect("an answer"));
    release(woken("the claim has ended", next).await).await;
    // One that is gone.
    let mut gone = Raw::attach_for(stage, Take::NOTIFICATION).await;
    gone.stand().await;
    let next = wait(&a, stage);
    stage.waiters(&a, 2).await;
    gone.detach(stage).await;
    assert!(condvar.notify_one().await.expect("an answer"));
    release(woken("it is passed over", next).await).await;
    // One that drops its future while it acquires the lock, with a notification in hand.
    let first = wait(&a, stage);
    stage.waiters(&a, 1).await;
    let next = wait(&b, stage);
    stage.waiters(&a, 2).await;
    let holder = b.mutex(stage.name_of("lock")).lock().await.expect("free");
    assert!(condvar.notify_one().await.expect("an answer"));
    stage.waiters(&a, 1).await;
    tokio::time::sleep(SHORT).await;
    assert!(!first.is_finished() && !next.is_finished(), "the lock is held");
    first.abort();
    let _aborted = first.await;
    release(holder).await;
    release(woken("it passes on", next).await).await;
}

/// A condition variable works with a write guard, with the guards of an owner, and with a lock of another store.
pub(super) async fn a_condition_works_with_every_guard(stage: &Stage) {
    let client = stage.client("a").await;
    let elsewhere = Leasehold::connect("memory:").await.expect("always there");
    let condvar = client.condvar(stage.name());
    // The store may have no read-write locks, and the store beside it has.
    let lock = elsewhere.rw_lock("lock");
    let writing = lock.write().await.expect("free");
    let token = writing.token();
    let waits = condvar.clone();
    let waiting = tokio::spawn(async move { waits.wait(writing).await });
    stage.waiters(&client, 1).await;
    drop(soon("a wait releases the lock", lock.read()).await.expect("free"));
    assert!(condvar.notify_one().await.expect("an answer"));
    let writing = soon("it holds again", waiting).await.expect("no panic").expect("woken");
    assert!(writing.token() > token);
    assert!(lock.try_read().await.expect("an answer").is_none(), "it writes");
    drop(writing);
    let owned = client.mutex(stage.name_of("lock")).owner(&leasehold::Owner::new());
    let (outer, inner) = (owned.lock().await.expect("free"), owned.lock().await.expect("it re-enters"));
    let error = condvar.wait(inner).await.expect_err("another guard holds");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let waits = condvar.clone();
    let waiting = tokio::spawn(async move { waits.wait(outer).await });
    stage.waiters(&client, 1).await;
    assert!(condvar.notify_one().await.expect("an answer"));
    let outer = soon("it holds again", waiting).await.expect("no panic").expect("woken");
    let inner = owned.lock().await.expect("it re-enters");
    assert_eq!(inner.token(), outer.token(), "it is the owner's");
}

/// A lost guard cannot wait: what its holder knows may be old. Names of other kinds are refused.
pub(super) async fn a_wait_that_cannot_begin_is_an_error(stage: &Stage) {
    let client = stage.client("a").await;
    let (mutex, condvar) = (client.mutex(stage.name_of("lock")), client.condvar(stage.name()));
    let guard = mutex.clone().fixed_lease(Duration::from_millis(100)).lock().await.expect("free");
    let lost = guard.lost();
    soon("the fixed lease ends", lost).await;
    assert_eq!(condvar.wait(guard).await.expect_err("it is lost").kind(), ErrorKind::Lost);
    let guard = soon("the lease has ended", mutex.lock()).await.expect("an answer");
    // Another kind, and the lock is released.
    let wrong = client.condvar(stage.name_of("lock"));
    assert_eq!(wrong.notify_one().await.expect_err("a lock").kind(), ErrorKind::Mismatch);
    assert_eq!(wrong.wait(guard).await.expect_err("a lock").kind(), ErrorKind::Mismatch);
    let guard = soon("an error releases the lock", mutex.lock()).await.expect("an answer");
    assert_eq!(client.condvar("").wait(guard).await.expect_err("no name").kind(), ErrorKind::Invalid);
    // A guard that holds waits, and the client is closed meanwhile.
    let other = stage.client("b").await;
    let waiting = wait(&other, stage);
    stage.waiters(&client, 1).await;
    let _closed = other.close().await;
    let error = soon("it is told", waiting).await.expect("no panic").expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    stage.waiters(&client, 0).await;
}

/// Threads wait as tasks do, and each wakes the other.
pub(super) async fn threads_wait(stage: &Stage) {
    const TURNS: usize = 20;
    let client = leasehold::blocking::Leasehold::connect(stage.url());
    let client = tokio::task::spawn_blocking(|| client).await.expect("no panic").expect("connected");
    stage.keep(client.clone());
    let turn = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|number| {
            let (mutex, condvar) = (client.mutex(stage.name_of("lock")), client.condvar(stage.name()));
            let turn = Arc::clone(&turn);
            tokio::task::spawn_blocking(move || {
                for round in 0..TURNS {
                    let is_ours = || turn.load(Ordering::SeqCst) == 2 * round + number;
                    let guard = condvar.wait_while(mutex.lock()?, |_| !is_ours())?;
                    guard.check()?;
                    turn.fetch_add(1, Ordering::SeqCst);
                    condvar.notify_all()?;
                    let _ = guard.release()?;
                }
                Ok::<_, leasehold::Error>(())
            })
        })
        .collect();
    for thread in threads {
        soon("they take turns", thread).await.expect("no panic").expect("no error");
    }
    assert_eq!(turn.load(Ordering::SeqCst), 2 * TURNS);
    let timed_out = tokio::task::spawn_blocking({
        let (mutex, condvar) = (client.mutex(stage.name_of("lock")), client.condvar(stage.name()));
        move || Ok::<_, leasehold::Error>(condvar.wait_for(mutex.lock()?, SHORT)?.1)
    });
    assert_eq!(timed_out.await.expect("no panic").expect("an answer"), Woken::TimedOut);
}
