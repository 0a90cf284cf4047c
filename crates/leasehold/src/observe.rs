//! Observation: the layer by which a program sees what its locks do. (Feature `tracing`.)
//!
//! Each call to a store is a span, named like its operation in the specification: `acquire`, `release`, `inspect`,
//! `revoke`. An event that no call causes (a loss, a late renewal) has no span. Everything has the target `leasehold`, and
//! the field `lock` with the name of the lock.
//!
//! A subscriber is the program's own code: it may lock, or call this crate. So nothing is emitted under a mutex of ours.
//! The machine collects [`Event`]s among its effects, and they are emitted with the other effects, once its lock is free.
//!
//! Without the feature, the functions of this file are empty and its types have no size: nothing is collected, and no
//! future is wrapped.

use std::future::Future;

use leasehold_spec::Name;

use crate::lost::LostReason;

/// A change of a lease, or of the connection to the store.
#[derive(Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only `tracing` reads the fields"))]
pub(crate) enum Event {
    /// An acquire waits from now on: somebody else holds the lock.
    Waits { name: Name },
    /// A lease was handed on to another caller.
    HandedOver { name: Name, to: To },
    /// The store has not answered a renewal in time. The client doubts the connection, and repeats the renewal.
    RenewalLate { name: Name },
    /// A renewal failed. The client repeats it.
    RenewalFailed { name: Name, error: String },
    /// A lease was lost.
    Lost { name: Name, reason: LostReason },
    /// The connection to the store has ended. The client connects again.
    StoreLost,
    /// The store is connected again.
    StoreBack,
}

/// The receiver of a lease that was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Another caller of this client.
    Local,
    /// The next waiter in the queue of the store.
    Remote,
}

/// A call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Acquire,
    Upgrade,
    Release,
    Inspect,
    Revoke,
    Resize,
    Notify,
    Latch,
    Put,
    HandTo,
}

#[cfg(feature = "tracing")]
mod on {
    use tracing::{Instrument, Span, debug, debug_span, info, warn};

    use super::{Call, Event, Future, Name, To};

    /// Events that wait until the lock of the machine is free.
    #[derive(Default)]
    pub(crate) struct Events(Vec<Event>);

    impl Events {
        /// Adds an event, if a subscriber wants any of this crate.
        pub(crate) fn push(&mut self, event: impl FnOnce() -> Event) {
            if tracing::enabled!(target: "leasehold", tracing::Level::WARN) {
                self.0.push(event());
            }
        }

        /// Emits the events. Never called under a lock.
        pub(crate) fn emit(self) {
            self.0.into_iter().for_each(emit);
        }
    }

    /// Emits an event. Never called under a lock.
    pub(crate) fn emit(event: Event) {
        match event {
            Event::Waits { name } => debug!(target: "leasehold", lock = %name, "waits: somebody else holds the lock"),
            Event::HandedOver { name, to: To::Local } => {
                debug!(target: "leasehold", lock = %name, "handed over inside the client");
            }
            Event::HandedOver { name, to: To::Remote } => {
                debug!(target: "leasehold", lock = %name, "handed over to the next waiter");
            }
            Event::RenewalLate { name } => warn!(target: "leasehold", lock = %name, "renewal late"),
            Event::RenewalFailed { name, error } => {
                warn!(target: "leasehold", lock = %name, error, "renewal failed");
            }
            Event::Lost { name, reason } => warn!(target: "leasehold", lock = %name, %reason, "lost"),
            Event::StoreLost => warn!(target: "leasehold", "store lost"),
            Event::StoreBack => info!(target: "leasehold", "store back"),
        }
    }

    /// Runs a call in its span.
    pub(crate) fn call<F: Future>(call: Call, name: &Name, future: F) -> impl Future<Output = F::Output> + use<F> {
        future.instrument(span(call, name))
    }

    fn span(call: Call, name: &Name) -> Span {
        match call {
            Call::Acquire => debug_span!(target: "leasehold", "acquire", lock = %name),
            Call::Upgrade => debug_span!(target: "leasehold", "upgrade", lock = %name),
            Call::Release => debug_span!(target: "leasehold", "release", lock = %name),
            Call::Inspect => debug_span!(target: "leasehold", "inspect", lock = %name),
            Call::Revoke => debug_span!(target: "leasehold", "revoke", lock = %name),
            Call::Resize => debug_span!(target: "leasehold", "resize", lock = %name),
            Call::Put => debug_span!(target: "leasehold", "put", lock = %name),
            Call::HandTo => debug_span!(target: "leasehold", "hand_to", lock = %name),
            Call::Latch => debug_span!(target: "leasehold", "latch", lock = %name),
            Call::Notify => debug_span!(target: "leasehold", "notify", lock = %name),
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use super::{Call, Event, Future, Name};

    #[derive(Default)]
    pub(crate) struct Events;

    impl Events {
        #[expect(clippy::unused_self, reason = "the same methods with and without the feature")]
        pub(crate) fn push(&mut self, _: impl FnOnce() -> Event) {}

        pub(crate) fn emit(self) {}
    }

    pub(crate) fn emit(_: Event) {}

    pub(crate) fn call<F: Future>(_: Call, _: &Name, future: F) -> F {
        future
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{Events, call, emit};
#[cfg(feature = "tracing")]
pub(crate) use on::{Events, call, emit};
