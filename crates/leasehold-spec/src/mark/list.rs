//! The list of the labels.

macro_rules! marks {
    ($($(#[$about:meta])* $mark:ident,)*) => {
        /// The label of a path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Mark {
            $($(#[$about])* $mark,)*
        }

        impl Mark {
            /// All labels.
            pub const ALL: &[Self] = &[$(Self::$mark),*];

            /// Returns the name of the label.
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
    /// A record that nobody needs any more was forgotten when a step touched it.
    RecordForgotten,
    /// P1: a lease had ended by time, and the next step noticed it.
    LeaseExpired,
    /// P1: a lease began in the future because the clock was set back. It begins now.
    LeaseDatedAnew,
    /// P1: a free lease was handed to a waiter.
    HandedOver,
    /// P9: the holder of a range was notified that others wait.
    HolderTold,
    /// P19: a range was given back, and the holder had used more than its first token.
    RangeUsed,
    /// P19: a range ended with its lease, and nobody reported how much of it was used.
    RangeBurnt,
    /// P19: a range was extended.
    RangeExtended,
    /// P19: a range is shorter than requested, because it would be too far ahead of the clock.
    RangeCut,
    /// P19: a client that does not hold the lease asked for more tokens.
    ReserveNotHeld,
    /// P1: a step stopped because it had passed over too many waiters.
    SettleMore,
    /// P1: a lease is free while others wait, because a step had to stop. A newcomer joins the queue.
    NewcomerBehindMore,
    /// P3: an acquire was repeated whose attempt holds already.
    AcquireRepeatedGranted,
    /// P3: an acquire was repeated whose attempt waits already.
    AcquireRepeatedQueued,
    /// P3: an acquire arrived late: the grant with its ID was given back before.
    AcquireGone,
    /// P4: an acquire arrived after its `not_after`.
    AcquireLate,
    /// P4: a renewal arrived after its `not_after`.
    RenewLate,
    /// P31, P40: an acquire was refused because of the kind or the limit of its name, or because it can never fit.
    TakeRefused,
    /// P37: the grant that may be upgraded was the only one.
    UpgradedAtOnce,
    /// P37: an upgrade waited until its grant was the only one left.
    Upgraded,
    /// P37: an upgrade named a grant that is not held.
    UpgradeRefused,
    /// P37: the grant of a waiting upgrade ended.
    UpgradeOrphaned,
    /// P38: an upgrade was given up, and the queue goes on.
    UpgradeWithdrawn,
    /// P37: a reply said that a grant is lost while its upgrade waits, and the session re-checked the upgrade at once.
    UpgradeLooked,
    /// P38: a caller stopped waiting for an upgrade, and its session tried once more.
    UpgradeTriedLast,
    /// P39: a grant gave units back.
    Lowered,
    /// P39: a client that does not hold the grant gave units back.
    LowerNotHeld,
    /// P40: a semaphore has another number of permits.
    Resized,
    /// P40: a resize was refused, because it saw another number.
    ResizeRefused,
    /// P42: waiters of a condition variable were notified.
    Notified,
    /// P42: nobody waited for a condition variable that was notified.
    NotifiedNobody,
    /// P42: a notification was spent.
    Spent,
    /// P42: a client that does not hold the notification spent it.
    SpendNotHeld,
    /// P48: a leader changed its value.
    LabelPut,
    /// P48: a client that does not lead changed the value.
    PutNotHeld,
    /// P51: a holder handed the lock to the waiter that it named.
    HandedTo,
    /// P51: the waiter that a holder named was not there.
    HandToNobody,
    /// P51: a client that does not hold named the next holder.
    HandToNotHeld,
    /// P46: several mutexes were acquired by one request.
    TogetherGranted,
    /// P46: a request for several mutexes was refused.
    TogetherRefused,
    /// P52: a barrier let a round through.
    RoundTripped,
    /// P52: a round was broken.
    RoundBroken,
    /// P52: a party asked again whose round was broken.
    ArrivalDismissed,
    /// P52: a party whose time was over asked how its round ended.
    ArrivalAskedLast,
    /// P44: a latch was created.
    LatchCreated,
    /// P44: a count-down was counted.
    CountedDown,
    /// P44: a count-down named a latch that is gone.
    CountRefused,
    /// P44: a latch was deleted.
    LatchDeleted,
    /// P43: a waiter of a condition variable woke up because it may have missed a notification.
    WokenUnsure,
    /// P40: a waiter was removed because it needs more units than there are.
    PassedTooBig,
    /// The queue was full.
    QueueFull,
    /// P6: a waiter that was passed over came back to its place.
    TicketBack,
    /// P6: a waiter that was passed over came back, and a bounded walk does not reach its place.
    TicketTooFar,
    /// P6: a waiter was passed over, and a copy of its first request put it at the tail. It came back to its place.
    TicketMended,
    /// P6: a waiter was passed over because its inbox is not attached.
    PassedDetached,
    /// P6: a waiter was passed over because it polls, and has not polled for a long time.
    PassedSilent,
    /// A waiter was passed over because its timeout had expired.
    PassedOverdue,
    /// P7: a waiter was passed over because a claim of its session had lapsed since its last request.
    PassedLapsed,
    /// P7: a claim ran out, and the record noted it.
    ClaimLapsed,
    /// P7: more sessions let claims run out than a record notes.
    LapsesFull,
    /// P7: a fixed lease was claimed.
    FixedClaimed,
    /// P7: a fixed lease was claimed again, because the first reply was lost.
    FixedClaimedAgain,
    /// P3: a client that does not hold the lease sent a renewal.
    RenewNotHeld,
    /// P10: a client whose grant was revoked sent a renewal.
    RenewRevoked,
    /// P10: a grant was marked for revocation.
    GrantRevoked,
    /// P10: the grant to be revoked was gone.
    RevokeMissed,
    /// P10: a waiter was notified of the time at which the lease that it waits for ends.
    WaiterNotified,
    /// P3: a release was repeated.
    ReleaseRepeated,
    /// A client that does not hold the lease sent a release.
    ReleaseNotHeld,
    /// P23: a lease was given back, and cools down.
    CoolDownBegun,
    /// P23: a request for a cool-down was repeated.
    CoolDownRepeated,
    /// P23: a cool-down was over, and the next step noticed it.
    CooledDown,
    /// P16: an attempt that left was in the queue.
    LeftQueue,
    /// P16: an attempt that left had just been granted the lease.
    LeftGranted,
    /// P16: an attempt that left neither waited nor held.
    LeftAbsent,

    /// P3: the reply to an acquire was older than the state that the session knows.
    OlderAnswer,
    /// P14: a reply granted or queued an attempt that is closed.
    GhostAnswer,
    /// P14: a push granted an attempt that is closed.
    GhostPush,
    /// A request was answered whose attempt had been given up meanwhile.
    AnswerToReturning,
    /// P15: a re-check found that the attempt had been granted. The push was lost, or is late.
    RecheckGranted,
    /// P15: a re-check had to join the queue again.
    RecheckReentered,
    /// P15: the other waiters for that name were made to re-check.
    Rallied,
    /// P4: a reply reported that the request of the session was late.
    LateReply,
    /// P3: a reply reported that the ID of the session's attempt is used up.
    GoneReply,
    /// P8: the memory of the store is full, and a settle took the place of a re-check.
    MemoryFullSettle,
    /// P8: the memory of the store is full, and an acquire was refused.
    MemoryFullRefused,
    /// P12: the clock of the server jumped forward, and the session subtracted the jump.
    JumpTakenOff,
    /// P12: a waiter entered with a push, without a round trip.
    PushEntered,
    /// P12: a push could not be placed in time, or was too old, and was claimed first.
    PushClaimed,
    /// P3: a push had no new information.
    OlderPush,
    /// P10: a holder was notified that its grant is revoked.
    PushRevoked,
    /// P10: a waiter was notified of the time at which the lease that it waits for ends.
    PushEnding,
    /// An attempt got a new grant while a guard of its earlier grant exists.
    Superseded,
    /// A lease lapsed, and its attempt is in the queue again, while its guard exists.
    QueuedWhileHeld,
    /// The reply to a renewal was that the lease is lost.
    RenewalLost,
    /// The reply to a claim was that the grant is lost. The waiter goes back to its place.
    ClaimLost,
    /// A renewal got no reply, and is repeated.
    RenewalUnanswered,
    /// A reply belongs to the renewal of another grant than the present one.
    RenewalOfAnother,
    /// The validity ended, by the clock of the client.
    ValidityOver,
    /// P7: a claim ended before it was answered.
    ClaimRanOut,
    /// The timeout of a caller expired.
    PatienceOver,
    /// Nobody waits for an attempt any more.
    Abandoned,
    /// P13: a release or a leave was repeated on another link, because its link broke.
    ReturnRepeated,
    /// P13: a release or a leave was given up: the lease has ended at the store by itself.
    ReturnExpired,
    /// P13: what was released was left at another run of the store.
    ReleaseSaidAgain,
    /// P14: the reply to a leave was not the last statement about its attempt.
    LeaveAgain,
    /// P14: a leave was sent in place of a release, because an acquire of the attempt is unanswered.
    LeaveForRelease,
    /// P7, P15: a waiter re-checks because a lease has ended.
    WatchLooked,
    /// P1, P7: a settle is sent because a lease has ended, or there is more to settle.
    WatchSettled,
    /// P11: a request was unanswered for too long.
    LinkDoubted,
    /// P17: the callers' lane moved to another runtime, because its own did not use it.
    LaneMoved,
    /// P17: the runtime of the callers' lane was blocked, and the lane was given up.
    LaneStalled,
    /// P17: the lane has the inbox, because messages came in quick succession.
    InboxAtLane,
    /// P17: the session's connection has the inbox again.
    InboxBack,
    /// P11: a doubted link did not answer a ping, and was replaced.
    LinkReplaced,
    /// A link broke, or its server may not be used as a store.
    LinkGivenUp,
    /// P13: the session met another run of the store.
    MetAnotherRun,
    /// A reply of another run of the store was ignored.
    AnswerOfAnotherRun,
    /// P18: a session was closed while a lease was held or waited for.
    ClosedInUse,
    /// P16: an owner entered a lock again that it holds.
    ReEntered,
    /// P16: an owner was refused: its lease was lost, and a guard of it exists.
    ReEntryRefused,
    /// P16: a task of an owner waited for another task of the owner, and found the hold.
    TurnFoundHold,
    /// P20: a lease was handed on inside its session.
    Passed,
    /// P20: a local run ended with local waiters left, after the largest number of hand-overs while others wait.
    RunOutOfPasses,
    /// P20: a local run ended with local waiters left, because others have waited for long enough.
    RunOutOfTime,
    /// P20: a local run ended with local waiters left, because another client asked for strict order.
    RunStrict,
    /// P20: a local run ended with local waiters left, because the store has not replied for too long.
    RunSilent,
    /// P20: a local run ended with local waiters left, because too little of the lease was left.
    RunLate,
    /// P19: a local run ended with local waiters left, because no reserved token was left.
    RunOutOfRange,
    /// P20: a local run ended with local waiters left, because its lease was extended.
    RunLengthened,
    /// P20: a local run ended with local waiters left, by a panic, a loss or a revocation.
    RunCutShort,
    /// P9: a holder was notified that others wait.
    WantedHeard,
    /// P9: the message that others wait overtook the message of the grant.
    WantedEarly,
    /// P9: an older message did not lower the known contention level.
    OlderLevel,
    /// P19: a request for more tokens got no reply, or no reply that helps.
    ReserveUnheard,
    /// P21: a lease was lost with others in its local queue, and they went on at once.
    QueueWentOn,
    /// P21: the last waiter left a local queue whose attempt did not hold.
    LineDeserted,
    /// P21: a local waiter has a longer timeout than the one that was sent to the store.
    LineOutlasted,
    /// P21: the next waiter of a local queue was gone in the same moment.
    NextHadGone,
    /// P21: a lease was handed to a local waiter that was gone in the same moment, and went on from there.
    PassUntaken,
    /// Quorum: a round was begun again at once, above the tokens that nodes had seen.
    RoundAgain,
    /// The thread of the session took over work that the runtime of a caller had not finished.
    TakenOver,
    /// Quorum: a majority answered, and no client has a majority of the votes.
    RoundSplit,
    /// Quorum: a round was lost to a client that holds.
    RoundRefused,
    /// Quorum: a round was decided before all nodes had answered.
    RoundEarly,
    /// Quorum: a round was won whose attempt had been given up meanwhile.
    RoundWonLate,
    /// Quorum: too few nodes have a vote.
    RoundTooFew,
    /// Quorum: the vote for a lost round came late, and was given back.
    StoodBackLate,
    /// Quorum: an answer that came after its round was decided shows that a majority is free earlier.
    FreeEarlier,
    /// Quorum: an attempt gave its vote back to wait at a node, and was over meanwhile.
    StoodBackGone,
    /// Quorum: a node voted for an attempt after its release, or may have, and the vote goes back.
    VotedGone,
    /// Quorum: a majority called, and the attempt asked.
    TurnCalled,
    /// Quorum: an alarm rang, and the attempt asked.
    TurnByAlarm,
    /// Quorum: a node called an attempt that is over.
    CalledGone,
    /// Quorum: a release was in flight, and another request of the client that gives the same vote back waited for it.
    ReturnDeferred,
    /// Quorum: a majority called while a round was in flight.
    CalledInRound,
    /// Quorum: a release called nobody, because the client is expected to come back at once.
    Paused,
    /// Quorum: a client that came back asked a bare majority, did not win at once, and asked all nodes.
    BareMajorityMissed,
    /// Quorum: a client that was granted a lease by a bare majority held for long, and asked the other nodes.
    OthersAsked,
    /// Quorum: a client did not come back after a pause, and the nodes call the next waiter.
    PauseOver,
    /// Quorum: a release ended the run of a client that came back again and again.
    QuorumRunOver,
    /// Quorum: a node that did not know a grant was filled with it.
    NodeFilled,
    /// Quorum: a node was filled with a grant whose lease was over meanwhile, or may have been, and the vote goes back.
    FillReturned,
    /// Quorum: no majority keeps a lease any more.
    LostByMajority,
    /// Quorum: a renewal came too late at so many nodes that there is no majority.
    KeptLate,
    /// Quorum: too few nodes answered a renewal.
    KeptTooFew,
    /// Quorum: a node has no vote because it is in quarantine.
    NodeRests,
    /// Quorum: a node has lost its marker, or has another one, and is greeted again.
    NodeUnmarked,
    /// Quorum: a node was away when a vote was given back, and must still be asked to end it.
    Owed,
    /// Quorum: a node that is back was asked to end the votes that were given back meanwhile.
    OwedPaid,
    /// Quorum: a doubted node did not answer a ping, and is connected again.
    DoubtedGone,
    /// Quorum: the runtime of a link ended, and the link was closed.
    RuntimeEnded,
    /// Quorum: the clock of a node jumped forward, and the client noticed it.
    NodeJumped,
}

impl Mark {
    /// Whether only a quorum takes this path.
    #[must_use]
    pub const fn is_of_quorum(self) -> bool {
        self as u8 >= Self::RoundAgain as u8
    }
}
