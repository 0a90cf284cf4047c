//! Grants, waits and releases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::seam::Fault;
use leasehold::seam::Guess;
use leasehold::{ErrorKind, LostReason, Owner, Released, Revoked};
use leasehold_spec::limits::{RANGE_MAX, RUN_PASSES};
use leasehold_spec::node::{Ask, Request, Said};
use leasehold_spec::{Acquire, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, SessionId, Take, Token};
use leasehold_testkit::voters::{Mood, Voters};
use leasehold_testkit::wait_until;

use crate::common::assert_busy;
use crate::played::{MAX_LEASE_MS, client, granted, voters};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_acquired_and_released_at_all_nodes() {
    let voters = voters(5);
    let client = client(&voters).await;
    let guard = client.mutex("a").lock().await.unwrap();
    let token = guard.token();
    wait_until("five votes", Duration::from_secs(5), || granted(&voters, "a") == 5);
    assert!(
        voters.nodes.iter().all(|node| node.record("a").grant.as_ref().is_some_and(|g| g.token.get() == token.get()))
    );
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    wait_until("none", Duration::from_secs(5), || granted(&voters, "a") == 0);
    let again = client.mutex("a").lock().await.unwrap();
    assert!(again.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_called() {
    let voters = voters(5);
    let (a, b) = (client(&voters).await, client(&voters).await);
    let held = a.mutex("a").lock().await.unwrap();
    assert_busy(&b.mutex("a")).await;
    let waiting = tokio::spawn(async move { b.mutex("a").lock().await.map(|guard| (guard, Instant::now())) });
    let is_queued = || voters.nodes.iter().filter(|node| node.record("a").queue.len() == 1).count() == 5;
    wait_until("it waits at all nodes", Duration::from_secs(5), is_queued);
    let token = held.token();
    let begun = Instant::now();
    assert_eq!(held.release().await.unwrap(), Released::Released);
    let (guard, at) = waiting.await.unwrap().unwrap();
    assert!(guard.token() > token);
    println!("handed over in {:?}", at - begun);
    assert!(at - begun < Duration::from_secs(1), "by a call, and not by a re-check: {:?}", at - begun);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_dead_or_silent_costs_nothing() {
    for mood in [Mood::Dead, Mood::Stopped, Mood::Mute] {
        let voters = voters(5);
        let a = client(&voters).await;
        voters.nodes[0].be(mood);
        voters.nodes[3].be(mood);
        let guard = a.mutex("a").lock().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_dead_majority_names_each_node() {
    let voters = voters(5);
    let a = client(&voters).await;
    for node in &voters.nodes[..3] {
        node.be(Mood::Dead);
    }
    let error = a.mutex("a").try_lock().await.unwrap_err();
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Quorum);
    assert!(error.is_retryable());
    for node in &voters.nodes[..3] {
        node.be(Mood::Answers);
    }
    let guard = tokio::time::timeout(Duration::from_secs(5), a.mutex("a").lock()).await.expect("in time").unwrap();
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_all_get_the_lock() {
    let voters = Arc::new(voters(5));
    let mut tasks = Vec::new();
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let begun = Instant::now();
    for _ in 0..8 {
        let client = client(&voters).await;
        let inside = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            let mut waits = Vec::new();
            for _ in 0..20 {
                let asked = Instant::now();
                let guard = client.mutex("a").lock().await.unwrap();
                waits.push(asked.elapsed());
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst), 1);
                assert_eq!(guard.release().await.unwrap(), Released::Released);
            }
            waits
        }));
    }
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    waits.sort();
    let asked = voters.nodes.iter().map(|node| node.asked()).max().unwrap();
    println!("160 in {:?}, p50 {:?}, max {:?}, {asked} rounds", begun.elapsed(), waits[80], waits[159]);
}

/// The clock of one node is ahead, and the node knows a token of a lost round. That token is above the next grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_lost_round_at_one_node_blocks_no_client() {
    let voters = voters(3);
    let ahead = &voters.nodes[1];
    ahead.set_clock(3_000_000);
    ahead.be(Mood::Dead);
    let a = client(&voters).await;
    let held = a.mutex("a").lock().await.unwrap();
    ahead.be(Mood::Answers);
    let b = client(&voters).await;
    let id = GrantId { session: SessionId(7), counter: 1, nonce: 1 };
    let token = Token::new(ahead.clock_us()).unwrap();
    let (lease_ms, not_after_us, label) = (1_000, ahead.clock_us() + 1_000_000, String::new());
    let lost = Ask { id, token, range: 1, lease_ms, not_after_us, wait: None, label };
    assert!(matches!(ahead.ask("a", &Request::Ask(lost)).said, Said::Granted { .. }));
    ahead.ask("a", &Request::GiveBack { id, upto: token, wait: None });
    let next = b.mutex("a");
    let waiting = tokio::spawn(async move { next.lock().await });
    let is_queued = || [0, 2].iter().all(|node| voters.nodes[*node].record("a").queue.len() == 1);
    wait_until("it waits", Duration::from_secs(5), is_queued);
    assert_eq!(held.release().await.unwrap(), Released::Released);
    let guard = tokio::time::timeout(Duration::from_secs(2), waiting).await.expect("it is called").unwrap().unwrap();
    assert!(guard.is_valid());
}

/// The next token is above all reserved ones, used or not. So a client without contention reserves few tokens, and a client
/// with local waiters reserves enough for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_contention_reserves_few_tokens() {
    let voters = Arc::new(voters(3));
    let client = client(&voters).await;
    let reserved = |voters: &Voters| voters.nodes[0].record("a").grant.map_or(0, |grant| grant.range);
    let guard = client.mutex("a").lock().await.unwrap();
    wait_until("all have voted", Duration::from_secs(5), || granted(&voters, "a") == 3);
    assert_eq!(reserved(&voters), u64::from(RUN_PASSES));
    assert_eq!(voters.nodes[0].record("a").highest.get(), guard.token().get() + u64::from(RUN_PASSES) - 1);
    let in_line: Vec<_> = (0..4)
        .map(|_| {
            let (mutex, voters) = (client.mutex("a"), Arc::clone(&voters));
            tokio::spawn(async move {
                let mut most = 0;
                for _ in 0..RUN_PASSES {
                    let guard = mutex.lock().await.unwrap();
                    most = most.max(reserved(&voters));
                    tokio::task::yield_now().await;
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
                most
            })
        })
        .collect();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let mut most = 0;
    for task in in_line {
        most = most.max(task.await.unwrap());
    }
    assert_eq!(most, RANGE_MAX);
    // A client that keeps the lease waits behind itself.
    let kept = |name| client.mutex(name).sticky(Duration::from_secs(1));
    for guard in [kept("b").lock().await.unwrap(), kept("c").try_lock().await.unwrap().unwrap()] {
        wait_until("all have voted", Duration::from_secs(5), || granted(&voters, guard.name()) == 3);
        let reserved = voters.nodes[0].record(guard.name()).grant.map(|grant| grant.range);
        assert_eq!(reserved, Some(RANGE_MAX), "{}", guard.name());
    }
    // The next caller uses the local queue of such a client, but not its terms.
    let briefly = client.mutex("d").sticky(Duration::from_millis(1));
    assert_eq!(briefly.lock().await.unwrap().release().await.unwrap(), Released::Released);
    wait_until("nobody holds", Duration::from_secs(5), || granted(&voters, "d") == 0);
    let guard = client.mutex("d").lock().await.unwrap();
    wait_until("all have voted", Duration::from_secs(5), || granted(&voters, "d") == 3);
    let reserved = voters.nodes[0].record("d").grant.map(|grant| grant.range);
    assert_eq!((reserved, guard.is_valid()), (Some(u64::from(RUN_PASSES)), true));
}

fn queued(id: GrantId, range: u64) -> Op {
    let place = Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed };
    Op::Acquire(Acquire {
        id,
        take: Take::MUTEX,
        lease_ms: 5_000,
        range,
        not_after_us: u64::MAX,
        patience: Patience::Queue(place),
        label: "".into(),
    })
}

/// A re-check after a grant that the client does not know yet, while most nodes are slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_re_check_takes_nothing_from_a_holder() {
    let voters = voters(5);
    let link = voters.store().open().await.unwrap();
    let id = GrantId { session: SessionId(7), counter: 1, nonce: 1 };
    link.attach(id.session, Arc::new(|_| {})).await.unwrap();
    let name = Name::new("a").unwrap();
    let acquire = queued(id, 1);
    let answer = link.apply(&name, &acquire, Guess::default()).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{answer:?}");
    wait_until("all have voted", Duration::from_secs(5), || granted(&voters, "a") == 5);
    voters.nodes[..3].iter().for_each(|node| node.be(Mood::Stopped));
    let looked = link.apply(&name, &acquire, Guess::default()).await;
    assert!(matches!(looked, Err(Fault::Undecided(_))), "{looked:?}");
    // After all requests of that re-check.
    voters.nodes[..3].iter().for_each(|node| node.be(Mood::Answers));
    let answer = link.apply(&name, &acquire, Guess::default()).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{answer:?}");
    assert_eq!(granted(&voters, "a"), 5);
    assert!(voters.nodes.iter().all(|node| node.record("a").queue.is_empty()), "a holder does not wait");
}

/// A node that forgets a lease is in quarantine for the longest lease. So no lease may be longer, a re-entered one
/// included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_re_entry_makes_a_lease_longer_than_the_longest() {
    let voters = voters(3);
    let client = client(&voters).await;
    let mutex = client.mutex("a").owner(&Owner::new());
    let outer = mutex.lock().await.unwrap();
    let longer = mutex.clone().lease(Duration::from_millis(2 * MAX_LEASE_MS));
    let error = longer.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("max_lease"), "it says what to do: {error}");
    let inner = mutex.lease(Duration::from_millis(MAX_LEASE_MS)).lock().await.unwrap();
    assert_eq!(inner.token(), outer.token());
}

/// Nothing renews a fixed lease, so no request shows its end. If a node's clock is seen to have jumped past the end, the
/// validity ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_is_over_when_a_clock_has_ended_its_majority() {
    for (votes, is_lost) in [(2, true), (3, false)] {
        let voters = voters(3);
        let client = client(&voters).await;
        voters.nodes[2].be(if votes == 2 { Mood::Dead } else { Mood::Answers });
        let guard = client.mutex("a").fixed_lease(Duration::from_secs(8)).lock().await.unwrap();
        voters.nodes[2].be(Mood::Answers);
        wait_until("the votes", Duration::from_secs(5), || granted(&voters, "a") == votes);
        voters.nodes[0].set_clock(9_000_000);
        // Any reply on any link shows the jump.
        drop(client.mutex("b").lock().await.unwrap());
        let lost = tokio::time::timeout(Duration::from_secs(1), guard.lost()).await;
        assert_eq!(lost.is_ok_and(|lost| lost.reason().is_expiry()), is_lost, "{votes} votes");
    }
}

/// An operator revokes at a majority, without a grace: at these two nodes the lease is over, and the third keeps it to its
/// end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_a_revocation_missed_goes_back_with_the_guard() {
    let voters = voters(3);
    let client = client(&voters).await;
    let guard = client.mutex("a").lock().await.unwrap();
    wait_until("three votes", Duration::from_secs(5), || granted(&voters, "a") == 3);
    let grant = voters.nodes[0].record("a").grant.expect("it voted");
    let revoke = Request::Revoke { holder: grant.id.public(), token: grant.token, grace_ms: 0 };
    assert_eq!(voters.nodes[0].ask("a", &revoke).said, Said::Revoking { left_us: 0 });
    // The message of the first node can arrive before the second node is asked. Then the guard has released that vote.
    let second = voters.nodes[1].ask("a", &revoke).said;
    assert!(matches!(second, Said::Revoking { left_us: 0 } | Said::NotHeld), "{second:?}");
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(5), guard.lost()).await.map(|lost| lost.reason()),
        Ok(LostReason::Revoked)
    );
    drop(guard);
    wait_until("none", Duration::from_secs(5), || granted(&voters, "a") == 0);
}

/// The first node notifies the holder, which releases at the other nodes before the revocation reaches them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_that_its_holder_overtakes_succeeds() {
    let voters = voters(3);
    let (holding, revoking) = (client(&voters).await, client(&voters).await);
    let guard = holding.mutex("a").lock().await.unwrap();
    wait_until("three votes", Duration::from_secs(5), || granted(&voters, "a") == 3);
    let seen = revoking.mutex("a").inspect().await.unwrap().holder().cloned().expect("held");
    let id = voters.nodes[0].record("a").grant.expect("it voted").id;
    for node in &voters.nodes[1..] {
        node.ask("a", &Request::GiveBack { id, upto: Token::HIGHEST, wait: None });
    }
    let revoked = revoking.mutex("a").revoke(&seen, Duration::ZERO).await.unwrap();
    assert_eq!(revoked, Revoked::Within(Duration::ZERO));
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(5), guard.lost()).await.map(|lost| lost.reason()),
        Ok(LostReason::Revoked)
    );
    let again = revoking.mutex("a").revoke(&seen, Duration::ZERO).await.unwrap();
    assert_eq!(again, Revoked::NotHeld);
}

/// A local answer contains nothing about waiters. Otherwise the client would extend a short run of local hand-overs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_reserved_without_a_request() {
    let voters = voters(3);
    let link = voters.store().open().await.unwrap();
    let id = GrantId { session: SessionId(7), counter: 1, nonce: 1 };
    link.attach(id.session, Arc::new(|_| {})).await.unwrap();
    let name = Name::new("a").unwrap();
    let granted = link.apply(&name, &queued(id, 8), Guess::default()).await.unwrap();
    let Outcome::Granted { token, range, .. } = granted.outcome else { panic!("{granted:?}") };
    assert!(granted.now_us > 0, "the time of the nodes");
    let reserve = Op::Reserve { id, token, range: 16 };
    let reserved = link.apply(&name, &reserve, Guess::default()).await.unwrap();
    assert_eq!((reserved.outcome, reserved.now_us), (Outcome::Reserved { range }, 0), "no more, and without a request");
}
