//! The scripts of the fence, their arguments and their replies.

use leasehold_spec::Token;
use sha1_smol::Sha1;

use super::Access;

const MARKS: &str = include_str!("lua/marks.lua");
/// The place in a script where the shared part is inserted.
const PLACE: &str = "--@marks\n";

/// A script, as the server gets it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    pub(super) sha: String,
}

/// All scripts.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) enter: Script,
    pub(super) get: Script,
    pub(super) write: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            enter: Script::new(include_str!("lua/enter.lua")),
            get: Script::new(include_str!("lua/get.lua")),
            write: Script::new(include_str!("lua/write.lua")),
        }
    }
}

impl Script {
    fn new(own: &str) -> Self {
        let source = patched(&own.replace(PLACE, MARKS));
        let sha = Sha1::from(&source).digest().to_string();
        Self { source, sha }
    }
}

/// Returns the key of the marks of a guarded key, in the same slot of a cluster.
///
/// ```text
/// stock:42      lhf:{stock:42}
/// a{shop}stock  lhf:{shop}:a{shop}stock
/// ```
pub(super) fn marks_key(key: &str) -> String {
    match hash_tag(key) {
        Some(tag) => format!("lhf:{{{tag}}}:{key}"),
        None => format!("lhf:{{{key}}}"),
    }
}

/// The rule of Redis: the text between the first `{` and the first `}` after it, unless it is empty.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, behind) = key.split_once('{')?;
    behind.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// Formats tokens and numbers with a fixed width, so that the marks have a fixed width, too.
pub(super) fn digits(number: u64) -> String {
    format!("{number:016}")
}

pub(super) fn word(access: Access) -> &'static str {
    match access {
        Access::Read => "READ",
        Access::Write => "WRITE",
    }
}

/// The reply of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Value(Option<Vec<u8>>),
    Stale(Token),
    ForeignMarks,
    ForeignData,
}

impl Reply {
    /// Returns `None` if no script of ours replies this.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if let Some(value) = bytes.strip_prefix(b"VALUE ") {
            return Some(Self::Value(Some(value.to_vec())));
        }
        if let Some(mark) = bytes.strip_prefix(b"STALE ") {
            return Some(Self::Stale(Token::new(std::str::from_utf8(mark).ok()?.parse().ok()?)?));
        }
        match bytes {
            b"DONE" => Some(Self::Done),
            b"NONE" => Some(Self::Value(None)),
            b"FOREIGN marks" => Some(Self::ForeignMarks),
            b"FOREIGN data" => Some(Self::ForeignData),
            _ => None,
        }
    }
}

#[cfg(not(leasehold_lab))]
fn patched(source: &str) -> String {
    source.to_owned()
}

/// The script with the flaw that the environment names, if it is one of these.
#[cfg(leasehold_lab)]
fn patched(source: &str) -> String {
    let named = leasehold_spec::mutant::named();
    let Some((name, right, wrong)) = PATCHES.iter().find(|(name, ..)| Some(*name) == named) else {
        return source.to_owned();
    };
    assert_eq!(source.matches(right).count(), 1, "{name}: {right:?} must occur once");
    source.replace(right, wrong)
}

/// Seeded flaws: name, what the script says, what it says with the flaw.
#[cfg(leasehold_lab)]
const PATCHES: [(&str, &str, &str); 6] = [
    ("lua-p22-reads-pass", "tonumber(token) > tonumber(all) then", "access == 'WRITE' then"),
    ("lua-p22-old-reader", "access == 'READ' and writers or all", "access == 'READ' and '0' or all"),
    ("lua-p22-new-reader", "access == 'READ' and writers or all", "all"),
    ("lua-p22-once", "tonumber(token) < tonumber(mark)", "tonumber(token) <= tonumber(mark)"),
    ("lua-p22-ghost", "tonumber(call) <= tonumber(last)", "false"),
    ("lua-p22-reads-write", "if access == 'WRITE' then\n", "do\n"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_beside_their_key() {
        for (key, marks) in [
            ("stock", "lhf:{stock}"),
            ("stock:42", "lhf:{stock:42}"),
            ("a{shop}stock", "lhf:{shop}:a{shop}stock"),
            ("{shop}{x}", "lhf:{shop}:{shop}{x}"),
            // No tag by Redis' rule.
            ("a{}b", "lhf:{a{}b}"),
            ("a{b", "lhf:{a{b}"),
        ] {
            assert_eq!(marks_key(key), marks);
        }
    }

    #[test]
    fn what_no_script_says_is_not_an_answer() {
        for bytes in [&b""[..], b"done", b"STALE ", b"STALE x", b"STALE 9007199254740992", b"VALUE", b"FOREIGN"] {
            assert_eq!(Reply::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(Reply::parse(b"VALUE "), Some(Reply::Value(Some(Vec::new()))));
    }

    #[test]
    fn every_script_has_its_header_and_the_marks() {
        let Scripts { enter, get, write } = Scripts::new();
        for (script, first) in
            [(enter, "#!lua flags=allow-oom\n"), (get, "#!lua flags=allow-oom\n"), (write, "#!lua\n")]
        {
            assert!(script.source.starts_with(first), "{}", script.source);
            for part in ["KEYS", "ARGV", "RETURNS", "EFFECTS", "RETRY", "COST"] {
                assert!(script.source.contains(&format!("\n-- {part} ")), "{part} is missing: {}", script.source);
            }
            assert_eq!(script.source.matches("local function raise()").count(), 1);
        }
    }

    #[cfg(leasehold_lab)]
    #[test]
    fn every_patch_fits_in_one_place() {
        for (name, right, _) in PATCHES {
            assert_eq!(MARKS.matches(right).count(), 1, "{name}: {right}");
        }
    }
}
