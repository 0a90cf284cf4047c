//! Reads and writes rows. A database can contain anything, so every value is checked.

use std::collections::{HashMap, HashSet, VecDeque};

use leasehold_spec::limits::{LABEL_MAX, LAPSES, LEASE_MAX_MS, QUEUE_MAX, RANGE_END, RANGE_MAX, RETENTION_US};
use leasehold_spec::{
    Contention, Entry, Grant, GrantId, GrantState, Hears, Lapse, Mode, Name, Order, Resource, SessionId, Token,
};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use super::plain::{Bad, Plain};

pub(super) fn delete(db: &Connection, name: i64, ticket: u64, seq: i64) -> Result<(), Bad> {
    let sql = "DELETE FROM waiters WHERE name = ?1 AND ticket = ?2 AND seq = ?3";
    db.prepare_cached(sql)?.execute(params![name, ticket.cast_signed(), seq])?;
    Ok(())
}

pub(super) fn insert(db: &Connection, name: i64, entry: &Entry, seq: i64) -> Result<(), Bad> {
    let sql = "INSERT INTO waiters VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    db.prepare_cached(sql)?.execute(params![
        name,
        entry.ticket.cast_signed(),
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
    ])?;
    Ok(())
}

pub(super) fn queue(db: &Connection, name: i64) -> Result<(VecDeque<Entry>, HashMap<GrantId, i64>), Bad> {
    let sql = "SELECT ticket, seq, session, counter, nonce, lease_ms, range, claim_ms, limit_us, seen_us, hears, \
               strict, label FROM waiters WHERE name = ?1 ORDER BY ticket, seq";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([name])?;
    let (mut queue, mut seqs) = (VecDeque::new(), HashMap::new());
    while let Some(row) = rows.next()? {
        let entry = Entry {
            id: grant_id(row, 2)?,
            ticket: time(row, 0)?,
            lease_ms: length(row, 5)?,
            range: range(row, 6, RANGE_MAX)?,
            claim_ms: unsigned(row, 7)?,
            limit_us: row.get::<_, Option<i64>>(8)?.map(i64::cast_unsigned),
            seen_us: time(row, 9)?,
            hears: if flag(row, 10)? { Hears::Polls } else { Hears::Listens },
            order: if flag(row, 11)? { Order::Strict } else { Order::Relaxed },
            units: 1,
            mode: Mode::Plain,
            label: label(row, 12)?,
        };
        sane(seqs.insert(entry.id, row.get(1)?).is_none(), "somebody waits twice")?;
        queue.push_back(entry);
        sane(queue.len() <= QUEUE_MAX, "too many wait")?;
    }
    Ok((queue, seqs))
}

pub(super) fn lapses(db: &Connection, name: i64) -> Result<Vec<Lapse>, Bad> {
    let mut statement = db.prepare_cached("SELECT session, at_us FROM lapses WHERE name = ?1 ORDER BY place")?;
    let mut rows = statement.query([name])?;
    let mut lapses = Vec::new();
    while let Some(row) = rows.next()? {
        lapses.push(Lapse { session: SessionId(u128::from_be_bytes(row.get(0)?)), at_us: time(row, 1)? });
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

/// The grants that a bell can be about: pushed or marked, or with a range while somebody waits. This text is also the
/// condition of an index, so that a bell of a session with many grants reads only these.
macro_rules! to_tell {
    () => {
        "state IN (0, 2) OR state = 1 AND range > 1 AND waiting > 0"
    };
}
pub(super) use to_tell;

/// The grants that are marked or cool down: their waiters are notified of their end. This text is also the condition of an
/// index, so that a bell of a session reads only these few of the names that it waits for.
macro_rules! ending {
    () => {
        "state IN (2, 3)"
    };
}
pub(super) use ending;

pub(super) const OF_NAME: &str = concat!("SELECT ", columns!(), " FROM names WHERE name = ?1");
const NEWS: &str = concat!(
    "SELECT ",
    columns!(),
    ", name, waiting, EXISTS (SELECT 1 FROM waiters WHERE waiters.name = names.id AND strict = 1) FROM names \
     WHERE session = ?1 AND (",
    to_tell!(),
    ")"
);

/// The first entry of one session for each name whose grant is marked or cools down.
const ENDING: &str = concat!(
    "SELECT names.name, token, since_us, length_ms, waiters.counter, waiters.nonce, min(waiters.ticket), \
     EXISTS (SELECT 1 FROM waiters AS others WHERE others.name = names.id AND others.strict = 1) FROM names \
     CROSS JOIN waiters WHERE ",
    ending!(),
    " AND waiters.name = names.id AND waiters.session = ?1 AND waiters.hears = 0 GROUP BY names.id"
);

pub(super) fn plain(row: &Row<'_>) -> Result<Plain, Bad> {
    let released = row.get::<_, Option<[u8; 32]>>(4)?.map(from_bytes);
    let grant = if row.get::<_, Option<i64>>(14)?.is_some() { Some(grant(row)?) } else { None };
    let last = token(row, 2)?;
    sane(grant.as_ref().is_none_or(|grant| grant.token <= last), "a token is above the highest")?;
    Ok(Plain { last, keep_until_us: time(row, 3)?, released, grant })
}

fn grant(row: &Row<'_>) -> Result<Grant, Bad> {
    let state = match row.get(14)? {
        0 => GrantState::Pushed,
        1 => GrantState::Held,
        2 => GrantState::Revoked,
        3 => GrantState::CoolingDown,
        other => return Err(Bad::Nonsense(format!("a grant has the state {other}"))),
    };
    Ok(Grant {
        id: grant_id(row, 7)?,
        token: token(row, 10)?,
        range: range(row, 11, RANGE_END)?,
        since_us: time(row, 12)?,
        length_ms: length(row, 13)?,
        state,
        units: 1,
        mode: Mode::Plain,
        label: label(row, 15)?,
    })
}

pub(super) fn state_number(state: GrantState) -> i64 {
    match state {
        GrantState::Pushed => 0,
        GrantState::Held => 1,
        GrantState::Revoked => 2,
        GrantState::CoolingDown => 3,
    }
}

/// A grant that a bell of a session can be about.
pub(super) enum News {
    /// The session has it, according to the record.
    Stands { name: String, grant: Grant, waiting: Contention },
    /// It was revoked and has ended, and the record belongs to another grant already.
    Ended { name: String, id: GrantId, token: Token, range: u64 },
    /// The grant with this token, which an attempt of the session waits for, is marked or cools down, and ends then.
    Ending { name: String, id: GrantId, token: Token, end_us: u64, waiting: Contention },
}

/// Returns the grants for the messages to a session. Ended grants come first, because they ended first. Both queries
/// read the same state: if a step came between them, the message about its new grant would come before that about the
/// ended one.
pub(super) fn news(db: &Connection, session: SessionId) -> Result<Vec<News>, Bad> {
    let db = db.unchecked_transaction()?;
    let mut news = Vec::new();
    let sql = "SELECT ended.session, ended.counter, ended.nonce, ended.token, ended.range, names.name FROM ended \
               JOIN names ON names.id = ended.name WHERE ended.session = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([session.0.to_be_bytes()])?;
    while let Some(row) = rows.next()? {
        // An invalid row concerns only its name: a request for that name returns the error.
        let (Ok(id), Ok(token), Ok(range)) = (grant_id(row, 0), token(row, 3), range(row, 4, RANGE_END)) else {
            continue;
        };
        news.push(News::Ended { name: row.get(5)?, id, token, range });
    }
    let mut statement = db.prepare_cached(NEWS)?;
    let mut rows = statement.query([session.0.to_be_bytes()])?;
    while let Some(row) = rows.next()? {
        let Ok(grant) = grant(row) else { continue };
        let waiting = match (row.get(17)?, row.get(18)?) {
            (0_i64, _) => Contention::None,
            (_, 0_i64) => Contention::Others,
            _ => Contention::Strict,
        };
        news.push(News::Stands { name: row.get(16)?, grant, waiting });
    }
    let mut statement = db.prepare_cached(ENDING)?;
    let mut rows = statement.query([session.0.to_be_bytes()])?;
    while let Some(row) = rows.next()? {
        let (Ok(token), Ok(since_us), Ok(length_ms)) = (token(row, 1), time(row, 2), length(row, 3)) else { continue };
        let id = GrantId { session, counter: unsigned(row, 4)?, nonce: unsigned(row, 5)? };
        let waiting = if row.get(7)? { Contention::Strict } else { Contention::Others };
        news.push(News::Ending { name: row.get(0)?, id, token, end_us: since_us + length_ms * 1000, waiting });
    }
    Ok(news)
}

/// Notes a revoked grant that the row of the name will not contain any more.
pub(super) fn note_ended(db: &Connection, name: &Name, (id, token, range): (GrantId, Token, u64)) -> Result<(), Bad> {
    let sql = "INSERT OR REPLACE INTO ended SELECT id, ?2, ?3, ?4, ?5, ?6 FROM names WHERE name = ?1";
    let (counter, nonce) = (id.counter.cast_signed(), id.nonce.cast_signed());
    let (token, range) = (token.get().cast_signed(), range.cast_signed());
    let values = params![name.as_str(), id.session.0.to_be_bytes(), counter, nonce, token, range];
    db.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Returns the holder, alive or dead. A name that cools down has none.
pub(super) fn holder(db: &Connection, name: &Name) -> Result<Option<SessionId>, Bad> {
    let mut statement = db.prepare_cached("SELECT session FROM names WHERE name = ?1 AND state <> 3")?;
    let session: Option<Option<[u8; 16]>> = statement.query_row([name.as_str()], |row| row.get(0)).optional()?;
    Ok(session.flatten().map(|bytes| SessionId(u128::from_be_bytes(bytes))))
}

/// Returns every session, alive or dead, that holds now or can be granted a lease (P6: a waiter that polls is granted
/// without a check of its inbox). Reads every name, so it is only for a caller that has found a dead session.
pub(super) fn holders(db: &Connection, lease_us: u64) -> Result<HashSet<SessionId>, Bad> {
    let sql = "SELECT session FROM names WHERE session IS NOT NULL AND state <> 3 AND since_us + length_ms * 1000 > ?1 \
               UNION SELECT session FROM waiters WHERE hears = 1";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([lease_us.cast_signed()], |row| row.get::<_, [u8; 16]>(0))?;
    rows.map(|session| Ok(SessionId(u128::from_be_bytes(session?)))).collect()
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
    let rows = statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<(i64, String, bool)> = rows.collect::<Result<_, _>>()?;
    let next = if rows.len() < page { 0 } else { rows.last().map_or(0, |(id, ..)| id.cast_unsigned()) };
    let kept = rows.iter().filter(|(_, _, is_forgotten)| !is_forgotten);
    Ok((kept.filter_map(|(_, name, _)| Name::new(name).ok()).collect(), next))
}

/// Removes forgotten rows among the given number of rows after the row `from`. Returns where to continue.
pub(super) fn sweep(db: &Connection, from: i64, rows: i64, now: Now) -> Result<i64, Bad> {
    let sql = "SELECT max(id) FROM (SELECT id FROM names WHERE id > ?1 ORDER BY id LIMIT ?2)";
    let to: Option<i64> = db.prepare_cached(sql)?.query_row([from, rows], |row| row.get(0))?;
    let Some(to) = to else { return Ok(0) };
    let values = named_params! { ":lease": now.lease(), ":newest": now.newest(), ":from": from, ":to": to };
    db.prepare_cached(SWEEP)?.execute(values)?;
    let sql = "DELETE FROM ended WHERE name > ?1 AND name <= ?2 AND name NOT IN (SELECT id FROM names)";
    db.prepare_cached(sql)?.execute([from, to])?;
    Ok(to)
}

pub(super) fn sane(is: bool, why: &str) -> Result<(), Bad> {
    if is { Ok(()) } else { Err(Bad::Nonsense(why.to_owned())) }
}

fn unsigned(row: &Row<'_>, at: usize) -> Result<u64, Bad> {
    Ok(row.get::<_, i64>(at)?.cast_unsigned())
}

/// Checks a time, or a ticket, which is a time: sums of them must not overflow.
fn time(row: &Row<'_>, at: usize) -> Result<u64, Bad> {
    let time = unsigned(row, at)?;
    sane(time < 1 << 62, "a time is out of range")?;
    Ok(time)
}

fn length(row: &Row<'_>, at: usize) -> Result<u64, Bad> {
    let length_ms = unsigned(row, at)?;
    sane(length_ms <= LEASE_MAX_MS, "a lease is too long")?;
    Ok(length_ms)
}

fn range(row: &Row<'_>, at: usize, end: u64) -> Result<u64, Bad> {
    let range = unsigned(row, at)?;
    sane((1..=end).contains(&range), "a range of tokens has no sensible length")?;
    Ok(range)
}

fn flag(row: &Row<'_>, at: usize) -> Result<bool, Bad> {
    let flag: i64 = row.get(at)?;
    sane(flag == 0 || flag == 1, "a flag is neither on nor off")?;
    Ok(flag == 1)
}

fn token(row: &Row<'_>, at: usize) -> Result<Token, Bad> {
    Token::new(unsigned(row, at)?).ok_or_else(|| Bad::Nonsense("a token is out of range".into()))
}

fn label(row: &Row<'_>, at: usize) -> Result<String, Bad> {
    let label: String = row.get(at)?;
    sane(label.len() <= LABEL_MAX, "a label is too long")?;
    Ok(label)
}

fn grant_id(row: &Row<'_>, at: usize) -> Result<GrantId, Bad> {
    let session = SessionId(u128::from_be_bytes(row.get(at)?));
    Ok(GrantId { session, counter: unsigned(row, at + 1)?, nonce: unsigned(row, at + 2)? })
}

pub(super) fn bytes(id: GrantId) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&id.session.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&id.counter.to_be_bytes());
    bytes[24..].copy_from_slice(&id.nonce.to_be_bytes());
    bytes
}

fn from_bytes(bytes: [u8; 32]) -> GrantId {
    let part = |range: std::ops::Range<usize>| u64::from_be_bytes(std::array::from_fn(|at| bytes[range.start + at]));
    let session = u128::from(part(0..8)) << 64 | u128::from(part(8..16));
    GrantId { session: SessionId(session), counter: part(16..24), nonce: part(24..32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session may hold a hundred thousand names without waiters: a bell reads none of them.
    #[test]
    fn a_bell_finds_its_grants_by_an_index() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(super::super::database::SCHEMA).unwrap();
        let plan = |row: &Row<'_>| row.get::<_, String>("detail");
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {NEWS}")).unwrap();
        let said: Vec<_> = statement.query_map([0], plan).unwrap().map(Result::unwrap).collect();
        // Of a long queue it reads only whether a waiter asks for strict order.
        let [names, _, waiters] = &*said else { panic!("{said:?}") };
        assert_eq!(names, "SEARCH names USING INDEX told (session=?)");
        assert!(waiters.contains("INDEX stricts (name=?)"), "{waiters}");
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {ENDING}")).unwrap();
        let said: Vec<_> = statement.query_map([0], plan).unwrap().map(Result::unwrap).collect();
        assert!(said[0].starts_with("SCAN names USING INDEX ending"), "{said:?}");
        assert!(said[1].starts_with("SEARCH waiters USING PRIMARY KEY (name=?)"), "{said:?}");
    }
}
