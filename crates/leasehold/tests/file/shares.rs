//! P26 for names with several grants: the shares of the dead come back immediately.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::{self, Guess, Link, Real, choose};
use leasehold::{LostReason, Released};
use leasehold_spec::{Acquire, GrantId, Name, Op, Outcome, Patience, SessionId, Take};
use rustix::process::Signal;

use crate::child::Child;
use crate::{AT_ONCE, LONG, Store, eventually, slow, within};

/// Longer than any test: a grant that comes earlier is not caused by the end of a lease.
const LEASE_S: u64 = 600;

/// Both readers are watched. The writer's own re-check is not due within the time limit of this test.
#[tokio::test]
async fn p26_killed_readers_are_followed_at_once() {
    let store = Store::new();
    let (mut first, mut second) = (Child::start(&store.url()), Child::start(&store.url()));
    for reader in [&mut first, &mut second] {
        reader.ask(&format!("read x {LEASE_S}"), "reads");
    }
    let client = slow::client(&store.url()).await;
    let lock = client.rw_lock("x");
    let writing = tokio::spawn(async move { lock.write().await });
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    first.kill();
    assert!(client.rw_lock("x").try_write().await.unwrap().is_none(), "the second one reads");
    second.kill();
    let guard = within(AT_ONCE, "its turn", writing).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// More grants than one step gives back.
#[tokio::test]
async fn p26_all_permits_of_a_killed_holder_come_back_at_once() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    holder.ask(&format!("permits x 150 {LEASE_S}"), "acquired");
    let client = slow::client(&store.url()).await;
    let semaphore = client.semaphore("x", 150);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let acquiring = tokio::spawn(async move { semaphore.acquire_many(150).await });
    eventually("it waits", async || client.mutex("x").inspect().await.unwrap().waiters == 1).await;
    holder.kill();
    let permit = within(LONG, "its turn", acquiring).await.unwrap().unwrap();
    assert_eq!(permit.release().await.unwrap(), Released::Released);
}

/// A permit that is free is granted, whoever has died. The permits of the dead are looked for when somebody needs them.
#[tokio::test]
async fn p26_a_dead_holder_is_no_holder_to_those_who_come_later() {
    let store = Store::new();
    let client = store.client().await;
    let mut holder = Child::start(&store.url());
    holder.ask(&format!("read x {LEASE_S}"), "reads");
    assert!(client.rw_lock("x").try_write().await.unwrap().is_none());
    assert!(client.rw_lock("x").inspect().await.unwrap().holder().is_some());
    holder.kill();
    assert!(client.rw_lock("x").inspect().await.unwrap().holder().is_none(), "an inspection does not show the dead");
    let reader = client.rw_lock("x").try_read().await.unwrap().expect("free beside a reader");
    let shown = client.rw_lock("x").inspect().await.unwrap().holder().cloned().expect("the living reader");
    assert_eq!(shown.token, reader.token());
    assert_eq!(reader.release().await.unwrap(), Released::Released);
    assert!(client.rw_lock("x").try_write().await.unwrap().is_some(), "at once, and not in {LEASE_S} s");
}

/// Plays a client that acquires one of `limit` permits, and returns its parts. It dies when they are dropped.
async fn played(store: &Store, number: u32, limit: u32) -> (Arc<dyn Link>, Arc<dyn seam::Store>) {
    let desk = choose(&store.url(), None, &Real::world()).unwrap();
    let link = desk.open().await.unwrap();
    let session = SessionId(u128::from(number));
    link.attach(session, Arc::new(drop)).await.unwrap();
    let acquire = Acquire {
        id: GrantId { session, counter: 1, nonce: 1 },
        take: Take::permits(1, limit),
        lease_ms: LEASE_S * 1000,
        not_after_us: u64::MAX,
        patience: Patience::Try,
        label: "".into(),
        range: 1,
    };
    let asked = link.apply(&Name::new("x").unwrap(), &Op::Acquire(acquire), Guess::default()).await.unwrap();
    assert!(matches!(asked.outcome, Outcome::Granted { .. }), "{asked:?}");
    (link, desk)
}

/// A step checks 64 sessions, and says that there are more.
#[tokio::test]
async fn p26_the_permits_of_the_dead_behind_64_living_clients_come_back_at_once() {
    const LIVING: u32 = 64;
    const DEAD: u32 = 6;
    let store = Store::new();
    let mut clients = Vec::new();
    for number in 0..LIVING + DEAD {
        clients.push(played(&store, number, LIVING + DEAD).await);
    }
    let client = slow::client(&store.url()).await;
    drop(clients.split_off(LIVING as usize));
    for number in LIVING..LIVING + DEAD {
        let life = store.path().join(format!("live/{}.life", SessionId(u128::from(number))));
        eventually("its life is over", async || UnixStream::connect(&life).is_err()).await;
    }
    let semaphore = client.semaphore("x", LIVING + DEAD);
    let permit = within(AT_ONCE, "their permits", semaphore.acquire_many(DEAD)).await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "the others live");
    assert_eq!(permit.release().await.unwrap(), Released::Released);
    drop(clients);
}

/// A reader is stopped, and reads nothing before another grant has its place. It reads of its end all the same.
#[tokio::test]
async fn p10_a_stopped_reader_learns_that_it_was_revoked() {
    let store = Store::new();
    let client = store.client().await;
    let mut others = Child::start(&store.url());
    others.ask(&format!("read x {LEASE_S}"), "reads");
    let reader = client.rw_lock("x").lease(Duration::from_secs(LEASE_S)).read().await.unwrap();
    // The oldest grant is shown: that of the child.
    others.signal(Signal::STOP);
    let holder = client.rw_lock("x").inspect().await.unwrap().holder().cloned().unwrap();
    assert!(holder.token < reader.token());
    let _ = client.rw_lock("x").revoke(&holder, Duration::ZERO).await.unwrap();
    assert!(reader.is_valid(), "the other readers stay");
    let holder = client.rw_lock("x").inspect().await.unwrap().holder().cloned().unwrap();
    assert_eq!(holder.token, reader.token());
    let lost = reader.lost();
    let _ = client.rw_lock("x").revoke(&holder, Duration::ZERO).await.unwrap();
    assert_eq!(within(AT_ONCE, "its message", lost).await.reason(), LostReason::Revoked);
    let writer = client.rw_lock("x").try_write().await.unwrap().expect("no reader is left");
    others.signal(Signal::CONT);
    assert_eq!(others.ask("share lost", "lost"), "Revoked");
    drop(writer);
}
