//! The values of a row, and the error of a row that makes no sense. A database can contain anything, so every value is
//! checked.

use leasehold_spec::limits::{LABEL_MAX, LEASE_MAX_MS, PERMITS_MAX};
use leasehold_spec::{GrantId, GrantState, Mode, SessionId, Token};
use rusqlite::{ErrorCode, Row};

/// An error of a record.
#[derive(Debug)]
pub(super) enum Bad {
    Sql(rusqlite::Error),
    Nonsense(String),
}

impl From<rusqlite::Error> for Bad {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
        match error {
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..) => {
                Self::Nonsense(error.to_string())
            }
            // The rows contradict each other, or those of another name.
            error if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Self::Nonsense(error.to_string())
            }
            error => Self::Sql(error),
        }
    }
}

pub(super) fn sane(is: bool, why: &str) -> Result<(), Bad> {
    if is { Ok(()) } else { Err(Bad::Nonsense(why.to_owned())) }
}

pub(super) fn unsigned(row: &Row<'_>, at: usize) -> Result<u64, Bad> {
    Ok(row.get::<_, i64>(at)?.cast_unsigned())
}

/// Checks a time, or a ticket, which is a time: sums of them must not overflow.
pub(super) fn time(row: &Row<'_>, at: usize) -> Result<u64, Bad> {
    let time = unsigned(row, at)?;
    sane(time < 1 << 62, "a time is out of range")?;
    Ok(time)
}

pub(super) fn length(row: &Row<'_>, at: usize) -> Result<u64, Bad> {
    let length_ms = unsigned(row, at)?;
    sane(length_ms <= LEASE_MAX_MS, "a lease is too long")?;
    Ok(length_ms)
}

pub(super) fn range(row: &Row<'_>, at: usize, end: u64) -> Result<u64, Bad> {
    let range = unsigned(row, at)?;
    sane((1..=end).contains(&range), "a range of tokens has no sensible length")?;
    Ok(range)
}

pub(super) fn flag(row: &Row<'_>, at: usize) -> Result<bool, Bad> {
    let flag: i64 = row.get(at)?;
    sane(flag == 0 || flag == 1, "a flag is neither on nor off")?;
    Ok(flag == 1)
}

pub(super) fn token(row: &Row<'_>, at: usize) -> Result<Token, Bad> {
    Token::new(unsigned(row, at)?).ok_or_else(|| Bad::Nonsense("a token is out of range".into()))
}

pub(super) fn label(row: &Row<'_>, at: usize) -> Result<String, Bad> {
    let label: String = row.get(at)?;
    sane(label.len() <= LABEL_MAX, "a label is too long")?;
    Ok(label)
}

/// Returns an ID as it is stored.
pub(super) fn id_cells(id: GrantId) -> ([u8; 16], i64, i64) {
    (id.session.0.to_be_bytes(), id.counter.cast_signed(), id.nonce.cast_signed())
}

pub(super) fn grant_id(row: &Row<'_>, at: usize) -> Result<GrantId, Bad> {
    Ok(GrantId { session: session(row, at)?, counter: unsigned(row, at + 1)?, nonce: unsigned(row, at + 2)? })
}

pub(super) fn bytes(id: GrantId) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&id.session.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&id.counter.to_be_bytes());
    bytes[24..].copy_from_slice(&id.nonce.to_be_bytes());
    bytes
}

pub(super) fn from_bytes(bytes: [u8; 32]) -> GrantId {
    let part = |range: std::ops::Range<usize>| u64::from_be_bytes(std::array::from_fn(|at| bytes[range.start + at]));
    let session = u128::from(part(0..8)) << 64 | u128::from(part(8..16));
    GrantId { session: SessionId(session), counter: part(16..24), nonce: part(24..32) }
}

pub(super) fn state_number(state: GrantState) -> i64 {
    match state {
        GrantState::Pushed => 0,
        GrantState::Held => 1,
        GrantState::Revoked => 2,
        GrantState::CoolingDown => 3,
    }
}

/// Reads the state of a grant.
pub(super) fn state(row: &Row<'_>, at: usize) -> Result<GrantState, Bad> {
    match row.get(at)? {
        0 => Ok(GrantState::Pushed),
        1 => Ok(GrantState::Held),
        2 => Ok(GrantState::Revoked),
        3 => Ok(GrantState::CoolingDown),
        other => Err(Bad::Nonsense(format!("a grant has the state {other}"))),
    }
}

/// Reads the units that a grant takes or a waiter asks for.
pub(super) fn units(row: &Row<'_>, at: usize) -> Result<u32, Bad> {
    let units = u32::try_from(unsigned(row, at)?).unwrap_or(u32::MAX);
    sane((1..=PERMITS_MAX).contains(&units), "a number of units is out of range")?;
    Ok(units)
}

/// Reads a mode: its number, and the grant that an upgrade replaces.
pub(super) fn mode(row: &Row<'_>, at: usize) -> Result<Mode, Bad> {
    match (row.get(at)?, row.get::<_, Option<[u8; 40]>>(at + 1)?) {
        (0, None) => Ok(Mode::Plain),
        (1, None) => Ok(Mode::Upgradeable),
        (2, Some(bytes)) => {
            let (id, token) = (std::array::from_fn(|at| bytes[at]), std::array::from_fn(|at| bytes[32 + at]));
            let token = Token::new(u64::from_be_bytes(token)).ok_or_else(|| Bad::Nonsense("no token".into()))?;
            Ok(Mode::Instead { id: from_bytes(id), token })
        }
        (other, _) => Err(Bad::Nonsense(format!("a grant or a waiter has the mode {other}"))),
    }
}

/// Returns a mode as [`mode`] reads it.
pub(super) fn mode_cells(mode: Mode) -> (i64, Option<[u8; 40]>) {
    match mode {
        Mode::Plain => (0, None),
        Mode::Upgradeable => (1, None),
        Mode::Instead { id, token } => {
            let mut replaced = [0; 40];
            replaced[..32].copy_from_slice(&bytes(id));
            replaced[32..].copy_from_slice(&token.get().to_be_bytes());
            (2, Some(replaced))
        }
    }
}

/// Reads the ID of a session.
pub(super) fn session(row: &Row<'_>, at: usize) -> Result<SessionId, Bad> {
    Ok(SessionId(u128::from_be_bytes(row.get(at)?)))
}
