//! The queue, and which waiters are passed over or notified: P1, P5, P6, P9, P16.

use leasehold_spec::limits::{QUEUE_MAX, SETTLE_STEPS};
use leasehold_spec::{Contention, Event, Op, Order, Outcome, Patience, Place, Rest, Token, Was};

use super::raw::{Raw, place, token_of};
use crate::conformance::stage::{Stage, eventually};

const LEASE_MS: u64 = 20_000;
/// The shortest lease, which ends soon.
const SHORT_MS: u64 = 100;

/// The place of a waiter that has given up already.
fn impatient() -> Place {
    Place { limit_ms: Some(0), ..place() }
}

pub(super) async fn queue_first(stage: &Stage) {
    let (mut a, mut b, mut c) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    a.take().await;
    let (waiter, newcomer) = (b.id(), c.id());
    b.queue(waiter, LEASE_MS, place()).await;
    a.shorten(SHORT_MS).await;
    eventually("the holder's lease has ended", async || c.inspect().await.holder().is_none()).await;
    let answer = c.acquire(newcomer, LEASE_MS, Patience::Try).await;
    assert!(matches!(answer.outcome, Outcome::Busy { .. }), "the queue comes first: {answer:?}");
    assert!(c.is_held_by(waiter).await);
    assert!(answer.handed_claim_ms.is_some(), "the client learns that it handed over, and follows it up");
    let push = b.next_message().await;
    assert_eq!((push.id, push.event), (waiter, Event::Granted));
    assert_eq!(b.release(waiter, push.token).await.outcome, Outcome::Released);
}

pub(super) async fn bounded(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let id = a.id();
    let token = a.take_as(id, LEASE_MS).await;
    for _ in 0..=SETTLE_STEPS {
        let id = a.id();
        a.queue(id, LEASE_MS, impatient()).await;
    }
    let last = b.id();
    b.queue(last, LEASE_MS, place()).await;
    let released = a.release(id, token).await;
    assert_eq!(
        (released.outcome, released.rest),
        (Outcome::Released, Rest::More),
        "64 were examined, and there are more"
    );
    assert_eq!(a.inspect().await.waiters, 2);
    let newcomer = a.id();
    let more = a.ask(Op::Settle).await;
    assert_eq!((more.outcome, more.rest), (Outcome::Settled, Rest::Done));
    assert!(a.is_held_by(last).await);
    assert!(matches!(a.acquire(newcomer, LEASE_MS, Patience::Try).await.outcome, Outcome::Busy { .. }));
    let push = b.next_message().await;
    let _ = b.release(last, push.token).await;
}

pub(super) async fn hands_over(stage: &Stage) {
    let (mut a, mut b, mut c) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second, third) = (a.id(), b.id(), c.id());
    let token = a.take_as(first, LEASE_MS).await;
    b.queue(second, LEASE_MS, place()).await;
    c.queue(third, LEASE_MS, place()).await;
    let released = a.release(first, token).await;
    assert_eq!(
        (released.outcome, released.handed_claim_ms),
        (Outcome::Released, Some(1_000)),
        "the answer gives the length of the claim"
    );
    assert!(a.is_held_by(second).await, "in the same step");
    let push = b.next_message().await;
    assert_eq!((push.id, push.event, push.contention), (second, Event::Granted, Contention::Others));
    assert!(push.token > token && push.token == released.highest);
    b.expect_no_message().await;
    c.expect_no_message().await;
    assert_eq!(b.release(second, push.token).await.outcome, Outcome::Released);
    let last = c.next_message().await;
    assert_eq!((last.id, last.contention), (third, Contention::None));
    assert!(last.token > push.token);
    assert_eq!(c.release(third, last.token).await.outcome, Outcome::Released);
    a.expect_no_message().await;
}

pub(super) async fn detached(stage: &Stage) {
    let (mut a, mut b, mut c) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second, third) = (a.id(), b.id(), c.id());
    let token = a.take_as(first, LEASE_MS).await;
    b.queue(second, LEASE_MS, place()).await;
    c.queue(third, LEASE_MS, place()).await;
    b.detach(stage).await;
    let _ = a.release(first, token).await;
    assert!(a.is_held_by(third).await, "nobody would have received a message");
    let push = c.next_message().await;
    assert_eq!(c.release(third, push.token).await.outcome, Outcome::Released);
    assert_eq!(a.inspect().await.waiters, 0);
}

pub(super) async fn place_of(stage: &Stage) -> (Raw, Token, u64) {
    let mut a = Raw::attach(stage).await;
    let (first, early, late) = (a.id(), a.id(), a.id());
    let token = a.take_as(first, LEASE_MS).await;
    // Both entries look dead to the release; the second one comes back first.
    let early_ticket = a.queue(early, LEASE_MS, impatient()).await;
    let late_ticket = a.queue(late, LEASE_MS, impatient()).await;
    assert!(late_ticket > early_ticket, "tickets rise");
    let _ = a.release(first, token).await;
    assert_eq!(a.inspect().await.waiters, 0, "the entries go, the tickets stay");
    let holder = a.id();
    let token = a.take_as(holder, LEASE_MS).await;
    let back = Place { ticket: Some(late_ticket), ..place() };
    assert_eq!(a.queue(late, LEASE_MS, back).await, late_ticket);
    let back = Place { ticket: Some(early_ticket), ..place() };
    assert_eq!(a.queue(early, LEASE_MS, back).await, early_ticket);
    let _ = a.release(holder, token).await;
    let push = a.next_message().await;
    assert_eq!(push.id, early, "back before the later waiter");
    let _ = a.release(early, push.token).await;
    let push = a.next_message().await;
    assert_eq!(push.id, late);
    (a, push.token, late.counter)
}

pub(super) async fn place_kept(stage: &Stage) {
    let (a, token, _) = place_of(stage).await;
    let held = a.inspect().await.holder().cloned().expect("the late one holds");
    assert_eq!(held.token, token);
    let _ = a.ask(Op::Revoke { holder: held.id, token, grace_ms: 0 }).await;
}

pub(super) async fn attached_anew(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second) = (a.id(), b.id());
    let token = a.take_as(first, LEASE_MS).await;
    b.queue(second, LEASE_MS, place()).await;
    let old = b.attach_anew(stage).await;
    old.close();
    drop(old);
    // One exchange later the store has seen the end of the old one, where it can be seen at all.
    let _ = b.now_us().await;
    let _ = a.release(first, token).await;
    let push = b.next_message().await;
    assert_eq!((push.id, push.event), (second, Event::Granted));
    let _ = b.release(second, push.token).await;
}

pub(super) async fn level(stage: &Stage) {
    let (mut a, mut b, mut c) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second, third) = (a.id(), b.id(), c.id());
    let granted = a.acquire(first, LEASE_MS, Patience::Try).await;
    let token = token_of(&granted);
    assert_eq!(granted.contention, Contention::None);
    let renew = async || a.renew(first, token, leasehold_spec::From::Now, LEASE_MS).await.contention;
    assert_eq!(renew().await, Contention::None);
    b.queue(second, LEASE_MS, place()).await;
    assert_eq!(renew().await, Contention::Others);
    assert_eq!(renew().await, Contention::Others, "a level, and not an edge");
    c.queue(third, LEASE_MS, Place { order: Order::Strict, ..place() }).await;
    assert_eq!(renew().await, Contention::Strict);
    let _ = b.ask(Op::Leave { id: second, used: Token::NONE }).await;
    assert_eq!(renew().await, Contention::Strict);
    let _ = c.ask(Op::Leave { id: third, used: Token::NONE }).await;
    assert_eq!(renew().await, Contention::None);
    let _ = a.release(first, token).await;
}

pub(super) async fn leave(stage: &Stage) {
    let (mut a, mut b, mut c) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second, third) = (a.id(), b.id(), c.id());
    let token = a.take_as(first, LEASE_MS).await;
    b.queue(second, LEASE_MS, place()).await;
    c.queue(third, LEASE_MS, place()).await;
    let left = |was| Outcome::Left { was };
    assert_eq!(b.ask(Op::Leave { id: second, used: Token::NONE }).await.outcome, left(Was::Queued));
    assert_eq!(
        b.ask(Op::Leave { id: second, used: Token::NONE }).await.outcome,
        left(Was::Absent),
        "twice is as good as once"
    );
    b.queue(second, LEASE_MS, place()).await;
    assert_eq!(a.release(first, token).await.outcome, Outcome::Released);
    let push = c.next_message().await;
    // The waiter was granted, and does not want the lease any more.
    assert_eq!(c.ask(Op::Leave { id: third, used: Token::NONE }).await.outcome, left(Was::Granted));
    let next = b.next_message().await;
    assert_eq!(next.id, second, "handed on in the same step");
    assert!(next.token > push.token && b.is_held_by(second).await);
    let late = c.acquire(third, LEASE_MS, Patience::Queue(place())).await;
    assert_eq!(late.outcome, Outcome::Gone, "an acquire that comes behind its leave");
    assert_eq!(b.ask(Op::Leave { id: second, used: Token::NONE }).await.outcome, left(Was::Granted));
    assert_eq!(a.inspect().await.holder(), None);
}

/// All at once, as from a crowd.
pub(super) async fn bound(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let holder = a.id();
    let token = a.take_as(holder, 10 * LEASE_MS).await;
    for _ in 0..QUEUE_MAX / 100 {
        let ids: Vec<_> = (0..100).map(|_| b.id()).collect();
        let mut missing = 100;
        while missing > 0 {
            let answers = b.acquire_all(&ids, LEASE_MS, &Patience::Queue(impatient())).await;
            let count = |wanted: fn(&Outcome) -> bool| answers.iter().filter(|answer| wanted(&answer.outcome)).count();
            missing = count(|outcome| *outcome == Outcome::Late);
            assert_eq!(count(|outcome| matches!(outcome, Outcome::Queued { .. })) + missing, 100);
        }
    }
    let (late, again) = (a.id(), a.id());
    assert_eq!(a.acquire(late, LEASE_MS, Patience::Queue(place())).await.outcome, Outcome::Full);
    assert_eq!(a.inspect().await.waiters, QUEUE_MAX as u64, "nothing was done");
    assert!(matches!(a.acquire(again, LEASE_MS, Patience::Try).await.outcome, Outcome::Busy { .. }));
    // All of them have given up by now.
    let mut rest = a.release(holder, token).await.rest;
    for _ in 0..=QUEUE_MAX / SETTLE_STEPS {
        if rest == Rest::Done {
            break;
        }
        rest = a.ask(Op::Settle).await.rest;
    }
    assert_eq!((rest, a.inspect().await.waiters), (Rest::Done, 0));
}
