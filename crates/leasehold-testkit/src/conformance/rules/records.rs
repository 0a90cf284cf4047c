//! One attempt and its grant: P2, P3, P4.

use leasehold_spec::{Acquire, From, LostHow, Op, Outcome, Patience, Renew, Take, Token};

use super::raw::{Raw, left_us, place, token_of};
use crate::conformance::stage::Stage;

const LEASE_MS: u64 = 20_000;

pub(super) async fn what_is_left(stage: &Stage) {
    let mut a = Raw::attach(stage).await;
    let id = a.id();
    let first = a.acquire(id, LEASE_MS, Patience::Try).await;
    assert_eq!(left_us(&first), LEASE_MS * 1000, "a fresh grant is whole");
    let end_us = first.now_us + left_us(&first);
    for patience in [Patience::Try, Patience::Queue(place())] {
        let again = a.acquire(id, LEASE_MS + 5_000, patience).await;
        assert_eq!(token_of(&again), token_of(&first), "the same grant");
        assert_eq!(again.now_us + left_us(&again), end_us, "which ends when it did");
    }
    let renewed = a.renew(id, token_of(&first), From::Now, LEASE_MS).await;
    assert_eq!(left_us(&renewed), LEASE_MS * 1000, "only a renewal makes it longer");
    let mut b = Raw::attach(stage).await;
    let theirs = b.id();
    let queued = b.acquire(theirs, LEASE_MS, Patience::Queue(place())).await;
    let Outcome::Queued { left_us, .. } = queued.outcome else { panic!("a holds: {queued:?}") };
    assert_eq!(
        queued.now_us + left_us,
        renewed.now_us + LEASE_MS * 1000,
        "a waiter learns when the holder's lease ends"
    );
    let _ = b.ask(Op::Leave { id: theirs, used: Token::NONE }).await;
    let _ = a.release(id, token_of(&first)).await;
}

pub(super) async fn repeats(stage: &Stage) {
    let mut a = Raw::attach(stage).await;
    let (id, next) = (a.id(), a.id());
    let token = a.take_as(id, LEASE_MS).await;
    for _ in 0..2 {
        assert_eq!(a.release(id, token).await.outcome, Outcome::Released, "also when the first answer was lost");
    }
    let late = a.acquire(id, LEASE_MS, Patience::Queue(place())).await;
    assert_eq!(late.outcome, Outcome::Gone, "an acquire that comes behind its release");
    let token = a.take_as(next, LEASE_MS).await;
    assert_eq!(a.release(id, token).await.outcome, Outcome::Released, "also when somebody holds by now");
    assert_eq!(a.release(next, token).await.outcome, Outcome::Released);
    assert_eq!(a.release(id, token).await.outcome, Outcome::NotHeld, "the last one alone is remembered");
}

pub(super) async fn only_this(stage: &Stage) {
    let mut a = Raw::attach(stage).await;
    let (id, other) = (a.id(), a.id());
    let token = a.take_as(id, LEASE_MS).await;
    let wrong = Token::new(token.get() - 1).expect("a smaller one is one");
    for (id, token) in [(id, wrong), (other, token)] {
        assert_eq!(a.renew(id, token, From::Now, LEASE_MS).await.outcome, Outcome::Lost { how: LostHow::NotHeld });
        assert_eq!(a.release(id, token).await.outcome, Outcome::NotHeld);
    }
    assert!(a.is_held_by(id).await);
    assert_eq!(a.release(id, token).await.outcome, Outcome::Released);
}

pub(super) async fn late(stage: &Stage) {
    let mut a = Raw::attach(stage).await;
    let (id, other) = (a.id(), a.id());
    let acquire = |id, not_after_us| Acquire {
        id,
        take: Take::MUTEX,
        lease_ms: LEASE_MS,
        not_after_us,
        patience: Patience::Queue(place()),
        label: "".into(),
        range: 1,
    };
    let past_us = a.now_us().await;
    let refused = a.ask(Op::Acquire(acquire(id, past_us - 1))).await;
    assert_eq!(refused.outcome, Outcome::Late);
    assert!(refused.now_us >= past_us, "the answer has the time");
    assert_eq!(a.inspect().await.holder(), None, "nothing was done");
    let token = a.take_as(id, LEASE_MS).await;
    assert_eq!(a.ask(Op::Acquire(acquire(other, past_us - 1))).await.outcome, Outcome::Late);
    assert_eq!(a.inspect().await.waiters, 0, "nor did it queue");
    let end_us = a.now_us().await + a.inspect().await.holder().expect("held").left_us;
    let renew = Renew { id, token, from: From::Now, lease_ms: 4 * LEASE_MS, not_after_us: past_us - 1 };
    assert_eq!(a.ask(Op::Renew(renew)).await.outcome, Outcome::Late);
    let now_us = a.now_us().await;
    assert!(
        now_us + a.inspect().await.holder().expect("held").left_us <= end_us + LEASE_MS * 1000,
        "nor was it renewed"
    );
    assert_eq!(a.release(id, token).await.outcome, Outcome::Released, "a release is never late");
}
