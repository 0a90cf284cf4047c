//! The replies of the scripts of locks, and the messages that they publish.
//!
//! A reply is one string of words. The three replies of an uncontended lock have no words to spare: the client knows the
//! rest from its request.

use std::str::FromStr;

use leasehold_spec::limits::{RANGE_END, RANGE_MAX};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Event, From as Since, GrantId, Joined, Name, Op, Outcome, Refusal, Renew,
    Rest, SessionId, Token,
};

use super::inspection::inspection;
use super::keys::Keys;
use super::layout::field;
use super::pool::call::kind;
use super::pool::encoding::Encoding;
use super::scripts::Family;
use super::words::{Reply, Words, is_begun, number, token};

/// The parts of a request that its short reply does not repeat.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    Acquire {
        lease_ms: u64,
        range: u64,
    },
    Release {
        last: Token,
    },
    /// From the server's time on.
    Renew {
        token: Token,
        lease_ms: u64,
    },
    PoolRelease,
    /// From the server's time on.
    PoolRenew {
        lease_ms: u64,
    },
    Other,
}

impl To {
    /// Returns what the scripts of this encoding do not repeat of the request.
    pub(super) fn new(op: &Op, encoding: Encoding) -> Self {
        match (encoding, op) {
            (Encoding::Pool, Op::Release { .. }) => Self::PoolRelease,
            (Encoding::Pool, Op::Renew(renew)) => Self::renewal(renew, encoding),
            _ => Self::from(op),
        }
    }

    pub(super) fn renewal(renew: &Renew, encoding: Encoding) -> Self {
        match (encoding, renew.from) {
            (Encoding::Mutex, _) => Self::from(renew),
            (Encoding::Pool, Since::Now) => Self::PoolRenew { lease_ms: renew.lease_ms },
            (Encoding::Pool, Since::Grant) => Self::Other,
        }
    }
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

/// Reads the reply to a request for several mutexes: an answer for each, or that there is none. Returns `None` for garbage.
#[expect(clippy::option_option, reason = "the outer one is garbage, as in the functions below")]
pub(super) fn of_all(members: &[(Name, Acquire)], text: &str) -> Option<Option<Vec<Answer>>> {
    if text == "BUSY" {
        return Some(None);
    }
    let token = token(text)?;
    let granted = |(_, acquire): &(Name, Acquire)| {
        let (left_us, range) = (acquire.lease_ms * 1000, acquire.range.clamp(1, RANGE_MAX));
        quiet(token.get(), token, Outcome::Granted { token, left_us, range })
    };
    Some(Some(members.iter().map(granted).collect()))
}

/// Reads the reply to many requests: the server's time, and the replies that are not the short ones, each with the number
/// of its request. Returns `None` for garbage.
pub(super) fn of_many(text: &str, requests: usize) -> Option<(u64, Vec<(usize, &str)>)> {
    let mut lines = text.split('\n');
    let now_us = lines.next().filter(|time| time.len() == field!(TIME.us).width).and_then(token)?.get();
    let mut others = Vec::new();
    for line in lines {
        let (at, reply) = line.split_at_checked(2)?;
        let at = usize::try_from(number(at)?).ok().filter(|at| (1..=requests).contains(at))?;
        if reply.is_empty() || others.last().is_some_and(|(before, _)| *before >= at) {
            return None;
        }
        others.push((at, reply));
    }
    Some((now_us, others))
}

/// Returns the answer that the short reply stands for, which the script of many requests does not repeat. `None` if the
/// request has none.
pub(super) fn short(to: To, now_us: u64) -> Option<Answer> {
    match to {
        To::Acquire { lease_ms, range } => {
            let token = Token::new(now_us)?;
            Some(quiet(now_us, token, Outcome::Granted { token, left_us: lease_ms * 1000, range }))
        }
        To::Release { last } => Some(quiet(0, last, Outcome::Released)),
        _ => None,
    }
}

/// Reads the reply to one request. Returns `None` for garbage.
pub(super) fn parse(to: To, text: &str) -> Option<Reply<Answer>> {
    match (to, text) {
        (To::Acquire { .. }, digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            short(to, token(digits)?.get()).map(Reply::Sound)
        }
        (To::Renew { token, lease_ms }, text) if is_usual_renewal(text) => {
            let outcome = Outcome::Renewed { left_us: lease_ms * 1000 };
            Some(Reply::Sound(quiet(number(&text[1..])?, token, outcome)))
        }
        (To::PoolRelease, text) if text.len() == field!(BRIEF.now).range().end && text.starts_with('B') => {
            Some(Reply::Sound(quiet(0, token(&text[1..])?, Outcome::Released)))
        }
        (To::PoolRenew { lease_ms }, text)
            if text.len() == field!(BRIEF.level).range().end && text.starts_with('R') =>
        {
            let (now_us, highest) =
                (number(text.get(field!(BRIEF.now).range())?)?, token(text.get(field!(BRIEF.highest).range())?)?);
            let contention = Words::of(text.get(field!(BRIEF.level).range())?).contention()?;
            let outcome = Outcome::Renewed { left_us: lease_ms * 1000 };
            Some(Reply::Sound(Answer { contention, ..quiet(now_us, highest, outcome) }))
        }
        (_, "OTHER") => Some(Reply::Other),
        (To::Release { .. }, "RELEASED") => short(to, 0).map(Reply::Sound),
        _ => Reply::refusal(text)
            .or_else(|| report(text).map(Reply::Sound))
            .or_else(|| is_begun(text, is_report).then_some(Reply::Damaged)),
    }
}

fn is_report(word: &str) -> bool {
    Family::Locks.reports(word) || Family::Pools.reports(word)
}

/// A letter and a time, and nothing else: it is no other reply, and no piece of one.
fn is_usual_renewal(text: &str) -> bool {
    text.len() == field!(BRIEF.highest).offset
        && text.starts_with('R')
        && text.bytes().skip(1).all(|byte| byte.is_ascii_digit())
}

fn quiet(now_us: u64, highest: Token, outcome: Outcome) -> Answer {
    Answer { now_us, highest, contention: Contention::None, rest: Rest::Done, handed_claim_ms: None, outcome }
}

fn report(text: &str) -> Option<Answer> {
    let mut words = Words::of(text);
    let word = words.next()?;
    let now_us = words.number()?;
    let highest = words.token()?;
    let contention = words.contention()?;
    let rest = rest(&mut words)?;
    let handed_claim_ms = match words.next()? {
        "-" => None,
        claim => Some(number(claim)?),
    };
    let outcome = match word {
        "GRANTED" => {
            let (token, range) = (words.token()?, range(&mut words)?);
            Outcome::Granted { token, range, left_us: left(&mut words, now_us)? }
        }
        "QUEUED" => Outcome::Queued {
            ticket: words.number()?,
            left_us: left(&mut words, now_us)?,
            joined: match words.next()? {
                "now" => Joined::Now,
                "before" => Joined::Before,
                _ => return None,
            },
        },
        "BUSY" => Outcome::Busy { left_us: left(&mut words, now_us)? },
        "GONE" => Outcome::Gone,
        "LATE" => Outcome::Late,
        "FULL" => Outcome::Full,
        "RENEWED" => Outcome::Renewed { left_us: left(&mut words, now_us)? },
        "RESERVED" => Outcome::Reserved { range: range(&mut words)? },
        "LOST" => Outcome::Lost { how: words.how()? },
        "RELEASED" => Outcome::Released,
        "NOTHELD" => Outcome::NotHeld,
        "LEFT" => Outcome::Left { was: words.was()? },
        "REVOKING" => Outcome::Revoking { left_us: left(&mut words, now_us)? },
        "SETTLED" => Outcome::Settled,
        "REFUSED" => Outcome::Refused(refusal(&mut words)?),
        "PUT" => Outcome::Put,
        "NOWAITER" => Outcome::NoWaiter,
        "NOTIFIED" => Outcome::Notified { count: small(&mut words)? },
        "SPENT" => Outcome::Spent,
        "COUNTED" => Outcome::Counted { left: small(&mut words)?, born: words.token()? },
        "DELETED" => Outcome::Deleted,
        "LOWERED" => Outcome::Lowered,
        "RESIZED" => Outcome::Resized,
        "INSPECTED" => {
            let outcome = Outcome::Inspected(inspection(words, now_us)?);
            return Some(Answer { now_us, highest, contention, rest, handed_claim_ms, outcome });
        }
        _ => return None,
    };
    words.end()?;
    Some(Answer { now_us, highest, contention, rest, handed_claim_ms, outcome })
}

fn small(words: &mut Words<'_>) -> Option<u32> {
    words.number()?.try_into().ok()
}

fn refusal(words: &mut Words<'_>) -> Option<Refusal> {
    let (why, kind, limit) = (words.next()?, kind(words.next()?)?, small(words)?);
    match why {
        "other" => Some(Refusal::Other { kind, limit }),
        "many" => Some(Refusal::TooMany { limit }),
        "grant" => Some(Refusal::NoGrant),
        "absent" => Some(Refusal::Absent),
        _ => None,
    }
}

/// Reads a message to an inbox. Returns `None` for garbage.
pub(super) fn delivery(keys: &Keys, to: SessionId, text: &str) -> Option<(Name, Delivery)> {
    let mut words = Words::of(text);
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
    let rest = rest(&mut words)?;
    let range = range(&mut words)?;
    // The key comes last: a name may have blanks in it.
    let name = keys.name(words.rest()?)?;
    Some((name, Delivery { to, now_us, contention, rest, id, token, left_us, range, event }))
}

/// Reads how many tokens a grant has: at least its own.
fn range(words: &mut Words<'_>) -> Option<u64> {
    words.number().filter(|range| (1..=RANGE_END).contains(range))
}

/// Reads what is left of a lease. If it begins in the future, because the server's clock was set back, its length is left.
fn left(words: &mut Words<'_>, now_us: u64) -> Option<u64> {
    words.lease_us(now_us).map(|(left_us, length_us)| left_us.min(length_us))
}

fn rest(words: &mut Words<'_>) -> Option<Rest> {
    match words.next()? {
        "D" => Some(Rest::Done),
        "M" => Some(Rest::More),
        _ => None,
    }
}
