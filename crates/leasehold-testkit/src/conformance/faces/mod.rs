//! The effect of each call on a name in each state.

mod act;
mod mutex;
mod pools;
mod scene;
mod subject;

use leasehold::{ErrorKind, Inspection, Leasehold, Mutex, blocking};
use leasehold_spec::Kind;

use pools::Pool;
use subject::Subject;

use super::Verdict;
use super::stage::Stage;

dimension! {
    /// A synchronizer. Each has a file with its calls (`Subject`), and with the obstacle that a caller meets in each
    /// situation. A new one needs such a file, a row here, and its laws.
    Primitive {
        /// `Mutex`
        Mutex,
        /// A reader of an `RwLock`.
        Read,
        /// A writer of an `RwLock`.
        Write,
        /// A reader of an `RwLock` that may be upgraded.
        UpgradeableRead,
        /// A permit of a `Semaphore`.
        Permits,
    }
}

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
    /// A call of the faces. The mutex gives the names.
    Call {
        /// Waits until it is granted: `Mutex::lock`.
        Lock,
        /// Does not wait: `Mutex::try_lock`.
        TryLock,
        /// Waits for some time: `Mutex::try_lock_for`.
        TryLockFor,
        /// Works under the grant: `Mutex::run`.
        Run,
        /// Waits until it is granted or canceled: `Mutex::lock_or_cancel`.
        LockOrCancel,
        /// Shows the holder and the queue: `Mutex::inspect`.
        Inspect,
        /// Revokes the grant of the holder that was seen: `Mutex::revoke`.
        Revoke,
        /// Releases, by the holder: `Guard::release`.
        Release,
        /// Dropping the holder's guard.
        Drop,
        /// `Leasehold::close`, of the holder's client; of the caller's own client where nobody holds.
        Close,
    }
}

dimension! {
    /// The state of the name, and who the caller is. Each holder has a take that excludes that of the caller
    /// (`Subject::excluding`), except for the holder that is the caller's own owner: that one has the caller's take.
    Situation {
        /// Nobody has ever held it.
        New,
        /// It was held, and released.
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
        /// Its holder was asked to release, and has not done so yet.
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

/// The obstacle that a caller meets, if it acquires in a situation. Primitives differ in this: a take is compatible
/// with some holders, and excluded by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// Nothing that excludes its take.
    Nothing,
    /// A holder that excludes its take, or earlier waiters.
    Exclusion,
    /// A grant of its owner, which it re-enters.
    OwnGrant,
    /// A waiter of its owner.
    OwnWaiter,
    /// A lost grant of its owner, whose guard still exists.
    OwnLoss,
    /// The primitive has no owners.
    NoOwners,
    /// Its name or lease is refused.
    BadInput,
    /// Its client was closed.
    ClosedClient,
}

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The grant, at once.
    Granted,
    /// Nothing while another client holds; the grant once everybody before has released.
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
    /// The holder is asked to release.
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
const NO_NAME: Expect = Expect::NotApplicable("closing names nothing");
const NOT_ITS: Expect = Expect::NotApplicable("the holder's own name, lease and client are fine: as HeldByOther");

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
impl Primitive {
    /// Inspects a name of this primitive.
    pub(super) async fn inspect(self, client: &Leasehold, name: &str) -> Inspection {
        match self {
            Self::Mutex => client.mutex(name).inspect().await,
            Self::Read | Self::Write | Self::UpgradeableRead => client.rw_lock(name).inspect().await,
            Self::Permits => client.semaphore(name, 1).inspect().await,
        }
        .expect("an answer")
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
            Self::Read | Self::Write | Self::UpgradeableRead => Kind::ReadWrite,
            Self::Permits => Kind::Semaphore,
        }
    }

    fn meets(self, at: Situation) -> Meets {
        match self {
            Self::Mutex => mutex::meets(at),
            Self::Read | Self::Write | Self::UpgradeableRead | Self::Permits => pools::meets(at),
        }
    }

    fn lacks(self, face: Face, call: Call) -> Option<&'static str> {
        match self {
            Self::Mutex => mutex::lacks(face, call),
            Self::Read | Self::Write | Self::UpgradeableRead | Self::Permits => pools::lacks(face, call),
        }
    }

    async fn play(self, face: Face, call: Call, (at, expected): (Situation, Expect), stage: &Stage) {
        match (self, face) {
            (Self::Mutex, Face::Tasks) => play::<Mutex>(call, (at, expected), stage).await,
            (Self::Mutex, Face::Threads) => play::<blocking::Mutex>(call, (at, expected), stage).await,
            (Self::Read, _) => pool::<pools::Read>(face, call, (at, expected), stage).await,
            (Self::Write, _) => pool::<pools::Write>(face, call, (at, expected), stage).await,
            (Self::UpgradeableRead, _) => pool::<pools::UpgradeableRead>(face, call, (at, expected), stage).await,
            (Self::Permits, _) => pool::<pools::Permits>(face, call, (at, expected), stage).await,
        }
    }
}

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
fn expect(primitive: Primitive, face: Face, call: Call, at: Situation) -> Expect {
    use Expect::{
        Busy, GivesBack, Granted, HandsOver, InTurn, NotApplicable, NotHeld, Nothing, ReEnters, Refuses, Revokes,
        Shares, ShowsHolder, ShowsNobody, ShowsRevoked,
    };
    use Situation::{
        BadLease, BadName, CancelledWaiter, Closed, Free, HeldAndQueued, HeldByOther, HeldByOtherOwner, HeldByOwner,
        HeldBySelf, Lapsed, LostByOwner, New, OwnerWaits, Revoked,
    };
    if let Some(why) = primitive.lacks(face, call) {
        return NotApplicable(why);
    }
    let met = primitive.meets(at);
    if met == Meets::NoOwners {
        return NotApplicable("the primitive has no owners");
    }
    match call {
        Call::Lock | Call::TryLock | Call::TryLockFor | Call::Run | Call::LockOrCancel => match met {
            Meets::Nothing => Granted,
            Meets::Exclusion | Meets::OwnWaiter if call == Call::TryLock => Busy,
            Meets::Exclusion => InTurn,
            Meets::OwnWaiter => Shares,
            Meets::OwnGrant => ReEnters,
            Meets::OwnLoss => Refuses(ErrorKind::Lost),
            Meets::NoOwners => NotApplicable("the primitive has no owners"),
            Meets::BadInput => Refuses(ErrorKind::Invalid),
            Meets::ClosedClient => Refuses(ErrorKind::Closed),
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

pub(super) async fn run(primitive: Primitive, face: Face, call: Call, at: Situation, stage: &Stage) -> Verdict {
    let expected = expect(primitive, face, call, at);
    if let Expect::NotApplicable(why) = expected {
        return Verdict::NotApplicable(why);
    }
    if !stage.has(primitive.kind()) {
        return Verdict::Unsupported("the store has no such names");
    }
    primitive.play(face, call, (at, expected), stage).await;
    Verdict::Passed
}

async fn pool<P: Pool>(face: Face, call: Call, of: (Situation, Expect), stage: &Stage) {
    match face {
        Face::Tasks => play::<pools::Share<P>>(call, of, stage).await,
        Face::Threads => play::<pools::BlockingShare<P>>(call, of, stage).await,
    }
}

async fn play<S: Subject>(call: Call, (at, expected): (Situation, Expect), stage: &Stage) {
    let scene = scene::set::<S>(at, stage).await;
    act::act(call, expected, scene, stage).await;
}
