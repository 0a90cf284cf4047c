//! The rows of the waiters of a name.

use std::collections::{HashMap, VecDeque};

use leasehold_spec::limits::{QUEUE_MAX, RANGE_MAX};
use leasehold_spec::{Entry, GrantId, Hears, Kind, Mode, Order};
use rusqlite::{Connection, Row, params};

use super::cells::{Bad, flag, grant_id, label, length, mode, mode_cells, range, sane, time, units, unsigned};

/// The waiters of a name.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) queue: VecDeque<Entry>,
    /// The number of the row of each of them: with the ticket, it is the key.
    pub(super) seqs: HashMap<GrantId, i64>,
    pub(super) upgrade: Option<Entry>,
    pub(super) upgrade_seq: i64,
}

macro_rules! columns {
    () => {
        "ticket, seq, session, counter, nonce, lease_ms, range, claim_ms, limit_us, seen_us, hears, strict, label"
    };
}

const OF_MUTEX: &str = concat!("SELECT ", columns!(), " FROM waiters WHERE name = ?1 ORDER BY ticket, seq");
const OF_POOL: &str =
    concat!("SELECT ", columns!(), ", units, mode, instead FROM waiters WHERE name = ?1 ORDER BY ticket, seq");
/// Names its columns: a database of layout 2 has no others.
const INSERT: &str = concat!(
    "INSERT INTO waiters (",
    columns!(),
    ", name) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
);

pub(super) fn read(db: &Connection, name: i64, kind: Kind) -> Result<Waiters, Bad> {
    let mut statement = db.prepare_cached(if kind.is_pool() { OF_POOL } else { OF_MUTEX })?;
    let mut rows = statement.query([name])?;
    let mut all = Waiters::default();
    while let Some(row) = rows.next()? {
        let entry = entry(row, kind)?;
        if matches!(entry.mode, Mode::Instead { .. }) {
            sane(all.upgrade.replace(entry).is_none(), "two upgrades wait")?;
            all.upgrade_seq = row.get(1)?;
            continue;
        }
        sane(all.seqs.insert(entry.id, row.get(1)?).is_none(), "somebody waits twice")?;
        all.queue.push_back(entry);
        sane(all.queue.len() <= QUEUE_MAX, "too many wait")?;
    }
    Ok(all)
}

fn entry(row: &Row<'_>, kind: Kind) -> Result<Entry, Bad> {
    let (units, mode) = if kind.is_pool() { (units(row, 13)?, mode(row, 14)?) } else { (1, Mode::Plain) };
    Ok(Entry {
        id: grant_id(row, 2)?,
        ticket: time(row, 0)?,
        lease_ms: length(row, 5)?,
        range: range(row, 6, RANGE_MAX)?,
        claim_ms: unsigned(row, 7)?,
        limit_us: row.get::<_, Option<i64>>(8)?.map(i64::cast_unsigned),
        seen_us: time(row, 9)?,
        hears: if flag(row, 10)? { Hears::Polls } else { Hears::Listens },
        order: if flag(row, 11)? { Order::Strict } else { Order::Relaxed },
        units,
        mode,
        label: label(row, 12)?,
    })
}

pub(super) fn insert(db: &Connection, name: i64, kind: Kind, entry: &Entry, seq: i64) -> Result<(), Bad> {
    let ticket = entry.ticket.cast_signed();
    db.prepare_cached(INSERT)?.execute(params![
        ticket,
        seq,
        entry.id.session.0.to_be_bytes(),
        entry.id.counter.cast_signed(),
        entry.id.nonce.cast_signed(),
        entry.lease_ms.cast_signed(),
        entry.range.cast_signed(),
        entry.claim_ms.cast_signed(),
        entry.limit_us.map(u64::cast_signed),
        entry.seen_us.cast_signed(),
        (entry.hears == Hears::Polls) as i64,
        (entry.order == Order::Strict) as i64,
        entry.label,
        name,
    ])?;
    if kind.is_pool() {
        let sql = "UPDATE waiters SET units = ?4, mode = ?5, instead = ?6 WHERE name = ?1 AND ticket = ?2 AND seq = ?3";
        let (mode, instead) = mode_cells(entry.mode);
        db.prepare_cached(sql)?.execute(params![name, ticket, seq, entry.units, mode, instead])?;
    }
    Ok(())
}

pub(super) fn delete(db: &Connection, name: i64, ticket: u64, seq: i64) -> Result<(), Bad> {
    let sql = "DELETE FROM waiters WHERE name = ?1 AND ticket = ?2 AND seq = ?3";
    db.prepare_cached(sql)?.execute(params![name, ticket.cast_signed(), seq])?;
    Ok(())
}
