//! The mutex: a task asks for it in every possible way.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::{ErrorKind, Mutex, Owner};
use leasehold_testkit::history::Ended;

use super::super::call::Method;
use super::super::exec::Part;
use super::super::plan::{MS, Plan};
use super::super::roam::{self, Asking, tried};
use super::super::under::Work;
use super::super::worker::Worker;
use super::barrier;
use super::condvar;
use super::election;
use super::latch;
use super::multi;
use super::table::{Act, ActFuture, Primitive, choose};

pub(super) const PRIMITIVE: Primitive = Primitive {
    word: "name",
    limit: 1,
    act: |worker, name| Box::pin(act(worker, name)),
    ask: |worker, name, lease| {
        Box::pin(async move {
            let mutex = worker.leasehold.mutex(name).lease(lease);
            (worker.is_renewed, worker.is_kept) = (true, false);
            lock(worker, &mutex, name).await
        })
    },
    revoke: |leasehold, name, grace| {
        let mutex = leasehold.mutex(name);
        Box::pin(async move {
            let holder = mutex.inspect().await.ok().and_then(|inspection| inspection.holder().cloned());
            let Some(holder) = holder else { return false };
            mutex.revoke(&holder, grace).await.is_ok()
        })
    },
};

const LOCK: Method = Method::waits("lock");
const TRY: Method = Method::asks("try_lock");
const RUN: Method = Method::asks("run").may_lose();
const OWNER: Method = Method::waits("lock of an owner").may_lose();
const REVOKE: Method = Method::asks("revoke");
const INSPECT: Method = Method::asks("inspect");

const LOCKS: Run = |worker, mutex, name| {
    Box::pin(async move {
        let _ = lock(worker, mutex, name).await;
    })
};

type Run = for<'a> fn(&'a mut Worker, &'a Mutex, &'a str) -> ActFuture<'a>;

const fn of(weight: fn(&Plan) -> u64, run: Run) -> Act<Run> {
    Act { weight, run }
}

/// A crowd asks only if the plan has no local queues: many tasks in one of those are busy enough.
const fn crowds(plan: &Plan) -> u64 {
    if plan.alike == 0 { 2 } else { 0 }
}

const ACTS: &[&[Act<Run>]] = &[
    &[
        of(|plan| plan.cancels, |worker, mutex, name| Box::pin(give_up(worker, mutex, name))),
        of(|plan| plan.revokes, |worker, mutex, _| Box::pin(revoke(worker, mutex))),
    ],
    &[of(|plan| plan.wanders, |worker, mutex, name| Box::pin(wander(worker, mutex, name)))],
    &[of(|plan| plan.blocks, |worker, mutex, name| Box::pin(block(worker, mutex, name)))],
    &[of(|plan| plan.plain, LOCKS)],
    &[
        of(|plan| 40 - 6 * condvar::weight(plan), LOCKS),
        of(condvar::weight, |worker, mutex, name| Box::pin(condvar::wait(worker, mutex, name))),
        of(condvar::weight, |worker, _, name| Box::pin(latch::act(worker, name))),
        of(condvar::weight, |worker, _, name| Box::pin(barrier::act(worker, name))),
        of(condvar::weight, |worker, _, name| Box::pin(multi::act(worker, name))),
        of(condvar::weight, |worker, _, _| Box::pin(election::act(worker))),
        of(condvar::weight, |worker, mutex, name| Box::pin(condvar::notify(worker, mutex, name))),
        of(|_| 15, |worker, mutex, name| Box::pin(try_lock(worker, mutex, name))),
        of(|_| 17, |worker, mutex, name| Box::pin(try_lock_for(worker, mutex, name))),
        of(|_| 3, |worker, _, name| Box::pin(whole(worker, name))),
        of(|_| 8, |worker, mutex, name| Box::pin(run(worker, mutex, name))),
        of(|_| 7, |worker, mutex, name| Box::pin(re_enter(worker, mutex, name))),
        of(|_| 4, |worker, mutex, name| Box::pin(two_of_one_owner(worker, mutex, name))),
        of(crowds, |worker, mutex, name| Box::pin(crowd(worker, mutex, name))),
        of(|plan| 6 - crowds(plan), |worker, mutex, _| Box::pin(inspect(worker, mutex))),
    ],
];

async fn act(worker: &mut Worker, name: &str) {
    let mutex = mutex(worker, name);
    let run = choose(worker, ACTS);
    run(worker, &mutex, name).await;
}

/// Returns a mutex with terms of its own.
fn mutex(worker: &mut Worker, name: &str) -> Mutex {
    let lease = worker.lease();
    let mutex = worker.leasehold.mutex(name);
    let is_alike = worker.rng.percent(worker.sim.plan.alike);
    let kind = if is_alike { 20 } else { worker.rng.below(20) };
    worker.is_renewed = kind >= 6;
    // A mutex that may not be handed on cannot be sticky.
    worker.is_kept = (kind >= 10 || (6..8).contains(&kind)) && worker.rng.percent(worker.sim.plan.sticky);
    if worker.is_kept {
        return mutex.lease(lease).sticky(Duration::from_micros(worker.rng.scaled(MS, 5_000 * MS)));
    }
    match kind {
        0..4 => mutex.fixed_lease(lease),
        4..6 => mutex.lease(lease).max_hold(lease * 2),
        6..8 => mutex.lease(lease).min_hold(Duration::from_micros(worker.rng.scaled(MS, worker.lease_us))),
        8..10 => mutex.lease(lease).fair(),
        _ => mutex.lease(lease),
    }
}

/// Locks. Returns whether the lock was granted.
async fn lock(worker: &mut Worker, mutex: &Mutex, name: &str) -> bool {
    let (call, was_free) = (worker.call(LOCK.what), worker.sim.is_free(name));
    match mutex.lock().await {
        Ok(guard) => {
            worker.judge_latency(&guard, name);
            worker.judge_strict_order(&guard, name);
            let is_first = || worker.sim.book.is_first_since(name, guard.token().get(), call.began_us);
            if was_free && !call.program_stood_still(&worker.sim) && is_first() {
                call.returned_soon(&worker.sim);
            }
            worker.section(guard, name, call.began_us).await;
            true
        }
        Err(error) => {
            worker.check_result(LOCK, Some(&error), &call);
            false
        }
    }
}

async fn try_lock(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let call = worker.call(TRY.what);
    let result = mutex.try_lock().await;
    // A first request that came too late is followed by another.
    worker.returned(&call, 4_000 * MS);
    tried(worker, TRY, result, &call, name).await;
}

async fn try_lock_for(worker: &mut Worker, mutex: &Mutex, name: &str) {
    // Often for less time than a store takes: then the call waits for its one answer, and returns it.
    let is_short = worker.rng.percent(30);
    let wait_us = if is_short { worker.rng.between(0, 50 * MS) } else { worker.rng.scaled(MS, 10_000 * MS) };
    // With a whole lease, a grant is claimed before it is entered.
    let is_whole = !worker.is_kept && worker.rng.percent(15);
    let mutex = if is_whole { mutex.clone().full_lease() } else { mutex.clone() };
    let call = worker.call("try_lock_for");
    let result = mutex.try_lock_for(Duration::from_micros(wait_us)).await;
    // Half a second more, or four round trips if those take longer, and no more than 2 s.
    call.returned_within(&worker.sim, wait_us + 2_000 * MS);
    tried(worker, TRY, result, &call, name).await;
}

/// Asks for a whole lease instead of a claim.
async fn whole(worker: &mut Worker, name: &str) {
    let (lease, call) = (worker.lease(), worker.call(LOCK.what));
    (worker.is_renewed, worker.is_kept) = (true, false);
    match worker.leasehold.mutex(name).lease(lease).full_lease().lock().await {
        Ok(guard) => {
            // The worker may have stood still since, but not for so long. A claim ends much sooner.
            if lease >= Duration::from_secs(60) && guard.remaining() < Duration::from_secs(20) {
                worker.wrong("a guard that asked for a whole lease came with a claim");
            }
            worker.section(guard, name, call.began_us).await;
        }
        Err(error) => worker.check_result(LOCK, Some(&error), &call),
    }
}

/// Asks, and drops the future.
async fn give_up(worker: &mut Worker, mutex: &Mutex, name: &str) {
    if worker.rng.percent(30) {
        return forget(worker, mutex).await;
    }
    let (call, after_us) = (worker.call(LOCK.what), worker.rng.scaled(1, 4_000 * MS));
    let storm = Arc::clone(&worker.storm);
    let locked = tokio::select! {
        biased;
        locked = mutex.lock() => Some(locked),
        () = storm.notified() => None,
        () = worker.sleep(after_us) => None,
    };
    match locked {
        Some(Ok(guard)) => worker.section(guard, name, call.began_us).await,
        Some(Err(error)) => worker.check_result(LOCK, Some(&error), &call),
        None => worker.sim.book.count("a dropped future"),
    }
}

/// Asks, does not poll for a moment, and drops the future: a grant that came meanwhile goes to the next waiter.
async fn forget(worker: &mut Worker, mutex: &Mutex) {
    let mut locking = Box::pin(mutex.lock());
    let asked = poll_fn(|context| Poll::Ready(locking.as_mut().poll(context)));
    if asked.await.is_pending() {
        let us = worker.rng.scaled(1, 20 * MS);
        worker.sleep(us).await;
    }
    drop(locking);
    worker.sim.book.count("a dropped future");
}

async fn run(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let call = worker.call(RUN.what);
    let mut done = None;
    let ran = mutex.run(async |guard| {
        let grant = worker.entered(guard, name, call.began_us);
        let _work = Work { sim: Arc::clone(&worker.sim), grant: grant.clone() };
        worker.effect(guard, &grant).await;
        let us = worker.rng.scaled(MS, worker.sim.plan.section_us);
        worker.sleep(us).await;
        worker.effect(guard, &grant).await;
        grant.ended(&worker.sim.book, worker.sim.exec.now_us(), Ended::Released);
        done = Some(worker.call("the end of run"));
    });
    let ran = ran.await;
    done.inspect(|done| done.returned_within(&worker.sim, 5_000 * MS));
    worker.check_result(RUN, ran.err().as_ref(), &call);
}

/// Enters again as an owner that holds, at once and with the same token.
async fn re_enter(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let mutex = mutex.clone().owner(&Owner::new());
    let call = worker.call(OWNER.what);
    let outer = match mutex.lock().await {
        Ok(guard) => guard,
        Err(error) => return worker.check_result(OWNER, Some(&error), &call),
    };
    let grant = worker.entered(&outer, name, call.began_us);
    let us = worker.rng.scaled(1, worker.sim.plan.section_us);
    worker.sleep(us).await;
    match mutex.lock().await {
        Ok(inner) => {
            worker.sim.book.count("a re-entry");
            if inner.check().is_err() || inner.token() != outer.token() {
                worker.wrong("a re-entry got a lost lease, or a lease with another token");
            }
            worker.effect(&inner, &grant).await;
            let _ = inner.release().await;
        }
        Err(error) if error.kind() == ErrorKind::Lost => worker.sim.book.count("a re-entry is refused"),
        Err(error) => worker.check_result(OWNER, Some(&error), &call),
    }
    worker.hold(outer, &grant, 1).await;
}

/// Locks in two tasks of one owner: they share the lease that the first of them gets.
async fn two_of_one_owner(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let mutex = mutex.clone().owner(&Owner::new());
    let call = worker.call(OWNER.what);
    let (one, other) = tokio::join!(biased; mutex.lock(), mutex.lock());
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let is_first = one.token() >= other.token();
            let (first, second) = if is_first { (one, other) } else { (other, one) };
            let grant = worker.entered(&first, name, call.began_us);
            drop(second);
            worker.hold(first, &grant, 1).await;
        }
        (one, other) => {
            worker.check_result(OWNER, one.err().as_ref(), &call);
            worker.check_result(OWNER, other.err().as_ref(), &call);
        }
    }
}

/// Makes so many callers ask for a moment that the store has more to settle than one step does.
async fn crowd(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let wait = Duration::from_micros(worker.rng.scaled(MS, 500 * MS));
    // Each waits in the store's queue by itself.
    let mutex = mutex.clone().sticky(Duration::ZERO).fair();
    let mut crowd: Vec<_> = (0..80).map(|_| Box::pin(mutex.try_lock_for(wait))).collect();
    let asked_us = worker.sim.exec.now_us();
    let mut one = None;
    for waiter in crowd.drain(..1) {
        one = waiter.await.ok().flatten();
    }
    // All are polled, and some are dropped before they get an answer.
    let polled = crowd.iter_mut().map(|waiter| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiter.as_mut().poll(&mut context).is_ready()
    });
    let ready = polled.filter(|is_ready| *is_ready).count();
    worker.sim.note(ready as u64, || format!("{}: a crowd asks for {name}", worker.caller));
    let us = worker.rng.scaled(MS, 300 * MS);
    worker.sleep(us).await;
    drop(crowd);
    if let Some(guard) = one {
        match guard.check() {
            Ok(_) => worker.section(guard, name, asked_us).await,
            Err(_) => drop(guard),
        }
    }
}

async fn revoke(worker: &mut Worker, mutex: &Mutex) {
    let Ok(inspection) = mutex.inspect().await else { return };
    let Some(holder) = inspection.holder() else { return };
    let grace = Duration::from_micros(*worker.rng.pick(&[0, 50 * MS, 500 * MS, 5_000 * MS]));
    let call = worker.call(REVOKE.what);
    let revoked = mutex.revoke(holder, grace).await;
    worker.returned(&call, 2_000 * MS);
    worker.sim.book.count("an operator revokes");
    worker.check_result(REVOKE, revoked.map(drop).err().as_ref(), &call);
}

/// Begins a call on one part of the process, and awaits it on another.
async fn wander(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let Some(there) = worker.elsewhere() else { return try_lock_for(worker, mutex, name).await };
    let (wait_us, mutex) = (worker.rng.scaled(MS, 10_000 * MS), mutex.clone());
    let result = Box::pin(async move { mutex.try_lock_for(Duration::from_micros(wait_us)).await });
    let asking = Asking { method: TRY, result, within_us: wait_us + 2_000 * MS };
    roam::wander(worker, there, asking, name).await;
}

/// Blocks the worker's own runtime during a call.
async fn block(worker: &mut Worker, mutex: &Mutex, name: &str) {
    let Part::Runtime(number) = worker.part else { return try_lock(worker, mutex, name).await };
    let wait_us = worker.rng.scaled(MS, 2_000 * MS);
    let (waits, mutex) = (worker.rng.percent(70), mutex.clone());
    let result = Box::pin(async move {
        match waits {
            true => mutex.try_lock_for(Duration::from_micros(wait_us)).await,
            false => mutex.try_lock().await,
        }
    });
    let within_us = if waits { wait_us + 2_000 * MS } else { 4_000 * MS };
    roam::block(worker, number, Asking { method: TRY, result, within_us }, name).await;
}

async fn inspect(worker: &mut Worker, mutex: &Mutex) {
    let call = worker.call(INSPECT.what);
    let inspected = mutex.inspect().await;
    worker.returned(&call, 2_000 * MS);
    worker.check_result(INSPECT, inspected.map(drop).err().as_ref(), &call);
}

#[cfg(test)]
mod tests {
    use super::super::super::quorum;
    use super::*;

    #[test]
    fn the_weights_of_the_last_round_add_up_to_a_hundred() {
        for plan in (1..300).flat_map(|seed| [Plan::of(seed), quorum::plan(seed)]) {
            let weights = ACTS.last().into_iter().flat_map(|round| round.iter()).map(|act| (act.weight)(&plan));
            assert_eq!(weights.sum::<u64>(), 100, "seed {}", plan.seed);
        }
    }
}
