//! P26: a death is noticed immediately.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Released;
use leasehold::seam::{self, Guess, Link, Real, choose};
use leasehold_spec::{Acquire, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, SessionId, Take};
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Child;
use crate::{AT_ONCE, LONG, Store, eventually, slow, within};

/// Longer than any test: a hand-over that comes earlier is not caused by the end of a lease.
const LEASE_S: u64 = 600;

/// The waiter's own re-check is not due within the time limit of this test.
#[tokio::test]
async fn p26_a_killed_holder_is_followed_at_once() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    let first: u64 = holder.ask(&format!("lock x {LEASE_S}"), "locked").parse().unwrap();
    let client = slow::client(&store.url()).await;
    let waits = client.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    holder.kill();
    let guard = within(AT_ONCE, "its turn", waiting).await.unwrap().unwrap();
    assert!(guard.token().get() > first);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// After a hand-over, the next waiter watches the new holder: a claim that becomes a whole lease rings the next waiter.
#[tokio::test]
async fn p26_the_next_holder_is_watched_as_well() {
    let store = Store::new();
    let client = store.client().await;
    let guard = client.mutex("x").lock().await.unwrap();
    let mut second = Child::start(&store.url());
    second.send(&format!("lock x {LEASE_S}"));
    let waiters = async |count| client.mutex("x").inspect().await.unwrap().waiters == count;
    eventually("the second waits", async || waiters(1).await).await;
    let third = slow::client(&store.url()).await;
    let waits = third.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    eventually("the third waits", async || waiters(2).await).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    second.reads("locked");
    eventually("its claim is whole", async || {
        let holder = client.mutex("x").inspect().await.unwrap().holder().cloned().expect("it holds");
        holder.remaining > Duration::from_secs(LEASE_S / 2)
    })
    .await;
    // After the re-check of the second client at the end of the claim (P7). The next re-check, that of the third
    // client, is due much later.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    second.kill();
    let guard = within(AT_ONCE, "its turn", waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Without a bell, a re-check would notice it after twenty seconds at the earliest.
#[tokio::test]
async fn p27_a_bell_is_heard_at_once() {
    let store = Store::new();
    let client = slow::client(&store.url()).await;
    let guard = client.mutex("x").lock().await.unwrap();
    let mut waiter = Child::start(&store.url());
    waiter.send(&format!("wait x {LEASE_S}"));
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let asked = Instant::now();
    waiter.reads("locked");
    assert!(asked.elapsed() < AT_ONCE);
}

#[tokio::test]
async fn p26_a_dead_holder_is_no_holder_to_those_who_come_later() {
    let store = Store::new();
    let client = store.client().await;
    let mut holder = Child::start(&store.url());
    holder.ask(&format!("lock x {LEASE_S}"), "locked");
    assert!(client.mutex("x").try_lock().await.unwrap().is_none());
    assert!(client.mutex("x").inspect().await.unwrap().holder().is_some());
    holder.kill();
    assert!(client.mutex("x").inspect().await.unwrap().holder().is_none(), "who looks is not told of the dead");
    assert!(client.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn p26_a_killed_waiter_is_passed_over() {
    let store = Store::new();
    let client = slow::client(&store.url()).await;
    let guard = client.mutex("x").lock().await.unwrap();
    let mut dies = Child::start(&store.url());
    dies.send(&format!("lock x {LEASE_S}"));
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    let mut lives = Child::start(&store.url());
    lives.send(&format!("wait x {LEASE_S}"));
    eventually("both wait", async || client.mutex("x").inspect().await.unwrap().waiters == 2).await;
    dies.kill();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let asked = Instant::now();
    lives.reads("locked");
    assert!(asked.elapsed() < AT_ONCE, "no claim was spent on the dead");
}

/// If a supervisor dies, its command goes on under the lock, and keeps the lock until it ends.
#[tokio::test]
async fn p26_a_command_that_has_the_life_keeps_the_lock() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    holder.ask(&format!("lock x {LEASE_S}"), "locked");
    let command = holder.ask("command", "command").parse().unwrap();
    let client = slow::client(&store.url()).await;
    let waits = client.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    holder.kill();
    // Each of these checks whether the holder lives, after the broken connection that the waiter saw.
    for _ in 0..10 {
        assert!(client.mutex("x").try_lock().await.unwrap().is_none(), "the command lives");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!waiting.is_finished());
    kill_process(Pid::from_raw(command).unwrap(), Signal::KILL).unwrap();
    let guard = within(AT_ONCE, "its turn", waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// A frozen process is not dead: its lease goes on, and ends.
#[tokio::test]
async fn p26_a_stopped_holder_has_its_lease() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    holder.ask("lock x 3", "locked");
    let client = store.client().await;
    assert!(client.mutex("x").try_lock().await.unwrap().is_none());
    holder.signal(Signal::STOP);
    for _ in 0..10 {
        assert!(client.mutex("x").try_lock().await.unwrap().is_none(), "it lives");
    }
    let guard = within(LONG, "the end of its lease", client.mutex("x").lock()).await.unwrap();
    holder.signal(Signal::CONT);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Process 1 in the namespace is another process than process 1 outside, and the store does not confuse them.
#[tokio::test]
async fn p26_two_pid_namespaces_exclude_each_other() {
    let store = Store::new();
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut inner = Child::start_by(&store.url(), &unshare);
    inner.reads("ready");
    let mut other = Child::start_by(&store.url(), &unshare);
    other.reads("ready");
    inner.ask(&format!("lock x {LEASE_S}"), "locked");
    let client = store.client().await;
    assert!(client.mutex("x").try_lock().await.unwrap().is_none());
    other.send(&format!("wait x {LEASE_S}"));
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    inner.kill();
    let asked = Instant::now();
    other.reads("locked");
    assert!(asked.elapsed() < AT_ONCE);
    assert!(client.mutex("x").try_lock().await.unwrap().is_none());
}

/// A client removes its sockets. Others remove the sockets of a killed client.
#[tokio::test]
async fn p26_no_sockets_pile_up() {
    let store = Store::new();
    for _ in 0..3 {
        store.client().await.close().await;
    }
    let sockets = || std::fs::read_dir(store.path().join("live")).unwrap().count();
    eventually("nothing is left of those that closed", async || sockets() == 0).await;
    let mut killed: Vec<_> = (0..3).map(|_| Child::start(&store.url())).collect();
    assert_eq!(sockets(), 6);
    killed.iter_mut().for_each(Child::kill);
    assert_eq!(sockets(), 6, "they could not");
    let _client = store.client().await;
    assert_eq!(sockets(), 2, "whoever comes next buries them");
}

/// Others come and go meanwhile, and sweep. The name of a dead holder is needed until its lease was handed on.
#[tokio::test]
async fn p26_the_name_of_a_dead_holder_shows_its_death() {
    let store = Store::new();
    let mut holders: Vec<_> = (0..3).map(|_| Child::start(&store.url())).collect();
    for (at, holder) in holders.iter_mut().enumerate() {
        holder.ask(&format!("lock x{at} {LEASE_S}"), "locked");
    }
    holders.iter_mut().for_each(Child::kill);
    for _ in 0..3 {
        store.client().await.close().await;
    }
    let client = store.client().await;
    for at in 0..3 {
        assert!(client.mutex(format!("x{at}")).try_lock().await.unwrap().is_some(), "at once, and not in {LEASE_S} s");
    }
    client.close().await;
    store.client().await.close().await;
    let sockets = || std::fs::read_dir(store.path().join("live")).unwrap().count();
    eventually("and then they are buried", async || sockets() == 0).await;
}

/// Plays a session that requests "x" once. It ends when the returned link and store are dropped.
async fn played(store: &Store, patience: Patience) -> (Outcome, (Arc<dyn Link>, Arc<dyn seam::Store>)) {
    let desk = choose(&store.url(), None, &Real::world()).unwrap();
    let link = desk.open().await.unwrap();
    let session = PLAYED;
    link.attach(session, Arc::new(drop)).await.unwrap();
    let acquire = Acquire {
        id: GrantId { session, counter: 1, nonce: 1 },
        take: Take::MUTEX,
        lease_ms: LEASE_S * 1000,
        not_after_us: u64::MAX,
        patience,
        label: "".into(),
        range: 1,
    };
    let asked = link.apply(&Name::new("x").unwrap(), &Op::Acquire(acquire), Guess::default()).await.unwrap();
    (asked.outcome, (link, desk))
}

const PLAYED: SessionId = SessionId(4711);

/// Waits until the thread has ended, and with it the life.
async fn is_dead(store: &Store) {
    let life = store.path().join(format!("live/{PLAYED}.life"));
    eventually("its life is over", async || UnixStream::connect(&life).is_err()).await;
}

/// A client that ends without a release (a session releases, unless it panics) leaves the name by which others notice its
/// death.
#[tokio::test]
async fn p26_a_client_that_ends_without_a_reply_is_followed_at_once() {
    let store = Store::new();
    let (outcome, client) = played(&store, Patience::Try).await;
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    drop(client);
    is_dead(&store).await;
    assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_some(), "at once, and not in {LEASE_S} s");
}

/// A waiter that polls is granted without a check of its inbox, even if it is dead. So its name is needed, too.
#[tokio::test]
async fn p26_a_dead_poller_that_is_granted_the_lease_is_followed_at_once() {
    let store = Store::new();
    let client = store.client().await;
    let guard = client.mutex("x").lock().await.unwrap();
    let (hears, order) = (Hears::Polls, Order::Relaxed);
    let place = Place { claim_ms: LEASE_S * 1000, limit_ms: None, ticket: None, hears, order };
    let (outcome, poller) = played(&store, Patience::Queue(place)).await;
    assert!(matches!(outcome, Outcome::Queued { .. }), "{outcome:?}");
    drop(poller);
    is_dead(&store).await;
    for _ in 0..3 {
        store.client().await.close().await;
    }
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(client.mutex("x").try_lock().await.unwrap().is_some(), "at once, and not in {LEASE_S} s");
}
