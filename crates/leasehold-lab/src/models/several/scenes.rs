//! The scenes, and the cases: rule by rule the flaw, the scene that shows it, and the property that it violates.

use leasehold_spec::mutant::Mutant;

use crate::models::family;

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Budget {
    pub(super) lost_pushes: u8,
    pub(super) cuts: u8,
    pub(super) crashes: u8,
    pub(super) stops: u8,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Scene {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether tasks ask for both mutexes by one request at first.
    pub(super) asks_for_all: bool,
    /// The last tick.
    pub(super) until: u8,
    pub(super) budget: Budget,
}

impl Scene {
    /// Returns the last tick at which a fault may happen. The ticks after it are enough for both leases of a dead session
    /// to end, and for each task to wait for each mutex and to work.
    pub(super) const fn last_fault(&self) -> u8 {
        self.until - 2 * LEASE - 3
    }
}

/// The models of multi-locks.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct MultiLocks;

pub(super) type Play = family::Play<MultiLocks>;
type Off = family::Off<Slip>;
type Case = family::Case<MultiLocks>;

/// A flaw of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Slip {
    /// P45: the second task takes its members in another order than the first.
    TakesAsNamed,
    /// P46: a task that gets no reply to the request for both gives nothing back.
    KeepsUnknown,
    /// P47: a task works although it lost a mutex while it waited for the other one.
    EntersLost,
}

/// A violation of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Harm {
    Shared,
    Circle,
    WaitsForEver,
    Orphan,
}

/// The lengths of a lease and of a claim, in ticks.
pub(super) const LEASE: u8 = 2;
pub(super) const CLAIM: u8 = 1;

impl Harm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Shared => "a task works while another client holds one of its mutexes",
            Self::Circle => "each task waits for a mutex that the other one holds",
            Self::WaitsForEver => "a live task has not worked at the end",
            Self::Orphan => "a mutex is held for a request that its client has given up",
        }
    }
}

const NO_FAULT: Budget = Budget { lost_pushes: 0, cuts: 0, crashes: 0, stops: 0 };

const ORDER: Scene = Scene {
    name: "in order",
    about: "two tasks take two mutexes one after the other, and a push is lost",
    asks_for_all: false,
    until: 9,
    budget: Budget { lost_pushes: 1, ..NO_FAULT },
};

const TOGETHER: Scene = Scene {
    name: "both or none",
    about: "two tasks ask for both mutexes by one request, and a reply is lost",
    asks_for_all: true,
    budget: Budget { cuts: 1, ..NO_FAULT },
    ..ORDER
};

const CRASH: Scene = Scene {
    name: "dead between two",
    about: "one of the tasks may die at any moment",
    budget: Budget { crashes: 1, ..NO_FAULT },
    ..TOGETHER
};

const STOP: Scene = Scene {
    name: "stopped between two",
    about: "one of the tasks may stop for a while at any moment, so that its leases end",
    budget: Budget { stops: 1, ..NO_FAULT },
    ..TOGETHER
};

pub(super) const ALL: &[Scene] = &[ORDER, TOGETHER, CRASH, STOP];

const fn case(rule: &'static str, flaw: &'static str, off: Off, scene: &'static Scene, harm: Harm) -> Case {
    Case { rule, flaw, off, scene, harm }
}

pub(super) const CASES: &[Case] = &[
    case(
        "P45",
        "members are taken in the order in which they were named",
        Off::Session(Slip::TakesAsNamed),
        &ORDER,
        Harm::Circle,
    ),
    case(
        "P46",
        "a request for both takes the one that is free",
        Off::Store(Mutant::P46TakesSome),
        &TOGETHER,
        Harm::Orphan,
    ),
    case(
        "P46",
        "a request for both without a reply is not given back",
        Off::Session(Slip::KeepsUnknown),
        &TOGETHER,
        Harm::Orphan,
    ),
    case(
        "P47",
        "a task works although it lost a mutex while it waited for the other one",
        Off::Session(Slip::EntersLost),
        &STOP,
        Harm::Shared,
    ),
];
