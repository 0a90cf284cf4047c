//! Tasks of one client that want a lease that their client already holds. The promises are the same whether the client
//! hands the lease over inside or the store does.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use leasehold::fence::Fenced;
use leasehold::{Guard, Leasehold, Result};
use leasehold_spec::limits::RUN_PASSES;

use crate::conformance::HandOver;
use crate::conformance::stage::{Stage, release, soon};

const WAITERS: usize = 12;

type Locking = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

/// Returns this many calls, in this order: each has its place before the next one asks.
fn in_line(client: &Leasehold, name: &str, count: usize) -> Vec<Locking> {
    let mut line: Vec<Locking> = Vec::new();
    for _ in 0..count {
        let mutex = client.mutex(name);
        let mut locking: Locking = Box::pin(async move { mutex.lock().await });
        let first = locking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "somebody holds");
        line.push(locking);
    }
    line
}

/// Waits for the next one to be served.
async fn next_of(line: &mut Vec<Option<Locking>>) -> (usize, Guard) {
    let any = std::future::poll_fn(|context| {
        for (number, place) in line.iter_mut().enumerate() {
            if let Some(locking) = place
                && let std::task::Poll::Ready(guard) = locking.as_mut().poll(context)
            {
                *place = None;
                return std::task::Poll::Ready((number, guard.expect("granted")));
            }
        }
        std::task::Poll::Pending
    });
    soon("the next one is served", any).await
}

pub(super) async fn fifo(stage: &Stage) {
    let client = stage.client("a").await;
    let mut held = client.mutex(stage.name()).lock().await.expect("granted");
    let mut line: Vec<_> = in_line(&client, stage.name(), WAITERS).into_iter().map(Some).collect();
    for expected in 0..WAITERS {
        let last = held.token();
        release(held).await;
        let (number, guard) = next_of(&mut line).await;
        assert_eq!(number, expected, "first come, first served");
        assert!(guard.check().expect("held") > last, "tokens rise");
        held = guard;
    }
    release(held).await;
}

pub(super) async fn fenced(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let data = Fenced::new(0_u32);
    let mut held = a.mutex(stage.name()).lock().await.expect("granted");
    let mut line: Vec<_> = in_line(&a, stage.name(), WAITERS).into_iter().map(Some).collect();
    for _ in 0..WAITERS {
        let old = held.token();
        release(held).await;
        held = next_of(&mut line).await.1;
        *data.write(held.token()).expect("the newest token") += 1;
        assert!(data.write(old).is_err(), "a write that was in flight since before the hand-over");
    }
    let last = held.token();
    release(held).await;
    // After all inner hand-overs comes the client that the store grants.
    let other = soon("it is free", b.mutex(stage.name()).lock()).await.expect("granted");
    assert!(other.token() > last);
    *data.write(other.token()).expect("the newest token") += 1;
    assert!(data.write(last).is_err());
    release(other).await;
}

pub(super) async fn go_on_without_who_leaves(stage: &Stage) {
    let client = stage.client("a").await;
    let held = client.mutex(stage.name()).lock().await.expect("granted");
    let mut line: Vec<_> = in_line(&client, stage.name(), WAITERS).into_iter().map(Some).collect();
    // The first, the last, and some between them leave.
    let left: Vec<usize> = (0..WAITERS).filter(|number| number % 3 == 0 || *number == WAITERS - 1).collect();
    left.iter().for_each(|number| drop(line[*number].take()));
    release(held).await;
    for expected in (0..WAITERS).filter(|number| !left.contains(number)) {
        let (number, guard) = next_of(&mut line).await;
        assert_eq!(number, expected);
        // By either way of ending a guard.
        if number % 2 == 0 { release(guard).await } else { drop(guard) }
    }
    let guard = soon("it is free", client.mutex(stage.name()).lock()).await.expect("granted");
    release(guard).await;
}

const TASKS: usize = 4;

/// The limit is counted in hand-overs: the client's time limit is for tests that control the clock.
pub(super) async fn end_for_others(stage: &Stage) {
    let (a, b, witness) = (stage.client("a").await, stage.client("b").await, stage.client("witness").await);
    let held = a.mutex(stage.name()).lock().await.expect("granted");
    let is_served = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = in_line(&a, stage.name(), TASKS)
        .into_iter()
        .map(|locking| {
            let (mutex, is_served) = (a.mutex(stage.name()), Arc::clone(&is_served));
            tokio::spawn(async move {
                let mut tokens = Vec::new();
                let mut guard = locking.await.expect("granted");
                loop {
                    tokens.push(guard.token());
                    release(guard).await;
                    if is_served.load(Ordering::SeqCst) {
                        return tokens;
                    }
                    guard = mutex.lock().await.expect("granted");
                }
            })
        })
        .collect();
    let (bs, served) = (b.mutex(stage.name()), Arc::clone(&is_served));
    let waiting = tokio::spawn(async move {
        let guard = bs.lock().await.expect("granted");
        served.store(true, Ordering::SeqCst);
        guard
    });
    let (entries, most) = match stage.running().hand_over() {
        HandOver::Local => (1, RUN_PASSES as usize),
        HandOver::Remote => (TASKS + 1, TASKS),
    };
    stage.waiters(&witness, entries).await;
    if stage.running().hand_over() == HandOver::Local {
        crate::conformance::stage::eventually("the holder learns of the waiter", async || held.others_wait()).await;
    }
    let first = held.token();
    release(held).await;
    let other = soon("the waiter of the other client is served", waiting).await.expect("no panic");
    let token = other.token();
    release(other).await;
    let mut between = 0;
    for task in tasks {
        let tokens = soon("all are served", task).await.expect("no panic");
        between += tokens.into_iter().filter(|of| first < *of && *of < token).count();
    }
    assert!(between <= most, "{between} have come between, {most} may");
}
