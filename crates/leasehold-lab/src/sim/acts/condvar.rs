//! Waits and notifications: a task that holds a mutex waits for its condition variable, and another one notifies. They are
//! acts of the mutex, because each wait begins and ends with a held lock.

use std::sync::Mutex as Lock;
use std::time::Duration;

use leasehold::{Guard, Mutex, Woken};
use leasehold_testkit::history::Ended;

use super::super::call::Method;
use super::super::exec::lock;
use super::super::plan::{MS, Plan};
use super::super::stage::Sim;
use super::super::worker::Worker;
use super::pool::random_wait;

const LOCK: Method = Method::waits("lock before a wait");
const WAIT: Method = Method::waits("wait_for").may_lose();
const NOTIFY: Method = Method::asks("notify");

/// How many of a hundred acts wait. As many notify. A quorum has no condition variables.
pub(super) const fn weight(plan: &Plan) -> u64 {
    if plan.quorum.is_none() && plan.alike == 0 { 5 } else { 0 }
}

/// The tasks that wait, with the tokens of the locks under which they began.
#[derive(Default)]
pub(super) struct Waits(Lock<Vec<Wait>>);

struct Wait {
    number: u64,
    name: String,
    token: u64,
    /// When the store acknowledged a notification to all that found this task in the queue.
    notified_us: Option<u64>,
}

impl Waits {
    fn begin(&self, name: &str, token: u64) -> u64 {
        let mut waits = lock(&self.0);
        let number = waits.last().map_or(1, |last| last.number + 1);
        waits.push(Wait { number, name: name.to_owned(), token, notified_us: None });
        number
    }

    /// Notes that all waiters were notified by a holder with this token. A wait that began under an earlier token has
    /// released its lock, so it stands in the queue (P41).
    fn notified(&self, name: &str, token: u64, now_us: u64) {
        for wait in lock(&self.0).iter_mut().filter(|wait| wait.name == name && wait.token < token) {
            wait.notified_us.get_or_insert(now_us);
        }
    }

    /// Ends a wait. Returns when it was notified.
    fn end(&self, number: u64) -> Option<u64> {
        let mut waits = lock(&self.0);
        let at = waits.iter().position(|wait| wait.number == number)?;
        waits.remove(at).notified_us
    }
}

fn condition(name: &str) -> String {
    format!("{name}: changed")
}

async fn locked(worker: &mut Worker, mutex: &Mutex, name: &str) -> Option<Guard> {
    let call = worker.call(LOCK.what);
    match mutex.lock().await {
        Ok(guard) => {
            let grant = worker.entered(&guard, name, call.began_us);
            // From here on the lock may be free at any moment.
            grant.ended(&worker.sim.book, worker.sim.exec.now_us(), Ended::Released);
            Some(guard)
        }
        Err(error) => {
            worker.check_result(LOCK, Some(&error), &call);
            None
        }
    }
}

/// Locks, and waits for a while. Often the future is dropped.
pub(super) async fn wait(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let Some(guard) = locked(worker, mutex, name).await else { return };
    let (wait, lease_us) = (random_wait(worker), worker.lease_us);
    let lease = worker.lease();
    // The sections are judged by the lease of the lock.
    worker.lease_us = lease_us;
    let condvar = worker.leasehold.condvar(condition(name)).lease(lease);
    let (token, until_us) = (guard.token().get(), worker.sim.exec.now_us() + wait.as_micros() as u64);
    let (call, number) = (worker.call(WAIT.what), worker.sim.ledgers.waits.begin(name, token));
    let after_us = if worker.rng.percent(25) { worker.rng.scaled(1, 4_000 * MS) } else { u64::MAX / 2 };
    let waited = tokio::select! {
        biased;
        waited = condvar.wait_for(guard, wait) => Some(waited),
        () = worker.sleep(after_us) => None,
    };
    let notified_us = worker.sim.ledgers.waits.end(number);
    match waited {
        Some(Ok((guard, woken))) => {
            worker.sim.book.count(if woken == Woken::Notified { "a wake-up" } else { "a wait that times out" });
            if woken == Woken::TimedOut && is_late(&worker.sim, notified_us, until_us) {
                worker.wrong("a waiter that was notified has timed out");
            }
            // A wait may end before it has released the lock.
            if guard.token().get() > token {
                worker.section(guard, name, call.began_us).await;
            }
        }
        Some(Err(error)) => worker.check_result(WAIT, Some(&error), &call),
        None => worker.sim.book.count("a dropped wait"),
    }
}

/// Returns whether a waiter must have received its notification by then. Faults may delay it.
fn is_late(sim: &Sim, notified_us: Option<u64>, until_us: u64) -> bool {
    sim.plan.is_well() && notified_us.is_some_and(|notified_us| notified_us + sim.plan.answers_us() < until_us)
}

/// Locks, changes something, and notifies.
pub(super) async fn notify(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let condvar = worker.leasehold.condvar(condition(name));
    let is_for_all = worker.rng.percent(40);
    let Some(guard) = locked(worker, mutex, name).await else { return };
    let (token, call) = (guard.token().get(), worker.call(NOTIFY.what));
    let notified = match is_for_all {
        true => condvar.lease(Duration::from_millis(500)).notify_all().await.map(|count| count > 0),
        false => condvar.lease(Duration::from_millis(500)).notify_one().await,
    };
    match notified {
        Ok(is_any) => {
            worker.sim.book.count(if is_any { "a notification" } else { "a notification of nobody" });
            if is_for_all && guard.check().is_ok() {
                worker.sim.ledgers.waits.notified(name, token, worker.sim.exec.now_us());
            }
        }
        Err(error) => worker.check_result(NOTIFY, Some(&error), &call),
    }
    drop(guard);
}
