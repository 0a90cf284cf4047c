//! The store `quorum:`: what there is to it beside locks.

use crate::error::Result;
use crate::real::Real;
use crate::store::quorum::node::Begin;
use crate::store::{Scheme, quorum_of};
use crate::{Error, ErrorKind};

/// Begins a new quorum: its nodes vote at once.
///
/// A node that nobody has seen before may have forgotten leases, for all that its clients know. It rests for as long as
/// those can last (`max_lease`, 60 s unless said; 22 s at least). A quorum that is new has none to forget: an operator says
/// so, once.
///
/// # What is asked first
/// This looks through the records of all nodes, also of those that rest. It refuses while any node knows a holder or a
/// waiter of any name below the URL's prefix, and the error names them. A lock that was given back does not count, nor a
/// lease that has ended. A waiter counts, as it may wait for a holder that was forgotten; so begin a new quorum before its
/// programs start. One that died counts until its record is forgotten, for its lease and a minute at most.
///
/// What no node remembers cannot be found. If *all* nodes that voted for a lease have restarted empty, its holder is not
/// seen, and the next one holds beside it, with a token that may be the same. Begin a quorum that was in use only when you
/// know that its programs are stopped, or wait.
///
/// Tokens go on rising: before it tells the nodes, this waits until the clocks of all of them are a second past the largest
/// token that one of them remembers. That is a second or two where a lock was used just now, and no time elsewhere. A clock
/// that is more than 10 s behind that token is an error, `Store`.
///
/// # Time
/// Nodes are asked at once, each for a page of 1,000 keys and the records in it. All nodes have to be there: each has to
/// connect, and then to answer each request, within 5 s. Looking takes 60 s at most; a million records take some ten
/// seconds on a node nearby. Programs without a runtime: `blocking::quorum::begin`.
///
/// # Cancel safety
/// Dropping the future leaves each node as it was, or begun.
///
/// # Errors
/// `Invalid` for a URL that does not begin with `quorum:`. `InUse` if somebody holds or waits. `Unreachable`, `Denied` (the
/// user of each node needs `+scan`), `Foreign` and others of the first node that cannot be asked; `Unreachable` also where
/// looking takes longer than 60 s; `Store` for a clock that is far behind a token. In all these cases no node is told. A
/// node that is told last may be away by then, or was emptied since it was asked (`InUse` as well): that error leaves the
/// others begun.
pub async fn begin(url: &str) -> Result<()> {
    of(url, Begin::Asked).await
}

/// Begins a quorum without asking its nodes, whoever holds or waits: see [`begin`].
///
/// For an operator who knows that nobody holds: programs wait for a new quorum already, waiters are dead, a record is
/// damaged, or a node has more keys than can be looked through. If somebody does hold, another can be granted the same lock
/// with the same token, and no resource could tell the two apart.
///
/// # Cancel safety
/// As [`begin`].
///
/// # Errors
/// As [`begin`], without `InUse`; the right `+scan` is not needed.
pub async fn force_begin(url: &str) -> Result<()> {
    of(url, Begin::Forced).await
}

async fn of(url: &str, begin: Begin) -> Result<()> {
    let world = Real::world();
    match Scheme::of(url)? {
        (Scheme::Quorum, rest) => quorum_of(rest, None, &world)?.begin(begin).await,
        _ => Err(Error::new(ErrorKind::Invalid, "expected a URL that starts with `quorum:`")),
    }
}
