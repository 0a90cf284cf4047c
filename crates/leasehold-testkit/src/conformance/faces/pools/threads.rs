//! The pools, for threads.

use std::marker::PhantomData;
use std::time::Duration;

use leasehold::blocking::{self, Canceller};
use leasehold::{Error, Holder, Inspection, Lost, LostSignal, Owner, Released, Revoked, Token};

use leasehold_spec::Take;

use super::{PERMITS, Pool, Share, Side, any_guard, each, state};
use crate::conformance::faces::subject::{Held, Subject, on_a_thread};
use crate::conformance::stage::SOON;

/// A share of a name: the calls of its side. Only one of the two faces is used.
#[derive(Clone)]
pub(in crate::conformance::faces) struct BlockingShare<P> {
    lock: blocking::RwLock,
    semaphore: blocking::Semaphore,
    side: Side,
    pool: PhantomData<P>,
}

any_guard!(
    AnyBlockingGuard: blocking::ReadGuard,
    blocking::WriteGuard,
    blocking::UpgradeableReadGuard,
    blocking::Permit
);

impl<P: Pool> BlockingShare<P> {
    fn new(client: &blocking::Leasehold, name: &str, side: Side) -> Self {
        let (lock, semaphore) = (client.rw_lock(name), client.semaphore(name, PERMITS));
        Self { lock, semaphore, side, pool: PhantomData }
    }

    /// Makes a call on a thread that may block.
    async fn call<T: Send + 'static>(&self, call: impl FnOnce(Self) -> T + Send + 'static) -> T {
        let share = self.clone();
        on_a_thread(move || call(share)).await
    }
}

impl<P: Pool> Subject for BlockingShare<P> {
    type Client = blocking::Leasehold;
    type Held = AnyBlockingGuard;
    type OfTasks = Share<P>;

    const EXCLUDING: Take = P::EXCLUDING.take();
    const WAITS_INSIDE: bool = false;

    fn of(client: &blocking::Leasehold, name: &str) -> Self {
        Self::new(client, name, P::CALLER)
    }

    fn excluding(client: &blocking::Leasehold, name: &str) -> Self {
        Self::new(client, name, P::EXCLUDING)
    }

    fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease), semaphore: self.semaphore.lease(lease), ..self }
    }

    fn owner(self, _: &Owner) -> Self {
        unreachable!("no cell asks for it")
    }

    async fn acquire(&self) -> Result<AnyBlockingGuard, Error> {
        self.call(|share| match share.side {
            Side::Read => share.lock.read().map(AnyBlockingGuard::Read),
            Side::Write => share.lock.write().map(AnyBlockingGuard::Write),
            Side::UpgradeableRead => share.lock.upgradeable_read().map(AnyBlockingGuard::UpgradeableRead),
            Side::Permits(1) => share.semaphore.acquire().map(AnyBlockingGuard::Permit),
            Side::Permits(units) => share.semaphore.acquire_many(units).map(AnyBlockingGuard::Permit),
        })
        .await
    }

    async fn try_acquire(&self) -> Result<Option<AnyBlockingGuard>, Error> {
        self.call(|share| {
            Ok(match share.side {
                Side::Read => share.lock.try_read()?.map(AnyBlockingGuard::Read),
                Side::Write => share.lock.try_write()?.map(AnyBlockingGuard::Write),
                Side::UpgradeableRead => share.lock.try_upgradeable_read()?.map(AnyBlockingGuard::UpgradeableRead),
                Side::Permits(1) => share.semaphore.try_acquire()?.map(AnyBlockingGuard::Permit),
                Side::Permits(units) => share.semaphore.try_acquire_many(units)?.map(AnyBlockingGuard::Permit),
            })
        })
        .await
    }

    async fn try_acquire_for(&self, wait: Duration) -> Result<Option<AnyBlockingGuard>, Error> {
        self.call(move |share| {
            Ok(match share.side {
                Side::Read => share.lock.try_read_for(wait)?.map(AnyBlockingGuard::Read),
                Side::Write => share.lock.try_write_for(wait)?.map(AnyBlockingGuard::Write),
                Side::UpgradeableRead => {
                    share.lock.try_upgradeable_read_for(wait)?.map(AnyBlockingGuard::UpgradeableRead)
                }
                Side::Permits(1) => share.semaphore.try_acquire_for(wait)?.map(AnyBlockingGuard::Permit),
                Side::Permits(units) => {
                    share.semaphore.try_acquire_many_for(units, wait)?.map(AnyBlockingGuard::Permit)
                }
            })
        })
        .await
    }

    async fn acquire_or_cancel(&self, stop: &Canceller) -> Result<Option<AnyBlockingGuard>, Error> {
        let stop = stop.clone();
        self.call(move |share| {
            Ok(match share.side {
                Side::Read => share.lock.read_or_cancel(&stop)?.map(AnyBlockingGuard::Read),
                Side::Write => share.lock.write_or_cancel(&stop)?.map(AnyBlockingGuard::Write),
                Side::UpgradeableRead => {
                    share.lock.upgradeable_read_or_cancel(&stop)?.map(AnyBlockingGuard::UpgradeableRead)
                }
                Side::Permits(1) => share.semaphore.acquire_or_cancel(&stop)?.map(AnyBlockingGuard::Permit),
                Side::Permits(units) => {
                    share.semaphore.acquire_many_or_cancel(units, &stop)?.map(AnyBlockingGuard::Permit)
                }
            })
        })
        .await
    }

    async fn run(&self) -> Result<Token, Error> {
        unreachable!("no cell asks for it")
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        self.call(|share| match share.side {
            Side::Permits(_) => share.semaphore.inspect(),
            Side::Read | Side::Write | Side::UpgradeableRead => share.lock.inspect(),
        })
        .await
    }

    async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked, Error> {
        let holder = holder.clone();
        self.call(move |share| match share.side {
            Side::Permits(_) => share.semaphore.revoke(&holder, grace),
            Side::Read | Side::Write | Side::UpgradeableRead => share.lock.revoke(&holder, grace),
        })
        .await
    }
}

impl Held for AnyBlockingGuard {
    state!();

    async fn lost(&self) -> Lost {
        let guard = self;
        // The runtime of a cell has spare threads for its other tasks.
        tokio::task::block_in_place(|| each!(guard => guard.wait_lost(SOON))).expect("notified in time")
    }

    fn signal(&self) -> Option<LostSignal> {
        None
    }

    async fn release(self) -> Released {
        on_a_thread(move || {
            let guard = self;
            each!(guard => guard.release())
        })
        .await
        .expect("an answer")
    }
}
