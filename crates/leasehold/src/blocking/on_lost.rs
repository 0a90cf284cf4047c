//! A call when a lease is lost.
//!
//! Whoever learns of a loss wakes those who wait for it: usually the session's thread, on which nothing of the caller's may
//! run, or every other lease of the client would go unrenewed for as long. So what waits here is a waker that starts a
//! thread, and nothing is started for the leases that are given back, which are nearly all.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;

use crate::error::Lost;
use crate::session::{Hold, Seat};

struct Call<F> {
    /// A circle, as the hold has our waker: its end, which every hold comes to, takes that out.
    hold: Arc<Hold>,
    /// `None` once it was called, or never will be.
    tell: Mutex<Option<F>>,
}

pub(super) fn call(hold: &Arc<Hold>, tell: impl FnOnce(Lost) + Send + 'static) {
    let call = Arc::new(Call { hold: Arc::clone(hold), tell: Mutex::new(Some(tell)) });
    let waker = Waker::from(Arc::clone(&call));
    // The seat is never left: the hold's end clears it.
    if hold.poll_lost(&mut Seat::default(), &Context::from_waker(&waker)).is_ready() {
        call.wake();
    }
}

impl<F: FnOnce(Lost) + Send + 'static> Wake for Call<F> {
    fn wake(self: Arc<Self>) {
        let Some(lost) = self.hold.why_lost() else { return };
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(tell) = tell.filter(|_| lost != Lost::Released) else { return };
        // Not by the seam: this thread is the caller's, and no part of the session. The refusal is documented.
        drop(thread::Builder::new().name("leasehold-lost".into()).spawn(move || tell(lost)));
    }
}
