//! Setting up a quorum. Locks on a quorum are used like all others: see
//! [`Leasehold::connect`](crate::Leasehold::connect).

use crate::error::{Operation, Result};
use crate::real::Real;
use crate::store::choose::quorum_of;
use crate::store::quorum::node::Begin;
use crate::store::scheme::Scheme;
use crate::{Error, ErrorKind};

/// Initializes a new quorum, so that its nodes vote at once.
///
/// A node without data may have lost leases: nobody can tell a new node from one that lost its data. It therefore
/// starts in quarantine, and does not vote while a lost lease could last: for `max_lease` (default 60 s), and for at
/// least 22 s. A quorum that was never in use has no leases to lose. An operator declares that once, with this call.
///
/// # Checks
///
/// This call reads the records of all nodes, also of nodes in quarantine. It fails while any node has a holder or a
/// waiter of any name with the prefix of the URL, and the error names them.
///
/// - A lock that was released does not count, nor does a lease that has ended.
/// - A waiter counts, because it may wait for a holder that the nodes have forgotten. So initialize a new quorum before
///   its programs start. A waiter that died counts until its record is deleted: at most its lease and one minute later.
/// - A lease that no node remembers cannot be found. If *all* nodes that voted for a lease restarted without data, its
///   holder is not seen. The next holder then works at the same time, possibly with the same token. Initialize a quorum
///   that was in use only if all its programs are stopped; otherwise wait until the quarantine is over.
///
/// Tokens keep rising. Before this call initializes the nodes, it waits until the clocks of all of them are 1 s ahead
/// of the largest token that any of them has. If a lock was used a moment ago, that takes a second or two; otherwise it
/// takes no time. If a clock is more than 10 s behind that token, the call fails with `Store`.
///
/// # Time limits
///
/// The call asks all nodes at the same time, each for pages of 1,000 keys and their records. All nodes must be there:
/// each must connect within 5 s, and reply to each request within 5 s. Reading may take at most 60 s; a million records
/// take about ten seconds on a node nearby. Programs without a runtime use `blocking::quorum::begin`.
///
/// # Cancel safety
///
/// If the future is dropped, each node is either initialized or unchanged.
///
/// # Errors
///
/// - `Invalid`: the URL does not begin with `quorum:`.
/// - `InUse`: a holder or a waiter exists. No node is initialized.
/// - `Unreachable`: a node cannot be reached, or reading takes longer than 60 s. No node is initialized.
/// - `Denied`, `Foreign` and others: the error of the first node that cannot be read. The user of each node needs the
///   permission `+scan`. No node is initialized.
/// - `Store`: a clock is far behind a token. No node is initialized.
///
/// If a node becomes unreachable after the checks, or was emptied since (`InUse`), the other nodes may be initialized
/// already.
pub async fn begin(url: &str) -> Result<()> {
    of(url, Begin::Asked).await
}

/// Initializes a quorum without any check, even if locks are held or waited for: see [`begin`].
///
/// This is for operators who know that there is no holder: programs already wait for a new quorum, the waiters are
/// dead, a record is damaged, or a node has too many keys to read. If a holder exists, another client can be granted
/// the same lock with the same token, and no resource could tell the two apart.
///
/// # Cancel safety
///
/// See [`begin`].
///
/// # Errors
///
/// See [`begin`]. There is no `InUse`, and the permission `+scan` is not needed.
pub async fn force_begin(url: &str) -> Result<()> {
    of(url, Begin::Forced).await
}

async fn of(url: &str, begin: Begin) -> Result<()> {
    initialize(url, begin).await.map_err(|error| error.of(Operation::Begin, None))
}

async fn initialize(url: &str, begin: Begin) -> Result<()> {
    let world = Real::world();
    match Scheme::of(url)? {
        (Scheme::Quorum, rest) => quorum_of(rest, None, &world)?.begin(begin).await,
        _ => Err(Error::new(ErrorKind::Invalid, "expected a URL that starts with `quorum:`")),
    }
}
