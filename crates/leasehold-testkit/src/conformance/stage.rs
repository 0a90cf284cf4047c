//! The stage of a cell: its names and clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::seam::{Real, StoreProfile, choose};
use leasehold::{Builder, Guard, Holder, Inspection, Leasehold, Released, Token, blocking};
use leasehold_spec::{Kind, limits};
use tokio::sync::watch;

use super::late::Late;
use super::{Backend, Cell, HandOver, Primitive, Running};

/// The time limit of everything that is to happen, on a machine that has ten other things to do. (The slowest is a crowd
/// of threads that must all have had a turn: a second or two, with TLS and an unoptimized build.)
pub(super) const SOON: Duration = Duration::from_secs(60);
/// The interval of polls of a state that sends no event.
const POLL: Duration = Duration::from_millis(2);

pub(super) struct Stage {
    running: Arc<Running>,
    name: String,
    primitive: Primitive,
    clients: Mutex<Vec<Leasehold>>,
    blocking: Mutex<Vec<blocking::Leasehold>>,
}

impl Stage {
    pub(super) fn new(running: Arc<Running>, cell: Cell) -> Self {
        let (clients, blocking) = (Mutex::default(), Mutex::default());
        Self { running, name: cell.to_string(), primitive: cell.primitive(), clients, blocking }
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    /// Whether the store has names of this kind.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.profile().kinds.contains(&kind)
    }

    pub(super) fn profile(&self) -> StoreProfile {
        choose(self.url(), None, &Real::world()).expect("a good URL").profile()
    }

    pub(super) fn url(&self) -> &str {
        self.running.url()
    }

    /// Prepares these prefixes, which nobody has used yet: a quorum would put them in quarantine.
    pub(super) async fn begin_below(&self, prefixes: [&str; 2]) {
        if self.running.backend() == Backend::Quorum {
            for prefix in prefixes {
                let url = format!("{}&prefix={prefix}", self.url());
                leasehold::quorum::begin(&url).await.expect("all nodes are there");
            }
        }
    }

    /// Returns the store with a limit of leases below the default, where it can have one, and the default lease under
    /// that limit. A quorum of the same nodes with another limit has records of its own.
    pub(super) async fn of_short_leases(&self) -> (String, Duration) {
        const SHORT: Duration = Duration::from_secs(5);
        if self.running.backend() != Backend::Quorum {
            return (self.url().to_owned(), Duration::from_millis(limits::LEASE_DEFAULT_MS));
        }
        let (nodes, _limit) = self.url().split_once("&max_lease=").expect("the limit comes last");
        let url = format!("{nodes}&max_lease=5s&prefix=short:");
        leasehold::quorum::begin(&url).await.expect("all nodes are there");
        (url, SHORT)
    }

    /// Returns the holder after this one. The store grants it in the same step; a quorum calls the next client instead.
    pub(super) async fn next_holder(&self, client: &Leasehold, token: Token) -> Holder {
        let next = async || self.inspect(client).await.holder().cloned().filter(|holder| holder.token > token);
        if self.running.backend() == Backend::Quorum {
            eventually("the next one was called", async || next().await.is_some()).await;
        }
        next().await.expect("the next one, in the same step")
    }

    /// Returns the cell's own name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a further name of the cell.
    pub(super) fn name_of(&self, part: impl std::fmt::Display) -> String {
        format!("{}: {part}", self.name)
    }

    /// Connects a client with this label. The end of the cell closes it.
    pub(super) async fn client(&self, label: &str) -> Leasehold {
        self.client_with(|builder| builder.holder(label)).await
    }

    pub(super) async fn client_with(&self, build: impl FnOnce(Builder) -> Builder) -> Leasehold {
        let client = self.builder(build).connect().await.expect("connected");
        self.clients().push(client.clone());
        client
    }

    /// Connects a client whose renewals pass once `renewals` is true.
    pub(super) async fn late_client(
        &self,
        build: impl FnOnce(Builder) -> Builder,
        renewals: watch::Receiver<bool>,
    ) -> Leasehold {
        let world = Real::world();
        let store = Late::new(choose(self.url(), None, &world).expect("a good URL"), renewals);
        let client = self.builder(build).connect_to(Arc::new(store), world).await.expect("connected");
        self.clients().push(client.clone());
        client
    }

    fn builder(&self, build: impl FnOnce(Builder) -> Builder) -> Builder {
        let builder = build(Leasehold::builder(self.url()));
        match self.running.hand_over() {
            HandOver::Local => builder,
            HandOver::Remote => builder.remote_hand_over(),
        }
    }

    /// Keeps a client for the end of the cell, which closes it.
    pub(super) fn keep(&self, client: blocking::Leasehold) {
        self.blocking.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    pub(super) async fn inspect(&self, client: &Leasehold) -> Inspection {
        self.primitive.inspect(client, &self.name).await
    }

    /// Waits until the cell's name has this many waiters.
    pub(super) async fn waiters(&self, client: &Leasehold, count: usize) {
        eventually("the expected number of clients waits", async || self.inspect(client).await.waiters == count).await;
    }

    /// Checks that nothing is left: closing finds every grant released, and the name is free.
    pub(super) async fn end(&self) {
        let clients = std::mem::take(&mut *self.clients());
        for client in clients {
            let closed = client.close().await;
            assert!(closed.unconfirmed().is_empty(), "not given back: {closed:?}");
        }
        let blocking = std::mem::take(&mut *self.blocking.lock().unwrap_or_else(PoisonError::into_inner));
        for client in blocking {
            let closed = tokio::task::spawn_blocking(|| client.close()).await.expect("no panic");
            assert!(closed.unconfirmed().is_empty(), "not given back: {closed:?}");
        }
        let witness = self.client("witness").await;
        let left = self.inspect(&witness).await;
        assert!(left.holder_count == 0 && left.units == 0 && left.waiters == 0, "left behind: {left:?}");
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Leasehold>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Polls until `done`, for a state that sends no event.
pub(super) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let looking = async {
        // Ever more rarely: to look at a thousand waiters keeps a small machine busy.
        let mut pause = POLL;
        while !done().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(32 * POLL);
        }
    };
    assert!(tokio::time::timeout(SOON, looking).await.is_ok(), "in vain: {what}");
}

/// Awaits an event that is to happen soon.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("in vain: {what}"),
    }
}

/// Waits for a renewal. Returns the remaining time just before.
pub(super) async fn renewal(guard: &Guard, within: Duration) -> Duration {
    let mut least = guard.remaining();
    let waiting = async {
        loop {
            tokio::time::sleep(POLL).await;
            let remaining = guard.remaining();
            if remaining > least {
                return least;
            }
            least = remaining;
        }
    };
    match tokio::time::timeout(within, waiting).await {
        Ok(least) => least,
        Err(_) => panic!("not renewed in {within:?}"),
    }
}

/// Releases, and expects that the release is confirmed.
pub(super) async fn release(guard: Guard) {
    assert_eq!(guard.release().await.expect("an answer"), Released::Released);
}
