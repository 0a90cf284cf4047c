//! Leasehold.

fn main() {}
