//! The names of locks.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::limits::NAME_MAX;

/// A name that every store accepts: 1 to 255 bytes of UTF-8 without control characters. Names are case-sensitive, and
/// nothing is trimmed.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    /// The hash of the text by SipHash, with a random key of this process: nobody outside it can choose names that collide.
    /// It is computed once.
    hash: u64,
}

/// The end of the name beside another one.
const COMPANION: char = '\u{1}';

/// The reason for which a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadName {
    /// The name has no bytes.
    Empty,
    /// The name has more than 255 bytes. The value is the number of its bytes.
    TooLong(usize),
    /// The name has a control character. The value is the index of its byte.
    Control(usize),
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the name is empty: use 1 to {NAME_MAX} bytes of UTF-8"),
            Self::TooLong(bytes) => {
                write!(f, "the name has {bytes} bytes: use at most {NAME_MAX} (a hash of the long part will do)")
            }
            Self::Control(at) => write!(f, "the name has a control character at byte {at}: use printable text"),
        }
    }
}

impl std::error::Error for BadName {}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// If the text is not a valid name, the error has the reason.
    pub fn new(text: &str) -> Result<Self, BadName> {
        match text.len() {
            0 => return Err(BadName::Empty),
            n if n > NAME_MAX => return Err(BadName::TooLong(n)),
            _ => {}
        }
        match text.char_indices().find(|(_, c)| c.is_control()) {
            Some((at, _)) => Err(BadName::Control(at)),
            None => Ok(Self::of_checked(text.into())),
        }
    }

    /// Makes a name of a text that was checked before.
    fn of_checked(text: Arc<str>) -> Self {
        static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = HASHING.hash_one(&*text);
        Self { text, hash }
    }

    /// Returns the name beside this one, which no user can name: that of the condition variable for the observers of an
    /// election.
    #[must_use]
    pub fn companion(&self) -> Self {
        Self::of_checked(format!("{}{COMPANION}", self.text).into())
    }

    /// Checks a name that a store has: that of a user, or the one beside it.
    ///
    /// # Errors
    ///
    /// Those of [`Name::new`].
    pub fn of_store(text: &str) -> Result<Self, BadName> {
        match text.strip_suffix(COMPANION) {
            Some(text) => Ok(Self::new(text)?.companion()),
            None => Self::new(text),
        }
    }

    /// Whether this is the name beside another one.
    #[must_use]
    pub fn is_companion(&self) -> bool {
        self.text.ends_with(COMPANION)
    }

    /// Returns the name, unchanged.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_in_bytes() {
        assert_eq!(Name::new(""), Err(BadName::Empty));
        assert!(Name::new(&"x".repeat(NAME_MAX)).is_ok());
        assert_eq!(Name::new(&"x".repeat(NAME_MAX + 1)), Err(BadName::TooLong(NAME_MAX + 1)));
        assert_eq!(Name::new(&"é".repeat(128)), Err(BadName::TooLong(256)));
        assert_eq!(Name::new("a\nb"), Err(BadName::Control(1)));
        assert_eq!(Name::new("a\u{85}"), Err(BadName::Control(1)));
    }

    #[test]
    fn text_stays_as_it_was() {
        for text in [" padded ", "{tag}", "100%", "Ä/ö:ü", "a b"] {
            assert_eq!(Name::new(text).unwrap().as_str(), text);
        }
    }
}
