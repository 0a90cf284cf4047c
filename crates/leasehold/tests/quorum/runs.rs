//! Runs: a client that comes back at once is served again while others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::seam::Real;
use leasehold::{Guard, Leasehold, Released};
use leasehold_spec::Token;
use leasehold_spec::node::Record;
use leasehold_testkit::voters::{Mood, Voters};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use crate::played::{client, granted, voters};
use crate::shy::Shy;

const LONG: Duration = Duration::from_secs(20);
/// The lease of the clients.
const LEASE: Duration = Duration::from_secs(5);
/// The ways to lose a node.
const LOST: [Mood; 3] = [Mood::Dead, Mood::Stopped, Mood::Mute];
/// The time after which waiters ask by themselves if nobody has ended a pause.
const NOTICE: Duration = Duration::from_millis(50);
/// How often each client is served at least, however slow the machine is.
const SERVED: usize = 10;

/// Clients that take one lock again and again, and the nodes of the lock.
struct Crowd {
    voters: Voters,
    is_fair: bool,
    clients: Vec<JoinHandle<Vec<Token>>>,
    watch: Arc<Watch>,
}

/// The state that the clients of a crowd share.
#[derive(Default)]
struct Watch {
    ends: AtomicBool,
    inside: AtomicU32,
}

impl Watch {
    /// Holds the lock for a moment, and releases it.
    async fn hold(&self, guard: Guard) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
        yield_now().await;
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

impl Crowd {
    /// Three clients take the lock in turns, each at least [`SERVED`] times.
    async fn new(is_fair: bool) -> Self {
        let mut crowd = Self { voters: voters(3), is_fair, clients: Vec::new(), watch: Arc::default() };
        for _ in 0..3 {
            let client = client(&crowd.voters).await;
            crowd.clients.push(tokio::spawn(repeat(client, Arc::clone(&crowd.watch), is_fair)));
        }
        crowd
    }

    /// Ends when each client was served. Returns how often the lock went from one client to another, and how often it was
    /// taken.
    async fn end(self) -> (usize, usize) {
        self.watch.ends.store(true, Ordering::Relaxed);
        let mut grants = Vec::new();
        for (number, client) in self.clients.into_iter().enumerate() {
            let tokens = tokio::time::timeout(LONG, client).await.expect("no client waits for ever").unwrap();
            assert!(tokens.is_sorted());
            grants.extend(tokens.into_iter().map(|token| (token, number)));
        }
        grants.sort_unstable();
        let changes = grants.windows(2).filter(|two| two[0].1 != two[1].1).count();
        println!("fair {}: {changes} hand-overs in {} grants", self.is_fair, grants.len());
        (changes, grants.len())
    }
}

/// Takes the lock again and again until the end. Returns the tokens.
async fn repeat(client: Leasehold, watch: Arc<Watch>, is_fair: bool) -> Vec<Token> {
    let mut tokens = Vec::new();
    while !watch.ends() || tokens.len() < SERVED {
        let lock = client.mutex("a");
        let guard = if is_fair { lock.fair() } else { lock }.lock().await.unwrap();
        tokens.push(guard.token());
        watch.hold(guard).await;
    }
    tokens
}

/// Takes the lock in the pauses of others, until the end.
async fn repeat_try(client: Leasehold, watch: Arc<Watch>) {
    while !watch.ends() {
        // These nodes answer at once. Without this, the loop would keep its thread.
        yield_now().await;
        if let Ok(Some(guard)) = client.mutex("a").try_lock().await {
            watch.hold(guard).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_grants_go_to_the_client_that_comes_back_at_once() {
    let crowd = Crowd::new(false).await;
    sleep(Duration::from_secs(1)).await;
    let (changes, grants) = crowd.end().await;
    assert!(changes * 2 < grants, "most grants follow another one of the same client");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_clients_take_turns() {
    let crowd = Crowd::new(true).await;
    sleep(Duration::from_secs(1)).await;
    let (changes, grants) = crowd.end().await;
    assert!(changes * 2 > grants, "most grants follow a grant of another client");
}

/// In a run a client asks a bare majority, and this node may be part of it. Another client takes the lock in pauses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_lost_in_a_run_stops_nobody() {
    for mood in LOST {
        println!("{mood:?}");
        let crowd = Crowd::new(false).await;
        let trying = tokio::spawn(repeat_try(client(&crowd.voters).await, Arc::clone(&crowd.watch)));
        for mood in [mood, Mood::Answers] {
            sleep(Duration::from_millis(500)).await;
            crowd.voters.nodes[0].be(mood);
        }
        crowd.end().await;
        trying.await.unwrap();
    }
}

/// Returns whether a majority is free while somebody waits, and calls nobody.
fn is_paused(voters: &Voters) -> bool {
    let is_paused = |record: &Record| record.grant.is_none() && record.called.is_none() && !record.queue.is_empty();
    voters.nodes.iter().filter(|node| is_paused(&node.record("a"))).count() > voters.nodes.len() / 2
}

/// Client A has released the lock, B holds it, and A has asked for it again at once. B releases it. When A holds again, it
/// does `work`, and client C waits. Returns the work, and the time at which C has held.
async fn come_back<Work>(
    voters: &Arc<Voters>,
    work: impl FnOnce(Leasehold, Guard) -> Work + Send + 'static,
) -> (JoinHandle<Work::Output>, JoinHandle<Instant>)
where
    Work: Future<Output: Send> + Send + 'static,
{
    come_back_by(client(voters).await, voters, work).await
}

/// The same with this client A.
async fn come_back_by<Work>(
    a: Leasehold,
    voters: &Arc<Voters>,
    work: impl FnOnce(Leasehold, Guard) -> Work + Send + 'static,
) -> (JoinHandle<Work::Output>, JoinHandle<Instant>)
where
    Work: Future<Output: Send> + Send + 'static,
{
    let (b, c) = (client(voters).await, client(voters).await);
    let waits = |count: usize| {
        let voters = Arc::clone(voters);
        move || voters.nodes.iter().all(|node| node.record("a").queue.len() == count)
    };
    let until = |what: &'static str, is: &dyn Fn() -> bool| leasehold_testkit::wait_until(what, LONG, is);
    let first = a.mutex("a").lock().await.unwrap();
    let second = tokio::spawn(async move { b.mutex("a").lock().await.unwrap() });
    until("B waits", &waits(1));
    assert_eq!(first.release().await.unwrap(), Released::Released);
    // It comes back at once, and is second in the queue.
    let returning = tokio::spawn(async move {
        let guard = a.mutex("a").lock().await.unwrap();
        work(a, guard).await
    });
    let second = second.await.unwrap();
    until("A waits", &waits(1));
    let shared = Arc::clone(voters);
    let third = tokio::spawn(async move {
        let guard = c.mutex("a").lock().await.unwrap();
        let held = Instant::now();
        assert!(guard.is_valid() && granted(&shared, "a") > 1);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        held
    });
    until("C waits, too", &waits(2));
    assert_eq!(second.release().await.unwrap(), Released::Released);
    (returning, third)
}

/// One client has paused, and does not come back. Returns the time until another client held the lock. `None`: the client
/// has not paused, because the machine was too slow.
async fn abandoned_pause() -> Option<Duration> {
    let voters = Arc::new(voters(3));
    let (returning, third) = come_back(&voters, async |client, guard| {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        (client, Instant::now())
    })
    .await;
    let (_a, released) = tokio::time::timeout(LONG, returning).await.expect("A is served").unwrap();
    let has_paused = is_paused(&voters);
    let held = tokio::time::timeout(LONG, third).await.expect("C is called").unwrap();
    has_paused.then(|| held.saturating_duration_since(released))
}

/// Repeats `act` until it takes less than half of [`NOTICE`].
///
/// # Panics
///
/// After 20 times.
async fn assert_soon<T: Future<Output = Option<Duration>>>(what: &str, act: impl Fn() -> T) {
    let mut least = Duration::MAX;
    for _ in 0..20 {
        if let Some(within) = act().await {
            println!("{what}: {within:?}");
            least = least.min(within);
        }
        if least < NOTICE / 2 {
            return;
        }
    }
    panic!("{what}: {least:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_come_back_has_the_next_one_called() {
    assert_soon("C held after the pause began", abandoned_pause).await;
}

/// When a node is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum During {
    Hold,
    Pause,
}

/// Client A is in a run, and holds by a bare majority. A node of this majority is lost. Returns the time from then until
/// the next grant: to A if the node is lost in its pause, to C if it is lost while A holds. `None`: the machine was too
/// slow for a run.
async fn lost_voter(during: During, mood: Mood) -> Option<Duration> {
    let voters = Arc::new(voters(3));
    let nodes = voters.nodes.clone();
    let (returning, third) = come_back(&voters, async move |client: Leasehold, guard: Guard| {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let guard = client.mutex("a").lock().await.unwrap();
        let (voted, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.record("a").grant.is_some());
        let &[other] = others.as_slice() else { return None };
        let asked = other.asked();
        if during == During::Hold {
            voted[0].be(mood);
            let lost = Instant::now();
            assert_eq!(guard.release().await.unwrap(), Released::Released);
            return Some((client, lost, None));
        }
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        voted[0].be(mood);
        let lost = Instant::now();
        let guard = client.mutex("a").lock().await.unwrap();
        let within = lost.elapsed();
        assert!(other.asked() > asked, "the client asks all nodes");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        Some((client, lost, Some(within)))
    })
    .await;
    let returned = tokio::time::timeout(LONG, returning).await.expect("A is served").unwrap();
    let held = tokio::time::timeout(LONG, third).await.expect("C is served").unwrap();
    voters.nodes.iter().for_each(|node| node.be(Mood::Answers));
    let (_a, lost, within) = returned?;
    Some(within.unwrap_or(held.saturating_duration_since(lost)))
}

/// Client A is in a run, is granted the lock by a bare majority, and holds for long. Returns after how long all nodes have
/// voted. `None`: the machine was too slow for a run.
async fn long_hold() -> Option<Duration> {
    let voters = Arc::new(voters(3));
    let (returning, third) = come_back(&voters, async |client: Leasehold, guard: Guard| {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let guard = client.mutex("a").lock().await.unwrap();
        (client, guard, Instant::now())
    })
    .await;
    let (_a, guard, held) = tokio::time::timeout(LONG, returning).await.expect("A is served").unwrap();
    let by_majority = granted(&voters, "a") == 2;
    leasehold_testkit::wait_until("all nodes vote", LONG, || granted(&voters, "a") == 3);
    let within = held.elapsed();
    voters.nodes[0].be(Mood::Dead);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    tokio::time::timeout(LONG, third).await.expect("C is served").unwrap();
    by_majority.then_some(within)
}

/// If the client did not ask them, its next renewal would, in vain if they have voted for another client meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_holds_for_long_in_a_run_gets_the_votes_of_all_nodes() {
    assert_soon("all nodes have voted after the grant", long_hold).await;
}

/// Client A holds for long in a run, and its request to the third node is slow: the release overtakes it. Nobody waits any
/// more, so no node refuses the request because it has called somebody. Returns whether the third node has voted.
async fn late_vote() -> bool {
    let voters = Arc::new(voters(3));
    let (each, store) = Shy::each(&voters, Real::world());
    let a = Leasehold::builder("").lease(LEASE).connect_to(store, Real::world()).await.unwrap();
    let nodes = voters.nodes.clone();
    let (give_up, given_up) = oneshot::channel::<()>();
    let (returning, third) = come_back_by(a, &voters, async move |client: Leasehold, guard: Guard| {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let guard = client.mutex("a").lock().await.unwrap();
        let third = (0..3).find(|&node| nodes[node].record("a").grant.is_none())?;
        each[third].delay_vote_requests();
        given_up.await.expect("C gives up");
        let is_asked = async {
            while !each[third].has_delayed() {
                yield_now().await;
            }
        };
        // Outside of a run this node is asked with the others, and its reply may only be late.
        tokio::time::timeout(NOTICE, is_asked).await.ok()?;
        let (token, asked) = (guard.token(), nodes[third].asked());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        each[third].send_delayed();
        leasehold_testkit::wait_until("the node is asked", LONG, || nodes[third].asked() > asked);
        Some((client, nodes[third].record("a").highest >= token))
    })
    .await;
    third.abort();
    leasehold_testkit::wait_until("C has left", LONG, || {
        voters.nodes.iter().all(|node| node.record("a").queue.is_empty())
    });
    // If A did not hold by a bare majority, it does not wait for this.
    let _heard = give_up.send(());
    let held = tokio::time::timeout(LONG, returning).await.expect("A is served").unwrap();
    leasehold_testkit::wait_until("no vote stays", LEASE / 2, || granted(&voters, "a") == 0);
    held.is_some_and(|(_a, has_voted)| has_voted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_comes_after_a_long_hold_in_a_run_goes_back() {
    for _ in 0..20 {
        if late_vote().await {
            return;
        }
    }
    panic!("the machine is too slow for a run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_back_to_a_lost_node_asks_all_nodes() {
    for mood in LOST {
        assert_soon(&format!("{mood:?}: A held again"), || lost_voter(During::Pause, mood)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_at_a_lost_node_becomes_a_release_at_all_nodes() {
    for mood in LOST {
        assert_soon(&format!("{mood:?}: C held"), || lost_voter(During::Hold, mood)).await;
    }
}
