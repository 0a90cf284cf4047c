//! Reads a record from the rows, by other code than that of the store.

use std::collections::BTreeSet;

use leasehold_spec::{
    Entry, Grant, GrantId, GrantState, Grants, Hears, Kind, Lapse, Latch, Mode, Name, Order, Resource, SessionId, Token,
};
use rusqlite::{Connection, OptionalExtension, Row};

const STATES: [GrantState; 4] = [GrantState::Pushed, GrantState::Held, GrantState::Revoked, GrantState::CoolingDown];

/// Returns the record of a name.
pub(crate) fn stored(db: &Connection, name: &Name) -> Option<Resource> {
    let plain = |row: &Row<'_>| {
        let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let released: Option<[u8; 32]> = row.get("released")?;
        let released = released.map(|bytes| wire(&bytes).parse::<GrantId>().unwrap());
        let state: Option<i64> = row.get("state")?;
        let grants = match state {
            None | Some(4) => None,
            Some(_) => Some(Grant { range: number("range")?, units: 1, mode: Mode::Plain, ..grant(row)? }),
        };
        let (last, keep_until_us) = (Token::new(number("last")?).unwrap(), number("keep_until_us")?);
        let resource = Resource { last, grants: grants.into(), released, keep_until_us, ..Resource::default() };
        Ok((row.get::<_, i64>("id")?, state == Some(4), resource))
    };
    let sql = "SELECT * FROM names WHERE name = ?1";
    let (id, is_pool, mut resource) = db.query_row(sql, [name.as_str()], plain).optional().unwrap()?;
    let totals = |row: &Row<'_>| Ok([0, 1, 2, 3].map(|at| row.get::<_, u32>(at).unwrap()));
    let sql = "SELECT kind, units, taken, granted FROM pools WHERE name = ?1";
    let pool = db.query_row(sql, [id], totals).optional().unwrap();
    let mut statement = db.prepare("SELECT * FROM grants WHERE name = ?1").unwrap();
    let of_pool = |row: &Row<'_>| {
        let grant = Grant { range: 1, units: row.get("units")?, mode: mode(row)?, ..grant(row)? };
        assert_eq!(grant.end_us(), row.get::<_, i64>("end_us")?.cast_unsigned());
        Ok(grant)
    };
    let grants: Grants = statement.query_map([id], of_pool).unwrap().map(Result::unwrap).collect();
    assert_eq!(pool.is_some(), is_pool, "a pool has two rows, and a mutex has one");
    match pool {
        None => assert!(grants.is_empty(), "a mutex has rows of grants"),
        Some([kind, limit, taken, granted]) => {
            assert_eq!((taken, granted as usize), (grants.units(), grants.len()), "the totals");
            resource.kind = Kind::ALL[kind as usize];
            (resource.limit, resource.grants, resource.latch) = (limit, grants, latch(db, id));
        }
    }
    let mut statement = db.prepare("SELECT * FROM waiters WHERE name = ?1 ORDER BY ticket, seq").unwrap();
    let waiters = statement.query_map([id], entry).unwrap().map(Result::unwrap);
    let (upgrades, queue): (Vec<_>, Vec<_>) = waiters.partition(|entry| matches!(entry.mode, Mode::Instead { .. }));
    assert!(upgrades.len() <= 1, "{upgrades:?}");
    (resource.upgrade, resource.queue) = (upgrades.into_iter().next(), queue.into());
    let mut statement = db.prepare("SELECT * FROM lapses WHERE name = ?1 ORDER BY place").unwrap();
    let lapse = |row: &Row<'_>| {
        let session = SessionId(u128::from_be_bytes(row.get("session")?));
        Ok(Lapse { session, at_us: row.get::<_, i64>("at_us")?.cast_unsigned() })
    };
    resource.lapses = statement.query_map([id], lapse).unwrap().map(Result::unwrap).collect();
    Some(resource)
}

/// Reads the latch of a name, with all that it has counted.
fn latch(db: &Connection, name: i64) -> Latch {
    let sql = "SELECT id, born, keep_ms, counted FROM latches WHERE name = ?1";
    let numbers = |row: &Row<'_>| Ok([0, 1, 2, 3].map(|at| row.get::<_, i64>(at).unwrap().cast_unsigned()));
    let Some([number, born, keep_ms, count]) = db.query_row(sql, [name], numbers).optional().unwrap() else {
        return Latch::default();
    };
    let mut statement = db.prepare("SELECT session, counter, nonce FROM counts WHERE latch = ?1").unwrap();
    let counted: BTreeSet<_> = statement.query_map([number.cast_signed()], id).unwrap().map(Result::unwrap).collect();
    assert_eq!(counted.len() as u64, count, "the number of count-downs");
    Latch { born: Token::new(born).unwrap(), keep_ms, counted, unread: 0 }
}

/// Reads the columns that the grants of mutexes and of pools share.
fn grant(row: &Row<'_>) -> rusqlite::Result<Grant> {
    let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(Grant {
        id: id(row)?,
        token: Token::new(number("token")?).unwrap(),
        range: 1,
        since_us: number("since_us")?,
        length_ms: number("length_ms")?,
        state: STATES[row.get::<_, u32>("state")? as usize],
        units: 1,
        mode: Mode::Plain,
        label: row.get("label")?,
    })
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(Entry {
        id: id(row)?,
        ticket: number("ticket")?,
        lease_ms: number("lease_ms")?,
        claim_ms: number("claim_ms")?,
        limit_us: row.get::<_, Option<i64>>("limit_us")?.map(i64::cast_unsigned),
        seen_us: number("seen_us")?,
        hears: if number("hears")? == 1 { Hears::Polls } else { Hears::Listens },
        order: if number("strict")? == 1 { Order::Strict } else { Order::Relaxed },
        units: row.get("units")?,
        mode: mode(row)?,
        label: row.get("label")?,
        range: number("range")?,
    })
}

fn mode(row: &Row<'_>) -> rusqlite::Result<Mode> {
    let instead: Option<[u8; 40]> = row.get("instead")?;
    Ok(match (row.get::<_, i64>("mode")?, instead) {
        (0, None) => Mode::Plain,
        (1, None) => Mode::Upgradeable,
        (2, Some(bytes)) => {
            let token = u64::from_str_radix(&wire(&bytes[32..]), 16).unwrap();
            Mode::Instead { id: wire(&bytes[..32]).parse().unwrap(), token: Token::new(token).unwrap() }
        }
        other => panic!("{other:?} is no mode"),
    })
}

fn id(row: &Row<'_>) -> rusqlite::Result<GrantId> {
    let session = SessionId(u128::from_be_bytes(row.get("session")?));
    let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(GrantId { session, counter: number("counter")?, nonce: number("nonce")? })
}

fn wire(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
