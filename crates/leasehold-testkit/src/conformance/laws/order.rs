//! The order of grants, and that there is one holder at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold, Mutex, Token};
use tokio::sync::{Barrier, mpsc};

use crate::conformance::stage::{Stage, eventually, release, soon};

pub(super) enum Clients {
    One,
    Many,
}

const WAITERS: usize = 12;

pub(super) async fn fifo(stage: &Stage, clients: Clients) {
    let first = stage.client("first").await;
    let held = first.mutex(stage.name()).lock().await.expect("granted");
    let mut last = held.token();
    let (served, mut serves) = mpsc::unbounded_channel();
    let mut client = stage.client("waits").await;
    for number in 0..WAITERS {
        if matches!(clients, Clients::Many) {
            client = stage.client("waits").await;
        }
        // Within one client each task has an entry of its own only if it asks for strict order.
        let mutex = client.mutex(stage.name());
        let mutex = if matches!(clients, Clients::One) { mutex.fair() } else { mutex };
        let served = served.clone();
        tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted");
            // Nobody receives if the test has failed already.
            let _ = served.send((number, guard));
        });
        // The next one comes when this one is in the queue.
        stage.waiters(&first, number + 1).await;
    }
    release(held).await;
    for expected in 0..WAITERS {
        let (number, guard) = soon("the next one is served", serves.recv()).await.expect("a waiter");
        assert_eq!(number, expected, "first come, first served");
        assert!(guard.token() > last, "tokens rise");
        last = guard.token();
        assert!(serves.try_recv().is_err(), "one at a time");
        release(guard).await;
    }
}

pub(super) async fn hand_over_leaves_no_gap(stage: &Stage) {
    let (a, b, newcomer) = (stage.client("a").await, stage.client("b").await, stage.client("newcomer").await);
    for _ in 0..20 {
        let held = a.mutex(stage.name()).lock().await.expect("granted");
        let waits = b.mutex(stage.name());
        let waiting = tokio::spawn(async move { waits.lock().await.expect("granted") });
        stage.waiters(&newcomer, 1).await;
        release(held).await;
        let seen =
            stage.inspect(&newcomer).await.holder().cloned().expect("the store made it the holder in the same step");
        assert_eq!(seen.label, "b");
        assert!(newcomer.mutex(stage.name()).try_lock().await.expect("an answer").is_none(), "nobody gets in between");
        let guard = soon("it is notified", waiting).await.expect("no panic");
        assert_eq!(guard.token(), seen.token);
        release(guard).await;
    }
}

const ROUNDS: u64 = 25;
const TASKS: usize = 4;
const CLIENTS: usize = 4;

/// A counter without an atomic update: read, yield, write.
pub(super) async fn exclusion_and_progress(stage: &Stage) {
    let counter = Arc::new(AtomicU64::new(0));
    let served: Arc<Vec<AtomicU64>> = Arc::new((0..CLIENTS * TASKS).map(|_| AtomicU64::new(0)).collect());
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(stage.client(&format!("client {number}")).await);
    }
    let start = Arc::new(Barrier::new(CLIENTS * TASKS));
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        for task in 0..TASKS {
            let start = Arc::clone(&start);
            let (mutex, counter, served) = (client.mutex(stage.name()), Arc::clone(&counter), Arc::clone(&served));
            tasks.push(tokio::spawn(async move {
                let mut last = Token::default();
                start.wait().await;
                let mut rounds = 0;
                // Until everybody has had a turn: a client may not starve the others, however fast it hands over.
                while rounds < ROUNDS || served.iter().any(|turns| turns.load(Ordering::SeqCst) == 0) {
                    rounds += 1;
                    let guard = mutex.lock().await.expect("granted");
                    assert!(guard.check().expect("held") > last, "tokens rise");
                    last = guard.token();
                    let seen = counter.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::Relaxed);
                    served[number * TASKS + task].fetch_add(1, Ordering::SeqCst);
                    release(guard).await;
                }
                rounds
            }));
        }
    }
    let mut rounds = 0;
    for task in tasks {
        rounds += soon("everybody is served", task).await.expect("no panic");
    }
    assert_eq!(counter.load(Ordering::SeqCst), rounds, "nobody overwrote anybody");
}

pub(super) async fn tokens_rise(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let mut last = Token::default();
    for round in 0..100 {
        let client = if round % 3 == 0 { &b } else { &a };
        let guard = client.mutex(stage.name()).try_lock().await.expect("an answer").expect("free");
        assert!(guard.token() > last, "round {round}: {:?} after {last:?}", guard.token());
        assert!(guard.token().get() < 1 << 53, "every language can read it");
        last = guard.token();
        release(guard).await;
    }
}

pub(super) async fn tokens_rise_over_clients(stage: &Stage) {
    let mut last = Token::default();
    for _ in 0..10 {
        let client = Leasehold::connect(stage.url()).await.expect("connected");
        let guard = client.mutex(stage.name()).try_lock().await.expect("an answer").expect("free");
        assert!(guard.token() > last);
        last = guard.token();
        // Some clients are closed, and some are only dropped.
        if last.get() % 2 == 0 {
            release(guard).await;
        }
        assert!(client.close().await.unconfirmed().is_empty());
    }
}

pub(super) async fn impatient_waiter_is_passed_over(stage: &Stage) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let held = a.mutex(stage.name()).lock().await.expect("granted");
    let wait = Duration::from_millis(150);
    let (impatient, patient) = (b.mutex(stage.name()), c.mutex(stage.name()));
    let begun = Instant::now();
    let giving_up = tokio::spawn(async move { impatient.try_lock_for(wait).await });
    stage.waiters(&a, 1).await;
    let waiting = tokio::spawn(async move { patient.lock().await.expect("granted") });
    // Either both are seen, or the first has given up by now.
    eventually("they wait", async || {
        let waiters = stage.inspect(&a).await.waiters;
        waiters == 2 || (waiters == 1 && giving_up.is_finished())
    })
    .await;
    assert!(soon("it gives up", giving_up).await.expect("no panic").expect("an answer").is_none());
    assert!(begun.elapsed() >= wait);
    stage.waiters(&a, 1).await;
    release(held).await;
    let guard = soon("the patient waiter is served", waiting).await.expect("no panic");
    release(guard).await;
    eventually("nobody is left", async || stage.inspect(&a).await.holder().is_none()).await;
}

pub(super) async fn no_patience_is_answered(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.mutex(stage.name()), b.mutex(stage.name()));
    let mut in_vain = 0;
    for round in 0..90 {
        let wait = [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(20)][round % 3];
        // A waiter that gave up leaves nothing in the queue, and neither does one whose answer came too late.
        eventually("nobody is left", async || {
            let seen = stage.inspect(&a).await;
            seen.waiters == 0 && seen.holder().is_none()
        })
        .await;
        let Some(taken) = answered(&ours, wait).await else {
            in_vain += 1;
            continue;
        };
        let guard = taken.expect("free");
        match answered(&theirs, wait).await {
            Some(none) => assert!(none.is_none(), "another client holds"),
            None => in_vain += 1,
        }
        release(guard).await;
    }
    assert!(in_vain < 10, "a machine this slow proves nothing: {in_vain} answers took too long");
}

/// How long a store may take to answer, however short the caller's wait.
const ANSWER: Duration = Duration::from_millis(500);

/// Returns `None` if the answer took longer than that, as on a machine that does ten other things.
async fn answered(mutex: &Mutex, wait: Duration) -> Option<Option<Guard>> {
    let begun = Instant::now();
    match mutex.try_lock_for(wait).await {
        Ok(taken) => Some(taken),
        Err(error) => {
            assert!(begun.elapsed() >= ANSWER, "given up after {:?}: {error}", begun.elapsed());
            None
        }
    }
}
