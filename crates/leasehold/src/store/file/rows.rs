//! Reads the rows of names.

use std::collections::HashSet;

use leasehold_spec::limits::{LAPSES, RANGE_END, RETENTION_US};
use leasehold_spec::{Grant, Lapse, Mode, Name, Resource, SessionId};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, named_params};

use super::cells::{Bad, from_bytes, grant_id, label, length, range, sane, session, state, time, token};
use super::plain::{Content, POOL, Plain};
use super::pool::{Pool, next_session};

pub(super) fn lapses(db: &Connection, name: i64) -> Result<Vec<Lapse>, Bad> {
    let mut statement = db.prepare_cached("SELECT session, at_us FROM lapses WHERE name = ?1 ORDER BY place")?;
    let mut rows = statement.query([name])?;
    let mut lapses = Vec::new();
    while let Some(row) = rows.next()? {
        lapses.push(Lapse { session: session(row, 0)?, at_us: time(row, 1)? });
    }
    sane(lapses.len() <= LAPSES, "too many claims have lapsed")?;
    Ok(lapses)
}

/// The columns of `names` that [`plain`] reads by their number. A query with more columns adds them after these.
macro_rules! columns {
    () => {
        "id, stamp, last, keep_until_us, released, waiting, lapsed, session, counter, nonce, token, range, \
         since_us, length_ms, state, label"
    };
}
pub(super) use columns;

pub(super) const OF_NAME: &str = concat!("SELECT ", columns!(), " FROM names WHERE name = ?1");

/// Reads the plain content of a row of `names`. That of a pool is in another table.
pub(super) fn plain(row: &Row<'_>, pool: impl FnOnce() -> Result<Pool, Bad>) -> Result<Plain, Bad> {
    let (last, keep_until_us) = (token(row, 2)?, time(row, 3)?);
    let released = row.get::<_, Option<[u8; 32]>>(4)?.map(from_bytes);
    let content = match row.get::<_, Option<i64>>(14)? {
        None => Content::Mutex(None),
        Some(POOL) => Content::Pool(pool()?),
        Some(_) => {
            let grant = grant(row)?;
            sane(grant.token <= last, "a token is above the highest")?;
            Content::Mutex(Some(grant))
        }
    };
    Ok(Plain { last, keep_until_us, released, content })
}

/// Reads the grant of a mutex.
pub(super) fn grant(row: &Row<'_>) -> Result<Grant, Bad> {
    Ok(Grant {
        id: grant_id(row, 7)?,
        token: token(row, 10)?,
        range: range(row, 11, RANGE_END)?,
        since_us: time(row, 12)?,
        length_ms: length(row, 13)?,
        state: state(row, 14)?,
        units: 1,
        mode: Mode::Plain,
        label: label(row, 15)?,
    })
}

/// Returns the first holders, alive or dead, and at most this many. A mutex that cools down has none.
pub(super) fn holders_of(db: &Connection, name: &Name, most: usize) -> Result<Vec<SessionId>, Bad> {
    let mut statement = db.prepare_cached("SELECT session, id, state FROM names WHERE name = ?1 AND state <> 3")?;
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<[u8; 16]>>(0)?, row.get(1)?, row.get::<_, i64>(2)?));
    let Some((sole, id, state)) = statement.query_row([name.as_str()], read).optional()? else { return Ok(Vec::new()) };
    let mut holders: Vec<_> = sole.map(|bytes| SessionId(u128::from_be_bytes(bytes))).into_iter().collect();
    while state == POOL
        && holders.len() < most
        && let Some(next) = next_session(db, id, holders.last().copied())?
    {
        holders.push(next);
    }
    Ok(holders)
}

/// Returns every session, alive or dead, that holds now or can be granted a lease (P6: a waiter that polls is granted
/// without a check of its inbox). Reads every name, so it is only for a caller that has found a dead session.
pub(super) fn holders(db: &Connection, lease_us: u64, has_pools: bool) -> Result<HashSet<SessionId>, Bad> {
    let of_mutexes = "SELECT session FROM names WHERE session IS NOT NULL AND state <> 3 \
                      AND since_us + length_ms * 1000 > ?1 UNION SELECT session FROM waiters WHERE hears = 1";
    let of_pools = "SELECT session FROM grants WHERE state <> 3 AND end_us > ?1";
    let mut holders = HashSet::new();
    for sql in [of_mutexes, of_pools].into_iter().take(1 + usize::from(has_pools)) {
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([lease_us.cast_signed()])?;
        while let Some(row) = rows.next()? {
            holders.insert(session(row, 0)?);
        }
    }
    Ok(holders)
}

/// The condition for a row of `names` that is forgotten at the time `:lease`, with tokens up to `:newest`, and without
/// waiters: `Resource::is_forgotten` in SQL. Such a row counts as missing, whether it was removed already or not.
macro_rules! forgotten {
    () => {
        "keep_until_us <= :lease AND max(last, coalesce(token + range - 1, 0)) <= :newest AND waiting = 0 \
         AND lapsed = 0"
    };
}

const NAMES: &str = concat!("SELECT id, name, ", forgotten!(), " FROM names WHERE id > :from ORDER BY id LIMIT :page");
const SWEEP: &str = concat!("DELETE FROM names WHERE id > :from AND id <= :to AND ", forgotten!());

/// The times of the two clocks for that condition.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) wall_us: u64,
    pub(super) lease_us: u64,
}

impl Now {
    fn lease(self) -> i64 {
        self.lease_us.cast_signed()
    }

    fn newest(self) -> i64 {
        let newest = self.wall_us.saturating_sub(RETENTION_US);
        let old = Resource { keep_until_us: self.lease_us, ..Resource::default() };
        debug_assert!(newest == 0 || old.is_forgotten(self.wall_us, self.lease_us), "what the statements say");
        newest.cast_signed()
    }
}

/// Returns a page of the names that have a record, after the row `from`. (A page has a number of rows, including forgotten
/// ones, so that many of these do not make a page slow.)
pub(super) fn names(db: &Connection, from: u64, page: usize, now: Now) -> Result<(Vec<Name>, u64), Bad> {
    let mut statement = db.prepare_cached(NAMES)?;
    let values = named_params! {
        ":lease": now.lease(), ":newest": now.newest(), ":from": from.cast_signed(), ":page": page as i64,
    };
    // A name that is not valid is left out: nobody can ask for it.
    let rows = statement.query_map(values, |row| Ok((row.get(0)?, row.get::<_, String>(1).ok(), row.get(2)?)))?;
    let rows: Vec<(i64, Option<String>, bool)> = rows.collect::<Result<_, _>>()?;
    let next = if rows.len() < page { 0 } else { rows.last().map_or(0, |(id, ..)| id.cast_unsigned()) };
    let kept = rows.iter().filter(|(_, _, is_forgotten)| !is_forgotten);
    Ok((kept.filter_map(|(_, name, _)| Name::new(name.as_ref()?).ok()).collect(), next))
}

/// Removes forgotten rows among the given number of rows after the row `from`. Returns where to continue.
pub(super) fn sweep(db: &Connection, from: i64, rows: i64, now: Now) -> Result<i64, Bad> {
    let sql = "SELECT max(id) FROM (SELECT id FROM names WHERE id > ?1 ORDER BY id LIMIT ?2)";
    let to: Option<i64> = db.prepare_cached(sql)?.query_row([from, rows], |row| row.get(0))?;
    let Some(to) = to else { return Ok(0) };
    let values = named_params! { ":lease": now.lease(), ":newest": now.newest(), ":from": from, ":to": to };
    match db.prepare_cached(SWEEP)?.execute(values) {
        // An invalid row keeps those around it, and no others.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => return Ok(to),
        swept => swept?,
    };
    let sql = "DELETE FROM ended WHERE name > ?1 AND name <= ?2 AND name NOT IN (SELECT id FROM names)";
    db.prepare_cached(sql)?.execute([from, to])?;
    Ok(to)
}
