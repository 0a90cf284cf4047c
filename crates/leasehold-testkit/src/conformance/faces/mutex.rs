//! The mutex.

use std::time::Duration;

use leasehold::blocking::{self, Canceller};
use leasehold::{
    Error, Guard, Holder, Inspection, Leasehold, Lost, LostSignal, Mutex, Owner, Released, Revoked, Token,
};

use leasehold_spec::Take;

use super::subject::{Held, Subject, on_a_thread};
use super::{Call, Face, Meets, Situation};
use crate::conformance::stage::{SOON, soon};

/// Returns what a caller meets that locks the mutex.
pub(super) const fn meets(at: Situation) -> Meets {
    match at {
        Situation::New | Situation::Free | Situation::Lapsed => Meets::Nothing,
        Situation::HeldBySelf
        | Situation::HeldByOtherOwner
        | Situation::HeldByOther
        | Situation::HeldAndQueued
        | Situation::Revoked
        | Situation::CancelledWaiter => Meets::Exclusion,
        Situation::HeldByOwner => Meets::OwnGrant,
        Situation::OwnerWaits => Meets::OwnWaiter,
        Situation::LostByOwner => Meets::OwnLoss,
        Situation::BadName | Situation::BadLease => Meets::BadInput,
        Situation::Closed => Meets::ClosedClient,
    }
}

/// Returns why a face of the mutex lacks this call, if it does.
pub(super) const fn lacks(face: Face, call: Call) -> Option<&'static str> {
    match (face, call) {
        (Face::Tasks, Call::LockOrCancel) => Some("a task's wait is canceled by dropping its future"),
        (Face::Threads, Call::LockOrCancel)
        | (
            Face::Tasks | Face::Threads,
            Call::Lock
            | Call::TryLock
            | Call::TryLockFor
            | Call::Run
            | Call::Inspect
            | Call::Revoke
            | Call::Release
            | Call::Drop
            | Call::Close,
        ) => None,
    }
}

impl Subject for Mutex {
    type Client = Leasehold;
    type Held = Guard;
    type OfTasks = Self;

    const EXCLUDING: Take = Take::MUTEX;
    const WAITS_INSIDE: bool = true;

    fn of(client: &Leasehold, name: &str) -> Self {
        client.mutex(name)
    }

    fn excluding(client: &Leasehold, name: &str) -> Self {
        client.mutex(name)
    }

    fn lease(self, lease: Duration) -> Self {
        self.lease(lease)
    }

    fn owner(self, owner: &Owner) -> Self {
        self.owner(owner)
    }

    async fn acquire(&self) -> Result<Guard, Error> {
        self.lock().await
    }

    async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_lock().await
    }

    async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        self.try_lock_for(wait).await
    }

    async fn acquire_or_cancel(&self, _: &Canceller) -> Result<Option<Guard>, Error> {
        unreachable!("no cell asks for it")
    }

    async fn run(&self) -> Result<Token, Error> {
        self.run(async |guard: &Guard| guard.check().expect("held while it works")).await
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        self.inspect().await
    }

    async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked, Error> {
        self.revoke(holder, grace).await
    }
}

impl Subject for blocking::Mutex {
    type Client = blocking::Leasehold;
    type Held = blocking::Guard;
    type OfTasks = Mutex;

    const EXCLUDING: Take = Take::MUTEX;
    const WAITS_INSIDE: bool = true;

    fn of(client: &blocking::Leasehold, name: &str) -> Self {
        client.mutex(name)
    }

    fn excluding(client: &blocking::Leasehold, name: &str) -> Self {
        client.mutex(name)
    }

    fn lease(self, lease: Duration) -> Self {
        self.lease(lease)
    }

    fn owner(self, owner: &Owner) -> Self {
        self.owner(owner)
    }

    async fn acquire(&self) -> Result<blocking::Guard, Error> {
        let mutex = self.clone();
        on_a_thread(move || mutex.lock()).await
    }

    async fn try_acquire(&self) -> Result<Option<blocking::Guard>, Error> {
        let mutex = self.clone();
        on_a_thread(move || mutex.try_lock()).await
    }

    async fn try_acquire_for(&self, wait: Duration) -> Result<Option<blocking::Guard>, Error> {
        let mutex = self.clone();
        on_a_thread(move || mutex.try_lock_for(wait)).await
    }

    async fn acquire_or_cancel(&self, stop: &Canceller) -> Result<Option<blocking::Guard>, Error> {
        let (mutex, stop) = (self.clone(), stop.clone());
        on_a_thread(move || mutex.lock_or_cancel(&stop)).await
    }

    async fn run(&self) -> Result<Token, Error> {
        let mutex = self.clone();
        let work = |guard: &blocking::Guard| guard.check().expect("held while it works");
        on_a_thread(move || mutex.run(work)).await
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        let mutex = self.clone();
        on_a_thread(move || mutex.inspect()).await
    }

    async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked, Error> {
        let (mutex, holder) = (self.clone(), holder.clone());
        on_a_thread(move || mutex.revoke(&holder, grace)).await
    }
}

impl Held for Guard {
    fn token(&self) -> Token {
        self.token()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn check(&self) -> Result<Token, Lost> {
        self.check()
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }

    async fn lost(&self) -> Lost {
        soon("it is notified", self.lost()).await
    }

    fn signal(&self) -> Option<LostSignal> {
        Some(self.lost())
    }

    async fn release(self) -> Released {
        self.release().await.expect("an answer")
    }
}

impl Held for blocking::Guard {
    fn token(&self) -> Token {
        self.token()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn check(&self) -> Result<Token, Lost> {
        self.check()
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }

    async fn lost(&self) -> Lost {
        // The runtime of a cell has spare threads for its other tasks.
        tokio::task::block_in_place(|| self.wait_lost(SOON)).expect("notified in time")
    }

    fn signal(&self) -> Option<LostSignal> {
        None
    }

    async fn release(self) -> Released {
        on_a_thread(move || self.release()).await.expect("an answer")
    }
}
