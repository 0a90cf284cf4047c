//! Setting up a quorum, for programs without a runtime.

use tokio::sync::oneshot;

use crate::error::{Error, Operation, Result};
use crate::real::Real;
use crate::session::no_thread;

/// Initializes a new quorum: see [`crate::quorum::begin`]. It blocks until the nodes vote.
///
/// ```no_run
/// use leasehold::blocking;
///
/// # fn main() -> leasehold::Result<()> {
/// let store = "quorum:?node=redis://a&node=redis://b&node=redis://c";
/// blocking::quorum::begin(store)?; // once, when it is new
/// let guard = blocking::Leasehold::connect(store)?.mutex("stock:42").lock()?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// See [`crate::quorum::begin`]. Also `Store` if the system cannot start a thread.
///
/// ```
/// use leasehold::ErrorKind;
///
/// let error = leasehold::blocking::quorum::begin("redis://127.0.0.1:6379").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid); // this is one server
/// ```
pub fn begin(url: &str) -> Result<()> {
    let url = url.to_owned();
    apart(async move { crate::quorum::begin(&url).await })
}

/// Initializes a quorum without any check: see [`crate::quorum::force_begin`]. It blocks until the nodes vote.
///
/// # Errors
///
/// See [`crate::quorum::force_begin`]. Also `Store` if the system cannot start a thread.
pub fn force_begin(url: &str) -> Result<()> {
    let url = url.to_owned();
    apart(async move { crate::quorum::force_begin(&url).await })
}

/// Runs the future on a new thread that has a runtime. Connections need a runtime, and the calling thread may have none.
fn apart(begin: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let (tell, is_begun) = oneshot::channel();
    let begin = async move { drop(tell.send(begin.await)) };
    let failed = |error: Error| error.of(Operation::Begin, None);
    Real::world().spawn_session(Box::pin(begin)).map_err(|error| failed(no_thread(error)))?;
    super::wait(is_begun).map_err(|_| failed(Error::closed()))?
}
