//! The tables of the database, and their change from one layout to the next.
//!
//! Layout 2 knows mutexes only. Layout 3 adds the tables of pools, and leaves the rows of mutexes as they are. So a program
//! can work on mutexes in a database of layout 2, beside programs that know nothing else. Programs of layout 2 read the
//! layout only when they open the database. So it is changed in a turn, while no session lives: such a program has none.
//!
//! A program of layout 2 can have opened the database and not attached its session yet. It can then harm nothing in
//! layout 3:
//!
//! - Rows of mutexes mean the same to it. The row of a pool has a state that it refuses.
//! - If it deletes the row of a pool that is forgotten, the trigger deletes the other rows of that pool.
//! - It cannot add a waiter, because the rows of waiters have more columns. It opens the database again, and reads the
//!   layout.

use std::path::Path;

use leasehold_spec::Op;
use rusqlite::Connection;

use super::news::{ending, to_tell};
use crate::error::{Error, ErrorKind};

/// The layout that this program writes.
pub(super) const LAYOUT: i64 = 3;
/// The layout of mutexes only. This program uses such a database, too.
pub(super) const MUTEXES: i64 = 2;

/// Also created in a database of an earlier program, if it is missing. Such a program keeps it up to date, too.
macro_rules! index_of_ending {
    () => {
        concat!("CREATE INDEX IF NOT EXISTS ending ON names (id) WHERE ", ending!())
    };
}
pub(super) use index_of_ending;

/// Layout 2: a row for each name, and a row for each waiter. Numbers of 64 bits have the bits of SQLite's signed numbers.
///
/// `stamp` changes with every change of a name and never repeats: with the same stamp, the rows need not be read again.
/// `ended` has each grant that was revoked and has ended, for the message to its holder: by then the row of the name
/// belongs to another grant.
///
/// `seq` orders waiters with equal tickets by their arrival. `range` is the number of tokens of a grant or a waiter.
const TABLES: &str = concat!(
    "
CREATE TABLE meta (
  key TEXT PRIMARY KEY, value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE names (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, stamp INTEGER NOT NULL, last INTEGER NOT NULL,
  keep_until_us INTEGER NOT NULL, released BLOB, waiting INTEGER NOT NULL, lapsed INTEGER NOT NULL,
  session BLOB, counter INTEGER, nonce INTEGER, token INTEGER, range INTEGER,
  since_us INTEGER, length_ms INTEGER, state INTEGER, label TEXT
) STRICT;
CREATE INDEX told ON names (session) WHERE ",
    to_tell!(),
    ";
",
    index_of_ending!(),
    ";
CREATE TABLE waiters (
  name INTEGER NOT NULL, ticket INTEGER NOT NULL, seq INTEGER NOT NULL, session BLOB NOT NULL,
  counter INTEGER NOT NULL, nonce INTEGER NOT NULL, lease_ms INTEGER NOT NULL, range INTEGER NOT NULL,
  claim_ms INTEGER NOT NULL, limit_us INTEGER, seen_us INTEGER NOT NULL, hears INTEGER NOT NULL,
  strict INTEGER NOT NULL, label TEXT NOT NULL,
  PRIMARY KEY (name, ticket, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX stricts ON waiters (name) WHERE strict = 1;
CREATE TABLE lapses (
  name INTEGER NOT NULL, place INTEGER NOT NULL, session BLOB NOT NULL, at_us INTEGER NOT NULL,
  PRIMARY KEY (name, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE ended (
  name INTEGER PRIMARY KEY, session BLOB NOT NULL, counter INTEGER NOT NULL, nonce INTEGER NOT NULL,
  token INTEGER NOT NULL, range INTEGER NOT NULL
) STRICT;
CREATE INDEX ended_of ON ended (session);
"
);

/// Layout 3: the pools. The row of a pool in `names` has the state [`POOL`](super::plain::POOL) and no grant.
///
/// - `pools`: `units` is the limit, `taken` are the units that are granted, `granted` is the number of grants.
/// - `grants`: the token is the key, because tokens rise. An inspection reads the oldest grants.
/// - `waiters`: an upgrade that waits is the waiter of mode 2. `instead` is the grant that an upgrade replaces.
/// - `latches`: the latch of a name, unless it was deleted. Its number never repeats.
/// - `counts`: what a latch has counted. `buried` has the latches that are gone and may have left such rows behind.
/// - `dismissed`: the waiters whose entries were removed by the deletion of a latch, or with the round of a barrier, for
///   the messages to them.
/// - `ended`: several for each name. It is only for sessions that live, and there is none during this change.
const POOLS: &str = "
CREATE TABLE pools (
  name INTEGER PRIMARY KEY, kind INTEGER NOT NULL, units INTEGER NOT NULL, taken INTEGER NOT NULL,
  granted INTEGER NOT NULL
) STRICT;
CREATE TABLE grants (
  name INTEGER NOT NULL, token INTEGER NOT NULL, session BLOB NOT NULL, counter INTEGER NOT NULL,
  nonce INTEGER NOT NULL, since_us INTEGER NOT NULL, length_ms INTEGER NOT NULL, end_us INTEGER NOT NULL,
  state INTEGER NOT NULL, units INTEGER NOT NULL, mode INTEGER NOT NULL, instead BLOB, label TEXT NOT NULL,
  PRIMARY KEY (name, token)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX grants_of ON grants (name, session, counter);
CREATE INDEX grants_by_end ON grants (name, end_us);
CREATE INDEX grants_told ON grants (session) WHERE state IN (0, 2);
CREATE INDEX grants_ending ON grants (name, end_us, session, counter) WHERE state IN (2, 3);
CREATE INDEX grants_upgradeable ON grants (name) WHERE mode = 1;
ALTER TABLE waiters ADD COLUMN units INTEGER NOT NULL DEFAULT 1;
ALTER TABLE waiters ADD COLUMN mode INTEGER NOT NULL DEFAULT 0;
ALTER TABLE waiters ADD COLUMN instead BLOB;
CREATE INDEX upgrades ON waiters (name) WHERE mode = 2;
DROP TABLE ended;
CREATE TABLE ended (
  name INTEGER NOT NULL, session BLOB NOT NULL, counter INTEGER NOT NULL, nonce INTEGER NOT NULL,
  token INTEGER NOT NULL, range INTEGER NOT NULL,
  PRIMARY KEY (name, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX ended_of ON ended (session);
CREATE TABLE latches (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER NOT NULL UNIQUE, born INTEGER NOT NULL,
  keep_ms INTEGER NOT NULL, counted INTEGER NOT NULL
) STRICT;
CREATE TABLE counts (
  latch INTEGER NOT NULL, session BLOB NOT NULL, counter INTEGER NOT NULL, nonce INTEGER NOT NULL,
  PRIMARY KEY (latch, session, counter, nonce)
) STRICT, WITHOUT ROWID;
CREATE TABLE buried (latch INTEGER PRIMARY KEY) STRICT;
CREATE TRIGGER bury_latch AFTER DELETE ON latches BEGIN
  INSERT INTO buried VALUES (old.id);
END;
CREATE TABLE dismissed (
  name INTEGER NOT NULL, session BLOB NOT NULL, counter INTEGER NOT NULL, nonce INTEGER NOT NULL,
  token INTEGER NOT NULL,
  PRIMARY KEY (name, session, counter)
) STRICT, WITHOUT ROWID;
CREATE INDEX dismissed_of ON dismissed (session);
CREATE TRIGGER forget_pool AFTER DELETE ON names WHEN old.state = 4 BEGIN
  DELETE FROM pools WHERE name = old.id;
  DELETE FROM grants WHERE name = old.id;
  DELETE FROM latches WHERE name = old.id;
  DELETE FROM dismissed WHERE name = old.id;
END;
";

/// Voids the pools of an earlier boot. No notification is left, and each latch is gone (kinds 3 and 4).
pub(super) const VOID_POOLS: &str = "
DELETE FROM grants; DELETE FROM latches; DELETE FROM buried; DELETE FROM counts; DELETE FROM dismissed;
UPDATE pools SET taken = 0, granted = 0, units = CASE WHEN kind IN (3, 4) THEN 0 ELSE units END;
";

/// Creates the tables, in the transaction of the caller.
pub(super) fn create(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute_batch(TABLES)?;
    add_pools(db)
}

/// Changes layout 2 to layout 3, in the transaction of the caller.
pub(super) fn add_pools(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute_batch(POOLS)?;
    db.pragma_update(None, "user_version", LAYOUT)
}

/// Whether a request is about a pool that may not exist yet.
pub(super) fn needs_pools(op: &Op) -> bool {
    match op {
        Op::Acquire(acquire) => acquire.take.kind.is_pool(),
        Op::CreateLatch { limit, .. } => *limit > 0,
        Op::Resize { .. } => true,
        _ => false,
    }
}

/// Returns the error for a pool in a database of layout 2.
pub(super) fn only_mutexes(path: &Path) -> Error {
    let message = format!(
        "programs of an older Leasehold use the store in {}, and they know only mutexes: end or update them, and try \
         again",
        path.display()
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns the layout of the database.
pub(super) fn read(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}
