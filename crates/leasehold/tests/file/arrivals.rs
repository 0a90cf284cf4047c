//! Thousands of acquires of one client at once: renewals, releases and the requests of an operator go before them.

use std::fs::File;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold, Mutex, Released, Revoked};
use rustix::fs::{FlockOperation, flock};

use crate::child::Child;
use crate::{LONG, Store, eventually, within};

/// The time limit of a call. It is documented as 2 s, after which the call reports the store as unreachable.
const ANSWER: Duration = Duration::from_secs(2);
/// A lease that is renewed often while the acquires arrive.
const LEASE: Duration = Duration::from_secs(1);

/// A request in flight.
type Sent<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Sends a request, and returns while it waits for its reply.
fn sent<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Sent<T> {
    let mut future: Sent<T> = Box::pin(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => future,
        Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
    }
}

/// The tokens, which are microseconds, and the inspections show the order of the requests on any machine.
#[tokio::test(flavor = "multi_thread")]
async fn p27_only_acquires_wait_for_acquires() {
    let store = Store::new();
    let (client, other) = (store.client().await, store.client().await);
    let released = client.mutex("released").lock().await.unwrap();
    let theirs = other.mutex("released");
    let waiting = tokio::spawn(async move { theirs.lock().await.unwrap() });
    eventually("it waits", async || client.mutex("released").inspect().await.unwrap().waiters == 1).await;
    let revoked = client.mutex("revoked").lock().await.unwrap();
    let holder = client.mutex("revoked").inspect().await.unwrap().holder().cloned().unwrap();

    let turn = File::open(store.path().join("lock")).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    let lock = |name: String| {
        let mutex = client.mutex(name);
        sent(async move { mutex.lock().await.unwrap() })
    };
    // The client's thread may have begun with the first request, and waits for its turn.
    let arrivals: Vec<Sent<Guard>> = (0..50).map(|at| lock(format!("arrives {at}"))).collect();
    // After its own acquire: otherwise the lease would belong to nobody.
    drop(lock("dropped".into()));
    let (last, names, revokes) = (client.mutex("arrives 49"), client.clone(), client.mutex("revoked"));
    let last = sent(async move { last.inspect().await.unwrap() });
    let names = sent(async move { names.names().await.unwrap() });
    let revoking = sent(async move { revokes.revoke(&holder, Duration::ZERO).await.unwrap() });
    let releasing = sent(async move { released.release().await.unwrap() });
    flock(&turn, FlockOperation::Unlock).unwrap();

    assert_eq!(within(LONG, "the inspection", last).await.holder(), None, "an inspection waits for no arrival");
    assert!(!within(LONG, "the names", names).await.contains(&"arrives 49".to_owned()), "nor does a list of names");
    assert_eq!(within(LONG, "a revocation", revoking).await, Revoked::Within(Duration::ZERO));
    assert_eq!(within(LONG, "a release", releasing).await, Released::Released);
    let next = within(LONG, "the next one", waiting).await.unwrap();
    for (at, arrival) in arrivals.into_iter().enumerate() {
        let guard = within(LONG, "an arrival", arrival).await;
        assert!(at == 0 || guard.token() > next.token(), "a release waits for no arrival");
    }
    assert!(revoked.check().is_err());
    // Its lease is 30 s long, and its client lives.
    let dropped = within(Duration::from_secs(10), "what was dropped", other.mutex("dropped").lock()).await.unwrap();
    assert!(dropped.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn p27_an_operator_is_served_among_5000_who_lock_one_name() {
    operators_are_served(1, 5_000, |client, _| client.mutex("x")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p27_an_operator_is_served_among_5000_who_lock_different_names() {
    operators_are_served(1, 5_000, |client, at| client.mutex(format!("x {at}"))).await;
}

/// Each acquire has its own entry, and each client reads the changes of the other.
#[tokio::test(flavor = "multi_thread")]
async fn p27_an_operator_is_served_among_3000_of_two_clients_in_strict_order() {
    operators_are_served(2, 3_000, |client, _| client.mutex("x").fair()).await;
}

/// One of the clients holds a short lease, and sends the requests of an operator; so does another process.
async fn operators_are_served(clients: usize, count: usize, lock: impl Fn(&Leasehold, usize) -> Mutex) {
    let store = Store::new();
    let mut all = Vec::new();
    for _ in 0..clients {
        all.push(store.client().await);
    }
    let held = all[0].mutex("held").lease(LEASE).lock().await.unwrap();
    let mut child = Child::start(&store.url());
    let begun = Instant::now();
    // A waiter has a second to take its grant. On a busy machine a release can take longer, and then the lease has ended.
    let serve = async |mutex: Mutex| {
        let guard = mutex.lock().await.unwrap();
        let (left, sent) = (guard.remaining(), Instant::now());
        let released = guard.release().await.unwrap();
        assert!(released == Released::Released || sent.elapsed() > left, "{left:?} were left");
    };
    let crowd: Vec<_> = (0..count).map(|at| tokio::spawn(serve(lock(&all[at % clients], at)))).collect();
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    while rounds == 0 || crowd.iter().any(|task| !task.is_finished()) {
        longest = longest.max(ask(&all[0], &mut child).await);
        rounds += 1;
    }
    let all_served = begun.elapsed();
    println!("{count} served in {all_served:.1?}: each of {rounds} looks of an operator took {longest:.1?} at most");
    for task in crowd {
        task.await.unwrap();
    }
    assert!(longest < ANSWER, "{longest:?}");
    assert!(held.is_valid(), "it was renewed meanwhile");
}

/// Returns the duration of the longest request of an operator.
async fn ask(client: &Leasehold, child: &mut Child) -> Duration {
    let begun = Instant::now();
    let seen = client.mutex("held").inspect().await.unwrap();
    assert!(seen.holder().is_some());
    let (inspected, begun) = (begun.elapsed(), Instant::now());
    assert!(client.names().await.unwrap().contains(&"held".to_owned()));
    let (named, begun) = (begun.elapsed(), Instant::now());
    let said = tokio::task::block_in_place(|| child.ask("inspect held", "inspected"));
    assert_eq!(said, "held", "by another process");
    inspected.max(named).max(begun.elapsed())
}
