//! A client of either face, so that a scene and an act are written once. Every answer is awaited, also where the call
//! blocks a thread.

use std::time::Duration;

use leasehold::blocking::{self, Canceller};
use leasehold::{
    Closed, Error, Guard, Holder, Inspection, Leasehold, Lost, LostSignal, Mutex, Owner, Released, Revoked, Token,
};

use super::Face;
use crate::conformance::HandOver;
use crate::conformance::stage::{SOON, Stage, soon};

#[derive(Clone)]
pub(super) enum Party {
    Tasks(Leasehold),
    Threads(blocking::Leasehold),
}

#[derive(Clone)]
pub(super) enum Lock {
    Tasks(Mutex),
    Threads(blocking::Mutex),
}

pub(super) enum Held {
    Tasks(Guard),
    Threads(blocking::Guard),
}

async fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.expect("no panic")
}

impl Party {
    pub(super) async fn connect(face: Face, stage: &Stage, label: &str) -> Self {
        match face {
            Face::Tasks => Self::Tasks(stage.client(label).await),
            Face::Threads => {
                let builder = blocking::Leasehold::builder(stage.url()).holder(label);
                let builder = match stage.running().hand_over() {
                    HandOver::Local => builder,
                    HandOver::Remote => builder.remote_hand_over(),
                };
                let client = on_a_thread(|| builder.connect()).await.expect("connected");
                stage.keep(client.clone());
                Self::Threads(client)
            }
        }
    }

    pub(super) fn mutex(&self, name: &str) -> Lock {
        match self {
            Self::Tasks(client) => Lock::Tasks(client.mutex(name)),
            Self::Threads(client) => Lock::Threads(client.mutex(name)),
        }
    }

    pub(super) async fn close(self) -> Closed {
        match self {
            Self::Tasks(client) => client.close().await,
            Self::Threads(client) => on_a_thread(|| client.close()).await,
        }
    }
}

impl Lock {
    pub(super) fn lease(self, lease: Duration) -> Self {
        match self {
            Self::Tasks(mutex) => Self::Tasks(mutex.lease(lease)),
            Self::Threads(mutex) => Self::Threads(mutex.lease(lease)),
        }
    }

    pub(super) fn owner(self, owner: &Owner) -> Self {
        match self {
            Self::Tasks(mutex) => Self::Tasks(mutex.owner(owner)),
            Self::Threads(mutex) => Self::Threads(mutex.owner(owner)),
        }
    }

    pub(super) async fn lock(&self) -> Result<Held, Error> {
        match self.clone() {
            Self::Tasks(mutex) => mutex.lock().await.map(Held::Tasks),
            Self::Threads(mutex) => on_a_thread(move || mutex.lock()).await.map(Held::Threads),
        }
    }

    pub(super) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        Ok(match self.clone() {
            Self::Tasks(mutex) => mutex.try_lock().await?.map(Held::Tasks),
            Self::Threads(mutex) => on_a_thread(move || mutex.try_lock()).await?.map(Held::Threads),
        })
    }

    pub(super) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Held>, Error> {
        Ok(match self.clone() {
            Self::Tasks(mutex) => mutex.try_lock_for(wait).await?.map(Held::Tasks),
            Self::Threads(mutex) => on_a_thread(move || mutex.try_lock_for(wait)).await?.map(Held::Threads),
        })
    }

    pub(super) async fn lock_or_cancel(&self, stop: &Canceller) -> Result<Option<Held>, Error> {
        match self.clone() {
            Self::Tasks(_) => unreachable!("no cell asks for it"),
            Self::Threads(mutex) => {
                let stop = stop.clone();
                Ok(on_a_thread(move || mutex.lock_or_cancel(&stop)).await?.map(Held::Threads))
            }
        }
    }

    /// Checks the guard during the work, and returns the token under which it worked.
    pub(super) async fn run(&self) -> Result<Token, Error> {
        match self.clone() {
            Self::Tasks(mutex) => mutex.run(async |guard: &Guard| guard.check().expect("held while it works")).await,
            Self::Threads(mutex) => {
                let work = |guard: &blocking::Guard| guard.check().expect("held while it works");
                on_a_thread(move || mutex.run(work)).await
            }
        }
    }

    pub(super) async fn inspect(&self) -> Result<Inspection, Error> {
        match self.clone() {
            Self::Tasks(mutex) => mutex.inspect().await,
            Self::Threads(mutex) => on_a_thread(move || mutex.inspect()).await,
        }
    }

    pub(super) async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked, Error> {
        match self.clone() {
            Self::Tasks(mutex) => mutex.revoke(holder, grace).await,
            Self::Threads(mutex) => {
                let holder = holder.clone();
                on_a_thread(move || mutex.revoke(&holder, grace)).await
            }
        }
    }
}

impl Held {
    pub(super) fn token(&self) -> Token {
        match self {
            Self::Tasks(guard) => guard.token(),
            Self::Threads(guard) => guard.token(),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Tasks(guard) => guard.name(),
            Self::Threads(guard) => guard.name(),
        }
    }

    pub(super) fn check(&self) -> Result<Token, Lost> {
        match self {
            Self::Tasks(guard) => guard.check(),
            Self::Threads(guard) => guard.check(),
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Tasks(guard) => guard.remaining(),
            Self::Threads(guard) => guard.remaining(),
        }
    }

    /// Waits for the loss, and returns its reason.
    pub(super) async fn lost(&self) -> Lost {
        match self {
            Self::Tasks(guard) => soon("it is notified", guard.lost()).await,
            // The runtime of a cell has spare threads for its other tasks.
            Self::Threads(guard) => tokio::task::block_in_place(|| guard.wait_lost(SOON)).expect("notified in time"),
        }
    }

    /// Returns a signal that outlives the guard: only tasks have one.
    pub(super) fn signal(&self) -> Option<LostSignal> {
        match self {
            Self::Tasks(guard) => Some(guard.lost()),
            Self::Threads(_) => None,
        }
    }

    pub(super) async fn release(self) -> Released {
        match self {
            Self::Tasks(guard) => guard.release().await.expect("an answer"),
            Self::Threads(guard) => on_a_thread(move || guard.release()).await.expect("an answer"),
        }
    }
}
