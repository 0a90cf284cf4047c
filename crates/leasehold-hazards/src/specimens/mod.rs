//! The locks of the tutorials, one file each, written as their authors wrote them.
//!
//! All but the last two break in a scene. Their comments say which step is the mistake, and no specimen contains anything
//! that makes the mistake more likely: no pause, no retry and no switch that its tutorial does not have.
//!
//! S0 to S12 are the systems of the tutorials. N7 to N9 are mistakes of newer libraries.
//!
//! | File | System | The lock |
//! |---|---|---|
//! | `no_lock.rs`, `local.rs`, `setnx.rs` | S0 | none; one inside a process; SETNX and DEL without an expiry |
//! | `setnx_expire.rs` | S1 | SETNX, then EXPIRE |
//! | `getset.rs`, `delete_expired.rs` | S2 | timestamps of the clients; take-over by GETSET, or by DEL |
//! | `set_ex.rs` | S3 | SET NX EX, and DEL |
//! | `get_del.rs` | S4 | an owner, and GET before DEL |
//! | `compare_and_delete.rs` | S5 | an owner, and a script that compares and deletes |
//! | `reentrant.rs` | S6 | a hash with owner and count, a timer that renews |
//! | `redisson.rs` | S7 | Redisson's lock: messages, TTL, watchdog |
//! | `guard_thread.rs` | S8 | a guard thread that renews late |
//! | `redlock.rs` | S9 | Redlock as published |
//! | `multi_lock.rs` | S10 | several masters, of which a crashed one is ignored |
//! | `random_delay.rs` | S12 | retries after random delays |
//! | `instance_owner.rs`, `orphan.rs`, `cancelled.rs` | N7 to N9 | mistakes of newer libraries |
//! | `leasehold.rs`, `quorum.rs` | | Leasehold on one server, and on a quorum |

pub mod cancelled;
pub mod compare_and_delete;
pub mod delete_expired;
pub mod get_del;
pub mod getset;
pub mod guard_thread;
pub mod instance_owner;
pub mod leasehold;
pub mod local;
pub mod multi_lock;
pub mod no_lock;
pub mod orphan;
pub mod quorum;
pub mod random_delay;
pub mod redisson;
pub mod redlock;
pub mod reentrant;
pub mod set_ex;
pub mod setnx;
pub mod setnx_expire;

use crate::client::{Client, Held};

/// The time between two tries of a lock that polls.
pub const RETRY_MS: u64 = 50;

/// The proof of a thread that it holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The value that the lock keeps for its holder.
    pub owner: String,
    /// The belief of the thread about the lock.
    pub held: Held,
}

impl Grant {
    /// Returns the grant of a lock that the server keeps for this many seconds.
    #[must_use]
    pub fn for_s(owner: impl Into<String>, lease_s: u64) -> Self {
        let held = Held { lease_ms: Some(lease_s * 1000), ..Held::default() };
        Self { owner: owner.into(), held }
    }
}

/// A lock, as one process uses it.
#[expect(async_fn_in_trait, reason = "the futures of a specimen stay on their thread")]
pub trait Lock {
    /// Waits until the thread holds the lock.
    async fn lock(&self, client: &Client) -> Grant;

    /// Gives the lock back.
    async fn unlock(&self, client: &Client, grant: &Grant);

    /// Whether the thread may still believe that it holds. The locks of the tutorials never doubt it.
    async fn check(&self, _client: &Client, _grant: &Grant) -> bool {
        true
    }
}
