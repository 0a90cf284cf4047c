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
    // A new name has no bound: its first lease never ends.
    ("lua-pool-p35-begins-unbounded", "pool/acquire", "units, now, end_us, now, keep)", "units, now, 9e15, now, keep)"),
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
    (
        "lua-pool-p42-keeps-stock",
        "pool/leave",
        "if pool.kind == 'V' and pool.limit ~= pool.units then",
        "if false then",
    ),
    // The short path of a release leaves the limit as it is.
    ("lua-pool-p42-keeps-stock-at-once", "pool/release", "sub(record, POOL.kind) ~= 'V'", "true"),
    (
        "lua-pool-p42-forgets-unit",
        "pool/settle",
        "  take_out(pool, field, grant)\n",
        "  take_out(pool, field, grant)\n  if pool.kind == 'V' then set_limit(pool, pool.limit - 1) end\n",
    ),
    (
        "lua-pool-p42-spend-passes-on",
        "pool/spend",
        "set_limit(pool, math.max(pool.limit - sub(grant, GRANT.units), 0))",
        "",
    ),
    ("lua-pool-p43-keeps-ticket", "pool/acquire", "if pool.kind == 'V' then known, ticket = ticket, nil end", ""),
    ("lua-pool-p43-same-ticket", "pool/acquire", "if known and known >= ticket then", "if false then"),
    (
        "lua-pool-p43-expires-under-waiters",
        "pool/acquire",
        "if has_standing and pool.keep < now_us + R_US then",
        "if false then",
    ),
    ("lua-pool-p44-counts-for-any", "pool/count_down", "sub(read(pool, 'l'), LATCH.born) ~= ARGV[2]", "false"),
    ("lua-pool-p44-counts-twice", "pool/count_down", "and not read(pool, 'c' .. ARGV[1])", ""),
    ("lua-pool-p44-deletes-any", "pool/delete", "sub(read(pool, 'l'), LATCH.born) ~= ARGV[1]", "false"),
    ("lua-pool-p44-deletes-silently", "pool/delete", "while who and who ~= NOBODY and", "while false and"),
    ("lua-pool-p44-late-waiter-waits", "pool/acquire", "if kind == 'L' and is_absent then", "if false then"),
];
