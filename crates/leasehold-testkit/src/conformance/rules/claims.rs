//! The length of a pushed grant, and the events that end one early: P7, P10.

use leasehold_spec::{Contention, Event, From, GrantId, GrantState, LostHow, Op, Outcome, Place, Token};

use super::raw::{Raw, left_us, place};
use crate::conformance::stage::{Stage, eventually};

const LEASE_MS: u64 = 20_000;

fn claiming(claim_ms: u64) -> Place {
    Place { claim_ms, ..place() }
}

/// Makes a pushed grant of `b`, with a claim of this length, and returns when it was made.
async fn pushed(a: &mut Raw, b: &mut Raw, claim_ms: u64) -> (GrantId, Token, u64) {
    let (first, second) = (a.id(), b.id());
    let token = a.take_as(first, LEASE_MS).await;
    b.queue(second, LEASE_MS, claiming(claim_ms)).await;
    assert_eq!(a.release(first, token).await.handed_claim_ms, Some(claim_ms.min(LEASE_MS)));
    let push = b.next_message().await;
    assert_eq!((push.id, push.left_us), (second, claim_ms.min(LEASE_MS) * 1000), "it lasts for the claim");
    (second, push.token, push.now_us)
}

pub(super) async fn claim(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let (id, token, made_us) = pushed(&mut a, &mut b, 5_000).await;
    let seen = a.inspect().await.holder().cloned().expect("held");
    assert_eq!(seen.state, GrantState::Pushed);
    let again = b.acquire(id, LEASE_MS, leasehold_spec::Patience::Queue(place())).await;
    assert_eq!(again.now_us + left_us(&again), made_us + 5_000_000, "a repeat lengthens nothing");
    let renewed = b.renew(id, token, From::Now, LEASE_MS).await;
    assert_eq!(left_us(&renewed), LEASE_MS * 1000, "a session that has answered has the whole lease");
    assert_eq!(a.inspect().await.holder().expect("held").state, GrantState::Held);
    assert_eq!(b.release(id, token).await.outcome, Outcome::Released);

    // A claim is no reason to hold longer than requested.
    let (id, token, _) = pushed(&mut a, &mut b, LEASE_MS + 1_000).await;
    assert_eq!(b.release(id, token).await.outcome, Outcome::Released);

    // Nobody answers: the grant ends with the claim, and not with the lease.
    let (id, token, _) = pushed(&mut a, &mut b, 100).await;
    eventually("the claim has lapsed", async || a.inspect().await.holder().is_none()).await;
    assert_eq!(b.renew(id, token, From::Now, LEASE_MS).await.outcome, Outcome::Lost { how: LostHow::NotHeld });
}

pub(super) async fn fixed(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let (id, token, made_us) = pushed(&mut a, &mut b, 1_000).await;
    for _ in 0..2 {
        let claimed = b.renew(id, token, From::Grant, LEASE_MS).await;
        assert_eq!(claimed.now_us + left_us(&claimed), made_us + LEASE_MS * 1000, "from its grant on, once");
    }
    assert_eq!(b.release(id, token).await.outcome, Outcome::Released);
}

pub(super) async fn lapse(stage: &Stage) {
    let (mut a, mut frozen, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, theirs) = (a.id(), [frozen.id(), frozen.id(), frozen.id()]);
    let token = a.take_as(first, LEASE_MS).await;
    for id in theirs {
        frozen.queue(id, LEASE_MS, claiming(100)).await;
    }
    let alive = b.id();
    b.queue(alive, LEASE_MS, place()).await;
    let _ = a.release(first, token).await;
    assert_eq!(frozen.next_message().await.id, theirs[0]);
    eventually("the claim has lapsed", async || a.inspect().await.holder().is_none()).await;
    let _ = a.ask(Op::Settle).await;
    assert!(a.is_held_by(alive).await, "one claim was lost to the frozen session, and not one for each of its waiters");
    let push = b.next_message().await;
    // It thaws, and re-checks: it is back.
    let back = frozen.acquire(theirs[1], LEASE_MS, leasehold_spec::Patience::Queue(place())).await;
    assert!(matches!(back.outcome, Outcome::Queued { .. }), "{back:?}");
    let _ = b.release(alive, push.token).await;
    assert!(a.is_held_by(theirs[1]).await);
    assert_eq!(
        frozen.ask(Op::Leave { id: theirs[1], used: Token::NONE }).await.outcome,
        Outcome::Left { was: leasehold_spec::Was::Granted }
    );
}

pub(super) async fn revoke(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let id = a.id();
    let token = a.take_as(id, LEASE_MS).await;
    let revoke = |token, grace_ms| Op::Revoke { holder: id.public(), token, grace_ms };
    let wrong = Token::new(token.get() - 1).expect("a smaller one is one");
    assert_eq!(b.ask(revoke(wrong, 1_000)).await.outcome, Outcome::NotHeld, "it names what was seen");
    a.expect_no_message().await;
    let first = b.ask(revoke(token, 4_000)).await;
    assert!(left_us(&first) <= 4_000_000);
    let message = a.next_message().await;
    assert_eq!((message.id, message.token, message.event), (id, token, Event::Revoked));
    let again = b.ask(revoke(token, 5_000)).await;
    assert!(again.now_us + left_us(&again) <= first.now_us + left_us(&first), "its lease never grows");
    assert_eq!(a.renew(id, token, From::Now, LEASE_MS).await.outcome, Outcome::Lost { how: LostHow::Revoked });
    assert_eq!(a.inspect().await.holder().expect("held").state, GrantState::Revoked);
    let waiter = b.id();
    b.queue(waiter, LEASE_MS, place()).await;
    assert_eq!(a.release(id, token).await.outcome, Outcome::Released, "what is left of it is given back");
    let push = b.next_message().await;
    assert_eq!(push.id, waiter);
    let _ = b.release(waiter, push.token).await;
}

pub(super) async fn notifies(stage: &Stage) {
    let [mut a, mut b, mut c, mut d] =
        [Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await];
    let id = a.id();
    let token = a.take_as(id, LEASE_MS).await;
    let waiting = [b.id(), b.id(), c.id(), d.id()];
    for (waiter, id) in [&b, &b, &c, &d].into_iter().zip(waiting) {
        waiter.queue(id, LEASE_MS, place()).await;
    }
    let revoke = |grace_ms| Op::Revoke { holder: id.public(), token, grace_ms };
    let revoked = d.ask(revoke(4_000)).await;
    assert_eq!(a.next_message().await.event, Event::Revoked);
    let end_us = revoked.now_us + left_us(&revoked);
    ends(&mut b, waiting[0], token, end_us).await;
    ends(&mut c, waiting[2], token, end_us).await;
    d.expect_no_message().await;
    b.expect_no_message().await;

    // A notified waiter can leave.
    let _ = b.ask(Op::Leave { id: waiting[0], used: Token::NONE }).await;
    ends(&mut b, waiting[1], token, end_us).await;
    ends(&mut c, waiting[2], token, end_us).await;
    let _ = b.ask(Op::Leave { id: waiting[1], used: Token::NONE }).await;
    ends(&mut c, waiting[2], token, end_us).await;
    ends(&mut d, waiting[3], token, end_us).await;

    let sooner = b.ask(revoke(1_000)).await;
    assert_eq!(a.next_message().await.event, Event::Revoked);
    ends(&mut c, waiting[2], token, sooner.now_us + left_us(&sooner)).await;
    ends(&mut d, waiting[3], token, sooner.now_us + left_us(&sooner)).await;
    let _ = a.release(id, token).await;
    let push = c.next_message().await;
    assert_eq!((push.id, push.event), (waiting[2], Event::Granted));
    let _ = d.ask(Op::Leave { id: waiting[3], used: Token::NONE }).await;
    c.expect_no_message().await;
    let _ = c.release(waiting[2], push.token).await;
}

/// Expects that the next message gives this end of the lease for which this attempt waits.
async fn ends(waiter: &mut Raw, id: GrantId, token: Token, end_us: u64) {
    let message = waiter.next_message().await;
    assert_eq!((message.id, message.token, message.event), (id, token, Event::Ending));
    assert_eq!((message.now_us + message.left_us, message.contention), (end_us, Contention::Others));
}
