//! The names of our keys and channels. Only this file builds and parses them.
//!
//! ```text
//!   app:lh1:{orders/42}      the record of one name
//!   app:lh1:inbox:6f1c…      the channel of one session
//!   └─┬─┘└┬┘
//!   prefix layout
//! ```
//!
//! The braces make the name the hash tag, so that a cluster keeps all data of one name in one slot. Within them `{`,
//! `}` and `%` are written as `%7B`, `%7D` and `%25`: otherwise a name with a brace would end the tag too early, and
//! two names could share a key. No key of a record is also a channel, because it continues with `{`.
//!
//! A node of a quorum has another layout (`lq1`) with two more keys: the queue of a name, `lq1q:{orders/42}`, and the
//! marker of the node, `lq1:marker`. A cluster would require both in the slot of the record, but no node is part of a
//! cluster.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, SessionId};

/// The layout of records. A record with another layout is refused, and never changed.
pub(crate) const LAYOUT: &str = "1";

/// The beginnings of keys, of channels and of messages.
#[derive(Debug)]
struct Layout {
    word: &'static str,
    record: &'static str,
    inbox: &'static str,
}

const LOCKS: &Layout = &Layout { word: "lh1", record: "lh1:{", inbox: "lh1:inbox:" };
const NODE: &Layout = &Layout { word: "lq1", record: "lq1:{", inbox: "lq1:inbox:" };
const MARKER: &str = "lq1:marker";

/// Keys below one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    layout: &'static Layout,
}

impl Keys {
    /// Returns the keys of locks on one Redis.
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into(), layout: LOCKS }
    }

    /// Returns the keys of a node of a quorum.
    pub(super) fn of_node(prefix: &str) -> Self {
        Self { prefix: prefix.into(), layout: NODE }
    }

    /// Returns the key of the marker of a node. It is no key of a record, which continues with `{`.
    pub(super) fn marker(&self) -> String {
        format!("{}{MARKER}", self.prefix)
    }

    /// Returns the key of the record of a name.
    pub(crate) fn record(&self, name: &Name) -> String {
        let mut key = String::new();
        self.write(name, &mut key);
        key
    }

    /// Appends the key of the record of a name.
    pub(super) fn write(&self, name: &Name, key: &mut String) {
        let text = name.as_str();
        key.reserve(self.prefix.len() + self.layout.record.len() + text.len() + 1);
        key.push_str(&self.prefix);
        key.push_str(self.layout.record);
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
            // Nearly every name, in every request.
            key.push_str(text);
        }
        key.push('}');
    }

    /// Returns a key that stands for all records, for a check of its beginning.
    pub(super) fn sample(&self) -> String {
        format!("{}{}}}", self.prefix, self.layout.record)
    }

    /// Returns the pattern of all records for SCAN. Special characters in the prefix are escaped.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + self.layout.record.len() + 2);
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + self.layout.record + "*}"
    }

    /// Returns the name whose record has this key. Returns `None` for any other key.
    pub(crate) fn name(&self, key: &str) -> Option<Name> {
        let text = key.strip_prefix(&*self.prefix)?.strip_prefix(self.layout.record)?.strip_suffix('}')?;
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
        Name::of_store(&name).ok()
    }

    /// Returns the prefix of the channel names of sessions.
    pub(crate) fn inboxes(&self) -> String {
        format!("{}{}", self.prefix, self.layout.inbox)
    }

    /// Returns the text by which a session proves its inbox.
    pub(super) fn probe(&self, random: u128) -> String {
        format!("{} probe {random:032x}", self.layout.word)
    }

    /// Returns the channel of a session. The scripts make it from the key of a record: see `inboxes` in `part/open.lua`.
    pub(crate) fn inbox(&self, session: SessionId) -> String {
        format!("{}{}{session}", self.prefix, self.layout.inbox)
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
    fn foreign_keys_have_no_name() {
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
    fn the_pattern_escapes_the_prefix() {
        assert_eq!(Keys::new("a*[b]?\\:").pattern(), r"a\*\[b\]\?\\:lh1:{*}");
    }

    #[test]
    fn the_inbox_of_a_session() {
        assert_eq!(Keys::new("").inbox(SessionId(0xab)), format!("lh1:inbox:{}ab", "0".repeat(30)));
    }
}
