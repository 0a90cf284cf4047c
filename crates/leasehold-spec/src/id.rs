//! Who is who: sessions, grants and tokens.

use std::fmt;
use std::str::FromStr;

use crate::limits::{RANGE_END, TOKEN_END, TOKEN_LEAD_US};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};

/// A fencing token: strictly increasing per name, new with each grant, kept by renewals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token of a name that nobody was granted yet: below every other.
    pub const NONE: Self = Self(0);
    /// The largest there is: "up to the end of its range, for all that is known".
    pub const HIGHEST: Self = Self(TOKEN_END - 1);

    /// A token from its number; `None` for a number that no store hands out (2^53 and above).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number < TOKEN_END { Some(Self(number)) } else { None }
    }

    /// The number, below 2^53, so that Lua, JSON and JavaScript keep it exact.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token so many after this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }

    /// The token of the next grant: the wall clock, so that tokens grow although the record was forgotten or a failover
    /// lost its last change; one more than the last, so that they grow although the clock stepped back.
    #[must_use]
    pub(crate) fn next(self, wall_us: u64) -> Self {
        let clock_us = if is_on(Mutant::P3TokensOnlyCount) { 0 } else { wall_us };
        Self((self.0 + 1).max(clock_us))
    }
}

/// How many tokens a grant reserves of those that it asks for: one at least, and none that is further ahead of the clock
/// than [`TOKEN_LEAD_US`].
#[must_use]
pub(crate) fn range(asked: u64, token: Token, wall_us: u64) -> u64 {
    let lead_us = if is_on(Mutant::P19RunsAhead) { TOKEN_END } else { TOKEN_LEAD_US };
    let allowed = (wall_us + lead_us).saturating_sub(token.0).max(1);
    if asked > allowed {
        hit(Mark::RangeCut);
    }
    asked.clamp(1, allowed.min(RANGE_END))
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The public name of one client: 128 random bits. It names the client's inbox; knowing it gives no right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One acquisition. Every request of an attempt carries the same id, so that a request whose reply was lost is sent
/// again as it is.
///
/// The nonce is the secret part: who knows a whole grant id can release it. It never leaves `Debug` or `Display`;
/// [`GrantId::wire`] writes it where a store needs it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId {
    /// Whose attempt it is.
    pub session: SessionId,
    /// Which attempt of that session.
    pub counter: u64,
    /// 64 random bits that nobody else can guess.
    pub nonce: u64,
}

impl GrantId {
    /// The whole id as 64 hexadecimal digits, its public part first: for the store, and for nobody else.
    #[must_use]
    pub fn wire(&self) -> String {
        format!("{}{:016x}", self.public().wire(), self.nonce)
    }

    /// The part that anybody may see.
    #[must_use]
    pub const fn public(&self) -> PublicId {
        PublicId { session: self.session, counter: self.counter }
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantId({})", self.public())
    }
}

/// The public part of a grant id: what `inspect` shows, and what `revoke` names beside the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicId {
    /// The client.
    pub session: SessionId,
    /// Its attempt.
    pub counter: u64,
}

impl PublicId {
    /// The id as 48 hexadecimal digits: what a grant id begins with on the wire.
    #[must_use]
    pub fn wire(&self) -> String {
        format!("{:032x}{:016x}", self.session.0, self.counter)
    }
}

impl fmt::Debug for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicId({self})")
    }
}

impl fmt::Display for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.session, self.counter)
    }
}

/// Text that is not an id as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id: lower-case hexadecimal digits expected, 64 of a grant and 48 of its public part")
    }
}

impl std::error::Error for NotAnId {}

impl FromStr for GrantId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (public, nonce) = text.split_at_checked(PUBLIC_DIGITS).ok_or(NotAnId)?;
        let PublicId { session, counter } = public.parse()?;
        Ok(Self { session, counter, nonce: hex64(nonce)? })
    }
}

impl FromStr for PublicId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (session, counter) = text.split_at_checked(SESSION_DIGITS).ok_or(NotAnId)?;
        let (high, low) = session.split_at_checked(SESSION_DIGITS / 2).ok_or(NotAnId)?;
        let session = u128::from(hex64(high)?) << 64 | u128::from(hex64(low)?);
        Ok(Self { session: SessionId(session), counter: hex64(counter)? })
    }
}

/// Hexadecimal digits of a session, and of the public part of a grant id.
const SESSION_DIGITS: usize = 32;
const PUBLIC_DIGITS: usize = 48;

/// Sixteen digits and nothing else: `from_str_radix` alone would take a sign, and either case.
fn hex64(digits: &str) -> Result<u64, NotAnId> {
    let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    match digits.len() == 16 && digits.bytes().all(plain) {
        true => u64::from_str_radix(digits, 16).map_err(|_| NotAnId),
        false => Err(NotAnId),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: GrantId = GrantId { session: SessionId(0xabc), counter: 7, nonce: 0xdead };

    #[test]
    fn the_wire_form_comes_back() {
        let (session, counter, nonce) = (format!("{:032x}", 0xabc), format!("{:016x}", 7), format!("{:016x}", 0xdead));
        assert_eq!(ID.wire(), session + &counter + &nonce);
        assert_eq!(ID.wire().parse(), Ok(ID));
        assert_eq!(ID.public().wire().parse(), Ok(ID.public()));
        let largest = GrantId { session: SessionId(u128::MAX), counter: u64::MAX, nonce: u64::MAX };
        assert_eq!(largest.wire().parse(), Ok(largest));
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "abc", &ID.wire()[1..], &ID.wire().to_uppercase(), &"+".repeat(64), &"é".repeat(32)] {
            assert_eq!(text.parse::<GrantId>(), Err(NotAnId), "{text}");
            assert_eq!(text.parse::<PublicId>(), Err(NotAnId), "{text}");
        }
        // What is one of the two is not the other.
        assert_eq!(ID.wire().parse::<PublicId>(), Err(NotAnId));
        assert_eq!(ID.public().wire().parse::<GrantId>(), Err(NotAnId));
        for at in 0..ID.wire().len() {
            let mut text = ID.wire();
            text.replace_range(at..=at, "+");
            assert_eq!(text.parse::<GrantId>(), Err(NotAnId), "{text}");
        }
    }

    #[test]
    fn the_secret_part_is_not_shown() {
        assert!(!format!("{ID:?}{}", ID.public()).contains("dead"));
    }

    #[test]
    fn tokens_follow_the_clock_and_never_fall() {
        assert_eq!(Token(5).next(100), Token(100));
        assert_eq!(Token(200).next(100), Token(201));
        assert_eq!(Token::new(TOKEN_END), None);
    }
}
