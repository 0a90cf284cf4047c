//! The rules that a search can switch off.

use leasehold_spec::mutant::{Mutant, switch};

/// A rule of the protocol, switched off: in the store's code, in the session, or in how a script is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Off {
    /// Every rule is on.
    Nothing,
    /// A seeded flaw of the shipped specification.
    Store(Mutant),
    /// A flaw of the session.
    Session(Slip),
    /// A flaw of the script around the step.
    Script(Botch),
}

/// A flaw of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slip {
    /// P3: a retry is a new attempt with a new id.
    RetryIsNew,
    /// P3: of two statements about an id, the session believes the one that arrives last.
    LastMessageWins,
    /// P9: an older statement that arrives later decides whether others wait.
    OlderLevelWins,
    /// P10, P20: a run goes on although its session was notified of the revocation.
    RunsRevoked,
    /// P10: a waiter ignores the message that the lease which it waits for ends earlier.
    WaitsOn,
    /// P7: the session that handed over does not re-check when the claim has ended.
    SkipsSettle,
    /// P9: the session forgets that others wait.
    IgnoresOthers,
    /// P3: NotHeld is believed although an earlier release of this grant got no reply.
    BelievesNotHeld,
    /// P6, P7: a waiter without an inbox states the claim of a waiter that has an inbox.
    PollsTooRarely,
    /// P11: a leave is sent on another connection than its acquire.
    LeaveOvertakes,
    /// P11: a release is sent on the callers' connection while a re-check on the other connection has no reply.
    ReleaseOvertakes,
    /// P12: validity counts from the arrival of the reply.
    FromReceipt,
    /// P12: a pushed grant counts from its arrival.
    PushFromReceipt,
    /// P13: a release without a reply is not repeated.
    ReleaseOnce,
    /// P14: the first reply to a leave closes the attempt.
    FirstLeave,
    /// P14: the open requests are determined when the leave is answered, not when it was sent.
    BarAtAnswer,
    /// P14: a push for an unknown id is dropped.
    IgnoresUnknownPush,
    /// P14: an attempt is closed one lease after its first request.
    ClosesEarly,
    /// P15: a waiter relies on its push alone and never re-checks.
    NoRecheck,
    /// P16: the last local waiter goes and sends nothing.
    DropSilent,
    /// P19: the next token is the last one plus one, reserved or not.
    MintsBeyond,
    /// P19: the next token is the client's clock.
    MintsByClock,
    /// P19: a release reports only the grant's own token as used.
    ReleasesOwn,
    /// P19: a reservation counts as soon as the session has asked for it.
    TrustsReserve,
    /// P20: the clock is not read before the lease is passed on, as if no time could have passed in the section.
    ReadsNoClock,
    /// P20: a run goes on without a reply from the store.
    RunsUnconfirmed,
    /// P20: a run without a reply ends a fixed time after the arrival of the last reply, not after its request was sent.
    CountsFromArrival,
    /// P20: a strict waiter counts as a relaxed one.
    StrictIsRelaxed,
    /// P23: a repeated cool-down requests its whole length again.
    CoolsAnew,
    /// P21: the local waiters of a lost lease get no new attempt.
    LostForgets,
    /// P21: the queue entry belongs to the task that asked: it leaves when that task goes.
    EntryOfTask,
    /// P21: a push goes to the first local waiter, alive or not.
    PushToTheDead,
    /// P21: a run that ends while local waiters remain sends its release only.
    ReleaseOnly,
}

/// A flaw that the author of a script may introduce (P8). `step` is one indivisible change, so the flaw is put around
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Botch {
    /// The writes come before the last check: a refused request has been carried out nevertheless.
    WritesThenFails,
    /// A release needs free memory.
    ReleaseNeedsMemory,
    /// P6: the count that PUBLISH returns decides whether a waiter is there; a waiter that is passed over has been
    /// notified already.
    CountsReceivers,
}

impl Off {
    /// Switches the store's code to the state that this run needs. The switch is process-wide, so runs follow each
    /// other.
    pub(crate) fn apply(self) {
        switch(match self {
            Self::Store(mutant) => mutant,
            _ => Mutant::None,
        });
    }

    pub(crate) fn slips(self, slip: Slip) -> bool {
        self == Self::Session(slip)
    }

    pub(crate) fn botches(self, botch: Botch) -> bool {
        self == Self::Script(botch)
    }
}
