//! The runtime that connected ends, or is not polled.

use std::time::{Duration, Instant};

use leasehold::{Leasehold, Released};
use pollster::block_on;
use tokio::runtime::{Builder, Runtime};

use crate::common::{
    MAX_LEASE, NAME, PROMPT, await_no_residue, client, client_at_all, five, granted, is_busy, vote, votes, within,
};
use leasehold_testkit::proxy::{FaultProxy, Latency};
use leasehold_testkit::wait_until;

/// Far below the 250 ms after which a request without a majority is repeated.
const USUAL: Duration = Duration::from_millis(100);
/// An unanswered request counts as lost after a sixth of the lease, and is repeated.
const SERVED: Duration = Duration::from_millis(2_500);
const CLOSED: Duration = Duration::from_secs(5);
/// The number of locks of which the median is taken.
const LOCKS: usize = 9;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns the median time of a lock and its release: on a busy machine one or two may be slow.
async fn median(client: &Leasehold) -> Duration {
    let mut took = Vec::new();
    for _ in 0..LOCKS {
        let begun = Instant::now();
        let guard = within(PROMPT, "the lock", client.mutex(NAME).lock()).await.unwrap();
        assert_eq!(within(PROMPT, "the release", guard.release()).await.unwrap(), Released::Released);
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    took[LOCKS / 2]
}

/// Without the runtime no task reconnects the nodes of its lane: the lane ends with it, and another lane is opened.
#[test]
fn locks_stay_fast_when_the_runtime_that_connected_has_ended() {
    let (servers, first, second) = (runtime(), runtime(), runtime());
    let quorum = servers.block_on(five());
    let client = first.block_on(client(&quorum.url(), MAX_LEASE));
    let before = first.block_on(median(&client));
    drop(first);
    let after = second.block_on(median(&client));
    println!("before {before:?}, after {after:?}");
    assert!(after < USUAL, "{after:?}");
    second.block_on(client.close());
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

#[test]
fn locks_stay_fast_when_the_runtime_that_connected_is_not_polled() {
    let (servers, first, second) = (runtime(), runtime(), runtime());
    let quorum = servers.block_on(five());
    let client = first.block_on(client(&quorum.url(), MAX_LEASE));
    let guard = first.block_on(client.mutex(NAME).lock()).unwrap();
    let after = second.block_on(async {
        assert_eq!(within(PROMPT, "the release", guard.release()).await.unwrap(), Released::Released);
        median(&client).await
    });
    assert!(after < USUAL, "{after:?}");
    second.block_on(client.close());
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

/// The first caller in a local queue sends its request on its own runtime, which is not polled after that. A caller behind
/// it on another runtime does not depend on that runtime: it is served after the timeout of the first caller.
#[test]
fn a_caller_behind_one_on_a_stalled_runtime_is_served() {
    let (first, second) = (runtime(), Runtime::new().unwrap());
    let quorum = second.block_on(five());
    let ours = first.block_on(client(&quorum.url(), MAX_LEASE));
    let theirs = second.block_on(client(&quorum.url(), MAX_LEASE));
    let held = second.block_on(theirs.mutex(NAME).lock()).unwrap();
    let mutex = ours.mutex(NAME);
    let impatient = first.spawn(async move { mutex.try_lock_for(Duration::from_millis(10)).await });
    first.block_on(tokio::task::yield_now());
    let mutex = ours.mutex(NAME);
    let waiting = second.spawn(async move { mutex.lock().await });
    second.block_on(async {
        // By then the timeout of the first caller is over.
        tokio::time::sleep(SERVED).await;
        assert_eq!(held.release().await.unwrap(), Released::Released);
        let guard = granted(SERVED, waiting).await;
        assert_eq!(within(PROMPT, "the release", guard.release()).await.unwrap(), Released::Released);
        // Its documented bound: the first request is still unanswered, and can be carried out for a while.
        assert!(within(CLOSED, "the end", ours.close()).await.unconfirmed().is_empty());
    });
    let told = first.block_on(impatient).unwrap();
    assert!(!matches!(told, Ok(Some(_))), "its time was over");
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

/// The votes of a lost round go back on its runtime, which is polled only until the answer arrives. Otherwise the votes
/// would block others for the rest of the lease.
#[test]
fn a_refused_caller_on_a_stalled_runtime_leaves_no_vote() {
    let (first, second) = (runtime(), Runtime::new().unwrap());
    let quorum = second.block_on(five());
    let ours = first.block_on(client_at_all(&quorum.url(), MAX_LEASE, quorum.servers()));
    let theirs = second.block_on(client_at_all(&quorum.url(), MAX_LEASE, quorum.servers()));
    let held = second.block_on(theirs.mutex(NAME).lock()).unwrap();
    wait_until("the votes of all", PROMPT, || votes(quorum.servers(), held.token()) == 5);
    // Two nodes do not know the grant, as if they had been unreachable.
    let unaware = &quorum.servers()[..2];
    for server in unaware {
        server.command(&["DEL", "lq1:{stock}"]);
    }
    assert!(is_busy(first.block_on(ours.mutex(NAME).try_lock())));
    let is_given_back = || unaware.iter().all(|server| vote(server).is_none());
    wait_until("the votes of two", Duration::from_secs(2), is_given_back);
    assert_eq!(second.block_on(held.release()).unwrap(), Released::Released);
}

/// The same with two votes that arrive after the round is lost.
#[test]
fn late_votes_go_back_when_the_runtime_of_the_caller_is_stalled() {
    let (first, second) = (runtime(), Runtime::new().unwrap());
    let quorum = second.block_on(five());
    let slow: Vec<_> = quorum.servers()[..2].iter().map(|server| FaultProxy::start(server.port())).collect();
    let mut url = quorum.url();
    for (server, proxy) in quorum.servers().iter().zip(&slow) {
        url = url.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port()));
    }
    let ours = first.block_on(client_at_all(&url, MAX_LEASE, quorum.servers()));
    let held = second.block_on(async { client(&quorum.url(), MAX_LEASE).await.mutex(NAME).lock().await.unwrap() });
    wait_until("the votes of all", PROMPT, || votes(quorum.servers(), held.token()) == 5);
    let unaware = &quorum.servers()[..2];
    for server in unaware {
        server.command(&["DEL", "lq1:{stock}"]);
    }
    slow.iter().for_each(|proxy| proxy.set_latency(Some(Latency::fixed(Duration::from_millis(20)))));
    assert!(is_busy(first.block_on(ours.mutex(NAME).try_lock())));
    wait_until("the votes of two", PROMPT, || unaware.iter().all(|server| vote(server).is_some()));
    let is_given_back = || unaware.iter().all(|server| vote(server).is_none());
    wait_until("their return", Duration::from_secs(2), is_given_back);
    assert_eq!(second.block_on(held.release()).unwrap(), Released::Released);
}

/// The caller blocks the runtime that would send its requests. So the missing answers do not mean that the nodes are
/// silent.
#[test]
fn a_short_wait_within_a_blocked_runtime_finds_the_lock_free() {
    let (servers, blocked) = (runtime(), runtime());
    let quorum = servers.block_on(five());
    for wait in [Duration::ZERO, Duration::from_millis(50)] {
        let client = blocked.block_on(client(&quorum.url(), Duration::from_secs(2)));
        let guard = blocked.block_on(client.mutex("before").lock()).unwrap();
        assert_eq!(blocked.block_on(guard.release()).unwrap(), Released::Released);
        let _entered = blocked.enter();
        let begun = Instant::now();
        let guard = block_on(client.mutex(NAME).try_lock_for(wait)).unwrap().expect("it is free");
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        assert_eq!(block_on(guard.release()).unwrap(), Released::Released);
    }
}
