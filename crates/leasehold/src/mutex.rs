//! The mutex.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_spec::limits::{LEASE_MAX_MS, LEASE_MIN_MS, REVOKE_GRACE_MS, STICKY_MAX_MS};
use leasehold_spec::{Name, Op, Order, Outcome};

use crate::client::Handle;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::inspection::{Holder, Inspection};
use crate::owner::Owner;
use crate::reentry::enter;
use crate::session::{Entry, KnownLine, Renewal, Terms, Wait};

/// A lock on a name: at most one holder at a time, first come, first served.
///
/// # Who is next
/// Those who wait in one client for the same lease are served in the order of their calls, and so are clients among each
/// other. A client hands a lock on to those who wait in it [without a round trip](crate#hand-over-inside-a-client); once
/// somebody waits elsewhere it does so at most 64 times, and for at most 10 ms (an eighth of the lease, where that is
/// less), and then goes to the end of the store's queue. The word that somebody waits comes at once or, should that message
/// be lost, within a second. A mutex that is [`fair`](Mutex::fair) is served in the order of all calls of all clients.
///
/// Cheap to make and to clone; making one does no I/O, and a bad name or lease is the first call's error. A second `lock`
/// by the same task waits for the first, like anybody's: there is no re-entry, unless an [owner](Mutex::owner) is named.
#[derive(Clone)]
pub struct Mutex {
    client: Arc<Handle>,
    name: Result<Name, Arc<Error>>,
    lease: Duration,
    renewal: Renewal,
    order: Order,
    entry: Entry,
    sticky: Duration,
    owner: Option<Owner>,
    /// What follows from all that, once it was asked for.
    terms: OnceLock<Arc<Terms>>,
}

impl Mutex {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        let lease = client.lease();
        let name = Name::new(name).map_err(|bad| Arc::new(Error::from(bad)));
        let (renewal, order, entry) = (Renewal::Always, Order::Relaxed, Entry::OnClaim);
        Self { client, name, lease, renewal, order, entry, sticky: Duration::ZERO, owner: None, terms: OnceLock::new() }
    }

    /// How long a lease lasts without a renewal by its holder: 100 ms to 24 h. The default is that of
    /// [`crate::Builder::lease`]: 30 s, or the longest lease of a quorum where that is shorter; a quorum refuses a longer
    /// one. The lease is renewed each third for as long as the guard lives, so this is how long the others wait for a
    /// holder that died. The first call reports a lease out of range. Replaces `fixed_lease`.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let renewal = if self.renewal == Renewal::Never { Renewal::Always } else { self.renewal };
        Self { lease, renewal, ..self.unasked() }
    }

    /// A lease of this length (100 ms to 24 h) that is never renewed: it ends by itself, and the guard then says
    /// [`Lost::Expired`](crate::Lost::Expired). Replaces `lease` and `max_hold`.
    #[must_use]
    pub fn fixed_lease(self, lease: Duration) -> Self {
        Self { lease, renewal: Renewal::Never, ..self.unasked() }
    }

    /// Renewal stops so early that the lease ends this long after the grant, whether or not others wait: a holder that
    /// hangs loses it then, and its guard says [`Lost::Expired`](crate::Lost::Expired). At least the lease. No limit unless
    /// said. Such a lock is a grant of its own: the client does not hand it on inside itself. Replaces `fixed_lease`.
    #[must_use]
    pub fn max_hold(self, hold: Duration) -> Self {
        let renewal = u64::try_from(hold.as_micros()).map_or(Renewal::Always, |hold_us| Renewal::For { hold_us });
        Self { renewal, ..self.unasked() }
    }

    /// Strict first come, first served over all clients: this call stands in the store's queue for itself, and while it
    /// waits there nobody hands the lock on past it (see [Who is next](Mutex#who-is-next)). A round trip for each lock and
    /// each release, also where nobody outside of this client wants it.
    #[must_use]
    pub fn fair(self) -> Self {
        Self { order: Order::Strict, ..self.unasked() }
    }

    /// Who locks: this owner may lock again what it holds, from any task, and as often as it likes. Without one nobody may.
    ///
    /// A lock by an owner that holds costs no round trip. All its guards are of the same grant, with the same token, and
    /// the last one to go, in any order, gives back. Two tasks of an owner that lock at the same time share what the first
    /// of them gets: the second waits for that. Only where the first gave up or failed it asks the store itself, from the
    /// end of the queue. While the first is on its way, [`Mutex::try_lock`] by the same owner answers `None`.
    ///
    /// The owner's *tasks* do not exclude each other: that is what it is for.
    ///
    /// # What is asked for on re-entry
    /// Of a lease that is renewed a longer [`lease`](Mutex::lease) counts, for all its guards and until its end: it is
    /// renewed to that length at once, in the background. Everything else is as the first of them asked: a shorter lease, a
    /// `max_hold` or `fair` changes nothing, a fixed lease stays one and keeps its end, and one that is renewed goes on so,
    /// although `fixed_lease` was asked for on re-entry.
    ///
    /// # When the lease is lost
    /// Locking again is an error of kind `Lost` until the last guard of the lost lease has gone: what was done under it may
    /// not have been exclusive, and a new token would hide that.
    ///
    /// # Clients
    /// An owner is known to one client. With another one, also in this process, it waits for itself like a stranger.
    ///
    /// ```
    /// # async fn example(leasehold: &leasehold::Leasehold) -> leasehold::Result<()> {
    /// let mutex = leasehold.mutex("stock:42").owner(&leasehold::Owner::new());
    /// let outer = mutex.lock().await?;
    /// let inner = mutex.lock().await?; // at once
    /// assert_eq!(inner.token(), outer.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// A guard comes with a whole lease. After a wait it otherwise comes with what the hand-over granted, a second or so
    /// until its first renewal: enough for a section that looks before each effect, and too little for what, once begun,
    /// cannot be stopped within that. One more round trip after a wait; none where the lock was free.
    #[must_use]
    pub fn full_lease(self) -> Self {
        Self { entry: Entry::OnLease, ..self.unasked() }
    }

    /// When the last guard of this client has gone and nobody waits, its lease is kept for up to this long, at most a
    /// minute, and the next lock by this client, on the same terms, is granted at once, with a new token and without a
    /// round trip. It is given back as soon as somebody else waits for it: that one waits for one message and one release
    /// more (or for a second, should the message be lost). Zero, which is the default, keeps nothing.
    ///
    /// For a lock that one client takes again and again. A lease that is kept is renewed twice a second. To others it is
    /// held: [`Mutex::inspect`] shows it, and a [`Mutex::try_lock`] elsewhere answers `None` and asks for nothing. Closing
    /// the client gives it back. Where its process dies, the others wait as for any other holder that died, although nobody
    /// was at work. Where it is lost or revoked, nobody has to be told: the next lock asks the store.
    ///
    /// A lease that may not be handed on cannot be kept: with `fair`, `fixed_lease`, `max_hold` or `full_lease`, as with
    /// more than a minute, the first call's error is `Invalid`.
    #[must_use]
    pub fn sticky(self, keep: Duration) -> Self {
        Self { sticky: keep, ..self.unasked() }
    }

    /// Waits until this task holds the lock, however long that takes, over restarts and reconnects of the store. One
    /// round trip when the lock is free; none where this client holds it and hands it on in time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue. If the grant was already on its way it is given back.
    ///
    /// # Errors
    /// `Invalid` for a bad name or lease, or a `max_hold` below the lease; `Full`, `Foreign`, `Denied`, `Closed`;
    /// `Unsupported` after a fork; `Store` when the store is out of memory; and `Lost` when its [owner](Mutex::owner) has a
    /// guard of a lease that was lost. Never `Unreachable`, nor `Quorum`: it waits.
    pub async fn lock(&self) -> Result<Guard> {
        loop {
            // `None` is an answer to those who do not wait for ever.
            if let Some(guard) = self.acquire(Wait::ForEver).await? {
                return Ok(guard);
            }
        }
    }

    /// Takes the lock if nobody holds it or waits for it. One round trip; none where this client [keeps](Mutex::sticky) it,
    /// or holds it: that is `None`, too, unless its [owner](Mutex::owner) asks.
    ///
    /// A client is not in its own way: a guard of it that was dropped before, and a lease that it
    /// [keeps](Mutex::sticky) on other terms, go back first, within the same round trip. (One whose future was dropped
    /// on its way to the lock may still be.)
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Errors
    /// As [`Mutex::lock`], and `Unreachable` when the store does not answer within a sixth of the lease: 50 ms to 2 s; of a
    /// quorum `Quorum`, when too few of its nodes vote.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.acquire(Wait::No).await
    }

    /// Waits for the lock, at most `wait`. The store is asked even if `wait` is zero, which is not an error. If `wait` ends
    /// before the store has answered, this waits for the answer for half a second more, or for four round trips if they
    /// take longer (2 s at most). It also waits that long for the claim of a [`full_lease`](Mutex::full_lease) that was
    /// handed over before `wait` ended. One round trip if the lock is free.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Errors
    /// As [`Mutex::lock`], and `Unreachable` or `Quorum` when `wait` is over and the store has not said that somebody else
    /// holds it.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let until_us = self.client.session().world.now_us().checked_add(wait_us);
        self.acquire(until_us.map_or(Wait::ForEver, |until_us| Wait::Until { until_us })).await
    }

    /// Locks, does the work, and releases. When the lease is lost the work is dropped where it stands, and the answer is
    /// an error of kind `Lost`; so it is when the work has ended, and the lease had ended before. When the work has its own
    /// `Result`, this answers one within the other: `run(…).await??` where the errors convert. A round trip before the work
    /// and one behind it.
    ///
    /// The lease is given back before this answers. Where the store does not say so within 5 s, the answer is given all the
    /// same, and the lease goes back in the background, as that of a dropped guard.
    ///
    /// ```
    /// # async fn example(leasehold: &leasehold::Leasehold) -> leasehold::Result<()> {
    /// let sold = leasehold.mutex("stock:42").run(async |guard| sell(guard.token()).await).await?;
    /// # let _: u32 = sold; Ok(()) }
    /// # async fn sell(_: leasehold::Token) -> u32 { 1 }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lease back.
    ///
    /// # Errors
    /// As [`Mutex::lock`], and `Lost`.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let done = tokio::select! {
            biased;
            // Before the work: what it would do now is no longer exclusive.
            lost = guard.lost() => Err(lost),
            // And behind it: work that did not await for as long as the lease outlived it unseen.
            value = work(&guard) => guard.check().map(|_| value),
        };
        match done {
            Ok(value) => {
                // An unanswered release is repeated by the session; the work is done and was exclusive.
                guard.finish().await;
                Ok(value)
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Who holds, with which token, for how long, and how many wait. One round trip; changes nothing.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// `Invalid`, `Unreachable`, `Quorum`, `Foreign`, `Denied`, `Unsupported`, `Closed`.
    pub async fn inspect(&self) -> Result<Inspection> {
        let (inspection, nodes) = self.client.session().inspect(self.name()?).await?;
        let waiters = usize::try_from(inspection.waiters).unwrap_or(usize::MAX);
        Ok(Inspection { holder: inspection.holder.map(Holder::from), waiters, nodes })
    }

    /// Takes the lease away from the holder that [`Mutex::inspect`] showed: it is told at once, and the lease ends when it
    /// gives it back, or after `grace` (at most 5 s; zero ends it now). A later holder is not touched. One round trip.
    ///
    /// The holder is told by one message. Should that be lost, it hears of it at its next renewal, up to a third of its
    /// lease later, and the next one may hold by then: only a fence keeps the two apart.
    ///
    /// The next waiter holds within a second after the grace, also if the holder is stopped and this client has ended by
    /// then. The store notifies the first waiters of two clients. If both die within the grace, or both messages are lost,
    /// the lock is handed on at the next re-check of a waiter (a third of its lease, 6 s at most).
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the holder was told.
    ///
    /// # Errors
    /// As [`Mutex::inspect`]; `Invalid` for a longer grace.
    pub async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        let grace_ms = grace.as_millis();
        if grace_ms > u128::from(REVOKE_GRACE_MS) {
            return Err(Error::invalid(format!("a grace of {grace:?} is too long: at most {REVOKE_GRACE_MS} ms")));
        }
        let op = Op::Revoke { holder: holder.id, token: holder.token, grace_ms: grace_ms as u64 };
        match self.client.session().ask_once(self.name()?, op).await? {
            Outcome::Revoking { left_us } => Ok(Revoked::Within(Duration::from_micros(left_us))),
            _ => Ok(Revoked::NotHeld),
        }
    }

    /// The same, before anything was asked for by it: what followed from what it says is no longer so.
    fn unasked(self) -> Self {
        Self { terms: OnceLock::new(), ..self }
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<Guard>> {
        let name = self.name()?;
        let terms = match self.terms.get() {
            Some(terms) => terms,
            None => {
                let terms = Arc::new(self.terms()?);
                self.terms.get_or_init(|| terms)
            }
        };
        if let Some(owner) = &self.owner {
            return Ok(enter(&self.client, (name, owner), terms, wait).await?.map(Guard::shared));
        }
        let hold = self.client.session().acquire(name, terms, wait).await?;
        Ok(hold.map(|hold| Guard::alone(hold, Arc::clone(&self.client))))
    }

    fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(|error| error.share())
    }

    fn terms(&self) -> Result<Terms> {
        let lease_ms = check_lease(self.lease)?;
        let renewal = self.renewal;
        if let Renewal::For { hold_us } = renewal
            && hold_us < lease_ms * 1000
        {
            let message =
                format!("max_hold is shorter than the lease of {:?}: use fixed_lease, or a shorter lease", self.lease);
            return Err(Error::invalid(message));
        }
        let (order, entry, sticky_us) = (self.order, self.entry, self.sticky_us()?);
        let (label, line) = (self.client.label(), KnownLine::default());
        let terms = Terms { lease_ms, renewal, order, entry, sticky_us, label, line };
        if sticky_us > 0 && !terms.may_stand() {
            let message = "sticky contradicts fair, fixed_lease, max_hold and full_lease: a lease is kept only where \
                           it could be handed on, too; leave one of them out";
            return Err(Error::invalid(message));
        }
        Ok(terms)
    }

    fn sticky_us(&self) -> Result<u64> {
        match u64::try_from(self.sticky.as_micros()) {
            Ok(us) if us <= STICKY_MAX_MS * 1000 => Ok(us),
            _ => {
                let keep = self.sticky;
                Err(Error::invalid(format!("sticky for {keep:?} is too long: at most {STICKY_MAX_MS} ms")))
            }
        }
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("lease", &self.lease).finish_non_exhaustive()
    }
}

pub(crate) fn check_lease(lease: Duration) -> Result<u64> {
    match u64::try_from(lease.as_millis()) {
        Ok(ms) if (LEASE_MIN_MS..=LEASE_MAX_MS).contains(&ms) => Ok(ms),
        _ => Err(Error::invalid(format!("a lease of {lease:?} is out of range: use {LEASE_MIN_MS} ms to 24 h"))),
    }
}

/// What became of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The holder was told; its lease ends within this time.
    Within(Duration),
    /// That holder has it no longer.
    NotHeld,
}
