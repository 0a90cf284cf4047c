//! Multi-locks: all members or none, one order for all programs, and one loss for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, Guard, Leasehold, LostReason, Member, Mutex, Released, Revoked, all};
use leasehold_spec::Token;

use crate::conformance::stage::{Stage, eventually, release, soon};

/// Shorter than any wait of these laws.
const SHORT: Duration = Duration::from_millis(50);

fn mutexes(stage: &Stage, client: &Leasehold, names: &[&str]) -> Vec<Mutex> {
    names.iter().map(|name| client.mutex(stage.name_of(name))).collect()
}

async fn hold(mutex: &Mutex) -> Guard {
    mutex.try_lock().await.expect("an answer").expect("free")
}

/// If one member is busy, none is held. If all are free, all are held, and the tokens have the order of the members.
pub(super) async fn all_or_none(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let [ours, theirs] = [&a, &b].map(|client| mutexes(stage, client, &["z", "x", "y"]));
    let both = all(ours.clone());
    let busy = hold(&theirs[0]).await;
    assert!(both.try_lock().await.expect("an answer").is_none());
    assert!(both.try_lock_for(SHORT).await.expect("an answer").is_none());
    for free in &theirs[1..] {
        // The call releases its leases in the background.
        let mut guard = None;
        eventually("it is given back", async || {
            guard = free.try_lock().await.expect("an answer");
            guard.is_some()
        })
        .await;
        release(guard.expect("free")).await;
    }
    let waiting = tokio::spawn(async move { both.lock().await });
    eventually("it waits for the busy member", async || theirs[0].inspect().await.expect("an answer").waiters == 1)
        .await;
    assert!(!waiting.is_finished());
    release(busy).await;
    let guard = soon("all are free", waiting).await.expect("no panic").expect("granted");
    for (mutex, token) in ours.iter().zip(guard.tokens()) {
        // The token of a fence belongs to its own lock.
        let seen = mutex.inspect().await.expect("an answer").holder().cloned().expect("held");
        assert!(seen.token <= token, "{seen:?}: {token:?}");
        assert!(mutex.try_lock().await.expect("an answer").is_none());
    }
    assert!(guard.is_valid() && guard.remaining() > Duration::ZERO);
    assert_eq!(guard.release().await.expect("an answer"), Released::Released);
    for mutex in &theirs {
        release(hold(mutex).await).await;
    }
}

/// The loss of one member is the loss of all. The others stay held until the guard goes.
pub(super) async fn one_lost_all_lost(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let [ours, theirs] = [&a, &b].map(|client| mutexes(stage, client, &["x", "y"]));
    let guard = all(ours).lock().await.expect("free");
    let lost = guard.lost();
    let holder = theirs[1].inspect().await.expect("an answer").holder().cloned().expect("held");
    let answer = theirs[1].revoke(&holder, Duration::from_secs(5)).await.expect("an answer");
    assert!(matches!(answer, Revoked::Within(_)));
    let lost = soon("it is told", lost).await;
    assert_eq!((lost.reason(), lost.name()), (LostReason::Revoked, stage.name_of("y").as_str()));
    assert_eq!(guard.check(), Err(lost));
    assert!(theirs[0].try_lock().await.expect("an answer").is_none(), "the other member stays held");
    assert_eq!(guard.release().await.expect("an answer"), Released::NotHeld);
    for mutex in &theirs {
        release(hold(mutex).await).await;
    }
}

/// Five philosophers of three clients each take the fork at their left and that at their right, named in that order: one of
/// them names them the other way round than all others. They eat, and never with one fork.
pub(super) async fn philosophers_eat(stage: &Stage) {
    const SEATS: usize = 5;
    const MEALS: usize = 12;
    let mut clients = Vec::new();
    for number in 0..3 {
        clients.push(stage.client(&format!("client {number}")).await);
    }
    let in_use: Arc<Vec<AtomicBool>> = Arc::new((0..SEATS).map(|_| AtomicBool::new(false)).collect());
    let seats = (0..SEATS).map(|seat| {
        let client = &clients[seat % clients.len()];
        let forks = [seat, (seat + 1) % SEATS];
        let both = all(forks.map(|fork| client.mutex(stage.name_of(format_args!("fork {fork}")))));
        let in_use = Arc::clone(&in_use);
        tokio::spawn(async move {
            let mut last = [Token::NONE; 2];
            for _ in 0..MEALS {
                let guard = both.lock().await.expect("granted");
                for fork in forks {
                    assert!(!in_use[fork].swap(true, Ordering::SeqCst), "a fork is in use");
                }
                tokio::task::yield_now().await;
                let tokens = guard.tokens();
                assert!(tokens[0] > last[0] && tokens[1] > last[1], "tokens rise");
                last = [tokens[0], tokens[1]];
                for fork in forks {
                    in_use[fork].store(false, Ordering::SeqCst);
                }
                assert_eq!(guard.release().await.expect("an answer"), Released::Released);
            }
        })
    });
    for seat in seats.collect::<Vec<_>>() {
        soon("everybody eats", seat).await.expect("no panic");
    }
}

/// Another program takes two locks by itself, in the other order, and waits for ever. The multi-lock holds one of them
/// while it waits for the other, which belongs to another client: it lets go.
pub(super) async fn members_of_two_clients_are_not_held_on(stage: &Stage) {
    let (a, b, other) = (stage.client("a").await, stage.client("b").await, stage.client("other").await);
    let lease = Duration::from_millis(300);
    let both = all([a.mutex(stage.name_of("x")).lease(lease), b.mutex(stage.name_of("y")).lease(lease)]);
    let [x, y] = ["x", "y"].map(|name| other.mutex(stage.name_of(name)));
    let held = hold(&y).await;
    let waiting = tokio::spawn(async move { both.lock().await });
    eventually("it holds the first", async || x.inspect().await.expect("an answer").holder().is_some()).await;
    let first = soon("it lets go", x.lock()).await.expect("granted");
    assert!(!waiting.is_finished());
    release(first).await;
    release(held).await;
    let guard = soon("both are free", waiting).await.expect("no panic").expect("granted");
    assert_eq!(guard.release().await.expect("an answer"), Released::Released);
}

/// A member that occurs twice would wait for itself. No members, and too many, are wrong as well.
pub(super) async fn members_are_checked(stage: &Stage) {
    let client = stage.client("a").await;
    let many = |count: usize| (0..count).map(|number| client.mutex(stage.name_of(number)));
    let twice: Vec<Member> = vec![client.mutex(stage.name()).into(), client.rw_lock(stage.name()).reading()];
    for wrong in [all(many(0)), all(many(17)), all(twice)] {
        let error = wrong.try_lock().await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(!error.may_have_acted());
    }
    let sixteen = all(many(16)).lock().await.expect("all are free");
    assert_eq!(sixteen.release().await.expect("an answer"), Released::Released);
}

/// A member that fails ends the call, and what was taken before is given back.
pub(super) async fn a_member_that_fails_leaves_nothing(stage: &Stage) {
    let client = stage.client("a").await;
    let [good, bad] = ["x", "y"].map(|name| client.mutex(stage.name_of(name)));
    let error = all([good.clone(), bad.lease(Duration::from_millis(1))]).lock().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    release(soon("it is free", good.lock()).await.expect("granted")).await;
}
