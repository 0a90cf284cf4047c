//! Runs: a client that comes back at once is served again while others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Leasehold, Released};
use leasehold_spec::Token;
use leasehold_spec::node::Record;
use leasehold_testkit::voters::{Mood, Voters};
use tokio::task::{JoinHandle, yield_now};

use crate::played::{client, granted, voters};

const LONG: Duration = Duration::from_secs(20);
/// The time after which waiters ask by themselves if nobody has ended a pause.
const NOTICE: Duration = Duration::from_millis(50);
/// How often each client is served at least, however slow the machine is.
const SERVED: usize = 10;

/// Takes the lock again and again until `ends`, and at least [`SERVED`] times. Returns the tokens.
fn repeat(client: Leasehold, ends: &Arc<AtomicBool>, inside: &Arc<AtomicU32>, is_fair: bool) -> JoinHandle<Vec<Token>> {
    let (ends, inside) = (Arc::clone(ends), Arc::clone(inside));
    tokio::spawn(async move {
        let mut tokens = Vec::new();
        while !ends.load(Ordering::Relaxed) || tokens.len() < SERVED {
            let lock = client.mutex("a");
            let guard = if is_fair { lock.fair() } else { lock }.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
            tokens.push(guard.token());
            yield_now().await;
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
        tokens
    })
}

/// Returns how often the lock went from one client to another, and how often it was taken, by three clients in a second.
async fn changes(is_fair: bool) -> (usize, usize) {
    changes_while(is_fair, None).await
}

/// Takes the lock in the pauses of others, until `ends`.
fn repeat_try(client: Leasehold, ends: &Arc<AtomicBool>, inside: &Arc<AtomicU32>) -> JoinHandle<()> {
    let (ends, inside) = (Arc::clone(ends), Arc::clone(inside));
    tokio::spawn(async move {
        while !ends.load(Ordering::Relaxed) {
            // These nodes answer at once. Without this, the loop would keep its thread.
            yield_now().await;
            let Ok(Some(guard)) = client.mutex("a").try_lock().await else { continue };
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
    })
}

/// The same, while a node behaves like this for a while, and another client tries.
async fn changes_while(is_fair: bool, mood: Option<Mood>) -> (usize, usize) {
    let voters = Arc::new(voters(3));
    let (ends, inside) = (Arc::default(), Arc::default());
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(repeat(client(&voters).await, &ends, &inside, is_fair));
    }
    let trying = match mood {
        Some(_) => Some(repeat_try(client(&voters).await, &ends, &inside)),
        None => None,
    };
    for mood in [mood, None] {
        tokio::time::sleep(Duration::from_millis(500)).await;
        voters.nodes[0].be(mood.unwrap_or(Mood::Answers));
    }
    ends.store(true, Ordering::Relaxed);
    let mut grants = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        let tokens = tokio::time::timeout(LONG, client).await.expect("no client waits for ever").unwrap();
        assert!(tokens.is_sorted());
        grants.extend(tokens.into_iter().map(|token| (token, number)));
    }
    if let Some(trying) = trying {
        trying.await.unwrap();
    }
    grants.sort_unstable();
    let changes = grants.windows(2).filter(|two| two[0].1 != two[1].1).count();
    println!("fair {is_fair}: {changes} hand-overs in {} grants", grants.len());
    (changes, grants.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_back_at_once_are_served_again_in_turn() {
    let (changes, grants) = changes(false).await;
    assert!(changes * 2 < grants, "most grants follow another one of the same client");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_clients_take_turns() {
    let (changes, grants) = changes(true).await;
    assert!(changes * 2 > grants, "most grants follow a grant of another client");
}

/// In a run a client asks a bare majority, and this node may be part of it. Every client is served all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_lost_in_a_run_stops_nobody() {
    for mood in [Mood::Dead, Mood::Stopped, Mood::Mute] {
        println!("{mood:?}");
        changes_while(false, Some(mood)).await;
    }
}

/// Returns whether a majority is free while somebody waits, and calls nobody.
fn is_paused(voters: &Voters) -> bool {
    let is_paused = |record: &Record| record.grant.is_none() && record.called.is_none() && !record.queue.is_empty();
    voters.nodes.iter().filter(|node| is_paused(&node.record("a"))).count() > voters.nodes.len() / 2
}

/// One client has paused, and does not come back. Returns the time until another client held the lock. `None`: the client
/// has not paused, because the machine was too slow.
async fn abandoned_pause() -> Option<Duration> {
    let voters = Arc::new(voters(3));
    let (a, b, c) = (client(&voters).await, client(&voters).await, client(&voters).await);
    let waits = |count: usize| {
        let voters = Arc::clone(&voters);
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
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        (a, Instant::now())
    });
    let second = second.await.unwrap();
    until("A waits", &waits(1));
    let third = tokio::spawn(async move { (c.mutex("a").lock().await.unwrap(), Instant::now()) });
    until("C waits, too", &waits(2));
    assert_eq!(second.release().await.unwrap(), Released::Released);
    let (_a, released) = returning.await.unwrap();
    let has_paused = is_paused(&voters);
    let (guard, held) = tokio::time::timeout(LONG, third).await.expect("C is called").unwrap();
    assert!(guard.is_valid() && granted(&voters, "a") > 1);
    has_paused.then(|| held - released)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_come_back_has_the_next_one_called() {
    let mut least = Duration::MAX;
    for _ in 0..20 {
        if let Some(within) = abandoned_pause().await {
            println!("C held {within:?} after the pause began");
            least = least.min(within);
        }
        if least < NOTICE / 2 {
            return;
        }
    }
    panic!("C waited for {least:?}");
}
