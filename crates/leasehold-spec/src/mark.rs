//! Labels of the interesting paths, in `step` and in the session: rare branches, each there because of a schedule that
//! breaks something without it. A test that never took one has shown nothing about it, whatever it passed.
//!
//! Without `--cfg leasehold_lab`, [`hit`] does nothing. With it, each hit is counted twice: for the whole process,
//! whichever threads a client has, and for the thread that came by, so that simulations side by side in one process, each
//! on a thread of its own, do not count one another's.

macro_rules! marks {
    ($($(#[$about:meta])* $mark:ident,)*) => {
        /// A path that was taken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Mark {
            $($(#[$about])* $mark,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$mark),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$mark => stringify!($mark),)*
                }
            }
        }
    };
}

marks! {
    /// A record that nobody needs any more was forgotten when it was touched.
    RecordForgotten,
    /// P1: a lease had run out, and the next step saw it.
    LeaseExpired,
    /// P1: a lease began in the future of a clock that was set back, and begins now.
    LeaseDatedAnew,
    /// P1: a free lease was handed to a waiter.
    HandedOver,
    /// P9: the holder of a range was told that somebody waits.
    HolderTold,
    /// P19: a range was given back, and some of its tokens were used beside the first.
    RangeUsed,
    /// P19: a range ended with its lease, and nobody said how much of it was used.
    RangeBurnt,
    /// P19: a range was made longer.
    RangeExtended,
    /// P19: a range is shorter than was asked for: it would be too far ahead of the clock.
    RangeCut,
    /// P19: more tokens were asked for by who does not hold.
    ReserveNotHeld,
    /// P1: too many waiters were gone to look at in one step.
    SettleMore,
    /// P1: a lease is free and others wait, because a step had to stop: a newcomer queues.
    NewcomerBehindMore,
    /// P3: an acquire that holds already was said again.
    AcquireRepeatedGranted,
    /// P3: an acquire that queues already was said again.
    AcquireRepeatedQueued,
    /// P3: an acquire whose id was given back came late.
    AcquireGone,
    /// P4: an acquire came too late.
    AcquireLate,
    /// P4: a renewal came too late.
    RenewLate,
    /// The queue was full.
    QueueFull,
    /// P6: a waiter that was passed over came back to its place.
    TicketBack,
    /// P6: a waiter that was passed over came back, and its place is beyond a bounded walk.
    TicketTooFar,
    /// P6: a waiter that was passed over, and then put at the tail by a copy of its first request, came back.
    TicketMended,
    /// P6: a waiter was passed over: its inbox is not attached.
    PassedDetached,
    /// P6: a waiter was passed over: it polls, and has not for long.
    PassedSilent,
    /// A waiter was passed over: its time was up.
    PassedOverdue,
    /// P7: a waiter was passed over: a claim of its session had lapsed since it was last seen.
    PassedLapsed,
    /// P7: a claim ran out, and that was noted.
    ClaimLapsed,
    /// P7: more sessions let claims run out than are noted.
    LapsesFull,
    /// P7: a fixed lease was claimed.
    FixedClaimed,
    /// P7: a fixed lease was claimed again: the first answer was lost.
    FixedClaimedAgain,
    /// P3: a renewal of what is not held.
    RenewNotHeld,
    /// P10: a renewal of what was revoked.
    RenewRevoked,
    /// P10: a grant was marked.
    GrantRevoked,
    /// P10: the grant to be revoked was gone.
    RevokeMissed,
    /// P10: a waiter was notified when the lease that it waits for ends.
    WaiterNotified,
    /// P3: a release was repeated.
    ReleaseRepeated,
    /// A release of what is not held.
    ReleaseNotHeld,
    /// P23: a lease was given back, and cools down.
    CoolDownBegun,
    /// P23: a cool-down was asked for again.
    CoolDownRepeated,
    /// P23: a cool-down was over, and the next step saw it.
    CooledDown,
    /// P16: who left stood in the queue.
    LeftQueue,
    /// P16: who left had just been granted.
    LeftGranted,
    /// P16: who left was not there.
    LeftAbsent,

    /// P3: an answer to an acquire was older than what is believed.
    OlderAnswer,
    /// P14: an attempt that is closed was granted or queued all the same, by an answer.
    GhostAnswer,
    /// P14: an attempt that is closed was granted all the same, by a push.
    GhostPush,
    /// A request was answered whose attempt had been given up meanwhile.
    AnswerToReturning,
    /// P15: a look found that it had been granted: its push was lost, or is late.
    LookGranted,
    /// P15: a look had to enter the queue again.
    LookReentered,
    /// P15: the other waiters of that name were called to look.
    Rallied,
    /// P4: the session was told that it is late.
    ToldLate,
    /// P3: the session was told that its id is used up.
    ToldGone,
    /// P8: the store's memory is full, and a settle took the place of a look.
    MemoryFullSettle,
    /// P8: the store's memory is full, and an acquire was refused.
    MemoryFullRefused,
    /// P12: the server's clock went ahead, and that was taken off.
    JumpTakenOff,
    /// P12: a push was entered without a round trip.
    PushEntered,
    /// P12: a push could not be placed in time, or was too old, and was claimed first.
    PushClaimed,
    /// P3: a push that says nothing new.
    OlderPush,
    /// P10: a holder was told that it is revoked.
    PushRevoked,
    /// P10: a waiter heard when the lease that it waits for ends.
    PushEnding,
    /// A lease was granted anew to an attempt whose guard is out.
    Superseded,
    /// A lease lapsed and its attempt stands in the queue again, while its guard is out.
    QueuedWhileHeld,
    /// The store said to a renewal that the lease is lost.
    RenewalLost,
    /// The store said to a claim that it is lost: the waiter goes back to its place.
    ClaimLost,
    /// A renewal found no answer, and is asked again.
    RenewalUnanswered,
    /// The answer to a renewal of another grant than the present one.
    RenewalOfAnother,
    /// The validity ended, by our own clock.
    ValidityOver,
    /// P7: a claim ended before it was answered.
    ClaimRanOut,
    /// A caller's patience ended.
    PatienceOver,
    /// Nobody waits for an attempt any more.
    Abandoned,
    /// P13: a release or leave on a link that broke is repeated on another.
    ReturnRepeated,
    /// P13: a release or leave was given up: the store has ended the lease by itself.
    ReturnExpired,
    /// P13: what was released is said again to another run of the store.
    ReleaseSaidAgain,
    /// P14: the answer to a leave was not the last word.
    LeaveAgain,
    /// P14: what was to be released is left, as an acquire of it is unanswered.
    LeaveForRelease,
    /// P7, P15: a waiter looks because a lease has ended.
    WatchLooked,
    /// P1, P7: a settle is sent because a lease has ended, or there is more to settle.
    WatchSettled,
    /// P11: a request was left unanswered for too long.
    LinkDoubted,
    /// P17: the callers' lane moved to another runtime, because its own did not use it.
    LaneMoved,
    /// P17: the runtime of the callers' lane stood still, and the lane was given up.
    LaneStalled,
    /// P11: a doubted link did not answer a ping, and was replaced.
    LinkReplaced,
    /// The link says that this is no store to ask, or it broke.
    LinkGivenUp,
    /// P13: the session met another run of the store.
    MetAnotherRun,
    /// What another run of the store says is none.
    AnswerOfAnotherRun,
    /// P18: a session was closed while something was held or waited for.
    ClosedInUse,
    /// P16: an owner entered again what it holds.
    ReEntered,
    /// P16: an owner was refused: its lease was lost, and a guard of it is out.
    ReEntryRefused,
    /// P16: a task of an owner waited for another of it, and found the hold.
    TurnFoundHold,
    /// P20: a lease was handed on inside its session.
    Passed,
    /// P20: a run ended with others of its session in line: as many passes were made since somebody waits elsewhere.
    RunOutOfPasses,
    /// P20: the same, as somebody waits elsewhere for long enough.
    RunOutOfTime,
    /// P20: the same, as somebody waits elsewhere who asked for strict order.
    RunStrict,
    /// P20: the same, without an answer from the store for too long.
    RunSilent,
    /// P20: the same, with too little of the lease left.
    RunLate,
    /// P19: the same, with no token left that is reserved.
    RunOutOfRange,
    /// P20: the same, as its lease was lengthened.
    RunLengthened,
    /// P20: the same by a panic, a loss or a revocation.
    RunCutShort,
    /// P9: a holder was told by a message that others wait.
    WantedHeard,
    /// P9: the word that others wait overtook that of the grant.
    WantedEarly,
    /// P9: an older word did not lower what is known of the others.
    OlderLevel,
    /// P19: a reservation of tokens found no answer, or none that helps.
    ReserveUnheard,
    /// P21: a lease was lost with others in line, who went on at once.
    LineWentOn,
    /// P21: the last waiter left a line whose attempt did not hold.
    LineDeserted,
    /// P21: somebody waits for longer than the store was told.
    LineOutlasted,
    /// P21: who was next in line had gone in that very moment.
    NextHadGone,
    /// P21: a lease was handed on to one who had gone in that very moment, and went on from there.
    PassUntaken,
    /// Quorum: a round was begun anew at once, above the tokens that nodes had seen.
    RoundAgain,
    /// The session's thread took over work that a caller's runtime had not finished.
    TakenOver,
    /// Quorum: a majority answered, and nobody has one.
    RoundSplit,
    /// Quorum: a round was lost to somebody who holds.
    RoundRefused,
    /// Quorum: a round was decided before all nodes had answered.
    RoundEarly,
    /// Quorum: a round was won whose attempt had been given up meanwhile.
    RoundWonLate,
    /// Quorum: too few nodes have a vote.
    RoundTooFew,
    /// Quorum: the vote of a round that was lost came late, and was given back.
    StoodBackLate,
    /// Quorum: an answer that came after its round was decided says that a majority is free earlier.
    FreeEarlier,
    /// Quorum: an attempt stood back at a node, and had gone meanwhile.
    StoodBackGone,
    /// Quorum: a node voted for an attempt behind its release, and the vote goes back.
    VotedGone,
    /// Quorum: a majority called, and the attempt asked.
    TurnCalled,
    /// Quorum: an alarm rang, and the attempt asked.
    TurnByAlarm,
    /// Quorum: a node called an attempt that is over.
    CalledGone,
    /// Quorum: a majority called while a round was under way.
    CalledInRound,
    /// Quorum: a node that did not know of a grant was filled with it.
    NodeFilled,
    /// Quorum: what a node was filled with goes back, since its lease had gone meanwhile.
    FillReturned,
    /// Quorum: no majority keeps a lease any more.
    LostByMajority,
    /// Quorum: a renewal came too late at so many nodes that there is no majority.
    KeptLate,
    /// Quorum: too few nodes answered a renewal.
    KeptTooFew,
    /// Quorum: a node has no vote because it rests.
    NodeRests,
    /// Quorum: a node had lost its marker, or has another, and is greeted anew.
    NodeUnmarked,
    /// Quorum: a node that was away is to be told of what was given back.
    Owed,
    /// Quorum: a node that is back was told of it.
    OwedPaid,
    /// Quorum: a node that was doubted did not answer a ping, and is connected anew.
    DoubtedGone,
    /// Quorum: the runtime of a link ended, and the link was closed.
    RuntimeEnded,
    /// Quorum: a node's clock was found to have been set forward.
    NodeJumped,
}

impl Mark {
    /// Whether this is a path of a quorum: no other store takes it.
    #[must_use]
    pub const fn is_of_quorum(self) -> bool {
        self as u8 >= Self::RoundAgain as u8
    }
}

pub use counts::*;

#[cfg(not(leasehold_lab))]
mod counts {
    use super::Mark;

    /// Notes that this path was taken: not in this build.
    #[inline(always)]
    pub const fn hit(_: Mark) {}
}

#[cfg(leasehold_lab)]
mod counts {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Mark;

    const MARKS: usize = Mark::ALL.len();

    static EVERYWHERE: [AtomicU64; MARKS] = [const { AtomicU64::new(0) }; MARKS];

    thread_local! {
        static HERE: [Cell<u64>; MARKS] = const { [const { Cell::new(0) }; MARKS] };
    }

    /// Notes that this path was taken.
    pub fn hit(mark: Mark) {
        EVERYWHERE[mark as usize].fetch_add(1, Ordering::Relaxed);
        // A thread that ends, and drops what it had on the way, counts nothing any more.
        let _ = HERE.try_with(|here| here[mark as usize].set(here[mark as usize].get() + 1));
    }

    /// How often each path was taken in this process.
    #[must_use]
    pub fn everywhere() -> Vec<(Mark, u64)> {
        Mark::ALL.iter().map(|mark| (*mark, EVERYWHERE[*mark as usize].load(Ordering::Relaxed))).collect()
    }

    /// How often each path was taken by this thread since it was last asked, or began.
    #[must_use]
    pub fn take_here() -> Vec<(Mark, u64)> {
        HERE.with(|here| Mark::ALL.iter().map(|mark| (*mark, here[*mark as usize].take())).collect())
    }
}

#[cfg(all(test, leasehold_lab))]
mod tests {
    use super::*;

    fn times(counts: &[(Mark, u64)], mark: Mark) -> u64 {
        counts.iter().filter(|(known, _)| *known == mark).map(|(_, times)| times).sum()
    }

    #[test]
    fn each_thread_counts_its_own_and_the_process_all() {
        let before = times(&everywhere(), Mark::Rallied);
        let _ = take_here();
        hit(Mark::Rallied);
        std::thread::spawn(|| {
            hit(Mark::Rallied);
            hit(Mark::Rallied);
            assert_eq!(times(&take_here(), Mark::Rallied), 2);
        })
        .join()
        .unwrap();
        let here = take_here();
        assert_eq!((times(&here, Mark::Rallied), times(&here, Mark::GhostPush)), (1, 0));
        assert_eq!(times(&take_here(), Mark::Rallied), 0, "taken");
        assert_eq!(times(&everywhere(), Mark::Rallied) - before, 3);
    }

    #[test]
    fn names_are_those_of_the_variants() {
        for mark in Mark::ALL {
            assert_eq!(mark.name(), format!("{mark:?}"));
        }
    }
}
