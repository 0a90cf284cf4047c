//! Real servers, faults and checks for Leasehold's tests.
//!
//! Nothing here knows the crate under test. A tour:
//!
//! - [`RedisServer`] is a real `redis-server` of the test's own, which can be killed, frozen, restarted, and, started
//!   with [`skew`](server::Builder::skew), have its wall clock moved under it.
//! - [`Resp`] is a small blocking client, to look at a server with other eyes than those of the code under test.
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

pub mod clock;
pub mod port;
pub mod resp;
pub mod server;
mod skew;

pub use clock::{boottime_us, wait_until};
pub use port::{Port, free_port};
pub use resp::{Resp, Value};
pub use server::RedisServer;
