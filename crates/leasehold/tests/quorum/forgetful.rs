//! Real servers that forget: they restart empty, are flushed, or lose their marker.

use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, Guard, Leasehold, Released};
use leasehold_testkit::{Quorum, RedisServer, Value, wait_until};

use crate::common::{
    LONG, MARKER, MAX_LEASE, NAME, assert_busy, assert_kept, assert_names, client, five, five_of, granted, join, vote,
    votes, within,
};

/// Makes a holder that the servers 3 and 4 do not know, and that is cut off from server 2.
async fn held_at_the_first_three(quorum: &Quorum) -> (Leasehold, Guard) {
    for at in [3, 4] {
        quorum.proxy(at).refuse_connections();
    }
    let holder = client(&quorum.url_by_proxy(), MAX_LEASE).await;
    let guard = holder.mutex(NAME).lock().await.unwrap();
    wait_until("three votes", LONG, || votes(&quorum.servers()[..3], guard.token()) == 3);
    assert_eq!(votes(&quorum.servers()[3..], guard.token()), 0);
    quorum.proxy(2).refuse_connections();
    (holder, guard)
}

/// With plain Redlock the second client has a majority: the node that has forgotten, and the two that never knew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_empty_makes_no_second_holder() {
    let quorum = five().await;
    let (_holder, guard) = held_at_the_first_three(&quorum).await;
    quorum.server(2).restart();
    let other = client(&quorum.url(), MAX_LEASE).await;
    match within(LONG, "an answer", other.mutex(NAME).try_lock()).await {
        Ok(None) => {}
        Ok(Some(second)) => panic!("two holders: {:?} and {:?}", guard.token(), second.token()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Quorum, "{error}"),
    }
    assert!(guard.check().is_ok());
    assert!(vote(quorum.server(2)).is_none(), "it is in quarantine");
    // The two nodes that did not know the holder and the two that remember are a majority.
    quorum.proxies().iter().for_each(|proxy| proxy.accept_connections());
    assert_eq!(within(LONG, "the release", guard.release()).await.unwrap(), Released::Released);
}

/// The file of such a node may lack the last second of its answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_saves_every_second_is_in_quarantine_after_a_restart() {
    let quorum = five_of(RedisServer::builder().appendonly("everysec")).await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let resting = &quorum.servers()[..3];
    resting.iter().for_each(RedisServer::restart);
    let error = refused(&b, |error| names_all(error, resting, "is in quarantine for ")).await;
    println!("{error}");
    assert!(guard.check().is_ok(), "no other client can hold it");
    assert_names(&error.to_string(), &quorum.servers()[3..], "votes");
}

/// The setting that saves everything counts from the start of the server on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_saves_everything_is_not_in_quarantine() {
    let quorum = five_of(RedisServer::builder().appendonly("always")).await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lease(Duration::from_secs(3)).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    quorum.servers().iter().for_each(RedisServer::restart);
    assert_eq!(votes(quorum.servers(), guard.token()), 5, "it is in their files");
    // The lock is busy, or too few nodes are connected again. It is not granted: all nodes know the holder.
    if let Ok(Some(second)) = b.mutex(NAME).try_lock().await {
        panic!("two holders: {:?} and {:?}", guard.token(), second.token());
    }
    assert_kept(&guard, Duration::from_secs(4)).await;
    assert_busy(&b.mutex(NAME)).await;
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = within(LONG, "the lock", b.mutex(NAME).lock()).await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_nodes_abstain_on_their_open_connections() {
    forget(|server| {
        assert_eq!(server.command(&["FLUSHALL"]), Value::Status("OK".into()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_without_their_marker_abstain() {
    forget(|server| assert_eq!(server.command(&["DEL", MARKER]), Value::Int(1))).await;
}

/// First a minority forgets, which has no effect. Then a majority forgets, and there are no grants.
async fn forget(how: impl Fn(&RedisServer)) {
    let (quorum, lease) = (five().await, Duration::from_millis(900));
    let (a, b) = (client(&quorum.url(), lease).await, client(&quorum.url(), lease).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    quorum.servers()[..2].iter().for_each(&how);
    assert_busy(&b.mutex(NAME)).await;
    assert_kept(&guard, 2 * lease).await;
    how(quorum.server(2));
    let error = refused(&b, |error| names_all(error, &quorum.servers()[..3], "is in quarantine for ")).await;
    println!("{error}");
    assert_names(&error.to_string(), &quorum.servers()[3..], "votes");
    let lost = within(LONG, "the end", guard.lost()).await;
    assert!(lost.reason().is_expiry(), "three abstaining nodes do not report a loss: {lost:?}");
}

/// A waiter goes on by itself after the quarantine, which takes at least 22 s, whatever the longest lease is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_restart_empty_vote_again_after_the_quarantine() {
    let (quorum, lease) = (five().await, Duration::from_secs(2));
    let (a, b) = (client(&quorum.url(), lease).await, client(&quorum.url(), lease).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    let begun = Instant::now();
    quorum.servers().iter().for_each(RedisServer::restart);
    within(LONG, "the end", guard.lost()).await;
    let next = granted(Duration::from_secs(40), waiting).await;
    let rest = Duration::from_millis(leasehold_spec::node::rest_ms(MAX_LEASE.as_millis() as u64));
    let took = begun.elapsed();
    println!("went on after {took:?}");
    assert!(took >= rest, "{took:?}, and the quarantine takes {rest:?}");
    assert!(next.token() > guard.token());
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

fn names_all(error: &Error, servers: &[RedisServer], why: &str) -> bool {
    let said = error.to_string();
    servers.iter().all(|server| said.contains(&format!("127.0.0.1:{} {why}", server.port())))
}

/// Tries until the answer is such an error. No try may be granted. The cause is known only after the client has asked the
/// node, and has greeted it again.
async fn refused(client: &Leasehold, wanted: impl Fn(&Error) -> bool) -> Error {
    let (begun, mut said) = (Instant::now(), None);
    while begun.elapsed() < LONG {
        match within(LONG, "an answer", client.mutex(NAME).try_lock()).await {
            Ok(None) => {}
            Ok(Some(second)) => panic!("a second holder: {:?}", second.token()),
            Err(error) if wanted(&error) => return error,
            Err(error) => said = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never refused with this error: {said:?}");
}
