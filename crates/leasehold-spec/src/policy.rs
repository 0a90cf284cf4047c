//! The meaning of each kind. Nothing else in a step asks for the kind.

use crate::id::Token;
use crate::resource::Resource;
use crate::take::{Kind, Take};

/// Whether units of the name are free. If none are, a step does not look at its waiters.
pub(crate) fn has_room(resource: &Resource) -> bool {
    resource.grants.units() < resource.limit
}

/// Whether this many units are free.
pub(crate) fn fits(resource: &Resource, units: u32) -> bool {
    resource.grants.units().saturating_add(units) <= resource.limit
}

/// Gives a name that has no record its kind and its limit.
pub(crate) fn begin(resource: &mut Resource, take: &Take) {
    if resource.last == Token::NONE {
        (resource.kind, resource.limit) = (take.kind, take.limit);
    }
}

/// Returns the highest token once a lease has ended without a request, with `reserved` as its last token.
pub(crate) fn burn(resource: &Resource, reserved: Token) -> Token {
    match resource.kind {
        Kind::Mutex => reserved.max(resource.last),
    }
}
