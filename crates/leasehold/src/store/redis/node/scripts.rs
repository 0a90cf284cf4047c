//! The scripts of a node, as they are sent.

use std::sync::OnceLock;

use crate::store::redis::handshake::Known;
use crate::store::redis::scripts::{Script, question, script};

/// What scripts share, put in as text where one says so. What has another in it comes before that.
const PARTS: [(&str, &str); 11] = [
    ("--@clock\n", include_str!("../part/clock.lua")),
    ("--@marked\n", include_str!("part/marked.lua")),
    ("--@open\n", include_str!("part/open.lua")),
    ("--@enqueue\n", include_str!("part/enqueue.lua")),
    ("--@unlink\n", include_str!("part/unlink.lua")),
    ("--@give\n", include_str!("part/give.lua")),
    ("--@settle\n", include_str!("part/settle.lua")),
    ("--@lapse\n", include_str!("part/lapse.lua")),
    ("--@next\n", include_str!("part/next.lua")),
    ("--@head\n", include_str!("part/head.lua")),
    ("--@save\n", include_str!("part/save.lua")),
];

/// All of them.
#[derive(Clone, Debug)]
pub struct NodeScripts {
    /// Gives the vote, or a place in the queue. See the head of `ask.lua`; so for the others.
    pub ask: Script,
    /// Keeps the votes of many names at once.
    pub renew: Script,
    /// Takes the vote back, and the place in the queue.
    pub give_back: Script,
    /// Takes the vote back, and gives it to nobody for a while.
    pub cool_down: Script,
    /// Marks a grant, and shortens it to the grace.
    pub revoke: Script,
    /// Looks after the queue.
    pub settle: Script,
    /// Looks, and writes nothing.
    pub inspect: Script,
    /// Greets: writes and tells the marker.
    pub enter: Script,
    /// Ends a rest.
    pub begin: Script,
    /// Asks for our rights. A server that knows it knows the others: see `handshake.rs`.
    pub rights: Script,
}

impl NodeScripts {
    /// The scripts of this build: made once.
    pub fn get() -> &'static Self {
        static SCRIPTS: OnceLock<NodeScripts> = OnceLock::new();
        SCRIPTS.get_or_init(Self::make)
    }

    fn make() -> Self {
        let put = |name, own| script(name, own, &PARTS);
        let mut scripts = Self {
            ask: put("node/ask", include_str!("ask.lua")),
            renew: put("node/renew", include_str!("renew.lua")),
            give_back: put("node/give_back", include_str!("give_back.lua")),
            cool_down: put("node/cool_down", include_str!("cool_down.lua")),
            revoke: put("node/revoke", include_str!("revoke.lua")),
            settle: put("node/settle", include_str!("settle.lua")),
            inspect: put("node/inspect", include_str!("inspect.lua")),
            enter: put("node/enter", include_str!("enter.lua")),
            begin: put("node/begin", include_str!("begin.lua")),
            rights: question(&[]),
        };
        scripts.rights = question(&scripts.each());
        scripts
    }

    /// Each of them, but the question for our rights.
    pub fn each(&self) -> [&Script; 9] {
        let Self { ask, renew, give_back, cool_down, revoke, settle, inspect, enter, begin, .. } = self;
        [ask, renew, give_back, cool_down, revoke, settle, inspect, enter, begin]
    }

    pub(super) fn known<'a>(&'a self, each: &'a [&'a Script]) -> Known<'a> {
        Known { each, rights: &self.rights }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_spec::limits;

    use super::*;

    #[test]
    fn every_script_has_its_header() {
        for script in NodeScripts::get().each() {
            assert!(script.source.starts_with("#!lua"), "{} has no shebang line", script.name);
            for part in ["KEYS", "ARGV", "RETURNS", "EFFECTS", "RETRY", "COST"] {
                let line = format!("\n-- {part} ");
                assert!(script.source.contains(&line), "{} does not say its {part}", script.name);
            }
            assert!(!script.source.contains("--@"), "{} names a part that there is not", script.name);
        }
    }

    #[test]
    fn time_is_asked_for_once() {
        for script in NodeScripts::get().each() {
            let calls = script.source.matches("redis.call('TIME')").count();
            assert_eq!(calls, 1, "{} asks for the time {calls} times", script.name);
        }
    }

    /// An error before it leaves nobody told of what was not stored.
    #[test]
    fn a_message_is_the_last_thing_that_a_script_does() {
        const WRITES: [&str; 6] = ["'SET'", "'DEL'", "'ZADD'", "'ZREM'", "'ZREMRANGEBYRANK'", "'PEXPIRE'"];
        let mut seen = 0;
        for script in NodeScripts::get().each() {
            for (at, _) in script.source.match_indices("'PUBLISH'") {
                let behind = &script.source[at..];
                let behind = &behind[..behind.find("\nreturn ").unwrap_or(behind.len())];
                let behind = &behind[..behind.find(" return ").unwrap_or(behind.len())];
                let written = WRITES.iter().find(|write| behind.contains(**write));
                assert_eq!(written, None, "{} writes after it has told", script.name);
                seen += 1;
            }
        }
        assert_eq!(seen, 6);
    }

    /// A greeting, too: whoever may not greet cannot give back.
    #[test]
    fn only_what_asks_for_a_vote_is_refused_with_a_full_memory() {
        for script in NodeScripts::get().each() {
            let flags = script.source.lines().next().unwrap_or_default();
            let wanted = match script.name {
                "node/ask" => "#!lua",
                "node/inspect" => "#!lua flags=no-writes",
                _ => "#!lua flags=allow-oom",
            };
            assert_eq!(flags, wanted, "{}", script.name);
        }
    }

    #[test]
    fn what_gives_a_vote_looks_at_the_marker_before_the_record() {
        for script in NodeScripts::get().each() {
            let at = script.source.find("redis.pcall('GET', marker) ~= seen");
            assert_eq!(at.is_some(), matches!(script.name, "node/ask" | "node/renew"), "{}", script.name);
            let record = script.source.find("redis.pcall('GET', KEYS[1])").or(script.source.find("pcall('GET', name)"));
            assert!(at.is_none_or(|at| record.is_some_and(|record| at < record)), "{}", script.name);
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_specification() {
        let scripts = NodeScripts::get();
        let bounds = format!(
            "local R_US, SETTLE_STEPS, QUEUE_MAX, CALL_US, LEAD_US, SPARE_US = {}, {}, {}, {}, {}, {}\n",
            limits::RETENTION_US,
            limits::SETTLE_STEPS,
            limits::QUEUE_MAX,
            limits::CALL_MS * 1000,
            limits::TOKEN_LEAD_US,
            limits::RETENTION_SPARE_US
        );
        assert!(scripts.settle.source.contains(&bounds), "part/open.lua has other bounds than: {bounds}");
        let notified = format!("local REVOKE_NOTIFIED = {}\n", limits::REVOKE_NOTIFIED);
        assert!(scripts.revoke.source.contains(&notified), "part/open.lua notifies others");
        let window_us = limits::TOKEN_WINDOW_MS * 1000;
        let near = format!("ahead_us <= {window_us} and ahead_us >= -{window_us}\n");
        assert!(scripts.ask.source.contains(&near), "ask.lua has another window");
        let lead = format!("ahead_us + range <= {} then", limits::TOKEN_LEAD_US);
        assert!(scripts.ask.source.contains(&lead), "ask.lua has another lead");
        for source in [&scripts.ask.source, &scripts.renew.source] {
            let (kept_us, kept_ms) =
                (format!("1000 + {})", limits::RETENTION_US), format!(" + {})", limits::RETENTION_MS));
            assert!(source.contains(&kept_us) && source.contains(&kept_ms), "another R");
        }
        let spared_us = limits::RETENTION_US + limits::RETENTION_SPARE_US;
        let (kept_us, kept_ms) = (format!("1000 + {spared_us})"), format!(" + {})", spared_us / 1000));
        assert!(scripts.ask.source.contains(&kept_us) && scripts.ask.source.contains(&kept_ms), "another spare");
    }

    #[test]
    fn the_question_stands_for_all() {
        let scripts = NodeScripts::get();
        assert_eq!(scripts.rights.source, question(&scripts.each()).source);
        assert_ne!(scripts.rights.sha, crate::store::redis::Scripts::get().rights.sha);
    }
}
