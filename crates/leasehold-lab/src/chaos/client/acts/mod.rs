//! The acts of tasks. Each primitive has a file of its own with its acts, and a row in [`PRIMITIVES`]. The parts that all
//! primitives share are beside this folder: the round in the view of a process (`shift.rs`), calls that are judged
//! (`call.rs`), and the work under a lock with its release (`section.rs`).

mod meet;
mod mutex;
mod pool;
mod rwlock;
mod semaphore;
mod table;

use std::time::Duration;

use leasehold::{Leasehold, Result};
use leasehold_testkit::{Random, Registers};

use super::super::fleet::is_keepers_label;
use super::super::names::{Class, Life};
use super::shift::Shift;
use super::turn::Turn;
pub(in super::super) use table::Taken;
use table::{ActFuture, Primitive};

const PRIMITIVES: &[Primitive] = &[mutex::PRIMITIVE, rwlock::PRIMITIVE, semaphore::PRIMITIVE, meet::PRIMITIVE];

/// Returns how many units of a name may be held at the same time.
pub(in super::super) fn limit_of(name: &str) -> u32 {
    of(name).limit
}

/// Takes all units of a name, waiting for at most `wait`. Returns `None` after that.
pub(in super::super) fn take_all<'a>(
    client: &'a Leasehold,
    name: &'a str,
    (lease, wait): (Duration, Duration),
) -> ActFuture<'a, Result<Option<Taken>>> {
    (of(name).take_all)(client, name, (lease, wait))
}

/// Does one act after the other, until the round is over.
pub(super) async fn work(shift: &Shift, client: &Leasehold, (me, at, registers): (&str, usize, u16), seed: u64) {
    let mut random = Random::new(seed);
    let mut registers = Registers::at(registers);
    // Some tasks have short pauses and some have long ones, different in each round.
    let pause_ms = *random.pick(&[1, 5, 10, 40]);
    let who = if is_keepers_label(me) { Life::Keeper } else { Life::Mortal };
    for turn in 1.. {
        if shift.over() {
            return;
        }
        let name = &shift.names.pick(&mut random, (who, shift.store));
        let me = &format!("{me}.{turn}");
        let (random, registers) = (&mut random, &mut registers);
        (of(name).act)(Turn { shift, client, me, at, name, registers, random }).await;
        shift.idle(me);
        shift.sleep(Duration::from_micros(random.below(2_000 * pause_ms))).await;
    }
}

fn of(name: &str) -> &'static Primitive {
    let class = Class::of(name);
    let its = PRIMITIVES.iter().find(|primitive| primitive.classes.contains(&class));
    its.unwrap_or_else(|| panic!("{name} belongs to no primitive"))
}
