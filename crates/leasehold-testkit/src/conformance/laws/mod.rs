//! Properties over many calls.

mod barriers;
mod clients;
mod conditions;
mod cool_down;
mod crowd;
mod elections;
mod holding;
mod latches;
mod lines;
mod multi;
mod order;
mod owners;
mod pools;
mod waits;

use leasehold_spec::Kind;

use super::Verdict;
use super::stage::Stage;

dimension! {
    /// A law.
    Law {
        /// Waiters of different clients are served in the order in which they came.
        FifoAcrossClients,
        /// Tasks of one client are served in the order in which they came.
        FifoWithinClient,
        /// Tasks of one client that wait for a lease of their own client are served in the order of their calls.
        LinesAreFifo,
        /// A write of an earlier holder in the local queue is refused after a later holder's write.
        LinesAreFenced,
        /// A task that leaves the local queue is passed over, and nothing is left of it.
        LinesGoOnWithoutWhoLeaves,
        /// A client hands over inside only a limited number of times once another client waits.
        LinesEndForOthers,
        /// When a release is answered, the next waiter holds: no other client gets in between.
        HandOverLeavesNoGap,
        /// At no moment are there two holders, and nobody waits for ever.
        ExclusionAndProgress,
        /// Every grant's token is larger than all earlier ones, whoever the holder is.
        TokensRise,
        /// Tokens rise also when every client is a new one.
        TokensRiseOverClients,
        /// A waiter whose time is over is passed over.
        ImpatientWaiterIsPassedOver,
        /// Every wait, however short, is long enough for an answer.
        NoPatienceIsAnswered,
        /// Every wait of up to 50 ms ends with a guard or without one while others lock and release.
        ShortWaitsAreAnswered,
        /// A holder learns that others wait.
        OthersWaitIsHeard,
        /// A signal gives the reason to every receiver, also after its guard was released.
        SignalsSayWhy,
        /// A guard is bound to no task and no thread.
        GuardsGoAnywhere,
        /// Many leases of one client are all renewed.
        ManyLeasesAreRenewed,
        /// The work is dropped when its lease is lost.
        LossDropsTheWork,
        /// A panic in the work releases the lease, and poisons nothing.
        PanicGivesBack,
        /// A revocation concerns only the holder that was seen.
        RevokeNamesItsHolder,
        /// A holder that goes on loses the lease when its grace is over.
        GraceRunsOut,
        /// When the grace is over, the next waiter holds, although the holder is silent and the revoking client is gone.
        GraceEndsForTheNextWaiter,
        /// The next waiter holds also when the notified waiters have left.
        GraceEndsForWhoeverIsLeft,
        /// Without grace the next waiter holds at once.
        NoGraceEndsAtOnce,
        /// The next waiter holds when the lease of a crashed holder ends.
        CrashedHolderIsFollowed,
        /// A minimum hold keeps others out after the release.
        MinimumHoldKeepsOthersOut,
        /// A minimum hold keeps others out also when the client that released is gone.
        MinimumHoldOutlivesItsClient,
        /// Closing a client does not shorten the minimum hold of its guards.
        ClosingKeepsAMinimumHold,
        /// A release after the minimum hold frees the lease at once.
        MinimumHoldThatIsOverIsNone,
        /// A revocation ends a cool-down at once.
        RevocationEndsACoolDown,
        /// A revoked lease is free once it is released.
        RevokedLeaseDoesNotCoolDown,
        /// Thousands of calls at the same time delay no renewal and no inspection.
        CrowdHoldsNobodyUp,
        /// An inspection changes nothing.
        InspectChangesNothing,
        /// A client without a label is shown by its machine and process.
        LabelsAreShown,
        /// Dropping the last handle releases the lease.
        LastHandleGivesBack,
        /// A guard keeps its client working.
        GuardKeepsItsClient,
        /// Closing concerns all clones, and no other client.
        CloseIsForAllClones,
        /// Two prefixes share nothing.
        PrefixesSeparate,
        /// Owners exclude each other, however many tasks they have inside.
        OwnersExcludeEachOther,
        /// Blocking threads exclude each other too, and re-enter.
        ThreadsExcludeEachOther,
        /// If a re-entry asks for a longer lease, the store keeps the longer one.
        ReEntryLengthens,
        /// A thread learns of a loss, by a wait and by a call.
        LossIsToldToThreads,
        /// A multi-lock holds all of its members or none.
        AllOrNone,
        /// The loss of one member of a multi-lock is the loss of all.
        OneLostAllLost,
        /// Multi-locks that share members do not wait in a circle.
        PhilosophersEat,
        /// A multi-lock lets go of what it holds if a member of another client takes too long.
        MembersOfTwoClientsAreNotHeldOn,
        /// Wrong members of a multi-lock are refused.
        MembersAreChecked,
        /// If a member of a multi-lock fails, nothing is held.
        FailedMemberLeavesNothing,
        /// Readers hold together, and a writer waits for all of them.
        ReadersShare,
        /// A writer that waits stops later readers.
        WriterStopsLaterReaders,
        /// A writer that becomes a reader lets the waiting readers in.
        DowngradeAdmits,
        /// An upgrade comes before every waiter, and nobody enters while it waits.
        UpgradeFirst,
        /// An upgrade that is given up changes nothing.
        UpgradeGivenUp,
        /// A dropped upgrade releases the lock.
        DroppedUpgradeReleases,
        /// A revoked reader is not upgraded.
        RevokedUpgradeIsLost,
        /// A dead writer does not keep the readers behind it out.
        DeadHeadBlocksNobody,
        /// A thousand readers behind a writer enter at once.
        WideWake,
        /// As many permits are held at a time as there are.
        PermitsAreCounted,
        /// Permits that a client has dropped are not in its own way.
        OwnPermitsAreReleasedFirst,
        /// The permits of a crashed client come back.
        PermitsComeBack,
        /// Clients that disagree about the number or the kind get an error.
        LimitsDisagree,
        /// A resize changes the number for everybody.
        ResizeIsForAll,
        /// Each notification reaches a waiter, so producers and consumers go on.
        NotifyIsNotLost,
        /// Waiters are notified in the order in which they came.
        WaitersWakeInOrder,
        /// A notification to all wakes all that wait.
        AllWakeUp,
        /// A notification that nobody waits for is nothing.
        NotifyBeforeWaitIsNothing,
        /// A wait that times out holds the lock again.
        TimedOutHolds,
        /// A notification whose receiver is gone goes to the next waiter.
        NotificationPassesOn,
        /// A condition variable works with every guard that is exclusive, of every store.
        ConditionTakesEveryGuard,
        /// A wait that cannot begin is an error, and releases the lock.
        WaitIsRefused,
        /// Threads wait and notify as tasks do.
        ThreadsWait,
        /// A latch opens at the last count-down, for everybody, and a part counts once.
        LatchOpensOnce,
        /// A latch that does not exist is an error.
        LatchIsGone,
        /// Threads use a latch as tasks do.
        ThreadsUseLatches,
        /// A round of a barrier is let through when it is complete, and has one leader.
        RoundIsLetThrough,
        /// A party that stops waiting breaks the round.
        LeavingBreaksTheRound,
        /// A party that dies breaks the round.
        DeathBreaksTheRound,
        /// Parties that disagree about the number or the kind get an error.
        PartiesDisagree,
        /// A round of as many parties as there can be is let through.
        WideRound,
        /// Threads use a barrier as tasks do.
        ThreadsUseBarriers,
        /// Observers see each leader that stays, its value, and its end.
        LeaderIsSeen,
        /// Only the leader changes its value.
        ValueIsTheLeaders,
        /// A leader hands over to the candidate that it names, if that one is there.
        LeaderNamesItsSuccessor,
        /// Threads elect and observe as tasks do.
        ThreadsElect,
    }
}

impl Law {
    /// Returns the kind of the name that the law is about.
    const fn kind(self) -> Kind {
        match self {
            Self::ReadersShare
            | Self::WriterStopsLaterReaders
            | Self::DowngradeAdmits
            | Self::UpgradeFirst
            | Self::UpgradeGivenUp
            | Self::DroppedUpgradeReleases
            | Self::RevokedUpgradeIsLost
            | Self::DeadHeadBlocksNobody
            | Self::WideWake => Kind::ReadWrite,
            Self::PermitsAreCounted
            | Self::OwnPermitsAreReleasedFirst
            | Self::PermitsComeBack
            | Self::LimitsDisagree
            | Self::ResizeIsForAll => Kind::Semaphore,
            Self::NotifyIsNotLost
            | Self::WaitersWakeInOrder
            | Self::AllWakeUp
            | Self::NotifyBeforeWaitIsNothing
            | Self::TimedOutHolds
            | Self::NotificationPassesOn
            | Self::ConditionTakesEveryGuard
            | Self::WaitIsRefused
            | Self::ThreadsWait => Kind::Condition,
            Self::LatchOpensOnce | Self::LatchIsGone | Self::ThreadsUseLatches => Kind::Latch,
            Self::RoundIsLetThrough
            | Self::LeavingBreaksTheRound
            | Self::DeathBreaksTheRound
            | Self::PartiesDisagree
            | Self::WideRound
            | Self::ThreadsUseBarriers => Kind::Barrier,
            _ => Kind::Mutex,
        }
    }
}

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
pub(super) async fn run(law: Law, stage: &Stage) -> Verdict {
    if !stage.has(law.kind()) {
        return Verdict::Unsupported("the store has no such names");
    }
    match law {
        Law::FifoAcrossClients => order::fifo(stage, order::Clients::Many).await,
        Law::FifoWithinClient => order::fifo(stage, order::Clients::One).await,
        Law::LinesAreFifo => lines::fifo(stage).await,
        Law::LinesAreFenced => lines::fenced(stage).await,
        Law::LinesGoOnWithoutWhoLeaves => lines::go_on_without_who_leaves(stage).await,
        Law::LinesEndForOthers => lines::end_for_others(stage).await,
        Law::HandOverLeavesNoGap => order::hand_over_leaves_no_gap(stage).await,
        Law::ExclusionAndProgress => order::exclusion_and_progress(stage).await,
        Law::TokensRise => order::tokens_rise(stage).await,
        Law::TokensRiseOverClients => order::tokens_rise_over_clients(stage).await,
        Law::ImpatientWaiterIsPassedOver => order::impatient_waiter_is_passed_over(stage).await,
        Law::NoPatienceIsAnswered => order::no_patience_is_answered(stage).await,
        Law::ShortWaitsAreAnswered => waits::short_waits_are_answered(stage).await,
        Law::OthersWaitIsHeard => holding::others_wait_is_heard(stage).await,
        Law::SignalsSayWhy => holding::signals_say_why(stage).await,
        Law::GuardsGoAnywhere => holding::guards_go_anywhere(stage).await,
        Law::ManyLeasesAreRenewed => holding::many_leases_are_renewed(stage).await,
        Law::LossDropsTheWork => holding::loss_drops_the_work(stage).await,
        Law::PanicGivesBack => holding::panic_gives_back(stage).await,
        Law::RevokeNamesItsHolder => holding::revoke_names_its_holder(stage).await,
        Law::GraceRunsOut => holding::grace_runs_out(stage).await,
        Law::GraceEndsForTheNextWaiter => holding::grace_ends_for_the_next_waiter(stage).await,
        Law::GraceEndsForWhoeverIsLeft => holding::grace_ends_for_whoever_is_left(stage).await,
        Law::NoGraceEndsAtOnce => holding::no_grace_ends_at_once(stage).await,
        Law::CrashedHolderIsFollowed => holding::crashed_holder_is_followed(stage).await,
        Law::MinimumHoldKeepsOthersOut => cool_down::a_minimum_hold_keeps_others_out(stage).await,
        Law::MinimumHoldOutlivesItsClient => cool_down::a_minimum_hold_outlives_its_client(stage).await,
        Law::ClosingKeepsAMinimumHold => cool_down::closing_keeps_a_minimum_hold(stage).await,
        Law::MinimumHoldThatIsOverIsNone => cool_down::a_minimum_hold_that_is_over_is_none(stage).await,
        Law::RevocationEndsACoolDown => cool_down::a_revocation_ends_a_cool_down(stage).await,
        Law::RevokedLeaseDoesNotCoolDown => cool_down::a_revoked_lease_does_not_cool_down(stage).await,
        Law::CrowdHoldsNobodyUp => crowd::a_crowd_holds_nobody_up(stage).await,
        Law::InspectChangesNothing => clients::inspect_changes_nothing(stage).await,
        Law::LabelsAreShown => clients::labels_are_shown(stage).await,
        Law::LastHandleGivesBack => clients::last_handle_gives_back(stage).await,
        Law::GuardKeepsItsClient => clients::guard_keeps_its_client(stage).await,
        Law::CloseIsForAllClones => clients::close_is_for_all_clones(stage).await,
        Law::OwnersExcludeEachOther => owners::owners_exclude_each_other(stage).await,
        Law::ThreadsExcludeEachOther => owners::threads_exclude_each_other(stage).await,
        Law::ReEntryLengthens => owners::re_entry_lengthens(stage).await,
        Law::LossIsToldToThreads => owners::a_loss_is_told_to_threads(stage).await,
        Law::AllOrNone => multi::all_or_none(stage).await,
        Law::OneLostAllLost => multi::one_lost_all_lost(stage).await,
        Law::PhilosophersEat => multi::philosophers_eat(stage).await,
        Law::MembersOfTwoClientsAreNotHeldOn => multi::members_of_two_clients_are_not_held_on(stage).await,
        Law::MembersAreChecked => multi::members_are_checked(stage).await,
        Law::FailedMemberLeavesNothing => multi::a_member_that_fails_leaves_nothing(stage).await,
        Law::ReadersShare => pools::readers_share(stage).await,
        Law::WriterStopsLaterReaders => pools::a_writer_stops_later_readers(stage).await,
        Law::DowngradeAdmits => pools::a_downgrade_admits(stage).await,
        Law::UpgradeFirst => pools::an_upgrade_is_first(stage).await,
        Law::UpgradeGivenUp => pools::an_upgrade_that_is_given_up_changes_nothing(stage).await,
        Law::DroppedUpgradeReleases => pools::a_dropped_upgrade_releases(stage).await,
        Law::RevokedUpgradeIsLost => pools::a_revoked_upgrade_is_lost(stage).await,
        Law::DeadHeadBlocksNobody => pools::a_dead_head_blocks_nobody(stage).await,
        Law::WideWake => pools::a_wide_wake(stage).await,
        Law::PermitsAreCounted => pools::permits_are_counted(stage).await,
        Law::OwnPermitsAreReleasedFirst => pools::own_permits_are_released_first(stage).await,
        Law::PermitsComeBack => pools::permits_come_back(stage).await,
        Law::LimitsDisagree => pools::limits_disagree(stage).await,
        Law::ResizeIsForAll => pools::a_resize_is_for_all(stage).await,
        Law::NotifyIsNotLost => conditions::a_notification_is_not_lost(stage).await,
        Law::WaitersWakeInOrder => conditions::waiters_wake_in_order(stage).await,
        Law::AllWakeUp => conditions::all_wake_up(stage).await,
        Law::NotifyBeforeWaitIsNothing => conditions::a_notification_before_a_wait_is_nothing(stage).await,
        Law::TimedOutHolds => conditions::a_wait_that_timed_out_holds(stage).await,
        Law::NotificationPassesOn => conditions::a_notification_passes_on(stage).await,
        Law::ConditionTakesEveryGuard => conditions::a_condition_works_with_every_guard(stage).await,
        Law::WaitIsRefused => conditions::a_wait_that_cannot_begin_is_an_error(stage).await,
        Law::ThreadsWait => conditions::threads_wait(stage).await,
        Law::LatchOpensOnce => latches::a_latch_opens_once(stage).await,
        Law::LatchIsGone => latches::a_latch_that_is_gone_is_an_error(stage).await,
        Law::ThreadsUseLatches => latches::threads_use_a_latch(stage).await,
        Law::RoundIsLetThrough => barriers::a_round_is_let_through(stage).await,
        Law::LeavingBreaksTheRound => barriers::a_party_that_leaves_breaks_the_round(stage).await,
        Law::DeathBreaksTheRound => barriers::a_dead_party_breaks_the_round(stage).await,
        Law::PartiesDisagree => barriers::parties_disagree(stage).await,
        Law::WideRound => barriers::a_wide_round(stage).await,
        Law::ThreadsUseBarriers => barriers::threads_use_a_barrier(stage).await,
        Law::LeaderIsSeen => elections::a_leader_is_seen(stage).await,
        Law::ValueIsTheLeaders => elections::a_value_is_the_leaders(stage).await,
        Law::LeaderNamesItsSuccessor => elections::a_leader_names_its_successor(stage).await,
        Law::ThreadsElect => elections::threads_elect(stage).await,
        Law::PrefixesSeparate => return clients::prefixes_separate(stage).await,
    }
    Verdict::Passed
}
