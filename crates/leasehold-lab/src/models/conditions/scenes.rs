//! The scenes, and the cases: rule by rule the flaw, the scene that shows it, and the property that it violates.

use leasehold_spec::mutant::Mutant;

use crate::models::family;

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Budget {
    pub(super) lost_pushes: u8,
    pub(super) cuts: u8,
    pub(super) crashes: u8,
    pub(super) failovers: u8,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Scene {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) waiters: u8,
    /// How many items the notifier puts in, each with one notification.
    pub(super) items: u8,
    /// The last tick. No fault happens in the last ticks, which are as many as a lease and a re-check take.
    pub(super) until: u8,
    pub(super) budget: Budget,
}

impl Scene {
    /// Returns the last tick at which a fault may happen.
    pub(super) const fn last_fault(&self) -> u8 {
        self.until - LEASE - 2
    }
}

/// The models of condition variables.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Conditions;

pub(super) type Play = family::Play<Conditions>;
type Off = family::Off<Slip>;
type Case = family::Case<Conditions>;

/// A flaw of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Slip {
    /// P41: the lock is released before the waiter stands in the queue.
    ReleasesFirst,
    /// P42: the notification is spent before the lock is held.
    SpendsFirst,
    /// P43: a waiter that entered the queue again sleeps on.
    SleepsOn,
    /// P43: a waiter sleeps on when another run of the store answers.
    TrustsNewRun,
}

/// A violation of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Harm {
    SleepsOn,
    StockStays,
    TooMany,
}

/// The lengths of a lease and of a claim, in ticks.
pub(super) const LEASE: u8 = 2;
pub(super) const CLAIM: u8 = 1;

impl Harm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SleepsOn => "a waiter sleeps beside an item",
            Self::StockStays => "a notification is kept for a later waiter",
            Self::TooMany => "more notifications than were made",
        }
    }
}

const NO_FAULT: Budget = Budget { lost_pushes: 0, cuts: 0, crashes: 0, failovers: 0 };

const CRASH: Scene = Scene {
    name: "notified and dead",
    about: "two waiters, of which one may die at any moment, and one item",
    waiters: 2,
    items: 1,
    until: 4,
    budget: Budget { crashes: 1, ..NO_FAULT },
};

const PUSH: Scene = Scene {
    name: "lost push",
    about: "two waiters, two items, and a push that is lost",
    items: 2,
    budget: Budget { lost_pushes: 1, ..NO_FAULT },
    ..CRASH
};

const CUT: Scene = Scene {
    name: "lost reply",
    about: "one waiter, one item, a push that is lost, and a connection that breaks with its replies",
    waiters: 1,
    items: 1,
    until: 5,
    budget: Budget { lost_pushes: 1, cuts: 1, ..NO_FAULT },
};

const FAILOVER: Scene = Scene {
    name: "forgotten notify",
    about: "two waiters, one item, and a failover to a copy that missed the last change",
    budget: Budget { failovers: 1, ..NO_FAULT },
    ..CRASH
};

pub(super) const ALL: &[Scene] = &[CRASH, PUSH, CUT, FAILOVER];

const fn case(rule: &'static str, flaw: &'static str, off: Off, scene: &'static Scene, harm: Harm) -> Case {
    Case { rule, flaw, off, scene, harm }
}

pub(super) const CASES: &[Case] = &[
    case(
        "P41",
        "the lock is released before the waiter stands in the queue",
        Off::Session(Slip::ReleasesFirst),
        &PUSH,
        Harm::SleepsOn,
    ),
    case(
        "P42",
        "a notification that ends unspent is not passed on",
        Off::Store(Mutant::P42ForgetsUnit),
        &CRASH,
        Harm::SleepsOn,
    ),
    case(
        "P42",
        "a notification is spent before the lock is held",
        Off::Session(Slip::SpendsFirst),
        &CRASH,
        Harm::SleepsOn,
    ),
    case(
        "P42",
        "notifications that nobody has received are kept",
        Off::Store(Mutant::P42KeepsStock),
        &PUSH,
        Harm::StockStays,
    ),
    case("P43", "a waiter that entered the queue again sleeps on", Off::Session(Slip::SleepsOn), &PUSH, Harm::SleepsOn),
    case(
        "P43",
        "a waiter that was dropped comes back with its old ticket",
        Off::Store(Mutant::P43KeepsTicket),
        &CUT,
        Harm::SleepsOn,
    ),
    case(
        "P43",
        "a waiter sleeps on when another run of the store answers",
        Off::Session(Slip::TrustsNewRun),
        &FAILOVER,
        Harm::SleepsOn,
    ),
];
