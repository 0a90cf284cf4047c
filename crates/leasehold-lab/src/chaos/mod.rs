//! Chaos: the real library in real processes against real servers, under every kind of fault.
//!
//! The models search every interleaving of a small world, and the simulation many interleavings of a large one. Both
//! worlds are artificial. Here everything is real: sockets, signals, clocks, disks and schedulers. The price is that a
//! run cannot be repeated. **The seed repeats the schedule of faults and the choices of the clients, but not the
//! scheduling of the machine.** So a failed run keeps its evidence: every client's history, the faults with their times,
//! the violations.
//!
//! | file | |
//! |---|---|
//! | `plan.rs`, `kind.rs`, `nodes.rs` | the schedule of faults: kind, time and server, from the seed alone |
//! | `stage.rs`, `ground.rs`, `fleet.rs` | the environment: the store, the connections to it, the client processes |
//! | `redis.rs`, `quorum.rs`, `node.rs` | the servers that faults strike: one, or five |
//! | `nemesis/` | carries a plan out, and repairs everything afterward |
//! | `client/` | the client processes |
//! | `calm.rs` | the promises that are judged while no store is broken |
//! | `excuse.rs` | the promises that each fault breaks by its nature, and for how long |
//! | `residue.rs`, `judge.rs` | the checks after the repair of a round: nothing is left over, every history is valid |
//!
//! A round has these steps: a calm second, which must bring grants; a fault that comes alone; faults; the repair; every
//! client gets its lock within a bound; nothing is left on the server; the histories are judged. The next round has a
//! new mix of faults, and mostly the same server and the same clients, which keep their state.
//!
//! The registers that the locks protect are on a server that no fault touches. Otherwise its faults would excuse the
//! locks.

mod calm;
mod client;
mod excuse;
mod fleet;
mod ground;
mod judge;
mod kind;
mod ledger;
mod line;
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
pub(crate) use process::{die_with_parent, us};
pub(crate) use run::run;

/// Runs a hidden subcommand, for which the lab starts itself. Returns `None` for any other word.
pub(crate) fn hidden(word: &str, args: impl Iterator<Item = String>) -> Option<ExitCode> {
    match word {
        process::CLIENT => Some(client::run(args)),
        process::BURN => Some(process::burn(args)),
        _ => None,
    }
}
