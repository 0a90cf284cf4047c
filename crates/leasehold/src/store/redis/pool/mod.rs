//! Read-write locks and semaphores on one Redis: names that have several grants at a time.
//!
//! | File | Contents |
//! |---|---|
//! | `part/pool.lua` | its head describes how a pool is stored |
//! | `acquire.lua`, `renew.lua`, … | one script for each operation: its short path, then the long one |
//! | `part/` | the functions that the long paths share |
//! | `call.rs` | the arguments of the scripts |
//! | `encoding.rs`, `request.rs` | which scripts carry a request out: those of a mutex, or those of a pool (P36) |
//!
//! Their replies are read in `store/redis/reply.rs`, with those of a mutex.

pub(super) mod call;
pub(super) mod encoding;
#[cfg(leasehold_lab)]
pub(super) mod mutants;
pub(super) mod request;
