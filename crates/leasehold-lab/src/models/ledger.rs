//! What an all-knowing observer writes down: history that no session can see, kept as small as the properties allow.

use leasehold_spec::Token;

use super::scene::Scene;

/// What went wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// P1.
    HeadWaits,
    /// P2, P22.
    TokenFell,
    /// P3.
    FalseAlarm,
    /// P6.
    OutOfOrder,
    /// P6.
    ToTheDeaf,
    /// P7.
    DearDeath,
    /// P7.
    ClaimUnnoticed,
    /// P9.
    Heedless,
    /// P15, P21.
    WaitsForEver,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    pub(crate) fault: Option<Fault>,
    /// The highest token that anybody entered with, and its local passes.
    pub(crate) entered: (Token, u8),
    /// The last hand-over: by whom, to whom.
    pub(crate) handed: Option<Handed>,
    /// The attempt whose grant was given back last.
    pub(crate) gave_back: Option<(u8, u8)>,
    /// For how long a dead process was kept as the holder that it never knew to be.
    pub(crate) dead_ticks: u8,
    /// For how long each session has waited for a lease that nobody holds, with nothing under way.
    pub(crate) idle: Vec<u8>,
    /// A push was lost: what it was about costs a claim, and that is the price.
    pub(crate) lost_push: bool,
    /// The store forgot everything: exclusion was never promised for that.
    pub(crate) forgot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handed {
    pub(crate) by: u8,
    pub(crate) to: (u8, u8),
    pub(crate) token: Token,
}

impl Ledger {
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Somebody enters: tokens grow with each entry, in real time.
    pub(crate) fn enters(&mut self, token: Token, pass: u8) {
        if (token, pass) <= self.entered {
            self.fault(Fault::TokenFell);
        }
        self.entered = (token, pass);
    }

    /// A holder passed its lease on locally, `heedless` times since it was told that others wait.
    pub(crate) fn passed(&mut self, scene: &Scene, heedless: u8) {
        if heedless > scene.passes {
            self.fault(Fault::Heedless);
        }
    }
}
