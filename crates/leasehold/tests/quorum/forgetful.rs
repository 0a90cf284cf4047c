//! Real servers that forget: restarted without what they knew, flushed, or with their marker gone.

use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, Guard, Leasehold, Released};
use leasehold_testkit::{Quorum, RedisServer, Value, wait_until};

use crate::common::{
    LONG, MARKER, MAX_LEASE, NAME, assert_busy, assert_kept, assert_names, client, five, five_of, granted, join, vote,
    votes, within,
};

/// A holder that the servers 3 and 4 have never heard of, and that hears nothing of server 2 any more.
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

/// With plain Redlock the second client has a majority: the node that has forgotten, and two that never knew.
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
    assert!(vote(quorum.server(2)).is_none(), "it rests");
    // Those that it had not heard of make a majority with the two that remember.
    quorum.proxies().iter().for_each(|proxy| proxy.accept_connections());
    assert_eq!(within(LONG, "the release", guard.release()).await.unwrap(), Released::Released);
}

/// What the file system had of it is not what it had answered: a second of it may be missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_saves_every_second_rests_after_a_restart() {
    let quorum = five_of(RedisServer::builder().appendonly("everysec")).await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let resting = &quorum.servers()[..3];
    resting.iter().for_each(RedisServer::restart);
    let error = refused(&b, |error| names_all(error, resting, "is in quarantine for ")).await;
    println!("{error}");
    assert!(guard.check().is_ok(), "nobody else can hold it");
    assert_names(&error.to_string(), &quorum.servers()[3..], "votes");
}

/// Its word that it saves everything counts from its start on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_saves_everything_does_not_rest() {
    let quorum = five_of(RedisServer::builder().appendonly("always")).await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lease(Duration::from_secs(3)).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    quorum.servers().iter().for_each(RedisServer::restart);
    assert_eq!(votes(quorum.servers(), guard.token()), 5, "it is in their files");
    // Busy, or too few are connected again: granted it is not, as all of them know whose it is.
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
async fn flushed_nodes_abstain_and_rest_with_their_connections_open() {
    forget(|server| {
        assert_eq!(server.command(&["FLUSHALL"]), Value::Status("OK".into()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_marker_was_deleted_abstain_and_rest() {
    forget(|server| assert_eq!(server.command(&["DEL", MARKER]), Value::Int(1))).await;
}

/// First of a minority, which is nothing to anybody; then of a majority, which no grant comes from.
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
    assert!(lost.reason().is_expiry(), "three that abstain do not say that it is lost: {lost:?}");
}

/// Whoever waits goes on by itself once they have rested: for 22 s at least, whatever the longest lease is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_restart_empty_vote_again_when_they_have_rested() {
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
    assert!(took >= rest, "{took:?}, and they rest for {rest:?}");
    assert!(next.token() > guard.token());
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

fn names_all(error: &Error, servers: &[RedisServer], why: &str) -> bool {
    let said = error.to_string();
    servers.iter().all(|server| said.contains(&format!("127.0.0.1:{} {why}", server.port())))
}

/// Tries until the answer is an error like this: no try is to be granted. What is wrong with a node is known only after it
/// was asked, and greeted anew.
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
    panic!("never refused like that: {said:?}");
}
