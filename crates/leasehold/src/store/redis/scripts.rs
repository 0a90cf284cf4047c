//! The scripts, as they are sent: one file for each operation, with the shared part put in once.

use std::sync::OnceLock;

/// What scripts share, put in as text where one says so: see `part/open.lua` for why it is no function.
const PARTS: [(&str, &str); 10] = [
    ("--@clock\n", include_str!("part/clock.lua")),
    ("--@open\n", include_str!("part/open.lua")),
    ("--@unlink\n", include_str!("part/unlink.lua")),
    ("--@settle\n", include_str!("part/settle.lua")),
    ("--@next\n", include_str!("part/next.lua")),
    ("--@alive\n", include_str!("part/alive.lua")),
    ("--@spend\n", include_str!("part/spend.lua")),
    ("--@mint\n", include_str!("part/mint.lua")),
    ("--@last\n", include_str!("part/last.lua")),
    ("--@save\n", include_str!("part/save.lua")),
];

/// One script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its file, without `.lua`.
    pub name: &'static str,
    /// What the server runs.
    pub source: String,
    /// By what the server knows it: the SHA-1 of the source, in hexadecimal.
    pub sha: String,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Scripts {
    /// See `acquire.lua`; so for the others.
    pub acquire: Script,
    /// Up to 16 names at once.
    pub renew: Script,
    /// Gives back.
    pub release: Script,
    /// Makes a grant's range of tokens longer.
    pub reserve: Script,
    /// Stops waiting.
    pub leave: Script,
    /// Gives back, and lets nobody have it for a while.
    pub cool_down: Script,
    /// Marks.
    pub revoke: Script,
    /// Looks after the queue.
    pub settle: Script,
    /// Looks, and writes nothing.
    pub inspect: Script,
    /// Asks for our rights. A server that knows it knows the others: see `handshake.rs`.
    pub rights: Script,
}

impl Scripts {
    /// The scripts of this build: made once.
    pub fn get() -> &'static Self {
        static SCRIPTS: OnceLock<Scripts> = OnceLock::new();
        SCRIPTS.get_or_init(Self::make)
    }

    fn make() -> Self {
        let mut scripts = Self {
            acquire: lock_script("acquire", include_str!("acquire.lua")),
            renew: lock_script("renew", include_str!("renew.lua")),
            release: lock_script("release", include_str!("release.lua")),
            reserve: lock_script("reserve", include_str!("reserve.lua")),
            leave: lock_script("leave", include_str!("leave.lua")),
            cool_down: lock_script("cool_down", include_str!("cool_down.lua")),
            revoke: lock_script("revoke", include_str!("revoke.lua")),
            settle: lock_script("settle", include_str!("settle.lua")),
            inspect: lock_script("inspect", include_str!("inspect.lua")),
            rights: question(&[]),
        };
        scripts.rights = question(&scripts.each());
        scripts
    }

    /// Each of them that is about a lock.
    pub fn each(&self) -> [&Script; 9] {
        let Self { acquire, renew, release, reserve, leave, cool_down, revoke, settle, inspect, .. } = self;
        [acquire, renew, release, reserve, leave, cool_down, revoke, settle, inspect]
    }
}

fn lock_script(name: &'static str, own: &str) -> Script {
    script(name, own, &PARTS)
}

/// A script with the parts that it names put in.
pub(super) fn script(name: &'static str, own: &str, parts: &[(&str, &str)]) -> Script {
    let mut source = own.to_owned();
    for (mark, part) in parts {
        source = source.replace(mark, part);
    }
    let source = patched(name, source);
    Script { name, sha: digest(&source), source }
}

/// The question about our rights, with a line that stands for these scripts: a server that knows it knows them.
pub(super) fn question(each: &[&Script]) -> Script {
    let shas: Vec<&str> = each.iter().map(|script| script.sha.as_str()).collect();
    let source = format!("{}-- for {}\n", include_str!("rights.lua"), digest(&shas.join("\n")));
    Script { name: "rights", sha: digest(&source), source }
}

pub(super) fn digest(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

#[cfg(leasehold_lab)]
fn patched(name: &str, source: String) -> String {
    super::mutants::patched(name, source)
}

#[cfg(not(leasehold_lab))]
fn patched(_: &str, source: String) -> String {
    source
}

#[cfg(test)]
mod tests {
    use leasehold_spec::limits;

    use super::*;

    #[test]
    fn every_script_has_its_header() {
        for script in Scripts::get().each() {
            assert!(script.source.starts_with("#!lua"), "{} has no shebang line", script.name);
            for part in ["KEYS", "ARGV", "RETURNS", "EFFECTS", "RETRY", "COST"] {
                let line = format!("\n-- {part} ");
                assert!(script.source.contains(&line), "{} does not say its {part}", script.name);
            }
        }
    }

    #[test]
    fn time_is_asked_for_once() {
        for script in Scripts::get().each() {
            let calls = script.source.matches("redis.call('TIME')").count();
            assert_eq!(calls, 1, "{} asks for the time {calls} times", script.name);
        }
    }

    /// An error before it leaves nobody told of what was not stored (P5).
    #[test]
    fn a_message_is_the_last_thing_that_a_script_does() {
        const WRITES: [&str; 7] = ["'SET'", "'SETRANGE'", "'DEL'", "'HSET'", "'HDEL'", "'PEXPIRE'", "call(unpack("];
        for script in Scripts::get().each() {
            for (at, _) in script.source.match_indices("'PUBLISH'") {
                let behind = &script.source[at..];
                let behind = &behind[..behind.find("\nreturn ").unwrap_or(behind.len())];
                let behind = &behind[..behind.find(" return ").unwrap_or(behind.len())];
                let written = WRITES.iter().find(|write| behind.contains(**write));
                assert_eq!(written, None, "{} writes after it has told", script.name);
            }
        }
    }

    #[test]
    fn only_what_gives_back_or_hands_on_runs_with_a_full_memory() {
        for script in Scripts::get().each() {
            let flags = script.source.lines().next().unwrap_or_default();
            let wanted = match script.name {
                "acquire" => "#!lua",
                "inspect" => "#!lua flags=no-writes",
                _ => "#!lua flags=allow-oom",
            };
            assert_eq!(flags, wanted, "{}", script.name);
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_specification() {
        let bounds = format!(
            "local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = {}, {}, {}, {}, {}, {}\n",
            limits::RETENTION_MS,
            limits::RETENTION_US,
            limits::SETTLE_STEPS,
            limits::TICKET_STEPS,
            limits::LAPSES,
            limits::QUEUE_MAX
        );
        let scripts = Scripts::get();
        assert!(scripts.settle.source.contains(&bounds), "part/open.lua has other bounds than: {bounds}");
        let lead = format!("local LEAD_US, REVOKE_NOTIFIED = {}, {}\n", limits::TOKEN_LEAD_US, limits::REVOKE_NOTIFIED);
        assert!(scripts.settle.source.contains(&lead), "part/open.lua has another lead, or notifies others");
        let usual = format!("<= '{:08}'", limits::RANGE_MAX);
        assert!(scripts.renew.source.contains(&usual), "renew.lua has another range");
        let kept = format!("2 * lease + {})", limits::RETENTION_MS);
        assert!(scripts.renew.source.contains(&kept), "renew.lua has another R");
        let floor = format!(" / 3), {})", limits::LOOK_MAX_MS);
        assert!(scripts.settle.source.contains(&floor), "part/settle.lua has another floor");
        let long = format!("<= '{:08}'", limits::RETENTION_MS);
        assert!(scripts.release.source.contains(&long), "release.lua has another R");
    }

    /// Another version of any script makes another question, so that no server answers it that lacks the script.
    #[test]
    fn the_question_stands_for_all() {
        let scripts = Scripts::get();
        let shas = scripts.each().map(|script| script.sha.as_str()).join("\n");
        assert!(scripts.rights.source.ends_with(&format!("\n-- for {}\n", digest(&shas))));
        assert!(scripts.rights.source.starts_with(include_str!("rights.lua")));
        assert_eq!(scripts.rights.sha, digest(&scripts.rights.source));
    }

    #[test]
    fn nothing_is_left_to_put_in() {
        for script in Scripts::get().each() {
            assert!(!script.source.contains("--@"), "{} names a part that there is not", script.name);
        }
    }
}
