//! Many requests in one script (P53), on a real Redis. Each test sends some requests at the same time: all futures are
//! polled before the driver of the connection runs. The first three go alone, because fewer than three others are in
//! flight, and the others join one batch.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold::seam::{Fault, Link, Pending, RIGHTS, Real, RedisStore, Script, Store};
use leasehold::{Leasehold, Released};
use leasehold_spec::{
    Acquire, Answer, Contention, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, SessionId, Take, Token, Was,
};
use leasehold_testkit::{Random, RedisServer, Value};
use tokio::time::timeout;

/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(20);
/// So many requests are sent alone before others join a batch.
const ALONE: usize = 3;

type Reply = Result<Answer, Fault>;

struct Harness {
    server: RedisServer,
    link: Arc<dyn Link>,
    now_us: u64,
}

impl Harness {
    async fn new() -> Self {
        let server = RedisServer::start();
        let url = server.url();
        Self::open(server, &url).await
    }

    async fn open(server: RedisServer, url: &str) -> Self {
        let link = RedisStore::new(url, Real::world()).unwrap().open().await.unwrap();
        let now_us = link.ping().await.unwrap();
        Self { server, link, now_us }
    }

    fn ask(&self, name: &str, op: &Op) -> Pending<Reply> {
        self.link.apply(&Name::new(name).unwrap(), op, Contention::None.into())
    }

    async fn one(&self, name: &str, op: &Op) -> Outcome {
        timeout(LONG, self.ask(name, op)).await.unwrap().unwrap().outcome
    }

    /// Sends these at the same time, behind three others, and returns their replies.
    async fn together(&self, asked: &[(&str, Op)]) -> Vec<Reply> {
        let mut asking: Vec<_> =
            (0..ALONE).map(|number| self.ask(&format!("alone-{number}"), &self.acquire(900 + number as u64))).collect();
        asking.extend(asked.iter().map(|(name, op)| self.ask(name, op)));
        all(asking).await.split_off(ALONE)
    }

    /// Asks for n-0 to n-5. The last three requests have joined a batch that is not sent yet.
    async fn six_joined(&self) -> Vec<Pending<Reply>> {
        let mut asking: Vec<_> =
            (0..6).map(|number| self.ask(&format!("n-{number}"), &self.acquire(number + 1))).collect();
        poll_fn(|context| {
            asking.iter_mut().for_each(|asking| assert!(asking.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        asking
    }

    fn acquire(&self, counter: u64) -> Op {
        Op::Acquire(Acquire {
            id: id(counter),
            take: Take::MUTEX,
            lease_ms: 30_000,
            not_after_us: self.now_us + 3_600_000_000,
            patience: Patience::Try,
            label: "host/job".into(),
            range: 1,
        })
    }

    /// Returns how many scripts the server has run by their digests.
    fn scripts_run(&self) -> u64 {
        let Value::Bulk(text) = self.server.command(&["INFO", "commandstats"]) else { panic!("no INFO") };
        let text = String::from_utf8(text).unwrap();
        let calls = text.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest.split(',').next().unwrap());
        calls.parse().unwrap()
    }

    fn command(&self, words: &[&str]) {
        assert_eq!(self.server.command(words), Value::Status("OK".into()), "{words:?}");
    }
}

fn id(counter: u64) -> GrantId {
    GrantId { session: SessionId(7), counter, nonce: counter }
}

fn release(counter: u64, reply: &Reply) -> Op {
    let token = token(reply);
    Op::Release { id: id(counter), token, used: token }
}

#[track_caller]
fn token(reply: &Reply) -> Token {
    match &reply.as_ref().unwrap().outcome {
        Outcome::Granted { token, .. } => *token,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn assert_granted<'a>(replies: impl IntoIterator<Item = &'a Reply>) {
    for reply in replies {
        assert!(token(reply) > Token::NONE);
    }
}

/// Polls all in their order, and returns the replies.
async fn all(asking: Vec<Pending<Reply>>) -> Vec<Reply> {
    let mut asking: Vec<_> = asking.into_iter().map(|asking| (Some(asking), None)).collect();
    let done = poll_fn(|context| {
        for (asking, reply) in &mut asking {
            if let Some(Poll::Ready(ready)) = asking.as_mut().map(|asking| asking.as_mut().poll(context)) {
                (*asking, *reply) = (None, Some(ready));
            }
        }
        if asking.iter().all(|(asking, _)| asking.is_none()) { Poll::Ready(()) } else { Poll::Pending }
    });
    timeout(LONG, done).await.unwrap();
    asking.into_iter().map(|(_, reply)| reply.unwrap()).collect()
}

/// Nothing waits for a crowd that does not come.
#[tokio::test]
async fn a_request_that_is_alone_is_sent_by_its_own_script() {
    let harness = Harness::new().await;
    harness.command(&["SCRIPT", "FLUSH"]);
    assert!(matches!(harness.one("a", &harness.acquire(1)).await, Outcome::Granted { .. }));
    let known = harness.server.command(&["SCRIPT", "EXISTS", Script::Acquire.sha(), Script::Many.sha()]);
    assert_eq!(known, Value::Array(vec![Value::Int(1), Value::Int(0)]));
}

#[tokio::test]
async fn a_script_has_at_most_sixteen_names() {
    let harness = Harness::new().await;
    let names: Vec<String> = (0..40).map(|number| format!("n-{number}")).collect();
    let asked: Vec<_> = (1..).zip(&names).map(|(counter, name)| (&**name, harness.acquire(counter))).collect();
    let before = harness.scripts_run();
    let granted = harness.together(&asked).await;
    assert_eq!(harness.scripts_run() - before, ALONE as u64 + 3);
    let releases: Vec<_> =
        (1..).zip(&names).zip(&granted).map(|((counter, name), reply)| (&**name, release(counter, reply))).collect();
    for reply in harness.together(&releases).await {
        assert_eq!(reply.unwrap().outcome, Outcome::Released);
    }
}

#[tokio::test]
async fn p53_a_free_record_that_is_cut_short_is_refused_alone_and_in_a_batch() {
    let harness = Harness::new().await;
    harness.command(&["SET", "lh1:{a}", "lh1F0000000000000001"]);
    assert!(timeout(LONG, harness.ask("a", &harness.acquire(1))).await.unwrap().is_err());
    let replies = harness.together(&[("a", harness.acquire(2)), ("b", harness.acquire(3))]).await;
    assert!(replies[0].is_err());
    assert_granted(&replies[1..]);
}

#[tokio::test]
async fn p53_requests_of_one_name_keep_their_order() {
    let harness = Harness::new().await;
    let first = timeout(LONG, harness.ask("a", &harness.acquire(1))).await.unwrap();
    let asked = [("a", release(1, &first)), ("a", harness.acquire(2)), ("b", harness.acquire(3))];
    let before = harness.scripts_run();
    let replies = harness.together(&asked).await;
    assert_eq!(harness.scripts_run() - before, ALONE as u64 + 1, "one script");
    assert_eq!(replies[0].as_ref().unwrap().outcome, Outcome::Released);
    assert!(token(&replies[1]) > token(&first));
    assert_granted(&replies[2..]);
}

/// A leave is sent alone. It must not come before the acquire that it ends.
#[tokio::test]
async fn p53_another_request_comes_behind_the_batch() {
    let harness = Harness::new().await;
    let leave = Op::Leave { id: id(1), used: Token::NONE };
    let replies = harness.together(&[("a", harness.acquire(1)), ("a", leave)]).await;
    assert_granted(&replies[..1]);
    assert_eq!(replies[1].as_ref().unwrap().outcome, Outcome::Left { was: Was::Granted });
}

#[tokio::test]
async fn p53_a_request_that_was_given_up_before_it_was_sent_is_not_sent() {
    let harness = Harness::new().await;
    let mut asking = harness.six_joined().await;
    drop(asking.remove(4));
    assert_granted(&all(asking).await);
    let Outcome::Inspected(seen) = harness.one("n-4", &Op::Inspect).await else { panic!("it inspects") };
    assert_eq!(seen.grants, 0);
}

/// The server has forgotten the script, and the caller is gone when the batch is refused. If the request were repeated, its
/// grant would belong to nobody.
#[tokio::test]
async fn p53_a_request_that_was_given_up_is_not_repeated() {
    let harness = Harness::new().await;
    harness.command(&["SCRIPT", "FLUSH"]);
    let mut asking = harness.six_joined().await;
    // The driver sends the batch.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    drop(asking.remove(4));
    assert_granted(&all(asking).await);
    let Outcome::Inspected(seen) = harness.one("n-4", &Op::Inspect).await else { panic!("it inspects") };
    assert_eq!(seen.grants, 0);
}

#[tokio::test]
async fn p8_a_batch_makes_the_server_know_its_script_again() {
    let harness = Harness::new().await;
    harness.command(&["SCRIPT", "FLUSH"]);
    assert_granted(&harness.together(&[("a", harness.acquire(1)), ("b", harness.acquire(2))]).await);
    let known = harness.server.command(&["SCRIPT", "EXISTS", Script::Many.sha()]);
    assert_eq!(known, Value::Array(vec![Value::Int(1)]));
}

/// The script of a batch needs memory, for the sake of its acquires. Releases work on a full store all the same.
#[tokio::test]
async fn p8_a_full_memory_refuses_the_acquires_of_a_batch_and_no_release() {
    let harness = Harness::new().await;
    let held = harness.together(&[("a", harness.acquire(1)), ("b", harness.acquire(2))]).await;
    harness.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let asked = [
        ("c", harness.acquire(3)),
        ("a", release(1, &held[0])),
        ("d", harness.acquire(4)),
        ("b", release(2, &held[1])),
    ];
    let replies = harness.together(&asked).await;
    for number in [0, 2] {
        assert!(matches!(replies[number], Err(Fault::NoMemory(_))), "{:?}", replies[number]);
    }
    for number in [1, 3] {
        assert_eq!(replies[number].as_ref().unwrap().outcome, Outcome::Released);
    }
}

/// A key of another program, a record of a later version, a record with a queue, a late request and a held lock.
#[tokio::test]
async fn p53_each_name_has_its_own_reply() {
    let harness = Harness::new().await;
    assert_eq!(harness.server.command(&["RPUSH", "lh1:{list}", "x"]), Value::Int(1));
    harness.command(&["SET", "lh1:{newer}", "lh2 something"]);
    harness.one("held", &harness.acquire(50)).await;
    let Op::Acquire(acquire) = harness.acquire(51) else { unreachable!() };
    let place = Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Polls, order: Order::Strict };
    harness.one("held", &Op::Acquire(Acquire { patience: Patience::Queue(place), ..acquire.clone() })).await;
    let late = Op::Acquire(Acquire { id: id(6), not_after_us: harness.now_us - 1, ..acquire });
    let asked = [
        ("list", harness.acquire(1)),
        ("a", harness.acquire(2)),
        ("newer", harness.acquire(3)),
        ("b", harness.acquire(4)),
        ("held", harness.acquire(5)),
        ("c", late),
        ("d", harness.acquire(7)),
    ];
    let before = harness.scripts_run();
    let replies = harness.together(&asked).await;
    assert_eq!(harness.scripts_run() - before, ALONE as u64 + 1, "one script");
    assert_granted([1, 3, 6].map(|number: usize| &replies[number]));
    for (number, words) in [(0, "list"), (2, "layout 2")] {
        let Err(Fault::Refused(error)) = &replies[number] else { panic!("{:?}", replies[number]) };
        assert!(error.to_string().contains(words), "{error}");
    }
    let held = replies[4].as_ref().unwrap();
    assert!(matches!(held.outcome, Outcome::Busy { .. }) && held.contention == Contention::Strict, "{held:?}");
    assert_eq!(replies[5].as_ref().unwrap().outcome, Outcome::Late);
}

/// The server refuses a script that names one forbidden key, before it begins. A key that may be read and not written ends
/// only its own part.
#[tokio::test]
async fn p53_a_forbidden_key_concerns_only_its_own_name() {
    let server = RedisServer::start();
    let rights: Vec<&str> = RIGHTS.split(' ').collect();
    let user = ["ACL", "SETUSER", "worker", "on", ">secret", "~lh1:{a*", "~lh1:{n*", "&lh1:*", "%R~lh1:{read*"];
    assert_eq!(server.command(&[&user[..], &rights].concat()), Value::Status("OK".into()));
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let harness = Harness::open(server, &url).await;
    for name in ["x", "read"] {
        let asked = [("n-1", harness.acquire(1)), (name, harness.acquire(2)), ("n-2", harness.acquire(3))];
        let replies = harness.together(&asked).await;
        let Err(Fault::Refused(error)) = &replies[1] else { panic!("{name}: {:?}", replies[1]) };
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_granted([0, 2].map(|number: usize| &replies[number]));
    }
}

#[tokio::test]
async fn p53_a_broken_link_ends_every_request_of_a_batch() {
    let harness = Harness::new().await;
    let names: Vec<String> = (0..20).map(|number| format!("n-{number}")).collect();
    let asked: Vec<_> = (1..).zip(&names).map(|(counter, name)| (&**name, harness.acquire(counter))).collect();
    harness.link.close();
    for reply in harness.together(&asked).await {
        assert!(matches!(reply, Err(Fault::Gone(_))), "{reply:?}");
    }
}

/// Two clients with 64 tasks each, some of which give up. Nobody else may hold the lock meanwhile, tokens grow, and nobody
/// waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p53_batches_keep_exclusion_and_the_order_of_tokens() {
    let server = RedisServer::start();
    for names in [500, 40] {
        let scripts_before = server.command(&["INFO", "commandstats"]);
        let held: Arc<Vec<Mutex<(bool, u64)>>> = Arc::new((0..names).map(|_| Mutex::default()).collect());
        let ends = Instant::now() + Duration::from_millis(1_500);
        let mut tasks = Vec::new();
        for client_number in 0..2 {
            let client = Leasehold::connect(&server.url()).await.unwrap();
            for task in 0..64 {
                let (client, held) = (client.clone(), Arc::clone(&held));
                let mut random = Random::new(client_number * 64 + task + 1);
                tasks.push(tokio::spawn(async move {
                    let mut sections = 0_u64;
                    while Instant::now() < ends {
                        let at = random.index(held.len());
                        let mutex = client.mutex(format!("n-{at}"));
                        let locking = mutex.lock();
                        let guard = if random.chance(6) {
                            let patience = Duration::from_micros(random.below(1_000));
                            let Ok(guard) = timeout(patience, locking).await else { continue };
                            guard.unwrap()
                        } else {
                            locking.await.unwrap()
                        };
                        let token = guard.token().get();
                        {
                            let mut state = held[at].lock().unwrap();
                            assert!(!state.0, "two hold n-{at}");
                            assert!(state.1 < token, "the tokens of n-{at} fell from {} to {token}", state.1);
                            *state = (true, token);
                        }
                        if random.chance(25) {
                            tokio::task::yield_now().await;
                        }
                        held[at].lock().unwrap().0 = false;
                        if random.chance(50) {
                            assert_eq!(guard.release().await.unwrap(), Released::Released);
                        } else {
                            drop(guard);
                        }
                        sections += 1;
                    }
                    sections
                }));
            }
        }
        let mut sections = 0;
        for task in tasks {
            sections += timeout(LONG, task).await.expect("a task waits for ever").unwrap();
        }
        let calls = |stats: &Value| {
            let Value::Bulk(text) = stats else { panic!("no INFO") };
            let text = String::from_utf8_lossy(text).into_owned();
            let calls =
                text.split_once("cmdstat_evalsha:calls=").map(|(_, rest)| rest.split(',').next().unwrap().to_owned());
            calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
        };
        let scripts = calls(&server.command(&["INFO", "commandstats"])) - calls(&scripts_before);
        println!("{names} names: {sections} sections in {scripts} scripts");
        assert!(sections > 0 && scripts < 2 * sections, "no batches: {sections} sections in {scripts} scripts");
    }
}
