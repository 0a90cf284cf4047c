//! The keys of a server, and the commands that scripts call.

use std::collections::BTreeMap;
use std::fmt;

/// A key: its value, and the time at which it expires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) value: Value,
    pub(super) end_ms: Option<u64>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string.
    Text(String),
    /// A hash of owners and their counts.
    Hash(BTreeMap<String, i64>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Hash(fields) => {
                let fields: Vec<_> = fields.iter().map(|(owner, count)| format!("{owner}: {count}")).collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
        }
    }
}

/// The keys of a server during one command.
pub(super) struct Keys<'a> {
    pub(super) keys: &'a mut BTreeMap<String, Key>,
    pub(super) now_ms: u64,
}

impl Keys<'_> {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        match &self.keys.get(key)?.value {
            Value::Text(text) => Some(text.clone()),
            Value::Hash(_) => None,
        }
    }

    pub(super) fn set_if_absent(&mut self, key: &str, value: &str, for_ms: Option<u64>) -> bool {
        let end_ms = for_ms.map(|ms| self.now_ms + ms);
        let is_absent = !self.exists(key);
        if is_absent {
            self.keys.insert(key.to_owned(), Key { value: Value::Text(value.to_owned()), end_ms });
        }
        is_absent
    }

    pub(super) fn exists(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    pub(super) fn del(&mut self, key: &str) -> i64 {
        i64::from(self.keys.remove(key).is_some())
    }

    pub(super) fn pexpire(&mut self, key: &str, ms: u64) -> i64 {
        let end_ms = Some(self.now_ms + ms);
        let found = self.keys.get_mut(key).map(|key| key.end_ms = end_ms);
        i64::from(found.is_some())
    }

    pub(super) fn pttl(&self, key: &str) -> i64 {
        match self.keys.get(key).map(|key| key.end_ms) {
            None => -2,
            Some(None) => -1,
            Some(Some(end_ms)) => i64::try_from(end_ms.saturating_sub(self.now_ms)).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn hexists(&self, key: &str, field: &str) -> bool {
        matches!(self.keys.get(key), Some(Key { value: Value::Hash(fields), .. }) if fields.contains_key(field))
    }

    pub(super) fn hincrby(&mut self, key: &str, field: &str, by: i64) -> i64 {
        let new = Key { value: Value::Hash(BTreeMap::new()), end_ms: None };
        match &mut self.keys.entry(key.to_owned()).or_insert(new).value {
            Value::Hash(fields) => {
                let count = fields.entry(field.to_owned()).or_default();
                *count += by;
                *count
            }
            Value::Text(_) => 0,
        }
    }
}
