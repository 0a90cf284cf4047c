//! The runtimes around a call: the runtime that connected, and the surroundings of the caller.

use std::pin::pin;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use super::{Flavor, Place};

/// The state of the runtime that connected, after it connected.
pub(super) enum Connecting {
    /// A thread polls it until it gets a stop signal.
    Polled { stop: oneshot::Sender<()>, thread: JoinHandle<()> },
    /// Nobody polls it: its only worker, if it has one, is stuck in a task until this sender is dropped.
    Blocked { runtime: Runtime, _worker: mpsc::Sender<()> },
    /// It was dropped.
    Gone,
}

/// The surroundings of the caller.
pub(super) enum Caller {
    /// A runtime that polls the call.
    Own(Runtime),
    /// A runtime that the thread has entered, and that nobody polls.
    Entered { handle: Handle, _kept: Option<Runtime> },
    /// No runtime.
    Nothing,
}

impl Flavor {
    pub(super) fn build(self) -> Runtime {
        let mut builder = match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::OneWorker => Builder::new_multi_thread(),
        };
        builder.worker_threads(1).enable_all().build().expect("a runtime")
    }
}

impl Connecting {
    /// Turns the connected runtime into the surroundings that this place requires.
    #[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
    pub(super) fn then(runtime: Runtime, flavor: Flavor, place: Place) -> (Self, Caller) {
        let own = || Flavor::CurrentThread.build();
        match place {
            Place::OwnIdle => (Self::polled(runtime), Caller::Own(own())),
            Place::OwnBlocked => (Self::polled(runtime), Caller::entered(own())),
            Place::ConnectingBlocked => (Self::blocked(runtime, flavor), Caller::Own(own())),
            Place::ConnectingGone => (Self::gone(runtime), Caller::Own(own())),
            Place::NoRuntime => (Self::polled(runtime), Caller::Nothing),
            Place::InConnectingBlocked => {
                let entered = Caller::Entered { handle: runtime.handle().clone(), _kept: None };
                (Self::blocked(runtime, flavor), entered)
            }
            Place::NoRuntimeConnectingGone => (Self::gone(runtime), Caller::Nothing),
        }
    }

    fn polled(runtime: Runtime) -> Self {
        let (stop, stopped) = oneshot::channel();
        // A dropped sender is the same signal.
        let poll = move || drop(runtime.block_on(stopped));
        let thread = thread::Builder::new().name("polled".into()).spawn(poll).expect("a thread");
        Self::Polled { stop, thread }
    }

    fn blocked(runtime: Runtime, flavor: Flavor) -> Self {
        let (worker, stuck) = mpsc::channel::<()>();
        if flavor == Flavor::OneWorker {
            let (tell, is_stuck) = mpsc::channel::<()>();
            drop(runtime.spawn(async move {
                drop(tell);
                // The only result is an error: the sender was dropped, which ends the block.
                let _ = stuck.recv();
            }));
            // The only event is that the sender was dropped.
            let _ = is_stuck.recv();
        }
        Self::Blocked { runtime, _worker: worker }
    }

    fn gone(runtime: Runtime) -> Self {
        drop(runtime);
        Self::Gone
    }

    /// Ends the runtime, whatever runs there.
    pub(super) fn end(self) {
        match self {
            Self::Polled { stop, thread } => {
                drop(stop);
                drop(thread.join());
            }
            Self::Blocked { runtime, _worker } => {
                drop(_worker);
                runtime.shutdown_background();
            }
            Self::Gone => {}
        }
    }
}

impl Caller {
    fn entered(runtime: Runtime) -> Self {
        Self::Entered { handle: runtime.handle().clone(), _kept: Some(runtime) }
    }

    /// Waits for the future on this thread.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Own(runtime) => runtime.block_on(future),
            Self::Entered { handle, .. } => {
                let _entered = handle.enter();
                pollster::block_on(pin!(future))
            }
            Self::Nothing => pollster::block_on(pin!(future)),
        }
    }
}
