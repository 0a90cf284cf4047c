//! The simulation of a quorum: `QuorumStore` as it is shipped, over nodes that are the specification, in the same world
//! as the rest (`exec.rs`), with the same clients (`crew.rs`, `acts/`), judged by the same book and checker.
//!
//! Each node is a server of its own (`voter.rs`): its clock can be set, and it can lose its memory and restart. Each
//! client has a connection to each node (`net.rs`) with the delay of that node, which breaks, stalls and is partitioned
//! by itself; a `NodeLink` is one end of it (`seat.rs`). Connections and their faults are those of one server
//! (`conns.rs`, `breaks.rs`); the faults of nodes are in `faults.rs`.
//!
//! A quorum promises more than one server: the loss of nodes must never let two clients hold or a token fall, however
//! many nodes lose their memory. So excuses are narrow (`pledges.rs`): two clients may hold only while clocks that were
//! set forward, or a revocation of which the holder was not notified, have left a grant without the majority on which
//! its holder relies.

mod after;
mod faults;
mod holders;
mod net;
mod pledges;
mod seat;
mod settings;
mod step_rules;
#[cfg(test)]
mod tests;
mod voter;

pub(super) use after::{heal, heal_ends, kept, residue};
pub(super) use faults::{inject, set_back};
pub(super) use net::Net;
pub(super) use seat::SimNode;
pub(super) use settings::{MUST, RARE, Settings, plan};
