//! Several mutexes by one request: all are held afterwards, or none (P46).

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{AllGuard, ErrorKind, Released};
use leasehold_spec::{Acquire, Answer, GrantId, Name, Op, Outcome, Was};
use tokio::task::JoinHandle;

use crate::harness::{Harness, MS, pause, token};
use crate::store::{AllReply, gone};

const LEASE_US: u64 = 30_000 * MS;

/// The requests for several mutexes, in their order.
type Asked = Arc<Mutex<Vec<Vec<(Name, Acquire)>>>>;

/// A client of a store that answers a request for several mutexes like this. `None`: it does not reply.
async fn harness(reply: impl Fn(&Harness, usize) -> Option<AllReply> + Send + Sync + 'static) -> (Harness, Asked) {
    let harness = Harness::new().await;
    let asked = Asked::default();
    let (seen, frame) = (Arc::clone(&asked), Harness::new().await);
    *harness.store.on_all.lock().unwrap() = Some(Box::new(move |members| {
        seen.lock().unwrap().push(members.to_vec());
        let reply = reply(&frame, members.len());
        Box::pin(async move {
            match reply {
                Some(reply) => reply,
                None => pending().await,
            }
        })
    }));
    (harness, asked)
}

fn granted(harness: &Harness, count: usize) -> Vec<Answer> {
    vec![harness.answer(Outcome::Granted { token: token(9), left_us: LEASE_US, range: 1 }, 9); count]
}

fn lock(harness: &Harness) -> JoinHandle<leasehold::Result<AllGuard>> {
    let all = leasehold::all(["b", "a"].map(|name| harness.leasehold.mutex(name)));
    tokio::spawn(async move { all.lock().await })
}

fn ids(asked: &Asked) -> Vec<GrantId> {
    asked.lock().unwrap().iter().flatten().map(|(_, acquire)| acquire.id).collect()
}

/// Answers everything: acquires are granted with token 20. Returns the IDs of the leaves and of the acquires.
async fn serve<T>(harness: &mut Harness, locking: &JoinHandle<T>) -> (Vec<GrantId>, Vec<GrantId>) {
    let (mut left, mut acquired) = (Vec::new(), Vec::new());
    for _ in 0..2_000 {
        if locking.is_finished() && left.len() >= 2 {
            break;
        }
        let Some(request) = harness.try_next() else {
            pause(1).await;
            continue;
        };
        match request.op.clone() {
            Op::Leave { id, .. } => {
                left.push(id);
                harness.reply(request, Outcome::Left { was: Was::Absent }, 9);
            }
            Op::Acquire(Acquire { id, .. }) => {
                acquired.push(id);
                harness.reply(request, Outcome::Granted { token: token(20), left_us: LEASE_US, range: 1 }, 20);
            }
            other => panic!("{other:?}"),
        }
    }
    (left, acquired)
}

/// All are free: one request, in the order of the names. Each is released by a request of its own.
#[tokio::test]
async fn p46_free_mutexes_are_acquired_by_one_request() {
    let (mut harness, asked) = harness(|harness, count| Some(Ok(Some(granted(harness, count))))).await;
    let guard = lock(&harness).await.unwrap().unwrap();
    assert_eq!(guard.tokens(), [token(9), token(9)]);
    let names: Vec<_> = asked.lock().unwrap().iter().flatten().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    harness.expect_no_request();
    let releasing = tokio::spawn(guard.release());
    for _ in 0..2 {
        let release = harness.next().await;
        assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
        harness.reply(release, Outcome::Released, 9);
    }
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// One is not free, and nothing was acquired. The members are acquired one after the other, and nothing is given back.
#[tokio::test]
async fn p46_after_a_refusal_the_members_are_acquired_one_by_one() {
    let (mut harness, asked) = harness(|_, _| Some(Ok(None))).await;
    let locking = lock(&harness);
    for _ in 0..2 {
        let (request, acquire) = harness.next_acquire().await;
        assert!(!ids(&asked).contains(&acquire.id));
        harness.reply(request, Outcome::Granted { token: token(20), left_us: LEASE_US, range: 1 }, 20);
    }
    assert_eq!(locking.await.unwrap().unwrap().tokens(), [token(20), token(20)]);
    assert_eq!(asked.lock().unwrap().len(), 1, "it asks once");
}

/// The reply is lost: the store may have granted both. Both are given back, and other attempts acquire them.
#[tokio::test]
async fn p46_after_a_lost_reply_both_are_given_back() {
    let (mut harness, asked) = harness(|_, _| Some(Err(gone()))).await;
    let locking = lock(&harness);
    let (mut left, acquired) = serve(&mut harness, &locking).await;
    left.sort_unstable();
    assert_eq!(left, ids(&asked));
    assert!(acquired.len() == 2 && acquired.iter().all(|id| !left.contains(id)), "{acquired:?}");
    assert_eq!(locking.await.unwrap().unwrap().tokens(), [token(20), token(20)]);
}

/// A caller that only tries does not ask again: it would find its own leases, and take them for those of others.
#[tokio::test]
async fn p46_a_try_with_a_lost_reply_does_not_say_that_others_hold() {
    let (mut harness, asked) = harness(|_, _| Some(Err(gone()))).await;
    let all = leasehold::all(["b", "a"].map(|name| harness.leasehold.mutex(name)));
    let trying = tokio::spawn(async move { all.try_lock().await });
    let (mut left, acquired) = serve(&mut harness, &trying).await;
    let error = trying.await.unwrap().unwrap_err();
    assert!(error.may_have_acted(), "{error}");
    left.sort_unstable();
    assert_eq!((left, acquired), (ids(&asked), Vec::new()));
}

/// The caller gives up while the request is in flight.
#[tokio::test]
async fn p46_a_dropped_request_gives_both_back() {
    let (mut harness, asked) = harness(|_, _| None).await;
    let locking = lock(&harness);
    for _ in 0..2_000 {
        if !asked.lock().unwrap().is_empty() {
            break;
        }
        pause(1).await;
    }
    locking.abort();
    let (mut left, acquired) = serve(&mut harness, &locking).await;
    left.sort_unstable();
    assert_eq!((left, acquired), (ids(&asked), Vec::new()));
}

/// This client has a lease of one of them: it is known not to be free, or its own callers wait for it.
#[tokio::test]
async fn p46_a_client_that_has_one_of_them_asks_one_by_one() {
    let (mut harness, asked) = harness(|_, _| Some(Ok(None))).await;
    let _guard = harness.locked_as("a", 30_000, 7).await;
    let all = leasehold::all(["a", "b"].map(|name| harness.leasehold.mutex(name)));
    assert!(all.try_lock().await.unwrap().is_none());
    assert!(asked.lock().unwrap().is_empty());
}

/// The settings of one member are wrong. The error names that member, as if it were acquired alone.
#[tokio::test]
async fn p46_an_error_of_the_settings_names_the_member() {
    let (harness, asked) = harness(|_, _| Some(Ok(None))).await;
    let wrong = harness.leasehold.mutex("a").lease(Duration::from_millis(1));
    let error = leasehold::all([wrong, harness.leasehold.mutex("b")]).try_lock().await.unwrap_err();
    assert_eq!((error.name(), error.kind()), (Some("a"), ErrorKind::Invalid));
    assert!(asked.lock().unwrap().is_empty());
}

/// The store of the second member does not reply. The caller waits for it, and nobody waits for the first member meanwhile.
#[tokio::test]
async fn a_multi_lock_waits_for_a_silent_store_and_holds_nothing_meanwhile() {
    const LEASE_MS: u64 = 300;
    let (mut near, silent) = (Harness::new().await, Harness::new().await);
    let members = [("a", &near), ("b", &silent)];
    let mutex =
        |(name, harness): (&str, &Harness)| harness.leasehold.mutex(name).lease(Duration::from_millis(LEASE_MS));
    let all = leasehold::all(members.map(mutex));
    let locking = tokio::spawn(async move { all.lock().await });
    let (request, Acquire { id, .. }) = near.next_acquire().await;
    near.reply(request, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    let release = loop {
        let request = near.next().await;
        match request.op {
            Op::Renew(_) => near.reply(request, Outcome::Renewed { left_us: LEASE_MS * MS }, 7),
            _ => break request,
        }
    };
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(7) });
    near.reply(release, Outcome::Released, 7);
    pause(1_000).await;
    assert!(!locking.is_finished(), "{:?}", locking.await);
    near.expect_no_request();
}
