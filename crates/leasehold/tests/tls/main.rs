//! `rediss://`, with a Redis that speaks TLS: which servers a client trusts, which clients a server accepts, which
//! files are read again for a new connection, and that no secret appears in any output on the way.
#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod certificates;
mod common;
mod locks;
mod passwords;
mod secrets;
mod wire;
