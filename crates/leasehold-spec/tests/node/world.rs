//! One node with one name, and the requests of the tests about it.

use std::collections::HashSet;

use leasehold_spec::limits::NOT_AFTER_MAX_US;
use leasehold_spec::node::{Ask, Bell, Record, Renewal, Request, Said, Vote, Wait, vote};
use leasehold_spec::{Env, From, GrantId, Order, SessionId, Token, Was};

pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const START_US: u64 = 1_795_193_818_000_000;

/// One name, the clock of the node, and the sessions that are detached.
pub(crate) struct World {
    pub(crate) record: Record,
    pub(crate) now_us: u64,
    pub(crate) detached: HashSet<SessionId>,
    pub(crate) bells: Vec<Bell>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { record: Record::default(), now_us: START_US, detached: HashSet::new(), bells: Vec::new() }
    }

    pub(crate) fn vote(&mut self, request: &Request) -> Vote {
        let attached = |session: SessionId| !self.detached.contains(&session);
        let env = Env { wall_us: self.now_us, lease_us: self.now_us, attached: &attached };
        let (vote, bells) = vote(&mut self.record, &env, request);
        self.bells.extend(bells);
        vote
    }

    /// Returns a request for one token, of an attempt that does not wait.
    pub(crate) fn request(&self, id: GrantId, token: Token) -> Ask {
        let not_after_us = self.now_us + NOT_AFTER_MAX_US;
        Ask { id, token, range: 1, lease_ms: LEASE_MS, not_after_us, wait: None, label: "test".into() }
    }

    pub(crate) fn ask(&mut self, id: GrantId, token: Token) -> Said {
        self.vote(&Request::Ask(self.request(id, token))).said
    }

    pub(crate) fn ask_waiting(&mut self, id: GrantId, token: Token, ticket: u64) -> Said {
        let wait = Some(wait(ticket));
        self.vote(&Request::Ask(Ask { wait, ..self.request(id, token) })).said
    }

    /// Returns a renewal of one token that may fill the node.
    pub(crate) fn renewal(&self, id: GrantId, token: Token) -> Renewal {
        let (not_after_us, fill) = (self.now_us + NOT_AFTER_MAX_US, Some("test".into()));
        Renewal { id, token, range: 1, from: From::Now, lease_ms: LEASE_MS, not_after_us, fill }
    }

    pub(crate) fn renew(&mut self, id: GrantId, token: Token) -> Said {
        self.vote(&Request::Renew(self.renewal(id, token))).said
    }

    pub(crate) fn give_back(&mut self, id: GrantId) -> Was {
        was(&self.vote(&Request::GiveBack { id, upto: Token::HIGHEST, wait: None }).said)
    }

    pub(crate) fn wait(&mut self, id: GrantId, ticket: u64) -> Was {
        was(&self.vote(&Request::GiveBack { id, upto: Token::HIGHEST, wait: Some(wait(ticket)) }).said)
    }

    pub(crate) fn revoke(&mut self, id: GrantId, token: Token, grace_ms: u64) -> Said {
        self.vote(&Request::Revoke { holder: id.public(), token, grace_ms }).said
    }

    pub(crate) fn settle(&mut self) -> Vote {
        self.vote(&Request::Settle)
    }

    pub(crate) fn holder(&self) -> Option<GrantId> {
        self.record.grant.as_ref().map(|granted| granted.id)
    }

    pub(crate) fn called(&self) -> Option<GrantId> {
        self.record.called.map(|called| called.id)
    }

    pub(crate) fn waiters(&self) -> Vec<GrantId> {
        self.record.queue.keys().map(|(_, id)| *id).collect()
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1000;
    }
}

pub(crate) fn id(session: u128, counter: u64) -> GrantId {
    GrantId { session: SessionId(session), counter, nonce: counter + 1 }
}

/// Returns the token that is `after` above the clock at which all tests begin.
pub(crate) fn token(after: u64) -> Token {
    Token::new(START_US + after).expect("a clock of this century")
}

pub(crate) fn wait(ticket: u64) -> Wait {
    Wait { ticket, order: Order::Relaxed }
}

/// Returns a vote for one token that lasts a whole lease.
pub(crate) fn granted(token: Token) -> Said {
    Said::Granted { token, range: 1, left_us: LEASE_MS * 1000 }
}

pub(crate) fn refused(by: Option<GrantId>, left_ms: u64) -> Said {
    Said::Refused { holder: by.map(|id| id.public()), left_us: left_ms * 1000 }
}

pub(crate) fn was(said: &Said) -> Was {
    match said {
        Said::GivenBack { was } => *was,
        other => panic!("not given back: {other:?}"),
    }
}
