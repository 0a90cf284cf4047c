//! The store `quorum:`: what there is to it beside locks.

use crate::error::Result;
use crate::real::Real;
use crate::store::{Scheme, quorum_of};
use crate::{Error, ErrorKind};

/// Declares that nobody holds a lease of this quorum, so that its nodes vote at once.
///
/// A node that nobody has seen before may have forgotten leases, for all that its clients know, and rests for as long as
/// those can last (`max_lease`, 60 s unless said; 22 s at least). A quorum that is new has none to forget: an operator says
/// so, once. Said of a quorum that is in use, it can make two holders; nothing looks whether it is, nor how many nodes and
/// which longest lease it had.
///
/// All nodes have to be there, and answer within 5 s: else none of them is told. Programs without a runtime:
/// `blocking::quorum::begin`.
///
/// # Cancel safety
/// Dropping the future leaves each node as it was, or begun.
///
/// # Errors
/// `Invalid` for a URL that is none of a quorum; `Unreachable`, `Denied` and others of the first node that cannot be
/// told. One that fails between its greeting and its being told leaves the others begun.
pub async fn begin(url: &str) -> Result<()> {
    let world = Real::world();
    match Scheme::of(url)? {
        (Scheme::Quorum, rest) => quorum_of(rest, None, &world)?.begin().await,
        _ => Err(Error::new(ErrorKind::Invalid, "this is no quorum: its URL begins with quorum:")),
    }
}
