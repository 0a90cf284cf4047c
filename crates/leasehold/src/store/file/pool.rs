//! The rows of a pool: its row in `pools`, and the rows of its grants.
//!
//! A pool has up to 100,000 grants, and other processes change it all the time. To read all of them would take much
//! longer than the step itself, in a turn (P27). So a step works on the part that it can ask for or change: [`Unread`]
//! says which grants these are. Each is found by an index.

use std::collections::BTreeMap;

use leasehold_spec::limits::{PERMITS_MAX, SHOWN_MAX};
use leasehold_spec::{Grant, GrantId, Grants, Kind, Mode, PublicId, Resource, SessionId, Unread};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::cells::{
    Bad, grant_id, label, length, mode, mode_cells, sane, state, state_number, time, token, units, unsigned,
};
use super::latches;

/// A row of `pools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) kind: Kind,
    /// The number of units.
    pub(super) limit: u32,
    /// The units that are granted, and the number of grants.
    pub(super) taken: u32,
    pub(super) granted: usize,
}

impl Pool {
    /// Returns the pool that this record is, if it is one.
    pub(super) fn of(resource: &Resource) -> Option<Self> {
        let Resource { kind, limit, ref grants, .. } = *resource;
        kind.is_pool().then(|| Self { kind, limit, taken: grants.units(), granted: grants.len() })
    }

    pub(super) fn read(db: &Connection, name: i64) -> Result<Self, Bad> {
        let mut statement = db.prepare_cached("SELECT kind, units, taken, granted FROM pools WHERE name = ?1")?;
        let read = |row: &Row<'_>| {
            let number = |at| Ok::<_, rusqlite::Error>(u32::try_from(row.get::<_, i64>(at)?).unwrap_or(u32::MAX));
            Ok((row.get::<_, i64>(0)?, number(1)?, number(2)?, number(3)?))
        };
        let Some((kind, limit, taken, granted)) = statement.query_row([name], read).optional()? else {
            return Err(Bad::Nonsense("a pool has no row".into()));
        };
        let kind = match kind {
            1 => Kind::ReadWrite,
            2 => Kind::Semaphore,
            3 => Kind::Condition,
            4 => Kind::Latch,
            5 => Kind::Barrier,
            other => return Err(Bad::Nonsense(format!("a pool has the kind {other}"))),
        };
        let least = if kind.has_holders() { 1 } else { 0 };
        sane((least..=PERMITS_MAX).contains(&limit), "a number of units is out of range")?;
        // The units of a grant of a barrier are the place of an arrival, so their sum says nothing.
        sane(taken <= PERMITS_MAX || kind == Kind::Barrier, "too many units are taken")?;
        Ok(Self { kind, limit, taken, granted: granted as usize })
    }

    pub(super) fn save(&self, db: &Connection, name: i64) -> Result<(), Bad> {
        let kind = match self.kind {
            Kind::Mutex => return Ok(()),
            Kind::ReadWrite => 1,
            Kind::Semaphore => 2,
            Kind::Condition => 3,
            Kind::Latch => 4,
            Kind::Barrier => 5,
        };
        let sql = "INSERT OR REPLACE INTO pools VALUES (?1, ?2, ?3, ?4, ?5)";
        db.prepare_cached(sql)?.execute(params![name, kind, self.limit, self.taken, self.granted as i64])?;
        Ok(())
    }
}

/// Removes the rows of a pool that was forgotten.
pub(super) fn forget(db: &Connection, name: i64) -> Result<(), Bad> {
    db.prepare_cached("DELETE FROM pools WHERE name = ?1")?.execute([name])?;
    db.prepare_cached("DELETE FROM grants WHERE name = ?1")?.execute([name])?;
    latches::forget(db, name)
}

/// The part of a pool that was read for a step.
pub(super) struct Part<'a> {
    db: &'a Connection,
    pub(super) name: i64,
    pub(super) pool: Pool,
    read: BTreeMap<GrantId, Grant>,
}

/// The columns of a grant in the order in which [`grant`] reads them. A query with more columns adds them after these.
macro_rules! columns {
    ($of: literal) => {
        concat!(
            $of,
            ".token, ",
            $of,
            ".session, ",
            $of,
            ".counter, ",
            $of,
            ".nonce, ",
            $of,
            ".since_us, ",
            $of,
            ".length_ms, ",
            $of,
            ".end_us, ",
            $of,
            ".state, ",
            $of,
            ".units, ",
            $of,
            ".mode, ",
            $of,
            ".instead, ",
            $of,
            ".label"
        )
    };
}
pub(super) use columns;
/// Their number.
pub(super) const COLUMNS: usize = 12;

/// A statement names the index that it uses: without statistics of the tables, SQLite chooses to read all grants of a name.
macro_rules! select {
    ($from: literal, $where: literal) => {
        concat!("SELECT ", columns!("grants"), " FROM ", $from, " WHERE name = ?1 AND ", $where)
    };
}

const NAMED: &str = select!("grants INDEXED BY grants_of", "session = ?2 AND counter = ?3");
const UPGRADEABLE: &str = select!("grants INDEXED BY grants_upgradeable", "mode = 1");
const BY_END: &str = select!("grants INDEXED BY grants_by_end", "end_us > ?2 ORDER BY end_us");
const COUNT_ENDED: &str =
    "SELECT count(*), total(units) FROM grants INDEXED BY grants_by_end WHERE name = ?1 AND end_us <= ?2";
const ENDED: &str = select!("grants INDEXED BY grants_by_end", "end_us <= ?2");
const ENDING: &str = select!("grants INDEXED BY grants_ending", "state IN (2, 3) ORDER BY end_us, session, counter");
const OF_SESSION: &str =
    select!("grants INDEXED BY grants_of", "session = ?2 AND state <> 3 AND end_us > ?3 ORDER BY counter LIMIT ?4");
/// In the order of the primary key: the sign keeps SQLite from the index of ends.
const OLDEST: &str = select!("grants", "+end_us > ?2 ORDER BY token");
/// The largest pool of which an inspection reads all grants: half a millisecond.
const COUNTED_WHOLE: usize = 512;
/// Jumps from one session to the next, however many grants each of them has.
const NEXT_SESSION: &str = "SELECT min(session) FROM grants INDEXED BY grants_of WHERE name = ?1 AND session > ?2";

impl<'a> Part<'a> {
    pub(super) fn new(db: &'a Connection, name: i64, pool: Pool) -> Self {
        Self { db, name, pool, read: BTreeMap::new() }
    }

    pub(super) fn get(&self, id: GrantId) -> Option<&Grant> {
        self.read.get(&id)
    }

    pub(super) fn has_upgradeable(&self) -> bool {
        self.read.values().any(|grant| grant.mode == Mode::Upgradeable)
    }

    /// Reads the grant with this public ID, if there is one.
    pub(super) fn read_named(&mut self, id: PublicId) -> Result<(), Bad> {
        let name = self.name;
        let values = params![name, id.session.0.to_be_bytes(), id.counter.cast_signed()];
        self.read_first(NAMED, values, |_, _| true).map(drop)
    }

    /// Reads the grant that may be upgraded, if there is one.
    pub(super) fn read_upgradeable(&mut self) -> Result<(), Bad> {
        self.read_first(UPGRADEABLE, [self.name], |_, _| true).map(drop)
    }

    /// Reads all grants whose leases have ended.
    pub(super) fn read_ended(&mut self, now_us: u64) -> Result<(), Bad> {
        self.read_first(ENDED, [self.name, now_us.cast_signed()], |_, _| false).map(drop)
    }

    /// Returns the time at which the first of the unread leases ends.
    pub(super) fn first_end_us(&self, now_us: u64) -> Result<Option<u64>, Bad> {
        let mut statement = self.db.prepare_cached(BY_END)?;
        let mut rows = statement.query([self.name, now_us.cast_signed()])?;
        while let Some(row) = rows.next()? {
            if !self.read.contains_key(&grant_id(row, 1)?) {
                return Ok(Some(time(row, 6)?));
            }
        }
        Ok(None)
    }

    /// Of the grants that are revoked or cool down, reads the first one that no request changes.
    pub(super) fn read_ending(&mut self) -> Result<(), Bad> {
        self.read_first(ENDING, [self.name], |part, grant| part.get(grant.id).is_none()).map(drop)
    }

    /// Reads the grants that a session holds, at most this many. Returns their IDs.
    pub(super) fn read_held(&mut self, session: SessionId, now_us: u64, most: usize) -> Result<Vec<GrantId>, Bad> {
        let name = self.name;
        let values = params![name, session.0.to_be_bytes(), now_us.cast_signed(), most as i64];
        let mut held = Vec::new();
        self.read_first(OF_SESSION, values, |_, grant| {
            held.push(grant.id);
            false
        })?;
        Ok(held)
    }

    /// Reads the oldest grants whose leases have not ended and that are to be shown. Of a large pool it counts the others
    /// as they stand in the record, with those that have ended.
    pub(super) fn read_shown(&mut self, now_us: u64, mut is_shown: impl FnMut(&Grant) -> bool) -> Result<(), Bad> {
        let is_large = self.pool.granted > COUNTED_WHOLE;
        let (mut hidden, mut hidden_units) = (0, 0);
        self.read.clear();
        let mut statement = self.db.prepare_cached(OLDEST)?;
        let mut rows = statement.query([self.name, now_us.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let grant = grant(row)?;
            if !is_shown(&grant) {
                (hidden, hidden_units) = (hidden + 1, hidden_units + grant.units);
                continue;
            }
            self.read.insert(grant.id, grant);
            if is_large && self.read.len() == SHOWN_MAX {
                self.pool.granted = self.pool.granted.saturating_sub(hidden);
                self.pool.taken = self.pool.taken.saturating_sub(hidden_units);
                return Ok(());
            }
        }
        let taken: u32 = self.read.values().map(|grant| grant.units).sum();
        let (ended, ended_units) = self.ended(now_us)?;
        let units = u64::from(taken) + u64::from(hidden_units) + u64::from(ended_units);
        let counted = (self.read.len() + hidden + ended, units);
        sane(counted == (self.pool.granted, self.pool.taken.into()), "it counts other grants than there are")?;
        (self.pool.granted, self.pool.taken) = (self.read.len(), taken);
        Ok(())
    }

    /// Returns the number of grants whose leases have ended, and of their units.
    fn ended(&self, now_us: u64) -> Result<(usize, u32), Bad> {
        let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, f64>(1)?));
        let (grants, units) =
            self.db.prepare_cached(COUNT_ENDED)?.query_row(params![self.name, now_us.cast_signed()], counts)?;
        // An integer sum of invalid units would overflow in SQLite. Valid ones are exact as a float.
        sane((0.0..=f64::from(u32::MAX)).contains(&units), "a number of units is out of range")?;
        Ok((usize::try_from(grants).unwrap_or(usize::MAX), units as u32))
    }

    /// Reads the rows until one of them is the last.
    fn read_first(
        &mut self,
        sql: &str,
        values: impl Params,
        mut is_last: impl FnMut(&Self, &Grant) -> bool,
    ) -> Result<Option<GrantId>, Bad> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            let grant = grant(row)?;
            let (id, is_last) = (grant.id, is_last(self, &grant));
            self.read.insert(id, grant);
            if is_last {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Returns the first session with a grant after this one.
    pub(super) fn next_session(&self, after: Option<SessionId>) -> Result<Option<SessionId>, Bad> {
        next_session(self.db, self.name, after)
    }

    /// Returns the grants, of which this part was read.
    pub(super) fn grants(self, first_end_us: Option<u64>) -> Result<Grants, Bad> {
        let grants: Grants = self.read.into_values().collect();
        let unread = self.pool.granted.checked_sub(grants.len()).zip(self.pool.taken.checked_sub(grants.units()));
        let Some((count, units)) =
            unread.filter(|(count, units)| *count <= *units as usize && (*count == 0) == (*units == 0))
        else {
            return Err(Bad::Nonsense("it counts other grants than there are".into()));
        };
        Ok(grants.with_unread(Unread { count, units, first_end_us }))
    }
}

pub(super) fn next_session(db: &Connection, name: i64, after: Option<SessionId>) -> Result<Option<SessionId>, Bad> {
    // A blob of no bytes is before all others.
    let after = after.map_or(Vec::new(), |session| session.0.to_be_bytes().to_vec());
    let next: Option<[u8; 16]> = db.prepare_cached(NEXT_SESSION)?.query_row(params![name, after], |row| row.get(0))?;
    Ok(next.map(|bytes| SessionId(u128::from_be_bytes(bytes))))
}

/// Whether a session holds a grant of this pool.
pub(super) fn has_grant(db: &Connection, name: i64, session: SessionId) -> Result<bool, Bad> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM grants INDEXED BY grants_of WHERE name = ?1 AND session = ?2 AND state <> 3)";
    Ok(db.prepare_cached(sql)?.query_row(params![name, session.0.to_be_bytes()], |row| row.get(0))?)
}

/// Reads a grant.
pub(super) fn grant(row: &Row<'_>) -> Result<Grant, Bad> {
    let grant = Grant {
        id: grant_id(row, 1)?,
        token: token(row, 0)?,
        range: 1,
        since_us: time(row, 4)?,
        length_ms: length(row, 5)?,
        state: state(row, 7)?,
        units: units(row, 8)?,
        mode: mode(row, 9)?,
        label: label(row, 11)?,
    };
    sane(grant.end_us() == unsigned(row, 6)?, "a lease ends at another time than its length says")?;
    Ok(grant)
}

/// Writes the grants that a step has added, changed or removed. An attempt whose lease has ended can be granted anew in the
/// same step: this is another grant, with another token.
pub(super) fn save(db: &Connection, name: i64, before: &Grants, now: &Grants) -> Result<(), Bad> {
    fn same<'a>(grants: &'a Grants, grant: &Grant) -> Option<&'a Grant> {
        grants.get(grant.id).filter(|one| one.token == grant.token)
    }
    for gone in before.iter().filter(|grant| same(now, grant).is_none()) {
        let sql = "DELETE FROM grants WHERE name = ?1 AND token = ?2";
        db.prepare_cached(sql)?.execute([name, gone.token.get().cast_signed()])?;
    }
    for grant in now.iter() {
        match same(before, grant) {
            Some(known) if known == grant => {}
            Some(_) => update(db, name, grant)?,
            None => insert(db, name, grant)?,
        }
    }
    Ok(())
}

fn insert(db: &Connection, name: i64, grant: &Grant) -> Result<(), Bad> {
    let sql = "INSERT INTO grants VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let (mode, instead) = mode_cells(grant.mode);
    db.prepare_cached(sql)?.execute(params![
        name,
        grant.token.get().cast_signed(),
        grant.id.session.0.to_be_bytes(),
        grant.id.counter.cast_signed(),
        grant.id.nonce.cast_signed(),
        grant.since_us.cast_signed(),
        grant.length_ms.cast_signed(),
        grant.end_us().cast_signed(),
        state_number(grant.state),
        grant.units,
        mode,
        instead,
        grant.label,
    ])?;
    Ok(())
}

/// Writes a changed grant. ID and token stay.
fn update(db: &Connection, name: i64, grant: &Grant) -> Result<(), Bad> {
    let sql = "UPDATE grants SET since_us = ?3, length_ms = ?4, end_us = ?5, state = ?6, units = ?7, mode = ?8, \
               instead = ?9, label = ?10 WHERE name = ?1 AND token = ?2";
    let (mode, instead) = mode_cells(grant.mode);
    db.prepare_cached(sql)?.execute(params![
        name,
        grant.token.get().cast_signed(),
        grant.since_us.cast_signed(),
        grant.length_ms.cast_signed(),
        grant.end_us().cast_signed(),
        state_number(grant.state),
        grant.units,
        mode,
        instead,
        grant.label,
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::layout;
    use super::*;

    /// A pool has a hundred thousand grants, and a step reads a few of them. No statement sorts them.
    #[test]
    fn a_step_finds_its_grants_by_an_index() {
        let db = Connection::open_in_memory().unwrap();
        layout::create(&db).unwrap();
        for sql in [NAMED, UPGRADEABLE, BY_END, COUNT_ENDED, ENDED, ENDING, OF_SESSION, OLDEST, NEXT_SESSION] {
            let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let count = statement.parameter_count();
            let plan = |row: &Row<'_>| row.get::<_, String>("detail");
            let values = rusqlite::params_from_iter(vec![0; count]);
            let said: Vec<_> = statement.query_map(values, plan).unwrap().map(Result::unwrap).collect();
            let [search] = &*said else { panic!("{sql}: {said:?}") };
            assert!(search.starts_with("SEARCH grants USING "), "{sql}: {search}");
        }
    }
}
