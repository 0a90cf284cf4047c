//! The simulation of a quorum: `QuorumStore` as it is shipped, over nodes that are the specification, in the same world as
//! the rest (`exec.rs`), under the same clients (`crew.rs`, `worker.rs`) and judged by the same book and checker.
//!
//! Each node is a server of its own (`voter.rs`): it has a clock that is set, memory that it loses, and runs. Each client
//! has a path to each node (`net.rs`), as far away as that node is, which breaks, stalls and is partitioned by itself; a
//! `NodeLink` is one end of it (`seat.rs`). What goes wrong is told in `faults.rs`.
//!
//! What is promised is more than of one server: no node may be lost so that two hold, or a token falls, however many of
//! them lose their memory. So excuses are narrow (`pledges.rs`): two may hold only while clocks that were set forward, or a
//! revocation that is not heard of, have left a grant without the majority on which its holder relies.

mod after;
mod faults;
mod holders;
mod net;
mod pledges;
mod seat;
mod settings;
#[cfg(test)]
mod tests;
mod voter;

pub(super) use after::{heal, kept, residue};
pub(super) use faults::{cut_all, inject, set_back};
pub(super) use net::Net;
pub(super) use seat::Seat;
pub(super) use settings::{MUST, RARE, Settings, plan};
