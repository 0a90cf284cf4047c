//! The content of a row of `names`, and the error of a row that makes no sense.

use leasehold_spec::{Grant, GrantId, Resource, Token};

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
            error => Self::Sql(error),
        }
    }
}

/// The content of a row of `names`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) last: Token,
    pub(super) keep_until_us: u64,
    pub(super) released: Option<GrantId>,
    pub(super) grant: Option<Grant>,
}

impl Plain {
    pub(super) fn of(resource: &Resource) -> Self {
        let Resource { last, keep_until_us, released, grants, .. } = resource;
        Self { last: *last, keep_until_us: *keep_until_us, released: *released, grant: grants.sole().cloned() }
    }
}
