//! Each loss names its lock, and the cause that a person would look for.

use std::time::{Duration, Instant};

use leasehold::{Lost, LostReason, Released};
use leasehold_testkit::RedisServer;
use leasehold_testkit::proxy::Way;

use crate::common::{Harness, LONG, NAME, PROMPT, within};

const LEASE: Duration = Duration::from_millis(1500);
/// The slack for a reply that was in flight.
const SLACK: Duration = Duration::from_millis(400);

/// Asserts that the loss names the store as the cause, and the time of its last reply.
fn assert_unreachable(lost: &Lost, since: Instant) {
    assert_eq!(lost.name(), NAME);
    let LostReason::Unreachable { lasted } = lost.reason() else { panic!("{lost:?}") };
    // The last reply was the reply to the acquire or to a renewal, at most a third of a lease before.
    let (least, most) = (since.elapsed().saturating_sub(SLACK), since.elapsed() + LEASE / 3 + SLACK);
    assert!((least..=most).contains(&lasted), "{lasted:?} of {least:?} to {most:?}");
    assert!(lost.to_string().starts_with("lost \"stock\": the store has not confirmed the lease for "), "{lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_store_is_named_with_the_time_of_its_last_reply() {
    // The connections stall, are cut and refused, or the server is dead.
    for fault in ["stalled", "cut", "killed"] {
        let harness = Harness::new();
        let client = harness.through(LEASE).await;
        let guard = client.mutex(NAME).lock().await.unwrap();
        tokio::time::sleep(LEASE * 2).await;
        assert!(guard.is_valid(), "renewed");
        let since = Instant::now();
        match fault {
            "stalled" => harness.proxy.stall(Way::Both),
            "cut" => {
                harness.proxy.refuse_connections();
                assert!(harness.proxy.cut_all() >= 1);
            }
            _ => harness.server.kill(),
        }
        let lost = within(LEASE + PROMPT, "the loss", guard.lost()).await;
        println!("{fault}: {lost}");
        assert_unreachable(&lost, since);
        assert_eq!(guard.check(), Err(lost), "the reason does not change");
    }
}

/// A guard that entered on its claim is lost a second later if the store does not reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_whose_claim_was_not_answered_is_not_over() {
    let harness = Harness::new();
    let (holder, next) =
        (harness.beside(Duration::from_secs(30)).await, harness.through(Duration::from_secs(30)).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let fixed = next.mutex(NAME).fixed_lease(Duration::from_secs(20));
    let waiting = tokio::spawn(async move { fixed.lock().await });
    crate::common::await_waiters(&holder, NAME, 1).await;
    harness.proxy.stall(Way::Requests);
    let since = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = within(PROMPT, "the grant", waiting).await.unwrap().unwrap();
    let lost = within(LONG, "the loss", guard.lost()).await;
    println!("{lost}");
    assert!(since.elapsed() < Duration::from_secs(10), "no more than the claim, which is longer on a busy machine");
    assert!(matches!(lost.reason(), LostReason::Unreachable { .. }), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_with_a_chosen_end_is_over() {
    let harness = Harness::new();
    let client = harness.through(LEASE).await;
    let of = |name: &str| client.mutex(name);
    let hold = of("hold").max_hold(LEASE + LEASE / 3).lock().await.unwrap();
    let shortest = of("shortest").max_hold(LEASE).lock().await.unwrap();
    let fixed = of("fixed").fixed_lease(LEASE).lock().await.unwrap();
    for (guard, name, reason) in [
        (&fixed, "fixed", LostReason::FixedLease),
        (&shortest, "shortest", LostReason::MaxHold),
        (&hold, "hold", LostReason::MaxHold),
    ] {
        let lost = within(LEASE * 2 + PROMPT, "the end", guard.lost()).await;
        println!("{lost}");
        assert_eq!((lost.name(), lost.reason()), (name, reason));
    }
    // A lease that was to be renewed, and was not, did not end at its maximum hold.
    let cut = client.mutex(NAME).max_hold(LEASE * 10).lock().await.unwrap();
    harness.proxy.stall(Way::Both);
    let lost = within(LEASE + PROMPT, "the loss", cut.lost()).await;
    assert!(matches!(lost.reason(), LostReason::Unreachable { .. }), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_forgets_is_named() {
    let harness = Harness::new();
    let (a, b) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let guards = [a.mutex(NAME).lock().await.unwrap(), a.mutex("b").lock().await.unwrap()];
    // Longer than any range of tokens, so that the token of the next holder is not one of a reserved range.
    tokio::time::sleep(Duration::from_millis(100)).await;
    harness.server.command(&["FLUSHALL"]);
    let next = b.mutex(NAME).lock().await.unwrap();
    let [superseded, forgotten] = guards.each_ref().map(leasehold::Guard::lost);
    let (superseded, forgotten) = (
        within(LEASE, "the notification of the loss", superseded).await,
        within(LEASE, "the notification of the loss", forgotten).await,
    );
    println!("{superseded}\n{forgotten}");
    assert_eq!((superseded.name(), superseded.reason()), (NAME, LostReason::Superseded));
    assert_eq!((forgotten.name(), forgotten.reason()), ("b", LostReason::Forgotten));
    assert!(next.is_valid());
}

/// The store replies, but refuses: it is not unreachable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_refuses_renewals_is_not_unreachable() {
    let harness = Harness::with(RedisServer::start());
    let client = harness.through(LEASE).await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    harness.server.command(&["SET", crate::common::KEY, "the data of another program"]);
    let lost = within(LEASE + PROMPT, "the loss", guard.lost()).await;
    println!("{lost}");
    assert_eq!((lost.name(), lost.reason()), (NAME, LostReason::Expired));
}
