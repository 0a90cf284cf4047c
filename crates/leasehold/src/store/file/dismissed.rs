//! The rows of waiters whose entries were removed: their latch was deleted (P44), or the round of their barrier was broken
//! (P52). They have no other rows any more, and their sessions read these for the messages to them.

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Delivery, Event, Kind, Op, Resource};
use rusqlite::{Connection, params};

use super::cells::{Bad, id_cells};

/// Notes the waiters that a step has dismissed. A party that asks again needs its message no longer.
pub(super) fn note(
    db: &Connection,
    name: i64,
    (resource, op): (&Resource, &Op),
    messages: &[Delivery],
) -> Result<(), Bad> {
    let is_barrier = resource.kind == Kind::Barrier;
    if let Op::Acquire(acquire) = op
        && is_barrier
    {
        let (session, counter, _) = id_cells(acquire.id);
        let sql = "DELETE FROM dismissed WHERE name = ?1 AND session = ?2 AND counter = ?3";
        db.prepare_cached(sql)?.execute(params![name, session, counter])?;
    }
    if !is_barrier && !matches!(op, Op::DeleteLatch { .. }) || is_on(Mutant::P44DeletesSilently) {
        return Ok(());
    }
    let mut dismissals = messages.iter().filter(|message| message.event == Event::Ending).peekable();
    if is_barrier && dismissals.peek().is_some() {
        // Those of an earlier round: a dead party never asks again, and its row would stay as long as the name.
        forget(db, name)?;
    }
    for message in dismissals {
        let (session, counter, nonce) = id_cells(message.id);
        let token = message.token.get().cast_signed();
        let sql = "INSERT OR REPLACE INTO dismissed VALUES (?1, ?2, ?3, ?4, ?5)";
        db.prepare_cached(sql)?.execute(params![name, session, counter, nonce, token])?;
    }
    Ok(())
}

/// Removes the rows of a name.
pub(super) fn forget(db: &Connection, name: i64) -> Result<(), Bad> {
    db.prepare_cached("DELETE FROM dismissed WHERE name = ?1")?.execute([name])?;
    Ok(())
}
