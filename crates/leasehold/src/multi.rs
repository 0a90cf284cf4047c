//! The multi-lock: several locks as one.

mod guard;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};

pub use self::guard::{AllGuard, AllLost};
use crate::acquirer::Acquirer;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::lease::Lease;
use crate::member::Member;

/// The largest number of members.
const MEMBERS_MAX: usize = 16;

/// The longest time for which a multi-lock holds members while it waits for one of another client (P45).
const HOLD_MAX_US: u64 = 10_000_000;

/// Several locks that are held together: see [`all`].
#[derive(Clone)]
#[must_use = "a multi-lock does nothing until it is locked"]
pub struct All {
    members: Vec<Member>,
}

/// Returns the multi-lock of these members, 1 to 16. They may belong to several clients and several stores. No I/O: the
/// first call reports members that are wrong.
///
/// The members are taken one after the other, in an order that all programs share: by their store, and by their name. So
/// programs that name the same locks in different orders do not wait for each other in a circle.
///
/// Locks of several clients have no order that is certain: a Redis server has another identity after a restart. So a
/// multi-lock that holds members waits for a member of another client for at most 10 s, or for the shortest lease of its
/// members if that is shorter. Then it releases what it holds, waits for that member while it holds nothing, and begins
/// again.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let (from, to, prices) = (leasehold.mutex("account:7"), leasehold.mutex("account:9"), leasehold.rw_lock("prices"));
/// let guard = leasehold::all([from.into(), to.into(), prices.reading()]).lock().await?;
/// let tokens = guard.tokens(); // in this order: one for each member
/// # assert_eq!(tokens.len(), 3);
/// assert_eq!(guard.release().await?, leasehold::Released::Released);
/// # Ok(())
/// # }
/// ```
pub fn all<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> All {
    All { members: members.into_iter().map(Into::into).collect() }
}

/// Until when a multi-lock waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Never,
    Now,
    At { us: u64 },
}

/// The result of one round over the members.
enum Round {
    All(Vec<Taken>),
    Busy,
    /// The wait for this member exceeded the time for which a multi-lock may hold the others (P45).
    TooLong(usize),
}

impl All {
    /// Waits until all members are held, for as long as that takes.
    ///
    /// If all members are free, this takes one round trip for each member. Free mutexes of one client, with a store in
    /// memory or on one Redis, take one round trip in all. If one of those mutexes is not free, that request is one round
    /// trip more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the members that it has, and leaves the queue of the one that it waits for.
    ///
    /// # Errors
    ///
    /// - `Invalid`: there are no members or more than 16, or one occurs twice. (A lock that occurs twice, through two
    ///   clients of its store, is not noticed, and waits for itself.)
    /// - Those of the members: see [`Mutex::lock`](crate::Mutex::lock), [`RwLock::read`](crate::RwLock::read) and
    ///   [`Semaphore::acquire`](crate::Semaphore::acquire). The error names the member.
    ///
    /// After an error nothing is held.
    pub async fn lock(&self) -> Result<AllGuard> {
        loop {
            if let Some(guard) = self.lock_until(Until::Never).await? {
                return Ok(guard);
            }
        }
    }

    /// Acquires all members if each of them is free, and returns `None` otherwise. Then it releases in the background what
    /// it had.
    ///
    /// # Cancel safety
    ///
    /// See [`All::lock`].
    ///
    /// # Errors
    ///
    /// See [`All::lock`] and [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_lock(&self) -> Result<Option<AllGuard>> {
        self.lock_until(Until::Now).await
    }

    /// Waits for at most `wait` until all members are held, and returns `None` if they were not held by then.
    ///
    /// # Cancel safety
    ///
    /// See [`All::lock`].
    ///
    /// # Errors
    ///
    /// See [`All::lock`] and [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<AllGuard>> {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let until_us = self.now_us().checked_add(wait_us);
        self.lock_until(until_us.map_or(Until::Never, |us| Until::At { us })).await
    }

    async fn lock_until(&self, until: Until) -> Result<Option<AllGuard>> {
        let failed = |error: Error| error.of(Operation::Lock, None);
        let order = self.order(Acquirer::store_id).map_err(failed)?;
        let mut at_once = match self.take_together(&order).await {
            // A caller that only tries would find the leases of this request, and take them for those of others.
            Err(error) if until == Until::Now => return Err(failed(error)),
            taken => taken.ok().flatten().map(Round::All),
        };
        loop {
            let round = match at_once.take() {
                Some(round) => round,
                None => self.round(&order, until).await?,
            };
            match round {
                Round::All(mut leases) => {
                    // A member was lost while the next one was awaited: the caller would get a guard that is lost.
                    if leases.iter().all(|taken| taken.lease.is_valid()) {
                        leases.sort_by_key(|taken| taken.at);
                        return Ok(Some(AllGuard::new(leases.into_iter().map(Taken::give).collect())));
                    }
                }
                Round::Busy => return Ok(None),
                // The lease is dropped at once. A multi-lock that kept it would take the other members in another order.
                Round::TooLong(at) => match take(&self.members[at], until).await? {
                    Some(lease) => drop(Taken::new(at, lease)),
                    None => return Ok(None),
                },
            }
        }
    }

    /// Takes all members by one request, if they are mutexes of one client that are all free (P46).
    async fn take_together(&self, order: &[usize]) -> Result<Option<Vec<Taken>>> {
        let members: Vec<_> = order.iter().map(|at| &self.members[*at].0).collect();
        let leases = Acquirer::acquire_together(&members).await?;
        let taken = |leases: Vec<Lease>| order.iter().zip(leases).map(|(&at, lease)| Taken::new(at, lease)).collect();
        Ok(leases.map(taken))
    }

    /// Takes the members in this order. If the round ends without all of them, it drops the leases that it has.
    async fn round(&self, order: &[usize], until: Until) -> Result<Round> {
        let mut leases: Vec<Taken> = Vec::with_capacity(order.len());
        for &at in order {
            let member = &self.members[at];
            let is_of_another = |held: &Taken| !self.members[held.at].0.is_of_client_of(&member.0);
            let holds_another = leases.iter().any(is_of_another) && !is_on(Mutant::P45HoldsOn);
            let hold_until_us = self.now_us() + self.members.iter().map(Member::lease_us).fold(HOLD_MAX_US, u64::min);
            let (until, is_bounded) = match until {
                Until::Never if holds_another => (Until::At { us: hold_until_us }, true),
                Until::At { us } if holds_another && hold_until_us < us => (Until::At { us: hold_until_us }, true),
                until => (until, false),
            };
            match take(member, until).await {
                Ok(Some(lease)) => leases.push(Taken::new(at, lease)),
                Ok(None) if is_bounded => return Ok(Round::TooLong(at)),
                // The store of this member is away. The caller waits for it, and the others are not held meanwhile.
                Err(error) if is_bounded && is_away(&error) => return Ok(Round::TooLong(at)),
                Ok(None) => return Ok(Round::Busy),
                Err(error) => return Err(error),
            }
        }
        Ok(Round::All(leases))
    }

    fn now_us(&self) -> u64 {
        self.members.first().map_or(0, |member| member.0.now_us())
    }

    /// Returns the order in which the members are taken: by the run ID of their store, and by their name. All programs have
    /// the same order while each server keeps its run ID.
    fn order(&self, store_id: impl Fn(&Acquirer) -> String) -> Result<Vec<usize>> {
        if !(1..=MEMBERS_MAX).contains(&self.members.len()) {
            let message = format!("a multi-lock has 1 to {MEMBERS_MAX} members, and not {}", self.members.len());
            return Err(Error::invalid(message));
        }
        let mut places: Vec<(String, String, usize)> = Vec::with_capacity(self.members.len());
        for (at, Member(member)) in self.members.iter().enumerate() {
            // Asked once for each client: a connection that breaks meanwhile must not change the order of its members.
            let same = (0..at).find(|&earlier| self.members[earlier].0.is_of_client_of(member));
            let store_id = same.map_or_else(|| store_id(member), |earlier| places[earlier].0.clone());
            places.push((store_id, member.checked_name()?.as_str().to_owned(), at));
        }
        if !is_on(Mutant::P45TakesAsNamed) {
            places.sort();
        }
        for (number, (_, name, at)) in places.iter().enumerate() {
            let is_same = |(_, other, of): &&(String, String, usize)| {
                other == name && self.members[*of].0.is_of_client_of(&self.members[*at].0)
            };
            if places[..number].iter().any(|place| is_same(&place)) {
                return Err(Error::invalid(format!("the multi-lock has {name:?} twice, and would wait for itself")));
            }
        }
        Ok(places.into_iter().map(|(.., at)| at).collect())
    }
}

fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}

/// A member that is held, and whose minimum hold has not begun: its caller has no guard yet (P23).
struct Taken {
    at: usize,
    lease: Lease,
    is_deferred: bool,
}

impl Taken {
    fn new(at: usize, lease: Lease) -> Self {
        Self { at, is_deferred: lease.defer_min_hold(), lease }
    }

    /// Returns the lease, for the guard of the caller.
    fn give(self) -> Lease {
        if self.is_deferred {
            self.lease.begin_min_hold();
        }
        self.lease
    }
}

/// Acquires one member.
async fn take(Member(member): &Member, until: Until) -> Result<Option<Lease>> {
    match until {
        Until::Never => member.acquire().await.map(Some),
        Until::Now => member.try_acquire().await,
        Until::At { us } => {
            let left_us = us.saturating_sub(member.now_us());
            member.try_acquire_for(Duration::from_micros(left_us)).await
        }
    }
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("All").field(&self.members).finish()
    }
}
