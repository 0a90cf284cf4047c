//! The cases, rule by rule: the flaw, the scene that shows it, and the property that it violates.

use leasehold_spec::mutant::Mutant;

use super::scenes::{self, Scene};
use crate::models::family;

/// The models of read-write locks and semaphores.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Pools;

pub(super) type Play = family::Play<Pools>;
type Off = family::Off<Slip>;
type Case = family::Case<Pools>;

/// A flaw of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Slip {
    /// P37: the session believes that its read grant is lost while its upgrade waits.
    BelievesLost,
    /// P38: a caller that stops waiting for an upgrade sends a leave.
    Leaves,
    /// P38: BUSY ends an upgrade although an earlier acquire of it may still be carried out.
    BusyEnds,
    /// P39: a downgrade without a reply is taken back.
    RollsBack,
    /// P40: a resize without a reply is sent again.
    RepeatsResize,
    /// P13: a new run of the store gets releases of old tokens.
    SameToken,
}

/// A violation of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::models) enum Harm {
    WriterBesideOthers,
    TooManyUnits,
    TokenFalls,
    FittingWaits,
    DeadWaits,
    OtherEnters,
    Ghost,
    Shorter,
    LostTooEarly,
    ReadGrantGone,
    WritesAgain,
    NeverFits,
    Undone,
    HeldByNobody,
}

impl Play {
    /// Whether a resize is carried out twice: a session never sends it again, but a proxy may.
    pub(super) fn repeats_resizes(&self) -> bool {
        self.slips(Slip::RepeatsResize) || self.off == Off::Store(Mutant::P40ResizesBlindly)
    }
}

impl Harm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WriterBesideOthers => "a writer inside beside another holder",
            Self::TooManyUnits => "more units inside than the limit allowed",
            Self::TokenFalls => "a token that does not rise",
            Self::FittingWaits => "a waiter that fits waits on",
            Self::DeadWaits => "a dead waiter stays at the head",
            Self::OtherEnters => "a client that knows another limit is admitted",
            Self::Ghost => "a session ignores its own entry",
            Self::Shorter => "an upgrade that is shorter than what its holder had",
            Self::LostTooEarly => "a loss is reported while the upgrade holds",
            Self::ReadGrantGone => "a reader that gave its upgrade up has lost its grant",
            Self::WritesAgain => "a lowered holder believes that it is a writer again",
            Self::NeverFits => "a waiter that can never fit stays at the head",
            Self::Undone => "a late resize undoes a later one",
            Self::HeldByNobody => "a grant stays for a lease, and nobody holds or returns it",
        }
    }
}

const fn case(rule: &'static str, flaw: &'static str, off: Off, scene: &'static Scene, harm: Harm) -> Case {
    Case { rule, flaw, off, scene, harm }
}

const fn store(mutant: Mutant) -> Off {
    Off::Store(mutant)
}

const fn session(slip: Slip) -> Off {
    Off::Session(slip)
}

pub(super) const ALL: &[Case] = &[
    case(
        "P13",
        "a new run gets releases of old tokens",
        session(Slip::SameToken),
        &scenes::FAILOVER,
        Harm::HeldByNobody,
    ),
    case(
        "P31",
        "clients that disagree about the limit are all admitted",
        store(Mutant::P31OtherLimitEnters),
        &scenes::RESIZE,
        Harm::OtherEnters,
    ),
    case(
        "P32",
        "a lease that ends by time leaves the highest token",
        store(Mutant::P32ExpiryIsSilent),
        &scenes::OVERTAKEN,
        Harm::Ghost,
    ),
    case(
        "P33",
        "a step looks at a waiter only if a unit is free",
        store(Mutant::P33DeadHeadBlocks),
        &scenes::PERMITS,
        Harm::DeadWaits,
    ),
    case("P33", "a step serves one waiter", store(Mutant::P33ServesOne), &scenes::OVERTAKEN, Harm::FittingWaits),
    case(
        "P37",
        "an upgrade does not wait for other readers",
        store(Mutant::P37WaitsForNobody),
        &scenes::UPGRADE,
        Harm::WriterBesideOthers,
    ),
    case(
        "P37",
        "an upgrade that waited lasts for a claim",
        store(Mutant::P37ClaimShortens),
        &scenes::UPGRADE,
        Harm::Shorter,
    ),
    case(
        "P37",
        "a read grant counts as lost while its upgrade waits",
        session(Slip::BelievesLost),
        &scenes::READ_LEASE,
        Harm::LostTooEarly,
    ),
    case(
        "P38",
        "a caller that stops waiting sends a leave",
        session(Slip::Leaves),
        &scenes::UPGRADE,
        Harm::ReadGrantGone,
    ),
    case(
        "P39",
        "lowered units are not handed on in the same step",
        store(Mutant::P39AdmitsLater),
        &scenes::DOWNGRADE,
        Harm::FittingWaits,
    ),
    case(
        "P39",
        "a downgrade without a reply is taken back",
        session(Slip::RollsBack),
        &scenes::DOWNGRADE,
        Harm::WriterBesideOthers,
    ),
    case(
        "P40",
        "a waiter that can never fit waits on",
        store(Mutant::P40TooBigWaits),
        &scenes::RESIZE,
        Harm::NeverFits,
    ),
    case(
        "P40",
        "a resize does not compare the limit that it saw",
        store(Mutant::P40ResizesBlindly),
        &scenes::RESIZE,
        Harm::Undone,
    ),
    case("P40", "a resize without a reply is sent again", session(Slip::RepeatsResize), &scenes::BACK, Harm::Undone),
    case(
        "P38",
        "BUSY ends an upgrade whose earlier request is open",
        session(Slip::BusyEnds),
        &scenes::STALE,
        Harm::ReadGrantGone,
    ),
];
