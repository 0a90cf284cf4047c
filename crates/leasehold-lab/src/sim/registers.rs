//! What the locks protect: two registers a name, on a server of their own which is never down. Requests to it take time,
//! and some take very long: a write that was sent before a pause arrives behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_testkit::history::{Answered, Event, Fenced, Promise};
use leasehold_testkit::registers::InMemory;
use tokio::sync::oneshot;

use super::book::{Excuse, Grant, Overwritten};
use super::exec::lock;
use super::plan::Plan;
use super::rng::Rng;
use super::stage::Sim;

pub(super) struct Registers {
    rng: Rng,
    delay_us: (u64, u64),
    /// One write in so many is under way for seconds.
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
        // What the register did is known here, whether the client lives to hear it or not.
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

/// Reads the other register. Answers when it did so, too.
pub(super) async fn read(sim: &Arc<Sim>, name: &str) -> Option<(u64, u64)> {
    let (there, name) = (Arc::clone(sim), name.to_owned());
    ask(sim, move || {
        let number = lock(&there.registers).of.get(&name).copied().unwrap_or_default().read();
        (number, there.exec.now_us())
    })
    .await
}

/// Writes to it. The writer has just looked at its lease, of which so much was left.
pub(super) async fn write(sim: &Arc<Sim>, grant: &Grant, (read, read_us): (u64, u64), left_us: u64) -> Option<()> {
    let (there, grant) = (Arc::clone(sim), grant.clone());
    let checked_us = sim.exec.now_us();
    ask(sim, move || {
        let sim = there;
        let at_us = sim.exec.now_us();
        let (name, client) = (grant.name.clone(), grant.client.clone());
        if at_us - checked_us >= left_us {
            let (breaks, why) = (Promise::UnfencedWrites, "a write was under way for longer than its lease");
            sim.book.met("a write arrives behind its lease");
            sim.book.excuse(Excuse { name: Some(name.clone()), breaks, from_us: checked_us, to_us: at_us, why });
        }
        if let Some(from_us) = sim.book.cut_us(&name, grant.token, checked_us).filter(|cut_us| *cut_us < at_us) {
            let (breaks, why) = (Promise::UnfencedWrites, "a write was under way when its lease was lost or revoked");
            sim.book.met("a write arrives behind its work");
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
        sim.note(read, || format!("the other register of {name}: {client} writes {} over {found}", read + 1));
        sim.book.event(Event::Counted { name, client, read_us, at_us, read, answer: Answered::Acknowledged });
    })
    .await
}

/// A request to the registers, which is under way whatever becomes of its sender.
async fn ask<T: Send + 'static>(sim: &Arc<Sim>, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (there_us, back_us) = {
        let (now_us, mut registers) = (sim.exec.now_us(), lock(&sim.registers));
        (registers.delay_us(now_us), registers.delay_us(now_us))
    };
    let (tell, answer) = oneshot::channel();
    let exec = Arc::clone(&sim.exec);
    sim.exec.after(there_us, move || {
        let said = work();
        exec.after(back_us, move || drop(tell.send(said)));
    });
    answer.await.ok()
}

/// What both have at the end.
pub(super) fn record_final(sim: &Sim) {
    let registers = lock(&sim.registers);
    for name in &sim.plan.names {
        let last = registers.of.get(name).copied().unwrap_or_default();
        last.finals(name).into_iter().for_each(|event| sim.book.event(event));
    }
}
