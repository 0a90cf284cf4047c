//! Lets clients come to a lock one after the other, before the faults. `chaos/line.rs` judges who is served first.

use std::time::{Duration, Instant};

use leasehold::Inspection;
use leasehold_testkit::{Random, boottime_us};

use super::super::fleet::{CLIENTS, ClientId};
use super::super::kind::Kind;
use super::super::line::Place;
use super::super::names::Class;
use super::super::stop::{Interrupted, Stop};
use super::Nemesis;

/// How many clients wait.
const WAITING: usize = 5;
/// How long it may take until a client is seen in the queue.
const SEEN: Duration = Duration::from_millis(1_500);
/// How long the first holder holds: long enough for all others to come.
const HELD: Duration = Duration::from_millis(600);
const BRIEF: Duration = Duration::from_millis(5);
/// How long it may take until everybody was served.
const SERVED: Duration = Duration::from_secs(4);

/// The client that is killed when all wait.
#[derive(Clone, Copy, Debug)]
enum Killed {
    Nobody,
    Holder,
    Waiter,
}

impl Nemesis<'_> {
    pub(super) fn line(&mut self, dice: u64, stop: &Stop) -> Result<(), Interrupted> {
        if self.stage.store.keeps_order() {
            self.stand(&mut Random::new(dice));
        }
        stop.check()
    }

    fn stand(&mut self, dice: &mut Random) {
        let (name, killed) = (self.names.line(), *dice.pick(&[Killed::Nobody, Killed::Holder, Killed::Waiter]));
        // In strict order, each client comes twice. Otherwise its second call could be served with the first.
        let is_strict = dice.chance(50);
        let mut slots: Vec<usize> = (0..CLIENTS).collect();
        dice.shuffle(&mut slots);
        let mortals = self.mortals(dice);
        slots.retain(|slot| *slot != mortals[0]);
        slots.truncate(WAITING);
        let Some((holder, label)) = self.comes(mortals[0], is_strict, HELD) else { return };
        if !self.wait_until(&name, Instant::now() + SEEN, |seen| seen.holder().is_some_and(|h| h.label == label)) {
            return;
        }
        for turn in 1..=1 + usize::from(is_strict) {
            for (nth, slot) in slots.iter().enumerate() {
                let Some((_, label)) = self.comes(*slot, is_strict, BRIEF) else { continue };
                if !self.is_seen(&name, &label, turn) {
                    return self.ledger.note(Kind::KillHolder, &format!("client {nth} of turn {turn} does not wait"));
                }
            }
        }
        let victim = match killed {
            Killed::Nobody => None,
            Killed::Holder => Some(holder),
            Killed::Waiter => {
                mortals.iter().find(|slot| slots.contains(slot)).and_then(|s| self.stage.fleet.running(*s))
            }
        };
        if let Some(victim) = victim {
            if let Some(dead) = self.stage.fleet.kill(victim) {
                self.ledger.died(dead);
            }
            if victim == holder {
                self.ledger.line_is_behind_a_death();
            }
            self.stage.fleet.revive(victim.slot);
        }
        self.ledger.note(Kind::KillHolder, &format!("a line, strict: {is_strict}, killed: {killed:?}"));
        self.wait_until(&name, Instant::now() + SERVED, |seen| seen.holder().is_none() && seen.waiters == 0);
    }

    /// Orders a client to lock. Returns it with its label.
    fn comes(&mut self, slot: usize, is_strict: bool, time: Duration) -> Option<(ClientId, String)> {
        let (who, name) = (self.stage.fleet.running(slot)?, self.names.line());
        let lease = Class::Line.longest_lease(self.stage.store);
        let order = if is_strict { "line" } else { "hold" };
        self.stage.fleet.send(who, &format!("{order} {name} {} {}", lease.as_millis(), time.as_millis()));
        Some((who, self.stage.fleet.label(slot)))
    }

    /// Waits until the client is seen in the queue this many times, and records that.
    fn is_seen(&self, name: &str, label: &str, times: usize) -> bool {
        let waits = |seen: &Inspection| seen.queue.iter().filter(|waiter| waiter.label == label).count() >= times;
        let is_seen = self.wait_until(name, Instant::now() + SEEN, waits);
        if is_seen {
            self.ledger.stands(Place { label: label.to_owned(), at_us: boottime_us() });
        }
        is_seen
    }
}
