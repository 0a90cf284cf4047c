//! Tests of `leasehold run` as a program: real commands, signals, terminals and servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod bench;
mod codes;
mod counter;
mod elect;
mod gap;
mod host;
mod loss;
mod many;
mod min_hold;
mod minder;
mod quorum;
mod secrets;
mod shared;
mod signals;
mod store;
mod terminal;
mod worker;
