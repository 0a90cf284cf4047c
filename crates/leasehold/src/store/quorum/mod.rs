//! A quorum of independent nodes.

pub mod node;
