//! Seeded flaws in the scripts: each breaks one rule by a replacement, everywhere in the script, so that a test can
//! show that it would notice the flaw.

use leasehold_spec::mutant::named;

use super::pool;

/// The name of the flaw, the script, the text to replace, and its replacement.
const PATCHES: &[(&str, &str, &str, &str)] = &[
    ("lua-p1-unbounded", "release", "if looked_at == SETTLE_STEPS then", "if false then"),
    // A new waiter comes to the head of the queue, with a smaller ticket the later it comes.
    (
        "lua-p1-last-first",
        "acquire",
        "redis.call('HSET', KEYS[1], 'q', sub(queue, QUEUE.keep.to.head) .. more .. now .. ARGV[1] .. lapses,\n        \
         'e' .. ARGV[1], entry .. tail .. ARGV[3], 'n' .. tail, ARGV[1])",
        "local first, nobody = sub(queue, QUEUE.head), string.rep('-', 64)\n      \
         local later = redis.call('HGET', KEYS[1], 'e' .. first)\n      \
         local ticket, queued = string.format('%016.0f', 2 * since - now), sub(queue, QUEUE.ticket.to.tail)\n      \
         redis.call('HSET', KEYS[1], 'q', sub(queue, QUEUE.keep) .. ARGV[1] .. more .. queued .. lapses, \
         'n' .. ARGV[1], first, 'e' .. ARGV[1], '0000000000000000' .. now .. ticket .. ARGV[6] .. ARGV[2] .. nobody \
         .. ARGV[3], 'e' .. first, sub(later, ENTRY.limit.to.lease) .. ARGV[1] .. sub(later, ENTRY.tail))",
    ),
    ("lua-p1-barging", "acquire", "state == 'F' and counts == 0", "state == 'F'"),
    ("lua-p1-future-stays", "acquire", "if state ~= 'F' and since > now then\n  since", "if false then\n  since"),
    (
        "lua-p1-queues-behind-the-future",
        "acquire",
        "is_ahead = since + length * 1000, since > now",
        "is_ahead = since + length * 1000, false",
    ),
    ("lua-p2-repeat-extends", "acquire", "id == asked then\n  word", "id == asked then\n  since = now\n  word"),
    ("lua-p3-release-once", "release", "(state == 'F' and id or sub(rear, REAR.released)) == who", "false"),
    (
        "lua-p3-release-by-anyone",
        "release",
        "if state ~= 'F' and state ~= 'C' and id == who and token == sub(ARGV[1], RECORD.token)",
        "if state ~= 'F'",
    ),
    (
        "lua-p3-renew-recreates",
        "renew",
        "local word, is_from_now, wanted =",
        "if state == 'F' then state, token, id = 'H', sub(want, RECORD.token), sub(want, RECORD.id) end\n  \
         local word, is_from_now, wanted =",
    ),
    ("lua-p3-tokens-only-count", "acquire", "if now > token then", "if false then"),
    (
        "lua-p3-renew-by-anyone",
        "renew",
        "token .. id ~= sub(want, RECORD.token.to.id)",
        "sub(id, ID.session) ~= sub(want, RECORD.id.session)",
    ),
    (
        "lua-p3-renews-by-session",
        "renew",
        "find(found, want, 1, true) == 1",
        "sub(found, RECORD.id.session) == sub(want, RECORD.id.session)",
    ),
    ("lua-p4-runs-late", "acquire", "now > ARGV[4]", "false"),
    ("lua-p5-wakes-only", "release", "while state == 'F' and counts > 0 do", "while false do"),
    (
        "lua-p5-tells-first",
        "release",
        "local ttl_ms\n",
        "for at = 1, #(told or {}), 2 do redis.pcall('PUBLISH', told[at], told[at + 1]) end\nlocal ttl_ms\n",
    ),
    (
        "lua-p6-counts-receivers",
        "release",
        "redis.call('PUBSUB', 'NUMSUB', channel)[2]",
        "redis.pcall('PUBLISH', channel, '')",
    ),
    ("lua-p6-grants-detached", "release", "redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0", "true"),
    ("lua-p6-loses-place", "acquire", "if ticket and ticket < sub(entry, ENTRY.ticket) then", "if false then"),
    ("lua-p7-no-claim", "release", "if lease_ms < claim_ms then claim_ms = lease_ms end", "claim_ms = lease_ms"),
    ("lua-p7-forgets-lapses", "settle", "if state == 'P' then", "if false then"),
    ("lua-p7-future-lapses", "settle", "if sub(lapses, LAPSE.time(at)) > now then", "if false then"),
    ("lua-p7-sees-the-future", "release", "if seen > now then seen = ZEROS end", ""),
    ("lua-p8-no-memory", "release", "#!lua flags=allow-oom", "#!lua"),
    ("lua-p8-renews-no-end", "renew", "redis.call('PEXPIRE', name, keep_ms)", ""),
    ("lua-p8-renews-no-later-end", "renew", "since >= span and", ""),
    (
        "lua-p8-renews-beside",
        "renew",
        "redis.call('SETRANGE', name, 'RECORD.since.offset', now)",
        "redis.call('SETRANGE', name, '93', now)",
    ),
    ("lua-p8-no-end", "acquire", "'PX', ARGV[5])", "'KEEPTTL')"),
    (
        "lua-p8-ends-at-once",
        "acquire",
        "if ttl_ms then redis.call('PEXPIRE', name, ttl_ms) end",
        "if ttl_ms then redis.call('PEXPIRE', name, 0) end",
    ),
    (
        "lua-p8-joins-a-number",
        "acquire",
        "limit = string.format('%016.0f', now_us + patience * 1000)",
        "limit = '' .. now_us + patience * 1000",
    ),
    (
        "lua-p8-time-twice",
        "acquire",
        "is_late, limit, ticket = ARGV[6] and ARGV[6] ~= '', now > ARGV[4],",
        "is_late, limit, ticket = ARGV[6] and ARGV[6] ~= '', redis.call('TIME')[1] .. '000000' > ARGV[4],",
    ),
    ("lua-p19-burns-nothing", "settle", "if sub(rear, REAR.range) ~= '00000001' then token =", "if false then token ="),
    (
        "lua-p19-ignores-used",
        "release",
        "redis.call('SETRANGE', KEYS[1], 'RECORD.state.offset', 'F' .. used)",
        "redis.call('SETRANGE', KEYS[1], 'RECORD.state.offset', 'F')",
    ),
    ("lua-p19-believes-used", "release", "more < string.sub(found, RECORD.range) + 0", "true"),
    ("lua-p19-believes-a-leave", "leave", "token = used < last and used or last", "token = used"),
    ("lua-p19-hands-over-below", "release", "and (not used or used < now) then", "then"),
    ("lua-p19-reserves-for-all", "reserve", "token .. id == sub(ARGV[1], RESERVE.token.to.id)", "true"),
    ("lua-p19-runs-ahead", "reserve", "if range + 0 > allowed then", "if false then"),
    ("lua-p19-renews-short", "renew", "sub(found, RECORD.range) <= '00001024'", "true"),
    ("lua-p9-tells-no-holder", "acquire", "(before == 0 or is_strict and before % 100000 == 0)", "false"),
    ("lua-p10-tells-no-waiter", "revoke", "if (state == 'R' or state == 'C') and counts > 0 then", "if false then"),
    ("lua-p10-tells-once", "leave", "if was == 'queued' then", "if false then"),
    (
        "lua-p9-tells-no-newcomer",
        "acquire",
        "counts == '0000000000' or is_strict and sub(counts, COUNTS.strict.from) == '00000'",
        "false",
    ),
    ("lua-q-votes-below", "node/ask", "elseif wanted <= highest then", "elseif false then"),
    ("lua-q-votes-below-at-once", "node/ask", " and sub(found, NODE.highest) < ARGV[3] then", " then"),
    ("lua-q-comes-back-twice", "node/ask", "if not scores[1] and not scores[2] then", "if true then"),
    ("lua-q-votes-far", "node/ask", "elseif not is_near then", "elseif false then"),
    ("lua-q-votes-late", "node/ask", "now > ARGV[6] then", "false then"),
    ("lua-q-forgets-the-end-of-a-range", "node/ask", "TAIL.range), ARGV[7], nil", "TAIL.range), ARGV[3], nil"),
    ("lua-q-passes-the-called", "node/ask", "sub(wait, WAIT.ticket) > called_ticket", "false"),
    ("lua-q-votes-unmarked", "node/ask", "redis.pcall('GET', marker) ~= seen", "false"),
    ("lua-q-votes-while-it-rests", "node/renew", "string.sub(seen, MARKER.rests) > now", "false"),
    ("lua-q-fill-counts", "node/renew", "word = 'FILLED'", "word = 'RENEWED'"),
    ("lua-q-fills-what-was-given-back", "node/renew", "and released ~= asked\n", "\n"),
    ("lua-q-fills-behind", "node/renew", ">= highest + 0 then", ">= 0 then"),
    (
        "lua-q-renews-another-round",
        "node/renew",
        "sub(found, VOTED.id.to.token) == sub(want, WANT.id.to.token)",
        "sub(found, VOTED.id) == sub(want, WANT.id)",
    ),
    ("lua-q-renews-no-end", "node/renew", "if keep > sub(found, NODE.keep) then", "if false then"),
    ("lua-q-takes-later-votes", "node/give_back", "token <= upto then", "true then"),
    ("lua-q-takes-later-votes-at-once", "node/give_back", "and sub(found, VOTED.token) <= ARGV[2]", ""),
    ("lua-q-calls-again", "node/ask", "if called and called_until <= now and", "if false and"),
    ("lua-q-calls-nobody", "node/give_back", "while dead < SETTLE_STEPS do", "while false do"),
    (
        "lua-q-calls-the-dead",
        "node/settle",
        "sub(who, MEMBER.id.session))[2] > 0 then",
        "sub(who, MEMBER.id.session))[2] >= 0 then",
    ),
    ("lua-q-calls-for-ever", "node/settle", "if called and called_until <= now and", "if false and"),
    ("lua-q-calls-into-the-future", "node/settle", "if called_until - now_us > CALL_US then", "if false then"),
    ("lua-q-future-stays", "node/settle", "if since > now then since = now end", ""),
    (
        "lua-q-tells-no-waiter",
        "node/revoke",
        "if (notice or state == 'R' or state == 'C') and others ~= 'N' then",
        "if false then",
    ),
    (
        "lua-q-tells-once",
        "node/give_back",
        "if (notice or state == 'R' or state == 'C') and others ~= 'N' then",
        "if notice then",
    ),
    ("lua-q-pauses-strict", "node/give_back", "not called and others == 'O'", "not called and others ~= 'N'"),
    ("lua-q-pauses-on-a-call", "node/give_back", "not called and others == 'O'", "others == 'O'"),
    ("lua-q-pauses-silently", "node/give_back", "notice = ARGV[4]", "notice = nil"),
    (
        "lua-q-waits-twice",
        "node/give_back",
        "others ~= 'N' and redis.call('ZREM', queue, asked .. 's', asked .. 'r') > 0",
        "false",
    ),
    ("lua-q-tells-no-holder", "node/ask", "if others > before and", "if false and"),
    ("lua-q-queue-without-an-end", "node/ask", "if others ~= 'N' then redis.call('PEXPIRE', queue, ttl_ms) end", ""),
    ("lua-q-begins-blindly", "node/begin", "ARGV[4] ~= '' and found ~= ARGV[4]", "false"),
    ("lua-q-forgets-its-past", "node/enter", "is_same_run and string.sub(found, MARKER.past) or 'U'", "'N'"),
    ("lua-q-saves-now-is-enough", "node/enter", "memory == 'K' and before == 'K'", "memory == 'K'"),
    ("lua-q-trusts-the-run-again", "node/enter", "if is_same_run and before == 'F' then memory = 'F' end", ""),
    ("lua-q-takes-any-charter", "node/enter", "string.sub(found, MARKER.charter) ~= ARGV[1]", "false"),
    ("lua-p50-shows-ended", "inspect", "state ~= 'F' and since + length * 1000 > now_us", "state ~= 'F'"),
    ("lua-p50-shows-secrets", "inspect", "sub(who, ID.public)", "who"),
    ("lua-p50-walks-on", "inspect", "and shown < SHOWN do", "do"),
    ("lua-p23-repeat-extends", "cool_down", "if state ~= 'C' then", "if true then"),
    ("lua-p23-cools-the-ended", "cool_down", "and since + length * 1000 <= now_us)", "and false)"),
    ("lua-p23-keeps-the-range", "cool_down", "'00000001' .. sub(rear, REAR.range.behind)", "sub(rear, REAR.tail)"),
    ("lua-p23-tells-no-waiter", "cool_down", "(state == 'R' or state == 'C') and counts > 0", "false"),
    ("lua-p23-no-end", "cool_down", "if ttl_changed then", "if false then"),
    ("lua-p23-leave-ends", "leave", "state ~= 'F' and state ~= 'C' and id == asked", "state ~= 'F' and id == asked"),
    ("lua-p23-release-ends", "release", "state ~= 'F' and state ~= 'C' and id == who", "state ~= 'F' and id == who"),
    ("lua-p23-renew-revives", "renew", "state == 'F' or state == 'C' or", "state == 'F' or"),
    ("lua-p23-reserves", "reserve", "state ~= 'F' and state ~= 'C' and", "state ~= 'F' and"),
    (
        "lua-p23-grants-again",
        "acquire",
        "state ~= 'F' and state ~= 'C' and id == asked",
        "state ~= 'F' and id == asked",
    ),
    ("lua-p23-forgets-who", "settle", "state == 'C' and id or sub(rear, REAR.released)", "sub(rear, REAR.released)"),
    ("lua-p23-gives-grace", "revoke", "state == 'C' and 0 or ARGV[2]", "ARGV[2]"),
    (
        "lua-q-cools-anew",
        "node/cool_down",
        "state == 'H' and id == asked",
        "(state == 'H' or state == 'C') and id == asked",
    ),
    ("lua-q-cools-a-later-round", "node/cool_down", "token <= upto then", "true then"),
    ("lua-q-give-back-ends", "node/give_back", "state ~= 'F' and state ~= 'C' and id", "state ~= 'F' and id"),
    ("lua-q-grants-what-cools", "node/ask", "state == 'C' or state ~= 'F' and", "state ~= 'F' and"),
    (
        "lua-p53-takes-held",
        "many",
        "find(found, 'lh1F', 1, true) == 1 and found < free then",
        "sub(found, RECORD.token) < now then",
    ),
    ("lua-p53-tokens-fall", "many", " and found < free then", " then"),
    ("lua-p53-grants-again", "many", "not find(last, asked, ID.counter.from, true)", "true"),
    ("lua-p53-reads-once", "many", "all[tonumber(number)] = nil", "break"),
    ("lua-p53-overwrites", "many", ", 'PX', keep_ms, 'NX')", ", 'PX', keep_ms)"),
    ("lua-p53-runs-late", "many", "now <= ARGV[1]\n", "true\n"),
    ("lua-p53-releases-for-any", "many", "find(found, asked, 1, true) == 1", "sub(found, RECORD.state) == 'H'"),
    ("lua-p53-mixes-replies", "many", "string.format('%02d', i)", "string.format('%02d', 1)"),
    ("lua-p46-takes-held", "acquire_all", " and sub(found, RECORD.version.to.state) == 'lh1F'", ""),
    ("lua-p46-tokens-fall", "acquire_all", " or sub(found, RECORD.token) >= now", ""),
    ("lua-p46-grants-again", "acquire_all", "last == id or ", ""),
    // A script writes each record before it has looked at the next one.
    (
        "lua-p46-takes-some",
        "acquire_all",
        "  records[at] = ",
        "  if at > 1 then redis.call('SET', KEYS[at - 1], records[at - 1], 'PX', ARGV[4 * at - 3]) end\n\
         \x20 records[at] = ",
    ),
    ("lua-p48-puts-for-any", "put", "token .. id == ARGV[1]", "true"),
    ("lua-p51-hands-for-any", "hand_to", "token .. id == ARGV[1]", "true"),
    ("lua-p51-hands-to-any", "hand_to", "sub(waiter, ENTRY.label_length.from) == ARGV[2]", "true"),
    ("lua-p51-names-the-dead", "hand_to", "if alive then\n        local", "if true then\n        local"),
    ("lua-p9-says-nobody", "renew", "counts > 0 and ' O '", "false and ' O '"),
];

/// Returns all patches, also those of pools.
pub(super) fn all() -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str, &'static str)> {
    PATCHES.iter().chain(pool::mutants::PATCHES)
}

/// Returns the script with the flaw that the environment names, if that is a flaw of this script.
pub(super) fn patched(script: &str, source: String) -> String {
    let Some(patch) = all().find(|patch| named() == Some(patch.0)) else { return source };
    apply(patch, script, source)
}

fn apply(&(name, file, find, replace): &(&str, &str, &str, &str), script: &str, source: String) -> String {
    if file != script {
        return source;
    }
    assert!(source.contains(find), "{name}: {find:?} is not in {script}");
    source.replace(find, replace)
}
