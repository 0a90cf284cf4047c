//! The harness of a test: a client of the scripted store, and the requests that this client sends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::seam::{Address, Message, Pending, Real, RuntimeId, Socket, World};
use leasehold::{Guard, Leasehold, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, GrantId, Joined, Name, Op, Outcome, Rest, Token};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::store::{AHEAD_US, Opener, Request, Scripted};

pub(crate) const MS: u64 = 1000;

type Requests = (Arc<Scripted>, mpsc::UnboundedReceiver<Request>);

/// A client of the scripted store, and the requests that it sends.
pub(crate) struct Harness {
    pub(crate) store: Arc<Scripted>,
    pub(crate) requests: mpsc::UnboundedReceiver<Request>,
    pub(crate) leasehold: Leasehold,
}

impl Harness {
    pub(crate) async fn new() -> Self {
        Self::within(Real::world()).await
    }

    pub(crate) async fn within(world: Arc<dyn World>) -> Self {
        Self::build(world, 0).await
    }

    /// Connects to a store that is so far away that a ping takes this long.
    pub(crate) async fn far(ping_ms: u64) -> Self {
        Self::build(Real::world(), ping_ms).await
    }

    async fn build(world: Arc<dyn World>, ping_ms: u64) -> Self {
        Self::connect(world, Self::store(ping_ms)).await
    }

    pub(crate) async fn connect(world: Arc<dyn World>, (store, requests): Requests) -> Self {
        let shop = Arc::new(Opener(Arc::clone(&store)));
        let leasehold = Leasehold::builder("").connect_to(shop, world).await.unwrap();
        assert_eq!(store.links().len(), 2, "a link for the session, and a lane for its callers");
        store.number_links();
        Self { store, requests, leasehold }
    }

    /// Returns a store that no client is connected to.
    pub(crate) fn store(ping_ms: u64) -> Requests {
        let (send, requests) = mpsc::unbounded_channel();
        let store = Arc::new(Scripted {
            requests: send,
            on_open: Mutex::default(),
            refused_after: Mutex::default(),
            on_close: Mutex::default(),
            on_ask: Mutex::default(),
            at_once: Mutex::default(),
            on_all: Mutex::default(),
            links: Mutex::default(),
            run: Mutex::new("first".into()),
            ahead_us: AtomicU64::new(AHEAD_US),
            may_attach: AtomicBool::new(true),
            moves_inbox: AtomicBool::new(false),
            detach_fault: Mutex::default(),
            attaches: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            ping_ms: AtomicU64::new(ping_ms),
            pings: AtomicUsize::new(0),
        });
        (store, requests)
    }

    pub(crate) async fn next(&mut self) -> Request {
        timeout(Duration::from_secs(10), self.requests.recv()).await.expect("a request").unwrap()
    }

    pub(crate) async fn next_but_renewals(&mut self) -> Request {
        self.next_but(|op| matches!(op, Op::Renew(_))).await
    }

    /// Returns the next request that `is_ignored` does not match. The ignored requests stay unanswered.
    pub(crate) async fn next_but(&mut self, is_ignored: impl Fn(&Op) -> bool) -> Request {
        loop {
            let request = self.next().await;
            if !is_ignored(&request.op) {
                return request;
            }
        }
    }

    pub(crate) async fn next_acquire(&mut self) -> (Request, Acquire) {
        let request = self.next().await;
        match request.op.clone() {
            Op::Acquire(acquire) => (request, acquire),
            other => panic!("an acquire was expected: {other:?}"),
        }
    }

    pub(crate) async fn next_leave(&mut self) -> (Request, GrantId) {
        let request = self.next().await;
        match request.op {
            Op::Leave { id, .. } => (request, id),
            ref other => panic!("a leave was expected: {other:?}"),
        }
    }

    /// Returns a request that was already sent, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Request> {
        self.requests.try_recv().ok()
    }

    pub(crate) fn expect_no_request(&mut self) {
        if let Some(request) = self.try_next() {
            panic!("nothing was expected: {:?}", request.op);
        }
    }

    pub(crate) fn lock(&self, lease_ms: u64) -> JoinHandle<leasehold::Result<Guard>> {
        self.lock_as("name", lease_ms)
    }

    pub(crate) fn lock_as(&self, name: &str, lease_ms: u64) -> JoinHandle<leasehold::Result<Guard>> {
        let mutex = self.leasehold.mutex(name).lease(Duration::from_millis(lease_ms));
        tokio::spawn(async move { mutex.lock().await })
    }

    /// Locks with an attempt of its own, although others of this client may wait.
    pub(crate) fn lock_apart(&self, lease_ms: u64) -> JoinHandle<leasehold::Result<Guard>> {
        let mutex = self.leasehold.mutex("name").lease(Duration::from_millis(lease_ms)).fair();
        tokio::spawn(async move { mutex.lock().await })
    }

    pub(crate) fn try_lock(&self, name: &str) -> JoinHandle<leasehold::Result<Option<Guard>>> {
        let mutex = self.leasehold.mutex(name);
        tokio::spawn(async move { mutex.try_lock().await })
    }

    pub(crate) fn answer(&self, outcome: Outcome, highest: u64) -> Answer {
        Answer {
            now_us: self.store.server_us(),
            highest: token(highest),
            contention: Contention::None,
            rest: Rest::Done,
            handed_claim_ms: None,
            outcome,
        }
    }

    pub(crate) fn reply(&self, request: Request, outcome: Outcome, highest: u64) {
        let answer = self.answer(outcome, highest);
        assert!(request.reply.send(Ok(answer)).is_ok(), "nobody listens for this answer");
    }

    /// Replies to a request whose caller may be gone.
    pub(crate) fn reply_if_heard(&self, request: Request, outcome: Outcome, highest: u64) {
        drop(request.reply.send(Ok(self.answer(outcome, highest))));
    }

    /// Locks, and grants the lock at once.
    pub(crate) async fn locked(&mut self, lease_ms: u64, number: u64) -> Guard {
        self.locked_as("name", lease_ms, number).await
    }

    /// The same for this name.
    pub(crate) async fn locked_as(&mut self, name: &str, lease_ms: u64, number: u64) -> Guard {
        let locking = self.lock_as(name, lease_ms);
        let (request, _) = self.next_acquire().await;
        self.reply(request, Outcome::Granted { token: token(number), left_us: lease_ms * MS, range: 1 }, number);
        locking.await.unwrap().unwrap()
    }

    /// The same with a range of tokens. Also returns the grant ID.
    pub(crate) async fn reserved(&mut self, lease_ms: u64, number: u64, range: u64) -> (Guard, GrantId) {
        let locking = self.lock(lease_ms);
        let (request, Acquire { id, .. }) = self.next_acquire().await;
        self.reply(request, Outcome::Granted { token: token(number), left_us: lease_ms * MS, range }, number);
        (locking.await.unwrap().unwrap(), id)
    }

    /// Adds `count` waiters to the local queue. Each one is queued before the next one begins.
    pub(crate) async fn add_local_waiters(
        &self,
        lease_ms: u64,
        count: usize,
    ) -> Vec<JoinHandle<leasehold::Result<Guard>>> {
        let mut waiting = Vec::new();
        for _ in 0..count {
            waiting.push(self.lock(lease_ms));
            tokio::task::yield_now().await;
        }
        waiting
    }

    pub(crate) fn push(&self, id: GrantId, number: u64, now_us: u64, left_us: u64) {
        self.deliver(Delivery {
            to: id.session,
            now_us,
            contention: Contention::None,
            rest: Rest::Done,
            id,
            token: token(number),
            left_us,
            event: Event::Granted,
            range: 1,
        });
    }

    /// Pushes a grant that is made now, with a range of tokens.
    pub(crate) fn push_range(&self, id: GrantId, number: u64, range: u64) {
        let (to, now_us, contention, rest) = (id.session, self.store.server_us(), Contention::None, Rest::Done);
        let (left_us, event) = (1_000 * MS, Event::Granted);
        self.deliver(Delivery { to, now_us, contention, rest, id, token: token(number), left_us, range, event });
    }

    /// Sends the message that tells the holder whether others wait.
    pub(crate) fn notify_contention(&self, id: GrantId, number: u64, contention: Contention) {
        self.notify_contention_at(id, number, contention, self.store.server_us());
    }

    pub(crate) fn notify_contention_at(&self, id: GrantId, number: u64, contention: Contention, now_us: u64) {
        let to = id.session;
        let (rest, left_us, range, event) = (Rest::Done, 30_000 * MS, 1_024, Event::Wanted);
        self.deliver(Delivery { to, now_us, contention, rest, id, token: token(number), left_us, range, event });
    }

    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.send_message(Message::Delivery(Name::new("name").unwrap(), delivery));
    }

    pub(crate) fn send_message(&self, message: Message) {
        let home = self.store.links().iter().rev().find_map(|link| link.inbox.lock().unwrap().clone()).unwrap();
        home(message);
    }

    /// Breaks the session's own connection, and no other.
    pub(crate) fn break_session_link(&self) {
        let links = self.store.links();
        let home = links.iter().rev().find(|link| link.inbox.lock().unwrap().is_some()).unwrap();
        home.closed.store(true, Ordering::SeqCst);
        let inbox = home.inbox.lock().unwrap().take().unwrap();
        inbox(Message::Detached);
    }

    pub(crate) async fn await_session_link(&self, links: usize) {
        let begun = Instant::now();
        while self.store.links().iter().filter(|link| link.inbox.lock().unwrap().is_some()).count() == 0
            || self.store.links().len() < links
        {
            assert!(begun.elapsed() < Duration::from_secs(10), "no new link");
            tokio::task::yield_now().await;
        }
    }
}

/// The real world, except for the values that a test changes.
pub(crate) struct Altered {
    /// The time that the clock shows while it is frozen; 0: it runs.
    stands_us: AtomicU64,
    pub(crate) process: AtomicU32,
    /// The process ID as cached; 0: the real one.
    pub(crate) known_process: AtomicU32,
    pub(crate) sleeps: AtomicUsize,
    /// The number of sleeps of a millisecond.
    pub(crate) naps: AtomicUsize,
    /// Applies to callers. The session's thread has a runtime of its own.
    pub(crate) is_without_runtime: AtomicBool,
    /// The runtime of the callers.
    pub(crate) runtime: AtomicU64,
    /// If set, nothing polls the tasks that callers spawn.
    pub(crate) is_unpolled: AtomicBool,
    pub(crate) unpolled: Mutex<Vec<Pending<()>>>,
}

impl Altered {
    pub(crate) fn world() -> Arc<Self> {
        Arc::new(Self {
            stands_us: AtomicU64::new(0),
            process: AtomicU32::new(Real.process()),
            known_process: AtomicU32::new(0),
            sleeps: AtomicUsize::new(0),
            naps: AtomicUsize::new(0),
            is_without_runtime: AtomicBool::new(false),
            runtime: AtomicU64::new(0),
            is_unpolled: AtomicBool::new(false),
            unpolled: Mutex::default(),
        })
    }
}

impl Altered {
    pub(crate) fn freeze(&self) {
        self.stands_us.store(Real.now_us(), Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, by_us: u64) {
        self.stands_us.fetch_add(by_us, Ordering::SeqCst);
    }
}

impl World for Altered {
    fn now_us(&self) -> u64 {
        match self.stands_us.load(Ordering::SeqCst) {
            0 => Real.now_us(),
            now_us => now_us,
        }
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

    fn process_as_known(&self) -> u32 {
        match self.known_process.load(Ordering::SeqCst) {
            0 => self.process(),
            known => known,
        }
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        self.naps.fetch_add(usize::from(duration <= Duration::from_millis(1)), Ordering::SeqCst);
        Real.sleep(duration)
    }

    fn connect(&self, to: &Address) -> Pending<std::io::Result<Box<dyn Socket>>> {
        Real.connect(to)
    }

    fn runtime(&self) -> Option<RuntimeId> {
        let id = self.runtime.load(Ordering::SeqCst);
        (!self.is_without_runtime.load(Ordering::SeqCst)).then_some(RuntimeId::Simulated(id))
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        let is_callers = std::thread::current().name() != Some("leasehold");
        if is_callers && self.is_without_runtime.load(Ordering::SeqCst) {
            return Err(task);
        }
        if is_callers && self.is_unpolled.load(Ordering::SeqCst) {
            self.unpolled.lock().unwrap().push(task);
            return Ok(());
        }
        Real.spawn(task)
    }

    fn spawn_session(&self, session: Pending<()>) -> std::io::Result<()> {
        Real.spawn_session(session)
    }
}

pub(crate) fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

pub(crate) fn queued(ticket: u64, left_ms: u64) -> Outcome {
    Outcome::Queued { ticket, left_us: left_ms * MS, joined: Joined::Before }
}

pub(crate) async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

pub(crate) type Locking = JoinHandle<leasehold::Result<Guard>>;

pub(crate) async fn guard_of(locking: Locking) -> Guard {
    timeout(Duration::from_secs(10), locking).await.expect("handed on").unwrap().unwrap()
}

pub(crate) async fn release_guard(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

pub(crate) async fn hand_to_next(guard: Guard, waiting: &mut VecDeque<Locking>) -> Guard {
    release_guard(guard).await;
    guard_of(waiting.pop_front().unwrap()).await
}
