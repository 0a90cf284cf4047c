//! Tasks that wait for each other: at the condition variable of a mutex, at a barrier, and at a latch.

use std::time::Duration;

use leasehold::{ErrorKind, Guard, Mutex};
use leasehold_testkit::history::{Ended, GaveUp};

use super::super::super::names::Class;
use super::super::call::Call;
use super::super::section;
use super::super::turn::Turn;
use super::pool::lease;
use super::table::{Primitive, Taken};

pub(super) const PRIMITIVE: Primitive = Primitive {
    classes: &[Class::Meet],
    limit: 1,
    act: |turn| Box::pin(act(turn)),
    take_all: |client, name, (lease, wait)| {
        let mutex = client.mutex(name).lease(lease);
        Box::pin(async move { Ok(mutex.try_lock_for(wait).await?.map(Taken::by)) })
    },
};

/// After its wait, a call waits for this time for a reply of the store.
const REPLY_WAIT: Duration = Duration::from_secs(1);
/// How long the store keeps a latch: a minute is enough for a round.
const KEEP: Duration = Duration::from_secs(60);
const PARTIES: u32 = 2;
const COUNTS: u32 = 2;

#[derive(Clone, Copy)]
enum Role {
    Waiter,
    Notifier,
    Party,
    Worker,
}

async fn act(mut turn: Turn<'_>) {
    let lease = lease(&mut turn);
    let mutex = turn.client.mutex(turn.name).lease(lease);
    let wait = Duration::from_micros(turn.random.within(1, 800_000));
    match turn.random.weighted(&[(30, Role::Waiter), (30, Role::Notifier), (25, Role::Party), (15, Role::Worker)]) {
        Role::Waiter => wait_for(turn, &mutex, (lease, wait)).await,
        Role::Notifier => notify(turn, &mutex).await,
        Role::Party => arrive(turn, (lease, wait)).await,
        Role::Worker => work(turn, wait).await,
    }
}

/// Locks. The grant ends in the history before the lock can be free.
async fn lock(turn: &Turn<'_>, mutex: &Mutex) -> Option<Guard> {
    turn.doing("lock before a wait or a notification");
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    match mutex.lock().await {
        Ok(guard) => {
            let held = attempt.granted(guard.token().get());
            held.claims(|| guard.check().is_ok());
            held.ended(guard.check().err().map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason()))));
            Some(guard)
        }
        Err(error) => {
            section::failed(turn, attempt, &error).await;
            None
        }
    }
}

/// Locks, and waits for a notification. Sometimes the future is dropped.
async fn wait_for(turn: Turn<'_>, mutex: &Mutex, (lease, wait): (Duration, Duration)) {
    let Some(guard) = lock(&turn, mutex).await else { return };
    let (token, shift, is_dropped) = (guard.token(), turn.shift, turn.random.chance(20));
    let condvar = turn.client.condvar(format!("{}: changed", turn.name)).lease(lease);
    // The history lists the waiter under a name of its own, and so does the shift's table of current activities.
    let waiter = format!("{}/waiter", turn.me);
    let turn = Turn { me: &waiter, ..turn };
    turn.doing("wait for a notification");
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    let within = if is_dropped { wait / 2 } else { Duration::from_secs(3600) };
    match tokio::time::timeout(within, condvar.wait_for(guard, wait)).await {
        // A wait may end before it has released the lock.
        Ok(Ok((guard, _))) if guard.token() == token => section::gave_up(&turn, attempt, GaveUp::TimedOut),
        Ok(Ok((guard, woken))) => {
            turn.shift.count(&format!("wait: {woken:?}"));
            section::run(turn, attempt, vec![guard], lease).await;
        }
        Ok(Err(error)) => section::failed(&turn, attempt, &error).await,
        Err(_) => section::gave_up(&turn, attempt, GaveUp::Cancelled),
    }
    shift.idle(&waiter);
}

async fn notify(turn: Turn<'_>, mutex: &Mutex) {
    let Some(guard) = lock(&turn, mutex).await else { return };
    let condvar = turn.client.condvar(format!("{}: changed", turn.name));
    turn.doing("notify");
    let notified = match turn.random.chance(40) {
        true => condvar.notify_all().await.map(|count| count > 0),
        false => condvar.notify_one().await,
    };
    match notified {
        Ok(is_any) => turn.shift.count(if is_any { "notified somebody" } else { "notified nobody" }),
        Err(error) => turn.shift.count(&format!("notify: {:?}", error.kind())),
    }
    drop(guard);
}

async fn arrive(turn: Turn<'_>, (lease, wait): (Duration, Duration)) {
    let barrier = turn.client.barrier(format!("{}: step", turn.name), PARTIES).lease(lease);
    turn.doing("wait at a barrier");
    let call = Call::begin(turn.shift, turn.at, "wait_for at a barrier", (wait, REPLY_WAIT));
    let (said, error) = match barrier.wait_for(wait).await {
        Ok(Some(_)) => ("let through".into(), None),
        Ok(None) => ("time over".into(), None),
        Err(error) if error.kind() == ErrorKind::Broken => ("broken".into(), None),
        Err(error) => (format!("{:?}", error.kind()), Some(error.kind())),
    };
    call.ended(turn.me, error);
    turn.shift.count(&format!("arrival: {said}"));
}

/// Counts down a latch, and waits for it. A later latch has another name.
async fn work(turn: Turn<'_>, wait: Duration) {
    let latch = turn.client.latch(format!("{}: job {}", turn.name, turn.random.below(2))).keep(KEEP);
    turn.doing("create a latch");
    if let Err(error) = latch.create(COUNTS).await {
        return turn.shift.count(&format!("create a latch: {:?}", error.kind()));
    }
    turn.doing("wait at a latch");
    let call = Call::begin(turn.shift, turn.at, "wait_for at a latch", (wait, REPLY_WAIT));
    let counting = tokio::time::timeout(wait, latch.count_down());
    let (counted, opened) = tokio::join!(counting, latch.wait_for(wait));
    turn.shift.count(&match counted {
        Ok(Ok(())) => "count down".into(),
        Ok(Err(error)) => format!("count down: {:?}", error.kind()),
        Err(_) => "count down: dropped".into(),
    });
    let error = opened.as_ref().err().map(leasehold::Error::kind);
    call.ended(turn.me, error);
    turn.shift.count(&match opened {
        Ok(true) => "latch: open".into(),
        Ok(false) => "latch: closed".into(),
        Err(error) => format!("latch: {:?}", error.kind()),
    });
}
