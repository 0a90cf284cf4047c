//! The barrier.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::Take;

use crate::acquirer::Acquirer;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::lease::Lease;
use crate::reentry::Handle;

/// A meeting point: each party waits until as many have arrived as the barrier has parties. Then all go on, and the next
/// round begins.
///
/// Use it for work in steps that several programs do together, each step after all have finished the one before. If
/// programs wait for others that do not wait themselves, use a [`Latch`](crate::Latch).
///
/// A round ends for all of its parties in the same way. The round is broken if a party dies, stops waiting, or is not
/// connected when the store checks the parties: every other party fails with
/// [`ErrorKind::Broken`](crate::ErrorKind::Broken), and none of them goes on. They learn it within about 6 s, and within
/// a third of the [`lease`](Self::lease) if that is shorter. Each may arrive again, for the next round. A restart of the
/// host or of a Redis without persistence breaks the round, too.
///
/// All clients must name the same number of parties (1 to 256). A call with another number fails with `Mismatch`. The
/// number can change two minutes after the barrier was last used. One client may be any number of the parties.
///
/// Creating the value is cheap, and does no I/O. A quorum has no barriers, and refuses the first call with `Unsupported`:
/// whether a round is broken is a decision, and the nodes could decide differently.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let barrier = leasehold.barrier("simulation", 2);
/// let other = barrier.clone(); // in another program, as a rule
/// let (mine, theirs) = tokio::join!(barrier.wait(), other.wait());
/// assert!(mine?.is_leader() != theirs?.is_leader(), "one of them writes the result of the step");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Barrier {
    acquirer: Acquirer,
}

/// The result of an arrival whose round was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult {
    index: u32,
}

impl Barrier {
    pub(crate) fn new(client: Arc<Handle>, name: &str, parties: u32) -> Self {
        Self { acquirer: Acquirer::new(client, name, Take::arrival(parties)) }
    }

    /// Arrives, and waits until the round is let through, for as long as that takes.
    ///
    /// The last arrival takes one round trip. The others take one, and then a message. Each sends one more request in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the round is let through, the round is broken: the other parties would wait in vain.
    ///
    /// # Errors
    ///
    /// - `Broken`: the round was broken. Or this party was out of reach of the store for a lease, and nobody knows how its
    ///   round ended: the others may have been let through.
    /// - `Mismatch`: the barrier has another number of parties, or the name is of another kind.
    /// - `Invalid`: the number of parties is out of range.
    /// - Those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn wait(&self) -> Result<BarrierWaitResult> {
        Ok(BarrierWaitResult::new(&self.acquirer.acquire().await?))
    }

    /// Arrives, and waits for at most `wait`. Returns `None` if that time is over: then the round is broken, and the others
    /// fail. That takes one round trip more, because the store decides. The call waits for that reply for at most 2 s. With
    /// zero it does not arrive, unless it is the only party.
    ///
    /// # Errors
    ///
    /// See [`Barrier::wait`] and [`Mutex::try_lock_for`](crate::Mutex::try_lock_for). After `Unreachable`, the others may
    /// have been let through.
    pub async fn wait_for(&self, wait: Duration) -> Result<Option<BarrierWaitResult>> {
        let passed = match wait.is_zero() {
            true => self.acquirer.try_acquire().await,
            false => self.acquirer.try_acquire_for(wait).await,
        };
        Ok(passed?.as_ref().map(BarrierWaitResult::new))
    }

    /// Sets for how long the store remembers for a party that its round was let through, from 100 ms to 24 h. Default: that
    /// of [`Builder::lease`](crate::Builder::lease).
    ///
    /// A party that is out of reach for longer fails with `Broken`. A party asks the store again at each third of this
    /// time, at least every 5 s: this is how it learns that another one has died.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { acquirer: self.acquirer.lease(lease) }
    }

    /// Returns the parties that wait, as waiters, and the number of parties as the limit. One round trip.
    ///
    /// # Errors
    ///
    /// See [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn inspect(&self) -> Result<Inspection> {
        self.acquirer.inspect().await
    }
}

impl BarrierWaitResult {
    /// Reads the place of the arrival from its lease, which protects nothing and which the caller drops.
    fn new(arrival: &Lease) -> Self {
        Self { index: u32::try_from(arrival.place()).unwrap_or(u32::MAX).saturating_sub(1) }
    }

    /// Returns whether this is the leader of the round: the party that arrived last. Each round has one.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.index == 0
    }

    /// Returns how many parties of the round arrived later: 0 for the last one.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acquirer.fmt_as("Barrier", f)
    }
}
