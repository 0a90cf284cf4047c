//! The record of an all-knowing observer: history that no session can see, kept as small as the properties allow.

use leasehold_spec::{Contention, Grant, Token};

use super::scene::Scene;
use super::session::Run;

/// A violation that must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Harm {
    TwoHolders,
    TokenFell,
    UnknowingHolder,
    LeftButHolds,
    HeadWaits,
    FalseAlarm,
    FalseReport,
    OutOfOrder,
    ToDetached,
    CostlyDeath,
    ClaimUnnoticed,
    ClaimWasted,
    IgnoresWaiters,
    WaitsForEver,
    Unrepresented,
    Outranks,
    LetInLate,
    Starves,
    GraceOutlasted,
    FollowedLate,
    GrantedTooSoon,
    CoolsTooLong,
    CoolingOutlasted,
}

impl Harm {
    /// Returns the violated property, as reports name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TwoHolders => "two holders at once",
            Self::TokenFell => "a token that is not above every earlier one",
            Self::UnknowingHolder => "a lease whose holder does not know of it",
            Self::LeftButHolds => "a lease that is kept until its attempt may leave again",
            Self::HeadWaits => "a live waiter left at a free lease",
            Self::FalseAlarm => "a release in time is called NotHeld",
            Self::FalseReport => "a caller gets NotHeld although it released in time",
            Self::OutOfOrder => "a waiter passed over for a later one",
            Self::ToDetached => "a lease handed to an inbox that is gone",
            Self::CostlyDeath => "a dead process costs more than one claim",
            Self::ClaimUnnoticed => "a lapsed claim that nobody re-checks",
            Self::ClaimWasted => "a claim that lapses on a waiter which is awake and connected",
            Self::IgnoresWaiters => "a run that goes on although others are known to wait",
            Self::WaitsForEver => "a waiter that waits forever",
            Self::Unrepresented => "a local queue without a grant, a request or an entry",
            Self::Outranks => "an old holder whose token is not below its successor's",
            Self::LetInLate => "a task that its session let in on an ended lease",
            Self::Starves => "a run that goes on without a reply while others wait",
            Self::GraceOutlasted => "a waiter that a revoked lease keeps waiting beyond its grace",
            Self::GrantedTooSoon => "a lease that is granted before its cool-down is over",
            Self::CoolsTooLong => "a cool-down that is longer than was asked for",
            Self::CoolingOutlasted => "a waiter that a cool-down keeps waiting beyond its end",
            Self::FollowedLate => "a dead holder that is followed late",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    /// The violation that a step caused. A violation that a state itself shows is not recorded.
    pub(crate) harm: Option<Harm>,
    /// The highest token that a task has entered with, and the number of local passes before it.
    pub(crate) entered: (Token, u8),
    /// The last hand-over: the session that handed over, and the new holder.
    pub(crate) handed: Option<Handed>,
    /// The earliest place that each waiting attempt has presented with a ticket.
    pub(crate) places: Vec<((u8, u8), u64)>,
    /// The attempts whose release was carried out in time, oldest first, until the session gets the reply.
    pub(crate) gave_back: Vec<(u8, u8)>,
    /// The last of them, which the record remembers.
    pub(crate) gave_back_last: Option<(u8, u8)>,
    /// For how long a dead process was kept as the holder without ever learning of its grant.
    pub(crate) dead_ticks: u8,
    /// For how long each session has waited for a lease that nobody holds, with no message in flight.
    pub(crate) idle: Vec<u8>,
    /// A push was lost. Its grant costs one claim, which is the accepted price.
    pub(crate) lost_push: bool,
    /// The store forgot everything. Exclusion is not promised in this case.
    pub(crate) forgot: bool,
    /// The token of the grant that was revoked. A holder that has not yet received the revocation may overlap with the
    /// next holder.
    pub(crate) revoked: Option<Token>,
    /// When another session began to wait for the lease that is held.
    pub(crate) wanted: Option<u8>,
    /// When the grace of a revocation is over.
    pub(crate) grace_over: Option<u8>,
    /// When the minimum hold of the lease that cools down is over. `None` once somebody else is granted the lease.
    pub(crate) cools_until: Option<u8>,
    /// The grant whose holder has died, and when it died.
    pub(crate) died: Option<(Token, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handed {
    pub(crate) by: u8,
    pub(crate) to: (u8, u8),
    pub(crate) token: Token,
}

impl Ledger {
    pub(crate) fn note(&mut self, harm: Harm) {
        self.harm.get_or_insert(harm);
    }

    /// Records that a task enters. Tokens grow with each entry, in real time. A session that could not learn that its
    /// lease has ended may let in a task below the highest token (which is what fences are for), and never one with the
    /// same token.
    pub(crate) fn enters(&mut self, token: Token, pass: u8) {
        let is_revoked = self.revoked.is_some_and(|revoked| revoked.plus(u64::from(pass)) == token);
        let is_excused = is_revoked || self.forgot && pass > 0;
        if is_excused && token < self.entered.0 {
            return;
        }
        if token <= self.entered.0 {
            self.note(Harm::TokenFell);
        }
        self.entered = (token, pass);
    }

    /// Records that a process dies, with this grant or without one.
    pub(crate) fn dies(&mut self, tick: u8, grant: Option<&Grant>) {
        if let Some(grant) = grant {
            self.died = Some((grant.token, tick));
        }
    }

    /// Records that an attempt asks for the place that it has a ticket for.
    pub(crate) fn asks_for(&mut self, attempt: (u8, u8), ticket: u64) {
        if self.place(attempt).is_none_or(|known| ticket < known) {
            self.places.retain(|(a, _)| *a != attempt);
            self.places.push((attempt, ticket));
            self.places.sort_unstable();
        }
    }

    pub(crate) fn place(&self, attempt: (u8, u8)) -> Option<u64> {
        self.places.iter().find(|(a, _)| *a == attempt).map(|(_, ticket)| *ticket)
    }

    /// Records the reply to a release, and whether its caller learns that the lease had been lost before.
    pub(crate) fn reported(&mut self, attempt: (u8, u8), is_reported_lost: bool) {
        let before = self.gave_back.len();
        self.gave_back.retain(|a| *a != attempt);
        if is_reported_lost && self.gave_back.len() < before {
            self.note(Harm::FalseReport);
        }
    }

    /// Records that a holder passed its lease on locally.
    pub(crate) fn passed(&mut self, scene: &Scene, tick: u8, run: &Run) {
        // A queue that the store has forgotten does not count.
        if self.forgot {
            return;
        }
        // Strict order allows no pass at all.
        if run.passes_while_wanted > scene.passes || run.others == Contention::Strict {
            self.note(Harm::IgnoresWaiters);
        }
        let is_overdue = |since: u8| tick > since + scene.third();
        if run.others == Contention::None && self.wanted.is_some_and(is_overdue) {
            self.note(Harm::Starves);
        }
    }
}
