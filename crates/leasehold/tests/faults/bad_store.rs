//! Data of other programs under our names, and invalid replies of a server.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::proxy::Fault;
use leasehold_testkit::{RedisServer, Resp, Value};

use crate::common::{
    Harness, KEY, LATE, LONG, NAME, PROMPT, assert_kept, await_waiters, client, granted, join, lock, script, within,
};

const LEASE: Duration = Duration::from_secs(30);

/// An acquire that no client of ours sent, as an entry in the queue.
pub(crate) struct Forged {
    pub(crate) session: String,
    pub(crate) counter: u64,
    pub(crate) claim_ms: u64,
    pub(crate) label: &'static str,
}

impl Forged {
    pub(crate) fn send(&self, resp: &mut Resp) {
        let id = format!("{}{:016x}{:016x}", self.session, self.counter, 0x5eed);
        let place = format!("{:08}Lr", self.claim_ms);
        let label = format!("00000001{:03}{}", self.label.len(), self.label);
        let late = "9".repeat(16);
        let sha = Script::Acquire.sha();
        resp.send(&["EVALSHA", sha, "1", KEY, &id, "00030000", &label, &late, "90000", &place, "", "c"]).unwrap();
    }

    pub(crate) fn acquire(&self, resp: &mut Resp) -> Value {
        self.send(resp);
        resp.receive().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_keys_are_left_alone() {
    let server = RedisServer::start();
    let client = client(&server.url(), LEASE).await;
    let mut resp = server.resp();
    let long = "x".repeat(200);
    let foreign: [&[&str]; 9] = [
        &["SET", KEY, "theirs"],
        &["SET", KEY, ""],
        &["SET", KEY, &long],
        &["SET", KEY, "42"],
        &["RPUSH", KEY, "theirs"],
        &["SADD", KEY, "theirs"],
        &["ZADD", KEY, "1", "theirs"],
        &["HSET", KEY, "theirs", "1"],
        &["XADD", KEY, "*", "theirs", "1"],
    ];
    for command in foreign {
        resp.command(&["DEL", KEY]);
        assert!(!matches!(resp.command(command), Value::Error(_)), "{command:?}");
        let before = resp.command(&["DUMP", KEY]);
        let mutex = client.mutex(NAME);
        for error in [
            mutex.lock().await.unwrap_err(),
            mutex.try_lock().await.unwrap_err(),
            mutex.try_lock_for(PROMPT).await.unwrap_err(),
            mutex.inspect().await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Foreign, false), "{command:?}: {error}");
            assert!(error.to_string().contains(KEY), "{command:?}: {error}");
        }
        assert_eq!(resp.command(&["DUMP", KEY]), before, "{command:?}: touched");
        assert_eq!(resp.command(&["PTTL", KEY]), Value::Int(-1), "{command:?}: given an end");
    }
}

/// Another program overwrites our key while we hold. The holder is notified of the loss, the data of the other program
/// stays, and nothing retries in a busy loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_key_in_the_place_of_a_held_one() {
    let (harness, lease) = (Harness::new(), Duration::from_millis(1200));
    let (client, other) = (harness.through(lease).await, harness.through(lease).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    harness.server.command(&["SET", KEY, "theirs"]);
    let error = within(lease, "an error", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign);
    within(lease, "the notification of the loss", guard.lost()).await;
    let asked = harness.proxy.seen().count("EVALSHA");
    assert!(asked < 100, "{asked} requests");
    drop(guard);
    tokio::time::sleep(lease).await;
    assert_eq!(harness.server.command(&["GET", KEY]), Value::from("theirs"));
    let asked = harness.proxy.seen().count("EVALSHA");
    assert!(asked < 100, "{asked} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_layout_is_left_alone() {
    let server = RedisServer::start();
    let (client, mut resp) = (client(&server.url(), LEASE).await, server.resp());
    drop(client.mutex(NAME).lock().await.unwrap().release().await);
    let ours = resp.command(&["GET", KEY]).text().expect("a string").to_owned();
    let newer = ours.replacen("lh1", "lh2", 1);
    for command in [["SET", KEY, &newer].as_slice(), &["HSET", KEY, "r", &newer, "q", "whatever"]] {
        resp.command(&["DEL", KEY]);
        resp.command(command);
        let before = resp.command(&["DUMP", KEY]);
        for error in [
            client.mutex(NAME).lock().await.unwrap_err(),
            client.mutex(NAME).try_lock().await.unwrap_err(),
            client.mutex(NAME).inspect().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
            let said = error.to_string();
            assert!(said.contains("layout 2") && said.contains("layout 1"), "{said}");
        }
        assert_eq!(resp.command(&["DUMP", KEY]), before);
    }
}

/// A script of another program blocks the server, and is killed. The holder keeps its lock. Other callers get the lock
/// or an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_script_killed() {
    let (harness, lease) =
        (Harness::with(RedisServer::builder().config("busy-reply-threshold", "100").start()), Duration::from_secs(4));
    let (client, other) = (harness.through(lease).await, harness.through(lease).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    let (mut slow, mut killer) = (harness.server.resp(), harness.server.resp());
    slow.send(&["EVAL", "while true do end", "0"]).unwrap();
    let begun = Instant::now();
    while !matches!(killer.command(&["GET", "k"]), Value::Error(said) if said.starts_with("BUSY")) {
        assert!(begun.elapsed() < LONG);
    }
    let asked = harness.proxy.seen().count("EVALSHA");
    let error = client.mutex("b").try_lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("busy"), "{error}");
    let new = lock(&other, "c");
    assert_kept(&guard, lease / 2).await;
    let asked = harness.proxy.seen().count("EVALSHA") - asked;
    assert!(asked < 100, "a busy server gets few requests: {asked}");
    assert_eq!(killer.command(&["SCRIPT", "KILL"]), Value::Status("OK".into()));
    let killed = slow.receive().unwrap();
    assert!(matches!(&killed, Value::Error(said) if said.contains("SCRIPT KILL")), "{killed:?}");
    drop(granted(Duration::from_secs(1) + PROMPT, new).await);
    assert_kept(&guard, lease).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
}

/// Replies that are not RESP, and valid replies that make no sense. The client believes none of them. It gives the
/// connection up, unless one of our scripts began the reply, and repeats the requests that may be repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_from_the_server() {
    let nonsense: [&str; 8] = [
        "\u{7}what\r\n",
        "$5\r\nhello\r\n",
        "$4\r\n\u{ff}\u{ff}\r\n",
        ":7\r\n",
        "_\r\n",
        "*1\r\n$1\r\nx\r\n",
        "$33\r\nGRANTED 9999999999999999 1 N D - \r\n",
        "$17\r\n99999999999999999\r\n",
    ];
    let told: Vec<_> = nonsense.into_iter().map(|bytes| tokio::spawn(lied_to(bytes))).collect();
    for told in told {
        within(LONG, "one of them", told).await.unwrap();
    }
}

async fn lied_to(bytes: &'static str) {
    let (harness, lease) = (Harness::new(), Duration::from_millis(1500));
    let (client, other) = (harness.through(lease).await, harness.beside(LEASE).await);
    let lie = |requests| harness.proxy.inject(Fault::replace_reply(requests, bytes).once());
    let lied = lie(script(Script::Acquire));
    let guard = within(LONG, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert_eq!(lied.hits(), 1, "{bytes:?}");
    let holder = other.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("held");
    assert_eq!(holder.token, guard.token());
    let lied = lie(script(Script::Renew));
    assert_kept(&guard, 2 * lease).await;
    assert_eq!(lied.hits(), 1, "{bytes:?}");
    let lied = lie(script(Script::Release));
    assert_eq!(within(LONG, "an answer", guard.release()).await.unwrap(), Released::Released, "{bytes:?}");
    assert_eq!(lied.hits(), 1, "{bytes:?}");
    let guard = within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let lied = lie(script(Script::Acquire));
    let error = client.mutex(NAME).try_lock().await.unwrap_err();
    // If one of our scripts began the reply, only the record is damaged.
    let kind = if bytes.contains("GRANTED") { ErrorKind::Foreign } else { ErrorKind::Unreachable };
    assert_eq!((error.kind(), error.may_have_acted(), lied.hits()), (kind, true, 1), "{error}");
    drop(within(LATE + PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

/// Any program may publish to an inbox. An invalid message causes a re-check, and a grant that was never requested is
/// not believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_in_the_inbox() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let kept = client.mutex("b").lock().await.unwrap();
    let session = harness.server.command(&["GET", "lh1:{b}"]).text().expect("a record")[20..52].to_owned();
    let waiting = join(&client, NAME, 1).await;
    let entries = harness.server.command(&["HKEYS", KEY]);
    let id =
        entries.items().unwrap().iter().find_map(|key| key.text()?.strip_prefix('e')).expect("an entry").to_owned();
    let now = "1".repeat(16);
    let forged = format!("{}{:016x}", &id[..48], 1);
    let high = "8".repeat(16);
    let looks = harness.calls(Script::Acquire).len();
    for message in [
        String::new(),
        "hello".to_owned(),
        "\u{fffd}\0\r\n".to_owned(),
        format!("lh1 G {forged} {high} 30000000 {now} N D {KEY}"),
        format!("lh1 G {id} 0 30000000 {now} N D {KEY}"),
        format!("lh1 G {id} {high} 30000000 {now} N D"),
        format!("lh1 G {id} 99999999999999999 30000000 {now} N D {KEY}"),
        format!("lh2 G {id} {high} 30000000 {now} N D {KEY}"),
    ] {
        let inbox = format!("lh1:inbox:{session}");
        assert_eq!(harness.server.command(&["PUBLISH", &inbox, &message]), Value::Int(1));
    }
    let begun = Instant::now();
    while harness.calls(Script::Acquire).len() == looks {
        assert!(begun.elapsed() < PROMPT, "it looks");
        tokio::task::yield_now().await;
    }
    await_waiters(&other, NAME, 1).await;
    assert!(!waiting.is_finished(), "a forged grant was believed");
    kept.check().unwrap();
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
}
