//! Makes a call in a scene, and compares the result with the expected one.

use std::time::{Duration, Instant};

use leasehold::blocking::Canceller;
use leasehold::{Error, ErrorKind, LostReason, Released, Revoked, Token};

use super::scene::{Scene, WaitsAt};
use super::subject::{Client, Held, Subject};
use super::{Call, Expect};
use crate::conformance::stage::{SOON, Stage, eventually, soon};

/// Too short for the holder to release.
const SHORT: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn act<S: Subject>(call: Call, expected: Expect, mut scene: Scene<S>, stage: &Stage) {
    match call {
        Call::Lock | Call::TryLock | Call::TryLockFor | Call::Run | Call::LockOrCancel => {
            acquire(call, expected, scene, stage).await;
        }
        Call::Inspect => inspect(expected, &scene).await,
        Call::Revoke => revoke(expected, scene, stage).await,
        Call::Release => {
            let guard = scene.guard.take().expect("there is a guard");
            let lost = guard.signal();
            let wanted = if expected == Expect::NotHeld { Released::NotHeld } else { Released::Released };
            assert_eq!(guard.release().await, wanted);
            if let Some(lost) = lost {
                let why = soon("its signal", lost).await;
                assert_eq!(
                    why.reason(),
                    if expected == Expect::NotHeld { LostReason::Revoked } else { LostReason::Released }
                );
            }
            given_back(expected, scene, stage).await;
        }
        Call::Drop => {
            drop(scene.guard.take().expect("there is a guard"));
            given_back(expected, scene, stage).await;
        }
        Call::Close => close(expected, scene, stage).await,
    }
}

/// Acquires by any call. Returns the token of the grant and the guard, if there is one; `None` if it was not granted.
async fn take<S: Subject>(call: Call, subject: &S, wait: Duration) -> Result<Option<(Token, Option<S::Held>)>, Error> {
    let kept = |guard: S::Held| (guard.token(), Some(guard));
    match call {
        Call::Lock => subject.acquire().await.map(kept).map(Some),
        Call::TryLock => Ok(subject.try_acquire().await?.map(kept)),
        Call::TryLockFor => Ok(subject.try_acquire_for(wait).await?.map(kept)),
        Call::Run => Ok(Some((subject.run().await?, None))),
        Call::LockOrCancel => Ok(subject.acquire_or_cancel(&Canceller::new()).await?.map(kept)),
        Call::Inspect | Call::Revoke | Call::Release | Call::Drop | Call::Close => {
            unreachable!("{call:?} acquires nothing")
        }
    }
}

async fn acquire<S: Subject>(call: Call, expected: Expect, scene: Scene<S>, stage: &Stage) {
    match expected {
        Expect::Granted => {
            let taken = soon("it is granted", take(call, &scene.subject, SOON)).await.expect("an answer");
            granted(taken.expect("free"), scene.top(), &scene, stage).await;
        }
        Expect::Busy => {
            let before = stage.inspect(&scene.witness).await.waiters;
            assert!(take(call, &scene.subject, SHORT).await.expect("an answer").is_none(), "another client holds");
            assert_eq!(stage.inspect(&scene.witness).await.waiters, before, "it did not queue");
        }
        Expect::InTurn => in_turn(call, scene, stage).await,
        Expect::ReEnters => re_enters(call, scene, stage).await,
        Expect::Shares => shares(call, scene, stage).await,
        Expect::Refuses(kind) => refused(kind, take(call, &scene.subject, SHORT).await.err()),
        other => unreachable!("{other:?} is no answer to {call:?}"),
    }
}

async fn in_turn<S: Subject>(call: Call, mut scene: Scene<S>, stage: &Stage) {
    let before = stage.inspect(&scene.witness).await.waiters;
    in_vain(call, &scene).await;
    stage.waiters(&scene.witness, before).await;
    let subject = scene.subject.clone();
    let waiting = tokio::spawn(async move { take(call, &subject, SOON).await });
    match scene.waits_at {
        WaitsAt::Store => stage.waiters(&scene.witness, before + 1).await,
        WaitsAt::Client => {
            tokio::time::sleep(SHORT).await;
            assert_eq!(stage.inspect(&scene.witness).await.waiters, before, "its own client holds: it asks nobody");
        }
    }
    assert!(!waiting.is_finished(), "somebody else holds");
    let mut top = scene.top();
    drop(scene.guard.take().expect("somebody holds"));
    if scene.queued.is_some() {
        let first = scene.turn("the earlier waiter is granted first").await;
        assert!(Some(first.token()) > top, "tokens rise");
        assert!(!waiting.is_finished(), "the earlier waiter holds");
        top = Some(first.token());
        assert_eq!(first.release().await, Released::Released);
    }
    let taken = soon("it is granted", waiting).await.expect("no panic").expect("an answer");
    granted(taken.expect("its turn has come"), top, &scene, stage).await;
}

/// Waits in vain, by a call whose wait can end before the holder releases.
async fn in_vain<S: Subject>(call: Call, scene: &Scene<S>) {
    if call == Call::TryLockFor {
        let begun = Instant::now();
        assert!(take(call, &scene.subject, SHORT).await.expect("an answer").is_none(), "somebody else holds");
        assert!(begun.elapsed() >= SHORT, "it waited as long as requested: {:?}", begun.elapsed());
    }
    if call == Call::LockOrCancel {
        let (subject, stop) = (scene.subject.clone(), Canceller::new());
        let stops = stop.clone();
        let waiting = tokio::spawn(async move { subject.acquire_or_cancel(&stops).await });
        tokio::time::sleep(SHORT).await;
        assert!(!waiting.is_finished(), "somebody else holds");
        stop.cancel();
        let cancelled = soon("it is canceled", waiting).await.expect("no panic").expect("an answer");
        assert!(cancelled.is_none(), "somebody else holds");
    }
}

/// A further guard of the same grant, without any other change in the store.
async fn re_enters<S: Subject>(call: Call, mut scene: Scene<S>, stage: &Stage) {
    let outer = scene.guard.take().expect("its owner holds");
    let (token, inner) = take(call, &scene.subject, SHORT).await.expect("an answer").expect("it re-enters");
    assert_eq!(token, outer.token(), "one grant, one token");
    if let Some(inner) = inner {
        assert_eq!((inner.check(), inner.name()), (Ok(token), stage.name()));
        assert_eq!(inner.release().await, Released::Released);
    }
    assert_eq!(outer.check(), Ok(token), "an inner guard gives nothing back");
    let seen = stage.inspect(&scene.witness).await;
    assert_eq!((seen.holder().expect("it holds").token, seen.waiters), (token, 0));
    let (inner, last) = (outer, scene.subject.acquire().await.expect("it re-enters"));
    drop(inner);
    assert_eq!(stage.inspect(&scene.witness).await.holder().expect("it holds").token, token);
    assert_eq!(last.release().await, Released::Released);
    given_back(Expect::GivesBack, scene, stage).await;
}

/// The call waits for the other waiter of its owner, whose place in the queue serves both.
async fn shares<S: Subject>(call: Call, mut scene: Scene<S>, stage: &Stage) {
    in_vain(call, &scene).await;
    let subject = scene.subject.clone();
    let waiting = tokio::spawn(async move { take(call, &subject, SOON).await });
    tokio::time::sleep(SHORT).await;
    assert!(!waiting.is_finished(), "somebody else holds");
    assert_eq!(stage.inspect(&scene.witness).await.waiters, 1, "one of them is queued for both");
    let top = scene.top();
    drop(scene.guard.take().expect("somebody holds"));
    let first = scene.turn("its owner is granted").await;
    assert!(Some(first.token()) > top, "tokens rise");
    let taken = soon("it re-enters", waiting).await.expect("no panic").expect("an answer");
    let (token, second) = taken.expect("its owner holds");
    assert_eq!(token, first.token(), "one grant, one token");
    if let Some(second) = second {
        assert_eq!(second.release().await, Released::Released);
    }
    assert_eq!(first.release().await, Released::Released);
    given_back(Expect::GivesBack, scene, stage).await;
}

async fn granted<S: Subject>(
    (token, guard): (Token, Option<S::Held>),
    top: Option<Token>,
    scene: &Scene<S>,
    stage: &Stage,
) {
    assert!(Some(token) > top, "tokens rise: {token:?} after {top:?}");
    if let Some(guard) = guard {
        assert_eq!(guard.check(), Ok(token));
        assert_eq!(guard.name(), stage.name());
        let seen = stage.inspect(&scene.witness).await.holder().cloned().expect("somebody holds");
        assert_eq!((seen.label.as_str(), seen.is_revoked), ("caller", false));
        // The store shows the token of its grant. A client that hands over inside uses the tokens after it.
        match scene.waits_at {
            WaitsAt::Store => assert_eq!(seen.token, token),
            WaitsAt::Client => assert!(Some(seen.token) >= top && seen.token <= token, "{seen:?}, {token:?}"),
        }
        assert_eq!(guard.release().await, Released::Released);
    }
    assert_eq!(stage.inspect(&scene.witness).await.holder(), None, "it was given back");
}

async fn inspect<S: Subject>(expected: Expect, scene: &Scene<S>) {
    let seen = scene.subject.inspect().await;
    if let Expect::Refuses(kind) = expected {
        return refused(kind, seen.err());
    }
    let seen = seen.expect("an answer");
    match expected {
        Expect::ShowsNobody => assert!(seen.holder().is_none() && seen.waiters == 0, "{seen:?}"),
        Expect::ShowsHolder { .. } | Expect::ShowsRevoked => {
            let (holder, guard) = (seen.holder().expect("somebody holds"), scene.guard.as_ref().expect("a guard"));
            assert_eq!(holder.token, guard.token());
            let wanted = if expected == Expect::ShowsRevoked { 0 } else { waiters(expected) };
            assert_eq!(seen.waiters, wanted);
            assert_eq!(holder.is_revoked, expected == Expect::ShowsRevoked);
            let owner = if guard_is_callers(scene) { "caller" } else { "other" };
            assert_eq!(holder.label, owner);
            assert!(guard.remaining() <= holder.remaining, "never relied on for longer than the store keeps it");
        }
        other => unreachable!("{other:?} is nothing that inspect shows"),
    }
}

fn waiters(expected: Expect) -> usize {
    match expected {
        Expect::ShowsHolder { waiters } => waiters,
        _ => 0,
    }
}

fn guard_is_callers<S: Subject>(scene: &Scene<S>) -> bool {
    scene.seen.as_ref().is_some_and(|holder| holder.label == "caller")
}

async fn revoke<S: Subject>(expected: Expect, mut scene: Scene<S>, stage: &Stage) {
    let holder = scene.seen.clone().expect("somebody was seen");
    let answer = scene.subject.revoke(&holder, GRACE).await;
    match expected {
        Expect::Refuses(kind) => refused(kind, answer.err()),
        Expect::NotHeld => assert_eq!(answer.expect("an answer"), Revoked::NotHeld),
        Expect::Revokes => {
            let Revoked::Within(left) = answer.expect("an answer") else { panic!("it holds") };
            assert!(left <= GRACE, "{left:?}");
            let guard = scene.guard.take().expect("somebody holds");
            assert_eq!(guard.lost().await.reason(), LostReason::Revoked);
            assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
            let seen =
                stage.inspect(&scene.witness).await.holder().cloned().expect("until its guard goes, or the grace ends");
            assert!(seen.is_revoked && seen.token == guard.token() && seen.remaining <= left, "{seen:?}");
            drop(guard);
            let expected = if scene.queued.is_some() { Expect::HandsOver } else { Expect::GivesBack };
            given_back(expected, scene, stage).await;
        }
        other => unreachable!("{other:?} is no answer to revoke"),
    }
}

async fn given_back<S: Subject>(expected: Expect, mut scene: Scene<S>, stage: &Stage) {
    let top = scene.seen.as_ref().map(|holder| holder.token);
    if expected == Expect::HandsOver {
        let next = scene.turn("the next one is granted").await;
        assert!(next.is_valid() && Some(next.token()) > top, "tokens rise");
        assert_eq!(next.release().await, Released::Released);
    }
    eventually("nobody holds", async || stage.inspect(&scene.witness).await.holder().is_none()).await;
    let next = S::OfTasks::of(&scene.witness, stage.name()).try_acquire().await.expect("an answer").expect("free");
    assert!(Some(next.token()) > top, "tokens rise");
    assert_eq!(next.release().await, Released::Released);
}

async fn close<S: Subject>(expected: Expect, scene: Scene<S>, stage: &Stage) {
    let before = stage.inspect(&scene.witness).await;
    let guard = scene.guard.as_ref();
    let was_valid = guard.is_some_and(S::Held::is_valid);
    let closed = scene.holding.clone().close().await;
    assert!(closed.unconfirmed().is_empty(), "{closed:?}");
    if expected == Expect::Nothing {
        let after = stage.inspect(&scene.witness).await;
        assert_eq!(after.holder().map(|holder| holder.token), before.holder().map(|holder| holder.token));
        assert_eq!(guard.map(S::Held::is_valid), guard.map(|_| was_valid), "nobody else is disturbed");
        return;
    }
    let guard = guard.expect("somebody held");
    let why = guard.lost().await;
    assert_eq!(why.reason(), if was_valid { LostReason::Closed } else { LostReason::Revoked });
    if expected == Expect::GivesBack {
        assert_eq!(stage.inspect(&scene.witness).await.holder(), None, "closing has waited for it");
    }
    given_back(expected, scene, stage).await;
}

fn refused(kind: ErrorKind, error: Option<Error>) {
    let error = error.expect("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.may_have_acted(), "nothing was sent: {error}");
    assert!(!error.is_retryable(), "it would be refused again: {error}");
}
