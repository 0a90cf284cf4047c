//! A quorum of nodes that a test plays: in this process, by the specification of a node.

mod amnesia;
mod bench;
mod rounds;
mod servers;
mod views;
