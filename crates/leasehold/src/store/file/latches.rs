//! The rows of a latch: which one it is, and what it has counted.
//!
//! A latch counts up to 100,000 count-downs. A step can ask for one of them and add it. So it reads that one, and the
//! number of the others. The rows of a latch that is gone stay behind, and a sweep removes them, some at a time.

use leasehold_spec::limits::LEASE_MAX_MS;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Latch, Op};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::cells::{Bad, id_cells, sane, token, unsigned};
use super::dismissed;

/// Reads the latch of a name, if there is one, and none of its count-downs.
pub(super) fn read(db: &Connection, name: i64, limit: u32) -> Result<Latch, Bad> {
    let mut statement = db.prepare_cached("SELECT born, keep_ms, counted FROM latches WHERE name = ?1")?;
    let latch = |row: &Row<'_>| {
        let unread = u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX);
        Ok((token(row, 0), unsigned(row, 1), unread))
    };
    let found = statement.query_row([name], latch).optional()?;
    sane(found.is_some() == (limit > 0), "a latch has another number of rows than it needs")?;
    let Some((born, keep_ms, unread)) = found else { return Ok(Latch::default()) };
    let latch = Latch { born: born?, keep_ms: keep_ms?, unread, ..Latch::default() };
    sane(latch.count() <= limit && latch.keep_ms <= LEASE_MAX_MS, "a number of a latch is out of range")?;
    Ok(latch)
}

/// Reads the count-down that a request names, if it was counted before.
pub(super) fn read_named(db: &Connection, name: i64, latch: &mut Latch, op: &Op) -> Result<(), Bad> {
    let Op::CountDown { id, .. } = op else { return Ok(()) };
    let (session, counter, nonce) = id_cells(*id);
    let is_counted: bool =
        db.prepare_cached(COUNTED)?.query_row(params![name, session, counter, nonce], |row| row.get(0))?;
    if is_counted && !is_on(Mutant::P44ReadsNoCount) {
        let unread = latch.unread.checked_sub(1);
        latch.unread = unread.ok_or_else(|| Bad::Nonsense("a latch counts other count-downs than there are".into()))?;
        latch.counted.insert(*id);
    }
    Ok(())
}

const COUNTED: &str = "SELECT EXISTS (SELECT 1 FROM latches CROSS JOIN counts ON counts.latch = latches.id \
                       WHERE latches.name = ?1 AND session = ?2 AND counter = ?3 AND nonce = ?4)";

/// Writes what a step has changed. Another latch of the name has other rows.
pub(super) fn save(db: &Connection, name: i64, before: &Latch, now: &Latch) -> Result<(), Bad> {
    if before == now {
        return Ok(());
    }
    if before.born != now.born {
        forget(db, name)?;
        if *now == Latch::default() {
            return Ok(());
        }
        let sql = "INSERT INTO latches (name, born, keep_ms, counted) VALUES (?1, ?2, ?3, ?4)";
        let (born, keep_ms) = (now.born.get().cast_signed(), now.keep_ms.cast_signed());
        db.prepare_cached(sql)?.execute(params![name, born, keep_ms, now.count()])?;
        // Another program may have written rows with this number, which nobody had before.
        let latch = db.last_insert_rowid();
        db.prepare_cached("DELETE FROM counts WHERE latch = ?1")?.execute([latch])?;
        db.prepare_cached("DELETE FROM buried WHERE latch = ?1")?.execute([latch])?;
    } else {
        db.prepare_cached("UPDATE latches SET counted = ?2 WHERE name = ?1")?.execute(params![name, now.count()])?;
    }
    for id in now.counted.difference(&before.counted) {
        let sql = "INSERT INTO counts SELECT id, ?2, ?3, ?4 FROM latches WHERE name = ?1";
        let (session, counter, nonce) = id_cells(*id);
        db.prepare_cached(sql)?.execute(params![name, session, counter, nonce])?;
    }
    Ok(())
}

/// Removes the latch of a name, and its messages. Its count-downs stay for [`sweep`].
pub(super) fn forget(db: &Connection, name: i64) -> Result<(), Bad> {
    db.prepare_cached("DELETE FROM latches WHERE name = ?1")?.execute([name])?;
    dismissed::forget(db, name)
}

/// Removes at most this many count-downs of a latch that is gone.
pub(super) fn sweep(db: &Connection, rows: i64) -> Result<(), Bad> {
    let sql = "SELECT latch FROM buried ORDER BY latch LIMIT 1";
    let Some(latch) = db.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(());
    };
    let removed = db.prepare_cached(SWEEP)?.execute([latch, rows])?;
    if (removed as i64) < rows {
        db.prepare_cached("DELETE FROM buried WHERE latch = ?1")?.execute([latch])?;
    }
    Ok(())
}

const SWEEP: &str = "DELETE FROM counts WHERE latch = ?1 AND (session, counter, nonce) IN \
                     (SELECT session, counter, nonce FROM counts WHERE latch = ?1 LIMIT ?2)";

#[cfg(test)]
mod tests {
    use super::super::layout;
    use super::*;

    /// A latch has counted a hundred thousand count-downs. A step finds one of them, and a sweep finds some.
    #[test]
    fn a_step_finds_a_count_down_by_its_key() {
        let db = Connection::open_in_memory().unwrap();
        layout::create(&db).unwrap();
        for (sql, search) in [
            (COUNTED, "SEARCH counts USING PRIMARY KEY (latch=? AND session=? AND counter=? AND nonce=?)"),
            (SWEEP, "SEARCH counts USING PRIMARY KEY (latch=? AND session=? AND counter=? AND nonce=?)"),
        ] {
            let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan = |row: &Row<'_>| row.get::<_, String>("detail");
            let values = rusqlite::params_from_iter(vec![0; statement.parameter_count()]);
            let said: Vec<_> = statement.query_map(values, plan).unwrap().map(Result::unwrap).collect();
            assert!(said.iter().any(|line| line == search), "{sql}: {said:?}");
            assert!(said.iter().all(|line| !line.starts_with("SCAN counts")), "{sql}: {said:?}");
        }
    }

    #[test]
    fn a_sweep_removes_what_deleted_latches_have_left_behind() {
        let db = Connection::open_in_memory().unwrap();
        layout::create(&db).unwrap();
        let count = |table: &str| -> i64 {
            db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
        };
        for latch in 1..=3 {
            db.execute("INSERT INTO latches VALUES (?1, ?1, 1, 1, 10)", [latch]).unwrap();
            for counter in 0..10 {
                db.execute("INSERT INTO counts VALUES (?1, x'00', ?2, 0)", [latch, counter]).unwrap();
            }
        }
        sweep(&db, 4).unwrap();
        assert_eq!(count("counts"), 30, "all of them exist");
        db.execute("DELETE FROM latches WHERE id <> 2", []).unwrap();
        for left in [26, 22, 20, 16, 12, 10, 10] {
            sweep(&db, 4).unwrap();
            assert_eq!(count("counts"), left);
        }
        assert_eq!((count("buried"), count("latches")), (0, 1));
        // A new latch never has the number of one that is gone.
        db.execute("INSERT INTO latches (name, born, keep_ms, counted) VALUES (9, 1, 1, 0)", []).unwrap();
        assert_eq!(db.last_insert_rowid(), 4);
    }
}
