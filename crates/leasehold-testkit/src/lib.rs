//! Real servers, faults and checks for Leasehold's tests.
//!
//! Nothing here depends on the crate under test, except the conformance suite, the times, the front, the voters and the
//! forwarders. A tour:
//!
//! - [`RedisServer`] is a real `redis-server` that belongs to the test. It can be killed, frozen and restarted. If it is
//!   started with [`skew`](server::Builder::skew), its wall clock can be moved.
//! - [`Quorum`] is several servers that do not know each other, each with a proxy in front.
//! - [`certificates`] creates authorities, servers and clients for TLS, and certificates that must be refused.
//! - [`FaultProxy`] stands in front of a server and loses, delays, holds, refuses and garbles chosen requests, replies
//!   and messages. It counts every fault, so that a test can assert that the fault happened.
//! - [`Front`](front::Front) is a server of our own that answers exactly the bytes that Redis answers. It serves
//!   simulated networks, and stands for servers that answer wrongly from the fifth reply on.
//! - [`voters`] are nodes of a quorum in this process. A test makes them die, stop and lose their memory.
//! - [`forward`] has links and worlds that forward every call that a test does not override.
//! - [`Resp`] is a small blocking client. It examines a server independently of the code under test.
//! - [`Recorder`] records what clients did and which replies they got; [`check`] judges the record: tokens, exclusion,
//!   order, registers.
//! - [`Coverage`] sums over many runs what happened in them, and names what never happened.
//! - [`Registers`] are resources that a lock protects: one refuses old tokens, and one shows the damage when nothing
//!   does.
//! - [`conformance`] is the suite that every store passes. Its cells come from enums and are counted.
//! - [`differential`] has the parts of tests that run random histories on a real server and on the specification.
//! - [`times`] measures each public call, from every kind of caller, against its documented bound.
//! - [`part`] chooses the part of each large suite that runs.
//! - [`process`] starts programs and workers, waits for them for a limited time, and kills them.
//! - [`free_port`], [`boottime_us`] and [`wait_until`] are helpers that tests would otherwise write again, with bugs.
//!
//! ```
//! use leasehold_testkit::{RedisServer, Value};
//!
//! let server = RedisServer::start();
//! assert_eq!(server.command(&["SET", "k", "v"]), Value::Status("OK".into()));
//! server.restart(); // a crash: it comes back empty
//! assert_eq!(server.command(&["GET", "k"]), Value::Nil);
//! ```

/// Declares an enum together with the list of its variants. Every dimension of a suite is declared by it.
macro_rules! dimension {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

pub mod certificates;
pub mod checker;
pub mod clock;
pub mod conformance;
pub mod coverage;
pub mod differential;
pub mod forward;
pub mod front;
pub mod history;
pub mod part;
pub mod port;
pub mod process;
pub mod proxy;
pub mod quorum;
pub mod random;
pub mod registers;
pub mod resp;
pub mod server;
mod shim;
pub mod times;
pub mod voters;

pub use checker::{Report, Rules, Violation, check};
pub use clock::{boottime_us, wait_until};
pub use coverage::Coverage;
pub use history::{History, Recorder};
pub use port::{Port, free_port};
pub use proxy::FaultProxy;
pub use quorum::Quorum;
pub use random::Random;
pub use registers::Registers;
pub use resp::{Resp, Value};
pub use server::RedisServer;

/// The Rust blocks of the project's README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
