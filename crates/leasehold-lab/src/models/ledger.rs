//! What an all-knowing observer writes down: history that no session can see, kept as small as the properties allow.

use leasehold_spec::{Contention, Grant, Token};

use super::scene::Scene;
use super::session::Run;

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Harm {
    TwoHolders,
    TokenFell,
    Haunted,
    LeftButHolds,
    HeadWaits,
    FalseAlarm,
    FalseReport,
    OutOfOrder,
    ToTheDeaf,
    DearDeath,
    ClaimUnnoticed,
    ClaimWasted,
    Heedless,
    WaitsForEver,
    NobodyStands,
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
    /// The property that it breaks, as reports name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TwoHolders => "two holders at once",
            Self::TokenFell => "a token that is not above every earlier one",
            Self::Haunted => "a lease held by nobody who knows of it",
            Self::LeftButHolds => "a lease that waits out its own leave",
            Self::HeadWaits => "a live waiter left at a free lease",
            Self::FalseAlarm => "a release in time is called NotHeld",
            Self::FalseReport => "a caller is told NotHeld, and had given back in time",
            Self::OutOfOrder => "a waiter passed over for a later one",
            Self::ToTheDeaf => "a lease handed to an inbox that is gone",
            Self::DearDeath => "a dead process costs more than one claim",
            Self::ClaimUnnoticed => "a lapsed claim that nobody looks after",
            Self::ClaimWasted => "a claim that lapses on a waiter which is awake and connected",
            Self::Heedless => "a run that goes on although others are known to wait",
            Self::WaitsForEver => "a waiter that waits for ever",
            Self::NobodyStands => "a local queue that nothing stands for",
            Self::Outranks => "an old holder whose token is not below its successor's",
            Self::LetInLate => "a task let in by its session on a lease that has ended",
            Self::Starves => "a run that goes on unheard while others wait",
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
    /// What a step did wrong. What is wrong with a state is not written down: it can be seen.
    pub(crate) harm: Option<Harm>,
    /// The highest token that anybody entered with, and the local passes before it.
    pub(crate) entered: (Token, u8),
    /// The last hand-over: by whom, to whom.
    pub(crate) handed: Option<Handed>,
    /// The earliest place that each attempt came back to with a ticket, while it waits.
    pub(crate) places: Vec<((u8, u8), u64)>,
    /// The attempts whose release was carried out in time, oldest first, until the session knows.
    pub(crate) gave_back: Vec<(u8, u8)>,
    /// The one that the record remembers.
    pub(crate) gave_back_last: Option<(u8, u8)>,
    /// For how long a dead process was kept as the holder that it never knew to be.
    pub(crate) dead_ticks: u8,
    /// For how long each session has waited for a lease that nobody holds, with nothing under way.
    pub(crate) idle: Vec<u8>,
    /// A push was lost: what it was about costs a claim, and that is the price.
    pub(crate) lost_push: bool,
    /// The store forgot everything: exclusion was never promised for that.
    pub(crate) forgot: bool,
    /// The token of the grant that was revoked: who has not heard of that may overlap with the next.
    pub(crate) revoked: Option<Token>,
    /// Since when another session waits for the lease that is held.
    pub(crate) wanted: Option<u8>,
    /// When the grace of a revocation is over.
    pub(crate) grace_over: Option<u8>,
    /// When the minimum hold is over of the lease that cools down. `None` once somebody else is granted it.
    pub(crate) cools_until: Option<u8>,
    /// Which grant its holder died with, and when.
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

    /// Somebody enters: tokens grow with each entry, in real time. A session that could not hear that its lease has ended
    /// may let in a task below the highest (which is what fences are for), and never one with the same token.
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

    /// A process dies, with this grant or without one.
    pub(crate) fn dies(&mut self, tick: u8, grant: Option<&Grant>) {
        if let Some(grant) = grant {
            self.died = Some((grant.token, tick));
        }
    }

    /// An attempt asks for the place that it was told.
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

    /// A release is answered, and its caller told whether the lease had been lost before.
    pub(crate) fn reported(&mut self, attempt: (u8, u8), is_told_not_held: bool) {
        let before = self.gave_back.len();
        self.gave_back.retain(|a| *a != attempt);
        if is_told_not_held && self.gave_back.len() < before {
            self.note(Harm::FalseReport);
        }
    }

    /// A holder passed its lease on locally.
    pub(crate) fn passed(&mut self, scene: &Scene, tick: u8, run: &Run) {
        // A queue that the store has forgotten is none.
        if self.forgot {
            return;
        }
        // Strict order allows no pass at all.
        if run.heedless > scene.passes || run.others == Contention::Strict {
            self.note(Harm::Heedless);
        }
        let is_unheard = |since: u8| tick > since + scene.third();
        if run.others == Contention::None && self.wanted.is_some_and(is_unheard) {
            self.note(Harm::Starves);
        }
    }
}
