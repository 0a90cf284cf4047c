//! What there is to a quorum beside locks, for programs without a runtime.

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::real::Real;
use crate::session::no_thread;

/// Begins a new quorum, as [`crate::quorum::begin`] does, and blocks until its nodes vote.
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
/// As there, and `Store` when the system gives no thread.
///
/// ```
/// use leasehold::ErrorKind;
///
/// let error = leasehold::blocking::quorum::begin("redis://127.0.0.1:6379").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid); // that is one server
/// ```
pub fn begin(url: &str) -> Result<()> {
    let url = url.to_owned();
    apart(async move { crate::quorum::begin(&url).await })
}

/// Begins a quorum without asking its nodes, as [`crate::quorum::force_begin`] does, and blocks until its nodes vote.
///
/// # Errors
/// As there, and `Store` when the system gives no thread.
pub fn force_begin(url: &str) -> Result<()> {
    let url = url.to_owned();
    apart(async move { crate::quorum::force_begin(&url).await })
}

/// Connections need a runtime, and this thread may have none.
fn apart(begin: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let (tell, is_begun) = oneshot::channel();
    let begin = async move { drop(tell.send(begin.await)) };
    Real::world().spawn_session(Box::pin(begin)).map_err(no_thread)?;
    super::wait(is_begun).map_err(|_| Error::closed())?
}
