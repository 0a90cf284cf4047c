//! Condition variables, latches and elections between processes: messages that make no grant of a lock, and the
//! notifications of the dead.

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold};

use rustix::process::Signal;

use crate::child::Child;
use crate::{AT_ONCE, LONG, Store, eventually, slow, within};

async fn waiters(client: &Leasehold, name: &str, count: usize) {
    eventually("they wait", async || client.mutex(name).inspect().await.unwrap().waiters == count).await;
}

/// The waiter's own re-check is not due within the time limit of this test.
#[tokio::test]
async fn p42_a_notification_reaches_another_process_at_once() {
    let store = Store::new();
    let client = store.client().await;
    let mut waiter = Child::start(&store.url());
    waiter.ask("wait at c m", "waits");
    waiters(&client, "c", 1).await;
    assert!(client.condvar("c").notify_one().await.unwrap());
    waiter.reads_within(AT_ONCE, "woken");
    assert_eq!(client.condvar("c").notify_all().await.unwrap(), 0);
}

/// A process is notified, waits for the lock, and is killed. The next waiter came before or after the notification. Neither
/// its re-check nor that of the notifier is due within the time limit of this test.
#[tokio::test]
async fn p42_the_notification_of_a_killed_process_passes_on_at_once() {
    for comes_before in [true, false] {
        let store = Store::new();
        let client = slow::client(&store.url()).await;
        let mut dies = Child::start(&store.url());
        dies.ask("wait at c m", "waits");
        waiters(&client, "c", 1).await;
        let other = slow::client(&store.url()).await;
        let wait = || {
            let other = other.clone();
            tokio::spawn(async move { other.condvar("c").wait(other.mutex("n").lock().await?).await })
        };
        let early = if comes_before { Some(wait()) } else { None };
        waiters(&client, "c", 1 + usize::from(comes_before)).await;
        let guard = client.mutex("m").lock().await.unwrap();
        assert!(client.condvar("c").notify_one().await.unwrap());
        waiters(&client, "m", 1).await;
        let waiting = early.unwrap_or_else(wait);
        waiters(&client, "c", 1).await;
        assert_eq!(client.mutex("c").inspect().await.unwrap().holders.len(), 1, "the notification of the child");
        dies.kill();
        let woken = within(AT_ONCE, "its notification", waiting).await.unwrap().unwrap();
        assert!(woken.is_valid() && guard.is_valid());
        eventually("it is spent", async || client.mutex("c").inspect().await.unwrap().holders.is_empty()).await;
    }
}

/// A process is stopped when it is notified, so that it does not claim its notification, and is killed. Nobody's re-check
/// is due within the time limit of this test.
#[tokio::test]
async fn p42_a_process_that_is_killed_before_it_wakes_up_passes_on_at_once() {
    let store = Store::new();
    let client = slow::client(&store.url()).await;
    let (mut dies, mut lives) = (Child::start(&store.url()), Child::start(&store.url()));
    for (count, waiter) in (1..).zip([&mut dies, &mut lives]) {
        waiter.ask("wait at c m", "waits");
        waiters(&client, "c", count).await;
    }
    dies.signal(Signal::STOP);
    assert!(client.condvar("c").notify_one().await.unwrap());
    let shown = client.mutex("c").inspect().await.unwrap();
    assert_eq!((shown.holders.len(), shown.waiters), (1, 1), "the first one is notified");
    dies.kill();
    lives.reads_within(AT_ONCE, "woken");
}

/// A waiter that is killed gets no notification.
#[tokio::test]
async fn p42_a_killed_waiter_is_passed_over() {
    let store = Store::new();
    let client = store.client().await;
    let (mut dies, mut lives) = (Child::start(&store.url()), Child::start(&store.url()));
    for (count, waiter) in (1..).zip([&mut dies, &mut lives]) {
        waiter.ask("wait at c m", "waits");
        waiters(&client, "c", count).await;
    }
    dies.kill();
    client.condvar("c").notify_one().await.unwrap();
    lives.reads_within(AT_ONCE, "woken");
}

#[tokio::test]
async fn p44_a_latch_opens_for_other_processes_at_once() {
    let store = Store::new();
    let client = store.client().await;
    let latch = client.latch("l");
    latch.create(2).await.unwrap();
    let mut waiter = Child::start(&store.url());
    waiter.send("latch l");
    waiters(&client, "l", 1).await;
    latch.count_down_as("a part").await.unwrap();
    latch.count_down_as("a part").await.unwrap();
    assert_eq!(latch.remaining().await.unwrap(), 1, "it counts once");
    store.client().await.latch("l").count_down().await.unwrap();
    waiter.reads_within(AT_ONCE, "open");
    waiter.ask("latch l", "open");
    assert_eq!(latch.create(3).await.unwrap_err().kind(), ErrorKind::Mismatch);
}

/// The waiters get no grant, and their rows are gone.
#[tokio::test]
async fn p44_the_deletion_of_a_latch_reaches_other_processes_at_once() {
    let store = Store::new();
    let client = store.client().await;
    let latch = client.latch("l");
    latch.create(1).await.unwrap();
    let mut waiter = Child::start(&store.url());
    waiter.send("latch l");
    waiters(&client, "l", 1).await;
    latch.delete().await.unwrap();
    assert_eq!(waiter.reads_within(AT_ONCE, "failed"), "Absent");
    latch.create(1).await.unwrap();
    assert_eq!(latch.remaining().await.unwrap(), 1);
}

/// Several processes lead one after the other. The observer learns of each change by a message, and of a death soon.
#[tokio::test]
async fn p48_an_observer_follows_the_leaders_of_other_processes() {
    let store = Store::new();
    let client = store.client().await;
    let mut observer = slow::client(&store.url()).await.election("e").observe();
    assert_eq!(observer.next().await.unwrap(), None);
    let first = client.election("e").campaign("first").await.unwrap();
    let next = async |observer: &mut leasehold::Observer| {
        within(LONG, "a change", observer.next()).await.unwrap().map(|leader| leader.value)
    };
    assert_eq!(next(&mut observer).await.as_deref(), Some("first"));
    first.put("renamed").await.unwrap();
    assert_eq!(next(&mut observer).await.as_deref(), Some("renamed"));
    let mut child = Child::start(&store.url());
    child.send("campaign e second");
    waiters(&client, "e", 1).await;
    let _ = first.resign().await.unwrap();
    child.reads("leads");
    assert_eq!(next(&mut observer).await.as_deref(), Some("second"));
    child.kill();
    let mut observer = client.election("e").observe();
    assert_eq!(within(Duration::from_secs(10), "its end", observer.next()).await.unwrap(), None);
    let third = within(AT_ONCE, "its turn", client.election("e").campaign("third")).await.unwrap();
    assert!(first_is_older(&third, observer.next().await.unwrap()));
}

/// The name of the observers is one that no user can name. The four changes take longer than the limit if the observer
/// learns of them only when it looks by itself.
#[tokio::test]
async fn p48_an_observer_of_another_client_gets_a_message_of_each_change() {
    let store = Store::new();
    let leadership = store.client().await.election("e").campaign("0").await.unwrap();
    let mut observer = store.client().await.election("e").observe();
    assert!(observer.next().await.unwrap().is_some());
    let changes = async {
        for value in ["1", "2", "3", "4"] {
            let change = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                leadership.put(value).await
            };
            let (changed, seen) = tokio::join!(change, observer.next());
            changed.unwrap();
            assert_eq!(seen.unwrap().map(|leader| leader.value).as_deref(), Some(value));
        }
    };
    within(AT_ONCE, "four changes", changes).await;
}

fn first_is_older(third: &leasehold::Leadership, seen: Option<leasehold::Leader>) -> bool {
    seen.is_some_and(|leader| leader.token == third.token() && leader.value == "third")
}
