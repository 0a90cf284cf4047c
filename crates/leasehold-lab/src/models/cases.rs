//! The cases, rule by rule: the flaw, the scene that shows it, and the property that it violates.

use leasehold_spec::mutant::Mutant;

use super::ledger::Harm;
use super::rules::{Botch, Off, Slip};
use super::scene::Scene;
use super::scenes as s;
use super::world::Play;

pub(crate) struct Case {
    pub(crate) rule: &'static str,
    pub(crate) flaw: &'static str,
    pub(crate) off: Off,
    pub(crate) scene: &'static Scene,
    pub(crate) harm: Harm,
}

impl Case {
    pub(crate) fn play(&self) -> Play {
        Play::new(self.scene.clone(), self.off, Some(self.harm))
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

const fn script(botch: Botch) -> Off {
    Off::Script(botch)
}

pub(crate) const ALL: &[Case] = &[
    case("P1", "a free lease is not handed to the queue", store(Mutant::P1Barging), &s::HAND_OVER, Harm::HeadWaits),
    case("P1", "a time in the future is kept", store(Mutant::P1FutureStays), &s::SET_BACK, Harm::FollowedLate),
    case(
        "P2",
        "a repeated acquire starts the lease anew",
        store(Mutant::P2RepeatExtends),
        &s::LAST_WORDS,
        Harm::CostlyDeath,
    ),
    case(
        "P2",
        "a reply states the lease's length, not what is left",
        store(Mutant::P2WholeLease),
        &s::GHOSTS,
        Harm::TwoHolders,
    ),
    case("P3", "a repeated release gets NotHeld", store(Mutant::P3ForgetsRelease), &s::GHOSTS, Harm::FalseAlarm),
    case("P3", "renew compares the session only", store(Mutant::P3RenewByAnyone), &s::LAST_WORDS, Harm::CostlyDeath),
    case("P3", "a retry is a new attempt", session(Slip::RetryIsNew), &s::GHOSTS, Harm::UnknowingHolder),
    case(
        "P3",
        "the last message about an ID is believed",
        session(Slip::LastMessageWins),
        &s::CROSSED,
        Harm::TokenFell,
    ),
    case(
        "P3",
        "NotHeld is believed of a repeated release",
        session(Slip::BelievesNotHeld),
        &s::GHOSTS,
        Harm::FalseReport,
    ),
    case("P4", "a late request is carried out", store(Mutant::P4RunsLate), &s::GHOSTS, Harm::UnknowingHolder),
    case(
        "P5",
        "a release frees the lease and only notifies the next",
        store(Mutant::P5WakeOnly),
        &s::HAND_OVER,
        Harm::HeadWaits,
    ),
    case("P6", "a detached waiter is granted", store(Mutant::P6GrantsDetached), &s::ORDER, Harm::ToDetached),
    case("P6", "a returning waiter goes to the tail", store(Mutant::P6LosesPlace), &s::ORDER, Harm::OutOfOrder),
    case(
        "P6",
        "PUBLISH's count decides which waiter is there",
        script(Botch::CountsReceivers),
        &s::UNCOUNTED,
        Harm::TwoHolders,
    ),
    case("P7", "a pushed grant lasts a whole lease", store(Mutant::P7NoClaim), &s::DEATH, Harm::CostlyDeath),
    case("P7", "a lapsed claim is not remembered", store(Mutant::P7ForgetsLapse), &s::DEATH, Harm::CostlyDeath),
    case(
        "P7",
        "the session that handed over does not re-check",
        session(Slip::SkipsSettle),
        &s::CLAIMS,
        Harm::ClaimUnnoticed,
    ),
    case(
        "P7",
        "a waiter that polls states the usual claim",
        session(Slip::PollsTooRarely),
        &s::POLLERS,
        Harm::ClaimWasted,
    ),
    case("P8", "writes come before the last check", script(Botch::WritesThenFails), &s::MEMORY, Harm::UnknowingHolder),
    case("P8", "a release needs memory", script(Botch::ReleaseNeedsMemory), &s::MEMORY, Harm::UnknowingHolder),
    case("P9", "replies do not say that others wait", store(Mutant::P9Silent), &s::RUNS, Harm::IgnoresWaiters),
    case("P9", "the session ignores it", session(Slip::IgnoresOthers), &s::RUNS, Harm::IgnoresWaiters),
    case(
        "P9",
        "an older message about others is believed",
        session(Slip::OlderLevelWins),
        &s::LANES,
        Harm::IgnoresWaiters,
    ),
    case("P10", "a revoked run goes on", session(Slip::RunsRevoked), &s::REVOKED, Harm::LetInLate),
    case(
        "P10",
        "a revocation does not notify the waiters",
        store(Mutant::P10TellsNoWaiter),
        &s::GRACE,
        Harm::GraceOutlasted,
    ),
    case("P10", "a waiter ignores it", session(Slip::WaitsOn), &s::GRACE, Harm::GraceOutlasted),
    case("P11", "a leave overtakes its acquire", session(Slip::LeaveOvertakes), &s::CROSSED, Harm::LeftButHolds),
    case("P11", "a release overtakes a re-check", session(Slip::ReleaseOvertakes), &s::CROSSED, Harm::UnknowingHolder),
    case(
        "P12",
        "validity counts from the arrival of the reply",
        session(Slip::FromReceipt),
        &s::HAND_OVER,
        Harm::TwoHolders,
    ),
    case(
        "P12",
        "a pushed grant counts from its arrival",
        session(Slip::PushFromReceipt),
        &s::HAND_OVER,
        Harm::TwoHolders,
    ),
    case(
        "P13",
        "a release without a reply is not repeated",
        session(Slip::ReleaseOnce),
        &s::GHOSTS,
        Harm::UnknowingHolder,
    ),
    case(
        "P14",
        "the first reply to a leave closes the attempt",
        session(Slip::FirstLeave),
        &s::GHOSTS,
        Harm::UnknowingHolder,
    ),
    case(
        "P14",
        "open requests are determined by the reply to the leave",
        session(Slip::BarAtAnswer),
        &s::RETRIES,
        Harm::UnknowingHolder,
    ),
    case(
        "P14",
        "a push for an unknown id is dropped",
        session(Slip::IgnoresUnknownPush),
        &s::OUTAGE,
        Harm::UnknowingHolder,
    ),
    case(
        "P14",
        "an attempt is closed a lease after its request",
        session(Slip::ClosesEarly),
        &s::OUTAGE,
        Harm::UnknowingHolder,
    ),
    case("P15", "a waiter relies on its push alone", session(Slip::NoRecheck), &s::HAND_OVER, Harm::WaitsForEver),
    case("P16", "a dropped future sends nothing", session(Slip::DropSilent), &s::HAND_OVER, Harm::UnknowingHolder),
    case(
        "P16",
        "leaving keeps a grant that was made already",
        store(Mutant::P16LeaveKeeps),
        &s::HAND_OVER,
        Harm::UnknowingHolder,
    ),
    case("P19", "the next token is one more, reserved or not", session(Slip::MintsBeyond), &s::RANGES, Harm::TokenFell),
    case("P19", "the next token is the client's clock", session(Slip::MintsByClock), &s::STOPPED, Harm::Outranks),
    case("P19", "a release does not report the used tokens", session(Slip::ReleasesOwn), &s::RUNS, Harm::TokenFell),
    case("P19", "a reservation counts before its reply", session(Slip::TrustsReserve), &s::RANGES, Harm::TokenFell),
    case(
        "P19",
        "tokens that nobody reports as used are given out again",
        store(Mutant::P19BurnsNothing),
        &s::STOPPED,
        Harm::TokenFell,
    ),
    case(
        "P19",
        "a session without the grant can reserve",
        store(Mutant::P19ReservesForAll),
        &s::SEIZED,
        Harm::Outranks,
    ),
    case("P20", "the clock is not read at each pass", session(Slip::ReadsNoClock), &s::STOPPED, Harm::LetInLate),
    case("P20", "a run without a reply has no end", session(Slip::RunsUnconfirmed), &s::EDGE, Harm::Starves),
    case(
        "P20",
        "its limit counts from the arrival of the reply",
        session(Slip::CountsFromArrival),
        &s::EDGE,
        Harm::Starves,
    ),
    case(
        "P20",
        "a strict waiter counts as a relaxed one",
        session(Slip::StrictIsRelaxed),
        &s::STRICT,
        Harm::IgnoresWaiters,
    ),
    case("P23", "a repeated cool-down begins anew", store(Mutant::P23RepeatExtends), &s::COOLING, Harm::CoolsTooLong),
    case(
        "P23",
        "a cool-down is repeated with its whole length",
        session(Slip::CoolsAnew),
        &s::COOLING,
        Harm::CoolsTooLong,
    ),
    case("P23", "a leave ends a cool-down", store(Mutant::P23LeaveEnds), &s::COOLING, Harm::GrantedTooSoon),
    case(
        "P23",
        "a late renewal turns a cool-down into a lease",
        store(Mutant::P23RenewRevives),
        &s::COOLING,
        Harm::GrantedTooSoon,
    ),
    case(
        "P23",
        "the waiters are not notified of the end of a cool-down",
        store(Mutant::P23TellsNoWaiter),
        &s::COOLED,
        Harm::CoolingOutlasted,
    ),
    case(
        "P21",
        "the waiters of a lost lease are forgotten",
        session(Slip::LostForgets),
        &s::STOPPED,
        Harm::Unrepresented,
    ),
    case(
        "P21",
        "the queue entry belongs to the task, not the slot",
        session(Slip::EntryOfTask),
        &s::SLOT,
        Harm::WaitsForEver,
    ),
    case(
        "P21",
        "a push goes to a local waiter that has gone",
        session(Slip::PushToTheDead),
        &s::SLOT,
        Harm::UnknowingHolder,
    ),
    case("P21", "the end of a run does not acquire again", session(Slip::ReleaseOnly), &s::SLOT, Harm::WaitsForEver),
];
