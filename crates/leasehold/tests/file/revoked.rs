//! P10: a revocation by another process, which has ended when the grace is over.

use std::time::{Duration, Instant};

use leasehold::Released;
use rustix::process::Signal;

use crate::child::Child;
use crate::{LONG, Store, eventually, within};

const GRACE: Duration = Duration::from_secs(1);
/// The promise: after the grace, the next waiter holds within this time.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// The holder is stopped and gets no message. The waiter's own re-check comes after 4 s at the earliest. A bell rings,
/// and the waiter reads the new end of the lease.
#[tokio::test]
async fn p10_a_stopped_holder_is_followed_when_its_grace_is_over() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    let first: u64 = holder.ask("lock x 600", "locked").parse().unwrap();
    let client = store.client().await;
    let waits = client.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    let waiters = async |count| client.mutex("x").inspect().await.unwrap().waiters == count;
    eventually("it waits", async || waiters(1).await).await;
    let mut behind = Child::start(&store.url());
    behind.send("lock x 600");
    eventually("the other one waits", async || waiters(2).await).await;
    holder.signal(Signal::STOP);
    let mut operator = Child::start(&store.url());
    operator.send(&format!("revoke x {}", GRACE.as_millis()));
    let revoked = Instant::now();
    operator.reads("revoked Ok");
    operator.kill();
    let guard = within(LONG, "its turn", waiting).await.unwrap().unwrap();
    let took = revoked.elapsed();
    assert!((GRACE..=GRACE + SERVED_WITHIN).contains(&took), "{took:?}");
    assert!(guard.token().get() > first);
    // It continues while another client holds, and reads the message then: its next renewal is due in 200 s.
    holder.signal(Signal::CONT);
    let continued = Instant::now();
    assert_eq!(holder.ask("lost x", "lost"), "Revoked");
    assert!(continued.elapsed() < SERVED_WITHIN, "{:?}", continued.elapsed());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    behind.reads("locked");
}

/// The first one that was notified has died within the grace.
#[tokio::test]
async fn p10_a_second_process_is_notified_as_well() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    holder.ask("lock x 600", "locked");
    let client = store.client().await;
    let waiters = async |count| client.mutex("x").inspect().await.unwrap().waiters == count;
    let mut dying = Child::start(&store.url());
    dying.send("lock x 600");
    eventually("it waits", async || waiters(1).await).await;
    let waits = client.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    eventually("the other one waits", async || waiters(2).await).await;
    holder.signal(Signal::STOP);
    let mut operator = Child::start(&store.url());
    operator.send(&format!("revoke x {}", GRACE.as_millis()));
    let revoked = Instant::now();
    operator.reads("revoked Ok");
    operator.kill();
    dying.kill();
    let guard = within(LONG, "its turn", waiting).await.unwrap().unwrap();
    let took = revoked.elapsed();
    assert!((GRACE..=GRACE + SERVED_WITHIN).contains(&took), "{took:?}");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}
