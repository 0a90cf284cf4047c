//! The effect of each call on a name in each state.

mod act;
mod party;
mod scene;

use leasehold::ErrorKind;

use super::Verdict;
use super::stage::Stage;

dimension! {
    /// The face that the caller uses.
    Face {
        /// The asynchronous face, at the crate's root.
        Tasks,
        /// The blocking face: `leasehold::blocking`.
        Threads,
    }
}

dimension! {
    /// A call of the faces.
    Call {
        /// `Mutex::lock`
        Lock,
        /// `Mutex::try_lock`
        TryLock,
        /// `Mutex::try_lock_for`
        TryLockFor,
        /// `Mutex::run`
        Run,
        /// `Mutex::lock_or_cancel`
        LockOrCancel,
        /// `Mutex::inspect`
        Inspect,
        /// `Mutex::revoke`, of the holder that was seen.
        Revoke,
        /// `Guard::release`, by the holder.
        Release,
        /// Dropping the holder's guard.
        Drop,
        /// `Leasehold::close`, of the holder's client; of the caller's own client where nobody holds.
        Close,
    }
}

dimension! {
    /// The state of the name, and who the caller is.
    Situation {
        /// Nobody has ever locked it.
        New,
        /// It was locked, and released.
        Free,
        /// The caller's own client holds. It does not re-enter without an owner.
        HeldBySelf,
        /// The caller's own client holds, but for another owner.
        HeldByOtherOwner,
        /// The caller's owner holds: the caller re-enters.
        HeldByOwner,
        /// The caller's owner has lost its lease, and its guard still exists.
        LostByOwner,
        /// Another client holds, and another task of the caller's owner waits.
        OwnerWaits,
        /// Another client holds.
        HeldByOther,
        /// Another client holds, and a third waits.
        HeldAndQueued,
        /// The lease of its holder has ended, and the holder is silent.
        Lapsed,
        /// Its holder was asked to stop, and has not yet.
        Revoked,
        /// Another client holds, and a third has waited and given up.
        CancelledWaiter,
        /// The name is invalid. (Another client holds another name.)
        BadName,
        /// The lease is out of range, and another client holds.
        BadLease,
        /// The caller's client was closed, and another holds.
        Closed,
    }
}

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The lock, at once.
    Granted,
    /// Nothing while another client holds; the lock once everybody before has released.
    InTurn,
    /// `None`.
    Busy,
    /// A further guard of its owner's grant, at once.
    ReEnters,
    /// The grant of the owner's other waiter, when that is granted.
    Shares,
    /// Nobody holds, nobody waits.
    ShowsNobody,
    /// The holder, and this many waiters.
    ShowsHolder { waiters: usize },
    /// The holder, marked.
    ShowsRevoked,
    /// The holder is asked to stop.
    Revokes,
    /// There is nothing to revoke or release.
    NotHeld,
    /// It is released, and nobody waits.
    GivesBack,
    /// It is released, and the waiter holds.
    HandsOver,
    /// Nothing happens, and no other client is disturbed.
    Nothing,
    /// An error of this kind.
    Refuses(ErrorKind),
    /// The combination has no meaning.
    NotApplicable(&'static str),
}

const NO_GUARD: Expect = Expect::NotApplicable("nobody has a guard to give back");
const NO_FUTURE: Expect = Expect::NotApplicable("a task's wait is cancelled by dropping its future");
const NO_NAME: Expect = Expect::NotApplicable("closing names nothing");
const NOT_ITS: Expect = Expect::NotApplicable("the holder's own name, lease and client are fine: as HeldByOther");

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
fn expect(face: Face, call: Call, at: Situation) -> Expect {
    use Expect::{
        Busy, GivesBack, Granted, HandsOver, InTurn, NotApplicable, NotHeld, Nothing, ReEnters, Refuses, Revokes,
        Shares, ShowsHolder, ShowsNobody, ShowsRevoked,
    };
    use Situation::{
        BadLease, BadName, CancelledWaiter, Closed, Free, HeldAndQueued, HeldByOther, HeldByOtherOwner, HeldByOwner,
        HeldBySelf, Lapsed, LostByOwner, New, OwnerWaits, Revoked,
    };
    match call {
        Call::LockOrCancel if face == Face::Tasks => NO_FUTURE,
        Call::Lock | Call::TryLockFor | Call::Run | Call::LockOrCancel => match at {
            New | Free | Lapsed => Granted,
            HeldBySelf | HeldByOtherOwner | HeldByOther | HeldAndQueued | Revoked | CancelledWaiter => InTurn,
            HeldByOwner => ReEnters,
            OwnerWaits => Shares,
            LostByOwner => Refuses(ErrorKind::Lost),
            BadName | BadLease => Refuses(ErrorKind::Invalid),
            Closed => Refuses(ErrorKind::Closed),
        },
        Call::TryLock => match at {
            New | Free | Lapsed => Granted,
            HeldBySelf | HeldByOtherOwner | HeldByOther | HeldAndQueued | Revoked | CancelledWaiter | OwnerWaits => {
                Busy
            }
            HeldByOwner => ReEnters,
            LostByOwner => Refuses(ErrorKind::Lost),
            BadName | BadLease => Refuses(ErrorKind::Invalid),
            Closed => Refuses(ErrorKind::Closed),
        },
        Call::Inspect => match at {
            New | Free | Lapsed => ShowsNobody,
            HeldBySelf | HeldByOtherOwner | HeldByOwner | HeldByOther | CancelledWaiter | BadLease => {
                ShowsHolder { waiters: 0 }
            }
            HeldAndQueued | OwnerWaits => ShowsHolder { waiters: 1 },
            Revoked | LostByOwner => ShowsRevoked,
            BadName => Refuses(ErrorKind::Invalid),
            Closed => Refuses(ErrorKind::Closed),
        },
        Call::Revoke => match at {
            New => NotApplicable("no holder was ever seen"),
            Free | Lapsed => NotHeld,
            HeldBySelf | HeldByOtherOwner | HeldByOwner | LostByOwner | OwnerWaits => Revokes,
            HeldByOther | HeldAndQueued | Revoked | CancelledWaiter | BadLease => Revokes,
            BadName => Refuses(ErrorKind::Invalid),
            Closed => Refuses(ErrorKind::Closed),
        },
        Call::Release => match at {
            New | Free => NO_GUARD,
            Lapsed => NotApplicable("its holder is gone for good; what a guard says of its end is in `leases`"),
            HeldBySelf | HeldByOtherOwner | HeldByOwner | HeldByOther | CancelledWaiter => GivesBack,
            HeldAndQueued | OwnerWaits => HandsOver,
            // The work outlived its lease.
            Revoked | LostByOwner => NotHeld,
            BadName | BadLease | Closed => NOT_ITS,
        },
        Call::Drop => match at {
            New | Free => NO_GUARD,
            Lapsed => NotApplicable("its holder is gone for good"),
            HeldBySelf | HeldByOtherOwner | HeldByOwner | HeldByOther | CancelledWaiter => GivesBack,
            Revoked | LostByOwner => GivesBack,
            HeldAndQueued | OwnerWaits => HandsOver,
            BadName | BadLease | Closed => NOT_ITS,
        },
        Call::Close => match at {
            New | Free | Lapsed | Closed => Nothing,
            HeldBySelf | HeldByOtherOwner | HeldByOwner | HeldByOther | CancelledWaiter => GivesBack,
            Revoked | LostByOwner => GivesBack,
            HeldAndQueued | OwnerWaits => HandsOver,
            BadName | BadLease => NO_NAME,
        },
    }
}

pub(super) async fn run(face: Face, call: Call, at: Situation, stage: &Stage) -> Verdict {
    let expected = expect(face, call, at);
    if let Expect::NotApplicable(why) = expected {
        return Verdict::NotApplicable(why);
    }
    let scene = scene::set(face, at, stage).await;
    act::act(call, expected, scene, stage).await;
    Verdict::Passed
}
