//! The work of clients: a task that asks for locks in every possible way, and does under them what locks protect.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::{Error, ErrorKind, Guard, Leasehold, Mutex, Owner};
use leasehold_testkit::history::Ended;
use tokio::sync::Notify;

use super::call::Call;
use super::exec::{Part, Pid};
use super::rng::Rng;
use super::stage::Sim;
use super::under::Work;

#[derive(Clone)]
pub(super) struct Worker {
    pub(super) sim: Arc<Sim>,
    pub(super) pid: Pid,
    /// The part on which it is polled.
    pub(super) part: Part,
    pub(super) caller: String,
    pub(super) leasehold: Leasehold,
    pub(super) storm: Arc<Notify>,
    pub(super) rng: Rng,
    /// When to begin nothing new.
    pub(super) until_us: u64,
    /// Whether the last requested lock is renewed for as long as it is held.
    pub(super) is_renewed: bool,
    /// Whether the last requested lock is sticky: kept for a while when it is given back.
    pub(super) is_kept: bool,
    /// The last requested lease.
    pub(super) lease_us: u64,
}

/// How often a worker asks at the end, when a memory may just have been full.
const LAST_TRIES: usize = 3;

pub(super) const MS: u64 = 1000;

impl Worker {
    pub(super) async fn work(mut self) {
        while self.sim.exec.now_us() < self.until_us {
            let think_us = self.rng.scaled(1000, self.sim.plan.think_us);
            self.sleep(think_us).await;
            self.act().await;
        }
        // Any caller that asks now is served, whatever has happened.
        let name = self.sim.plan.names[0].clone();
        let mutex = self.leasehold.mutex(&name).lease(self.lease());
        (self.is_renewed, self.is_kept) = (true, false);
        for _ in 0..LAST_TRIES {
            if self.lock(&mutex, &name).await {
                return;
            }
            self.sleep(1_000 * MS).await;
        }
        if self.until_us == self.sim.plan.chaos_us {
            self.wrong("a caller that asks at the end is refused");
        }
    }

    async fn act(&mut self) {
        let name = self.name();
        let mutex = self.mutex(&name);
        let roll = self.rng.below(100);
        let (cancels, revokes) = (self.sim.plan.cancels, self.sim.plan.revokes);
        if roll < cancels {
            return self.give_up(&mutex, &name).await;
        }
        if roll < cancels + revokes {
            return self.revoke(&mutex).await;
        }
        let (wanders, blocks) = (self.sim.plan.wanders, self.sim.plan.blocks);
        if self.rng.percent(wanders) {
            return self.wander(&mutex, &name).await;
        }
        if self.rng.percent(blocks) {
            return self.block(&mutex, &name).await;
        }
        let is_plain = self.rng.percent(self.sim.plan.plain);
        match if is_plain { 0 } else { self.rng.below(100) } {
            0..40 => drop(self.lock(&mutex, &name).await),
            40..55 => self.try_lock(&mutex, &name).await,
            55..72 => self.try_lock_for(&mutex, &name).await,
            72..75 => self.whole(&name).await,
            75..83 => self.run(&mutex, &name).await,
            83..90 => self.re_enter(&mutex, &name).await,
            90..94 => self.two_of_one_owner(&mutex, &name).await,
            // Many tasks in a local queue are busy enough.
            94..96 if self.sim.plan.alike == 0 => self.crowd(&mutex, &name).await,
            _ => {
                let call = self.call("inspect");
                let inspected = mutex.inspect().await;
                self.returned(&call, 2_000 * MS);
                self.check_result("inspect", inspected.map(drop).err().as_ref(), &call);
            }
        }
    }

    /// Locks. Returns whether the lock was granted.
    async fn lock(&mut self, mutex: &Mutex, name: &str) -> bool {
        let (call, was_free) = (self.call("lock"), self.sim.is_free(name));
        match mutex.lock().await {
            Ok(guard) => {
                self.judge_latency(&guard, name);
                self.judge_strict_order(&guard, name);
                let is_first = || self.sim.book.is_first_since(name, guard.token().get(), call.began_us);
                if was_free && !call.program_stood_still(&self.sim) && is_first() {
                    call.returned_soon(&self.sim);
                }
                self.section(guard, name, call.began_us).await;
                true
            }
            Err(error) => {
                self.check_result("lock", Some(&error), &call);
                false
            }
        }
    }

    /// Checks that a grant reaches its waiter by its push, and not by a later re-check.
    fn judge_latency(&self, guard: &Guard, name: &str) {
        let Some(given_us) = self.sim.book.given_us(name, guard.token().get()) else { return };
        let took_us = self.sim.exec.now_us() - given_us;
        if self.sim.plan.keeps_leases() && took_us > self.sim.plan.soon_us() {
            self.wrong(&format!("a grant took {took_us} µs to its holder, but no fault interfered"));
        }
    }

    /// Checks that a client hands nothing on when it knows of a waiter in strict order.
    fn judge_strict_order(&self, guard: &Guard, name: &str) {
        let (plan, token, now_us) = (&self.sim.plan, guard.token().get(), self.sim.exec.now_us());
        let grant = self.sim.book.grant_of(name, token).filter(|grant| *grant != token);
        let known_us = grant.and_then(|grant| self.sim.book.strict_us(self.pid, grant));
        if plan.keeps_leases() && plan.hiccup_in == 0 && known_us.is_some_and(|known_us| now_us > known_us + 2 * MS) {
            self.wrong("P20: a pass, but the client knows of a waiter in strict order");
        }
    }

    pub(super) async fn try_lock(&mut self, mutex: &Mutex, name: &str) {
        let call = self.call("try_lock");
        let tried = mutex.try_lock().await;
        // A first request that came too late is followed by another.
        self.returned(&call, 4_000 * MS);
        self.tried(tried, &call, name).await;
    }

    pub(super) async fn try_lock_for(&mut self, mutex: &Mutex, name: &str) {
        // Often for less time than a store takes: then the call waits for its one answer, and returns it.
        let is_short = self.rng.percent(30);
        let wait_us = if is_short { self.rng.between(0, 50 * MS) } else { self.rng.scaled(MS, 10_000 * MS) };
        // With a whole lease, a grant is claimed before it is entered.
        let is_whole = !self.is_kept && self.rng.percent(15);
        let mutex = if is_whole { mutex.clone().full_lease() } else { mutex.clone() };
        let call = self.call("try_lock_for");
        let tried = mutex.try_lock_for(Duration::from_micros(wait_us)).await;
        // Half a second more, or four round trips if those take longer, and no more than 2 s.
        call.returned_within(&self.sim, wait_us + 2_000 * MS);
        self.tried(tried, &call, name).await;
    }

    /// Asks for a whole lease, and no claim.
    async fn whole(&mut self, name: &str) {
        let (lease, call) = (self.lease(), self.call("lock"));
        (self.is_renewed, self.is_kept) = (true, false);
        match self.leasehold.mutex(name).lease(lease).full_lease().lock().await {
            Ok(guard) => {
                // It may have stood still since, for some time; a claim is over sooner than that.
                if lease >= Duration::from_secs(60) && guard.remaining() < Duration::from_secs(20) {
                    self.wrong("a guard that asked for a whole lease came with a claim");
                }
                self.section(guard, name, call.began_us).await;
            }
            Err(error) => self.check_result("lock", Some(&error), &call),
        }
    }

    /// Asks, and drops the future.
    async fn give_up(&mut self, mutex: &Mutex, name: &str) {
        if self.rng.percent(30) {
            return self.forget(mutex).await;
        }
        let (call, after_us) = (self.call("lock"), self.rng.scaled(1, 4_000 * MS));
        let storm = Arc::clone(&self.storm);
        let locked = tokio::select! {
            biased;
            locked = mutex.lock() => Some(locked),
            () = storm.notified() => None,
            () = self.sleep(after_us) => None,
        };
        match locked {
            Some(Ok(guard)) => self.section(guard, name, call.began_us).await,
            Some(Err(error)) => self.check_result("lock", Some(&error), &call),
            None => self.sim.book.count("a dropped future"),
        }
    }

    /// Asks, does not poll for a moment, and drops the future: a grant that came meanwhile goes to the next waiter.
    async fn forget(&mut self, mutex: &Mutex) {
        let mut locking = Box::pin(mutex.lock());
        let asked = poll_fn(|context| Poll::Ready(locking.as_mut().poll(context)));
        if asked.await.is_pending() {
            let us = self.rng.scaled(1, 20 * MS);
            self.sleep(us).await;
        }
        drop(locking);
        self.sim.book.count("a dropped future");
    }

    async fn run(&mut self, mutex: &Mutex, name: &str) {
        let call = self.call("run");
        let mut done = None;
        let ran = mutex.run(async |guard| {
            let grant = self.entered(guard, name, call.began_us);
            let _work = Work { sim: Arc::clone(&self.sim), grant: grant.clone() };
            self.effect(guard, &grant).await;
            let us = self.rng.scaled(MS, self.sim.plan.section_us);
            self.sleep(us).await;
            self.effect(guard, &grant).await;
            grant.ended(&self.sim.book, self.sim.exec.now_us(), Ended::Released);
            done = Some(self.call("the end of run"));
        });
        let ran = ran.await;
        done.inspect(|done| done.returned_within(&self.sim, 5_000 * MS));
        self.check_result("run", ran.err().as_ref(), &call);
    }

    /// Enters again as an owner that holds, at once and with the same token.
    async fn re_enter(&mut self, mutex: &Mutex, name: &str) {
        let mutex = mutex.clone().owner(&Owner::new());
        let call = self.call("lock of an owner");
        let outer = match mutex.lock().await {
            Ok(guard) => guard,
            Err(error) => return self.check_result("lock of an owner", Some(&error), &call),
        };
        let grant = self.entered(&outer, name, call.began_us);
        let us = self.rng.scaled(1, self.sim.plan.section_us);
        self.sleep(us).await;
        match mutex.lock().await {
            Ok(inner) => {
                self.sim.book.count("a re-entry");
                if inner.check().is_err() || inner.token() != outer.token() {
                    self.wrong("a re-entry got a lost lease, or a lease with another token");
                }
                self.effect(&inner, &grant).await;
                let _ = inner.release().await;
            }
            Err(error) if error.kind() == ErrorKind::Lost => self.sim.book.count("a re-entry is refused"),
            Err(error) => self.check_result("lock of an owner", Some(&error), &call),
        }
        self.hold(outer, &grant, 1).await;
    }

    /// Locks in two tasks of one owner: they share the lease that the first of them gets.
    async fn two_of_one_owner(&mut self, mutex: &Mutex, name: &str) {
        let mutex = mutex.clone().owner(&Owner::new());
        let call = self.call("lock of an owner");
        let (one, other) = tokio::join!(biased; mutex.lock(), mutex.lock());
        match (one, other) {
            (Ok(one), Ok(other)) => {
                let is_first = one.token() >= other.token();
                let (first, second) = if is_first { (one, other) } else { (other, one) };
                let grant = self.entered(&first, name, call.began_us);
                drop(second);
                self.hold(first, &grant, 1).await;
            }
            (one, other) => {
                self.check_result("lock of an owner", one.err().as_ref(), &call);
                self.check_result("lock of an owner", other.err().as_ref(), &call);
            }
        }
    }

    /// Makes so many callers ask for a moment that the store has more to settle than one step does.
    async fn crowd(&mut self, mutex: &Mutex, name: &str) {
        let wait = Duration::from_micros(self.rng.scaled(MS, 500 * MS));
        // Each waits in the store's queue by itself.
        let mutex = mutex.clone().sticky(Duration::ZERO).fair();
        let mut crowd: Vec<_> = (0..80).map(|_| Box::pin(mutex.try_lock_for(wait))).collect();
        let asked_us = self.sim.exec.now_us();
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
        self.sim.note(ready as u64, || format!("{}: a crowd asks for {name}", self.caller));
        let us = self.rng.scaled(MS, 300 * MS);
        self.sleep(us).await;
        drop(crowd);
        if let Some(guard) = one {
            match guard.check() {
                Ok(_) => self.section(guard, name, asked_us).await,
                Err(_) => drop(guard),
            }
        }
    }

    async fn revoke(&mut self, mutex: &Mutex) {
        let Ok(inspection) = mutex.inspect().await else { return };
        let Some(holder) = inspection.holder else { return };
        let grace = Duration::from_micros(*self.rng.pick(&[0, 50 * MS, 500 * MS, 5_000 * MS]));
        let call = self.call("revoke");
        let revoked = mutex.revoke(&holder, grace).await;
        self.returned(&call, 2_000 * MS);
        self.sim.book.count("an operator revokes");
        self.check_result("revoke", revoked.map(drop).err().as_ref(), &call);
    }

    pub(super) fn call(&self, what: &'static str) -> Call {
        Call::begins(&self.sim, what, &self.caller, (self.pid, self.part))
    }

    /// Judges a call that waits for one answer of the store: it returns in time, and soon if no fault interferes.
    pub(super) fn returned(&self, call: &Call, within_us: u64) {
        call.returned_within(&self.sim, within_us);
        call.returned_soon(&self.sim);
    }

    fn check_result(&self, what: &'static str, error: Option<&Error>, call: &Call) {
        error.into_iter().for_each(|error| self.failed(what, error, call.program_stood_still(&self.sim)));
    }

    /// Handles a failed call. `has_stood` says whether its caller stood still meanwhile.
    pub(super) fn failed(&self, what: &'static str, error: &Error, has_stood: bool) {
        self.sim.note(2, || format!("{}: {what}: {error}", self.caller));
        self.sim.book.count(error_label(error.kind()));
        let may = match error.kind() {
            ErrorKind::Unreachable | ErrorKind::Quorum => {
                !what.starts_with("lock") && (has_stood || !self.sim.plan.is_well())
            }
            // Exactly the message of this store, and no other that it might report.
            ErrorKind::Store => error.to_string().contains("the memory of the store is full"),
            ErrorKind::Lost => matches!(what, "run" | "lock of an owner"),
            _ => false,
        };
        if !may {
            self.wrong(&format!("{what} failed: {error}"));
        }
    }

    pub(super) fn wrong(&self, what: &str) {
        self.sim.book.wrong(self.sim.exec.now_us(), &format!("{}: {what}", self.caller));
    }

    fn name(&mut self) -> String {
        let names = &self.sim.plan.names;
        let is_hot = self.rng.below(10) < self.sim.plan.heat;
        if is_hot { names[0].clone() } else { self.rng.pick(names).clone() }
    }

    fn lease(&mut self) -> Duration {
        let lease_ms = *self.rng.pick(&self.sim.plan.leases_ms);
        self.lease_us = lease_ms * MS;
        Duration::from_millis(lease_ms)
    }

    fn mutex(&mut self, name: &str) -> Mutex {
        let lease = self.lease();
        let mutex = self.leasehold.mutex(name);
        let is_alike = self.rng.percent(self.sim.plan.alike);
        let kind = if is_alike { 20 } else { self.rng.below(20) };
        self.is_renewed = kind >= 6;
        // A mutex that may not be handed on cannot be sticky.
        self.is_kept = (kind >= 10 || (6..8).contains(&kind)) && self.rng.percent(self.sim.plan.sticky);
        if self.is_kept {
            return mutex.lease(lease).sticky(Duration::from_micros(self.rng.scaled(MS, 5_000 * MS)));
        }
        match kind {
            0..4 => mutex.fixed_lease(lease),
            4..6 => mutex.lease(lease).max_hold(lease * 2),
            6..8 => mutex.lease(lease).min_hold(Duration::from_micros(self.rng.scaled(MS, self.lease_us))),
            8..10 => mutex.lease(lease).fair(),
            _ => mutex.lease(lease),
        }
    }

    pub(super) fn sleep(&self, us: u64) -> leasehold::seam::Pending<()> {
        self.sim.exec.sleep(self.pid, Duration::from_micros(us))
    }
}

fn error_label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable => "error: unreachable",
        ErrorKind::Quorum => "error: quorum",
        ErrorKind::Store => "error: store",
        ErrorKind::Lost => "error: lost",
        ErrorKind::Closed => "error: closed",
        _ => "error: otherwise",
    }
}
