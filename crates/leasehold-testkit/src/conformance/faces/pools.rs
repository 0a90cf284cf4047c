//! The pools: the sides of a read-write lock, and the permits of a semaphore. `pools/threads.rs` has the same for threads.

mod threads;

use std::marker::PhantomData;
use std::time::Duration;

use leasehold::blocking::Canceller;
use leasehold::{
    Error, Holder, Inspection, Leasehold, Lost, LostSignal, Owner, Permit, ReadGuard, Released, Revoked, RwLock,
    Semaphore, Token, UpgradeableReadGuard, WriteGuard,
};

use leasehold_spec::Take;

pub(super) use self::threads::BlockingShare;
use super::subject::{Held, Subject};
use super::{Call, Face, Meets, Situation};
use crate::conformance::stage::soon;

/// The number of permits of a semaphore here.
const PERMITS: u32 = 3;

/// The share of a pool that a call takes.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Read,
    Write,
    UpgradeableRead,
    Permits(u32),
}

/// A primitive: what its caller takes, and what excludes that.
pub(super) trait Pool: Clone + Send + Sync + 'static {
    const CALLER: Side;
    const EXCLUDING: Side;
}

macro_rules! pools {
    ($($(#[$about:meta])* $pool:ident: $caller:expr, beside $excluding:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Clone)]
            pub(super) struct $pool;

            impl Pool for $pool {
                const CALLER: Side = $caller;
                const EXCLUDING: Side = $excluding;
            }
        )*
    };
}

pools! {
    /// A reader, beside a writer.
    Read: Side::Read, beside Side::Write;
    /// A writer, beside another one.
    Write: Side::Write, beside Side::Write;
    /// A reader that may be upgraded, beside another one.
    UpgradeableRead: Side::UpgradeableRead, beside Side::UpgradeableRead;
    /// One permit, beside a holder of all.
    Permits: Side::Permits(1), beside Side::Permits(PERMITS);
}

impl Side {
    const fn take(self) -> Take {
        match self {
            Self::Read => Take::READ,
            Self::Write => Take::WRITE,
            Self::UpgradeableRead => Take::UPGRADEABLE_READ,
            Self::Permits(units) => Take::permits(units, PERMITS),
        }
    }
}

/// Returns what a caller meets that takes its side.
pub(super) const fn meets(at: Situation) -> Meets {
    match at {
        Situation::New | Situation::Free | Situation::Lapsed => Meets::Nothing,
        Situation::HeldBySelf
        | Situation::HeldByOther
        | Situation::HeldAndQueued
        | Situation::Revoked
        | Situation::CancelledWaiter => Meets::Exclusion,
        Situation::HeldByOtherOwner | Situation::HeldByOwner | Situation::OwnerWaits | Situation::LostByOwner => {
            Meets::NoOwners
        }
        Situation::BadName | Situation::BadLease => Meets::BadInput,
        Situation::Closed => Meets::ClosedClient,
    }
}

/// Returns why a face of a pool lacks this call, if it does.
pub(super) const fn lacks(face: Face, call: Call) -> Option<&'static str> {
    match (face, call) {
        (Face::Tasks | Face::Threads, Call::Run) => Some("a pool has no `run`"),
        (Face::Tasks, Call::LockOrCancel) => Some("a task's wait is canceled by dropping its future"),
        (Face::Threads, Call::LockOrCancel)
        | (
            Face::Tasks | Face::Threads,
            Call::Lock
            | Call::TryLock
            | Call::TryLockFor
            | Call::Inspect
            | Call::Revoke
            | Call::Release
            | Call::Drop
            | Call::Close,
        ) => None,
    }
}

/// A share of a name: the calls of its side. Only one of the two faces is used.
#[derive(Clone)]
pub(super) struct Share<P> {
    lock: RwLock,
    semaphore: Semaphore,
    side: Side,
    pool: PhantomData<P>,
}

any_guard!(AnyGuard: ReadGuard, WriteGuard, UpgradeableReadGuard, Permit);

impl<P: Pool> Share<P> {
    fn new(client: &Leasehold, name: &str, side: Side) -> Self {
        let (lock, semaphore) = (client.rw_lock(name), client.semaphore(name, PERMITS));
        Self { lock, semaphore, side, pool: PhantomData }
    }
}

impl<P: Pool> Subject for Share<P> {
    type Client = Leasehold;
    type Held = AnyGuard;
    type OfTasks = Self;

    const EXCLUDING: Take = P::EXCLUDING.take();
    const WAITS_INSIDE: bool = false;

    fn of(client: &Leasehold, name: &str) -> Self {
        Self::new(client, name, P::CALLER)
    }

    fn excluding(client: &Leasehold, name: &str) -> Self {
        Self::new(client, name, P::EXCLUDING)
    }

    fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease), semaphore: self.semaphore.lease(lease), ..self }
    }

    fn owner(self, _: &Owner) -> Self {
        unreachable!("no cell asks for it")
    }

    async fn acquire(&self) -> Result<AnyGuard, Error> {
        match self.side {
            Side::Read => self.lock.read().await.map(AnyGuard::Read),
            Side::Write => self.lock.write().await.map(AnyGuard::Write),
            Side::UpgradeableRead => self.lock.upgradeable_read().await.map(AnyGuard::UpgradeableRead),
            Side::Permits(1) => self.semaphore.acquire().await.map(AnyGuard::Permit),
            Side::Permits(units) => self.semaphore.acquire_many(units).await.map(AnyGuard::Permit),
        }
    }

    async fn try_acquire(&self) -> Result<Option<AnyGuard>, Error> {
        Ok(match self.side {
            Side::Read => self.lock.try_read().await?.map(AnyGuard::Read),
            Side::Write => self.lock.try_write().await?.map(AnyGuard::Write),
            Side::UpgradeableRead => self.lock.try_upgradeable_read().await?.map(AnyGuard::UpgradeableRead),
            Side::Permits(1) => self.semaphore.try_acquire().await?.map(AnyGuard::Permit),
            Side::Permits(units) => self.semaphore.try_acquire_many(units).await?.map(AnyGuard::Permit),
        })
    }

    async fn try_acquire_for(&self, wait: Duration) -> Result<Option<AnyGuard>, Error> {
        Ok(match self.side {
            Side::Read => self.lock.try_read_for(wait).await?.map(AnyGuard::Read),
            Side::Write => self.lock.try_write_for(wait).await?.map(AnyGuard::Write),
            Side::UpgradeableRead => self.lock.try_upgradeable_read_for(wait).await?.map(AnyGuard::UpgradeableRead),
            Side::Permits(1) => self.semaphore.try_acquire_for(wait).await?.map(AnyGuard::Permit),
            Side::Permits(units) => self.semaphore.try_acquire_many_for(units, wait).await?.map(AnyGuard::Permit),
        })
    }

    async fn acquire_or_cancel(&self, _: &Canceller) -> Result<Option<AnyGuard>, Error> {
        unreachable!("no cell asks for it")
    }

    async fn run(&self) -> Result<Token, Error> {
        unreachable!("no cell asks for it")
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        match self.side {
            Side::Permits(_) => self.semaphore.inspect().await,
            Side::Read | Side::Write | Side::UpgradeableRead => self.lock.inspect().await,
        }
    }

    async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked, Error> {
        match self.side {
            Side::Permits(_) => self.semaphore.revoke(holder, grace).await,
            Side::Read | Side::Write | Side::UpgradeableRead => self.lock.revoke(holder, grace).await,
        }
    }
}

impl Held for AnyGuard {
    state!();

    async fn lost(&self) -> Lost {
        let guard = self;
        soon("it is notified", each!(guard => guard.lost())).await
    }

    fn signal(&self) -> Option<LostSignal> {
        let guard = self;
        Some(each!(guard => guard.lost()))
    }

    async fn release(self) -> Released {
        let guard = self;
        each!(guard => guard.release().await).expect("an answer")
    }
}

/// Writes the guard of any side.
macro_rules! any_guard {
    ($guard:ident: $read:ty, $write:ty, $upgradeable:ty, $permit:ty) => {
        pub(in crate::conformance::faces) enum $guard {
            Read($read),
            Write($write),
            UpgradeableRead($upgradeable),
            Permit($permit),
        }
    };
}
pub(super) use any_guard;

macro_rules! each {
    ($guard:ident => $result:expr) => {
        match $guard {
            Self::Read($guard) => $result,
            Self::Write($guard) => $result,
            Self::UpgradeableRead($guard) => $result,
            Self::Permit($guard) => $result,
        }
    };
}

pub(super) use each;

/// Writes the methods of `Held` that every guard has.
macro_rules! state {
    () => {
        fn token(&self) -> Token {
            let guard = self;
            each!(guard => guard.token())
        }

        fn name(&self) -> &str {
            let guard = self;
            each!(guard => guard.name())
        }

        fn check(&self) -> Result<Token, Lost> {
            let guard = self;
            each!(guard => guard.check())
        }

        fn remaining(&self) -> Duration {
            let guard = self;
            each!(guard => guard.remaining())
        }
    };
}
pub(super) use state;
