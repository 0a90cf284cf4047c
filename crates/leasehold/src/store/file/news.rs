//! The messages of a session, as its bell leads to them: they are read from the rows.

use leasehold_spec::limits::RANGE_END;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, Grant, GrantId, GrantState, Name, Rest, SessionId, Token};
use rusqlite::{Connection, params};

use super::cells::{Bad, grant_id, length, range, time, token, unsigned};
use super::pool;
use super::rows::{columns, grant};

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

/// The same two for pools. A grant of a pool has no range, and the first of the grants that end counts. The parties of a
/// barrier do not wait for the end of a grant.
///
/// If the first waiter fits, a step has stopped at its bound. The last grant that it made says so (P34).
const NEWS_OF_POOLS: &str = concat!(
    "SELECT ",
    pool::columns!("grants"),
    ", names.name, waiting, \
     EXISTS (SELECT 1 FROM waiters WHERE waiters.name = names.id AND strict = 1 AND mode <> 2), \
     grants.token = names.last AND waiting > 0 \
     AND NOT EXISTS (SELECT 1 FROM waiters INDEXED BY upgrades WHERE waiters.name = names.id AND mode = 2) \
     AND coalesce((SELECT CASE pools.kind WHEN 5 THEN 0 WHEN 4 THEN (SELECT counted >= pools.units FROM latches WHERE \
     latches.name = pools.name) ELSE pools.taken + waiters.units <= pools.units AND (waiters.mode = 0 OR NOT EXISTS \
     (SELECT 1 FROM grants AS one INDEXED BY grants_upgradeable WHERE one.name = names.id AND one.mode = 1)) END FROM \
     waiters CROSS JOIN pools ON pools.name = waiters.name WHERE waiters.name = names.id ORDER BY ticket, seq LIMIT \
     1), 0), (SELECT kind FROM pools WHERE pools.name = names.id) = 5 FROM grants CROSS JOIN names ON names.id = \
     grants.name WHERE grants.session = ?1 AND grants.state IN (0, 2)"
);
const ENDING_OF_POOLS: &str = concat!(
    "SELECT names.name, first.token, first.since_us, first.length_ms, waiters.counter, waiters.nonce, \
     min(waiters.ticket), EXISTS (SELECT 1 FROM waiters AS others WHERE others.name = names.id AND others.strict = 1 \
     AND others.mode <> 2) FROM (SELECT DISTINCT name FROM grants WHERE ",
    ending!(),
    " AND (SELECT kind FROM pools WHERE pools.name = grants.name) <> 5) AS some CROSS JOIN grants AS first ON \
     first.name = some.name AND first.token = (SELECT token FROM grants WHERE name = some.name AND ",
    ending!(),
    " ORDER BY end_us, session, counter LIMIT 1) CROSS JOIN names ON names.id = some.name CROSS JOIN waiters WHERE \
     waiters.name = names.id AND waiters.session = ?1 AND waiters.hears = 0 AND waiters.mode <> 2 GROUP BY names.id"
);

/// The waiters of a session whose entries were removed, because their latch is gone or their round is broken: they are to
/// ask again.
const DISMISSED: &str = "SELECT names.name, dismissed.token, 0, 0, dismissed.counter, dismissed.nonce, 0, 2 FROM \
                         dismissed JOIN names ON names.id = dismissed.name WHERE dismissed.session = ?1";

/// A grant that a bell of a session can be about.
pub(super) enum News {
    /// The session has it, according to the record.
    Stands { name: String, grant: Grant, waiting: Contention, rest: Rest },
    /// It was revoked and has ended, and the record belongs to another grant already.
    Ended { name: String, id: GrantId, token: Token, range: u64 },
    /// The grant with this token, which an attempt of the session waits for, is marked or cools down, and ends then. Or it
    /// is the token of a latch that was deleted.
    Ending { name: String, id: GrantId, token: Token, end_us: u64, waiting: Contention },
}

/// Returns the grants for the messages to a session. Ended grants come first, because they ended first. Both queries
/// read the same state: if a step came between them, the message about its new grant would come before that about the
/// ended one.
pub(super) fn news(db: &Connection, session: SessionId, has_pools: bool) -> Result<Vec<News>, Bad> {
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
        let Ok(name) = row.get(5) else { continue };
        news.push(News::Ended { name, id, token, range });
    }
    stands(&db, NEWS, session, &mut news)?;
    ends(&db, ENDING, session, &mut news)?;
    if has_pools {
        stands(&db, NEWS_OF_POOLS, session, &mut news)?;
        ends(&db, ENDING_OF_POOLS, session, &mut news)?;
        ends(&db, DISMISSED, session, &mut news)?;
    }
    Ok(news)
}

fn stands(db: &Connection, sql: &str, of: SessionId, news: &mut Vec<News>) -> Result<(), Bad> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([of.0.to_be_bytes()])?;
    while let Some(row) = rows.next()? {
        let (found, at) = if sql == NEWS { (grant(row), 16) } else { (pool::grant(row), pool::COLUMNS) };
        let Ok(mut grant) = found else { continue };
        if sql == NEWS_OF_POOLS && row.get(at + 4)? && grant.state == GrantState::Pushed {
            // The message of a grant says the place of the arrival (P52).
            grant.range = grant.units.into();
        }
        let waiting = match (row.get(at + 1)?, row.get(at + 2)?) {
            (0_i64, _) => Contention::None,
            (_, 0_i64) => Contention::Others,
            _ => Contention::Strict,
        };
        let is_more = sql == NEWS_OF_POOLS && row.get(at + 3)? && !is_on(Mutant::P34MessageIsSilent);
        let rest = if is_more { Rest::More } else { Rest::Done };
        let Ok(name) = row.get(at) else { continue };
        news.push(News::Stands { name, grant, waiting, rest });
    }
    Ok(())
}

fn ends(db: &Connection, sql: &str, session: SessionId, news: &mut Vec<News>) -> Result<(), Bad> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([session.0.to_be_bytes()])?;
    while let Some(row) = rows.next()? {
        let (Ok(token), Ok(since_us), Ok(length_ms)) = (token(row, 1), time(row, 2), length(row, 3)) else { continue };
        let Ok(name) = row.get(0) else { continue };
        let id = GrantId { session, counter: unsigned(row, 4)?, nonce: unsigned(row, 5)? };
        let waiting = [Contention::Others, Contention::Strict, Contention::None][row.get::<_, u8>(7)?.min(2) as usize];
        news.push(News::Ending { name, id, token, end_us: since_us + length_ms * 1000, waiting });
    }
    Ok(())
}

/// Notes a revoked grant that no row shows any more. Of a mutex only the last one is kept, and of a pool the last 64:
/// that is enough, because a holder of a revoked grant also learns of it by its next renewal.
pub(super) fn note_ended(
    db: &Connection,
    name: &Name,
    (id, token, range): (GrantId, Token, u64),
    most: usize,
) -> Result<(), Bad> {
    let sql = "INSERT OR REPLACE INTO ended SELECT id, ?2, ?3, ?4, ?5, ?6 FROM names WHERE name = ?1";
    let (counter, nonce) = (id.counter.cast_signed(), id.nonce.cast_signed());
    let (token, range) = (token.get().cast_signed(), range.cast_signed());
    let values = params![name.as_str(), id.session.0.to_be_bytes(), counter, nonce, token, range];
    db.prepare_cached(sql)?.execute(values)?;
    let sql = "DELETE FROM ended WHERE name = (SELECT id FROM names WHERE name = ?1) AND token <= (SELECT token \
               FROM ended WHERE name = (SELECT id FROM names WHERE name = ?1) ORDER BY token DESC LIMIT 1 OFFSET ?2)";
    db.prepare_cached(sql)?.execute(params![name.as_str(), most as i64])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::Row;

    use super::*;

    /// A session may hold a hundred thousand names without waiters: a bell reads none of them.
    #[test]
    fn a_bell_finds_its_grants_by_an_index() {
        let db = Connection::open_in_memory().unwrap();
        super::super::layout::create(&db).unwrap();
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
