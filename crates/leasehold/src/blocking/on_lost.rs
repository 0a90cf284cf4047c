//! Calls a function when a lease is lost.
//!
//! The thread that detects a loss wakes everything that waits for it. This thread is usually the thread of the session. It
//! must not run the function of the caller, because no other lease of the client would be renewed meanwhile. So the waker
//! here starts a new thread. If the lease is released, which is the usual end, the waker starts no thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;

use crate::lost::{Lost, LostReason};
use crate::session::{Hold, Seat};

struct Call<F> {
    /// A reference cycle: the hold contains our waker. The end of the hold, which always comes, removes the waker.
    hold: Arc<Hold>,
    /// `None` once it was called or cannot be called any more.
    callback: Mutex<Option<F>>,
}

pub(super) fn call(hold: &Arc<Hold>, callback: impl FnOnce(Lost) + Send + 'static) {
    let call = Arc::new(Call { hold: Arc::clone(hold), callback: Mutex::new(Some(callback)) });
    let waker = Waker::from(Arc::clone(&call));
    // The seat is not given up here: the end of the hold clears it.
    if hold.poll_lost(&mut Seat::default(), &Context::from_waker(&waker)).is_ready() {
        call.wake();
    }
}

impl<F: FnOnce(Lost) + Send + 'static> Wake for Call<F> {
    fn wake(self: Arc<Self>) {
        let Some(reason) = self.hold.why_lost() else { return };
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(callback) = callback.filter(|_| reason != LostReason::Released) else { return };
        let lost = self.hold.lost(reason);
        // Not started through `World`, because this thread belongs to the caller. The documentation names the failure.
        drop(thread::Builder::new().name("leasehold-lost".into()).spawn(move || callback(lost)));
    }
}
