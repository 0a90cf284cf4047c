//! Other contents at the path of a store.

use std::fs;
use std::time::Duration;

use leasehold::{Error, ErrorKind, Leasehold, Woken};
use rusqlite::Connection;

use crate::child::Child;
use crate::{LONG, Store, within};

impl Store {
    fn database(&self) -> Connection {
        Connection::open(self.path().join("leasehold.db")).unwrap()
    }

    async fn refused(&self) -> Error {
        Leasehold::connect(&self.url()).await.unwrap_err()
    }
}

fn assert_error(error: &Error, kind: ErrorKind, what: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

#[tokio::test]
async fn a_foreign_file_is_left_alone() {
    let store = Store::new();
    let text = "not a database at all, but somebody's ".repeat(100);
    fs::write(store.path().join("leasehold.db"), &text).unwrap();
    assert_error(&store.refused().await, ErrorKind::Store, "move the directory away");
    assert_eq!(fs::read_to_string(store.path().join("leasehold.db")).unwrap(), text);
}

#[tokio::test]
async fn another_programs_database_is_left_alone() {
    let store = Store::new();
    store.database().execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (42)").unwrap();
    assert_error(&store.refused().await, ErrorKind::Foreign, "the database of another program");
    let db = store.database();
    assert_eq!(db.query_row("SELECT x FROM theirs", [], |row| row.get::<_, i64>(0)).unwrap(), 42);
    assert_eq!(db.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0)).unwrap(), "delete");
}

#[tokio::test]
async fn a_newer_layout_is_left_alone_and_both_are_named() {
    let store = Store::new();
    store.client().await.close().await;
    store.database().pragma_update(None, "user_version", 7).unwrap();
    let error = store.refused().await;
    assert_error(&error, ErrorKind::Foreign, "layout 7");
    assert_error(&error, ErrorKind::Foreign, "knows layout 3");
}

#[tokio::test]
async fn a_damaged_database_is_reported_and_kept() {
    let store = Store::new();
    let client = store.client().await;
    // Enough for more than one page.
    for n in 0..200 {
        drop(client.mutex(format!("{n}: {}", "x".repeat(200))).try_lock().await.unwrap().unwrap());
    }
    client.close().await;
    store.database().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let path = store.path().join("leasehold.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let error = match Leasehold::connect(&store.url()).await {
        Err(error) => error,
        Ok(client) => client.mutex("x").try_lock().await.unwrap_err(),
    };
    assert_error(&error, ErrorKind::Store, "stop all programs that use it");
    assert_eq!(fs::read(&path).unwrap().len(), bytes.len());
}

/// A backup, or a person with a shell.
#[tokio::test]
async fn a_foreign_transaction_is_reported_and_waited_for() {
    let store = Store::new();
    let client = store.client().await;
    let held = client.mutex("held").lock().await.unwrap();
    let db = store.database();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = within(LONG, "an answer", client.mutex("x").try_lock()).await.unwrap_err();
    assert_error(&error, ErrorKind::Unreachable, "another program has an open transaction");
    let waits = client.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    db.execute_batch("ROLLBACK").unwrap();
    assert!(within(LONG, "the lock", waiting).await.unwrap().unwrap().is_valid());
    // Its links were replaced, and it lived all the time.
    assert!(store.client().await.mutex("held").try_lock().await.unwrap().is_none());
    assert!(held.is_valid());
}

/// An invalid record concerns only its name.
#[tokio::test]
async fn an_invalid_record_concerns_only_its_name() {
    let store = Store::new();
    let client = store.client().await;
    for (number, nonsense) in [
        "last = 9007199254740992",
        "last = -1",
        "state = 7",
        "length_ms = 86400001",
        "since_us = -5",
        "label = NULL",
        "counter = NULL",
        "session = x'00'",
        "waiting = 3",
        "lapsed = 1",
        "released = x'00'",
        "keep_until_us = -1",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("name {number}");
        let guard = client.mutex(&name).lock().await.unwrap();
        let changed = format!("UPDATE names SET {nonsense}, stamp = stamp + 1 WHERE name = ?1");
        assert_eq!(store.database().execute(&changed, [&name]).unwrap(), 1, "{nonsense}");
        let error = within(LONG, nonsense, client.mutex(&name).fair().try_lock()).await.unwrap_err();
        assert_error(&error, ErrorKind::Store, "invalid record");
        drop(guard);
        let another = within(LONG, "another", client.mutex("another").try_lock()).await.unwrap().unwrap();
        // Not by a drop: that is carried out in the background, maybe after the next round's `try_lock`.
        let _ = another.release().await.unwrap();
        store.database().execute("DELETE FROM names WHERE name = ?1", [&name]).unwrap();
    }
}

/// The same for pools. A request finds an invalid row of a grant only if it reads that grant.
#[tokio::test]
async fn an_invalid_row_of_a_pool_concerns_only_its_name() {
    let store = Store::new();
    let client = store.client().await;
    for (number, nonsense) in [
        "pools SET kind = 9",
        "pools SET kind = 0",
        "pools SET units = 0",
        "pools SET units = 1000000",
        "pools SET taken = -1",
        "pools SET taken = 0",
        "pools SET granted = 0",
        "pools SET granted = 2",
        "grants SET state = 7",
        "grants SET session = x'00'",
        "grants SET units = 0",
        "grants SET units = 3",
        "grants SET mode = 2",
        "grants SET mode = 1, instead = x'00'",
        "grants SET length_ms = 86400001",
        "grants SET end_us = end_us + 1",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("name {number}");
        let permit = client.semaphore(&name, 3).acquire().await.unwrap();
        let changed = format!("UPDATE {nonsense} WHERE name = (SELECT id FROM names WHERE name = ?1)");
        assert_eq!(store.database().execute(&changed, [&name]).unwrap(), 1, "{nonsense}");
        let error = within(LONG, nonsense, client.semaphore(&name, 3).inspect()).await.unwrap_err();
        assert_error(&error, ErrorKind::Store, "invalid record");
        drop(permit);
        let another = within(LONG, "another", client.semaphore("another", 1).try_acquire()).await.unwrap().unwrap();
        let _ = another.release().await.unwrap();
        store.database().execute("DELETE FROM names WHERE name = ?1", [&name]).unwrap();
    }
}

/// The same for what a latch has of its own.
#[tokio::test]
async fn an_invalid_row_of_a_latch_concerns_only_its_name() {
    let store = Store::new();
    let client = store.client().await;
    for (number, nonsense) in [
        "UPDATE pools SET units = 0",
        "UPDATE pools SET units = 1",
        "UPDATE latches SET born = -1",
        "UPDATE latches SET counted = 4",
        "UPDATE latches SET counted = -1",
        "UPDATE latches SET keep_ms = 86400001",
        "DELETE FROM latches",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("name {number}");
        let latch = client.latch(&name);
        latch.create(3).await.unwrap();
        latch.count_down().await.unwrap();
        latch.count_down().await.unwrap();
        let changed = format!("{nonsense} WHERE name = (SELECT id FROM names WHERE name = ?1)");
        assert_eq!(store.database().execute(&changed, [&name]).unwrap(), 1, "{nonsense}");
        let error = within(LONG, nonsense, latch.remaining()).await.unwrap_err();
        assert_error(&error, ErrorKind::Store, "invalid record");
        client.latch("another").create(2).await.unwrap();
        store.database().execute("DELETE FROM names WHERE name = ?1", [&name]).unwrap();
    }
}

/// Steps remove forgotten rows from time to time. Until then, such rows count as missing.
#[tokio::test]
async fn forgotten_names_are_not_listed() {
    let store = Store::new();
    let client = store.client().await;
    let held = client.mutex("held").lock().await.unwrap();
    for n in 0..300 {
        let _ = client.mutex(format!("old {n}")).lock().await.unwrap().release().await.unwrap();
    }
    let _ = client.mutex("late").lock().await.unwrap().release().await.unwrap();
    let _ = client.mutex("ahead").lock().await.unwrap().release().await.unwrap();
    let _ = client.semaphore("old pool", 5).acquire().await.unwrap().release().await.unwrap();
    let change = |change: &str| store.database().execute(&format!("UPDATE names SET {change}"), []).unwrap();
    change("stamp = stamp + 1, keep_until_us = 0, last = 1 WHERE name LIKE 'old %'");
    // Only one of the two clocks is far enough.
    change("stamp = stamp + 1, last = 1 WHERE name = 'late'");
    change("stamp = stamp + 1, keep_until_us = 0 WHERE name = 'ahead'");
    let mut names = client.names().await.unwrap();
    names.sort();
    assert_eq!(names, ["ahead", "held", "late"]);
    // The first request after that decides anew what the name is.
    assert!(client.rw_lock("old pool").try_read().await.unwrap().is_some());
    assert!(client.semaphore("old 7", 2).try_acquire().await.unwrap().is_some());
    let _ = held.release().await.unwrap();
}

/// After a restart of the host, all holders are dead, and the clock of leases begins again. Tokens continue.
#[tokio::test]
async fn p27_a_boot_ends_leases_and_keeps_tokens() {
    let store = Store::new();
    let (mut holds, mut waits) = (Child::start(&store.url()), Child::start(&store.url()));
    let token: u64 = holds.ask("lock x 3600", "locked").parse().unwrap();
    waits.send("lock x 3600");
    let client = store.client().await;
    while client.mutex("x").inspect().await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    // The host dies with both. The waiter first, or it would hold.
    waits.kill();
    holds.kill();
    client.close().await;
    let ahead = token + 3_600_000_000;
    store.database().execute("UPDATE names SET last = ?1", [ahead.cast_signed()]).unwrap();
    store.database().execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot'", []).unwrap();
    let next = store.client().await;
    let seen = next.mutex("x").inspect().await.unwrap();
    assert!(seen.holder().is_none() && seen.waiters == 0, "{seen:?}");
    let after = within(LONG, "it is free", next.mutex("x").try_lock()).await.unwrap().unwrap();
    assert!(after.token().get() > ahead, "tokens grow over a boot, also behind a clock that was set back");
}

/// A pool keeps its kind and its number over a boot, and its tokens, but no holder and no waiter.
#[tokio::test]
async fn p27_a_boot_ends_the_grants_of_a_pool() {
    let store = Store::new();
    let mut holds = Child::start(&store.url());
    holds.ask("permits x 3 3600", "acquired");
    holds.kill();
    let db = store.database();
    let last: i64 = db.query_row("SELECT last FROM names", [], |row| row.get(0)).unwrap();
    db.execute("UPDATE names SET last = last + 3600000000", []).unwrap();
    db.execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot'", []).unwrap();
    let client = store.client().await;
    let error = client.semaphore("x", 4).try_acquire().await.unwrap_err();
    assert_error(&error, ErrorKind::Mismatch, "3");
    assert!(client.semaphore("x", 3).inspect().await.unwrap().holder().is_none());
    let permit = within(LONG, "all are free", client.semaphore("x", 3).try_acquire_many(3)).await.unwrap().unwrap();
    assert!(permit.token().get() > last.unsigned_abs() + 3_600_000_000);
}

/// Over a boot, a condition variable keeps no notification. A latch is gone: nobody knows who has counted it down.
#[tokio::test]
async fn p27_a_boot_ends_notifications_and_latches() {
    let store = Store::new();
    let client = store.client().await;
    let mut waits = Child::start(&store.url());
    waits.ask("wait at c m", "waits");
    crate::eventually("it waits", async || client.mutex("c").inspect().await.unwrap().waiters == 1).await;
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(client.condvar("c").notify_one().await.unwrap());
    client.latch("l").create(3).await.unwrap();
    client.latch("l").count_down_as("a part").await.unwrap();
    waits.kill();
    drop(guard);
    client.close().await;
    let db = store.database();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((count("SELECT count(*) FROM grants"), count("SELECT count(*) FROM counts")), (1, 1));
    db.execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot'", []).unwrap();
    let client = store.client().await;
    assert_eq!((count("SELECT count(*) FROM grants"), count("SELECT count(*) FROM counts")), (0, 0));
    let latch = client.latch("l");
    assert_eq!(latch.remaining().await.unwrap_err().kind(), ErrorKind::Absent);
    latch.create(2).await.unwrap();
    latch.count_down_as("a part").await.unwrap();
    assert_eq!(latch.remaining().await.unwrap(), 1);
    let (guard, condvar) = (client.mutex("m").lock().await.unwrap(), client.condvar("c"));
    let asleep = condvar.wait_for(guard, Duration::from_millis(50));
    let (_guard, woken) = within(LONG, "its end", asleep).await.unwrap();
    assert_eq!(woken, Woken::TimedOut, "no notification is left");
}

/// A session may have handed the lease on locally, up to the last token of its range, and the clock may have been set back
/// since then.
#[tokio::test]
async fn p19_a_boot_burns_what_a_holder_had_reserved() {
    let store = Store::new();
    let mut holds = Child::start(&store.url());
    let token: u64 = holds.ask("lock x 3600", "locked").parse().unwrap();
    holds.kill();
    let ahead = token + 3_600_000_000;
    let db = store.database();
    let range: i64 = db.query_row("SELECT range FROM names", [], |row| row.get(0)).unwrap();
    assert!(range > 1, "it may be handed on");
    db.execute("UPDATE names SET last = ?1, token = ?1", [ahead.cast_signed()]).unwrap();
    db.execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot'", []).unwrap();
    let client = store.client().await;
    let after = within(LONG, "it is free", client.mutex("x").try_lock()).await.unwrap().unwrap();
    assert!(after.token().get() >= ahead + range.unsigned_abs(), "{} of {ahead} and {range}", after.token());
}

/// A database from an earlier boot: leases that end in its future block nobody.
#[tokio::test]
async fn p27_leases_count_on_the_boot_clock() {
    let store = Store::new();
    let client = store.client().await;
    let guard = client.mutex("x").lock().await.unwrap();
    let since: i64 = store.database().query_row("SELECT since_us FROM names", [], |row| row.get(0)).unwrap();
    let now_us = leasehold_testkit::boottime_us();
    assert!(since.cast_unsigned().abs_diff(now_us) < 60_000_000, "{since} is no time since boot: it is {now_us}");
    drop(guard);
}

/// While a machine sleeps, one clock goes on, and the other does not. A time namespace has the same effect.
#[tokio::test]
async fn p12_the_clock_of_leases_runs_while_the_machine_sleeps() {
    let store = Store::new();
    let slept = ["unshare", "--time", "--boottime", "5000", "--monotonic", "0", "--fork", "--kill-child"];
    let mut child = Child::start_by(&store.url(), &slept);
    child.reads("ready");
    let ours = leasehold::seam::Real::world().now_us();
    let theirs: u64 = child.ask("now", "now").parse().unwrap();
    assert!(theirs >= ours + 5_000_000_000, "{theirs} in there, and {ours} here");
}
