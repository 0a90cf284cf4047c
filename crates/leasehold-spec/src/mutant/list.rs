//! The flaws.

/// A seeded flaw: a rule of the protocol that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mutant {
    /// No flaw.
    None,
    /// P1: a step does not hand a free lease to the queue, so a newcomer can take it.
    P1Barging,
    /// P1: a step checks any number of waiters.
    P1Unbounded,
    /// P1: times stay in the future after the clock was set back.
    P1FutureStays,
    /// P2: a repeated acquire restarts the lease.
    P2RepeatExtends,
    /// P2: an answer has the length of the lease in place of the time left.
    P2WholeLease,
    /// P3: a repeated release gets NotHeld.
    P3ForgetsRelease,
    /// P3: renew compares only the session, not ID and token.
    P3RenewByAnyone,
    /// P3: release compares nothing (a plain DEL).
    P3ReleaseByAnyone,
    /// P3: a renewal makes a grant that does not exist.
    P3RenewRecreates,
    /// P3: a retry of an acquire is a new attempt.
    P3NewIdOnRetry,
    /// P3: a token is the last one plus one, without regard to the clock (INCR).
    P3TokensOnlyCount,
    /// P3: the session believes the statement that arrives last.
    P3OlderWins,
    /// P4: the store carries out a late request.
    P4RunsLate,
    /// P5: a release frees the lease and only notifies the next waiter.
    P5WakeOnly,
    /// P6: a detached waiter is granted the lease.
    P6GrantsDetached,
    /// P6: a returning waiter goes to the tail.
    P6LosesPlace,
    /// P7: a pushed grant lasts a whole lease.
    P7NoClaim,
    /// P7: a lapsed claim is not remembered.
    P7ForgetsLapse,
    /// P8: the client does not send a script again that the server has forgotten.
    P8ForgetsScripts,
    /// P8: the client loads only the script that the server missed, and not that of the release.
    P8LoadsOneScript,
    /// P9: answers do not report that others wait.
    P9Silent,
    /// P8: the braces of a name stay in its key, and end the hash tag early.
    P8WrongHashTag,
    /// P10: a revoked lease ends at once.
    P10NoGrace,
    /// P10: a holder ignores the message that its grant is revoked.
    P10Unheard,
    /// P10: a revocation does not notify the waiters of the time at which the lease ends.
    P10TellsNoWaiter,
    /// P10: a leave does not notify the waiters behind those that were notified.
    P10TellsOnce,
    /// P10: a waiter ignores the message that the lease ends earlier.
    P10WaitsOn,
    /// P10: a grant whose revocation came before it is not released.
    P10ForgetsUnentered,
    /// P11: a waiter joins the queue before its inbox is proved.
    P11NoProof,
    /// P11: a client uses a replica like a primary.
    P11AsksReplica,
    /// P11: a leave is sent on another connection than its acquire.
    P11LeaveOvertakes,
    /// P12: the validity counts from the arrival of the reply.
    P12FromReceipt,
    /// P12: the validity of a pushed grant counts from the arrival of the push.
    P12PushFromReceipt,
    /// P12: the client does not notice a forward jump of the server's clock.
    P12NoJump,
    /// P12: the clock of leases stops while the machine sleeps.
    P12StandsStill,
    /// P12: the client relies on the whole time that the store reports as left.
    P12NoMargin,
    /// P13: a renewal that failed once is not repeated.
    P13RenewsOnce,
    /// P13: an unanswered release is not repeated.
    P13ReleaseOnce,
    /// P13: a new run of the store gets the releases of old tokens, and not leaves.
    P13SameToken,
    /// P13: what one new run has confirmed is not repeated to the next.
    P13SecondRun,
    /// P14: the first reply to a leave closes the attempt.
    P14FirstLeave,
    /// P14: a push for an unknown ID is ignored.
    P14IgnoresGhost,
    /// P15: a waiter relies on its push alone.
    P15NoRecheck,
    /// P15: nobody re-checks after a reconnect.
    P15NoResync,
    /// P16: the lease of a dropped guard is renewed forever.
    P16RenewsDropped,
    /// P16: a dropped future sends nothing.
    P16DropSilent,
    /// P16: a leave does not hand on a grant that was already made.
    P16LeaveKeeps,
    /// P16: an owner re-enters without a check of its validity.
    P16ReentersLost,
    /// P16: every task of an owner sends a request to the store.
    P16NoTurns,
    /// P16: the first guard of an owner that is released gives the lease back.
    P16InnerReleases,
    /// P16: the gate of an owner, when it is removed, takes along the gate that has replaced it.
    P16DropsAnothersGate,
    /// P16: a session asks for a lease that it is about to give back.
    P16TriesBefore,
    /// P17: the thread announces its next check only after it has released the lock.
    P17LostWake,
    /// P17: callers on every runtime use the lane of one runtime.
    P17LaneForAll,
    /// P17: a lane whose runtime is blocked is not given up.
    P17LaneStandsStill,
    /// P17: a release waits for the reply to its own request, although the thread has received another reply.
    P17AwaitsOwnRequest,
    /// P17: a lane that nobody reads keeps the inbox.
    P17BelievesLane,
    /// P17: the inbox is detached from a connection before the other one is proved.
    P17DetachesFirst,
    /// P17: nothing is asked again after the inbox has come back from the lane.
    P17AsksNobody,
    /// P17: the store may take any time to confirm that the inbox is detached from the lane.
    P17AwaitsDetach,
    /// P18: a caller that begins to wait for a loss does not check once more under the lock.
    P18LostSignal,
    /// P19: a lease that ends by time burns nothing of its range.
    P19BurnsNothing,
    /// P19: the store ignores the used tokens that a release reports.
    P19IgnoresUsed,
    /// P19: the store believes any number of used tokens.
    P19BelievesUsed,
    /// P19: any client is given more tokens.
    P19ReservesForAll,
    /// P19: tokens are reserved however far ahead of the clock they are.
    P19RunsAhead,
    /// P9: the holder of a range is not notified that others wait.
    P9TellsNoHolder,
    /// P19: a local hand-over keeps the token.
    P19TokenStays,
    /// P19: a session hands on beyond the reserved tokens.
    P19BeyondRange,
    /// P19: a release does not report how far its range was used.
    P19ForgetsUsed,
    /// P19: no session asks for a longer range.
    P19NeverReserves,
    /// P19: a burnt range counts as the grant of a successor.
    P19BurntIsSuccessor,
    /// P20: a session hands on for as long as it has local waiters.
    P20NeverEnds,
    /// P20: a session hands on although a strict waiter waits.
    P20IgnoresStrict,
    /// P20: a session hands on however little of the lease is left.
    P20PassesLate,
    /// P20: a session ignores the message that others wait.
    P20Unwanted,
    /// P20: a guard that is dropped in a panic hands on.
    P20PassesPanic,
    /// P20: a lease that was extended is handed on.
    P20PassesLonger,
    /// P20: a session that hands on does not renew earlier for it.
    P20RenewsLate,
    /// P21: local waiters do not go on when the lease before them is lost.
    P21WaitsForGuard,
    /// P21: the entry stays in the store when the last local waiter is gone.
    P21EntryStays,
    /// P21: the store does not learn of a longer timeout.
    P21ShortLimit,
    /// P21: the timeout of a local waiter is ignored.
    P21WaitsOn,
    /// P21: a grant that its waiter did not take stays with it.
    P21GrantStays,
    /// P22: only writes raise the mark.
    P22ReadsPass,
    /// P22: a reader is let in below the mark of a writer.
    P22OldReader,
    /// P23: a repeated cool-down restarts the time.
    P23RepeatExtends,
    /// P23: a leave of the same attempt ends its cool-down.
    P23LeaveEnds,
    /// P23: a late renewal turns a cool-down into a lease again.
    P23RenewRevives,
    /// P23: a late acquire of the same attempt is granted the lease that cools down.
    P23GrantsAgain,
    /// P23: a lease that has ended cools down all the same.
    P23CoolsTheEnded,
    /// P23: the waiters are not notified of the time at which a cool-down ends.
    P23TellsNoWaiter,
    /// P23: a session hands a lease on although its minimum hold is not over.
    P23PassesOn,
    /// P23: a grant that no caller took cools down.
    P23CoolsTheUntaken,
    /// P23: a session releases at once, whatever the minimum hold.
    P23ReleasesAtOnce,
    /// P26: nobody notices that a holder has died.
    P26NeverDead,
    /// P26: nobody watches the new holder after a hand-over.
    P26NextIsBlind,
    /// P26: a life whose socket is missing counts as dead.
    P26MissingIsDead,
    /// P26: the sockets of dead sessions are swept although the sessions hold.
    P26SweepsHolders,
    /// P26: a process that ends removes its socket, although it has not given everything back.
    P26LeavesNameless,
    /// P26: a process whose socket is missing makes another life, which its command does not have.
    P26IsReborn,
    /// P26: a process that has lost the path to the store closes its life.
    P26DiesWithPath,
    /// P26: a step that has checked 64 holders of a pool does not say that there are more.
    P26ForgetsTheRest,
    /// P27: clients do not wait for a turn, but use the waiting of SQLite.
    P27NoTurn,
    /// P27: a program changes the layout of a database that programs of an earlier version use.
    P27ChangesUnderOthers,
    /// P27: every request of a client waits behind all of its earlier requests.
    P27AllWait,
    /// P27: new locks spend the reserve of a full disk.
    P27SpendsReserve,
    /// P27: a process that has a removed directory open goes on with it.
    P27StaysBehind,
    /// P27: leases from before a boot of the host are still held after it.
    P27KeepsOldBoot,
    /// P27: another boot ID counts as another boot, although processes of it live.
    P27BelievesBootIds,
    /// P27: leases are counted on the wall clock.
    P27LeasesOnWallTime,
    /// P27: a client gets a message that there is news, and does not read it.
    P27Deaf,
    /// P28: the default store is below $HOME.
    P28AsksTheEnvironment,
    /// P29: a guard that asked for a whole lease comes with a claim.
    P29StartsOnClaim,
    /// P29: the command is ended when the lease has ended, and not before.
    P29KillsLate,
    /// P29: only the supervisor watches over the command.
    P29NoMinder,
    /// P29: the lock is given back when the command has ended, although others of its group live on.
    P29ReleasesEarly,
    /// P29: the lease is not checked again between the start of the minder and the start of the command.
    P29StartsLate,
    /// P29: a new minder gets no messages.
    P29TellsNoNewMinder,
    /// P29: a process that has ended and was not waited for keeps the lock.
    P29WaitsForZombies,
    /// P29: a minder that was killed is not replaced.
    P29OneMinder,
    /// P29: a revoked command has the time of its lease in place of the time of the grace.
    P29IgnoresGrace,
    /// P30: a store that cannot be reached is reported as busy.
    P30BusyUnheard,
    /// P30: a deadline that passes while a request is repeated ends the wait at once.
    P30EndsUnheard,
    /// P30: the command inherits the URL of the store.
    P30TellsSecrets,
    /// P31: clients that disagree about the limit of a name are all admitted.
    P31OtherLimitEnters,
    /// P32: a lease that ends by time leaves the highest token of a pool as it is.
    P32ExpiryIsSilent,
    /// P33: a step looks at a waiter of a pool only if a unit is free.
    P33DeadHeadBlocks,
    /// P33: a step serves one waiter at most.
    P33ServesOne,
    /// P33: a waiter that comes back to the head of the queue waits, although it fits.
    P33ComesBackInVain,
    /// P33: a step on a directory does not read the grants of a pool whose leases have ended.
    P33ReadsNoEnded,
    /// P34: the last message of a step that stopped does not say so.
    P34MessageIsSilent,
    /// P34: a waiter whose reply says MORE waits for the end of the first lease.
    P34WaiterForgetsMore,
    /// P37: an upgrade does not wait for the other readers.
    P37WaitsForNobody,
    /// P37: a session believes that a grant is lost while its upgrade waits.
    P37BelievesLost,
    /// P37: an upgrade that waited lasts for a claim, whatever was left of its grant.
    P37ClaimShortens,
    /// P38: a caller that stops waiting for an upgrade sends a leave.
    P38Leaves,
    /// P38: BUSY ends an upgrade although an acquire of it may still be carried out.
    P38BusyEnds,
    /// P39: units that are given back are not handed to the waiters in the same step.
    P39AdmitsLater,
    /// P40: a waiter that needs more units than there are waits on.
    P40TooBigWaits,
    /// P40: a resize does not compare the number that it saw.
    P40ResizesBlindly,
    /// P41: a wait releases its guard before it stands in the queue.
    P41ReleasesFirst,
    /// P42: a notification that ends unspent is not passed on.
    P42ForgetsUnit,
    /// P42: notifications that nobody has received are kept for later waiters.
    P42KeepsStock,
    /// P42: a notification is spent before its receiver has the lock.
    P42SpendsFirst,
    /// P42: nobody watches those who are notified.
    P42HeirIsBlind,
    /// P43: a waiter that was dropped from the queue comes back with its old ticket.
    P43KeepsTicket,
    /// P43: a waiter that entered the queue again sleeps on.
    P43SleepsOn,
    /// P43: a waiter sleeps on when another run of the store answers.
    P43TrustsNewRun,
    /// P44: a count-down that is repeated counts again.
    P44CountsTwice,
    /// P44: a late count-down counts for a later latch of the same name.
    P44CountsForAny,
    /// P44: a session does not repeat its count-downs at a new run of the store.
    P44CountsOnce,
    /// P44: a step on rows does not read whether the latch has counted the count-down before.
    P44ReadsNoCount,
    /// P44: the deletion of a latch leaves no message for waiters in other processes.
    P44DeletesSilently,
    /// P45: a multi-lock takes its members in the order in which they were named.
    P45TakesAsNamed,
    /// P46: a request for several mutexes takes those that are free.
    P46TakesSome,
    /// P46: a request for several mutexes passes over waiters.
    P46PassesQueue,
    /// P46: a client that got no reply gives the first ID back, and no other.
    P46GivesOneBack,
    /// P48: a late change of the value is one of the next leader's.
    P48PutsForAny,
    /// P51: without the named waiter, the first waiter gets the lock.
    P51HandsToAny,
    /// P51: a leader hands over to a candidate that is dead.
    P51NamesTheDead,
    /// P51: a leader whose request had no reply leads on.
    P51LeadsOn,
    /// P52: a round is let through, although a party of it is gone.
    P52TripsWithTheDead,
    /// P52: a round is let through with one party too few.
    P52TripsEarly,
    /// P52: a party that leaves breaks nothing.
    P52LeavesTheOthers,
    /// P52: a party whose round was broken begins to wait in the next one.
    P52WaitsAnew,
    /// P52: if the store has lost the last parties of a round, the first ones wait for ever.
    P52KeepsEarlier,
    /// P52: the first party of a round is a leader, too.
    P52LeadsTwice,
    /// P52: a round that is let through is granted on claims.
    P52GrantsClaims,
    /// P52: a session whose time is over does not ask how its round ended.
    P52LeavesBlindly,
    /// P52: a session that had no reply for a lease arrives again.
    P52ArrivesAgain,
    /// P53: a request that is sent alone does not wait until the batch before it is sent.
    P53LetsPass,
    /// P53: a request is sent although its caller has given it up.
    P53SendsGivenUp,
    /// P48: an observer asks for the leader before it waits for a change.
    P48LooksFirst,
    /// P45: a multi-lock holds members for as long as it waits for one of another client.
    P45HoldsOn,
    /// Quorum: a node votes for a token that is not above those for which it has voted.
    QVotesBelow,
    /// Quorum: a node that may have forgotten something votes at once.
    QNoRest,
    /// Quorum: a node that did not know a grant counts at once, as if it had known it.
    QFillCounts,
    /// Quorum: a node is filled with a holder that it does not know, although it has voted for a larger token since.
    QFillsBehind,
    /// Quorum: if the clock of a node is set back, a call lasts longer by as much.
    QCallsIntoTheFuture,
    /// Quorum: a waiter that let its call lapse keeps its place if the node votes for another client next.
    QCallsAgain,
    /// P47: only the first member of a multi-lock counts for its loss, and for the time that is left.
    P47FirstCounts,
    /// P50: an inspection shows a lease that has ended as held.
    P50ShowsEnded,
    /// P50: of many holders, an inspection shows others than those with the smallest tokens.
    P50ShowsAny,
    /// P50: an inspection does not show an upgrade that waits.
    P50HidesUpgrade,
    /// Quorum: a later round of an attempt does not propose a larger token than an earlier one.
    QProposesAgain,
    /// Quorum: `begin` asks no node for holders.
    QBeginsUnasked,
    /// Quorum: a node begins that was emptied after it was asked.
    QBeginsBlindly,
    /// Quorum: a request that gives back a lost round takes the vote of a later round, too.
    QTakesLaterVotes,
    /// Quorum: an answer that comes after its round was decided does not bring the end forward.
    QKeepsFirstEnd,
    /// Quorum: a node calls nobody at a pause, although the first waiter asks for strict order.
    QPausesStrict,
    /// Quorum: a node notifies no waiter of the first pause of a run.
    QPausesSilently,
    /// Quorum: a client pauses for ever: neither a number nor a time ends its run.
    QRunsOn,
    /// Quorum: a client that has paused and does not come back calls nobody.
    QPausesForEver,
    /// Quorum: a long lease that was granted in a run keeps a bare majority.
    QKeepsBareMajority,
    /// Quorum: a late call for an attempt gives its votes back before the release that is in flight does.
    QGivesBackFirst,
    /// Quorum: if the reply to a request for a vote was lost, and its attempt is over, the vote stays.
    QForgetsLostVote,
    /// Quorum: a release that was given up before it was sent counts as sent, so a late vote stays.
    QBelievesUnsent,
    /// Quorum: P23: a request that gives the votes of an attempt back ignores its cool-down.
    P23ForgetsCoolDown,
}
