//! The grants of one name.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use crate::grant::Grant;
use crate::id::{GrantId, PublicId, Token};
use crate::take::Mode;

/// The grants of one name, found by their ID and by their end in O(log n). A mutex has at most one: the *sole* grant.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    by_id: BTreeMap<GrantId, Grant>,
    by_end: BTreeSet<(u64, GrantId)>,
    /// The units of all grants, those of [`Unread`] included.
    units: u32,
    upgradeable: Option<GrantId>,
    /// No lease begins after this time.
    newest_us: u64,
    unread: Unread,
}

/// The grants of a pool that a store has not read for a step.
///
/// A store whose records are rows reads only those of ten thousand grants that the step can ask for or change:
///
/// - the grant of each ID that the request, or an upgrade that waits, names;
/// - each grant whose lease has ended;
/// - the grant that may be upgraded;
/// - if somebody waits: of the grants that are revoked or cool down, those that end first, until one of them is not
///   changed by the step.
///
/// For an inspection it reads the grants with the smallest tokens whose leases have not ended. All other grants are a
/// number, their units, and a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// The number of grants.
    pub count: usize,
    /// The number of their units.
    pub units: u32,
    /// The time at which the first of their leases ends. Each of them begins in the past.
    pub first_end_us: Option<u64>,
}

impl Grants {
    /// Adds grants that were not read. The caller has read the others, and checked that the units are at most `u32::MAX`.
    #[must_use]
    pub fn with_unread(mut self, unread: Unread) -> Self {
        self.units += unread.units;
        Self { unread, ..self }
    }

    /// Returns the grants that were not read.
    pub(crate) const fn unread(&self) -> Unread {
        self.unread
    }

    /// Returns the grant of a mutex, if it has one.
    #[must_use]
    pub fn sole(&self) -> Option<&Grant> {
        self.by_id.values().next()
    }

    /// Removes the grant of a mutex if `ends` says so, and returns it.
    pub fn take_sole_if(&mut self, ends: impl FnOnce(&Grant) -> bool) -> Option<Grant> {
        let id = self.sole().filter(|grant| ends(grant))?.id;
        self.take(id)
    }

    /// Whether the name has no grant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of grants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len() + self.unread.count
    }

    /// Returns the grants that were read, in the order of their IDs.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.by_id.values()
    }

    /// Returns the grant with this ID.
    #[must_use]
    pub fn get(&self, id: GrantId) -> Option<&Grant> {
        self.by_id.get(&id)
    }

    /// Returns the ID of the grant with this public ID.
    pub(crate) fn named(&self, holder: PublicId) -> Option<GrantId> {
        let PublicId { session, counter } = holder;
        let first = GrantId { session, counter, nonce: 0 };
        self.by_id.range(first..).next().map(|(id, _)| *id).filter(|id| id.public() == holder)
    }

    /// Returns the number of units that are granted.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// Whether one of the grants may be upgraded.
    #[must_use]
    pub const fn has_upgradeable(&self) -> bool {
        self.upgradeable.is_some()
    }

    /// Returns the highest token that is reserved for a grant beyond those that were granted. Only a sole grant reserves
    /// such tokens (P32).
    pub(crate) fn reserved(&self) -> Option<Token> {
        self.sole().map(Grant::reserved)
    }

    /// Returns the time at which the first lease ends.
    #[must_use]
    pub fn first_end_us(&self) -> Option<u64> {
        let read = self.by_end.first().map(|(end_us, _)| *end_us);
        read.into_iter().chain(self.unread.first_end_us).min()
    }

    /// Returns the time that is left until the first grant ends: 0 without a grant.
    pub(crate) fn first_left_us(&self, now_us: u64) -> u64 {
        let first = self.by_end.first().and_then(|(_, id)| self.get(*id));
        let read = first.map(|grant| (grant.end_us(), grant.left_us(now_us)));
        let unread = self.unread.first_end_us.map(|end_us| (end_us, end_us.saturating_sub(now_us)));
        read.into_iter().chain(unread).min().map_or(0, |(_, left_us)| left_us)
    }

    /// Whether a lease begins after `now_us`, because the clock was set back.
    pub(crate) const fn may_begin_after(&self, now_us: u64) -> bool {
        self.newest_us > now_us
    }

    /// Returns the grants that begin after `now_us`.
    pub(crate) fn begun_after(&self, now_us: u64) -> Vec<GrantId> {
        self.iter().filter(|grant| grant.since_us > now_us).map(|grant| grant.id).collect()
    }

    /// Notes that no lease begins after `now_us` any more.
    pub(crate) fn none_begins_after(&mut self, now_us: u64) {
        self.newest_us = self.newest_us.min(now_us);
    }

    /// Adds a grant.
    pub fn add(&mut self, grant: Grant) {
        self.by_end.insert((grant.end_us(), grant.id));
        self.units += grant.units;
        self.newest_us = self.newest_us.max(grant.since_us);
        if grant.mode == Mode::Upgradeable {
            self.upgradeable = Some(grant.id);
        }
        self.by_id.insert(grant.id, grant);
    }

    /// Changes the grant with this ID, and returns the result of the change.
    pub(crate) fn change<T>(&mut self, id: GrantId, change: impl FnOnce(&mut Grant) -> T) -> Option<T> {
        let grant = self.by_id.get_mut(&id)?;
        let (end_us, units) = (grant.end_us(), grant.units);
        let result = change(grant);
        if grant.end_us() != end_us {
            self.by_end.remove(&(end_us, id));
            self.by_end.insert((grant.end_us(), id));
        }
        self.units = self.units - units + grant.units;
        self.newest_us = self.newest_us.max(grant.since_us);
        if grant.mode != Mode::Upgradeable {
            self.upgradeable = self.upgradeable.filter(|upgradeable| *upgradeable != id);
        }
        Some(result)
    }

    /// Removes the grant with this ID, and returns it.
    pub(crate) fn take(&mut self, id: GrantId) -> Option<Grant> {
        let grant = self.by_id.remove(&id)?;
        self.by_end.remove(&(grant.end_us(), id));
        self.units -= grant.units;
        self.upgradeable = self.upgradeable.filter(|upgradeable| *upgradeable != id);
        Some(grant)
    }

    /// Removes the grant that ended first, if its time is over, and returns it.
    pub(crate) fn take_ended(&mut self, now_us: u64) -> Option<Grant> {
        let (_, id) = *self.by_end.first().filter(|(end_us, _)| *end_us <= now_us)?;
        self.take(id)
    }
}

impl From<Option<Grant>> for Grants {
    fn from(sole: Option<Grant>) -> Self {
        sole.into_iter().collect()
    }
}

impl FromIterator<Grant> for Grants {
    fn from_iter<I: IntoIterator<Item = Grant>>(grants: I) -> Self {
        let mut all = Self::default();
        for grant in grants {
            all.add(grant);
        }
        all
    }
}

// The other fields follow from the grants, or are bounds.
impl PartialEq for Grants {
    fn eq(&self, other: &Self) -> bool {
        self.by_id == other.by_id && self.unread == other.unread
    }
}

impl Eq for Grants {}

impl Hash for Grants {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.by_id.hash(state);
    }
}
