//! The identifiers of sessions and grants, and tokens.

use std::fmt;
use std::str::FromStr;

use crate::limits::{RANGE_END, TOKEN_END, TOKEN_LEAD_US};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};

/// A fencing token. Tokens strictly increase per name. Each grant has a new one, and a renewal keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token of a name that was never granted. It is below every other token.
    pub const NONE: Self = Self(0);
    /// The largest token. As a used token it means: up to the end of the range, as far as is known.
    pub const HIGHEST: Self = Self(TOKEN_END - 1);

    /// Returns the token with this number. Returns `None` for a number that no store grants (2^53 and above).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number < TOKEN_END { Some(Self(number)) } else { None }
    }

    /// Returns the number. It is below 2^53, so that Lua, JSON and JavaScript keep it exact.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the token that is `count` after this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }

    /// Returns the token of the next grant. It is the wall clock, so that tokens grow even if the record was forgotten
    /// or a failover lost its last change. It is at least one more than the last token, so that tokens grow even if the
    /// clock stepped back.
    #[must_use]
    pub(crate) fn next(self, wall_us: u64) -> Self {
        let clock_us = if is_on(Mutant::P3TokensOnlyCount) { 0 } else { wall_us };
        Self((self.0 + 1).max(clock_us))
    }
}

/// Returns the number of tokens that a grant may reserve of the number that it asks for: at least one, and no token
/// that is further ahead of the clock than [`TOKEN_LEAD_US`].
#[must_use]
pub(crate) fn allowed_range(asked: u64, token: Token, wall_us: u64) -> u64 {
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

/// The public ID of one client: 128 random bits. It names the inbox of the client. To know it gives no right.
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

/// The ID of one acquisition. Every request of an attempt has the same ID, so that a request whose reply was lost can
/// be sent again unchanged.
///
/// The nonce is the secret part: anyone who knows a whole grant ID can release the grant. `Debug` and `Display` never
/// show the nonce. [`GrantId::wire`] writes it for the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId {
    /// The session of the attempt.
    pub session: SessionId,
    /// The number of the attempt in that session.
    pub counter: u64,
    /// 64 random bits that no other client can guess.
    pub nonce: u64,
}

impl GrantId {
    /// Returns the whole ID as 64 hexadecimal digits, its public part first. Only the store may see it.
    #[must_use]
    pub fn wire(&self) -> String {
        format!("{}{:016x}", self.public().wire(), self.nonce)
    }

    /// Returns the part that anyone may see.
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

/// The public part of a grant ID. `inspect` shows it, and `revoke` names the grant by it and by the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicId {
    /// The session of the attempt.
    pub session: SessionId,
    /// The number of the attempt in that session.
    pub counter: u64,
}

impl PublicId {
    /// Returns the ID as 48 hexadecimal digits. On the wire, a grant ID begins with them.
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

/// The error for text that is not an ID in wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an ID: expected lower-case hexadecimal digits, 64 for a grant or 48 for its public part")
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

/// The numbers of hexadecimal digits of a session ID and of the public part of a grant ID.
const SESSION_DIGITS: usize = 32;
const PUBLIC_DIGITS: usize = 48;

/// Parses exactly sixteen lower-case digits. `from_str_radix` alone would accept a sign, and upper case.
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
    fn the_wire_form_parses_to_the_same_id() {
        let (session, counter, nonce) = (format!("{:032x}", 0xabc), format!("{:016x}", 7), format!("{:016x}", 0xdead));
        assert_eq!(ID.wire(), session + &counter + &nonce);
        assert_eq!(ID.wire().parse(), Ok(ID));
        assert_eq!(ID.public().wire().parse(), Ok(ID.public()));
        let largest = GrantId { session: SessionId(u128::MAX), counter: u64::MAX, nonce: u64::MAX };
        assert_eq!(largest.wire().parse(), Ok(largest));
    }

    #[test]
    fn text_that_is_not_an_id_is_refused() {
        for text in ["", "abc", &ID.wire()[1..], &ID.wire().to_uppercase(), &"+".repeat(64), &"é".repeat(32)] {
            assert_eq!(text.parse::<GrantId>(), Err(NotAnId), "{text}");
            assert_eq!(text.parse::<PublicId>(), Err(NotAnId), "{text}");
        }
        // A whole ID is not a public part, and a public part is not a whole ID.
        assert_eq!(ID.wire().parse::<PublicId>(), Err(NotAnId));
        assert_eq!(ID.public().wire().parse::<GrantId>(), Err(NotAnId));
        for at in 0..ID.wire().len() {
            let mut text = ID.wire();
            text.replace_range(at..=at, "+");
            assert_eq!(text.parse::<GrantId>(), Err(NotAnId), "{text}");
        }
    }

    #[test]
    fn debug_and_display_hide_the_nonce() {
        assert!(!format!("{ID:?}{}", ID.public()).contains("dead"));
    }

    #[test]
    fn tokens_follow_the_clock_and_never_fall() {
        assert_eq!(Token(5).next(100), Token(100));
        assert_eq!(Token(200).next(100), Token(201));
        assert_eq!(Token::new(TOKEN_END), None);
    }
}
