//! One client of one store.
//!
//! A lock library that runs only on its caller's runtime loses leases whenever that runtime is busy, and leaks grants
//! whenever a future is dropped. So a session has two connections and one owner:
//!
//! - Callers send their own acquire and release on a connection that their runtime drives: the short way (P17).
//! - A thread of the session sends everything that must happen without callers (renewals, re-checks, returns, deadlines,
//!   reconnects), on a connection of its own that also carries the inbox. While grants come in quick succession, the inbox
//!   is with the callers ([`listen`](machine::listen)).
//! - Each attempt lives in the [machine](machine::Machine) from before its first request until its last confirmation,
//!   whatever becomes of its caller.
//!
//! The thread keeps no list of things to do: it asks the machine what is due. Callers change the machine, and wake the
//! thread only if something falls due before its next turn.
//!
//! Layers, each of which knows only those below it: this file · [`calls`] (the futures of callers) · [`transport`] (the
//! thread, the opening of connections) · [`shared`] (the lock) · [`machine`] (the protocol, without I/O) · [`local`] and
//! [`agenda`] (pure data) · [`hold`] (what a guard knows).

mod agenda;
mod bounds;
mod calls;
mod counters;
mod expiry;
mod hold;
mod inbox_keeper;
mod local;
mod machine;
mod shared;
mod terms;
mod transport;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::{Answer, GrantId, Inspection, Name, Op, Outcome, SessionId, Take, Token};
use tokio::sync::oneshot;

use self::bounds::ANSWER_MAX_US;
pub(crate) use self::bounds::{GIVEN_BACK_WITHIN_US, RETRY_US};
pub(crate) use self::calls::{Entered, Notice};
pub(crate) use self::hold::{Hold, Seat};
pub(crate) use self::machine::{HandOver, Lanes};
use self::machine::{close, condition, contact, count_down, guards, lower, renew, silent, upgrade};
use self::shared::Shared;
pub(crate) use self::terms::{Entry, QueueHint, Renewal, Terms, Wait};
pub(crate) use self::transport::thread::Start;
use self::transport::{lane, thread};
use crate::error::{Error, ErrorKind, Result};
use crate::inspection::NodeView;
use crate::lost::{LostReason, Released};
use crate::observe::{self, Call};
use crate::store::{Fault, Link, Store};
use crate::world::{Pending, World};

/// The handle that faces use.
pub(crate) struct Session {
    shared: Arc<Shared>,
}

impl Deref for Session {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Session {
    /// Connects, and returns the first error: a wrong URL, password or address is reported at once. When this returns, both
    /// connections are open and the inbox is proved. For a lazy session it means only that the first try has ended.
    pub(crate) async fn connect(
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        lanes: Lanes,
        hand_over: HandOver,
        start: Start,
    ) -> Result<Self> {
        let (shared, id) = Shared::new(store, world, lanes, hand_over);
        let opening = Opening(&shared);
        let (ready, is_ready) = oneshot::channel();
        let run = thread::run(Arc::clone(&shared), id, start, ready);
        shared.world.spawn_session(Box::pin(run)).map_err(no_thread)?;
        let is_open = lane::begin(&shared);
        is_ready.await.map_err(|_| Error::closed())??;
        if shared.with(|turn| contact::home(turn)).is_ok() {
            lane::await_open(&shared, is_open).await;
        }
        std::mem::forget(opening);
        Ok(Self { shared })
    }

    /// Acquires a lock: see [`calls::acquire`].
    pub(crate) async fn acquire(&self, name: &Name, terms: &Arc<Terms>, wait: Wait) -> Result<Option<Arc<Hold>>> {
        observe::call(Call::Acquire, name, calls::acquire(&self.shared, name, terms, wait)).await
    }

    /// Acquires several mutexes by one request: see [`calls::together`].
    pub(crate) async fn acquire_all(&self, members: &[(&Name, &Arc<Terms>)]) -> Result<Option<Vec<Arc<Hold>>>> {
        Box::pin(calls::together::acquire_all(&self.shared, members)).await
    }

    /// Upgrades a hold: see [`machine::upgrade`]. Returns `None` if others hold as well and `wait` is over.
    pub(crate) async fn upgrade(&self, hold: &Arc<Hold>, wait: Wait) -> Result<Option<Arc<Hold>>> {
        self.check_usable()?;
        let terms = self.with(|turn| upgrade::terms(turn, hold))?;
        let upgrade = calls::acquire(&self.shared, &hold.name, &terms, wait);
        let upgraded = observe::call(Call::Upgrade, &hold.name, upgrade).await;
        // The read hold may know better why it was lost: the store says only that it does not hold the grant.
        let known = hold.why_lost().filter(|reason| *reason != LostReason::Released);
        upgraded.map_err(|error| match known {
            Some(reason) if error.kind() == ErrorKind::Lost => hold.lost(reason).into(),
            _ => error,
        })
    }

    /// Enters the queue of a condition variable: see [`calls::enter_queue`].
    pub(crate) async fn enter_queue(&self, name: &Name, terms: &Arc<Terms>, wait: Wait) -> Result<Option<Entered<'_>>> {
        observe::call(Call::Acquire, name, calls::enter_queue(&self.shared, name, terms, wait)).await
    }

    /// Returns the terms on which the lock of a hold is acquired again: see [`machine::condition`].
    pub(crate) fn terms_again(&self, hold: &Hold) -> Result<Arc<Terms>> {
        self.check_usable()?;
        Ok(self.with(|turn| condition::terms_again(turn, hold))?)
    }

    /// Spends a notification, in the background: see [`machine::condition`].
    pub(crate) fn spend(&self, hold: &Hold) {
        if self.is_ours() {
            self.with(|turn| condition::spend(turn, hold));
        }
    }

    /// Counts a latch down: see [`machine::count_down`]. If the future is dropped, the request is repeated all
    /// the same.
    pub(crate) async fn count_down(&self, name: &Name, born: Token, counts: Option<GrantId>) -> Result<()> {
        self.check_surely_usable()?;
        let (caller, counted) = oneshot::channel();
        self.with(|turn| count_down::count_down(turn, name, (born, counts), caller))?;
        counted.await.map_err(|_| Error::closed())?.map(drop)
    }

    /// Gives a part of the units of a hold back, in the background: see [`machine::lower`].
    pub(crate) fn lower(&self, hold: &Hold, units: u32) {
        if self.is_ours() {
            self.with(|turn| lower::lower(turn, hold, units));
        }
    }

    /// Releases a lock: see [`calls::release`].
    pub(crate) async fn release(&self, hold: &Arc<Hold>) -> Result<Released> {
        observe::call(Call::Release, &hold.name, calls::release(&self.shared, hold)).await
    }

    /// Lengthens the lease of a hold to `lease_ms`, if the lease is renewed and was shorter. A renewal does it as soon as
    /// possible.
    pub(crate) fn lengthen(&self, hold: &Hold, lease_ms: u64) {
        self.with(|turn| renew::lengthen(turn, hold, lease_ms));
    }

    /// Carries out a request outside any attempt.
    pub(crate) async fn ask(&self, call: Call, name: &Name, op: Op) -> Result<Outcome> {
        Ok(self.answer(call, name, op).await?.0.outcome)
    }

    /// Carries out a request about a lease that is held. If the store replies that it is not, the hold ends.
    pub(crate) async fn ask_about(&self, call: Call, hold: &Hold, op: Op) -> Result<Outcome> {
        let (answer, link) = self.answer(call, &hold.name, op).await?;
        if let Outcome::Lost { how } = answer.outcome {
            self.with(|turn| guards::lose(turn, hold, (how, answer.highest), &*link));
        }
        Ok(answer.outcome)
    }

    async fn answer(&self, call: Call, name: &Name, op: Op) -> Result<(Answer, Arc<dyn Link>)> {
        let guess = self.with(|turn| turn.ledger.names.guess(name));
        let asking = self.exchange(|link| link.apply(name, &op, guess));
        let (answer, link, sent_us) = observe::call(call, name, asking).await?;
        self.note(name, &answer, &*link, sent_us);
        Ok((answer, link))
    }

    /// Notes what an answer outside any attempt says about the name.
    fn note(&self, name: &Name, answer: &Answer, link: &dyn Link, sent_us: u64) {
        self.with(|turn| contact::note(turn, name, answer, link, sent_us));
    }

    /// Returns every name that has a record.
    pub(crate) async fn names(&self) -> Result<BTreeSet<Name>> {
        let mut names = BTreeSet::new();
        let mut from = 0;
        loop {
            let ((page, next), ..) = self.exchange(|link| link.names(from)).await?;
            names.extend(page);
            if next == 0 {
                return Ok(names);
            }
            from = next;
        }
    }

    /// Returns the state of a name, and the view of each node, if the store has nodes.
    pub(crate) async fn inspect(&self, name: &Name) -> Result<(Inspection, Vec<NodeView>)> {
        let guess = self.with(|turn| turn.ledger.names.guess(name));
        let asking = self.exchange(|link| link.inspect(name, guess));
        let ((answer, nodes), link, sent_us) = observe::call(Call::Inspect, name, asking).await?;
        self.note(name, &answer, &*link, sent_us);
        match answer.outcome {
            Outcome::Inspected(inspection) => Ok((inspection, nodes)),
            _ => Err(Error::new(ErrorKind::Store, "unexpected reply of the store to inspect")),
        }
    }

    /// Makes one exchange on which nothing of this session depends. Returns the answer, its connection, and when it was
    /// asked. It uses the session's connection: such a call is not urgent, and a blocked runtime cannot stop it there.
    async fn exchange<T>(
        &self,
        ask: impl FnOnce(&dyn Link) -> Pending<Result<T, Fault>>,
    ) -> Result<(T, Arc<dyn Link>, u64)> {
        self.check_surely_usable()?;
        let link = self.with(|turn| contact::home(turn))?;
        let sent_us = self.world.now_us();
        match self.within(ANSWER_MAX_US, ask(&*link)).await {
            Some(Ok(answer)) => Ok((answer, link, sent_us)),
            Some(Err(Fault::Gone(error) | Fault::Undecided(error))) => Err(error.may_act()),
            Some(Err(Fault::Damaged(error))) => {
                self.with(|turn| contact::doubt(turn, &link));
                Err(error.may_act())
            }
            Some(Err(Fault::Refused(error) | Fault::NoMemory(error))) => Err(error),
            None => {
                self.with(|turn| contact::doubt(turn, &link));
                Err(self.store.silence().unwrap_or_else(silent).may_act())
            }
        }
    }

    /// See [`Store::life`].
    pub(crate) fn life(&self) -> Option<std::os::fd::OwnedFd> {
        self.store.life().filter(|_| self.is_surely_ours())
    }

    /// Waits until everything is returned, within bounds. Returns the names of the leases that were not returned.
    pub(crate) async fn closed(&self) -> Vec<Name> {
        if !self.is_surely_ours() {
            return Vec::new(); // The thread of the parent process would never signal.
        }
        let (signal, is_closed) = oneshot::channel();
        self.with(|turn| close::await_end(turn, signal));
        let _closed_or_too_late = self.within(GIVEN_BACK_WITHIN_US, is_closed).await;
        self.with(|turn| turn.ledger.unreturned())
    }

    /// Checks that the store has names of this kind, and that it can keep others out for the minimum hold, which may last
    /// as long as a lease.
    pub(crate) fn check_terms(&self, terms: &Terms) -> Result<()> {
        self.store.profile().check_take(&terms.take)?;
        let checked = self.check_lease(terms.min_hold_us.div_ceil(1000));
        checked.map_err(|error| Error::invalid(format!("min_hold needs a lease of its length: {error}")))
    }

    /// Returns the ID of this session.
    pub(crate) fn id(&self) -> SessionId {
        self.with(|turn| turn.ledger.ids.session)
    }

    /// Returns an ID of the store that all its clients know, while its server runs. Empty while there is no connection.
    pub(crate) fn store_id(&self) -> String {
        self.with(|turn| turn.server.links.home().map(|link| link.run_id().to_owned())).unwrap_or_default()
    }

    /// Returns the wait that ends so long from now.
    pub(crate) fn wait_for(&self, wait: Duration) -> Wait {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let until_us = self.world.now_us().checked_add(wait_us);
        until_us.map_or(Wait::ForEver, |until_us| Wait::Until { until_us })
    }

    /// Returns the server time after which a request that is sent now is refused as late.
    pub(crate) fn not_after_us(&self) -> u64 {
        self.with(|turn| turn.server.clock.not_after(turn.now.us(), u64::MAX))
    }

    /// Checks that the store has names of this kind.
    pub(crate) fn check_take(&self, take: &Take) -> Result<()> {
        self.store.profile().check_take(take)
    }

    /// Whether a holder can name the waiter that holds next.
    pub(crate) fn names_successors(&self) -> bool {
        self.store.profile().names_successors
    }

    /// Checks that the store has leases of this length.
    pub(crate) fn check_lease(&self, lease_ms: u64) -> Result<()> {
        self.store.profile().check_lease(lease_ms)
    }
}

/// A session without a handle yet. If its connect is dropped, nobody else closes it.
struct Opening<'a>(&'a Shared);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::no_thread("the thread of the client", error)
}
