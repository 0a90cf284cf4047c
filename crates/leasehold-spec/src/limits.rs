//! All bounds of the protocol. docs/PROTOCOL.md has the same numbers in one table.

/// The shortest lease. With a shorter one, a round trip and a delay of the scheduler already cost a third of it.
pub const LEASE_MIN_MS: u64 = 100;
/// The longest lease, 24 h. If a lease were longer, no client could take the lock over within an operator's day.
pub const LEASE_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// The lease of a caller that does not set one.
pub const LEASE_DEFAULT_MS: u64 = 30_000;
/// The shortest claim: the time that a pushed grant lasts until its receiver has shown that it is awake.
pub const CLAIM_MIN_MS: u64 = 1_000;
/// The time for which a record outlives its last grant (R). A retry within that time finds its answer, and if the clock
/// steps back by less than that, no token falls.
pub const RETENTION_MS: u64 = 60_000;
/// The same in microseconds.
pub const RETENTION_US: u64 = RETENTION_MS * 1000;
/// The additional time for which a node of a quorum keeps the record of a name that is used again. The next votes
/// within that time find that the record is kept for long enough. It costs a server less to leave a TTL as it is than
/// to set a new one.
pub const RETENTION_SPARE_US: u64 = 1_000_000;
/// The longest time that a request may be in flight before the store refuses it as late.
pub const NOT_AFTER_MAX_MS: u64 = 2_000;
/// The same in microseconds.
pub const NOT_AFTER_MAX_US: u64 = NOT_AFTER_MAX_MS * 1000;
/// The longest time that the holder of a revoked grant has to stop its work.
pub const REVOKE_GRACE_MS: u64 = 5_000;
/// The number of sessions that a revocation notifies of the time at which the lease ends: those of the next waiters.
/// The second one is for the case that the first one dies or stalls before the grace is over.
pub const REVOKE_NOTIFIED: usize = 2;
/// The number of waiters that one step checks. A release that skips ten thousand dead waiters would block the server
/// for 37 ms.
pub const SETTLE_STEPS: usize = 64;
/// The number of entries, from the head, among which a returning waiter is put back into its place.
pub const TICKET_STEPS: usize = 64;
/// The number of lapsed claims that a record remembers. If one is forgotten, this costs another claim, and nothing
/// more.
pub const LAPSES: usize = 16;
/// The largest number of holders, and of waiters, that an inspection shows. It counts the others.
pub const SHOWN_MAX: usize = 16;
/// The largest number of waiters of a name. The next one is refused with Full.
pub const QUEUE_MAX: usize = 10_000;
/// The largest number of grants of a name at a time. A reader takes one unit of as many, and a writer takes all.
pub const GRANTS_MAX: u32 = 100_000;
/// The largest number of permits of a semaphore.
pub const PERMITS_MAX: u32 = 999_999;
/// The largest number of count-downs of a latch.
pub const COUNTS_MAX: u32 = 100_000;
/// The largest number of parties of a barrier. One step grants to all of them.
pub const PARTIES_MAX: u32 = 256;
/// The largest number of bytes in a name.
pub const NAME_MAX: usize = 255;
/// The largest number of bytes in the label of a holder.
pub const LABEL_MAX: usize = 256;
/// The largest number of renewals in one script.
pub const RENEW_BATCH: usize = 16;
/// The longest time between two re-checks of a waiter, ± 20 %. The time is a third of its lease, and at most this.
pub const RECHECK_MAX_MS: u64 = 5_000;
/// The largest number of tokens that a grant reserves when it is made, its own included (K). A session can hand the
/// lease on that often without a reply from the store. A range that is not reported back is burnt. At one token per
/// microsecond the clock has passed it before the lease can have ended.
pub const RANGE_MAX: u64 = 1_024;
/// The largest distance of a reserved token ahead of the wall clock. If a failover forgets a name, the clock makes its
/// next token. That token is behind by at most this, if the clocks agree.
pub const TOKEN_LEAD_US: u64 = 1_000_000;
/// The largest length of a range: eight digits of a record. A session that has used up such a range gives the lease
/// back, and acquires it again.
pub const RANGE_END: u64 = 99_999_999;
/// The number of times that a session hands a lease on locally while others wait for it (B). Each of them waits for
/// this many sections at most, and each round trip to the store is shared by as many sections. With 16, two busy
/// processes got three quarters as much done. A run of short sections ends by this limit, a run of long ones by
/// `RUN_MAX_US`.
pub const RUN_PASSES: u32 = 64;
/// The longest time for which a session hands on locally while others wait (T): a few round trips in a data center.
/// Sections can be long, and 64 of them very long.
pub const RUN_MAX_US: u64 = 10_000;
/// The longest time for which a session hands on without a reply from the store. A reply reports whether others wait.
/// The message that reports it earlier can be lost.
pub const RUN_SILENT_US: u64 = 1_000_000;
/// The longest time for which a lease is kept that nobody uses. It is renewed twice a second meanwhile, and `try_lock`
/// of other clients returns `None`. A client that comes back after more than a minute can afford a round trip.
pub const STICKY_MAX_MS: u64 = 60_000;
/// The largest distance of a token from the clock of a node for which the node votes (W). If the distance is larger,
/// the clock of a client or the largest token of a name is wrong. A node that has lost its memory is in quarantine
/// until all tokens for which it can have voted are in the past.
pub const TOKEN_WINDOW_MS: u64 = 10_000;
/// The largest error of the clock of a node (E). If clocks are more exact than that, tokens grow even if a node lost
/// its memory.
pub const CLOCK_ERROR_MS: u64 = 1_000;
/// The time that a called waiter has for asking, before the node calls the next one.
pub const CALL_MS: u64 = 1_000;
/// The longest lease of a quorum whose URL does not set one. A node that may have forgotten a lease abstains for as
/// long.
pub const QUORUM_LEASE_MAX_MS: u64 = 60_000;
/// One past the largest token. Lua, JSON and JavaScript keep integers exact up to here.
pub const TOKEN_END: u64 = 1 << 53;

/// Returns the longest time for which a session hands a lease of this length on locally while others wait (P20).
#[must_use]
pub const fn run_us(lease_us: u64) -> u64 {
    let eighth = lease_us / 8;
    if eighth < RUN_MAX_US { eighth } else { RUN_MAX_US }
}

/// Returns the longest time for which a session hands on a lease of this length without a reply from the store (P20).
#[must_use]
pub const fn run_silent_us(lease_us: u64) -> u64 {
    let third = lease_us / 3;
    if third < RUN_SILENT_US { third } else { RUN_SILENT_US }
}

/// Returns the time between two re-checks of a waiter with a lease of `lease_ms`, ± 20 % (P15).
#[must_use]
pub const fn recheck_floor_ms(lease_ms: u64) -> u64 {
    let third = lease_ms / 3;
    if third < RECHECK_MAX_MS { third } else { RECHECK_MAX_MS }
}
