//! Seeded flaws in the scripts of pools: see `store/redis/mutants.rs`.

/// The name of the flaw, the script, the text to replace, and its replacement.
pub(in crate::store::redis) const PATCHES: &[(&str, &str, &str, &str)] = &[
    (
        "lua-pool-p2-repeat-extends",
        "pool/acquire",
        "' 00000001 ' .. lease_of(own)",
        "' 00000001 ' .. now .. ' ' .. ARGV[2]",
    ),
    ("lua-pool-p3-release-once", "pool/release", "or pool.released == ARGV[1]", ""),
    (
        "lua-pool-p3-nonce",
        "pool/release",
        "sub(grant, GRANT.nonce) == sub(ARGV[1], ID.nonce)\n  and sub(grant, GRANT.token) == ARGV[2]",
        "sub(grant, GRANT.token) == ARGV[2]",
    ),
    ("lua-pool-p4-runs-late", "pool/acquire", "if now > ARGV[6] then", "if false then"),
    (
        "lua-pool-p6-grants-detached",
        "pool/release",
        "redis.call('PUBSUB', 'NUMSUB', pool.inboxes .. session)[2] > 0",
        "true",
    ),
    ("lua-pool-p7-forgets-lapse", "pool/settle", "pool.lapses = kept .. session .. end_text", "pool.lapses = kept"),
    ("lua-pool-p10-bound-stays", "pool/revoke", "note_end(pool, end_of(grant))\n", ""),
    (
        "lua-pool-p31-other-limit-enters",
        "pool/acquire",
        "if pool.kind ~= kind or limit + 0 ~= 0 and limit + 0 ~= pool.limit then",
        "if pool.kind ~= kind then",
    ),
    ("lua-pool-p32-expiry-is-silent", "pool/settle", "pool.last = format('%016.0f', pool.last + 1)", ""),
    (
        "lua-pool-p33-dead-head-blocks",
        "pool/settle",
        "if may_be and not fits(pool, share) then return end",
        "if not fits(pool, share) then return end",
    ),
    (
        "lua-pool-p33-comes-back-in-vain",
        "pool/acquire",
        "(pool.counts == 0 or is_before_head(pool, ticket))",
        "pool.counts == 0",
    ),
    ("lua-pool-p34-message-is-silent", "pool/release", "if pool.rest == 'M' and at > before then", "if false then"),
    // A renewal raises the bound to its own end: the lease that ends before it is not found.
    ("lua-pool-p35-renewal-raises", "pool/renew", "if soonest - now > lease_us then soonest", "if true then soonest"),
    ("lua-pool-p35-trusts-cursors", "pool/acquire", "if cursor == '0' and not is_one_step then", "if false then"),
    ("lua-pool-p35-scan-forgets", "pool/settle", "least_us = math.min(least_us, end_us)", ""),
    ("lua-pool-p36-lost", "pool/release", "and 'OTHER' or got", "and 'RELEASED 1 1 N D -' or got"),
    ("lua-pool-p37-waits-for-nobody", "pool/acquire", "if pool.grants == 1 then", "if pool.grants > 0 then"),
    ("lua-pool-p37-claim-shortens", "pool/release", "math.max(claim_ms, left_ms)", "claim_ms"),
    ("lua-pool-p39-admits-later", "pool/lower", "settle_for_waiters(pool)\nreturn", "return"),
    ("lua-pool-p40-too-big-waits", "pool/resize", "and fits_at_all(pool, share)", ""),
    (
        "lua-pool-p40-resizes-blindly",
        "pool/resize",
        "if pool.record and pool.begins ~= ARGV[1] and pool.begins ~= begins then",
        "if false then",
    ),
];
