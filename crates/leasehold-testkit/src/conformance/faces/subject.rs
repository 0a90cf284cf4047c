//! The interface between a primitive and the suite: scenes and acts are written once. Each primitive has a file that
//! implements [`Subject`] and [`Held`] for its types, once for tasks and once for threads. Every answer is awaited, also
//! where the call blocks a thread.

use std::time::Duration;

use leasehold::blocking::{self, Canceller};
use leasehold::{Closed, Error, Holder, Inspection, Leasehold, Lost, LostSignal, Owner, Released, Revoked, Token};

use leasehold_spec::Take;

use crate::conformance::HandOver;
use crate::conformance::stage::Stage;

/// The take of a caller on a name. The futures that acquire can be spawned.
pub(super) trait Subject: Clone + Send + Sync + 'static {
    type Client: Client;
    type Held: Held;
    /// The same primitive for tasks, for a witness and for waiters whose futures are dropped.
    type OfTasks: Subject<Client = Leasehold>;

    /// The take of [`Self::excluding`], for a client below the faces.
    const EXCLUDING: Take;
    /// Whether a caller whose own client holds waits in its client, and not at the store.
    const WAITS_INSIDE: bool;

    /// Returns the caller's take of this name.
    fn of(client: &Self::Client, name: &str) -> Self;
    /// Returns a take of this name beside which the caller's own take is not granted: the holders of a situation have
    /// it.
    fn excluding(client: &Self::Client, name: &str) -> Self;
    fn lease(self, lease: Duration) -> Self;
    fn owner(self, owner: &Owner) -> Self;

    fn acquire(&self) -> impl Future<Output = Result<Self::Held, Error>> + Send;
    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Held>, Error>> + Send;
    fn try_acquire_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Self::Held>, Error>> + Send;
    /// Only threads have it.
    fn acquire_or_cancel(&self, stop: &Canceller) -> impl Future<Output = Result<Option<Self::Held>, Error>> + Send;
    /// Checks the guard during the work, and returns the token under which it worked.
    fn run(&self) -> impl Future<Output = Result<Token, Error>> + Send;

    async fn inspect(&self) -> Result<Inspection, Error>;
    async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked, Error>;
}

/// The guard of a subject.
pub(super) trait Held: Send + Sync + 'static {
    fn token(&self) -> Token;
    fn name(&self) -> &str;
    fn check(&self) -> Result<Token, Lost>;
    fn remaining(&self) -> Duration;
    /// Waits for the loss, and returns its reason.
    async fn lost(&self) -> Lost;
    /// Returns a signal that outlives the guard: only tasks have one.
    fn signal(&self) -> Option<LostSignal>;
    async fn release(self) -> Released;

    fn is_valid(&self) -> bool {
        self.check().is_ok()
    }
}

/// A client of one face.
pub(super) trait Client: Clone {
    async fn connect(stage: &Stage, label: &str) -> Self;
    async fn close(self) -> Closed;
}

impl Client for Leasehold {
    async fn connect(stage: &Stage, label: &str) -> Self {
        stage.client(label).await
    }

    async fn close(self) -> Closed {
        self.close().await
    }
}

impl Client for blocking::Leasehold {
    async fn connect(stage: &Stage, label: &str) -> Self {
        let builder = Self::builder(stage.url()).holder(label);
        let builder = match stage.running().hand_over() {
            HandOver::Local => builder,
            HandOver::Remote => builder.remote_hand_over(),
        };
        let client = on_a_thread(|| builder.connect()).await.expect("connected");
        stage.keep(client.clone());
        client
    }

    async fn close(self) -> Closed {
        on_a_thread(|| self.close()).await
    }
}

pub(super) async fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.expect("no panic")
}
