//! Lost replies: the server has acted, and the client does not know.

use std::time::Duration;

use leasehold::seam::Script;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::Quorum;
use leasehold_testkit::proxy::{Fault, Injected, Requests, Way};

use crate::common::{
    LONG, MAX_LEASE, NAME, PROMPT, assert_busy, assert_kept, await_no_residue, client, client_at_all, five, granted,
    join, script, taken, within,
};

/// The ways in which a reply is lost: the connection breaks, or delivers nothing any more.
const WAYS: [fn(Requests) -> Fault; 2] = [Fault::cut_at_reply, Fault::mute_at_reply];

/// Loses replies at this many nodes, each time or once.
fn lose(quorum: &Quorum, at: usize, fault: &Fault) -> Vec<Injected> {
    quorum.proxies()[..at].iter().map(|proxy| proxy.inject(fault.clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_grant_at_a_minority() {
    for way in WAYS {
        let quorum = five().await;
        let a = client_at_all(&quorum.url_by_proxy(), MAX_LEASE, quorum.servers()).await;
        let b = client(&quorum.url(), MAX_LEASE).await;
        let lost = lose(&quorum, 2, &way(script(Script::NodeAsk)).once());
        let guard = within(PROMPT, "the lock", a.mutex(NAME).lock()).await.unwrap();
        lost.iter().for_each(|lost| lost.wait(1, LONG));
        assert_busy(&b.mutex(NAME)).await;
        let token = guard.token();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        await_no_residue(quorum.servers(), Duration::from_secs(5));
        let next = b.mutex(NAME).try_lock().await.unwrap().expect("it is free");
        assert!(next.token() > token);
    }
}

/// The nodes vote, and no client knows. The client gives possible votes back without its caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_grant_at_a_majority() {
    for way in WAYS {
        let quorum = five().await;
        let a = client_at_all(&quorum.url_by_proxy(), MAX_LEASE, quorum.servers()).await;
        let b = client(&quorum.url(), MAX_LEASE).await;
        let lost = lose(&quorum, 3, &way(script(Script::NodeAsk)));
        let error = within(LONG, "an answer", a.mutex(NAME).try_lock()).await.expect_err("three nodes did not reply");
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Quorum);
        assert!(error.may_have_acted(), "{error:?}");
        for lost in &lost {
            lost.wait(1, LONG);
            lost.lift();
        }
        await_no_residue(quorum.servers(), Duration::from_secs(5));
        let guard = within(LONG, "the lock", b.mutex(NAME).lock()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

/// A waiter asks again until it gets a reply, and is granted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_grant_at_a_majority_to_a_waiter() {
    for way in WAYS {
        let quorum = five().await;
        let a = client_at_all(&quorum.url_by_proxy(), MAX_LEASE, quorum.servers()).await;
        let b = client(&quorum.url(), MAX_LEASE).await;
        let lost = lose(&quorum, 4, &way(script(Script::NodeAsk)).once());
        let guard = within(LONG, "the lock", a.mutex(NAME).lock()).await.unwrap();
        lost.iter().for_each(|lost| lost.wait(1, LONG));
        assert_busy(&b.mutex(NAME)).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        await_no_residue(quorum.servers(), Duration::from_secs(5));
    }
}

async fn of_a_release_at(at: usize, way: fn(Requests) -> Fault) {
    let quorum = five().await;
    let a = client_at_all(&quorum.url_by_proxy(), MAX_LEASE, quorum.servers()).await;
    let b = client(&quorum.url(), MAX_LEASE).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    let lost = lose(&quorum, at, &way(script(Script::NodeGiveBack)).once());
    let token = guard.token();
    let freed = within(LONG, "the release", guard.release()).await.unwrap();
    assert_eq!(freed, Released::Released, "{at} answers lost");
    lost.iter().for_each(|lost| lost.wait(1, LONG));
    let next = granted(LONG, waiting).await;
    assert!(next.token() > token);
    // A repeated release does not end the next grant.
    assert_kept(&next, Duration::from_millis(300)).await;
    assert_eq!(next.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_release_at_a_minority_and_at_a_majority() {
    let cases = [2, 3, 5].into_iter().flat_map(|at| WAYS.map(|way| tokio::spawn(of_a_release_at(at, way))));
    for case in cases.collect::<Vec<_>>() {
        case.await.unwrap();
    }
}

/// A failed renewal is repeated, and an unknown result is not a loss.
async fn of_renewals_at(at: usize, way: fn(Requests) -> Fault) {
    let (quorum, lease) = (five().await, Duration::from_secs(3));
    let a = client_at_all(&quorum.url_by_proxy(), lease, quorum.servers()).await;
    let b = client(&quorum.url(), lease).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    let lost = lose(&quorum, at, &way(script(Script::NodeRenew)).once());
    assert_kept(&guard, lease * 5 / 4).await;
    lost.iter().for_each(|lost| lost.wait(1, LONG));
    assert_busy(&b.mutex(NAME)).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_renewals() {
    // The tests mostly wait for time to pass.
    let cases = [2, 3, 5].into_iter().flat_map(|at| WAYS.map(|way| tokio::spawn(of_renewals_at(at, way))));
    for case in cases.collect::<Vec<_>>() {
        case.await.unwrap();
    }
}

/// Requests arrive seconds late, after their callers have given up: they grant nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_arrive_late_take_nothing() {
    let quorum = five().await;
    let a = client_at_all(&quorum.url_by_proxy(), MAX_LEASE, quorum.servers()).await;
    let b = client(&quorum.url(), MAX_LEASE).await;
    quorum.proxies().iter().for_each(|proxy| proxy.stall(Way::Requests));
    let error = within(LONG, "an answer", a.mutex(NAME).try_lock()).await.expect_err("no node answers");
    assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    let guard = b.mutex(NAME).lock().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    quorum.proxies().iter().for_each(|proxy| proxy.resume());
    let guard = within(PROMPT, "the lock", b.mutex(NAME).lock()).await.unwrap();
    assert_kept(&guard, Duration::from_millis(500)).await;
    assert_eq!(taken(quorum.servers()), 5);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

/// Only the holder is cut off from all nodes: it knows when its lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_everything_to_the_holder() {
    let (quorum, lease) = (five().await, Duration::from_millis(1500));
    let a = client_at_all(&quorum.url_by_proxy(), lease, quorum.servers()).await;
    let b = client(&quorum.url(), lease).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    quorum.proxies().iter().for_each(|proxy| proxy.stall(Way::Both));
    let next = granted(LONG, waiting).await;
    assert!(!guard.is_valid(), "no other client is granted the lock while the first one still holds it");
    within(LONG, "the loss", guard.lost()).await;
    assert!(next.token() > guard.token());
    quorum.proxies().iter().for_each(|proxy| proxy.resume());
    drop(guard);
    assert_kept(&next, 2 * lease).await;
    assert_eq!(next.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}
