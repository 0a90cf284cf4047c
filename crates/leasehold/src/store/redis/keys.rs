//! The names of our keys and channels: built and taken apart here and nowhere else.
//!
//! ```text
//!   app:lh1:{orders/42}      the record of one name
//!   app:lh1:inbox:6f1c…      the channel of one session
//!   └─┬─┘└┬┘
//!   prefix layout
//! ```
//!
//! The braces make the name the hash tag, so that a cluster keeps whatever belongs to one name in one slot. Within them
//! `{`, `}` and `%` are written as `%7B`, `%7D` and `%25`: a name with a brace would end the tag too early, and two names
//! could share a key. No name can be mistaken for a channel: a record's key goes on with `{`.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, SessionId};

/// The layout of records. Another one is refused, never touched.
pub(crate) const LAYOUT: &str = "1";

const RECORD: &str = "lh1:{";
const INBOX: &str = "lh1:inbox:";

/// Keys below one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The key of a name's record.
    pub(crate) fn record(&self, name: &Name) -> String {
        let mut key = String::new();
        self.write(name, &mut key);
        key
    }

    /// Writes it behind what is there.
    pub(super) fn write(&self, name: &Name, key: &mut String) {
        let text = name.as_str();
        key.reserve(self.prefix.len() + RECORD.len() + text.len() + 1);
        key.push_str(&self.prefix);
        key.push_str(RECORD);
        if text.contains(['{', '}', '%']) && !is_on(Mutant::P8WrongHashTag) {
            for c in text.chars() {
                match c {
                    '{' => key.push_str("%7B"),
                    '}' => key.push_str("%7D"),
                    '%' => key.push_str("%25"),
                    plain => key.push(plain),
                }
            }
        } else {
            // Nearly every name, at every request.
            key.push_str(text);
        }
        key.push('}');
    }

    /// A key that stands for all records, where only its beginning matters.
    pub(super) fn sample(&self) -> String {
        format!("{}{RECORD}}}", self.prefix)
    }

    /// What SCAN finds all records by. A prefix stands for itself, whatever it has in it.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + RECORD.len() + 2);
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + RECORD + "*}"
    }

    /// The name whose record this key is; `None` for any other key.
    pub(crate) fn name(&self, key: &str) -> Option<Name> {
        let text = key.strip_prefix(&*self.prefix)?.strip_prefix(RECORD)?.strip_suffix('}')?;
        if text.contains(['{', '}']) {
            return None;
        }
        let mut pieces = text.split('%');
        let mut name = pieces.next()?.to_owned();
        for piece in pieces {
            let (code, plain) = piece.split_at_checked(2)?;
            name.push(match code {
                "7B" => '{',
                "7D" => '}',
                "25" => '%',
                _ => return None,
            });
            name.push_str(plain);
        }
        Name::new(&name).ok()
    }

    /// What goes before a session's id in the name of its channel.
    pub(crate) fn inboxes(&self) -> String {
        format!("{}{INBOX}", self.prefix)
    }

    /// The channel of a session. The scripts make it from a record's key: `part/open.lua`, `inboxes`.
    pub(crate) fn inbox(&self, session: SessionId) -> String {
        format!("{}{INBOX}{session}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_and_no_two_share_a_key() {
        let keys = Keys::new("app:");
        let names = ["a", "{", "}", "%", "%7B", "a}b", "{tag}", "100%25", " ", "inbox:", "Ä/ö", "}%{"];
        let mut seen = std::collections::BTreeSet::new();
        for text in names {
            let name = Name::new(text).unwrap();
            let key = keys.record(&name);
            assert_eq!(keys.name(&key), Some(name), "{key}");
            assert_eq!((key.matches('{').count(), key.matches('}').count()), (1, 1), "{key} has one hash tag");
            assert!(seen.insert(key));
        }
    }

    #[test]
    fn what_is_no_key_of_ours_has_no_name() {
        let keys = Keys::new("app:");
        for key in ["", "lh1:{a}", "app:lh1:{}", "app:lh1:{a", "app:lh1:{a%7b}", "app:lh1:{%}", "app:lh1:{a}b}"] {
            assert_eq!(keys.name(key), None, "{key}");
        }
    }

    #[test]
    fn the_sample_is_no_record() {
        let keys = Keys::new("app:");
        assert_eq!((keys.sample().as_str(), keys.name(&keys.sample())), ("app:lh1:{}", None));
    }

    #[test]
    fn the_pattern_takes_a_prefix_as_it_is() {
        assert_eq!(Keys::new("a*[b]?\\:").pattern(), r"a\*\[b\]\?\\:lh1:{*}");
    }

    #[test]
    fn the_inbox_of_a_session() {
        assert_eq!(Keys::new("").inbox(SessionId(0xab)), format!("lh1:inbox:{}ab", "0".repeat(30)));
    }
}
