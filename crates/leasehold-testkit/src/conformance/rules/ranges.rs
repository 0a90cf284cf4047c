//! Tokens that a session hands out by itself, and the message that somebody waits: P19, P9.

use leasehold_spec::limits::{RANGE_MAX, TOKEN_LEAD_US};
use leasehold_spec::{Contention, Event, From, GrantId, LostHow, Op, Order, Outcome, Place, Token};

use super::raw::{Raw, left_us, place};
use crate::conformance::stage::{Stage, eventually};

const LEASE_MS: u64 = 20_000;
/// The shortest lease: it ends soon, and its range is still ahead of the clock.
const SHORT_MS: u64 = 100;

impl Raw {
    /// Makes the range as long as possible. Returns its last token, which the clock has not reached yet.
    async fn reserve_all(&self, id: GrantId, token: Token) -> Token {
        match self.ask(Op::Reserve { id, token, range: 100 * TOKEN_LEAD_US }).await.outcome {
            Outcome::Reserved { range } => token.plus(range - 1),
            other => panic!("it holds: {other:?}"),
        }
    }

    async fn give_back(&self, id: GrantId, token: Token, used: Token) {
        assert_eq!(self.ask(Op::Release { id, token, used }).await.outcome, Outcome::Released);
    }
}

pub(super) async fn reserved(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second) = (a.id(), b.id());
    let (token, range) = a.take_range(first, LEASE_MS, RANGE_MAX).await;
    assert_eq!(range, RANGE_MAX);
    assert_eq!(a.take_range(first, LEASE_MS, 7).await, (token, RANGE_MAX), "a repeat returns the existing range");
    let last = a.reserve_all(first, token).await;
    assert!(last >= token.plus(TOKEN_LEAD_US - 1), "a second ahead of the clock");
    let used = token.plus(TOKEN_LEAD_US / 2);
    a.give_back(first, token, used).await;
    let (next, _) = b.take_range(second, LEASE_MS, RANGE_MAX).await;
    assert!(next > used, "{next} and {used}");
    // A reported token beyond the range is ignored: the name would otherwise have no tokens left.
    b.give_back(second, next, Token::HIGHEST).await;
    let third = a.id();
    let (after, _) = a.take_range(third, LEASE_MS, RANGE_MAX).await;
    assert!(after > next && after < next.plus(600 * TOKEN_LEAD_US), "{after} and {next}");
    assert_eq!(a.release(third, after).await.outcome, Outcome::Released);
}

pub(super) async fn burnt(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second) = (a.id(), b.id());
    let (token, _) = a.take_range(first, LEASE_MS, RANGE_MAX).await;
    let last = a.reserve_all(first, token).await;
    // The lease is shortened only now, however long the two exchanges took.
    assert_eq!(left_us(&a.renew(first, token, From::Now, SHORT_MS).await), SHORT_MS * 1000);
    eventually("its lease has ended", async || b.inspect().await.holder().is_none()).await;
    let (next, _) = b.take_range(second, LEASE_MS, 1).await;
    assert!(next > last, "any token up to {last} may have been handed out: {next}");
    assert_eq!(b.release(second, next).await.outcome, Outcome::Released);
}

pub(super) async fn for_its_holder(stage: &Stage) {
    let (mut a, mut b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let (id, other) = (a.id(), b.id());
    let (token, _) = a.take_range(id, LEASE_MS, 1).await;
    let reserve = |id, token, range| Op::Reserve { id, token, range };
    let not_held = Outcome::Lost { how: LostHow::NotHeld };
    assert_eq!(b.ask(reserve(other, token, 9)).await.outcome, not_held);
    assert_eq!(a.ask(reserve(id, token.plus(1), 9)).await.outcome, not_held, "the token names the grant");
    assert_eq!(a.ask(reserve(id, token, 9)).await.outcome, Outcome::Reserved { range: 9 });
    assert_eq!(a.ask(reserve(id, token, 5)).await.outcome, Outcome::Reserved { range: 9 }, "never fewer");
    let _ = b.ask(Op::Revoke { holder: id.public(), token, grace_ms: 5_000 }).await;
    assert_eq!(a.ask(reserve(id, token, 99)).await.outcome, Outcome::Lost { how: LostHow::Revoked });
    a.give_back(id, token, token.plus(8)).await;
    assert_eq!(a.ask(reserve(id, token, 99)).await.outcome, not_held);
}

pub(super) async fn wanted(stage: &Stage) {
    let (mut a, mut b, mut c) = (Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await);
    let (first, second, third, fourth) = (a.id(), b.id(), b.id(), c.id());
    let (token, _) = a.take_range(first, LEASE_MS, RANGE_MAX).await;
    b.queue(second, LEASE_MS, place()).await;
    let message = a.next_message().await;
    assert_eq!((message.event, message.contention), (Event::Wanted, Contention::Others));
    assert_eq!((message.id, message.token, message.range), (first, token, RANGE_MAX));
    assert!(message.left_us > 0 && message.left_us <= LEASE_MS * 1000, "{message:?}");
    b.queue(third, LEASE_MS, place()).await;
    a.expect_no_message().await;
    c.queue(fourth, LEASE_MS, Place { order: Order::Strict, ..place() }).await;
    let message = a.next_message().await;
    assert_eq!((message.event, message.contention), (Event::Wanted, Contention::Strict));
    assert_eq!(a.release(first, token).await.outcome, Outcome::Released);
    for (raw, id) in [(&b, second), (&b, third), (&c, fourth)] {
        let _ = raw.ask(Op::Leave { id, used: Token::NONE }).await;
    }
    // A holder of one token hands nothing over, and needs no message.
    let (first, second) = (a.id(), c.id());
    let token = a.take_as(first, LEASE_MS).await;
    c.queue(second, LEASE_MS, Place { order: Order::Strict, ..place() }).await;
    a.expect_no_message().await;
    let _ = c.ask(Op::Leave { id: second, used: Token::NONE }).await;
    assert_eq!(a.release(first, token).await.outcome, Outcome::Released);
}
