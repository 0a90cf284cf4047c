//! The scripts of the fence, their arguments and their replies.

use leasehold_spec::Token;

use super::gate::Access;
use crate::store::redis::layout::field;
use crate::store::redis::{Source, assemble};

/// The shared part, and the place in a script where it is inserted.
const MARKS: (&str, &str) = ("--@marks\n", include_str!("lua/marks.lua"));

/// All scripts.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) enter: Source,
    pub(super) get: Source,
    pub(super) write: Source,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            enter: assemble(include_str!("lua/enter.lua"), &[MARKS], patched),
            get: assemble(include_str!("lua/get.lua"), &[MARKS], patched),
            write: assemble(include_str!("lua/write.lua"), &[MARKS], patched),
        }
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
    format!("{number:0width$}", width = field!(MARKS.call).width)
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
fn patched(source: String) -> String {
    source
}

/// The script with the flaw that the environment names, if it is one of these.
#[cfg(leasehold_lab)]
fn patched(source: String) -> String {
    let named = leasehold_spec::mutant::named();
    let Some((name, right, wrong)) = PATCHES.iter().find(|(name, ..)| Some(*name) == named) else {
        return source;
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
    fn unknown_replies_are_refused() {
        for bytes in [&b""[..], b"done", b"STALE ", b"STALE x", b"STALE 9007199254740992", b"VALUE", b"FOREIGN"] {
            assert_eq!(Reply::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(Reply::parse(b"VALUE "), Some(Reply::Value(Some(Vec::new()))));
    }

    #[test]
    fn every_script_has_its_header_and_the_marks() {
        let Scripts { enter, get, write } = Scripts::new();
        let scripts = [
            (enter, "#!lua flags=allow-oom\n", include_str!("lua/enter.lua")),
            (get, "#!lua flags=allow-oom\n", include_str!("lua/get.lua")),
            (write, "#!lua\n", include_str!("lua/write.lua")),
        ];
        for (script, first, own) in scripts {
            assert!(script.text.starts_with(first), "{}", script.text);
            for part in ["KEYS", "ARGV", "RETURNS", "EFFECTS", "RETRY", "COST"] {
                assert!(own.contains(&format!("\n-- {part} ")), "{part} is missing: {own}");
            }
            assert_eq!(script.text.matches("local function raise()").count(), 1);
        }
    }

    #[test]
    fn digests_change_only_with_the_code() {
        let Scripts { enter, get, write } = Scripts::new();
        let digests = [enter, get, write].map(|script| script.sha);
        assert_eq!(
            digests,
            [
                "b0db0ee6fa69a4684f3067e2bdcd4df0f7149b18",
                "077d0f1d588e5fba860444b127c3b80fe4d951bf",
                "1198cce26b3ebaf539715bec75c53d3ca8ad688d",
            ]
        );
    }

    #[cfg(leasehold_lab)]
    #[test]
    fn every_patch_fits_in_one_place() {
        for (name, right, _) in PATCHES {
            assert_eq!(MARKS.1.matches(right).count(), 1, "{name}: {right}");
        }
    }
}
