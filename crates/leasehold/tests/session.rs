//! The session against a store that answers when, what and in the order that a test wants: schedules that a real server
//! shows once in a million runs. `scripts/mutants` breaks a rule and sees its test here fail.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use leasehold::seam::{Address, Fault, Inbox, Link, Message, Pending, Real, Socket, Store, World};
use leasehold::{Guard, Leasehold, Lost, Released};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Event, GrantId, Joined, Name, Op, Outcome, Patience, Renew, Rest, SessionId,
    Token, Was,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const MS: u64 = 1000;
/// The server's clock shows this much more than ours.
const AHEAD_US: u64 = 1_000_000_000_000;

/// A request that waits for the test's answer.
struct Asked {
    link: usize,
    op: Op,
    reply: oneshot::Sender<Result<Answer, Fault>>,
}

/// What happens when a link is asked for, on the stack of whoever asks.
type OnOpen = Box<dyn FnOnce() + Send>;

struct Scripted {
    requests: mpsc::UnboundedSender<Asked>,
    on_open: Mutex<Option<OnOpen>>,
    links: Mutex<Vec<Arc<Line>>>,
    run: Mutex<String>,
    ahead_us: AtomicU64,
    may_attach: AtomicBool,
    opened: AtomicUsize,
}

struct Line {
    number: usize,
    store: Arc<Scripted>,
    run: String,
    closed: AtomicBool,
    inbox: Mutex<Option<Inbox>>,
}

struct Shop(Arc<Scripted>);

impl Store for Shop {
    fn open(&self) -> Pending<leasehold::Result<Arc<dyn Link>>> {
        let store = Arc::clone(&self.0);
        let on_open = store.on_open.lock().unwrap().take();
        on_open.into_iter().for_each(|on_open| on_open());
        Box::pin(async move {
            let number = store.opened.fetch_add(1, Ordering::SeqCst);
            let line = Arc::new(Line {
                number,
                run: store.run.lock().unwrap().clone(),
                closed: AtomicBool::new(false),
                inbox: Mutex::default(),
                store: Arc::clone(&store),
            });
            store.links.lock().unwrap().push(Arc::clone(&line));
            Ok(Arc::new(Handle(line)) as Arc<dyn Link>)
        })
    }
}

struct Handle(Arc<Line>);

impl Handle {
    fn ask(&self, op: Op) -> Pending<Result<Answer, Fault>> {
        let (line, closed) = (Arc::clone(&self.0), self.is_closed());
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if closed || line.store.requests.send(Asked { link: line.number, op, reply }).is_err() {
                return Err(gone());
            }
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl Link for Handle {
    fn apply(&self, _: &Name, op: &Op, _: Contention) -> Pending<Result<Answer, Fault>> {
        self.ask(op.clone())
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        let each: Vec<_> = batch.iter().map(|(_, renew)| self.ask(Op::Renew(renew.clone()))).collect();
        Box::pin(async move {
            let mut answers = Vec::new();
            for one in each {
                answers.push(one.await);
            }
            answers
        })
    }

    fn attach(&self, _: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let line = Arc::clone(&self.0);
        Box::pin(async move {
            while !line.store.may_attach.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            *line.inbox.lock().unwrap() = Some(inbox);
            Ok(())
        })
    }

    fn run(&self) -> &str {
        &self.0.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let now_us = self.0.store.server_us();
        let result = if self.is_closed() { Err(gone()) } else { Ok(now_us) };
        Box::pin(std::future::ready(result))
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
    }
}

fn gone() -> Fault {
    Fault::Gone(any_error())
}

/// A session looks at the kind of a fault only.
fn any_error() -> leasehold::Error {
    Lost::Closed.into()
}

impl Scripted {
    fn server_us(&self) -> u64 {
        Real.now_us() + self.ahead_us.load(Ordering::SeqCst)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.links.lock().unwrap()
    }
}

/// The test's side.
struct Bench {
    store: Arc<Scripted>,
    requests: mpsc::UnboundedReceiver<Asked>,
    leasehold: Leasehold,
}

impl Bench {
    async fn new() -> Self {
        Self::within(Real::world()).await
    }

    async fn within(world: Arc<dyn World>) -> Self {
        let (send, requests) = mpsc::unbounded_channel();
        let store = Arc::new(Scripted {
            requests: send,
            on_open: Mutex::default(),
            links: Mutex::default(),
            run: Mutex::new("first".into()),
            ahead_us: AtomicU64::new(AHEAD_US),
            may_attach: AtomicBool::new(true),
            opened: AtomicUsize::new(0),
        });
        let shop = Arc::new(Shop(Arc::clone(&store)));
        let leasehold = Leasehold::builder("").connect_to(shop, world).await.unwrap();
        assert_eq!(store.links().len(), 2, "a link for the session, and a lane for its callers");
        Self { store, requests, leasehold }
    }

    async fn next(&mut self) -> Asked {
        timeout(Duration::from_secs(10), self.requests.recv()).await.expect("a request").unwrap()
    }

    async fn next_but_renewals(&mut self) -> Asked {
        loop {
            let asked = self.next().await;
            if !matches!(asked.op, Op::Renew(_)) {
                return asked;
            }
        }
    }

    async fn next_acquire(&mut self) -> (Asked, Acquire) {
        let asked = self.next().await;
        match asked.op.clone() {
            Op::Acquire(acquire) => (asked, acquire),
            other => panic!("an acquire was expected: {other:?}"),
        }
    }

    async fn next_leave(&mut self) -> (Asked, GrantId) {
        let asked = self.next().await;
        match asked.op {
            Op::Leave { id } => (asked, id),
            ref other => panic!("a leave was expected: {other:?}"),
        }
    }

    fn nothing(&mut self) {
        if let Ok(asked) = self.requests.try_recv() {
            panic!("nothing was expected: {:?}", asked.op);
        }
    }

    fn lock(&self, lease_ms: u64) -> JoinHandle<leasehold::Result<Guard>> {
        let mutex = self.leasehold.mutex("name").lease(Duration::from_millis(lease_ms));
        tokio::spawn(async move { mutex.lock().await })
    }

    fn answer(&self, outcome: Outcome, highest: u64) -> Answer {
        Answer {
            now_us: self.store.server_us(),
            highest: token(highest),
            contention: Contention::None,
            rest: Rest::Done,
            handed: None,
            outcome,
        }
    }

    fn say(&self, asked: Asked, outcome: Outcome, highest: u64) {
        let answer = self.answer(outcome, highest);
        assert!(asked.reply.send(Ok(answer)).is_ok(), "nobody listens for this answer");
    }

    /// Locks and is granted at once.
    async fn locked(&mut self, lease_ms: u64, number: u64) -> Guard {
        let locking = self.lock(lease_ms);
        let (asked, _) = self.next_acquire().await;
        self.say(asked, Outcome::Granted { token: token(number), left_us: lease_ms * MS }, number);
        locking.await.unwrap().unwrap()
    }

    fn push(&self, id: GrantId, number: u64, now_us: u64, left_us: u64) {
        self.deliver(Delivery {
            to: id.session,
            now_us,
            contention: Contention::None,
            rest: Rest::Done,
            id,
            token: token(number),
            left_us,
            event: Event::Granted,
        });
    }

    fn deliver(&self, delivery: Delivery) {
        let home = self.store.links().iter().rev().find_map(|line| line.inbox.lock().unwrap().clone()).unwrap();
        home(Message::Delivery(Name::new("name").unwrap(), delivery));
    }

    /// The session's own link breaks; everything else stays.
    fn cut_home(&self) {
        let links = self.store.links();
        let home = links.iter().rev().find(|line| line.inbox.lock().unwrap().is_some()).unwrap();
        home.closed.store(true, Ordering::SeqCst);
        let inbox = home.inbox.lock().unwrap().take().unwrap();
        inbox(Message::Detached);
    }

    async fn home_again(&self, links: usize) {
        let begun = Instant::now();
        while self.store.links().iter().filter(|line| line.inbox.lock().unwrap().is_some()).count() == 0
            || self.store.links().len() < links
        {
            assert!(begun.elapsed() < Duration::from_secs(10), "no new link");
            tokio::task::yield_now().await;
        }
    }
}

/// The world as it is, but for what a test changes in it.
struct Altered {
    process: AtomicU32,
    sleeps: AtomicUsize,
}

impl Altered {
    fn world() -> Arc<Self> {
        Arc::new(Self { process: AtomicU32::new(Real.process()), sleeps: AtomicUsize::new(0) })
    }
}

impl World for Altered {
    fn now_us(&self) -> u64 {
        Real.now_us()
    }

    fn wall_us(&self) -> u64 {
        Real.wall_us()
    }

    fn random(&self, bytes: &mut [u8]) {
        Real.random(bytes);
    }

    fn host(&self) -> String {
        Real.host()
    }

    fn process(&self) -> u32 {
        self.process.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        Real.sleep(duration)
    }

    fn connect(&self, to: &Address) -> Pending<std::io::Result<Box<dyn Socket>>> {
        Real.connect(to)
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        Real.spawn(task)
    }

    fn spawn_session(&self, session: Pending<()>) -> std::io::Result<()> {
        Real.spawn_session(session)
    }
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn queued(ticket: u64, left_ms: u64) -> Outcome {
    Outcome::Queued { ticket, left_us: left_ms * MS, joined: Joined::Before }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test]
async fn p3_the_statement_with_the_larger_token_is_the_later_one() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    // A look is under way when the push comes. Its answer was made before, and is heard after.
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    bench.say(look, queued(42, 60_000), 7);
    pause(50).await;
    assert_eq!(guard.check(), Ok(token(8)));
}

/// A look was under way when the push came; the lease lapsed at the store (its clock jumped), and the look was granted a
/// new one. The guard has the old token, and the new grant has nobody.
#[tokio::test]
async fn p3_a_second_grant_is_not_taken_for_the_first() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    bench.say(look, Outcome::Granted { token: token(9), left_us: 3_000 * MS }, 9);
    assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told"), Lost::Superseded);
    let release = bench.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(9) });
    bench.say(release, Outcome::Released, 9);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// An old push is to be claimed first, behind a look that is still under way. The store was slow: the claim has lapsed, the
/// look is granted anew, and only then the claim of the first grant finds nothing.
#[tokio::test]
async fn p3_the_claim_of_an_earlier_grant_does_not_end_the_later_one() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(6_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us() - 1_700 * MS, 3_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
    bench.say(look, Outcome::Granted { token: token(9), left_us: 6_000 * MS }, 9);
    let guard = locking.await.unwrap().unwrap();
    bench.say(claim, Outcome::Lost { how: leasehold_spec::LostHow::NotHeld }, 9);
    pause(50).await;
    assert_eq!(guard.check(), Ok(token(9)));
    drop(guard);
    assert_eq!(bench.next().await.op, Op::Release { id: acquire.id, token: token(9) });
}

#[tokio::test]
async fn p1_whoever_hears_more_settles_again() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let answer = Answer { rest: Rest::More, ..bench.answer(Outcome::Released, 7) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    let settle = bench.next().await;
    assert_eq!(settle.op, Op::Settle);
    bench.say(settle, Outcome::Settled, 7);

    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
        contention: Contention::Others,
        rest: Rest::More,
        id: acquire.id,
        token: token(8),
        left_us: 30_000 * MS,
        event: Event::Granted,
    });
    assert_eq!(bench.next_but_renewals().await.op, Op::Settle);
}

#[tokio::test]
async fn p4_a_late_request_is_asked_again() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, first) = bench.next_acquire().await;
    bench.say(asked, Outcome::Late, 7);
    let (asked, again) = bench.next_acquire().await;
    assert_eq!(again.id, first.id);
    assert!(again.not_after_us >= first.not_after_us);
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS }, 8);
    assert!(locking.await.unwrap().is_ok());
}

#[tokio::test]
async fn p7_whoever_handed_over_looks_after_the_claim() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let begun = Instant::now();
    let answer = Answer { handed: Some(200), ..bench.answer(Outcome::Released, 8) };
    release.reply.send(Ok(answer)).unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    assert_eq!(bench.next().await.op, Op::Settle);
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
}

/// The store waits for the release of a marked grant until its grace is over.
#[tokio::test]
async fn p10_a_revoked_guard_is_given_back_when_its_section_has_ended() {
    let mut bench = Bench::new().await;
    for by_message in [true, false] {
        let guard = bench.locked(600, 7).await;
        let renewal = bench.next().await;
        let Op::Renew(renew) = renewal.op.clone() else { panic!("{:?}", renewal.op) };
        if by_message {
            bench.deliver(Delivery {
                to: renew.id.session,
                now_us: bench.store.server_us(),
                contention: Contention::None,
                rest: Rest::Done,
                id: renew.id,
                token: token(7),
                left_us: 5_000 * MS,
                event: Event::Revoked,
            });
        } else {
            bench.say(renewal, Outcome::Lost { how: leasehold_spec::LostHow::Revoked }, 7);
        }
        assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told"), Lost::Revoked);
        pause(100).await;
        bench.nothing();
        drop(guard);
        let release = bench.next().await;
        assert_eq!(release.op, Op::Release { id: renew.id, token: token(7) });
        bench.say(release, Outcome::Released, 7);
    }
}

#[tokio::test]
async fn p11_no_acquire_that_may_queue_leaves_before_the_inbox_is_proved() {
    let mut bench = Bench::new().await;
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(50).await;
    let locking = bench.lock(30_000);
    pause(100).await;
    bench.nothing();
    bench.store.may_attach.store(true, Ordering::SeqCst);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS }, 7);
    assert!(locking.await.unwrap().is_ok());
}

/// After a failover the old primary may live on, cut off, and grant to whoever is still connected to it.
#[tokio::test]
async fn p11_what_another_run_says_is_no_answer() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (old, acquire) = bench.next_acquire().await;
    assert_eq!(old.link, 1, "the callers' lane");
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    bench.home_again(3).await;
    bench.say(old, Outcome::Granted { token: token(9), left_us: 30_000 * MS }, 9);
    let (asked, again) = bench.next_acquire().await;
    assert_eq!((asked.link, again.id), (2, acquire.id));
    pause(50).await;
    assert!(!locking.is_finished(), "granted by a store that is not the one any more");
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS }, 8);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

/// A store that restarted empty with its clock behind begins below the tokens that its waiters have heard of.
#[tokio::test]
async fn p3_tokens_of_two_runs_are_not_compared() {
    let mut bench = Bench::new().await;
    let locking = [bench.lock(30_000), bench.lock(30_000)];
    for ticket in [1, 2] {
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, queued(ticket, 60_000), 1_000);
    }
    pause(50).await;
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let (first, _) = bench.next_acquire().await;
    let (second, waiter) = bench.next_acquire().await;
    bench.say(first, Outcome::Granted { token: token(7), left_us: 30_000 * MS }, 7);
    bench.say(second, queued(2, 60_000), 7);
    pause(100).await;
    bench.nothing();
    bench.push(waiter.id, 8, bench.store.server_us(), 1_000 * MS);
    let mut tokens = Vec::new();
    for locking in locking {
        let guard = timeout(Duration::from_secs(10), locking).await.expect("granted").unwrap().unwrap();
        tokens.push(guard.token());
        std::mem::forget(guard);
    }
    tokens.sort();
    assert_eq!(tokens, [token(7), token(8)]);
}

#[tokio::test]
async fn p11_a_leave_follows_its_acquire_on_the_same_link() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    locking.abort();
    let (leave, id) = bench.next_leave().await;
    assert_eq!((id, leave.link), (acquire.id, asked.link));
    assert_eq!(asked.link, 1, "the callers' lane");
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(100).await;
    bench.nothing();
    assert!(bench.leasehold.close().await.unconfirmed().is_empty());
}

#[tokio::test]
async fn p12_validity_counts_from_before_the_sending() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, _) = bench.next_acquire().await;
    pause(300).await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 3_000 * MS }, 7);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(2_700 - 30), "{:?}", guard.remaining());
    assert!(guard.is_valid());
}

#[tokio::test]
async fn p12_a_push_counts_from_the_moment_that_it_was_made() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    // It lay in a buffer for 0.3 s of its claim of 1 s.
    bench.push(acquire.id, 8, bench.store.server_us() - 300 * MS, 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(700), "{:?}", guard.remaining());
}

#[tokio::test]
async fn p12_a_push_that_is_old_is_claimed_before_it_is_entered() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    bench.push(acquire.id, 8, bench.store.server_us() - 600 * MS, 1_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(renew) if renew.token == token(8)), "{:?}", claim.op);
    pause(50).await;
    assert!(!locking.is_finished(), "not entered on the strength of an old push");
    bench.say(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
    assert!(locking.await.unwrap().unwrap().remaining() > Duration::from_secs(29));
}

#[tokio::test]
async fn p12_a_push_from_the_future_is_claimed_too() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    bench.push(acquire.id, 8, bench.store.server_us() + 60_000 * MS, 1_000 * MS);
    let claim = bench.next().await;
    assert!(matches!(&claim.op, Op::Renew(_)), "{:?}", claim.op);
    assert!(!locking.is_finished());
}

#[tokio::test]
async fn p12_a_forward_jump_of_the_servers_clock_is_taken_off_every_lease() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    bench.store.ahead_us.fetch_add(20_000 * MS, Ordering::SeqCst);
    // Any answer shows it: here, of a look at another lock.
    let mutex = bench.leasehold.mutex("other");
    let looking = tokio::spawn(async move { mutex.try_lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(guard.remaining() < Duration::from_millis(9_750), "{:?}", guard.remaining());
    assert!(guard.remaining() > Duration::from_secs(5), "no more than that: {:?}", guard.remaining());
    let renewal = bench.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "asked for at once: {:?}", renewal.op);
}

/// The session's link is slow: the answer to a renewal was given before the server's clock jumped, and is heard after the
/// jump was seen on the callers' link. What it says to be left was true on the old clock.
#[tokio::test]
async fn p12_an_answer_from_before_a_jump_gives_nothing_back() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(6_000, 7).await;
    let renewal = bench.next().await;
    let renewed = bench.answer(Outcome::Renewed { left_us: 6_000 * MS }, 7);
    let ends = Instant::now() + Duration::from_millis(4_000);
    bench.store.ahead_us.fetch_add(2_000 * MS, Ordering::SeqCst);
    let mutex = bench.leasehold.mutex("other");
    let looking = tokio::spawn(async move { mutex.try_lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Busy { left_us: 0 }, 7);
    looking.await.unwrap().unwrap();
    assert!(renewal.reply.send(Ok(renewed)).is_ok());
    // It is asked again, as that answer is worth little, and is not answered any more.
    let again = bench.next().await;
    assert!(matches!(again.op, Op::Renew(_)), "{:?}", again.op);
    assert!(Instant::now() + guard.remaining() < ends, "{:?} left at {:?}", guard.remaining(), ends - Instant::now());
}

/// The answer came so late that its lease has ended.
#[tokio::test]
async fn p12_nobody_gets_a_guard_that_is_lost_already() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, first) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: MS }, 7);
    let (mut release, mut again) = (bench.next_but_renewals().await, bench.next_but_renewals().await);
    if matches!(release.op, Op::Acquire(_)) {
        std::mem::swap(&mut release, &mut again);
    }
    assert_eq!(release.op, Op::Release { id: first.id, token: token(7) });
    bench.say(again, Outcome::Granted { token: token(8), left_us: 30_000 * MS }, 8);
    assert_eq!(locking.await.unwrap().unwrap().check(), Ok(token(8)));
}

#[tokio::test]
async fn p13_an_unanswered_release_is_repeated_on_the_next_link() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = bench.next().await;
    drop(first.reply.send(Err(gone())));
    let second = bench.next().await;
    assert_eq!(second.op, first.op);
    bench.say(second, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// The answer to an acquire was lost with its link, long ago. A leave would take back whatever that acquire may yet be
/// granted, but cannot say that the lease had been lost before.
#[tokio::test]
async fn p14_an_acquire_that_is_too_late_to_be_carried_out_is_forgotten() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (lost, acquire) = bench.next_acquire().await;
    drop(lost.reply.send(Err(gone())));
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 3_000 * MS }, 7);
    let guard = locking.await.unwrap().unwrap();
    while bench.store.server_us() <= acquire.not_after_us + 1_000 * MS {
        let renewal = bench.next().await;
        assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
        bench.say(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    }
    let releasing = tokio::spawn(guard.release());
    let release = bench.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(7) });
    bench.say(release, Outcome::NotHeld, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn p13_what_was_released_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = bench.next().await;
    let release = first.op.clone();
    bench.say(first, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let again = bench.next().await;
    assert_eq!(again.op, release);
}

/// A leave that gave a grant back is a release by another name.
#[tokio::test]
async fn p13_what_was_left_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (_asked, acquire) = bench.next_acquire().await;
    locking.abort();
    let (leave, _) = bench.next_leave().await;
    bench.say(leave, Outcome::Left { was: Was::Granted }, 7);
    pause(50).await;
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let (_, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
}

#[tokio::test]
async fn p14_an_unanswered_attempt_is_closed_only_beyond_its_not_after() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    locking.abort();
    // The link of the acquire breaks with the acquire on it: it may yet be carried out.
    bench.store.links()[asked.link].closed.store(true, Ordering::SeqCst);
    drop(asked.reply.send(Err(gone())));
    let begun = Instant::now();
    let mut leaves = 0;
    loop {
        let (leave, id) = bench.next_leave().await;
        assert_eq!(id, acquire.id);
        leaves += 1;
        assert!(leaves < 20, "no end of it");
        let answered_us = bench.store.server_us();
        bench.say(leave, Outcome::Left { was: Was::Absent }, 7);
        if answered_us > acquire.not_after_us {
            break;
        }
    }
    assert!(leaves >= 2 && begun.elapsed() > Duration::from_millis(1_500), "{leaves} leaves in {:?}", begun.elapsed());
    assert!(bench.leasehold.close().await.unconfirmed().is_empty());
}

/// A caller is stopped when its attempt is noted and its acquire not sent yet. The client is closed meanwhile: the leave
/// comes first, finds nothing, and is not the last word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_leave_before_an_acquire_that_its_caller_had_still_to_send_is_repeated() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    // Without a lane the session's link serves, and a new lane is asked for: between the two steps.
    bench.store.links()[1].closed.store(true, Ordering::SeqCst);
    let (at_the_gap, is_at_the_gap) = oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    *bench.store.on_open.lock().unwrap() = Some(Box::new(move || {
        at_the_gap.send(()).unwrap();
        may_go_on.recv().unwrap();
    }));
    let locking = bench.lock(30_000);
    is_at_the_gap.await.unwrap();
    let closing = tokio::spawn(bench.leasehold.clone().close());
    // The guard's release is not answered for now: the session lives on.
    let (mut leave, mut release) = (bench.next().await, bench.next().await);
    if matches!(leave.op, Op::Release { .. }) {
        std::mem::swap(&mut leave, &mut release);
    }
    let left = leave.op.clone();
    bench.say(leave, Outcome::Left { was: Was::Absent }, 7);
    pause(50).await;
    go_on.send(()).unwrap();
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!(left, Op::Leave { id: acquire.id });
    drop(asked.reply.send(Ok(bench.answer(Outcome::Granted { token: token(8), left_us: 30_000 * MS }, 8))));
    assert_eq!(locking.await.unwrap().unwrap_err().kind(), leasehold::ErrorKind::Closed);
    let (leave, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
    bench.say(leave, Outcome::Left { was: Was::Granted }, 8);
    bench.say(release, Outcome::Released, 8);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
    drop(guard);
}

/// A script that the server had forgotten is sent a second time, and that can come behind the leave.
#[tokio::test]
async fn p14_a_look_that_is_granted_behind_its_leave_is_given_back() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(900);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    locking.abort();
    let (leave, _) = bench.next_leave().await;
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(50).await;
    bench.say(look, Outcome::Granted { token: token(8), left_us: 900 * MS }, 8);
    let (_, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
}

#[tokio::test]
async fn p14_a_push_for_a_closed_attempt_is_given_back() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let Op::Release { id, .. } = release.op else { panic!("{:?}", release.op) };
    bench.say(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    bench.push(id, 9, bench.store.server_us(), 1_000 * MS);
    let (_, left) = bench.next_leave().await;
    assert_eq!(left, id);
}

#[tokio::test]
async fn p15_a_waiter_whose_push_was_lost_looks() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(600);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let begun = Instant::now();
    let (look, again) = bench.next_acquire().await;
    // A third of the lease, less a fifth, at the earliest.
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
    assert_eq!(again.id, acquire.id);
    assert!(matches!(again.patience, Patience::Queue(place) if place.ticket == Some(42)));
    bench.say(look, Outcome::Granted { token: token(8), left_us: 600 * MS }, 8);
    assert!(locking.await.unwrap().is_ok());
}

#[tokio::test]
async fn p15_a_waiter_looks_when_the_awaited_lease_ends_and_again_when_it_was_renewed() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (mut asked, acquire) = bench.next_acquire().await;
    let begun = Instant::now();
    for turn in 1..=3 {
        bench.say(asked, queued(42, 200), 7);
        let look;
        (asked, look) = bench.next_acquire().await;
        assert_eq!(look.id, acquire.id);
        let waited = begun.elapsed();
        // Long before the waiter's own look, in four seconds at the earliest.
        assert!((turn * Duration::from_millis(200)..Duration::from_millis(3_500)).contains(&waited), "{waited:?}");
    }
}

/// A look would be refused then, as every request that could need memory.
#[tokio::test]
async fn p15_a_name_is_settled_when_the_memory_is_full() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, queued(42, 100), 7);
    let (look, _) = bench.next_acquire().await;
    look.reply.send(Err(Fault::NoMemory(any_error()))).unwrap();
    assert_eq!(bench.next().await.op, Op::Settle);
}

/// What falls due while there is no link waits for one, and the thread does not look for it a thousand times a second.
#[tokio::test]
async fn p15_a_lease_that_ends_while_the_store_is_away_keeps_nobody_busy() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _waiting = bench.lock(30_000);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, queued(1, 100), 7);
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(200).await;
    let before = world.sleeps.load(Ordering::SeqCst);
    pause(500).await;
    let sleeps = world.sleeps.load(Ordering::SeqCst) - before;
    // One each 50 ms.
    assert!(sleeps <= 20, "{sleeps} in half a second");
    bench.store.may_attach.store(true, Ordering::SeqCst);
    let (look, _) = bench.next_acquire().await;
    bench.say(look, queued(1, 60_000), 7);
}

#[tokio::test]
async fn p15_every_waiter_looks_after_a_reconnect() {
    let mut bench = Bench::new().await;
    let _waiting = [bench.lock(30_000), bench.lock(30_000)];
    for ticket in [1, 2] {
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, queued(ticket, 60_000), 7);
    }
    pause(50).await;
    bench.cut_home();
    bench.home_again(3).await;
    for _ in 0..2 {
        let (look, acquire) = bench.next_acquire().await;
        assert!(matches!(acquire.patience, Patience::Queue(place) if place.ticket.is_some()));
        bench.say(look, queued(1, 60_000), 7);
    }
}

#[tokio::test]
async fn p15_a_look_that_re_enters_the_queue_calls_the_others_to_look() {
    let mut bench = Bench::new().await;
    let _early = bench.lock(3_000);
    let (asked, early) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    let _late = bench.lock(30_000);
    let (asked, late) = bench.next_acquire().await;
    bench.say(asked, queued(2, 60_000), 7);
    // The first look finds that it had been dropped. The other would look in four seconds at the earliest.
    let (look, again) = bench.next_acquire().await;
    assert_eq!(again.id, early.id);
    let begun = Instant::now();
    bench.say(look, Outcome::Queued { ticket: 1, left_us: 60_000 * MS, joined: Joined::Now }, 7);
    let (_, again) = bench.next_acquire().await;
    assert_eq!(again.id, late.id);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn p16_a_dropped_future_leaves_the_queue() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    pause(50).await;
    locking.abort();
    let (_, left) = bench.next_leave().await;
    assert_eq!(left, acquire.id);
}

#[tokio::test]
async fn p16_a_grant_that_nobody_takes_is_given_back() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let mut locking = Box::pin(mutex.lock());
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(locking.as_mut().poll(&mut context).is_pending());
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    assert!(locking.as_mut().poll(&mut context).is_pending());
    // Granted, and the future is dropped before it looks.
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    drop(locking);
    let release = bench.next().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(8) });
}

#[tokio::test]
async fn unknown_is_not_lost_and_lost_says_why() {
    let mut bench = Bench::new().await;
    for (number, highest, why) in [(7, 9, Lost::Superseded), (17, 17, Lost::Expired), (27, 3, Lost::Forgotten)] {
        let guard = bench.locked(600, number).await;
        let first = bench.next().await;
        drop(first.reply.send(Err(Fault::NoMemory(any_error()))));
        let second = bench.next().await;
        assert_eq!(guard.check(), Ok(token(number)), "no answer is no loss");
        bench.say(second, Outcome::Lost { how: leasehold_spec::LostHow::NotHeld }, highest);
        assert_eq!(timeout(Duration::from_millis(200), guard.lost()).await.unwrap(), why);
    }
}

/// A child that was forked from this process has the client's memory, and neither its thread nor its connections.
#[tokio::test]
async fn a_forked_child_changes_nothing_and_waits_for_nothing() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let guard = bench.locked(30_000, 7).await;
    let (mutex, child) = (bench.leasehold.mutex("name"), bench.leasehold.clone());
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = leasehold::ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.unwrap_err().kind(), unsupported);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), unsupported);
    let closed = timeout(Duration::from_secs(1), child.close()).await.expect("nobody keeps the time there");
    assert!(closed.unconfirmed().is_empty(), "it is the parent's to give back");
    pause(50).await;
    bench.nothing();
    world.process.fetch_sub(1, Ordering::SeqCst);
    assert!(guard.is_valid(), "closed in the child alone");
}

/// What the store refused of one lock is no answer to who waits for another, of which nothing was heard.
#[tokio::test]
async fn a_refusal_is_told_to_nobody_else() {
    let mut bench = Bench::new().await;
    let _guard = bench.locked(900, 7).await;
    let renewal = bench.next().await;
    let refused: leasehold::Error = Lost::Revoked.into();
    let text = refused.to_string();
    renewal.reply.send(Err(Fault::Refused(refused))).unwrap();
    pause(50).await;
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(50).await;
    let error = bench.leasehold.mutex("other").try_lock_for(Duration::from_millis(50)).await.unwrap_err();
    assert_ne!(error.to_string(), text);
}
