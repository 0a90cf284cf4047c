//! Which rule is switched off.

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

/// What a session may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slip {
    /// P3: a retry is a new attempt with a new id.
    RetryIsNew,
    /// P3: of two statements about an id the one that comes last is believed.
    LastWordWins,
    /// P9: what was said earlier and heard later decides whether others wait.
    OlderLevelWins,
    /// P10, P20: a run goes on although its session was told of the revocation.
    RunsRevoked,
    /// P10: a waiter does not heed that the lease which it waits for ends earlier.
    WaitsOn,
    /// P7: who handed over does not look when the claim has ended.
    NobodyLooks,
    /// P9: a level that was heard is forgotten.
    IgnoresOthers,
    /// P3: NotHeld is believed although an earlier release of this grant was not answered.
    BelievesNotHeld,
    /// P6, P7: a waiter without an inbox states the claim of one that has an inbox.
    PollsTooRarely,
    /// P11: a leave goes out on another connection than its acquire.
    LeaveOvertakes,
    /// P11: a release goes out on the callers' connection while a look is unanswered on the other.
    ReleaseOvertakes,
    /// P12: validity counts from the answer.
    FromReceipt,
    /// P12: a pushed grant counts from its arrival.
    PushFromReceipt,
    /// P13: an unanswered release is not repeated.
    ReleaseOnce,
    /// P14: the first answer to a leave closes the attempt.
    FirstLeave,
    /// P14: what is open is judged when the leave is answered, not when it was sent.
    BarAtAnswer,
    /// P14: a push for an unknown id is dropped.
    IgnoresGhost,
    /// P14: an attempt is closed one lease after its first request.
    ClosesEarly,
    /// P15: a waiter waits for its push alone.
    NoLook,
    /// P16: the last local waiter goes without a word.
    DropSilent,
    /// P19: the next token is one more, reserved or not.
    MintsBeyond,
    /// P19: the next token is the client's clock.
    MintsByClock,
    /// P19: a release tells of the grant's own token only.
    ReleasesOwn,
    /// P19: a reservation counts as soon as it is asked for.
    TrustsReserve,
    /// P20: the clock is not read before the lease is passed on, as if no time could have passed in the section.
    ReadsNoClock,
    /// P20: a run goes on without an answer from the store.
    RunsUnheard,
    /// P20: a run without an answer ends a while after the last one was heard.
    HeardNow,
    /// P20: who waits in strict order is one waiter more.
    StrictIsRelaxed,
    /// P23: a repeated cool-down is asked for with its whole length.
    CoolsAnew,
    /// P21: the local waiters of a lease that was lost get no new attempt.
    LostForgets,
    /// P21: the entry belongs to the task that asked: it leaves when that task goes.
    EntryOfTask,
    /// P21: a push goes to the first local waiter, alive or not.
    PushToTheDead,
    /// P21: a run that ends with local waiters left sends its release only.
    ReleaseOnly,
}

/// What the author of a script may get wrong (P8). `step` is one indivisible change, so this is said around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Botch {
    /// The writes come before the last check: a refused request has been carried out.
    WritesThenFails,
    /// A release needs memory.
    ReleaseNeedsMemory,
    /// P6: the count that PUBLISH returns decides who is there; a waiter that is passed over has been told already.
    CountsReceivers,
}

impl Off {
    /// Puts the store's code into the state that this run needs. Process-wide: runs follow each other.
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
