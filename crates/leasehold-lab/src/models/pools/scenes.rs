//! The scenes: the sessions, the durations in ticks, and how often each fault may happen.

use leasehold_spec::Take;

/// The behavior of a session and its caller.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Does {
    pub(super) take: Option<Take>,
    pub(super) upgrades: bool,
    /// Stops waiting for the upgrade, and keeps the read guard.
    pub(super) stops: bool,
    /// Drops the future of the upgrade.
    pub(super) drops: bool,
    pub(super) downgrades: bool,
    /// Drops the future of the acquire.
    pub(super) cancels: bool,
    /// Acquires once more after its first attempt.
    pub(super) repeats: bool,
    /// Its pushes come by another connection, and overtake replies.
    pub(super) overtakes: bool,
    /// Renews more than its claim.
    pub(super) renews: bool,
    pub(super) cuts: bool,
    pub(super) crashes: bool,
    /// Its requests take their time. The others arrive at once: a request that takes its time is like a later one.
    /// Likewise, only a connection that may break has replies on their way, and pushes always take their time.
    pub(super) is_slow: bool,
    /// The number of the resize, and from which limit to which.
    pub(super) resize: Option<(u8, (u32, u32))>,
}

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Budget {
    pub(super) renewals: u8,
    pub(super) lost_pushes: u8,
    pub(super) cuts: u8,
    /// How many of these connections leave requests that the store carries out later.
    pub(super) buffers: u8,
    pub(super) crashes: u8,
    /// How often the store fails over to an earlier state.
    pub(super) failovers: u8,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Scene {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) sessions: &'static [Does],
    pub(super) until: u8,
    pub(super) lease: u8,
    pub(super) claim: u8,
    pub(super) budget: Budget,
}

const NOTHING: Does = Does {
    take: None,
    upgrades: false,
    stops: false,
    drops: false,
    downgrades: false,
    cancels: false,
    repeats: false,
    overtakes: false,
    renews: false,
    cuts: false,
    crashes: false,
    is_slow: false,
    resize: None,
};
const READER: Does = Does { take: Some(Take::READ), ..NOTHING };
const WRITER: Does = Does { take: Some(Take::WRITE), ..NOTHING };
const UPGRADER: Does = Does { take: Some(Take::UPGRADEABLE_READ), upgrades: true, stops: true, ..NOTHING };

const fn permits(units: u32, limit: u32) -> Does {
    Does { take: Some(Take::permits(units, limit)), ..NOTHING }
}

const NO_FAULT: Budget = Budget { renewals: 0, lost_pushes: 0, cuts: 0, buffers: 0, crashes: 0, failovers: 0 };

pub(super) const UPGRADE: Scene = Scene {
    name: "upgrade",
    about: "a reader upgrades beside another one, or stops waiting; a writer waits, and a push is lost",
    sessions: &[UPGRADER, READER, WRITER],
    until: 4,
    lease: 3,
    claim: 1,
    budget: Budget { lost_pushes: 1, ..NO_FAULT },
};

pub(super) const READ_LEASE: Scene = Scene {
    name: "read lease",
    about: "the same without a writer: the reader renews, its connection breaks, or it drops its future",
    until: 2,
    lease: 2,
    sessions: &[Does { drops: true, renews: true, cuts: true, ..UPGRADER }, READER],
    budget: Budget { renewals: 1, lost_pushes: 1, cuts: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const DOWNGRADE: Scene = Scene {
    name: "downgrade",
    about: "a writer becomes a reader while others wait, and the reply is lost",
    until: 2,
    lease: 2,
    sessions: &[Does { downgrades: true, cuts: true, ..WRITER }, READER, WRITER],
    budget: Budget { lost_pushes: 1, cuts: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const DEATH: Scene = Scene {
    name: "dead writer",
    about: "a writer dies, waiting or not, and so may a reader that upgrades",
    until: 3,
    sessions: &[Does { crashes: true, stops: false, ..UPGRADER }, READER, Does { crashes: true, ..WRITER }],
    budget: Budget { crashes: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const PERMITS: Scene = Scene {
    name: "permits",
    about: "two permits, requests for one and for two; a push is lost, a waiter goes or dies",
    until: 3,
    sessions: &[permits(2, 2), Does { cancels: true, crashes: true, ..permits(2, 2) }, permits(1, 2)],
    budget: Budget { lost_pushes: 1, crashes: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const OVERTAKEN: Scene = Scene {
    name: "overtaken",
    about: "two permits, and a push that is slow, or that overtakes the reply to its request",
    sessions: &[
        permits(1, 2),
        Does { repeats: true, ..permits(2, 2) },
        Does { cuts: true, overtakes: true, ..permits(1, 2) },
    ],
    until: 2,
    lease: 2,
    budget: NO_FAULT,
    ..UPGRADE
};

pub(super) const RESIZE: Scene = Scene {
    name: "resize",
    about: "two permits become one, and then three; the reply to the first change is lost",
    until: 2,
    lease: 2,
    sessions: &[
        Does { cuts: true, resize: Some((0, (2, 1))), ..permits(1, 2) },
        permits(2, 2),
        Does { resize: Some((1, (1, 3))), ..permits(1, 1) },
    ],
    budget: Budget { cuts: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const BACK: Scene = Scene {
    name: "there and back",
    about: "two permits become one, and then two again; the reply to the first change is lost",
    sessions: &[
        Does { cuts: true, resize: Some((0, (2, 1))), ..NOTHING },
        permits(2, 2),
        Does { resize: Some((1, (1, 2))), ..permits(1, 2) },
    ],
    budget: Budget { cuts: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const STALE: Scene = Scene {
    name: "late upgrade",
    about: "a reader stops waiting for its upgrade, and a request of a broken connection is carried out later",
    sessions: &[Does { cuts: true, is_slow: true, ..UPGRADER }, READER],
    until: 3,
    budget: Budget { cuts: 1, buffers: 1, ..NO_FAULT },
    ..UPGRADE
};

pub(super) const FAILOVER: Scene = Scene {
    name: "failover",
    about: "a reader upgrades behind another one; the store fails over to an earlier state, and a push is lost",
    sessions: &[READER, Does { stops: false, renews: true, ..UPGRADER }],
    until: 2,
    budget: Budget { renewals: 1, lost_pushes: 1, failovers: 1, ..NO_FAULT },
    ..UPGRADE
};

/// The scenes that have no counter-example.
pub(super) const ALL: &[Scene] =
    &[UPGRADE, READ_LEASE, DOWNGRADE, DEATH, PERMITS, OVERTAKEN, RESIZE, BACK, STALE, FAILOVER];
