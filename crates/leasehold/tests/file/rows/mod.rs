//! Random values in random rows: another program, a person with a shell or a bad disk can write anything into the
//! database. Each call must return, without a panic, with a result or with a clear error. And the other names must stay as
//! they are.
//!
//! `LEASEHOLD_FUZZ_CASES` (default 40) and `LEASEHOLD_FUZZ_SEED` (default 1) select other input.

mod call;
mod change;
mod scene;

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Guard, Leasehold};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rusqlite::{Connection, OptionalExtension};

use self::call::{CALLS, Call, assert_clear};
use self::change::{Change, TABLES, change};
use self::scene::{SCENES, Scene};
use crate::{AT_ONCE, Store, eventually, slow, within};

/// The time limit of each call. A waiting call of this test waits for some milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
struct Case {
    scene: Scene,
    changes: Vec<Change>,
    calls: Vec<(bool, Call)>,
}

fn case() -> impl Strategy<Value = Case> {
    let calls = vec((any::<bool>(), select(CALLS)), 1..6);
    (select(SCENES), vec(change(), 1..4), calls).prop_map(|(scene, changes, calls)| Case { scene, changes, calls })
}

/// The clients, and the locks that no case may touch.
struct World {
    store: Store,
    clients: [Leasehold; 2],
    held: Guard,
    cases: AtomicUsize,
}

impl World {
    async fn new() -> Self {
        let store = Store::new();
        let clients = [store.client().await, store.client().await];
        let held = clients[0].mutex("held").lease(Duration::from_secs(60)).lock().await.unwrap();
        Self { store, clients, held, cases: AtomicUsize::new(0) }
    }

    async fn play(&self, case: &Case) {
        let name = format!("name {}", self.cases.fetch_add(1, Ordering::Relaxed));
        let mut props = case.scene.set(&self.clients, &name).await;
        let db = Connection::open(self.store.path().join("leasehold.db")).unwrap();
        db.busy_timeout(LIMIT).unwrap();
        let id = db.query_row("SELECT id FROM names WHERE name = ?1", [&name], |row| row.get(0)).optional().unwrap();
        let Some(id) = id else { return };
        case.changes.iter().for_each(|change| change.make(&db, id));
        for (is_second, call) in &case.calls {
            let client = &self.clients[usize::from(*is_second)];
            let called = within(LIMIT, &format!("{call:?}"), call.make(client, &name, &mut props)).await;
            if let Err(error) = called {
                assert_clear(&error, *call);
            }
        }
        props.tasks.abort_all();
        while props.tasks.join_next().await.is_some() {}
        drop(props);
        self.check_others().await;
        db.execute("DELETE FROM buried", []).unwrap();
        for (table, column, _) in TABLES.iter().rev() {
            db.execute(&format!("DELETE FROM {table} WHERE {column} = ?1"), [id]).unwrap();
        }
    }

    /// Checks that the locks of other names are still there.
    async fn check_others(&self) {
        assert!(self.held.is_valid(), "another lock was lost");
        let other = &self.clients[1];
        let tried = within(LIMIT, "another name", other.mutex("held").try_lock()).await.unwrap();
        assert!(tried.is_none(), "another lock has two holders");
        let free = within(LIMIT, "a free name", other.mutex("free").try_lock()).await.unwrap().unwrap();
        let _ = within(LIMIT, "its release", free.release()).await.unwrap();
        let names = within(LIMIT, "the list", other.names()).await.unwrap();
        assert!(names.iter().any(|name| name == "held"), "{names:?}");
    }
}

/// Counts the panics of this store, on any thread.
fn count_panics() -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let (counted, before) = (Arc::clone(&count), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        let at = info.location().map_or("", |location| location.file());
        counted.fetch_add(usize::from(at.contains("/src/")), Ordering::SeqCst);
        before(info);
    }));
    count
}

/// Each of these rows has broken something.
#[test]
fn rows_that_have_broken_something_concern_only_their_name() {
    let panics = count_panics();
    let mut broken = Vec::new();
    for (scene, sql, call) in [
        (Scene::Mutex, "UPDATE names SET stamp = 9223372036854775807 WHERE id = ?1", Call::GiveBack),
        (Scene::Mutex, "UPDATE names SET name = CAST(x'ff' AS TEXT) WHERE id = ?1", Call::Names),
        (Scene::Semaphore, "UPDATE grants SET units = 9223372036854775807, end_us = 0 WHERE name = ?1", Call::Inspect),
        (
            Scene::Semaphore,
            "UPDATE grants SET units = -1, end_us = 0 WHERE name = ?1 \
             AND token = (SELECT min(token) FROM grants WHERE name = ?1)",
            Call::Inspect,
        ),
        (Scene::Latch, "INSERT INTO buried SELECT id FROM latches WHERE name = ?1", Call::Delete),
    ] {
        let case = Case { scene, changes: vec![Change::Sql(sql)], calls: vec![(true, call), (true, Call::Inspect)] };
        let before = panics.load(Ordering::SeqCst);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let play = async { World::new().await.play(&case).await };
        let played = panic::catch_unwind(panic::AssertUnwindSafe(|| runtime.block_on(within(3 * LIMIT, sql, play))));
        if played.is_err() || panics.load(Ordering::SeqCst) > before {
            broken.push(sql);
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}

/// The numbers of latches never repeat, but another program can write rows with the next one.
#[tokio::test]
async fn rows_of_no_latch_do_not_count_for_the_next_one() {
    let store = Store::new();
    let client = store.client().await;
    client.latch("one").create(3).await.unwrap();
    client.latch("one").count_down_as("a part").await.unwrap();
    let db = Connection::open(store.path().join("leasehold.db")).unwrap();
    db.execute("INSERT INTO counts SELECT latch + 1, session, counter, nonce FROM counts", []).unwrap();
    db.execute("INSERT INTO buried SELECT id + 1 FROM latches", []).unwrap();
    let next = client.latch("next");
    next.create(3).await.unwrap();
    next.count_down_as("a part").await.unwrap();
    assert_eq!(next.remaining().await.unwrap(), 2);
    let buried = db.query_row("SELECT count(*) FROM buried", [], |row| row.get::<_, i64>(0));
    assert_eq!(buried.unwrap(), 0, "a sweep would take its count-downs away");
}

/// A client that does everything late gets the lock in time, so it has read its message.
#[tokio::test]
async fn an_invalid_name_hides_no_message_about_another_name() {
    let store = Store::new();
    let (client, slow) = (store.client().await, slow::client(&store.url()).await);
    let (good, _bad) = (client.mutex("good").lock().await.unwrap(), client.mutex("bad").lock().await.unwrap());
    let [waiting, _waiting] = ["good", "bad"].map(|name| {
        let mutex = slow.mutex(name);
        tokio::spawn(async move { mutex.lock().await })
    });
    for name in ["good", "bad"] {
        eventually("it waits", async || client.mutex(name).inspect().await.unwrap().waiters == 1).await;
    }
    let bad = client.mutex("bad");
    let holder = bad.inspect().await.unwrap().holder().cloned().unwrap();
    bad.revoke(&holder, Duration::from_secs(5)).await.unwrap();
    let db = Connection::open(store.path().join("leasehold.db")).unwrap();
    let changed = db.execute("UPDATE names SET name = CAST(x'ff' AS TEXT), stamp = stamp + 1 WHERE name = 'bad'", []);
    assert_eq!(changed.unwrap(), 1);
    let _ = good.release().await.unwrap();
    assert!(within(AT_ONCE, "the message", waiting).await.unwrap().unwrap().is_valid());
}

#[test]
fn any_value_in_a_row_concerns_only_its_name() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (seed, cases) = (number("LEASEHOLD_FUZZ_SEED").unwrap_or(1_u64), number("LEASEHOLD_FUZZ_CASES").unwrap_or(40));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let cases = u32::try_from(cases).unwrap();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let panics = count_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let world = runtime.block_on(World::new());
    let played = runner.run(&case(), |case| {
        let before = panics.load(Ordering::SeqCst);
        runtime.block_on(within(3 * LIMIT, "the end of the case", world.play(&case)));
        match panics.load(Ordering::SeqCst) == before {
            true => Ok(()),
            false => Err(TestCaseError::fail("the store panicked")),
        }
    });
    played.unwrap_or_else(|error| panic!("LEASEHOLD_FUZZ_SEED={seed} LEASEHOLD_FUZZ_CASES={cases}: {error}"));
}
