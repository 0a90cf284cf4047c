//! What a node's scripts answer, and what it says in an inbox. Words, and nothing else is believed: see `redis/reply.rs`.

use std::str::FromStr;

use leasehold_spec::limits::RANGE_END;
use leasehold_spec::node::{Abstention, Bell, Charter, Renewal, Request, Rings, Said, Vote};
use leasehold_spec::{
    Contention, From as Since, GrantId, GrantState, Holder, Inspection, LostHow, Name, PublicId, SessionId, Token, Was,
};

use crate::store::redis::keys::Keys;
use crate::store::redis::reply::{number, token};
use crate::store::redis::scripts::Family;

/// What a script said.
#[derive(Debug)]
pub(in crate::store::redis) enum Answer {
    Vote(Vote),
    Abstains(Abstention),
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
pub(in crate::store::redis) enum To {
    Ask {
        token: Token,
        range: u64,
        lease_ms: u64,
    },
    /// From now on.
    Renew {
        lease_ms: u64,
    },
    GiveBack,
    Other,
}

impl From<&Request> for To {
    fn from(request: &Request) -> Self {
        match request {
            Request::Ask(ask) => {
                Self::Ask { token: ask.token, range: ask.range.clamp(1, RANGE_END), lease_ms: ask.lease_ms }
            }
            Request::Renew(renewal) => Self::from(renewal),
            Request::GiveBack { .. } | Request::CoolDown { .. } => Self::GiveBack,
            Request::Revoke { .. } | Request::Settle | Request::Inspect => Self::Other,
        }
    }
}

impl From<&Renewal> for To {
    fn from(renewal: &Renewal) -> Self {
        match renewal.from {
            Since::Now => Self::Renew { lease_ms: renewal.lease_ms },
            Since::Grant => Self::Other,
        }
    }
}

/// The answer to one request; `None` for garbage.
pub(in crate::store::redis) fn parse(to: To, text: &str) -> Option<Answer> {
    let quiet = |now_us, highest, said| {
        Some(Answer::Vote(Vote { now_us, highest, contention: Contention::None, has_called: false, said }))
    };
    // The answers of an uncontended name have no words to spare. All of one, so that it is no piece of another.
    match (to, text.as_bytes().first(), text.len()) {
        (To::Ask { token, range, lease_ms }, Some(b'G'), 17) => {
            let granted = Said::Granted { token, range, left_us: lease_ms * 1000 };
            quiet(number(text.get(1..)?)?, Token::new(token.get() + range - 1)?, granted)
        }
        (To::Renew { lease_ms }, Some(b'R'), 33) => {
            let (now_us, highest) = clock_and_highest(text)?;
            quiet(now_us, highest, Said::Renewed { left_us: lease_ms * 1000 })
        }
        (To::GiveBack, Some(b'B'), 33) => {
            let (now_us, highest) = clock_and_highest(text)?;
            quiet(now_us, highest, Said::GivenBack { was: Was::Granted })
        }
        _ => words(text).or_else(|| is_begun(text).then_some(Answer::Damaged)),
    }
}

fn clock_and_highest(text: &str) -> Option<(u64, Token)> {
    Some((number(text.get(1..17)?)?, token(text.get(17..)?)?))
}

/// Whether a script of ours began this sentence: with a word and the server's time, which it reads from no record.
fn is_begun(text: &str) -> bool {
    let mut words = Words(text);
    let begins = words.next().is_some_and(|word| Family::Node.reports(word));
    begins && words.number().is_some() && !words.0.is_empty()
}

/// That the node has no vote, said of one name or of all that were asked about.
pub(super) fn abstention(text: &str) -> Option<Abstention> {
    let mut words = Words(text);
    let word = words.next()?;
    let now_us = words.number()?;
    let abstention = match word {
        "UNMARKED" => Abstention::Unmarked,
        "RESTING" => Abstention::Resting { left_us: words.number()?.checked_sub(now_us)? },
        _ => return None,
    };
    words.end()?;
    Some(abstention)
}

fn words(text: &str) -> Option<Answer> {
    if let Some(abstention) = abstention(text) {
        return Some(Answer::Abstains(abstention));
    }
    let (word, rest) = text.split_once(' ')?;
    match word {
        "FOREIGN" => return Some(Answer::Foreign(rest.to_owned())),
        "NEWER" => return Some(Answer::Newer(rest.to_owned())),
        "ERROR" => return Some(Answer::Error(rest.to_owned())),
        _ => {}
    }
    let mut words = Words(rest);
    let now_us = words.number()?;
    let highest = words.token()?;
    let contention = words.contention()?;
    let has_called = match words.next()? {
        "C" => true,
        "-" => false,
        _ => return None,
    };
    let said = match word {
        "GRANTED" => {
            let (token, range) = (words.token()?, words.number()?);
            Said::Granted { token, range, left_us: words.left(now_us)? }
        }
        "REFUSED" => {
            let holder = match words.next()? {
                "-" => None,
                id => Some(public_id(id)?),
            };
            Said::Refused { holder, left_us: words.left(now_us)? }
        }
        "BELOW" => Said::Below,
        "FAR" => Said::Far,
        "LATE" => Said::Late,
        "FULL" => Said::Full,
        "RENEWED" => Said::Renewed { left_us: words.left(now_us)? },
        "FILLED" => Said::Filled { left_us: words.left(now_us)? },
        "LOST" => Said::Lost {
            how: match words.next()? {
                "revoked" => LostHow::Revoked,
                "notheld" => LostHow::NotHeld,
                _ => return None,
            },
        },
        "GIVEN" => Said::GivenBack {
            was: match words.next()? {
                "granted" => Was::Granted,
                "queued" => Was::Queued,
                "absent" => Was::Absent,
                _ => return None,
            },
        },
        "REVOKING" => Said::Revoking { left_us: words.number()? },
        "NOTHELD" => Said::NotHeld,
        "SETTLED" => Said::Settled,
        "INSPECTED" => Said::Inspected(words.inspection(now_us)?),
        _ => return None,
    };
    words.end()?;
    Some(Answer::Vote(Vote { now_us, highest, contention, has_called, said }))
}

/// A message to an inbox; `None` for garbage.
pub(in crate::store::redis) fn bell(keys: &Keys, to: SessionId, text: &str) -> Option<(Name, Bell)> {
    let mut words = Words(text);
    if words.next()? != "lq1" {
        return None;
    }
    let event = words.next()?;
    let id = GrantId::from_str(words.next()?).ok().filter(|id| id.session == to)?;
    let highest = words.token()?;
    let now_us = words.number()?;
    let contention = words.contention()?;
    let (of, left) = (words.next()?, words.next()?);
    let rings = match (event, of, left) {
        ("C", "-", "-") => Rings::Call,
        ("W", of, "-") => Rings::Wanted { token: token(of)? },
        ("R", of, left) => Rings::Revoked { token: token(of)?, left_us: number(left)? },
        ("E", of, left) => Rings::Ending { token: token(of)?, left_us: number(left)? },
        _ => return None,
    };
    // The key comes last: a name may have spaces in it.
    let name = keys.name(words.0)?;
    Some((name, Bell { to, now_us, highest, contention, id, rings }))
}

/// What a node says when it is greeted.
#[derive(Debug)]
pub(in crate::store::redis) enum Greeting {
    /// This is its marker now.
    Marked(String),
    /// It belongs to a quorum with another charter.
    Unlike(Charter),
    /// Another marker is there than the one that was to be.
    Changed,
    Foreign(String),
    Newer(String),
}

/// The answer to a greeting; `None` for garbage.
pub(in crate::store::redis) fn greeting(text: &str, run: &str) -> Option<Greeting> {
    let mut words = Words(text);
    match words.next()? {
        "FOREIGN" => Some(Greeting::Foreign(words.0.to_owned())),
        "NEWER" => Some(Greeting::Newer(words.0.to_owned())),
        "MARKED" => {
            words.number()?;
            is_of(words.0, run).then(|| Greeting::Marked(words.0.to_owned()))
        }
        "CHANGED" => {
            words.number()?;
            words.end()?;
            Some(Greeting::Changed)
        }
        "UNLIKE" => {
            words.number()?;
            let (nodes, max_lease_ms) = words.0.split_at_checked(4)?;
            let charter = Charter { nodes: number(nodes)?.try_into().ok()?, max_lease_ms: number(max_lease_ms)? };
            Some(Greeting::Unlike(charter))
        }
        _ => None,
    }
}

/// Whether this is the marker of this run.
pub(super) fn is_of(marker: &str, run: &str) -> bool {
    marker.starts_with("lq1m") && marker.get(34..) == Some(run)
}

/// Whether a marker shows that its node was in use before it was written.
pub(super) fn was_used(marker: &str) -> bool {
    marker.get(33..34) == Some("U")
}

/// What stands where a marker is to be, and is none that this version knows; `None` for one that it knows.
pub(super) fn no_marker(text: &str) -> Option<Greeting> {
    let version: Option<&str> =
        text.strip_prefix("lq").and_then(|rest| rest.split_once('m')).map(|(version, _)| version);
    match version.filter(|version| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())) {
        Some("1") => None,
        Some(newer) => Some(Greeting::Newer(newer.to_owned())),
        None => Some(Greeting::Foreign("string".to_owned())),
    }
}

/// Until when a node rests that has this marker.
pub(in crate::store::redis) fn rests_until_us(marker: &str) -> Option<u64> {
    number(marker.get(4..20)?)
}

fn public_id(digits: &str) -> Option<PublicId> {
    let id = Some(digits).filter(|id| id.len() == 48 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let session = SessionId(u128::from_str_radix(&id[..32], 16).ok()?);
    Some(PublicId { session, counter: u64::from_str_radix(&id[32..], 16).ok()? })
}

/// What of a sentence is still to be read.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// `None` behind the last one.
    fn next(&mut self) -> Option<&'a str> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn number(&mut self) -> Option<u64> {
        number(self.next()?)
    }

    fn token(&mut self) -> Option<Token> {
        token(self.next()?)
    }

    /// A lease, as since when and for how long: what is left of it at the server's now. A call is told as one that ends
    /// then and is 0 long.
    fn left(&mut self, now_us: u64) -> Option<u64> {
        let (since_us, length_ms) = (self.number()?, self.number()?);
        Some(since_us.checked_add(length_ms.checked_mul(1000)?)?.saturating_sub(now_us))
    }

    fn contention(&mut self) -> Option<Contention> {
        match self.next()? {
            "N" => Some(Contention::None),
            "O" => Some(Contention::Others),
            "S" => Some(Contention::Strict),
            _ => None,
        }
    }

    fn inspection(&mut self, now_us: u64) -> Option<Inspection> {
        let waiters = self.number()?;
        if self.0.is_empty() {
            return Some(Inspection { holder: None, waiters });
        }
        let left_us = self.left(now_us)?;
        let state = match self.next()? {
            "H" => GrantState::Held,
            "R" => GrantState::Revoked,
            "C" => GrantState::CoolingDown,
            _ => return None,
        };
        let (token, id) = (self.token()?, public_id(self.next()?)?);
        // The label comes last: it may have spaces in it, or be none.
        let label = std::mem::take(&mut self.0).to_owned();
        Some(Inspection { holder: Some(Holder { id, token, left_us, label, state }), waiters })
    }
}
