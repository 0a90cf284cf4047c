//! The signal of the loss of a lease.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::lost::Lost;
use crate::session::{Hold, Seat};

/// A future that completes when a lease is lost: see [`Guard::lost`](crate::Guard::lost). If the lease was released
/// instead, its reason is [`LostReason::Released`](crate::LostReason::Released).
#[must_use = "a signal does nothing unless it is awaited"]
pub struct LostSignal {
    hold: Arc<Hold>,
    seat: Seat,
}

impl LostSignal {
    pub(crate) fn new(hold: &Arc<Hold>) -> Self {
        Self { hold: Arc::clone(hold), seat: Seat::default() }
    }
}

impl Clone for LostSignal {
    fn clone(&self) -> Self {
        Self::new(&self.hold)
    }
}

impl Future for LostSignal {
    type Output = Lost;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lost> {
        let signal = self.get_mut();
        signal.hold.poll_lost(&mut signal.seat, context)
    }
}

impl Drop for LostSignal {
    fn drop(&mut self) {
        self.hold.leave(&self.seat);
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("lost", &self.hold.why_lost()).finish()
    }
}
