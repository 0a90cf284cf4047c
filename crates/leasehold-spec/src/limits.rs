//! Every bound of the protocol, in one place. docs/PROTOCOL.md has the same numbers in one table.

/// The shortest lease. Below this a round trip and a scheduler's hiccup already cost a third of it.
pub const LEASE_MIN_MS: u64 = 100;
/// The longest lease, 24 h: a longer one is a lock that nobody takes over within an operator's day.
pub const LEASE_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// The lease of a caller who names none.
pub const LEASE_DEFAULT_MS: u64 = 30_000;
/// The shortest claim: what a pushed grant lasts until its receiver has shown that it is awake.
pub const CLAIM_MIN_MS: u64 = 1_000;
/// How long a record outlives its last grant (R): an idempotent retry finds its answer, and a clock step back by less than
/// this much lets no token fall.
pub const RETENTION_MS: u64 = 60_000;
/// The same in microseconds.
pub const RETENTION_US: u64 = RETENTION_MS * 1000;
/// How much longer a quorum's node keeps the record of a name that is asked for again: the next votes within that time
/// find it kept for long enough, and a time to live that stays as it is costs a server less than a new one.
pub const RETENTION_SPARE_US: u64 = 1_000_000;
/// The longest that a request may be under way before the store refuses it as late.
pub const NOT_AFTER_MAX_MS: u64 = 2_000;
/// The same in microseconds.
pub const NOT_AFTER_MAX_US: u64 = NOT_AFTER_MAX_MS * 1000;
/// What is left to the holder of a revoked grant, at most, to stop its work.
pub const REVOKE_GRACE_MS: u64 = 5_000;
/// How many sessions a revocation notifies when the lease that they wait for ends, those of the next waiters: a second one
/// for the case that the first dies, or stands still, before the grace is over.
pub const REVOKE_NOTIFIED: usize = 2;
/// How many waiters one step looks at. A release that skips ten thousand dead waiters would freeze the server for 37 ms.
pub const SETTLE_STEPS: usize = 64;
/// How far from the head a returning waiter is put back into its place.
pub const TICKET_STEPS: usize = 64;
/// How many lapsed claims a record remembers. One forgotten costs another claim, nothing more.
pub const LAPSES: usize = 16;
/// How many waiters a name may have. One more is refused as full.
pub const QUEUE_MAX: usize = 10_000;
/// Bytes in a name.
pub const NAME_MAX: usize = 255;
/// Bytes in a holder's label.
pub const LABEL_MAX: usize = 256;
/// Renewals in one script.
pub const RENEW_BATCH: usize = 16;
/// The longest time between two looks of a waiter, ± 20 % (it is a third of its lease, and at most this).
pub const LOOK_MAX_MS: u64 = 5_000;
/// How many tokens a grant reserves at most when it is made, its own included (K): what a session hands on by itself needs
/// no answer. A range that nobody reports back is burnt, and at a token a microsecond it ends before the lease can have.
pub const RANGE_MAX: u64 = 1_024;
/// How far a reserved token may be ahead of the wall clock. A failover that forgets a name makes its next token by the
/// clock: behind by at most this, where the clocks agree.
pub const TOKEN_LEAD_US: u64 = 1_000_000;
/// The longest that a range can grow: eight digits of a record. A session that has used it up gives the lease back, and
/// asks anew.
pub const RANGE_END: u64 = 99_999_999;
/// How many times a session hands a lease on by itself once others wait for it (B). Each of them waits for as many
/// sections at most, and each round trip to the store is shared by as many: with 16, two busy processes got three quarters
/// as much done. Short sections end by this, and long ones by the time below.
pub const RUN_PASSES: u32 = 64;
/// For how long it does so at most (T): a handful of round trips in a data centre. Sections can be long, and 64 of them
/// very long.
pub const RUN_MAX_US: u64 = 10_000;
/// For how long a session hands on without an answer from the store, at most: an answer says whether others wait, and the
/// message that says it sooner can be lost.
pub const RUN_SILENT_US: u64 = 1_000_000;
/// The longest time for which a lease is kept that nobody uses. It is renewed twice a second meanwhile, and others who only
/// try find it held: who comes back after more than a minute can afford a round trip.
pub const STICKY_MAX_MS: u64 = 60_000;
/// How far from a node's clock a token may be for which it votes (W): a client's clock, or a name's largest token, that is
/// further away is wrong. A node that has lost its memory rests until everything that it can have voted for is behind it.
pub const TOKEN_WINDOW_MS: u64 = 10_000;
/// How far the clock of a node may be from the true time, for the promise that tokens grow though a node lost its memory
/// (E).
pub const CLOCK_ERROR_MS: u64 = 1_000;
/// How long a waiter that a node has called has for asking, before the next one is called.
pub const CALL_MS: u64 = 1_000;
/// The longest lease of a quorum whose URL names none: a node that may have forgotten a lease abstains for as long.
pub const QUORUM_LEASE_MAX_MS: u64 = 60_000;
/// One past the largest token: Lua, JSON and JavaScript keep integers exact up to here.
pub const TOKEN_END: u64 = 1 << 53;

/// For how long a session hands a lease of this length on by itself once others wait for it, at most (P20).
#[must_use]
pub const fn run_us(lease_us: u64) -> u64 {
    let eighth = lease_us / 8;
    if eighth < RUN_MAX_US { eighth } else { RUN_MAX_US }
}

/// For how long it does so without an answer from the store, at most (P20).
#[must_use]
pub const fn run_silent_us(lease_us: u64) -> u64 {
    let third = lease_us / 3;
    if third < RUN_SILENT_US { third } else { RUN_SILENT_US }
}

/// The time between two looks of a waiter with a lease of `lease_ms`, ± 20 % (P15).
#[must_use]
pub const fn look_floor_ms(lease_ms: u64) -> u64 {
    let third = lease_ms / 3;
    if third < LOOK_MAX_MS { third } else { LOOK_MAX_MS }
}
