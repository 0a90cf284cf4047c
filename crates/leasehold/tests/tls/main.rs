//! `rediss://`, against a Redis that speaks TLS: whom a client believes, whom a server lets in, what is read again when a
//! connection is made again, and that no secret is told to anybody on the way.
#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod certificates;
mod common;
mod locks;
mod passwords;
mod secrets;
mod wire;
