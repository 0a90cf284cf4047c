//! Seeded flaws: each switches one rule off, so that a test can show that it would notice.
//!
//! Without `--cfg leasehold_lab`, [`is_on`] is constantly false and the flaws are not compiled in. With it, the
//! environment variable `LEASEHOLD_MUTANT` or the function `switch` names the flaw.

/// A rule of the protocol, broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mutant {
    /// No flaw.
    None,
    /// P1: a step does not hand a free lease to the queue, so that a newcomer may take it.
    P1Barging,
    /// P1: a step looks at any number of waiters.
    P1Unbounded,
    /// P1: times in the future of a clock that was set back stay there.
    P1FutureStays,
    /// P2: a repeated acquire starts the lease anew.
    P2RepeatExtends,
    /// P2: an answer says how long the lease is, not what is left.
    P2WholeLease,
    /// P3: a repeated release hears NotHeld.
    P3ForgetsRelease,
    /// P3: renew compares the session only, not id and token.
    P3RenewByAnyone,
    /// P3: release compares nothing (a plain DEL).
    P3ReleaseByAnyone,
    /// P3: a renewal makes a grant that is not there.
    P3RenewRecreates,
    /// P3: a retry of an acquire is a new attempt.
    P3NewIdOnRetry,
    /// P3: a token is the last one and one more, whatever the clock says (INCR).
    P3TokensOnlyCount,
    /// P3: whatever is heard last is believed.
    P3OlderWins,
    /// P4: a late request is carried out.
    P4RunsLate,
    /// P5: a release frees the lease and only tells the next waiter.
    P5WakeOnly,
    /// P6: a detached waiter is granted.
    P6GrantsDetached,
    /// P6: a returning waiter goes to the tail.
    P6LosesPlace,
    /// P7: a pushed grant lasts a whole lease.
    P7NoClaim,
    /// P7: a lapsed claim is not remembered.
    P7ForgetsLapse,
    /// P8: a script that the server has forgotten is not sent again.
    P8ForgetsScripts,
    /// P9: answers do not say that others wait.
    P9Silent,
    /// P8: a name's braces stay in its key, and end the hash tag early.
    P8WrongHashTag,
    /// P10: a revoked lease ends at once.
    P10NoGrace,
    /// P10: a holder does not heed that it was revoked.
    P10Unheard,
    /// P10: a revocation does not notify the waiters when the lease ends.
    P10TellsNoWaiter,
    /// P10: a leave does not notify the waiters behind those that were.
    P10TellsOnce,
    /// P10: a waiter does not heed that the lease it waits for ends earlier.
    P10WaitsOn,
    /// P11: a waiter joins the queue before its inbox is proved.
    P11NoProof,
    /// P11: a replica is as good as a primary.
    P11AsksReplica,
    /// P11: a leave goes out on another connection than its acquire.
    P11LeaveOvertakes,
    /// P12: validity counts from the answer.
    P12FromReceipt,
    /// P12: a pushed grant counts from its arrival.
    P12PushFromReceipt,
    /// P12: a forward jump of the server's clock goes unnoticed.
    P12NoJump,
    /// P12: the clock of leases stands still while the machine sleeps.
    P12StandsStill,
    /// P12: all that the store says is left is relied on.
    P12NoMargin,
    /// P13: a renewal that failed once is the last.
    P13RenewsOnce,
    /// P13: an unanswered release is not repeated.
    P13ReleaseOnce,
    /// P14: the first answer to a leave closes the attempt.
    P14FirstLeave,
    /// P14: a push for an unknown id is dropped.
    P14IgnoresGhost,
    /// P15: a waiter waits for its push alone.
    P15NoLook,
    /// P15: nobody looks after a reconnect.
    P15NoResync,
    /// P16: a dropped guard's lease is renewed on and on.
    P16RenewsDropped,
    /// P16: a dropped future sends nothing.
    P16DropSilent,
    /// P16: leaving does not hand on a grant that was already made.
    P16LeaveKeeps,
    /// P16: an owner re-enters without a look at its validity.
    P16ReentersLost,
    /// P16: every task of an owner goes to the store.
    P16NoTurns,
    /// P16: the first guard of an owner to be released gives the lease back.
    P16InnerReleases,
    /// P16: an owner's gate that goes takes along the one that stands in its place.
    P16DropsAnothersGate,
    /// P16: a session asks for what it is about to give back.
    P16TriesBefore,
    /// P17: the thread says when it will look only after it has let the lock go.
    P17LostWake,
    /// P17: callers on every runtime use the lane of one.
    P17LaneForAll,
    /// P17: a lane whose runtime stands still is not given up.
    P17LaneStandsStill,
    /// P17: a release waits for the answer to its own request, although the thread has heard another one.
    P17AwaitsOwnRequest,
    /// P18: who begins to wait for a loss does not look once more behind the lock.
    P18LostSignal,
    /// P19: what ends by itself burns nothing of its range.
    P19BurnsNothing,
    /// P19: a release does not say how far its range was used.
    P19IgnoresUsed,
    /// P19: a holder is believed whatever it says that it used.
    P19BelievesUsed,
    /// P19: whoever asks is given more tokens.
    P19ReservesForAll,
    /// P19: tokens are reserved however far ahead of the clock they are.
    P19RunsAhead,
    /// P9: a holder of a range is not told that somebody waits.
    P9TellsNoHolder,
    /// P19: a pass keeps the token.
    P19TokenStays,
    /// P19: a session hands on beyond what is reserved.
    P19BeyondRange,
    /// P19: a release does not say how far its range was used.
    P19ForgetsUsed,
    /// P19: nobody asks for a longer range.
    P19NeverReserves,
    /// P19: a burnt range is a successor.
    P19BurntIsSuccessor,
    /// P20: a session hands on for as long as somebody waits in it.
    P20NeverEnds,
    /// P20: a session hands on past a strict waiter.
    P20IgnoresStrict,
    /// P20: a session hands on whatever is left of the lease.
    P20PassesLate,
    /// P20: nobody heeds the word that others wait now.
    P20Unwanted,
    /// P20: a guard that goes in a panic hands on.
    P20PassesPanic,
    /// P20: a lease that was lengthened is handed on.
    P20PassesLonger,
    /// P20: a session that hands on renews no earlier for it.
    P20RenewsLate,
    /// P21: nobody goes on when a lease is lost with waiters behind it.
    P21WaitsForGuard,
    /// P21: the entry stays when the last waiter has gone.
    P21EntryStays,
    /// P21: the store is not told that somebody waits for longer.
    P21ShortLimit,
    /// P21: a waiter's own patience is forgotten.
    P21WaitsOn,
    /// P21: a grant that its waiter did not take stays with it.
    P21GrantStays,
    /// P22: only writes raise the mark.
    P22ReadsPass,
    /// P22: a reader is let in below a writer's mark.
    P22OldReader,
    /// P23: a repeated cool-down begins anew.
    P23RepeatExtends,
    /// P23: a leave of the same attempt ends its cool-down.
    P23LeaveEnds,
    /// P23: a late renewal makes a cool-down a lease again.
    P23RenewRevives,
    /// P23: a late acquire of the same attempt is granted what cools down.
    P23GrantsAgain,
    /// P23: a lease that has ended cools down all the same.
    P23CoolsTheEnded,
    /// P23: the waiters are not notified when a cool-down ends.
    P23TellsNoWaiter,
    /// P23: a session hands a lease on although its minimum hold is not over.
    P23PassesOn,
    /// P23: a grant that no caller took cools down.
    P23CoolsTheUntaken,
    /// P23: a session releases at once, whatever the minimum hold.
    P23ReleasesAtOnce,
    /// P26: nobody notices that a holder has died.
    P26NeverDead,
    /// P26: after a hand-over nobody watches the new holder.
    P26NextIsBlind,
    /// P26: a life whose name is missing is dead.
    P26MissingIsDead,
    /// P26: the names of the dead are swept although they hold.
    P26SweepsHolders,
    /// P26: who ends takes its name along, given back or not.
    P26LeavesNameless,
    /// P26: who finds its life's name gone makes another life, which its command has not.
    P26IsReborn,
    /// P26: who has lost the path to the store closes its life.
    P26DiesWithPath,
    /// P27: nobody waits for a turn: SQLite's own way of waiting does.
    P27NoTurn,
    /// P27: whatever a client asks for waits behind all that it has asked for before.
    P27AllWait,
    /// P27: who has a removed directory open goes on with it.
    P27StaysBehind,
    /// P27: what was held before the host was started anew is held still.
    P27KeepsOldBoot,
    /// P27: another boot id is another boot, whoever lives.
    P27BelievesBootIds,
    /// P27: leases are counted on the wall clock.
    P27LeasesOnWallTime,
    /// P27: a bell rings, and nobody reads what is new.
    P27Deaf,
    /// P28: the default store is below $HOME.
    P28AsksTheEnvironment,
    /// P29: a guard that asked for a whole lease comes with a claim.
    P29StartsOnClaim,
    /// P29: the command is ended when the lease has ended, and not before.
    P29KillsLate,
    /// P29: nobody watches over the command but the supervisor.
    P29NoMinder,
    /// P29: the lock goes back when the command has ended, whoever of its group lives on.
    P29ReleasesEarly,
    /// P29: the lease is not looked at again between minder and command.
    P29StartsLate,
    /// P29: a new minder is told nothing.
    P29TellsNoNewMinder,
    /// P29: who has ended and was not waited for keeps the lock.
    P29WaitsForZombies,
    /// P29: a minder that was killed is not replaced.
    P29OneMinder,
    /// P29: a revoked command has the time of its lease, and not that of the grace.
    P29IgnoresGrace,
    /// P30: a store that is not there is busy.
    P30BusyUnheard,
    /// P30: a deadline that passes while a request is repeated ends the wait at once.
    P30EndsUnheard,
    /// P30: the command inherits the store's URL.
    P30TellsSecrets,
    /// Quorum: a node votes for a token that is not above those for which it has voted.
    QVotesBelow,
    /// Quorum: a node that may have forgotten something votes at once.
    QNoRest,
    /// Quorum: a node that did not know of a grant keeps it, as if it had.
    QFillCounts,
    /// Quorum: a node votes for a holder that it does not know although it has voted for a larger token since.
    QFillsBehind,
    /// Quorum: a call lasts longer by as much as the node's clock was set back.
    QCallsIntoTheFuture,
    /// Quorum: a waiter that let its call lapse keeps its place if the node votes for another one next.
    QCallsAgain,
    /// Quorum: a later round of an attempt proposes no more than an earlier one.
    QProposesAgain,
    /// Quorum: `begin` asks no node for holders.
    QBeginsUnasked,
    /// Quorum: a node begins that was emptied after it was asked.
    QBeginsBlindly,
    /// Quorum: what gives back a lost round takes the vote of a later one, too.
    QTakesLaterVotes,
    /// Quorum: an answer that comes after its round was decided does not bring the end forward.
    QKeepsFirstEnd,
}

pub use switch::*;

#[cfg(not(leasehold_lab))]
mod switch {
    use super::Mutant;

    /// Whether this flaw is on: never, in this build.
    #[inline(always)]
    #[must_use]
    pub const fn is_on(_: Mutant) -> bool {
        false
    }
}

#[cfg(leasehold_lab)]
mod switch {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Mutant;

    static ACTIVE: AtomicU8 = AtomicU8::new(Mutant::None as u8);

    /// The name that the environment gives: of a variant of [`Mutant`], or of a patch of a script.
    #[must_use]
    pub fn named() -> Option<&'static str> {
        static NAME: OnceLock<Option<String>> = OnceLock::new();
        NAME.get_or_init(|| std::env::var("LEASEHOLD_MUTANT").ok()).as_deref()
    }

    /// Whether this flaw is on in this process.
    #[must_use]
    pub fn is_on(mutant: Mutant) -> bool {
        let active = ACTIVE.load(Ordering::Relaxed);
        if active == Mutant::None as u8 {
            return named().is_some_and(|name| name == format!("{mutant:?}"));
        }
        active == mutant as u8
    }

    /// Switches one flaw on for the whole process, in place of the one before.
    pub fn switch(mutant: Mutant) {
        ACTIVE.store(mutant as u8, Ordering::Relaxed);
    }
}
