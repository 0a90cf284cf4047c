//! The common part of replies of locks and of nodes: words that are separated by single blanks, and refusals.
//!
//! A reply is exactly what a script can say, or it is garbage. After garbage the link is closed: it may be a reply too
//! many, and each later reply would be taken for the reply to another request.

use leasehold_spec::{Contention, LostHow, PublicId, SessionId, Token, Was};

use super::layout::field;

/// The reply of a script.
#[derive(Debug)]
pub(super) enum Reply<T> {
    Sound(T),
    /// The key has something that is not ours, of this type.
    Foreign(String),
    /// The record has a newer layout: this one.
    Newer(String),
    /// The record has the other encoding: that of a mutex.
    Other,
    /// The error of one name in a batch.
    Error(String),
    /// A script of ours began the reply, but what the reply says about the record makes no sense.
    Damaged,
}

impl<T> Reply<T> {
    /// Reads a refusal, which has one word and then a text.
    pub(super) fn refusal(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        match word {
            "FOREIGN" => Some(Self::Foreign(rest.to_owned())),
            "NEWER" => Some(Self::Newer(rest.to_owned())),
            "ERROR" => Some(Self::Error(rest.to_owned())),
            _ => None,
        }
    }
}

/// The words that are not read yet. Every method returns `None` for anything else than it reads.
pub(super) struct Words<'a>(Option<&'a str>);

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(Some(text))
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let text = self.0?;
        let (word, rest) = text.split_once(' ').map_or((text, None), |(word, rest)| (word, Some(rest)));
        self.0 = rest;
        Some(word)
    }

    /// Returns all words that are left as one text: a name or a label, which may have blanks in it.
    pub(super) fn rest(self) -> Option<&'a str> {
        self.0
    }

    /// Reads a label, which may have blanks in it: its number of bytes in three digits, and its bytes.
    pub(super) fn label(&mut self) -> Option<&'a str> {
        let (digits, text) = self.0?.split_at_checked(field!(TAIL.label_length).width)?;
        let (label, behind) = text.split_at_checked(number(digits)?.try_into().ok()?)?;
        self.0 = match behind {
            "" => None,
            behind => Some(behind.strip_prefix(' ')?),
        };
        Some(label)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn end(self) -> Option<()> {
        self.is_at_end().then_some(())
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        number(self.next()?)
    }

    pub(super) fn token(&mut self) -> Option<Token> {
        token(self.next()?)
    }

    /// Reads when a lease began and how long it is. Returns what is left of it at the server's time, and its length.
    /// A script would have to format a number for that.
    pub(super) fn lease_us(&mut self, now_us: u64) -> Option<(u64, u64)> {
        let (since_us, length_ms) = (self.number()?, self.number()?);
        let length_us = length_ms.checked_mul(1000)?;
        Some((since_us.checked_add(length_us)?.saturating_sub(now_us), length_us))
    }

    pub(super) fn contention(&mut self) -> Option<Contention> {
        match self.next()? {
            "N" => Some(Contention::None),
            "O" => Some(Contention::Others),
            "S" => Some(Contention::Strict),
            _ => None,
        }
    }

    pub(super) fn how(&mut self) -> Option<LostHow> {
        match self.next()? {
            "revoked" => Some(LostHow::Revoked),
            "notheld" => Some(LostHow::NotHeld),
            _ => None,
        }
    }

    pub(super) fn was(&mut self) -> Option<Was> {
        match self.next()? {
            "queued" => Some(Was::Queued),
            "granted" => Some(Was::Granted),
            "absent" => Some(Was::Absent),
            _ => None,
        }
    }

    pub(super) fn public_id(&mut self) -> Option<PublicId> {
        let is_whole = |id: &&str| id.len() == field!(ID.public).width && id.bytes().all(|b| b.is_ascii_hexdigit());
        let (session, counter) = self.next().filter(is_whole)?.split_at(field!(ID.counter).offset);
        let session = SessionId(u128::from_str_radix(session, 16).ok()?);
        Some(PublicId { session, counter: u64::from_str_radix(counter, 16).ok()? })
    }
}

/// Returns whether a reply begins like a report: with its word, the server's time and one more word. A script reads the
/// word and the time from no record. So if the rest makes no sense, the record is damaged.
pub(super) fn is_begun(text: &str, is_report: impl Fn(&str) -> bool) -> bool {
    let mut words = Words::of(text);
    words.next().is_some_and(is_report) && words.number().is_some() && !words.is_at_end()
}

pub(super) fn number(digits: &str) -> Option<u64> {
    // `parse` alone would accept a sign.
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

pub(super) fn token(digits: &str) -> Option<Token> {
    Token::new(number(digits)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_by_single_blanks() {
        let mut words = Words::of("a  7");
        assert_eq!((words.next(), words.next(), words.number(), words.next()), (Some("a"), Some(""), Some(7), None));
        assert!(words.is_at_end() && words.end().is_some());
        let mut words = Words::of("x ");
        assert_eq!(words.next(), Some("x"));
        assert_eq!((words.is_at_end(), words.rest()), (false, Some("")));
    }

    #[test]
    fn reports_are_recognized_by_their_beginning() {
        let is_begun = |text: &str| is_begun(text, |word| word == "LEFT");
        assert!(is_begun("LEFT 1 x"));
        for text in ["LEFT", "LEFT 1", "LEFT x x", "LEFT  1 x", "LIFT 1 x", ""] {
            assert!(!is_begun(text), "{text}");
        }
    }
}
