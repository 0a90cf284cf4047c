//! The replies of the scripts of a node, and the messages that it publishes: see `words.rs`.

use std::str::FromStr;

use leasehold_spec::limits::RANGE_END;
use leasehold_spec::node::{Abstention, Bell, Charter, Renewal, Request, Rings, Said, Vote};
use leasehold_spec::{
    Contention, From as Since, GrantId, GrantState, Holder, Inspection, Name, SessionId, ShownMode, Token, Was,
};

use crate::store::redis::keys::Keys;
use crate::store::redis::layout::field;
use crate::store::redis::scripts::Family;
use crate::store::redis::words::{Reply, Words, is_begun, number, token};

/// A vote, or the reason why the node has none.
pub(in crate::store::redis) type Answer = Result<Vote, Abstention>;

/// The parts of a request that its short reply does not repeat.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) enum To {
    Ask {
        token: Token,
        range: u64,
        lease_ms: u64,
    },
    /// From the server's time on.
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
            Request::GiveBack { .. } | Request::Pause { .. } | Request::CoolDown { .. } => Self::GiveBack,
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

/// Reads the reply to one request. Returns `None` for garbage.
pub(in crate::store::redis) fn parse(to: To, text: &str) -> Option<Reply<Answer>> {
    let quiet = |now_us, highest, said| {
        Some(Reply::Sound(Ok(Vote { now_us, highest, contention: Contention::None, has_called: false, said })))
    };
    const SHORT: usize = field!(BRIEF.highest).offset;
    const LONG: usize = field!(BRIEF.highest).range().end;
    // The replies about an uncontended name have no words to spare. Their length shows that they are no piece of another.
    match (to, text.as_bytes().first(), text.len()) {
        (To::Ask { token, range, lease_ms }, Some(b'G'), SHORT) => {
            let granted = Said::Granted { token, range, left_us: lease_ms * 1000 };
            quiet(number(text.get(field!(BRIEF.now).range())?)?, Token::new(token.get() + range - 1)?, granted)
        }
        (To::Renew { lease_ms }, Some(b'R'), LONG) => {
            let (now_us, highest) = clock_and_highest(text)?;
            quiet(now_us, highest, Said::Renewed { left_us: lease_ms * 1000 })
        }
        (To::GiveBack, Some(b'B'), LONG) => {
            let (now_us, highest) = clock_and_highest(text)?;
            quiet(now_us, highest, Said::GivenBack { was: Was::Granted })
        }
        _ => Reply::refusal(text)
            .or_else(|| abstention(text).map(|abstention| Reply::Sound(Err(abstention))))
            .or_else(|| report(text).map(|vote| Reply::Sound(Ok(vote))))
            .or_else(|| is_begun(text, |word| Family::Node.reports(word)).then_some(Reply::Damaged)),
    }
}

fn clock_and_highest(text: &str) -> Option<(u64, Token)> {
    Some((number(text.get(field!(BRIEF.now).range())?)?, token(text.get(field!(BRIEF.highest).range())?)?))
}

/// Reads why the node has no vote: for one name, or for all of a batch.
pub(super) fn abstention(text: &str) -> Option<Abstention> {
    let mut words = Words::of(text);
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

fn report(text: &str) -> Option<Vote> {
    let mut words = Words::of(text);
    let word = words.next()?;
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
            Said::Granted { token, range, left_us: left(&mut words, now_us)? }
        }
        "REFUSED" => {
            // A dash stands for a holder if somebody is called.
            let holder = match words.next()? {
                "-" => None,
                id => Some(Words::of(id).public_id()?),
            };
            Said::Refused { holder, left_us: left(&mut words, now_us)? }
        }
        "BELOW" => Said::Below,
        "FAR" => Said::Far,
        "LATE" => Said::Late,
        "FULL" => Said::Full,
        "RENEWED" => Said::Renewed { left_us: left(&mut words, now_us)? },
        "FILLED" => Said::Filled { left_us: left(&mut words, now_us)? },
        "LOST" => Said::Lost { how: words.how()? },
        "GIVEN" => Said::GivenBack { was: words.was()? },
        "REVOKING" => Said::Revoking { left_us: words.number()? },
        "NOTHELD" => Said::NotHeld,
        "SETTLED" => Said::Settled,
        // A label ends the reply: it may have blanks in it.
        "INSPECTED" => {
            let said = Said::Inspected(inspection(words, now_us)?);
            return Some(Vote { now_us, highest, contention, has_called, said });
        }
        _ => return None,
    };
    words.end()?;
    Some(Vote { now_us, highest, contention, has_called, said })
}

fn inspection(mut words: Words<'_>, now_us: u64) -> Option<Inspection> {
    let waiters = words.number()?;
    if words.is_at_end() {
        return Some(Inspection::of_mutex(None, waiters));
    }
    let left_us = left(&mut words, now_us)?;
    let state = match words.next()? {
        "H" => GrantState::Held,
        "R" => GrantState::Revoked,
        "C" => GrantState::CoolingDown,
        _ => return None,
    };
    let (token, id, label) = (words.token()?, words.public_id()?, words.rest()?.to_owned());
    let holder = Holder { id, token, left_us, label, state, units: 1, mode: ShownMode::Plain };
    Some(Inspection::of_mutex(Some(holder), waiters))
}

/// Reads what is left of a lease. A call is written as one that ends then and has no length.
fn left(words: &mut Words<'_>, now_us: u64) -> Option<u64> {
    words.lease_us(now_us).map(|(left_us, _)| left_us)
}

/// Reads a message to an inbox. Returns `None` for garbage.
pub(in crate::store::redis) fn bell(keys: &Keys, to: SessionId, text: &str) -> Option<(Name, Bell)> {
    let mut words = Words::of(text);
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
    // The key comes last: a name may have blanks in it.
    let name = keys.name(words.rest()?)?;
    Some((name, Bell { to, now_us, highest, contention, id, rings }))
}

/// The reply of a node to a greeting.
#[derive(Debug)]
pub(in crate::store::redis) enum Greeting {
    /// This is its marker now.
    Marked(String),
    /// It belongs to a quorum with another charter.
    Unlike(Charter),
    /// The marker is not the expected one.
    Changed,
    Foreign(String),
    Newer(String),
}

/// Reads the reply to a greeting. Returns `None` for garbage.
pub(in crate::store::redis) fn greeting(text: &str, run: &str) -> Option<Greeting> {
    let mut words = Words::of(text);
    let word = words.next()?;
    if !matches!(word, "FOREIGN" | "NEWER") {
        words.number()?;
    }
    if word == "CHANGED" {
        words.end()?;
        return Some(Greeting::Changed);
    }
    let rest = words.rest()?;
    match word {
        "FOREIGN" => Some(Greeting::Foreign(rest.to_owned())),
        "NEWER" => Some(Greeting::Newer(rest.to_owned())),
        "MARKED" => is_of(rest, run).then(|| Greeting::Marked(rest.to_owned())),
        "UNLIKE" => {
            let (nodes, max_lease_ms) = rest.split_at_checked(field!(CHARTER.max_lease).offset)?;
            let charter = Charter { nodes: number(nodes)?.try_into().ok()?, max_lease_ms: number(max_lease_ms)? };
            Some(Greeting::Unlike(charter))
        }
        _ => None,
    }
}

/// Returns whether this is the marker of this run.
pub(super) fn is_of(marker: &str, run: &str) -> bool {
    marker.starts_with("lq1m") && marker.get(field!(MARKER.run).offset..) == Some(run)
}

/// Returns whether a marker shows that its node was in use before the marker was written.
pub(super) fn was_used(marker: &str) -> bool {
    marker.get(field!(MARKER.past).range()) == Some("U")
}

/// Returns why a text is no marker that this version knows. Returns `None` if it is one.
pub(super) fn no_marker(text: &str) -> Option<Greeting> {
    let version: Option<&str> =
        text.strip_prefix("lq").and_then(|rest| rest.split_once('m')).map(|(version, _)| version);
    match version.filter(|version| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())) {
        Some("1") => None,
        Some(newer) => Some(Greeting::Newer(newer.to_owned())),
        None => Some(Greeting::Foreign("string".to_owned())),
    }
}

/// Returns until when the node with this marker is in quarantine.
pub(in crate::store::redis) fn rests_until_us(marker: &str) -> Option<u64> {
    number(marker.get(field!(MARKER.rests).range())?)
}
