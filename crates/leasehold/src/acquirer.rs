//! The part that acquires: a client, a name, and the settings of the caller. Every face has one inside.

mod methods;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_spec::limits::{PERMITS_MAX, REVOKE_GRACE_MS};
use leasehold_spec::{GrantId, Kind, Name, Op, Order, Outcome, Refusal, Take, Token};

pub(crate) use self::methods::setting_methods;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::inspection::{Holder, Inspection, Revoked};
use crate::lease::Lease;
use crate::observe::Call;
use crate::owner::Owner;
use crate::reentry::{Handle, enter};
use crate::session::{Entered, Entry, Hold, RETRY_US, Renewal, Terms, Wait};
use crate::settings::Settings;

/// A name with the settings with which a client acquires it.
#[derive(Clone)]
pub(crate) struct Acquirer {
    client: Arc<Handle>,
    name: Result<Name, Arc<Error>>,
    settings: Settings,
    owner: Option<OwnerChoice>,
    // Computed from the settings at the first call.
    terms: OnceLock<Arc<Terms>>,
    /// The label of its grants; `None`: that of the client.
    label: Option<Arc<str>>,
}

/// The owner of the lease. An owner may acquire again what it holds.
#[derive(Clone)]
enum OwnerChoice {
    Given(Owner),
    /// The thread that acquires.
    #[cfg(feature = "blocking")]
    ThisThread,
}

impl Acquirer {
    pub(crate) fn new(client: Arc<Handle>, name: &str, take: Take) -> Self {
        let settings = Settings::new(take, client.lease());
        let name = Name::new(name).map_err(|bad| Arc::new(Error::from(bad)));
        Self { client, name, settings, owner: None, terms: OnceLock::new(), label: None }
    }

    /// Returns an acquirer whose grants have this label.
    pub(crate) fn labeled(&self, label: &str) -> Self {
        Self { label: Some(label.into()), terms: OnceLock::new(), ..self.clone() }
    }

    /// Returns an acquirer of notifications of the name beside this one.
    pub(crate) fn companion(&self) -> Self {
        let name = self.name.as_ref().map(Name::companion).map_err(Arc::clone);
        Self { name, label: None, ..self.taking(Take::NOTIFICATION) }
    }

    /// Polls `future` for at most so long.
    pub(crate) async fn within<F: Future>(&self, within: Duration, future: F) -> Option<F::Output> {
        let within_us = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        self.client.session().within(within_us, future).await
    }

    /// Returns an acquirer of another share of the same name.
    pub(crate) fn taking(&self, take: Take) -> Self {
        self.clone().with(|settings| Settings { take, ..settings })
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        self.with(|settings| {
            let renewal = if settings.renewal == Renewal::Never { Renewal::Always } else { settings.renewal };
            Settings { lease, renewal, ..settings }
        })
    }

    pub(crate) fn fixed_lease(self, lease: Duration) -> Self {
        self.with(|settings| Settings { lease, renewal: Renewal::Never, ..settings })
    }

    pub(crate) fn max_hold(self, hold: Duration) -> Self {
        let renewal = u64::try_from(hold.as_micros()).map_or(Renewal::Always, |hold_us| Renewal::For { hold_us });
        self.with(|settings| Settings { renewal, ..settings })
    }

    pub(crate) fn full_lease(self) -> Self {
        self.with(|settings| Settings { entry: Entry::OnLease, ..settings })
    }

    pub(crate) fn min_hold(self, hold: Duration) -> Self {
        self.with(|settings| Settings { min_hold: hold, ..settings })
    }

    pub(crate) fn fair(self) -> Self {
        self.with(|settings| Settings { order: Order::Strict, ..settings })
    }

    pub(crate) fn sticky(self, keep: Duration) -> Self {
        self.with(|settings| Settings { sticky: keep, ..settings })
    }

    pub(crate) fn owner(self, owner: &Owner) -> Self {
        Self { owner: Some(OwnerChoice::Given(owner.clone())), ..self }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn reentrant(self) -> Self {
        Self { owner: Some(OwnerChoice::ThisThread), ..self }
    }

    /// Changes the settings, and forgets the terms that were computed from the earlier settings.
    fn with(self, change: impl FnOnce(Settings) -> Settings) -> Self {
        Self { settings: change(self.settings), terms: OnceLock::new(), ..self }
    }

    /// Returns the name, if it is one.
    pub(crate) fn checked_name(&self) -> Result<&Name> {
        self.name()
    }

    /// Returns an ID of the store that all clients of the store know, while its server runs. Empty if there is none.
    pub(crate) fn store_id(&self) -> String {
        self.client.session().store_id()
    }

    /// Whether both belong to one client.
    pub(crate) fn is_of_client_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }

    pub(crate) fn lease_length(&self) -> Duration {
        self.settings.lease
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.client.session().world.now_us()
    }

    /// Waits until the lease is acquired, for as long as that takes.
    pub(crate) async fn acquire(&self) -> Result<Lease> {
        loop {
            // `None` cannot occur here: only calls with a time limit return it.
            if let Some(lease) = self.acquire_within(Wait::ForEver).await? {
                return Ok(lease);
            }
        }
    }

    /// Acquires the lease if it is free and nobody waits for it.
    pub(crate) async fn try_acquire(&self) -> Result<Option<Lease>> {
        self.acquire_within(Wait::No).await
    }

    /// Waits for the lease for at most `wait`.
    pub(crate) async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Lease>> {
        self.acquire_within(self.wait_for(wait)).await
    }

    async fn acquire_within(&self, wait: Wait) -> Result<Option<Lease>> {
        let operation = match self.settings.take.kind {
            Kind::Semaphore => Operation::Acquire,
            Kind::Condition | Kind::Latch | Kind::Barrier => Operation::Wait,
            Kind::Mutex | Kind::ReadWrite => Operation::Lock,
        };
        self.enter(wait).await.map_err(|error| self.failed(operation, error))
    }

    async fn enter(&self, wait: Wait) -> Result<Option<Lease>> {
        let (name, terms) = (self.name()?, self.terms()?);
        if let Some(choice) = &self.owner {
            let owner = choice.owner();
            return Ok(enter(&self.client, (name, &owner), terms, wait).await?.map(Lease::shared));
        }
        let hold = self.client.session().acquire(name, terms, wait).await?;
        Ok(hold.map(|hold| Lease::alone(hold, Arc::clone(&self.client))))
    }

    /// Acquires all of these by one request, if they are mutexes of one client whose store can do that. Returns `None` or
    /// an error if it holds none of them afterwards. The caller acquires them one by one then, and gets the error of the
    /// member that fails.
    ///
    /// # Errors
    ///
    /// Nobody knows whether the store has carried the request out. For a while it may have the leases.
    pub(crate) async fn acquire_together(all: &[&Self]) -> Result<Option<Vec<Lease>>> {
        let [first, _, ..] = all else { return Ok(None) };
        let is_mutex = |one: &&Self| one.settings.take == Take::MUTEX && one.owner.is_none();
        if !all.iter().all(|one| is_mutex(one) && one.is_of_client_of(first)) {
            return Ok(None);
        }
        let members: Result<Vec<_>> = all.iter().map(|one| Ok((one.name()?, one.terms()?))).collect();
        let Ok(members) = members else { return Ok(None) };
        match first.client.session().acquire_all(&members).await {
            Ok(None) => Ok(None),
            Ok(Some(holds)) => {
                let lease = |hold| Lease::alone(hold, Arc::clone(&first.client));
                Ok(Some(holds.into_iter().map(lease).collect()))
            }
            Err(error) if error.may_have_acted() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns the wait that ends so long from now.
    pub(crate) fn wait_for(&self, wait: Duration) -> Wait {
        self.client.session().wait_for(wait)
    }

    /// Enters the queue of a condition variable: see [`Session::enter_queue`](crate::session::Session::enter_queue).
    pub(crate) async fn enter_queue(&self, wait: Wait) -> Result<Option<Entered<'_>>> {
        self.client.session().enter_queue(self.name()?, self.terms()?, wait).await
    }

    /// Returns the lease of a hold that this client has acquired.
    pub(crate) fn lease_of(&self, hold: Arc<Hold>) -> Lease {
        Lease::alone(hold, Arc::clone(&self.client))
    }

    /// Asks a store that has such names, for a call with a name and settings that are good.
    pub(crate) async fn ask(&self, call: Call, op: impl FnOnce(u64) -> Op) -> Result<Outcome> {
        self.terms()?;
        let session = self.client.session();
        session.ask(call, self.name()?, op(session.not_after_us())).await
    }

    /// Counts a latch down: see [`Session::count_down`](crate::session::Session::count_down).
    pub(crate) async fn count_down(&self, born: Token, counts: Option<GrantId>) -> Result<()> {
        self.client.session().count_down(self.name()?, born, counts).await
    }

    /// Notifies this many waiters of a condition variable, or as many as there are. Repeats the request until the store
    /// has replied, for at most a lease: a repeat wakes another waiter for nothing.
    pub(crate) async fn notify(&self, count: u32) -> Result<u32> {
        let failed = |error: Error| self.failed(Operation::Notify, error);
        let (name, session) = (self.name().map_err(failed)?, self.client.session());
        let until_us = self.now_us().saturating_add(self.terms().map_err(failed)?.lease_us());
        let mut may_have_acted = false;
        loop {
            match session.ask(Call::Notify, name, Op::Notify { count }).await {
                Ok(Outcome::Notified { count }) => return Ok(count),
                Ok(_) => return Err(failed(Error::new(ErrorKind::Mismatch, "the name is not a condition variable"))),
                Err(error) if error.kind() == ErrorKind::Unreachable && self.now_us() < until_us => {
                    may_have_acted |= error.may_have_acted();
                    session.within(RETRY_US, std::future::pending::<()>()).await;
                }
                Err(error) => return Err(failed(if may_have_acted { error.may_act() } else { error })),
            }
        }
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection> {
        let failed = |error: Error| self.failed(Operation::Inspect, error);
        let name = self.name().map_err(failed)?;
        let (inspection, nodes) = self.client.session().inspect(name).await.map_err(failed)?;
        Ok(Inspection::new(inspection, nodes))
    }

    pub(crate) async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        let failed = |error: Error| self.failed(Operation::Revoke, error);
        let grace_ms = grace.as_millis();
        if grace_ms > u128::from(REVOKE_GRACE_MS) {
            let message = format!("a grace of {grace:?} is too long: use at most {REVOKE_GRACE_MS} ms");
            return Err(failed(Error::invalid(message)));
        }
        let op = Op::Revoke { holder: holder.id, token: holder.token, grace_ms: grace_ms as u64 };
        let name = self.name().map_err(failed)?;
        match self.client.session().ask(Call::Revoke, name, op).await.map_err(failed)? {
            Outcome::Revoking { left_us } => Ok(Revoked::Within(Duration::from_micros(left_us))),
            _ => Ok(Revoked::NotHeld),
        }
    }

    /// Changes the number of permits of a semaphore from `from` to `to`.
    pub(crate) async fn resize(&self, from: u32, to: u32) -> Result<()> {
        let failed = |error: Error| self.failed(Operation::Resize, error);
        if !(1..=PERMITS_MAX).contains(&to) {
            return Err(failed(Error::invalid(format!("{to} permits are out of range: use 1 to {PERMITS_MAX}"))));
        }
        let (name, session) = (self.name().map_err(failed)?, self.client.session());
        session.check_take(&self.settings.take).map_err(failed)?;
        let op = Op::Resize { from, to, not_after_us: session.not_after_us() };
        match session.ask(Call::Resize, name, op).await.map_err(failed)? {
            Outcome::Resized => Ok(()),
            Outcome::Refused(Refusal::Other { kind: Kind::Semaphore, limit }) => {
                let message = format!("it has {limit} permits, and this call knows it with {from}");
                Err(failed(Error::new(ErrorKind::Mismatch, message)))
            }
            Outcome::Refused(_) => Err(failed(Error::new(ErrorKind::Mismatch, "the name is not a semaphore"))),
            _ => Err(failed(Error::new(ErrorKind::Unreachable, "the request was late: try again"))),
        }
    }

    /// Returns the error with the operation that failed, and the name.
    #[cold]
    pub(crate) fn failed(&self, operation: Operation, error: Error) -> Error {
        error.of(operation, self.name.as_ref().ok().map(Name::as_str))
    }

    /// Returns the terms of an acquire, if the settings are good and the store has such names.
    fn terms(&self) -> Result<&Arc<Terms>> {
        if let Some(terms) = self.terms.get() {
            return Ok(terms);
        }
        let terms = Arc::new(self.settings.terms(self.label.clone().unwrap_or_else(|| self.client.label()))?);
        self.client.session().check_terms(&terms)?;
        Ok(self.terms.get_or_init(|| terms))
    }

    fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(|error| error.share())
    }

    /// Formats a face, with its name and its lease.
    pub(crate) fn fmt_as(&self, face: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(face).field("name", &self.name).field("lease", &self.settings.lease).finish_non_exhaustive()
    }
}

impl OwnerChoice {
    fn owner(&self) -> Cow<'_, Owner> {
        match self {
            Self::Given(owner) => Cow::Borrowed(owner),
            #[cfg(feature = "blocking")]
            Self::ThisThread => Cow::Owned(Owner::of_this_thread()),
        }
    }
}
