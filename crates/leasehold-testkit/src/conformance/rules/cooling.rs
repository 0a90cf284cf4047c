//! Cool-downs (P23).

use leasehold_spec::{Contention, Event, From, GrantId, GrantState, LostHow, Op, Outcome, Patience, Token, Was};

use super::raw::{Raw, left_us, place};
use crate::conformance::stage::Stage;

const LEASE_MS: u64 = 20_000;
const COOL_MS: u64 = 4_000;

fn left(was: Was) -> Outcome {
    Outcome::Left { was }
}

pub(super) async fn cool_down(stage: &Stage) {
    let (mut a, b) = (Raw::attach(stage).await, Raw::attach(stage).await);
    let id = a.id();
    let (token, range) = a.take_range(id, LEASE_MS, 9).await;
    assert_eq!(range, 9);
    let cool_down = |for_ms| Op::CoolDown { id, used: token.plus(3), for_ms };
    let begun = a.ask(cool_down(COOL_MS)).await;
    assert_eq!((&begun.outcome, begun.highest), (&left(Was::Granted), token.plus(3)));
    let end_us = begun.now_us + COOL_MS * 1000;
    let seen = b.inspect().await.holder().cloned().expect("it cools down");
    assert_eq!((seen.id, seen.token, seen.state), (id.public(), token.plus(3), GrantState::CoolingDown));

    // No request of the attempt lengthens it, or ends it.
    assert_eq!(a.ask(cool_down(LEASE_MS)).await.outcome, left(Was::Granted));
    assert_eq!(a.ask(Op::Leave { id, used: token }).await.outcome, left(Was::Absent));
    assert_eq!(a.release(id, token).await.outcome, Outcome::Released);
    assert_eq!(a.acquire(id, LEASE_MS, Patience::Queue(place())).await.outcome, Outcome::Gone);
    for (token, from) in [(token, From::Now), (token.plus(3), From::Now), (token.plus(3), From::Grant)] {
        let lost = Outcome::Lost { how: LostHow::NotHeld };
        assert_eq!(a.renew(id, token, from, LEASE_MS).await.outcome, lost, "{from:?}");
    }
    let mut other = Raw::attach(stage).await;
    let theirs = other.id();
    let busy = other.acquire(theirs, LEASE_MS, Patience::Try).await;
    let Outcome::Busy { left_us } = busy.outcome else { panic!("it cools down: {busy:?}") };
    assert_eq!(busy.now_us + left_us, end_us);

    // A revocation by an operator ends it.
    let revoke = Op::Revoke { holder: id.public(), token: token.plus(3), grace_ms: 4_000 };
    assert_eq!(b.ask(revoke).await.outcome, Outcome::Revoking { left_us: 0 });
    let next = other.take_as(theirs, LEASE_MS).await;
    assert!(next > token.plus(3));
    let _ = other.release(theirs, next).await;
}

pub(super) async fn notifies(stage: &Stage) {
    let [mut a, mut b, mut c] = [Raw::attach(stage).await, Raw::attach(stage).await, Raw::attach(stage).await];
    let id = a.id();
    let token = a.take_as(id, LEASE_MS).await;
    let waiting = [b.id(), c.id()];
    for (waiter, id) in [&b, &c].into_iter().zip(waiting) {
        waiter.queue(id, LEASE_MS, place()).await;
    }
    let begun = a.ask(Op::CoolDown { id, used: token, for_ms: COOL_MS }).await;
    let end_us = begun.now_us + COOL_MS * 1000;
    ends(&mut b, waiting[0], token, end_us).await;
    ends(&mut c, waiting[1], token, end_us).await;
    a.expect_no_message().await;
    // The first waiter gives up: nobody is granted anything, and the next one is notified again.
    let _ = b.ask(Op::Leave { id: waiting[0], used: Token::NONE }).await;
    ends(&mut c, waiting[1], token, end_us).await;
    let revoke = Op::Revoke { holder: id.public(), token, grace_ms: 0 };
    assert_eq!(left_us(&c.ask(revoke).await), 0);
    let push = c.next_message().await;
    assert_eq!((push.id, push.event), (waiting[1], Event::Granted));
    let _ = c.release(waiting[1], push.token).await;
}

/// Expects that the next message gives this end of the lease for which this attempt waits.
async fn ends(waiter: &mut Raw, id: GrantId, token: Token, end_us: u64) {
    let message = waiter.next_message().await;
    assert_eq!((message.id, message.token, message.event), (id, token, Event::Ending));
    assert_eq!((message.now_us + message.left_us, message.contention), (end_us, Contention::Others));
}
