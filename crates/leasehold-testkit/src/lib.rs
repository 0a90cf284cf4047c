//! Real servers, faults and checks for Leasehold's tests.
//!
//! Nothing here knows the crate under test, but for the conformance suite, the times, the front, the voters and the
//! forwarders. A tour:
//!
//! - [`RedisServer`] is a real `redis-server` of the test's own, which can be killed, frozen, restarted, and, started
//!   with [`skew`](server::Builder::skew), have its wall clock moved under it.
//! - [`Quorum`] is several of them that know nothing of each other, each with a proxy in front.
//! - [`certificates`] makes authorities, servers and clients for TLS, and ones that nobody should believe.
//! - [`FaultProxy`] stands in front of a server and loses, delays, holds, refuses and garbles: this reply, that script,
//!   the next three messages. Every fault is counted, so that a test can assert that it happened.
//! - [`Front`](front::Front) is a server of our own that says to the byte what Redis says: for simulated networks, and for
//!   servers that lie from their fifth answer on.
//! - [`voters`] are nodes of a quorum in this process, which die, stand still and forget as a test says.
//! - [`forward`] has links and worlds that forward every call that a test does not override.
//! - [`Resp`] is a small blocking client, to look at a server with other eyes than those of the code under test.
//! - [`Recorder`] takes down what clients did and were told, [`check`] judges it: tokens, exclusion, order, registers.
//! - [`Coverage`] adds up over many runs what happened in them, and names what never did.
//! - [`Registers`] are what a lock protects: one that refuses old tokens, and one that shows what it costs to have none.
//! - [`conformance`] is the suite that every store passes: its cells come from enums, and are counted.
//! - [`times`] measures each public call in every place where it can be made, against its documented bound.
//! - [`free_port`], [`boottime_us`] and [`wait_until`] are what such tests otherwise write anew, and wrongly.
//!
//! ```
//! use leasehold_testkit::{RedisServer, Value};
//!
//! let server = RedisServer::start();
//! assert_eq!(server.command(&["SET", "k", "v"]), Value::Status("OK".into()));
//! server.restart(); // a crash: it comes back empty
//! assert_eq!(server.command(&["GET", "k"]), Value::Nil);
//! ```

/// An enum, and the list of its variants: there is no other way to be a dimension of a suite.
macro_rules! dimension {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

pub mod certificates;
pub mod checker;
pub mod clock;
pub mod conformance;
pub mod coverage;
pub mod forward;
pub mod front;
pub mod history;
pub mod port;
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
