//! Directories of an earlier version, and programs of it that use them.

use std::os::unix::net::UnixListener;

use leasehold::ErrorKind;
use rusqlite::Connection;

use crate::Store;

/// The tables of layout 2, as the programs of that time make them.
const LAYOUT_2: &str = "
CREATE TABLE meta (
  key TEXT PRIMARY KEY, value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE names (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, stamp INTEGER NOT NULL, last INTEGER NOT NULL,
  keep_until_us INTEGER NOT NULL, released BLOB, waiting INTEGER NOT NULL, lapsed INTEGER NOT NULL,
  session BLOB, counter INTEGER, nonce INTEGER, token INTEGER, range INTEGER,
  since_us INTEGER, length_ms INTEGER, state INTEGER, label TEXT
) STRICT;
CREATE INDEX told ON names (session) WHERE state IN (0, 2) OR state = 1 AND range > 1 AND waiting > 0;
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
PRAGMA application_id = 0x4c484631;
PRAGMA user_version = 2;
PRAGMA journal_mode = WAL;
";
/// A token of the far future: a directory keeps it (P27).
const TOKEN: i64 = 4_000_000_000_000_000;

/// Makes a store of layout 2 with one record, as a program of that time left it.
fn of_layout_2() -> Store {
    let store = Store::new();
    let db = database(&store);
    std::fs::write(store.path().join("lock"), "").unwrap();
    db.execute_batch(LAYOUT_2).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let time = std::fs::read_link("/proc/self/ns/time").map(|link| link.display().to_string()).unwrap_or_default();
    for (key, value) in [("id", "00112233445566778899aabbccddeeff"), ("boot", boot.trim()), ("time", &time)] {
        db.execute("INSERT INTO meta VALUES (?1, ?2)", [key, value]).unwrap();
    }
    let sql =
        "INSERT INTO names (name, stamp, last, keep_until_us, waiting, lapsed) VALUES ('kept', 1, ?1, 1 << 61, 0, 0)";
    db.execute(sql, [TOKEN]).unwrap();
    store
}

fn database(store: &Store) -> Connection {
    Connection::open(store.path().join("leasehold.db")).unwrap()
}

fn layout(store: &Store) -> i64 {
    database(store).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// Mutexes need no other layout. The first pool changes it, and the records stay.
#[tokio::test]
async fn p27_the_first_pool_changes_the_layout() {
    let store = of_layout_2();
    let client = store.client().await;
    let guard = client.mutex("kept").lock().await.unwrap();
    assert!(guard.token().get() > TOKEN.cast_unsigned());
    let waits = client.mutex("kept").fair();
    let waiting = tokio::spawn(async move { waits.lock().await });
    crate::eventually("it waits", async || client.mutex("kept").inspect().await.unwrap().waiters == 1).await;
    assert_eq!(layout(&store), 2);
    let permit = client.semaphore("pool", 2).acquire().await.unwrap();
    assert_eq!(layout(&store), 3);
    assert!(guard.is_valid() && permit.is_valid());
    let released = guard.release().await.unwrap();
    assert_eq!(released, leasehold::Released::Released);
    assert!(waiting.await.unwrap().unwrap().is_valid(), "a waiter of before");
    let other = store.client().await;
    assert!(other.semaphore("pool", 2).try_acquire_many(2).await.unwrap().is_none());
    assert!(other.semaphore("pool", 2).try_acquire().await.unwrap().is_some());
}

/// Programs of an earlier version read the layout only when they open the database. While one lives, there are no pools.
#[tokio::test]
async fn p27_the_layout_stays_while_a_program_of_before_lives() {
    let store = of_layout_2();
    std::fs::create_dir(store.path().join("live")).unwrap();
    let life = UnixListener::bind(store.path().join("live/000000000000000000000000000000aa.life")).unwrap();
    let (client, other) = (store.client().await, store.client().await);
    let error = client.semaphore("pool", 2).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("programs of an older Leasehold use the store"), "{error}");
    assert!(error.to_string().contains("end or update them"), "{error}");
    assert_eq!(layout(&store), 2);
    let guard = client.mutex("kept").lock().await.unwrap();
    assert!(other.mutex("kept").try_lock().await.unwrap().is_none(), "mutexes work");
    drop(life);
    // The other client is of this version, and it could be of that one.
    assert_eq!(client.semaphore("pool", 2).acquire().await.unwrap_err().kind(), ErrorKind::Unsupported);
    other.close().await;
    crate::eventually("nobody else lives", async || client.semaphore("pool", 2).acquire().await.is_ok()).await;
    assert_eq!(layout(&store), 3);
    assert!(guard.is_valid());
}

/// Elections need no other layout: candidates are mutexes, and an observer without notifications looks from time to time.
#[tokio::test]
async fn p27_programs_of_before_keep_no_election_out() {
    let store = of_layout_2();
    std::fs::create_dir(store.path().join("live")).unwrap();
    let _life = UnixListener::bind(store.path().join("live/000000000000000000000000000000aa.life")).unwrap();
    let (client, other) = (store.client().await, store.client().await);
    let mut observer = other.election("e").observe();
    assert_eq!(observer.next().await.unwrap(), None);
    let first = client.election("e").campaign("first").await.unwrap();
    assert_eq!(observer.next().await.unwrap().unwrap().value, "first");
    first.put("renamed").await.unwrap();
    assert_eq!(observer.next().await.unwrap().unwrap().value, "renamed");
    assert_eq!(first.resign().await.unwrap(), leasehold::Released::Released);
    // What needs the new layout is refused, and what asks for it finds nothing.
    let latch = client.latch("l");
    assert_eq!(latch.create(1).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(latch.remaining().await.unwrap_err().kind(), ErrorKind::Absent);
    assert!(!client.condvar("c").notify_one().await.unwrap());
    let guard = client.mutex("m").lock().await.unwrap();
    assert_eq!(client.condvar("c").wait(guard).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(layout(&store), 2);
}

/// Another client has changed the layout since this one has opened the database.
#[tokio::test]
async fn a_client_notices_that_the_layout_has_changed() {
    let store = of_layout_2();
    let path = store.path().join("live/000000000000000000000000000000aa.life");
    std::fs::create_dir(store.path().join("live")).unwrap();
    let life = UnixListener::bind(&path).unwrap();
    let early = store.client().await;
    assert_eq!(early.rw_lock("pool").read().await.unwrap_err().kind(), ErrorKind::Unsupported);
    let reader = early.mutex("other").lock().await.unwrap();
    drop(life);
    std::fs::remove_file(&path).unwrap();
    // The sockets of the first client are gone: nobody finds that it lives.
    for name in std::fs::read_dir(store.path().join("live")).unwrap() {
        std::fs::remove_file(name.unwrap().path()).unwrap();
    }
    let late = store.client().await;
    let writer = late.rw_lock("pool").write().await.unwrap();
    assert_eq!(layout(&store), 3);
    assert!(early.rw_lock("pool").try_read().await.unwrap().is_none(), "it is refused, and not granted");
    assert!(early.mutex("pool").try_lock().await.unwrap_err().kind() == ErrorKind::Mismatch);
    assert!(late.mutex("other").try_lock().await.unwrap().is_none());
    drop((reader, writer));
}

/// A program of layout 2 that has opened the database, and has no session yet, is not noticed. It harms no pool.
#[tokio::test]
async fn a_program_of_before_harms_no_pool() {
    let store = Store::new();
    let client = store.client().await;
    let permit = client.semaphore("pool", 2).acquire().await.unwrap();
    client.latch("latch").create(2).await.unwrap();
    client.latch("latch").count_down().await.unwrap();
    let db = database(&store);
    // It reads a state that it does not know, and refuses the name.
    let state: i64 = db.query_row("SELECT state FROM names WHERE name = 'pool'", [], |row| row.get(0)).unwrap();
    assert!(!(0..=3).contains(&state));
    // It cannot wait, and opens the database again after this error.
    let sql = "INSERT INTO waiters VALUES (1, 2, 3, x'00', 5, 6, 7, 8, 9, 10, 11, 0, 0, '')";
    let error = db.execute(sql, []).unwrap_err();
    assert!(error.to_string().contains("17 columns but 14 values"), "{error}");
    // It removes the row of a pool that is forgotten.
    let count =
        |table: &str| db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((count("pools"), count("grants"), count("latches")), (2, 1, 1));
    db.execute("DELETE FROM names WHERE name IN ('pool', 'latch')", []).unwrap();
    assert_eq!((count("pools"), count("grants"), count("latches")), (0, 0, 0));
    assert_eq!(client.latch("latch").remaining().await.unwrap_err().kind(), ErrorKind::Absent);
    assert_eq!((count("counts"), count("buried")), (1, 1), "steps remove what is left of it");
    drop(permit);
}
