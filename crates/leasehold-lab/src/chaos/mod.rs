//! Chaos: the real library in real processes against real servers, while everything that can break is broken.
//!
//! The models search every interleaving of a small world, the simulation many of a large one; both are worlds of our
//! making. Here nothing is: real sockets, signals, clocks, disks and schedulers, at the price that a run cannot be
//! repeated. **The seed repeats the schedule of faults and the choices of the clients, and not what the machine makes of
//! them.** So a failure keeps what it saw: every client's history, the faults with their times, the violations.
//!
//! | file | |
//! |---|---|
//! | `plan.rs`, `kind.rs`, `nodes.rs` | which faults when and where: from the seed alone |
//! | `stage.rs`, `ground.rs`, `fleet.rs` | where it happens: the store, the ways to it, the client processes |
//! | `redis.rs`, `quorum.rs`, `node.rs` | one server that is broken, or five |
//! | `nemesis/` | carries a plan out, and heals |
//! | `client/` | what a client process does |
//! | `calm.rs` | what has to go well while no store is broken |
//! | `excuse.rs` | what each fault breaks by its nature, and for how long |
//! | `residue.rs`, `judge.rs` | what must be gone, and what must be true, when a round has healed |
//!
//! A round: a calm second, which has to bring grants; a fault that comes alone; faults; healing; everybody gets what it
//! waits for, within a bound; nothing is left on the server; the histories are judged. Then the next round, with a fresh
//! mix and mostly the same server and clients, who remember.
//!
//! The registers that the locks protect are on a server that no fault touches, or its faults would excuse the locks.

mod calm;
mod client;
mod excuse;
mod fleet;
mod ground;
mod judge;
mod kind;
mod ledger;
mod names;
mod nemesis;
mod node;
mod nodes;
mod notes;
mod options;
mod plan;
mod process;
mod quorum;
mod redis;
mod report;
mod residue;
mod run;
mod stage;
mod stop;

use std::process::ExitCode;

pub(crate) use options::{Options, USAGE};
pub(crate) use run::run;

/// What the lab starts itself for; `None` for any other word.
pub(crate) fn hidden(word: &str, args: impl Iterator<Item = String>) -> Option<ExitCode> {
    match word {
        process::CLIENT => Some(client::run(args)),
        process::BURN => Some(process::burn(args)),
        _ => None,
    }
}
