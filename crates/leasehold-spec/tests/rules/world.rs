//! One name with a clock and sessions, and the requests of the tests about it.

use std::collections::HashSet;

use leasehold_spec::limits::{CLAIM_MIN_MS, NOT_AFTER_MAX_US};
use leasehold_spec::{
    Acquire, Answer, Delivery, Env, From, GrantId, Hears, Op, Order, Outcome, Patience, Place, Renew, Resource,
    SessionId, Take, Token, step,
};

pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const START_US: u64 = 1_795_193_818_000_000;

/// One name, its clock, and the sessions that are detached.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) resource: Resource,
    pub(crate) now_us: u64,
    pub(crate) detached: HashSet<SessionId>,
    pub(crate) pushed: Vec<Delivery>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { resource: Resource::default(), now_us: START_US, detached: HashSet::new(), pushed: Vec::new() }
    }

    pub(crate) fn step(&mut self, op: &Op) -> Answer {
        let attached = |session: SessionId| !self.detached.contains(&session);
        let env = Env { wall_us: self.now_us, lease_us: self.now_us, attached: &attached };
        let (answer, deliveries) = step(&mut self.resource, &env, op);
        self.pushed.extend(deliveries);
        answer
    }

    pub(crate) fn acquire(&mut self, id: GrantId) -> Answer {
        self.step(&Op::Acquire(self.request(id)))
    }

    /// Acquires this share, or waits for it.
    pub(crate) fn take(&mut self, id: GrantId, take: Take) -> Answer {
        self.step(&Op::Acquire(Acquire { take, ..self.request(id) }))
    }

    pub(crate) fn request(&self, id: GrantId) -> Acquire {
        let place = Place {
            claim_ms: CLAIM_MIN_MS,
            limit_ms: None,
            ticket: None,
            hears: Hears::Listens,
            order: Order::Relaxed,
        };
        Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: LEASE_MS,
            not_after_us: self.now_us + NOT_AFTER_MAX_US,
            patience: Patience::Queue(place),
            label: "test".into(),
            range: 1,
        }
    }

    pub(crate) fn with_place(&mut self, id: GrantId, change: impl FnOnce(&mut Place)) -> Answer {
        let mut request = self.request(id);
        if let Patience::Queue(place) = &mut request.patience {
            change(place);
        }
        self.step(&Op::Acquire(request))
    }

    pub(crate) fn renew(&mut self, id: GrantId, token: Token, from: From) -> Answer {
        let renew = Renew { id, token, from, lease_ms: LEASE_MS, not_after_us: self.now_us };
        self.step(&Op::Renew(renew))
    }

    pub(crate) fn release(&mut self, id: GrantId, token: Token) -> Answer {
        self.step(&Op::Release { id, token, used: token })
    }

    pub(crate) fn holder(&self) -> Option<GrantId> {
        self.resource.grants.sole().map(|grant| grant.id)
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1000;
    }
}

pub(crate) fn id(session: u128, counter: u64) -> GrantId {
    GrantId { session: SessionId(session), counter, nonce: counter + 1 }
}

pub(crate) fn granted(answer: &Answer) -> Token {
    match answer.outcome {
        Outcome::Granted { token, .. } => token,
        ref other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn ticket(answer: &Answer) -> u64 {
    match answer.outcome {
        Outcome::Queued { ticket, .. } => ticket,
        ref other => panic!("not queued: {other:?}"),
    }
}
