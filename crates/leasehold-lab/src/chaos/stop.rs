//! SIGINT and SIGTERM end a run in order: all processes that it started are ended, and nothing is left over. (SIGHUP is
//! not handled, so that nohup works.)

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

/// A signal that requests the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted(pub(crate) i32);

#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<(Mutex<Option<i32>>, Condvar)>);

impl Stop {
    /// Listens to signals on this runtime.
    pub(crate) fn listen(runtime: &Handle) -> std::io::Result<Self> {
        let stop = Self::default();
        let _inside = runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let (mut signals, stop) = (signal(kind)?, stop.clone());
            runtime.spawn(async move {
                if signals.recv().await.is_some() {
                    *stop.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kind.as_raw_value());
                    stop.0.1.notify_all();
                }
            });
        }
        Ok(stop)
    }

    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        self.sleep_until(Instant::now())
    }

    /// Sleeps until this time, or until a signal arrives.
    pub(crate) fn sleep_until(&self, until: Instant) -> Result<(), Interrupted> {
        let (signal, changed) = &*self.0;
        let signal = signal.lock().unwrap_or_else(PoisonError::into_inner);
        let time = until.saturating_duration_since(Instant::now());
        let came = changed.wait_timeout_while(signal, time, |signal| signal.is_none());
        came.unwrap_or_else(PoisonError::into_inner).0.map_or(Ok(()), |signal| Err(Interrupted(signal)))
    }
}
