//! The election of a leader.

pub(crate) mod observer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::limits::LABEL_MAX;
use leasehold_spec::{Op, Take, Token};

use crate::acquirer::Acquirer;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::inspection::{Inspection, Kind};
use crate::lease::{Lease, debug_guard, guard_methods};
use crate::lost::Released;
use crate::observe::Call;
use crate::reentry::Handle;

/// An election: of the candidates, one leads at a time. Each leader has a value, for example its address, which everybody
/// can read and observe.
///
/// An election is a [`Mutex`](crate::Mutex) with a value. A candidate waits like a call of `lock`, first come, first
/// served, and leads like a holder: with a token, a lease that the client renews, and a signal if the lease is lost. A
/// mutex of the same name excludes the leader.
///
/// Elections work on all stores. All but a quorum notify observers, and have [`Leadership::put`] and
/// [`Leadership::hand_to`]. On a quorum observers poll, at least every 5 s. So does an observer on a Redis whose user lacks
/// the rights of names of other kinds (`+hscan +unlink`).
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let election = leasehold.election("shard 7");
/// let leadership = election.campaign("10.0.0.3:7000").await?; // waits until it leads
/// let leader = election.leader().await?.expect("there is one");
/// assert_eq!((leader.value.as_str(), leader.token), ("10.0.0.3:7000", leadership.token()));
/// leadership.check()?; // before each effect
/// leadership.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    acquirer: Acquirer,
    /// The condition variable of the observers.
    changed: Acquirer,
}

/// The leadership of a candidate. Dropping it resigns in the background.
#[must_use = "dropping the leadership resigns at once"]
pub struct Leadership(pub(crate) Lease, pub(crate) Acquirer);

/// The leader, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value of the leader.
    pub value: String,
    /// The fencing token of its leadership. It is larger than that of every earlier leader.
    pub token: Token,
}

impl Election {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        // A lease that was handed on inside the client would still show the value of the first holder.
        let acquirer = Acquirer::new(client, name, Take::MUTEX).fair();
        Self { changed: acquirer.companion(), acquirer }
    }

    /// Waits until this candidate leads, for as long as that takes. The value has at most 256 bytes and no control
    /// characters. One round trip if nobody leads, and one more to notify observers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the candidacy. If it was elected at that moment, it resigns.
    ///
    /// # Errors
    ///
    /// `Invalid` for a value that is too long, and those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn campaign(&self, value: &str) -> Result<Leadership> {
        let candidate = self.candidate(value)?;
        loop {
            let lease = candidate.acquire().await?;
            if let Some(leadership) = self.elected(lease).await {
                return Ok(leadership);
            }
        }
    }

    /// Leads if nobody leads or waits, and returns `None` otherwise, or if the lease was lost at once: see
    /// [`Election::campaign`].
    ///
    /// # Errors
    ///
    /// See [`Election::campaign`] and [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_campaign(&self, value: &str) -> Result<Option<Leadership>> {
        match self.candidate(value)?.try_acquire().await? {
            Some(lease) => Ok(self.elected(lease).await),
            None => Ok(None),
        }
    }

    /// Waits for at most `wait`, and returns `None` if the candidate does not lead by then: see [`Election::campaign`].
    ///
    /// # Errors
    ///
    /// See [`Election::campaign`] and [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    pub async fn campaign_for(&self, value: &str, wait: Duration) -> Result<Option<Leadership>> {
        let candidate = self.candidate(value)?;
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let until_us = candidate.now_us().saturating_add(wait_us);
        loop {
            let left = Duration::from_micros(until_us.saturating_sub(candidate.now_us()));
            let Some(lease) = candidate.try_acquire_for(left).await? else { return Ok(None) };
            if let Some(leadership) = self.elected(lease).await {
                return Ok(Some(leadership));
            }
        }
    }

    /// Returns the leader, if there is one. One round trip.
    ///
    /// # Errors
    ///
    /// `Mismatch`: the name is of another kind. See [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.leader_of(&self.acquirer.inspect().await?)
    }

    /// Sets the lease of a leader, from 100 ms to 24 h: if a leader dies, the next one leads when this time is over.
    /// Default: the lease of the client, see [`crate::Builder::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { acquirer: self.acquirer.lease(lease), changed: self.changed.lease(lease) }
    }

    /// Notifies the observers.
    pub(crate) async fn announce(&self) {
        notify(&self.changed).await;
    }

    /// Returns the leader, if somebody leads.
    fn leader_of(&self, inspection: &Inspection) -> Result<Option<Leader>> {
        if inspection.kind != Kind::Mutex {
            let error =
                Error::new(ErrorKind::Mismatch, "the name is in use as another kind of lock, and not as an election");
            return Err(self.acquirer.failed(Operation::Inspect, error));
        }
        let holder = inspection.holder().filter(|holder| !holder.is_cooling_down);
        Ok(holder.map(|holder| Leader { value: holder.label.clone(), token: holder.token }))
    }

    fn candidate(&self, value: &str) -> Result<Acquirer> {
        check_value(value).map_err(|error| self.acquirer.failed(Operation::Lock, error))?;
        Ok(self.acquirer.labeled(value))
    }

    /// Notifies the observers, and returns the leadership. Returns `None` if the lease is lost before the store has
    /// replied: this candidate has not led then.
    async fn elected(&self, lease: Lease) -> Option<Leadership> {
        let leadership = Leadership(lease, self.changed.clone());
        tokio::select! {
            biased;
            _ = leadership.0.lost() => None,
            () = notify(&self.changed) => leadership.is_valid().then_some(leadership),
        }
    }
}

impl Leadership {
    guard_methods!(tasks);

    /// Changes the value of this leader, and notifies observers. Two round trips.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may have changed.
    ///
    /// # Errors
    ///
    /// - `Lost`: this candidate does not lead any more. The value of its successor is not changed.
    /// - `Invalid`: the value has more than 256 bytes, or control characters.
    /// - `Unsupported`: the store cannot change a value.
    /// - Those of [`Mutex::inspect`](crate::Mutex::inspect). After `Unreachable` the value may have changed; put it again.
    ///   A delayed copy of the first request can still undo a second one: read the value with [`Election::leader`] later.
    pub async fn put(&self, value: &str) -> Result<()> {
        put(&self.0, &self.1, value).await
    }

    /// Hands the leadership to the candidate with this value, before all candidates that have waited longer, and notifies
    /// observers. If several have the value, the first of them leads. Returns `None` once the store has made it the leader.
    ///
    /// If no live candidate with this value waits, nothing changes: this call returns the leadership, and this candidate
    /// still leads. If the new leader dies right after the hand-over, the next candidate leads about a second later. Two
    /// round trips. Redis scans the queue in order, at about 3 µs for each candidate.
    ///
    /// # Cancel safety
    ///
    /// The future owns the leadership. If it is dropped, this candidate does not lead any more: either the named candidate
    /// leads, or the first one that waits.
    ///
    /// # Errors
    ///
    /// After each error this candidate does not lead any more.
    ///
    /// - `Lost`: it did not lead before.
    /// - `Unsupported`: the store is a quorum, which cannot hand over to a named candidate. This candidate resigns.
    /// - Those of [`Mutex::inspect`](crate::Mutex::inspect). After `Unreachable` the named candidate may lead; otherwise
    ///   this one resigns.
    pub async fn hand_to(self, value: &str) -> Result<Option<Self>> {
        let Self(lease, changed) = self;
        if let Some(lease) = lease.hand_to(value).await? {
            return Ok(Some(Self(lease, changed)));
        }
        notify(&changed).await;
        Ok(None)
    }

    /// Ends the leadership, and notifies observers. When this returns, the next candidate already leads. Two round trips.
    /// See [`Guard::release`](crate::Guard::release).
    ///
    /// # Cancel safety
    ///
    /// The candidate resigns whether the future is completed or dropped.
    ///
    /// # Errors
    ///
    /// See [`Guard::release`](crate::Guard::release).
    pub async fn resign(self) -> Result<Released> {
        let released = self.0.release().await?;
        notify(&self.1).await;
        Ok(released)
    }
}

/// Changes the value of a leader, and notifies observers.
pub(crate) async fn put(lease: &Lease, changed: &Acquirer, value: &str) -> Result<()> {
    check_value(value).map_err(|error| error.of(Operation::Put, Some(lease.name())))?;
    lease.put(value).await?;
    notify(changed).await;
    Ok(())
}

/// Notifies the observers, once: they look from time to time as well.
async fn notify(changed: &Acquirer) {
    let _notified_or_not = changed.ask(Call::Notify, |_| Op::Notify { count: u32::MAX }).await;
}

fn check_value(value: &str) -> Result<()> {
    if value.len() > LABEL_MAX || value.chars().any(char::is_control) {
        let message = format!("the value of a leader must have at most {LABEL_MAX} bytes and no control characters");
        return Err(Error::invalid(message));
    }
    Ok(())
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acquirer.fmt_as("Election", f)
    }
}

debug_guard!(Leadership);
