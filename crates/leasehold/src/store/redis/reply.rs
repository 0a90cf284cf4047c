//! What the scripts answer: one string of words. Whatever is not exactly that is garbage, and the link is not believed
//! any further: it may be an answer too many, and each one behind it would then be taken for another's. Only a sentence
//! that a script did begin may go wrong in what the script read from the record; that is the record's fault.

use std::str::{FromStr, SplitN};

use leasehold_spec::limits::{RANGE_END, RANGE_MAX};
use leasehold_spec::{
    Answer, Contention, Delivery, Event, From as Since, GrantId, GrantState, Holder, Inspection, Joined, LostHow, Name,
    Op, Outcome, PublicId, Renew, Rest, SessionId, Token, Was,
};

use super::keys::Keys;
use super::scripts::Family;

/// What a script said.
#[derive(Debug)]
pub(super) enum Said {
    Answer(Answer),
    /// Under the key is something that is not ours: which type.
    Foreign(String),
    /// The record has a newer layout: which.
    Newer(String),
    /// One name's error in a batch.
    Error(String),
    /// A sentence of ours, and what it says of the record makes no sense.
    Damaged,
}

/// What of a request its answer leaves out.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    Acquire {
        lease_ms: u64,
        range: u64,
    },
    Release {
        last: Token,
    },
    /// From now on.
    Renew {
        token: Token,
        lease_ms: u64,
    },
    Other,
}

impl From<&Op> for To {
    fn from(op: &Op) -> Self {
        match op {
            Op::Acquire(acquire) => {
                Self::Acquire { lease_ms: acquire.lease_ms, range: acquire.range.clamp(1, RANGE_MAX) }
            }
            Op::Release { token, used, .. } => Self::Release { last: *token.max(used) },
            Op::Renew(renew) => Self::from(renew),
            _ => Self::Other,
        }
    }
}

impl From<&Renew> for To {
    fn from(renew: &Renew) -> Self {
        match renew.from {
            Since::Now => Self::Renew { token: renew.token, lease_ms: renew.lease_ms },
            Since::Grant => Self::Other,
        }
    }
}

/// The answer to one request; `None` for garbage.
pub(super) fn parse(to: To, text: &str) -> Option<Said> {
    match (to, text) {
        // The three answers of an uncontended lock have no words to spare.
        (To::Acquire { lease_ms, range }, digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            let token = token(digits)?;
            let outcome = Outcome::Granted { token, left_us: lease_ms * 1000, range };
            Some(Said::Answer(quiet(token.get(), token, outcome)))
        }
        (To::Renew { token, lease_ms }, text) if is_usual_renewal(text) => {
            let outcome = Outcome::Renewed { left_us: lease_ms * 1000 };
            Some(Said::Answer(quiet(number(&text[1..])?, token, outcome)))
        }
        (To::Release { last }, "RELEASED") => Some(Said::Answer(quiet(0, last, Outcome::Released))),
        _ => words(text).or_else(|| is_begun(text).then_some(Said::Damaged)),
    }
}

/// A letter and a time, all of it, so that it is no other answer nor a piece of one.
fn is_usual_renewal(text: &str) -> bool {
    text.len() == 17 && text.starts_with('R') && text.bytes().skip(1).all(|byte| byte.is_ascii_digit())
}

/// Whether a script of ours began this sentence: with a word and the server's time, which it reads from no record.
fn is_begun(text: &str) -> bool {
    let mut words = Words(text.splitn(3, ' '));
    let begins = words.next().is_some_and(|word| Family::Locks.reports(word));
    begins && words.number().is_some() && words.next().is_some()
}

fn quiet(now_us: u64, highest: Token, outcome: Outcome) -> Answer {
    Answer { now_us, highest, contention: Contention::None, rest: Rest::Done, handed_claim_ms: None, outcome }
}

fn words(text: &str) -> Option<Said> {
    let (word, rest) = text.split_once(' ')?;
    match word {
        "FOREIGN" => return Some(Said::Foreign(rest.to_owned())),
        "NEWER" => return Some(Said::Newer(rest.to_owned())),
        "ERROR" => return Some(Said::Error(rest.to_owned())),
        _ => {}
    }
    let mut words = Words(rest.splitn(usize::MAX, ' '));
    let now_us = words.number()?;
    let highest = words.token()?;
    let contention = words.contention()?;
    let rest = words.rest()?;
    let handed_claim_ms = match words.next()? {
        "-" => None,
        claim => Some(number(claim)?),
    };
    let outcome = match word {
        "GRANTED" => {
            let (token, range) = (words.token()?, words.range()?);
            Outcome::Granted { token, range, left_us: words.left(now_us)? }
        }
        "QUEUED" => Outcome::Queued { ticket: words.number()?, left_us: words.left(now_us)?, joined: words.joined()? },
        "BUSY" => Outcome::Busy { left_us: words.left(now_us)? },
        "GONE" => Outcome::Gone,
        "LATE" => Outcome::Late,
        "FULL" => Outcome::Full,
        "RENEWED" => Outcome::Renewed { left_us: words.left(now_us)? },
        "RESERVED" => Outcome::Reserved { range: words.range()? },
        "LOST" => Outcome::Lost { how: words.how()? },
        "RELEASED" => Outcome::Released,
        "NOTHELD" => Outcome::NotHeld,
        "LEFT" => Outcome::Left { was: words.was()? },
        "REVOKING" => Outcome::Revoking { left_us: words.left(now_us)? },
        "SETTLED" => Outcome::Settled,
        "INSPECTED" => Outcome::Inspected(words.inspection(now_us, highest)?),
        _ => return None,
    };
    words.end()?;
    Some(Said::Answer(Answer { now_us, highest, contention, rest, handed_claim_ms, outcome }))
}

/// A message to an inbox; `None` for garbage.
pub(super) fn delivery(keys: &Keys, to: SessionId, text: &str) -> Option<(Name, Delivery)> {
    // The key comes last: a name may have spaces in it.
    let mut words = Words(text.splitn(10, ' '));
    if words.next()? != "lh1" {
        return None;
    }
    let event = match words.next()? {
        "G" => Event::Granted,
        "R" => Event::Revoked,
        "W" => Event::Wanted,
        "E" => Event::Ending,
        _ => return None,
    };
    let id = GrantId::from_str(words.next()?).ok().filter(|id| id.session == to)?;
    let token = words.token()?;
    let left_us = words.number()?;
    let now_us = words.number()?;
    let contention = words.contention()?;
    let rest = words.rest()?;
    let range = words.range()?;
    let name = keys.name(words.next()?)?;
    Some((name, Delivery { to, now_us, contention, rest, id, token, left_us, range, event }))
}

struct Words<'a>(SplitN<'a, char>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn end(mut self) -> Option<()> {
        self.next().is_none().then_some(())
    }

    fn number(&mut self) -> Option<u64> {
        number(self.next()?)
    }

    fn token(&mut self) -> Option<Token> {
        token(self.next()?)
    }

    /// Every grant has a token.
    fn range(&mut self) -> Option<u64> {
        self.number().filter(|range| (1..=RANGE_END).contains(range))
    }

    /// A lease, as since when and for how long: what is left of it at the server's now. The script would have to format
    /// a number for that. One that begins in the future, because the server's clock was set back, has its length left.
    fn left(&mut self, now_us: u64) -> Option<u64> {
        let (since_us, length_ms) = (self.number()?, self.number()?);
        let length_us = length_ms.checked_mul(1000)?;
        Some(since_us.checked_add(length_us)?.saturating_sub(now_us).min(length_us))
    }

    fn contention(&mut self) -> Option<Contention> {
        match self.next()? {
            "N" => Some(Contention::None),
            "O" => Some(Contention::Others),
            "S" => Some(Contention::Strict),
            _ => None,
        }
    }

    fn rest(&mut self) -> Option<Rest> {
        match self.next()? {
            "D" => Some(Rest::Done),
            "M" => Some(Rest::More),
            _ => None,
        }
    }

    fn how(&mut self) -> Option<LostHow> {
        match self.next()? {
            "revoked" => Some(LostHow::Revoked),
            "notheld" => Some(LostHow::NotHeld),
            _ => None,
        }
    }

    fn joined(&mut self) -> Option<Joined> {
        match self.next()? {
            "now" => Some(Joined::Now),
            "before" => Some(Joined::Before),
            _ => None,
        }
    }

    fn was(&mut self) -> Option<Was> {
        match self.next()? {
            "queued" => Some(Was::Queued),
            "granted" => Some(Was::Granted),
            "absent" => Some(Was::Absent),
            _ => None,
        }
    }

    fn inspection(&mut self, now_us: u64, token: Token) -> Option<Inspection> {
        let waiters = self.number()?;
        let mut held = self.0.clone().peekable();
        if held.peek().is_none() {
            return Some(Inspection { holder: None, waiters });
        }
        let left_us = self.left(now_us)?;
        let state = match self.next()? {
            "H" => GrantState::Held,
            "P" => GrantState::Pushed,
            "R" => GrantState::Revoked,
            "C" => GrantState::CoolingDown,
            _ => return None,
        };
        let id = self.next().filter(|id| id.len() == 48 && id.is_ascii())?;
        let session = SessionId(u128::from_str_radix(&id[..32], 16).ok()?);
        let id = PublicId { session, counter: u64::from_str_radix(&id[32..], 16).ok()? };
        // The label comes last: it may have spaces in it.
        let mut label = self.next()?.to_owned();
        while let Some(more) = self.next() {
            label.push(' ');
            label.push_str(more);
        }
        Some(Inspection { holder: Some(Holder { id, token, left_us, label, state }), waiters })
    }
}

pub(super) fn number(digits: &str) -> Option<u64> {
    // `parse` alone would take a sign.
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

pub(super) fn token(digits: &str) -> Option<Token> {
    Token::new(number(digits)?)
}
