//! The content of a row of `names`.

use leasehold_spec::{Grant, GrantId, Resource, Token};

use super::pool::Pool;

/// The state of the row of a pool, where the row of a mutex has that of its grant. Earlier programs refuse it.
pub(super) const POOL: i64 = 4;

/// The content of a row of `names`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) last: Token,
    pub(super) keep_until_us: u64,
    pub(super) released: Option<GrantId>,
    pub(super) content: Content,
}

/// The grant of a mutex, if it has one; or a pool, whose grants have rows of their own.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Content {
    Mutex(Option<Grant>),
    Pool(Pool),
}

impl Plain {
    pub(super) fn of(resource: &Resource) -> Self {
        let Resource { last, keep_until_us, released, ref grants, .. } = *resource;
        let content = Pool::of(resource).map_or_else(|| Content::Mutex(grants.sole().cloned()), Content::Pool);
        Self { last, keep_until_us, released, content }
    }
}
