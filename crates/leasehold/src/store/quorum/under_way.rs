//! What is under way and waited for by nobody: answers beyond a majority, and votes that go back.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many tasks of that kind there are.
#[derive(Default)]
pub(super) struct UnderWay {
    tasks: AtomicUsize,
    is_idle: Notify,
}

/// One of them.
pub(super) struct Task(Arc<UnderWay>);

impl UnderWay {
    /// One more, until this is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Task {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        Task(Arc::clone(self))
    }

    /// Ends when there is none.
    pub(super) async fn idle(&self) {
        loop {
            let mut is_idle = pin!(self.is_idle.notified());
            // From here on it is heard of the last one's end.
            is_idle.as_mut().enable();
            if self.tasks.load(Ordering::Acquire) == 0 {
                return;
            }
            is_idle.await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.is_idle.notify_waiters();
        }
    }
}
