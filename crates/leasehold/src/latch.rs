//! The latch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::limits::{COUNTS_MAX, LEASE_MAX_MS};
use leasehold_spec::{GrantId, Kind, Op, Outcome, Refusal, SessionId, Take, Token};

use crate::acquirer::Acquirer;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::observe::Call;
use crate::reentry::Handle;

/// A gate that opens once: callers wait until as many count-downs have come as the latch was created with. It never closes
/// again.
///
/// Use it if several programs do a part of a job each, and others wait for all of them. If somebody waits for a state that
/// comes and goes, use a [`Condvar`](crate::Condvar).
///
/// A latch has to be created first. It is kept for an hour after its creation and after each count-down (see
/// [`Latch::keep`]), and as long as somebody waits. After that, calls fail with [`ErrorKind::Absent`]: a caller that comes
/// too late does not wait for count-downs that came before. A restart of the host ends the latches of `file:`. A Redis that
/// restarts or fails over may lose a latch, or count-downs of programs that have ended: then it stays closed.
///
/// Creating the value is cheap, and does no I/O. A quorum has no latches, and refuses the first call with `Unsupported`.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let latch = leasehold.latch("import 2026-11-25");
/// latch.create(3).await?; // each program may call it
/// for part in 1..=3 {
///     latch.count_down_as(&format!("part {part}")).await?; // counts once, also if a program starts again
/// }
/// latch.wait().await?; // all parts are done
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Latch {
    acquirer: Acquirer,
    keep: Duration,
}

/// How long a latch is kept, unless its creator says otherwise.
const KEEP: Duration = Duration::from_secs(60 * 60);

impl Latch {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        Self { acquirer: Acquirer::new(client, name, Take::OPEN_LATCH), keep: KEEP }
    }

    /// Creates the latch, which opens after this many count-downs (1 to 100,000). If it exists with the same number, this
    /// changes nothing. One round trip.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the latch may exist.
    ///
    /// # Errors
    ///
    /// - `Mismatch`: the latch exists with another number, or the name is of another kind.
    /// - `Invalid`: the number, the name, or the time to keep it is out of range.
    /// - Those of [`Mutex::inspect`](crate::Mutex::inspect). The latch may exist after `Unreachable`; call it again.
    pub async fn create(&self, count: u32) -> Result<()> {
        let failed = |error: Error| self.acquirer.failed(Operation::Create, error);
        if !(1..=COUNTS_MAX).contains(&count) {
            let message = format!("{count} count-downs are out of range: use 1 to {COUNTS_MAX}");
            return Err(failed(Error::invalid(message)));
        }
        if self.keep.as_millis() > u128::from(LEASE_MAX_MS) {
            let message = format!("{:?} is too long to keep a latch: use at most 24 h", self.keep);
            return Err(failed(Error::invalid(message)));
        }
        self.state(count).await.map(drop).map_err(failed)
    }

    /// Counts down by one. Two round trips. The first one reads which latch it is, and fails if the store does not reply.
    /// Then the client sends the count-down until the store has replied, for at most 24 h, and once more if the store fails
    /// over. It counts once, however often it is sent.
    ///
    /// Count-downs of an open latch change nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may count or not.
    ///
    /// # Errors
    ///
    /// - `Absent`: there is no such latch.
    /// - `Mismatch`: the name is of another kind.
    /// - Those of [`Mutex::inspect`](crate::Mutex::inspect), before anything was counted. `Unreachable` after 24 h without
    ///   a reply: the call may have counted.
    /// - `Store`: the store has no room, or refuses the request. The client does not repeat it. Nothing was counted, unless
    ///   [`Error::may_have_acted`](crate::Error::may_have_acted) is true.
    pub async fn count_down(&self) -> Result<()> {
        self.count(None).await
    }

    /// Counts down by one for this part of the work. Later calls for the same part change nothing: a program that starts
    /// again does not count twice. See [`Latch::count_down`].
    ///
    /// # Errors
    ///
    /// See [`Latch::count_down`].
    pub async fn count_down_as(&self, part: &str) -> Result<()> {
        self.count(Some(id_of(part))).await
    }

    /// Waits until the latch is open, for as long as that takes. One round trip if it is open.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the caller waits no more, and nothing else changes.
    ///
    /// # Errors
    ///
    /// - `Absent`: there is no such latch, or it was deleted meanwhile.
    /// - `Mismatch`: the name is of another kind. `Full`: 10,000 callers wait.
    /// - Those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn wait(&self) -> Result<()> {
        // The store grants a lease to each waiter of an open latch. Nothing is done under it.
        self.acquirer.acquire().await.map(drop)
    }

    /// Waits for at most `wait`, and returns whether the latch is open. With zero it only asks. See [`Latch::wait`].
    ///
    /// # Errors
    ///
    /// See [`Latch::wait`] and [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    pub async fn wait_for(&self, wait: Duration) -> Result<bool> {
        let opened = match wait.is_zero() {
            true => self.acquirer.try_acquire().await,
            false => self.acquirer.try_acquire_for(wait).await,
        };
        Ok(opened?.is_some())
    }

    /// Returns how many count-downs are missing: 0 if the latch is open. One round trip.
    ///
    /// # Errors
    ///
    /// `Absent`, `Mismatch`, and those of [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn remaining(&self) -> Result<u32> {
        self.state(0).await.map(|(left, _)| left).map_err(|error| self.acquirer.failed(Operation::Create, error))
    }

    /// Deletes the latch. Its waiters fail with `Absent`, within about 6 s if a message is lost. The name is free for a new
    /// latch. Count-downs of the earlier one do not count for it. Two round trips.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the latch may be deleted or not.
    ///
    /// # Errors
    ///
    /// `Absent`, `Mismatch`, and those of [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn delete(&self) -> Result<()> {
        let failed = |error: Error| self.acquirer.failed(Operation::Delete, error);
        let (_, born) = self.state(0).await.map_err(failed)?;
        self.acquirer.ask(Call::Latch, |_| Op::DeleteLatch { born }).await.map(drop).map_err(failed)
    }

    /// Sets for how long [`Latch::create`] lets the store keep the latch, after its creation and after each count-down: at
    /// most 24 h. Default: 1 h.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        Self { keep, ..self }
    }

    async fn count(&self, part: Option<GrantId>) -> Result<()> {
        let failed = |error: Error| self.acquirer.failed(Operation::CountDown, error);
        let (_, born) = self.state(0).await.map_err(failed)?;
        self.acquirer.count_down(born, part).await.map_err(failed)
    }

    /// Creates the latch, or returns how many count-downs are missing and which latch it is.
    async fn state(&self, limit: u32) -> Result<(u32, Token)> {
        let keep_ms = self.keep.as_millis().try_into().unwrap_or(LEASE_MAX_MS);
        let op = |not_after_us| Op::CreateLatch { limit, keep_ms, not_after_us };
        match self.acquirer.ask(Call::Latch, op).await? {
            Outcome::Counted { left, born } => Ok((left, born)),
            Outcome::Refused(Refusal::Absent) => Err(Error::absent()),
            Outcome::Refused(Refusal::Other { kind, limit: known }) => {
                let message = match kind {
                    Kind::Latch => format!(
                        "the latch was created with {known} count-downs, and this call is for {limit}: use one number \
                         everywhere, or delete the latch first"
                    ),
                    other => format!("the name is in use as a {}: use another name", other.word()),
                };
                Err(Error::new(ErrorKind::Mismatch, message))
            }
            _ => Err(Error::new(ErrorKind::Unreachable, "the request was late: try again")),
        }
    }
}

/// Returns the ID of a part of the work: the same in each program (128 bits of FNV-1a).
fn id_of(part: &str) -> GrantId {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    let hash = part.bytes().fold(0x6C62_272E_07BB_0142_62B8_2175_6295_C58D_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    GrantId { session: SessionId(hash), counter: 0, nonce: 0 }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acquirer.fmt_as("Latch", f)
    }
}
