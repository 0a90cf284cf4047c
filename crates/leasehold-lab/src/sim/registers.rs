//! The resources that the locks protect: two registers for each name, on a server of their own that is never down.
//! Requests to it take time, and some take very long: a write that was sent before a pause arrives after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_testkit::history::{Answered, Event, Fenced, Promise, Share};
use leasehold_testkit::registers::InMemory;
use tokio::sync::oneshot;

use super::book::{Excuse, Grant, Overwritten};
use super::exec::lock;
use super::plan::Plan;
use super::rng::Rng;
use super::sent::{Late, Sent};
use super::stage::Sim;

pub(super) struct Registers {
    rng: Rng,
    delay_us: (u64, u64),
    /// One of this many writes is in flight for seconds.
    late_in: u64,
    heals_us: u64,
    of: BTreeMap<String, InMemory>,
}

impl Registers {
    pub(super) fn new(mut rng: Rng, plan: &Plan) -> Self {
        let late_in = if plan.is_steady() { 0 } else { *rng.pick(&[0, 0, 30, 300]) };
        let (delay_us, heals_us) = (plan.delay_us, plan.chaos_us);
        Self { rng, delay_us, late_in, heals_us, of: BTreeMap::new() }
    }

    fn delay_us(&mut self, now_us: u64) -> u64 {
        let us = self.rng.between(self.delay_us.0, self.delay_us.1);
        let is_late = self.late_in > 0 && now_us < self.heals_us && self.rng.below(self.late_in) == 0;
        if is_late { us + self.rng.scaled(100_000, 8_000_000) } else { us }
    }
}

/// Writes to the register that refuses old tokens.
pub(super) async fn write_fenced(sim: &Arc<Sim>, grant: &Grant) -> Option<Fenced> {
    let (there, grant) = (Arc::clone(sim), grant.clone());
    ask(sim, move || {
        let sim = there;
        let answer = lock(&sim.registers).of.entry(grant.name.clone()).or_default().write_fenced(grant.token);
        // The answer of the register is recorded here, whether the client lives to receive it or not.
        grant.fenced(&sim.book, sim.exec.now_us(), answer);
        sim.note(grant.token, || {
            format!(
                "the fenced register of {}: {} writes with token {}: {answer:?}",
                grant.name, grant.client, grant.token
            )
        });
        answer
    })
    .await
}

/// Reads the other register. Returns when it was read, too. A read under a shared grant belongs to the history.
pub(super) async fn read(sim: &Arc<Sim>, grant: &Grant) -> Option<(u64, u64)> {
    let (there, grant) = (Arc::clone(sim), grant.clone());
    ask(sim, move || {
        let number = lock(&there.registers).of.get(&grant.name).copied().unwrap_or_default().read();
        let now_us = there.exec.now_us();
        if grant.share != Share::Exclusive {
            grant.read(&there.book, now_us, number);
        }
        (number, now_us)
    })
    .await
}

/// Writes to the other register. The writer has just checked its lease, which is exclusive.
pub(super) async fn write(sim: &Arc<Sim>, grant: &Grant, (read, read_us): (u64, u64), sent: Sent) -> Option<()> {
    let (there, grant) = (Arc::clone(sim), grant.clone());
    ask(sim, move || {
        let sim = there;
        let at_us = sim.exec.now_us();
        let Grant { name, client, token, .. } = grant;
        for Late { from_us, met, why } in sent.arrives(sim.book.cut_us(&name, token), at_us) {
            let breaks = Promise::UnfencedWrites;
            sim.book.count(met);
            sim.book.trace(at_us, || format!("{name}, {client}: {met}: {why}, since {:.6}", from_us as f64 / 1e6));
            sim.book.excuse(Excuse { name: Some(name.clone()), breaks, from_us, to_us: at_us, why });
        }
        let found = {
            let mut registers = lock(&sim.registers);
            let register = registers.of.entry(name.clone()).or_default();
            let found = register.read();
            register.write(read + 1);
            found
        };
        if found != read {
            sim.book.overwritten(Overwritten {
                name: name.clone(),
                client: client.clone(),
                read_us,
                written_us: at_us,
            });
        }
        let answer = Answered::Acknowledged;
        sim.note(read, || format!("the other register of {name}: {client} writes {} over {found}", read + 1));
        sim.book.event(Event::Counted { name, client, token, read_us, at_us, read, answer });
    })
    .await
}

/// Sends a request to the registers. It stays in flight whatever happens to its sender.
async fn ask<T: Send + 'static>(sim: &Arc<Sim>, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (there_us, back_us) = {
        let (now_us, mut registers) = (sim.exec.now_us(), lock(&sim.registers));
        (registers.delay_us(now_us), registers.delay_us(now_us))
    };
    let (sender, answer) = oneshot::channel();
    let exec = Arc::clone(&sim.exec);
    sim.exec.after(there_us, move || {
        let said = work();
        exec.after(back_us, move || drop(sender.send(said)));
    });
    answer.await.ok()
}

/// Records the final values of both registers.
pub(super) fn record_final(sim: &Sim) {
    let registers = lock(&sim.registers);
    for name in &sim.plan.names {
        let last = registers.of.get(name).copied().unwrap_or_default();
        last.finals(name).into_iter().for_each(|event| sim.book.event(event));
    }
}

#[cfg(test)]
mod tests {
    use leasehold::seam::{Pending, lost};
    use leasehold::{Lost, LostReason};
    use leasehold_testkit::checker::{Rules, check};
    use leasehold_testkit::history::Ended;

    use super::super::book::Book;
    use super::super::exec::{Part, Pid, WORLD};
    use super::*;

    const WRITTEN_LATE: &str = "a write was in flight when its sender released, or was notified that the lease is lost";

    /// A world of two clients, in which a message takes a millisecond. The first client writes without a fence, and
    /// that write is in flight for ten milliseconds; its lease outlasts everything.
    struct Scene {
        sim: Arc<Sim>,
        client: Pid,
        lost: Option<oneshot::Sender<Lost>>,
    }

    impl Scene {
        fn new() -> Self {
            let plan = Plan { faults: Vec::new(), delay_us: (1000, 1000), ..Plan::of(1) };
            let sim = Sim::new(plan, Book::default());
            lock(&sim.registers).late_in = 0;
            let client = sim.exec.start(0, 0);
            sim.exec.spawn(client, Part::Session, "its session", Box::pin(std::future::pending()));
            Self { sim, client, lost: None }
        }

        fn grant(&self, client: &str, token: u64) -> Grant {
            let (name, share) = (self.sim.plan.names[0].clone(), Share::Exclusive);
            Grant { name, client: client.into(), token, share }
        }

        fn signal(&mut self) -> Pending<Lost> {
            let (sender, signal) = oneshot::channel();
            self.lost = Some(sender);
            Box::pin(async { signal.await.unwrap_or(lost("a", LostReason::Released)) })
        }

        /// Makes the first client send the value that it read at the very beginning.
        fn sends(&self, left_us: u64, signal: Pending<Lost>) {
            let delay_us = std::mem::replace(&mut lock(&self.sim.registers).delay_us, (10_000, 10_000));
            let sent = Sent::now(&self.sim.exec, self.client, left_us, signal);
            self.write("first", 1, (0, 0), sent);
            self.until(self.sim.exec.now_us());
            lock(&self.sim.registers).delay_us = delay_us;
        }

        fn write(&self, client: &str, token: u64, read: (u64, u64), sent: Sent) {
            let (sim, grant) = (Arc::clone(&self.sim), self.grant(client, token));
            let writing = async move {
                write(&sim, &grant, read, sent).await;
            };
            self.sim.exec.spawn(WORLD, Part::Thread, "a write", Box::pin(writing));
        }

        /// Another client is granted the lock now, reads, writes, and ends in time.
        fn another(&self) {
            let now_us = self.sim.exec.now_us();
            let grant = self.grant("second", 2);
            grant.granted(&self.sim.book, now_us, now_us);
            grant.claimed(&self.sim.book, now_us);
            let sent = Sent::now(&self.sim.exec, self.client, 1_000_000, Box::pin(std::future::pending()));
            self.write("second", 2, (0, now_us), sent);
            self.until(now_us + 1000);
            grant.ended(&self.sim.book, now_us + 1000, Ended::Released);
        }

        fn until(&self, us: u64) {
            self.sim.exec.run(us, || false);
        }

        fn loses(&mut self) {
            let sender = self.lost.take().expect("no loss was reported yet");
            // If the write has arrived, the receiver is gone.
            sender.send(lost("a", LostReason::Expired)).ok();
        }

        /// Returns why updates were lost, by the book, and the numbers of updates that nothing excuses, by the book and
        /// by the checker.
        fn judged(self) -> (Vec<&'static str>, usize, usize) {
            self.until(100_000);
            record_final(&self.sim);
            let (excused, not) = self.sim.book.lost_updates();
            let report = check(&self.sim.book.history(&self.sim.plan.names), &Rules::mutex().at_least(0));
            (excused, not.len(), report.violations.len())
        }
    }

    #[test]
    fn a_write_that_was_sent_under_the_lease_may_arrive_after_it() {
        let mut scene = Scene::new();
        let signal = scene.signal();
        scene.sends(1_000_000, signal);
        scene.until(5_000);
        scene.loses();
        scene.another();
        let sim = Arc::clone(&scene.sim);
        assert_eq!(scene.judged(), (vec![WRITTEN_LATE], 0, 0));
        assert_eq!(sim.book.counts().get("a write arrives after its hold"), Some(&1), "it is counted");
    }

    #[test]
    fn a_late_write_of_a_current_holder_is_a_violation() {
        let mut scene = Scene::new();
        let signal = scene.signal();
        scene.sends(1_000_000, signal);
        scene.until(5_000);
        scene.another();
        assert_eq!(scene.judged(), (vec![], 1, 1));
    }

    #[test]
    fn a_write_that_is_sent_after_the_loss_is_a_violation() {
        for left_us in [0, 1_000_000] {
            let scene = Scene::new();
            scene.until(2_000);
            scene.sends(left_us, Box::pin(std::future::ready(lost("a", LostReason::Expired))));
            scene.until(5_000);
            scene.another();
            assert_eq!(scene.judged(), (vec![], 1, 1), "{left_us} µs were left");
        }
    }

    #[test]
    fn a_loss_that_is_reported_after_the_arrival_excuses_nothing() {
        let mut scene = Scene::new();
        let signal = scene.signal();
        scene.sends(1_000_000, signal);
        scene.until(5_000);
        scene.another();
        scene.until(10_000);
        scene.loses();
        assert_eq!(scene.judged(), (vec![], 1, 1));
    }

    /// An update that was lost before the sender learned of the loss is the fault of another writer.
    #[test]
    fn an_update_lost_before_the_loss_is_reported_is_a_violation() {
        let mut scene = Scene::new();
        let signal = scene.signal();
        scene.sends(1_000_000, signal);
        scene.until(3_000);
        scene.another();
        scene.until(8_000);
        scene.loses();
        assert_eq!(scene.judged().2, 1);
    }

    #[test]
    fn a_dead_sender_is_not_notified() {
        let mut scene = Scene::new();
        let signal = scene.signal();
        scene.sends(1_000_000, signal);
        scene.until(5_000);
        scene.sim.exec.kill(scene.client);
        drop(scene.lost.take());
        scene.another();
        assert_eq!(scene.judged(), (vec![], 1, 1));
    }

    #[test]
    fn a_late_write_excuses_nothing_but_lost_updates_without_a_fence() {
        let mut scene = Scene::new();
        let signal = scene.signal();
        let (first, second) = (scene.grant("first", 1), scene.grant("second", 2));
        scene.sends(1_000_000, signal);
        scene.until(5_000);
        scene.loses();
        // Both clients claim the lock for all of that time, and the fenced register takes the older token after the
        // newer.
        for grant in [&first, &second] {
            grant.granted(&scene.sim.book, 0, 0);
            [0, 20_000].into_iter().for_each(|at_us| grant.claimed(&scene.sim.book, at_us));
        }
        second.fenced(&scene.sim.book, 6_000, Fenced::Accepted(1));
        first.fenced(&scene.sim.book, 7_000, Fenced::Accepted(2));
        scene.until(30_000);
        let report = check(&scene.sim.book.history(&scene.sim.plan.names), &Rules::mutex().at_least(0));
        let violations: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        assert!(violations.iter().any(|violation| violation.contains("both held")), "{violations:?}");
        assert!(violations.iter().any(|violation| violation.contains("the fenced register's write")), "{violations:?}");
        assert!(!scene.sim.book.is_excused(&first.name, 0, 30_000), "it lost no lease");
    }

    /// A reader reads twice. Between its reads a writer writes, which holds nothing, or which the reader excludes.
    #[test]
    fn a_reader_sees_the_number_change_if_a_writer_writes() {
        for (is_written, violations) in [(false, 0), (true, 1)] {
            let scene = Scene::new();
            let reader = Grant { share: Share::Shared(1), ..scene.grant("reader", 1) };
            reader.granted(&scene.sim.book, 0, 0);
            let read = || {
                let (sim, reader) = (Arc::clone(&scene.sim), reader.clone());
                let reading = async move {
                    read(&sim, &reader).await;
                };
                scene.sim.exec.spawn(WORLD, Part::Thread, "a read", Box::pin(reading));
            };
            read();
            scene.until(3_000);
            if is_written {
                let sent = Sent::now(&scene.sim.exec, scene.client, 1_000_000, Box::pin(std::future::pending()));
                scene.write("writer", 2, (0, 3_000), sent);
            }
            scene.until(6_000);
            read();
            scene.until(9_000);
            reader.claimed(&scene.sim.book, 9_000);
            assert_eq!(scene.judged(), (vec![], 0, violations));
        }
    }
}
