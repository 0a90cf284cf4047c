//! Rules for every script, and the values that scripts share with the specification.

use leasehold_spec::limits;

use super::*;

const FAMILIES: [Family; 3] = [Family::Locks, Family::Pools, Family::Node];

fn every_script() -> impl Iterator<Item = Script> {
    FAMILIES.into_iter().flat_map(Family::scripts)
}

/// Returns the part of the file's header that begins with this word, to the next one.
fn header(script: Script, word: &str) -> &'static str {
    let own = script.row().own;
    let (_, text) = own.split_once(&format!("\n-- {word} ")).unwrap_or_else(|| panic!("{script:?} has no {word}"));
    let ends = text.match_indices("\n-").map(|(at, _)| at);
    let is_new =
        |at: &usize| text[at + 4..].starts_with(|c: char| c.is_ascii_uppercase()) || text[*at..].starts_with("\n--@");
    ends.into_iter().find(is_new).map_or(text, |end| &text[..end])
}

#[test]
fn every_script_has_its_header() {
    for script in every_script() {
        for word in ["KEYS", "ARGV", "RETURNS", "EFFECTS", "RETRY", "COST"] {
            assert!(!header(script, word).is_empty());
        }
    }
}

/// A comment can be changed freely. A change of the code changes a digest: then servers get another script, and the new
/// digest is written here.
#[test]
fn digests_change_only_with_the_code() {
    const DIGESTS: [(&str, &str); 38] = [
        ("acquire", "53d6a190ddb5016065ece0e7676dd8320ce8912e"),
        ("acquire_all", "021fab54eb112102f212c8d863f8486ad20042fd"),
        ("many", "72cf4fdff6fbf52ad6fff84214fe1c6c983caea4"),
        ("renew", "9686a484aa9eded6ff7d5e7642b234fbb65560f4"),
        ("release", "b1686a06ce86dac67aa1d21b1b3e4ade0a28197b"),
        ("reserve", "e39bab190319d530328cfe069479a28bd6f13b22"),
        ("put", "87615ec43c6a7872d02625d6ca19507ae4e3ddf3"),
        ("hand_to", "6d4046e6842d1283f418a34e1e65cf45f1a7fd44"),
        ("leave", "0735cf3c51a6b750a710996c3a3475f9b5ae2ce3"),
        ("cool_down", "c73d56fc5609c4d008d0acf8debfa9d2bdc663b8"),
        ("revoke", "add147731d29c94de1162e7d563bceb26aa3d5c2"),
        ("settle", "01b9120af771cdfebb09ce54fdc403543a763177"),
        ("inspect", "77e813ddefbc1cc5ff18712d56c66fec6747e105"),
        ("pool/acquire", "7c31ba8524d1b05617c2c938bd0f3481756a94bb"),
        ("pool/renew", "07caa4f353f008668fab23593109901040081a10"),
        ("pool/release", "ed297074a45c6c4d9b07adeab5d94ab28a312448"),
        ("pool/cool_down", "2b1600ea7559b2e4405915fba77f239b071774af"),
        ("pool/leave", "f4b1cb23c0a2e35d5f213a904372ec71c7914599"),
        ("pool/lower", "51abce420b74d00ab07d0220bb2d93977895258e"),
        ("pool/resize", "5ebb00d4988993c2890f712f369c4eeee23bf4de"),
        ("pool/notify", "cbe49ad4d0dd519eeb8adfb89859a52ac3c22e91"),
        ("pool/spend", "118bcee2ead6700ed7492ef808a002a72e5eb7c1"),
        ("pool/create", "b1652b02bb5c176d71f8e03c16b5c8f7ec8ac573"),
        ("pool/state", "66660f5ff6347f6944d2df060167de77c4f32ff9"),
        ("pool/count_down", "46a9853a17560b5fd840033d99b6fd9cda95069d"),
        ("pool/delete", "04cd9f7073d7af3da80e5f06fe08e70534089757"),
        ("pool/revoke", "475a1537fb7e8712aee46f5e7ed06c25f3e38348"),
        ("pool/settle", "a89754f70b5a1a863b488ad5f68cea85dbfcc23e"),
        ("pool/inspect", "9c318bca39a4781f9b6901c53be47e4783e061dd"),
        ("node/ask", "309e6a6c285c7755bc00f2ee04e533c496fa9915"),
        ("node/renew", "6fbb9ff12bb7b85375d3046e8723d38bd9445ec7"),
        ("node/give_back", "08b029d7f8a351dae6187ee2ac1169f0602e1730"),
        ("node/cool_down", "278e9c895311ad427c671d7837ba84ca04167782"),
        ("node/revoke", "d1f1e733936ebb8402c3e137d45aa50d242c029e"),
        ("node/settle", "dc55ba7d2eb90af63953744381eb3a1a0b615554"),
        ("node/inspect", "59157f2f5cc96a2dc2d194642f1ab54745c94cdd"),
        ("node/enter", "143994caac8b85b379ecaed98ac7493f27bcc4c0"),
        ("node/begin", "3d4f7246fa37fb86e88bcc4e7d080f0df1dad201"),
    ];
    let digests: Vec<_> = every_script().map(|script| (script.name(), script.sha())).collect();
    assert_eq!(digests, DIGESTS);
}

#[test]
fn time_is_asked_for_once() {
    for script in every_script() {
        let calls = script.source().matches("redis.call('TIME')").count();
        assert_eq!(calls, 1, "{script:?} calls TIME {calls} times");
    }
}

/// If a script fails before its messages, nobody has got a message about something that was not stored (P5).
#[test]
fn a_message_is_the_last_thing_that_a_script_does() {
    const WRITES: [&str; 11] = [
        "'SET'",
        "'SETRANGE'",
        "'DEL'",
        "'UNLINK'",
        "'HSET'",
        "'HDEL'",
        "'ZADD'",
        "'ZREM'",
        "'ZREMRANGEBYRANK'",
        "'PEXPIRE'",
        "call(unpack(",
    ];
    let mut seen = [0, 0, 0];
    for script in every_script() {
        let source = script.source();
        for (at, _) in source.match_indices("'PUBLISH'") {
            let behind = &source[at..];
            let behind = &behind[..behind.find("\nreturn ").unwrap_or(behind.len())];
            let behind = &behind[..behind.find(" return ").unwrap_or(behind.len())];
            let written = WRITES.iter().find(|write| behind.contains(**write));
            assert_eq!(written, None, "{script:?} writes after it has published");
            seen[script.row().family as usize] += 1;
        }
    }
    assert_eq!(seen, [16, 16, 6]);
}

/// Only a request for a lease, a latch or a vote is refused if the memory is full. A greeting is not: without one a client
/// cannot give back.
#[test]
fn flags_are_the_ones_that_the_server_reads() {
    for script in every_script() {
        let line = match script.flags() {
            Flags::Plain => "#!lua",
            Flags::AllowOom => "#!lua flags=allow-oom",
            Flags::NoWrites => "#!lua flags=no-writes",
        };
        assert_eq!(script.source().lines().next(), Some(line), "{script:?}");
        let wanted = match script {
            Script::Acquire
            | Script::AcquireAll
            | Script::Many
            | Script::PoolAcquire
            | Script::PoolCreate
            | Script::NodeAsk => Flags::Plain,
            Script::Inspect | Script::PoolInspect | Script::NodeInspect => Flags::NoWrites,
            _ => Flags::AllowOom,
        };
        assert_eq!(script.flags(), wanted, "{script:?}");
    }
}

/// In a script the last argument of all is read by its number. Those of each name are read by a number that is computed.
#[test]
fn arguments_are_as_many_as_the_script_reads() {
    for script in every_script() {
        // The functions of `many` have arguments of their own.
        let read = script.source().split("\nlocal KEYS, ARGV").last().unwrap_or_default();
        let read = if script == Script::Many { read } else { script.source() };
        let numbers = read.split("ARGV[").skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok());
        assert_eq!(numbers.max().unwrap_or(0), *script.row().arguments.end(), "{script:?}");
        let each = match script.source() {
            source if source.contains(" + i]") => 1,
            source if source.contains("[4 * at]") => 4,
            _ => 0,
        };
        assert_eq!(script.row().each, each, "{script:?}");
    }
    assert!(Script::Acquire.takes(1, 5) && Script::Acquire.takes(1, 8) && !Script::Acquire.takes(1, 9));
    assert!(Script::Renew.takes(16, 18) && !Script::Renew.takes(16, 17) && !Script::Renew.takes(16, 0));
}

/// A reply that reports on a record has its word and then what every reply says, which a header writes as `…`.
#[test]
fn replies_are_the_ones_of_the_header_and_of_the_code() {
    for script in every_script() {
        let row = script.row();
        let returns = header(script, "RETURNS");
        let is_word = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
        let words: Vec<&str> = returns.split(" …").filter_map(|before| before.split([' ', '\n']).next_back()).collect();
        let mut words: Vec<&str> = words.into_iter().filter(is_word).collect();
        words.dedup();
        for word in &words {
            assert!(row.replies.contains(word), "{script:?} returns {word}, which is not in its row");
        }
        for word in row.replies {
            assert!(words.contains(word), "{script:?} does not say that it returns {word}");
            assert!(script.source().contains(&format!("'{word}")), "{script:?} never returns {word}");
            assert!(row.family.reports(word));
        }
    }
    assert!(!Family::Locks.reports("GIVEN") && !Family::Node.reports("LEFT") && !Family::Locks.reports("FOREIGN"));
}

#[test]
fn a_vote_is_given_only_after_the_marker_was_read() {
    for script in Family::Node.scripts() {
        let at = script.source().find("redis.pcall('GET', marker) ~= seen");
        assert_eq!(at.is_some(), matches!(script, Script::NodeAsk | Script::NodeRenew), "{script:?}");
        let record = script.source().find("redis.pcall('GET', KEYS[1])").or(script.source().find("pcall('GET', name)"));
        assert!(at.is_none_or(|at| record.is_some_and(|record| at < record)), "{script:?}");
    }
}

#[test]
fn bounds_of_locks_are_those_of_the_specification() {
    let bounds = format!(
        "local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = {}, {}, {}, {}, {}, {}\n",
        limits::RETENTION_MS,
        limits::RETENTION_US,
        limits::SETTLE_STEPS,
        limits::TICKET_STEPS,
        limits::LAPSES,
        limits::QUEUE_MAX
    );
    let (settle, renew, release) = (Script::Settle.source(), Script::Renew.source(), Script::Release.source());
    assert!(settle.contains(&bounds), "part/open.lua has other bounds than: {bounds}");
    let shown = format!("local SHOWN = {}\n", limits::SHOWN_MAX);
    assert!(Script::Inspect.source().contains(&shown), "inspect.lua shows others");
    let lead = format!("local LEAD_US, REVOKE_NOTIFIED = {}, {}\n", limits::TOKEN_LEAD_US, limits::REVOKE_NOTIFIED);
    assert!(settle.contains(&lead), "part/open.lua has another lead, or notifies others");
    let usual = format!("<= '{:08}'", limits::RANGE_MAX);
    assert!(renew.contains(&usual), "part/prolong.lua has another range");
    let kept = format!("2 * lease + {})", limits::RETENTION_MS);
    assert!(renew.contains(&kept), "part/prolong.lua has another R");
    let floor = format!(" / 3), {})", limits::RECHECK_MAX_MS);
    assert!(settle.contains(&floor), "part/alive.lua has another floor");
    let long = format!("<= '{:08}'", limits::RETENTION_MS);
    assert!(release.contains(&long), "part/free.lua has another R");
}

#[test]
fn bounds_of_a_node_are_those_of_the_specification() {
    let bounds = format!(
        "local R_US, SETTLE_STEPS, QUEUE_MAX, CALL_US, LEAD_US, SPARE_US = {}, {}, {}, {}, {}, {}\n",
        limits::RETENTION_US,
        limits::SETTLE_STEPS,
        limits::QUEUE_MAX,
        limits::CALL_MS * 1000,
        limits::TOKEN_LEAD_US,
        limits::RETENTION_SPARE_US
    );
    let (ask, renew) = (Script::NodeAsk.source(), Script::NodeRenew.source());
    assert!(Script::NodeSettle.source().contains(&bounds), "node/part/open.lua has other bounds than: {bounds}");
    let notified = format!("local REVOKE_NOTIFIED = {}\n", limits::REVOKE_NOTIFIED);
    assert!(Script::NodeRevoke.source().contains(&notified), "node/part/open.lua notifies others");
    let window_us = limits::TOKEN_WINDOW_MS * 1000;
    let near = format!("ahead_us <= {window_us} and ahead_us >= -{window_us}\n");
    assert!(ask.contains(&near), "node/ask.lua has another window");
    let lead = format!("ahead_us + range <= {} then", limits::TOKEN_LEAD_US);
    assert!(ask.contains(&lead), "node/part/vote.lua has another lead");
    for source in [ask, renew] {
        let (kept_us, kept_ms) = (format!("1000 + {})", limits::RETENTION_US), format!(" + {})", limits::RETENTION_MS));
        assert!(source.contains(&kept_us) && source.contains(&kept_ms), "another R");
    }
    let spared_us = limits::RETENTION_US + limits::RETENTION_SPARE_US;
    let (kept_us, kept_ms) = (format!("1000 + {spared_us})"), format!(" + {})", spared_us / 1000));
    assert!(ask.contains(&kept_us) && ask.contains(&kept_ms), "another spare");
}

/// Another version of any script makes another question. So no server that lacks a script knows the question.
#[test]
fn a_question_stands_for_all_scripts_of_its_family() {
    let own = assemble(include_str!("rights.lua"), &[], |text| text).text;
    for family in FAMILIES {
        let shas: Vec<&str> = family.scripts().map(Script::sha).collect();
        let Source { text, sha } = family.question();
        assert_eq!(*text, format!("{own}-- for {}\n", digest(&shas.join("\n"))));
        assert_eq!(*sha, digest(text));
    }
    assert_ne!(Family::Locks.question().sha, Family::Node.question().sha);
}

/// Otherwise a client would be in its own way at a server that does not know the script.
#[test]
fn scripts_that_end_a_grant_or_a_wait_may_precede_an_acquire() {
    let ends = |script: &Script| {
        let verb = script.name().rsplit('/').next().unwrap_or_default();
        ["release", "leave", "cool_down", "give_back"].contains(&verb)
    };
    assert_eq!(every_script().filter(ends).count(), 8);
    assert!(every_script().all(|script| script.may_precede_acquire() == ends(&script)));
}

#[test]
fn every_named_part_exists() {
    for script in every_script() {
        assert!(!script.source().contains("--@"), "{script:?} names a part that does not exist");
    }
}

/// A name of a field that is wrong stays in the text. A field of a layout is the only thing behind capitals and a dot.
#[test]
fn every_named_field_exists() {
    for script in every_script() {
        for (at, _) in script.source().match_indices('.') {
            let before = &script.source()[..at];
            let is_name = before.ends_with(|c: char| c.is_ascii_uppercase());
            assert!(!is_name, "{script:?} names a field that does not exist: {}", before.lines().next_back().unwrap());
        }
    }
}

/// The patches are applied before the names of fields are replaced.
#[cfg(leasehold_lab)]
#[test]
fn every_patch_changes_its_script() {
    for (name, script, find, replace) in crate::store::redis::mutants::all() {
        let script = every_script().find(|known| known.name() == *script);
        let script = script.unwrap_or_else(|| panic!("{name} is for a script that does not exist"));
        let Row { own, family, .. } = script.row();
        let Source { text, .. } = assemble(own, family.parts(), |text| {
            assert!(text.contains(find), "{name}: {find:?} is not in {script:?}");
            text.replace(find, replace)
        });
        assert_ne!(text, script.source(), "{name} changes nothing");
        for layout in crate::store::redis::layout::LAYOUTS {
            let is_left = text.contains(&format!("{}.", layout.name));
            assert!(!is_left, "{name} names a field of {} that does not exist", layout.name);
        }
    }
}
