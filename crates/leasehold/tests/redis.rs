//! Errors of a real Redis: the rights that a user needs, no more and no fewer, and each error that a test can provoke
//! in a server. A lock and a fence report the same error in the same way.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::{Duration, Instant};

use leasehold::fence::{Access, RedisFence};
use leasehold::seam::{FENCE_RIGHTS, POOL_RIGHTS, RIGHTS};
use leasehold::{Error, ErrorKind, Guard, Leasehold, Released, Result, Token};
use leasehold_testkit::{RedisServer, Value, wait_until};
use tokio::task::JoinHandle;

/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(20);
const PASSWORD: &str = "hunter2";

/// Creates the user `worker` anew, with these rights.
#[track_caller]
fn set_user(server: &RedisServer, rights: &[&str]) {
    let secret = format!(">{PASSWORD}");
    let whole = [&["ACL", "SETUSER", "worker", "reset", "on", &secret], rights].concat();
    assert_eq!(server.command(&whole), Value::Status("OK".into()), "{rights:?}");
}

fn worker(server: &RedisServer, rest: &str) -> String {
    format!("redis://worker:{PASSWORD}@127.0.0.1:{}{rest}", server.port())
}

async fn refused(url: &str) -> Error {
    let error = Leasehold::connect(url).await.expect_err(url);
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    error
}

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is missing in: {error}");
    }
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.unwrap_or_else(|_| panic!("timed out while waiting for {what}"))
}

async fn await_waiters(client: &Leasehold, waiters: usize) {
    let begun = Instant::now();
    while client.mutex("stock").inspect().await.unwrap().waiters != waiters {
        assert!(begun.elapsed() < LONG, "timed out while waiting for {waiters} waiters");
        tokio::task::yield_now().await;
    }
}

/// Sends every kind of request: with waiters before and behind, and with grants that are left, renewed, revoked,
/// expired and forgotten.
async fn do_everything(server: &RedisServer, url: &str) {
    let connect = || Leasehold::builder(url).lease(Duration::from_secs(3)).connect();
    let (a, b) = (connect().await.unwrap(), connect().await.unwrap());
    let lock = |client: &Leasehold| {
        let mutex = client.mutex("stock").fair(); // with its own entry in the queue
        tokio::spawn(async move { mutex.lock().await })
    };
    let granted = async |waiting: JoinHandle<Result<Guard>>| in_time("the lock", waiting).await.unwrap().unwrap();
    let guard = a.mutex("stock").lock().await.unwrap();
    let first = lock(&b);
    await_waiters(&a, 1).await;
    let leaving = lock(&a);
    await_waiters(&a, 2).await;
    let last = lock(&b);
    await_waiters(&a, 3).await;
    leaving.abort();
    await_waiters(&a, 2).await;
    in_time("a renewal", async {
        let mut left = guard.remaining();
        while guard.remaining() <= left {
            left = guard.remaining();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]), Value::Status("OK".into()));
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = granted(first).await;
    let holder = a.mutex("stock").inspect().await.unwrap().holder().cloned().expect("held");
    a.mutex("stock").revoke(&holder, Duration::ZERO).await.unwrap();
    in_time("the notification of the loss", guard.lost()).await;
    drop((granted(last).await, guard));
    // A lease that is never released, with a waiter behind it.
    std::mem::forget(a.mutex("stock").fixed_lease(Duration::from_millis(200)).lock().await.unwrap());
    assert_eq!(granted(lock(&b)).await.release().await.unwrap(), Released::Released);
    assert!(a.close().await.unconfirmed().is_empty());
    assert!(b.close().await.unconfirmed().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_are_named_are_enough() {
    let server = RedisServer::start();
    let named: Vec<&str> = RIGHTS.split(' ').collect();
    set_user(&server, &[&named[..], &["~app:lh1:*", "&app:lh1:inbox:*"]].concat());
    do_everything(&server, &worker(&server, "/1?prefix=app:")).await;
    // The log also has refusals that a script ignored by `pcall`.
    assert_eq!(server.command(&["ACL", "LOG"]), Value::Array(vec![]), "the server refused a command");

    // SELECT is needed only for a database number.
    let fewer: Vec<&str> = named.iter().copied().filter(|right| *right != "+select").collect();
    set_user(&server, &[&fewer[..], &["~lh1:*", "&lh1:inbox:*"]].concat());
    let client = Leasehold::connect(&worker(&server, "")).await.unwrap();
    assert_eq!(client.mutex("stock").lock().await.unwrap().release().await.unwrap(), Released::Released);
}

/// A user of mutexes needs no right that only names of other kinds need. Their first call names the right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_of_pools_is_named_by_their_first_call() {
    let server = RedisServer::start();
    let named: Vec<&str> = RIGHTS.split(' ').collect();
    set_user(&server, &[&named[..], &["~lh1:*", "&lh1:inbox:*"]].concat());
    let client = Leasehold::connect(&worker(&server, "/1")).await.unwrap();
    assert_eq!(client.mutex("stock").lock().await.unwrap().release().await.unwrap(), Released::Released);
    let says = format!("lacks {POOL_RIGHTS}, which all names but mutexes need");
    for refused in [
        client.rw_lock("prices").try_read().await.map(drop),
        client.rw_lock("prices").write().await.map(drop),
        client.semaphore("database", 2).acquire().await.map(drop),
        client.semaphore("database", 2).resize(3).await.map(drop),
        client.condvar("changed").wait(client.mutex("stock").lock().await.unwrap()).await.map(drop),
        client.latch("parts").create(2).await,
    ] {
        assert_says(&refused.unwrap_err(), ErrorKind::Denied, &[&says]);
    }
    // An observer who may not wait for a change polls.
    let election = client.election("shard").lease(Duration::from_secs(3));
    let mut observer = election.observe();
    assert_eq!(observer.next().await.unwrap(), None);
    let leadership = election.campaign("a").await.unwrap();
    assert_eq!(in_time("the leader", observer.next()).await.unwrap().unwrap().value, "a");
    leadership.put("b").await.unwrap();
    assert_eq!(in_time("its new value", observer.next()).await.unwrap().unwrap().value, "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_pools_are_enough() {
    let server = RedisServer::start();
    let rights: Vec<&str> = RIGHTS.split(' ').chain(POOL_RIGHTS.split(' ')).collect();
    set_user(&server, &[&rights[..], &["~lh1:*", "&lh1:inbox:*"]].concat());
    let client = Leasehold::connect(&worker(&server, "/1")).await.unwrap();
    let lock = client.rw_lock("prices");
    // A lease that ends by time: a later step scans the grants.
    let ended = lock.clone().fixed_lease(Duration::from_millis(300)).read().await.unwrap();
    let reader = lock.upgradeable_read().await.unwrap();
    let writer = in_time("the upgrade", reader.upgrade()).await.unwrap();
    assert!(ended.check().is_err());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await }
    });
    while lock.inspect().await.unwrap().waiters != 1 {
        tokio::task::yield_now().await;
    }
    let reader = writer.downgrade();
    let next = in_time("a reader beside it", waiting).await.unwrap().unwrap();
    drop((reader, ended));
    let holder = in_time("one holder", async {
        loop {
            let seen = lock.inspect().await.unwrap();
            if seen.holder_count == 1 {
                return seen.holder().cloned().unwrap();
            }
        }
    });
    let _revoked = lock.revoke(&holder.await, Duration::ZERO).await.unwrap();
    assert!(in_time("its loss", next.lost()).await.reason().to_string().contains("revoked"));
    let pool = client.semaphore("database", 2);
    pool.resize(3).await.unwrap();
    let permit = client.semaphore("database", 3).acquire_many(3).await.unwrap();
    assert_eq!(permit.release().await.unwrap(), Released::Released);
    let (mutex, changed) = (client.mutex("stock"), client.condvar("stock: changed"));
    let waiting = tokio::spawn({
        let (guard, changed) = (mutex.lock().await.unwrap(), changed.clone());
        async move { changed.wait(guard).await }
    });
    while !changed.notify_one().await.unwrap() {
        tokio::task::yield_now().await;
    }
    drop(in_time("a notification", waiting).await.unwrap().unwrap());
    let latch = client.latch("parts");
    latch.create(1).await.unwrap();
    latch.count_down().await.unwrap();
    in_time("an open latch", latch.wait()).await.unwrap();
    latch.delete().await.unwrap();
    let leadership = client.election("shard").campaign("a").await.unwrap();
    leadership.put("b").await.unwrap();
    assert_eq!(leadership.resign().await.unwrap(), Released::Released);
    // The log also has refusals that a script ignored by `pcall`.
    assert_eq!(server.command(&["ACL", "LOG"]), Value::Array(vec![]), "the server refused a command");
}

/// Every right is necessary. If one is missing, connecting fails before the first lock, and the error names the right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_named_at_once() {
    let server = RedisServer::start();
    let named: Vec<&str> = RIGHTS.split(' ').collect();
    for missing in &named {
        let name = missing.strip_prefix('+').expect("a right to add");
        let rest: Vec<&str> = named.iter().copied().filter(|right| right != missing).collect();
        set_user(&server, &[&rest[..], &["~lh1:*", "&lh1:inbox:*"]].concat());
        let error = refused(&worker(&server, "/1")).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false), "{missing}: {error}");
        let said = error.to_string();
        let is_named = said.contains(&format!("'{name}'")) || said.contains(&format!(" lacks {missing}:"));
        assert!(is_named, "{missing} is not named: {error}");
        assert!(named.iter().all(|right| said.contains(right)), "not all needed rights are named: {error}");
    }
    // Rights that are taken from a user with all rights, several of them at once.
    set_user(&server, &["+@all", "-set", "-hdel", "~*", "&*"]);
    assert_says(&refused(&worker(&server, "")).await, ErrorKind::Denied, &["lacks +set +hdel: grant"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_channels_that_are_missing_are_named() {
    let server = RedisServer::start();
    let named: Vec<&str> = RIGHTS.split(' ').collect();
    set_user(&server, &[&named[..], &["~lh1:*"]].concat());
    let error = refused(&worker(&server, "")).await;
    assert_says(&error, ErrorKind::Denied, &["one of the channels", "&PREFIXlh1:inbox:*"]);

    // Keys of another tenant.
    set_user(&server, &[&named[..], &["~theirs:lh1:*", "&lh1:inbox:*"]].concat());
    let client = Leasehold::connect(&worker(&server, "")).await.unwrap();
    let error = client.mutex("stock").lock().await.unwrap_err();
    assert_says(&error, ErrorKind::Denied, &["one of the keys", "~PREFIXlh1:*"]);

    // Keys for some names only: a holder of these names needs no more.
    set_user(&server, &[&named[..], &["~lh1:{stock*", "&lh1:inbox:*"]].concat());
    do_everything(&server, &worker(&server, "")).await;
    let client = Leasehold::connect(&worker(&server, "")).await.unwrap();
    assert_says(&client.mutex("other").lock().await.unwrap_err(), ErrorKind::Denied, &["one of the keys"]);
}

/// A multi-lock with a name that its user may not write: it fails, and the other name is free again. The user may see the
/// name or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_with_a_forbidden_name_holds_nothing() {
    let server = RedisServer::start();
    let named: Vec<&str> = RIGHTS.split(' ').collect();
    for may_read in [&[][..], &["%R~lh1:{other*"]] {
        set_user(&server, &[&named[..], &["~lh1:{stock*", "&lh1:inbox:*"], may_read].concat());
        let client = Leasehold::connect(&worker(&server, "")).await.unwrap();
        for names in [["stock", "other"], ["other", "stock"]] {
            let all = leasehold::all(names.map(|name| client.mutex(name)));
            let error = in_time("an answer", all.lock()).await.unwrap_err();
            assert_says(&error, ErrorKind::Denied, &["other"]);
            let seen = in_time("an answer", client.mutex("stock").inspect()).await.unwrap();
            assert!(seen.holder().is_none(), "{may_read:?}: {seen:?}");
        }
    }
}

/// A connected user loses a right. A script notices this, and its error has no code of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_right_is_reported_by_the_next_call() {
    let server = RedisServer::start();
    let named: Vec<&str> = RIGHTS.split(' ').collect();
    let all = [&named[..], &["~*", "&lh1:inbox:*"]].concat();
    set_user(&server, &all);
    let client = Leasehold::connect(&worker(&server, "")).await.unwrap();
    server.command(&["ACL", "SETUSER", "worker", "-set"]);
    let error = client.mutex("stock").lock().await.unwrap_err();
    assert_says(&error, ErrorKind::Denied, &["denies a permission to a script", "can't run this command", "+set "]);
    assert!(!error.may_have_acted());
    server.command(&["ACL", "SETUSER", "worker", "+set", "-evalsha"]);
    let error = client.mutex("stock").try_lock().await.unwrap_err();
    assert_says(&error, ErrorKind::Denied, &["NOPERM", "'evalsha'"]);
    server.command(&["ACL", "SETUSER", "worker", "+evalsha"]);
    drop(client.mutex("stock").lock().await.unwrap());
}

#[tokio::test]
async fn the_documents_name_these_rights() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let security = words(include_str!("../../../SECURITY.md"));
    for rights in [RIGHTS, FENCE_RIGHTS] {
        assert!(security.contains(&format!("`{rights}`")), "SECURITY.md does not quote: {rights}");
    }
}

/// A server, and two clients that report its errors.
struct Fixture {
    server: RedisServer,
    client: Leasehold,
    fence: RedisFence,
}

impl Fixture {
    async fn new(server: RedisServer) -> Self {
        let client = Leasehold::connect(&server.url()).await.unwrap();
        let fence = RedisFence::connect(&server.url()).await.unwrap();
        Self { server, client, fence }
    }

    /// Expects that both clients fail with this kind and these words, and that neither request has acted.
    async fn both_fail(&self, kind: ErrorKind, words: &[&str]) {
        let at = format!("127.0.0.1:{}", self.server.port());
        let lock = self.client.mutex("stock").try_lock().await.unwrap_err();
        let token = Token::new(1).expect("a small number");
        let enter = self.fence.set("stock", token, "x").await.unwrap_err();
        assert_says(&lock, kind, words);
        assert_says(&enter, kind, words);
        assert_says(&lock, kind, &[&at]);
        assert_says(&enter, kind, &[&at]);
        assert!(!enter.may_have_acted(), "{enter}");
        if kind == ErrorKind::Unreachable {
            assert!(lock.to_string().contains("retries") && enter.to_string().contains("call again"));
        }
    }

    async fn both_work_again(&self) {
        let guard = in_time("the lock", self.client.mutex("stock").lock()).await.unwrap();
        self.fence.enter("stock", guard.token(), Access::Write).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }

    #[track_caller]
    fn set(&self, directive: &str, value: &str) {
        assert_eq!(
            self.server.command(&["CONFIG", "SET", directive, value]),
            Value::Status("OK".into()),
            "{directive}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory() {
    let fixture = Fixture::new(RedisServer::start()).await;
    fixture.set("maxmemory", "1");
    fixture.both_fail(ErrorKind::Store, &["out of memory", "raise maxmemory", "OOM"]).await;
    fixture.set("maxmemory", "0");
    fixture.both_work_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas() {
    let fixture = Fixture::new(RedisServer::start()).await;
    fixture.set("min-replicas-to-write", "1");
    fixture.both_fail(ErrorKind::Unreachable, &["NOREPLICAS", "min-replicas-to-write"]).await;
    // A waiter keeps waiting, and gets the lock in the end.
    let refusals = || {
        let stats = fixture.server.command(&["INFO", "errorstats"]);
        let of = stats.text().and_then(|stats| stats.split("errorstat_NOREPLICAS:count=").nth(1)?.lines().next());
        of.map_or(0, |count| count.parse().unwrap())
    };
    let before: u64 = refusals();
    let mutex = fixture.client.mutex("waited for");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(drop) });
    wait_until("the request was refused, and repeated", LONG, || refusals() >= before + 2);
    assert!(!waiting.is_finished());
    fixture.set("min-replicas-to-write", "0");
    in_time("the lock", waiting).await.unwrap().unwrap();
    fixture.both_work_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_refuses_writes() {
    let fixture = Fixture::new(RedisServer::start()).await;
    // A directory is in the place of the file.
    let in_the_way = fixture.server.dir().join("dump.rdb");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    fixture.set("save", "3600 1");
    fixture.server.command(&["BGSAVE"]);
    wait_until("the save has failed", LONG, || {
        let info = fixture.server.command(&["INFO", "persistence"]);
        info.text().is_some_and(|info| info.contains("rdb_last_bgsave_status:err"))
    });
    fixture.both_fail(ErrorKind::Store, &["MISCONF", "disk", "log"]).await;
    fixture.set("save", "");
    fixture.both_work_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_its_primary() {
    let fixture = Fixture::new(RedisServer::start()).await;
    fixture.set("replica-serve-stale-data", "no");
    assert_eq!(fixture.server.command(&["REPLICAOF", "127.0.0.1", "1"]), Value::Status("OK".into()));
    let error = fixture.client.mutex("stock").inspect().await.unwrap_err();
    assert_says(&error, ErrorKind::Unreachable, &["MASTERDOWN", "without its primary", "promote", "retries"]);
    // A new connection fails with an instruction, and is not retried.
    let error = refused(&fixture.server.url()).await;
    assert_says(&error, ErrorKind::Unsupported, &["use the address of the primary"]);
    fixture.set("replica-serve-stale-data", "yes");
    fixture.both_fail(ErrorKind::Unreachable, &["READONLY", "replica", "use the address of the primary"]).await;
    assert_eq!(fixture.server.command(&["REPLICAOF", "NO", "ONE"]), Value::Status("OK".into()));
    fixture.both_work_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_script() {
    let fixture = Fixture::new(RedisServer::builder().config("busy-reply-threshold", "50").start()).await;
    let (mut slow, mut killer) = (fixture.server.resp(), fixture.server.resp());
    slow.send(&["EVAL", "while true do end", "0"]).unwrap();
    wait_until(
        "the server is busy",
        LONG,
        || matches!(killer.command(&["GET", "k"]), Value::Error(said) if said.starts_with("BUSY")),
    );
    fixture.both_fail(ErrorKind::Unreachable, &["busy", "SCRIPT KILL"]).await;
    assert_eq!(killer.command(&["SCRIPT", "KILL"]), Value::Status("OK".into()));
    slow.receive().unwrap();
    fixture.both_work_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads() {
    let server = RedisServer::builder().config("enable-debug-command", "yes").start();
    let fixture = Fixture::new(server).await;
    let mut resp = fixture.server.resp();
    for key in 0..200 {
        resp.command(&["SET", &format!("k{key}"), &"x".repeat(2000)]);
    }
    // The server handles other requests after each key.
    fixture.set("rdbcompression", "no");
    fixture.set("key-load-delay", "10000");
    fixture.set("loading-process-events-interval-bytes", "1024");
    resp.send(&["DEBUG", "RELOAD"]).unwrap();
    let mut eye = fixture.server.resp();
    wait_until(
        "the server loads",
        LONG,
        || matches!(eye.command(&["GET", "k"]), Value::Error(said) if said.starts_with("LOADING")),
    );
    let error = refused(&fixture.server.url()).await;
    assert_says(&error, ErrorKind::Unreachable, &["loading its data", "connect again"]);
    fixture.both_fail(ErrorKind::Unreachable, &["loading its data", "INFO persistence"]).await;
    fixture.set("key-load-delay", "0");
    assert_eq!(resp.receive().unwrap(), Value::Status("OK".into()));
    fixture.both_work_again().await;
}

#[tokio::test]
async fn a_database_that_does_not_exist() {
    let server = RedisServer::start();
    let url = format!("{}/99", server.url());
    assert_says(&refused(&url).await, ErrorKind::Invalid, &["no such database", "smaller number"]);
    let fence = RedisFence::connect(&url).await.unwrap_err();
    assert_says(&fence, ErrorKind::Invalid, &["no such database", "smaller number"]);
}

/// A record of our own kind with invalid content: the error says where the record is, and what to do with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_in_the_record() {
    let server = RedisServer::start();
    let mut resp = server.resp();
    let client = Leasehold::connect(&server.url()).await.unwrap();
    drop(client.mutex("stock").lock().await.unwrap().release().await);
    let record = resp.command(&["GET", "lh1:{stock}"]).text().expect("a record").to_owned();
    for (from, to) in [(5, 8), (21, 24), (85, 88), (93, 96)] {
        let mut damaged = record.replacen("lh1F", "lh1H", 1);
        damaged.replace_range(from - 1..to, "????");
        resp.command(&["SET", "lh1:{stock}", &damaged]);
        let client = Leasehold::connect(&server.url()).await.unwrap();
        let error = client.mutex("stock").inspect().await.unwrap_err();
        let words = ["\"lh1:{stock}\"", "look at it with GET", "delete it"];
        assert!(matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Unreachable), "{from}: {error}");
        assert_says(&error, error.kind(), &words);
        assert_eq!(resp.command(&["GET", "lh1:{stock}"]), Value::from(damaged.as_str()), "touched");
    }
}

/// The script reads no more of a record than it needs, and passes damage on. A waiter for that name gets an error and
/// does not retry for ever. No other caller loses a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_in_the_record_ends_a_wait() {
    let server = RedisServer::start();
    let mut resp = server.resp();
    let (theirs, ours) =
        (Leasehold::connect(&server.url()).await.unwrap(), Leasehold::connect(&server.url()).await.unwrap());
    let (_held, other) = (theirs.mutex("stock").lock().await.unwrap(), ours.mutex("other").lock().await.unwrap());
    let waiting = tokio::spawn({
        let mutex = theirs.mutex("stock").fair(); // not in the local queue of its client
        async move { mutex.lock().await }
    });
    let is_queue = |value: &Value| matches!(value.text(), Some(record) if record.len() >= 170);
    wait_until("it is queued", LONG, || is_queue(&resp.command(&["HGET", "lh1:{stock}", "q"])));
    let mut damaged = resp.command(&["HGET", "lh1:{stock}", "r"]).text().expect("a record").to_owned();
    damaged.replace_range(4..8, "????");
    resp.command(&["HSET", "lh1:{stock}", "r", &damaged]);
    let mut connections = || {
        let stats = resp.command(&["INFO", "stats"]).text().expect("text").to_owned();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.expect("a line").to_owned()
    };
    let before = connections();
    let mutex = ours.mutex("stock");
    let error = tokio::time::timeout(LONG, mutex.lock()).await.expect("fixture").unwrap_err();
    assert_says(&error, ErrorKind::Foreign, &["\"lh1:{stock}\"", "look at it with GET", "delete it"]);
    assert_eq!((connections(), error.may_have_acted()), (before, true));
    other.check().unwrap();
    assert_eq!(other.release().await.unwrap(), Released::Released);
    waiting.abort();
}
