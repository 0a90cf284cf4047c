//! The work under a lock of any primitive, and whether the holder still believes in its lease.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use leasehold::LostReason;
use leasehold_spec::limits::{RUN_MAX_US, RUN_PASSES};
use leasehold_testkit::history::{Ended, Promise, Share};

use super::book::{Excuse, Grant};
use super::exec::lock;
use super::plan::{HICCUP_US, MS};
use super::quorum::heal_ends;
use super::registers;
use super::sent::Sent;
use super::stage::Sim;
use super::worker::Worker;
use crate::lease::Lease;

/// Work that is dropped when its lease is lost, perhaps with a write in flight.
pub(super) struct Work {
    pub(super) sim: Arc<Sim>,
    pub(super) grant: Grant,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.sim.book.cut_short(&self.grant.name, self.grant.token, self.sim.exec.now_us());
    }
}

impl Worker {
    /// Runs a section under the lock.
    pub(super) async fn section(&mut self, guard: impl Lease, name: &str, asked_us: u64) {
        let grant = self.entered(&guard, name, asked_us);
        let is_over = self.sim.exec.now_us() >= self.sim.plan.chaos_us;
        let rounds = if is_over { 1 } else { self.rng.between(1, 4) };
        self.hold(guard, &grant, rounds).await;
    }

    /// Records that a guard was returned, and judges it.
    pub(super) fn entered(&self, guard: &impl Lease, name: &str, asked_us: u64) -> Grant {
        let (token, share) = (guard.token(), guard.share());
        let grant = Grant { name: name.into(), client: self.caller.clone(), token, share };
        let now_us = self.sim.exec.now_us();
        grant.granted(&self.sim.book, asked_us, now_us);
        // Only a holder that was not notified hands on, and the store's next holder was granted a larger token.
        if let Some(why) = self.sim.book.handed_on_unaware(name, token, now_us) {
            let (name, breaks) = (Some(name.to_owned()), Promise::Tokens);
            self.sim.book.excuse(Excuse { name, breaks, from_us: now_us, to_us: now_us, why });
        }
        if self.sim.book.is_placed_by_an_old_clock(self.pid, name, token) {
            let (name, breaks, to_us) = (Some(name.to_owned()), Promise::Exclusion, now_us + guard.left_us());
            let why = "a delayed message is dated by a clock that was set forward since";
            self.sim.book.excuse(Excuse { name, breaks, from_us: now_us, to_us, why });
        }
        if self.sim.plan.keeps_leases() {
            self.judge_passes(&grant, now_us);
        }
        if self.sim.book.is_behind_a_panic(self.pid, name, token) {
            self.wrong("P20: a lease was handed on after its section had panicked");
        }
        self.sim.note(token, || format!("{} holds {name} with token {token}", self.caller));
        if guard.check().is_err() {
            self.wrong("lock() returned a guard whose lease was already lost");
        }
        grant
    }

    /// Checks that a grant reaches its waiter by its push, and not by a later re-check.
    pub(super) fn judge_latency(&self, guard: &impl Lease, name: &str) {
        let Some(given_us) = self.sim.book.given_us(name, guard.token()) else { return };
        let took_us = self.sim.exec.now_us() - given_us;
        if self.sim.plan.keeps_leases() && took_us > self.sim.plan.soon_us() {
            self.wrong(&format!("a grant took {took_us} µs to its holder, but no fault interfered"));
        }
    }

    /// Checks that a client hands nothing on when it knows of a waiter in strict order.
    pub(super) fn judge_strict_order(&self, guard: &impl Lease, name: &str) {
        let (plan, token, now_us) = (&self.sim.plan, guard.token(), self.sim.exec.now_us());
        let grant = self.sim.book.grant_of(name, token).filter(|grant| *grant != token);
        let known_us = grant.and_then(|grant| self.sim.book.strict_us(self.pid, grant));
        if plan.keeps_leases() && plan.hiccup_in == 0 && known_us.is_some_and(|known_us| now_us > known_us + 2 * MS) {
            self.wrong("P20: a pass, but the client knows of a waiter in strict order");
        }
    }

    /// Judges local hand-over. Once another client waits, a client may hand on only for a limited time and number of
    /// passes (P20), counted from when the message about the waiter must have arrived.
    fn judge_passes(&self, grant: &Grant, now_us: u64) {
        let Some(run) = lock(&self.sim.net).hand_over_of(grant) else { return };
        let given_us = self.sim.book.given_us(&grant.name, run.token).unwrap_or(now_us);
        let soon_us = self.sim.plan.soon_us();
        let known_us = given_us.max(run.waited_us) + soon_us;
        if run.token == grant.token || now_us <= known_us {
            return;
        }
        if now_us > given_us.max(run.strict_us) + soon_us {
            self.wrong("P20: a pass, but a client waits in strict order");
        }
        let passes = self.sim.book.passed(&grant.name, run.token);
        if now_us > known_us + RUN_MAX_US || passes > u64::from(RUN_PASSES) {
            let late_us = now_us - known_us;
            self.wrong(&format!(
                "P20: pass {passes}, but another client has waited for {late_us} µs since this client knew it"
            ));
        }
    }

    pub(super) async fn hold(&mut self, guard: impl Lease, grant: &Grant, rounds: u64) {
        for _ in 0..rounds {
            if !self.effect(&guard, grant).await {
                break;
            }
            let us = self.pause_us(&guard);
            let (left_us, waiting) = (guard.left_us(), self.call("a wait for a loss"));
            let lost = tokio::select! {
                biased;
                lost = guard.lost() => Some(lost),
                () = self.sleep(us) => None,
            };
            if let Some(lost) = lost {
                self.sim.note(1, || format!("{} is notified that {} is lost: {lost}", self.caller, grant.name));
                if guard.check().is_ok() {
                    self.wrong("a guard is valid after its loss was reported");
                }
                break;
            }
            let was_halted = waiting.halted_us(&self.sim) > 0;
            let is_over = us > left_us + 10 * HICCUP_US && guard.check().is_err();
            if is_over && !self.is_renewed && !was_halted {
                self.wrong("a lease has expired, but the waiter for its loss was not notified");
            }
        }
        self.end(guard, grant).await;
    }

    /// Returns how long to work: usually for a while; sometimes to the last moment of the lease.
    fn pause_us(&mut self, guard: &impl Lease) -> u64 {
        let us = self.rng.scaled(100, self.sim.plan.section_us);
        let left_us = guard.left_us();
        let is_over = self.sim.exec.now_us() >= self.sim.plan.chaos_us;
        if !is_over && left_us < 12_000 * MS && self.rng.percent(self.sim.plan.lingers) {
            left_us.saturating_sub(200)
        } else {
            us
        }
    }

    async fn end(&mut self, guard: impl Lease, grant: &Grant) {
        let book = &self.sim.book;
        self.claims(&guard, grant);
        let how = match guard.check() {
            Ok(_) => Ended::Released,
            Err(lost) => Ended::Lost(format!("{:?}", lost.reason())),
        };
        grant.ended(book, self.sim.exec.now_us(), how);
        if self.rng.percent(30) {
            match self.rng.percent(self.sim.plan.panics) {
                true => self.panics(guard, grant),
                false => drop(guard),
            }
            return self.is_given_back(grant).await;
        }
        self.give_back(guard, grant).await;
    }

    /// Gives a guard back: here, or on another part of the program.
    async fn give_back(&mut self, guard: impl Lease, grant: &Grant) {
        let there = if self.rng.percent(self.sim.plan.abroad) { self.elsewhere() } else { None };
        let Some(there) = there else { return self.release(guard, grant).await };
        self.sim.book.count("a release on another runtime");
        let (mut deputy, grant) = (self.deputy(there), grant.clone());
        let release = async move { deputy.release(guard, &grant).await };
        // If that part ends meanwhile, the session continues with the release.
        let _released_or_ended = self.sim.exec.on(self.pid, there, "a release elsewhere", release).await;
    }

    async fn release(&mut self, guard: impl Lease, grant: &Grant) {
        let (call, was_left_us) = (self.call("release"), guard.left_us());
        let is_patient = self.rng.percent(80);
        let us = self.rng.scaled(1, 100 * MS);
        let released = tokio::select! {
            biased;
            released = guard.release() => Some(released),
            () = self.sleep(us), if !is_patient => None,
        };
        if released.is_some() {
            self.returned(&call, self.lease_us + 2_000 * MS);
        }
        let what = match released {
            None => "a dropped release",
            Some(Ok(leasehold::Released::Released)) => "released",
            Some(Ok(leasehold::Released::NotHeld)) => {
                self.not_held(grant, call.began_us, was_left_us);
                "released: not held"
            }
            Some(Err(_)) => "released: no answer",
        };
        self.sim.book.count(what);
    }

    /// Panics in the section; the panic drops the guard.
    fn panics(&self, guard: impl Lease, grant: &Grant) {
        self.sim.book.count("a panic under the lock");
        self.sim.book.panicked(self.pid, &grant.name, grant.token);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = guard;
            // Without the message of the panic hook.
            resume_unwind(Box::new("the work gives up"));
        }));
        drop(panicked);
    }

    /// Checks that a dropped guard goes back at once, or to the next caller of this client.
    async fn is_given_back(&self, grant: &Grant) {
        if !self.sim.plan.keeps_leases() || self.is_kept {
            return;
        }
        self.sleep(self.sim.plan.soon_us()).await;
        let run = lock(&self.sim.net).hand_over_of(grant);
        if run.is_some() && self.sim.book.is_last_entered(&grant.name, grant.token) {
            self.wrong("a dropped lock is still held, but no fault interfered");
        }
    }

    /// Judges the answer "not held". A release that the store carries out within the validity of its lease reports
    /// success, however often it was sent, unless another client was granted since.
    fn not_held(&self, grant: &Grant, began_us: u64, was_left_us: u64) {
        let (book, now_us) = (&self.sim.book, self.sim.exec.now_us());
        // Nodes that have forgotten the release do not know it, and no two clients hold for that.
        if self.sim.plan.quorum.is_some() && !self.sim.plan.keeps_leases() {
            return;
        }
        let is_in_time = now_us - began_us < was_left_us;
        let is_taken = book.cut_us(&grant.name, grant.token).is_some() || !self.is_last(grant);
        if is_in_time && !is_taken && !book.is_excused(&grant.name, began_us, now_us) {
            self.wrong("a release in time got the answer that nothing was held");
        }
    }

    /// Returns whether the store has made no later grant.
    fn is_last(&self, grant: &Grant) -> bool {
        self.sim.book.is_last_given(&grant.name, grant.token)
    }

    /// Judges a guard that reports that another client was granted since.
    fn superseded(&self, grant: &Grant) {
        // A node reports every token for which it has voted, and not only those that won.
        if self.is_last(grant) && self.sim.plan.quorum.is_none() {
            self.wrong("a guard reports that another client was granted, but none was");
        }
    }

    /// Does the work that the lock protects: a write with its token, and a write without one. A holder of a shared grant
    /// reads twice instead. Returns false if the lease is lost.
    pub(super) async fn effect(&mut self, guard: &impl Lease, grant: &Grant) -> bool {
        if !self.claims(guard, grant) {
            return false;
        }
        let Some(read) = registers::read(&self.sim, grant).await else { return false };
        if self.rng.percent(50) {
            let us = self.rng.scaled(1, 5 * MS);
            self.sleep(us).await;
        }
        if !self.claims(guard, grant) {
            return false;
        }
        if grant.share != Share::Exclusive {
            return registers::read(&self.sim, grant).await.is_some();
        }
        let sent = Sent::now(&self.sim.exec, self.pid, guard.left_us(), guard.lost());
        let (sim, plain, fenced) = (Arc::clone(&self.sim), grant.clone(), grant.clone());
        // Both writes at once; some writers do not wait for the answer.
        let write = registers::write(&sim, &plain, read, sent);
        let write_fenced = registers::write_fenced(&sim, &fenced);
        let written = tokio::join!(biased; write_fenced, write);
        written.0.is_some()
    }

    /// Checks whether the lease is valid, and records a claim if it is.
    fn claims(&self, guard: &impl Lease, grant: &Grant) -> bool {
        match guard.check() {
            Ok(_) => {
                grant.claimed(&self.sim.book, self.sim.exec.now_us());
                true
            }
            Err(lost) => {
                self.sim.book.count(lost_label(lost.reason()));
                if self.is_renewed && self.sim.plan.keeps_leases() && !heal_ends(&self.sim, &grant.name) {
                    self.wrong(&format!("a renewed lease was lost ({lost}), but no fault interfered"));
                }
                if lost.reason() == LostReason::Superseded {
                    self.superseded(grant);
                }
                if lost.reason() == LostReason::Released {
                    self.wrong("a guard reports its release, but it was not released");
                }
                false
            }
        }
    }
}

fn lost_label(lost: LostReason) -> &'static str {
    match lost {
        lost if lost.is_expiry() => "lost: expired",
        LostReason::Revoked => "lost: revoked",
        LostReason::Forgotten => "lost: forgotten",
        LostReason::Superseded => "lost: superseded",
        LostReason::Closed => "lost: closed",
        _ => "lost: otherwise",
    }
}

#[cfg(test)]
mod tests {
    use leasehold::seam::Pending;
    use leasehold::{Leasehold, Lost, Released};
    use leasehold_testkit::checker::{Rules, Violation, check};
    use leasehold_testkit::history::Event;
    use tokio::sync::Notify;

    use super::super::book::Book;
    use super::super::exec::Part;
    use super::super::link::SimStore;
    use super::super::plan::Plan;
    use super::super::rng::Rng;
    use super::super::stage::Host;
    use super::*;

    /// The guard of a reader, with its token. Its lease lasts.
    struct Reader(u64);

    impl Lease for Reader {
        fn share(&self) -> Share {
            Share::Shared(1)
        }

        fn token(&self) -> u64 {
            self.0
        }

        fn check(&self) -> Result<(), Lost> {
            Ok(())
        }

        fn left_us(&self) -> u64 {
            60_000 * MS
        }

        fn lost(&self) -> Pending<Lost> {
            Box::pin(std::future::pending())
        }

        fn release(self) -> Pending<leasehold::Result<Released>> {
            Box::pin(std::future::ready(Ok(Released::Released)))
        }
    }

    /// Runs a section under this guard, in a task of a client.
    fn section(sim: &Arc<Sim>, guard: Reader) {
        let pid = sim.exec.start(0, 0);
        let (sim, part) = (Arc::clone(sim), Part::Runtime(sim.exec.start_runtime(pid)));
        let exec = Arc::clone(&sim.exec);
        let reading = async move {
            let store = Arc::new(SimStore { sim: Arc::clone(&sim), pid });
            let connected = Leasehold::builder("").connect_to(store, Host::new(&sim, pid, Rng::new(1))).await;
            let leasehold = connected.expect("no fault interferes");
            let (caller, storm, rng) = (format!("{pid}"), Arc::new(Notify::new()), Rng::new(guard.0));
            let (until_us, is_renewed, is_kept, lease_us) = (0, true, false, 0);
            let mut worker =
                Worker { sim, pid, part, caller, leasehold, storm, rng, until_us, is_renewed, is_kept, lease_us };
            worker.section(guard, "name-0", 0).await;
        };
        exec.spawn(pid, part, "a reader", Box::pin(reading));
    }

    #[test]
    fn holders_of_shared_grants_read_at_once_and_write_nothing() {
        let sim = Sim::new(Plan { faults: Vec::new(), slow_in: 0, hiccup_in: 0, ..Plan::of(1) }, Book::default());
        (1..=2).for_each(|token| section(&sim, Reader(token)));
        sim.exec.run(20_000 * MS, || false);
        let history = sim.book.history(&sim.plan.names);
        let reads = history.events.iter().filter(|event| matches!(event, Event::Read { number: 0, .. })).count();
        let writes = |event: &Event| matches!(event, Event::Fenced { .. } | Event::Counted { .. });
        assert!(reads >= 4 && !history.events.iter().any(writes), "{history:?}");
        check(&history, &Rules::limit(u32::MAX).at_least(2)).assert_clean();
        let as_of_a_mutex = check(&history, &Rules::mutex()).violations;
        assert!(as_of_a_mutex.iter().any(|v| matches!(v, Violation::Overlap { .. })), "they hold at once");
        assert!(sim.book.wrongs().is_empty(), "{:?}", sim.book.wrongs());
    }
}
