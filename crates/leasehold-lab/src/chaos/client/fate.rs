//! The end of a task: it ends by itself, or together with its runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::kind::Kind;
use super::shift::Shift;

/// Whether the end of a runtime was already reported to the lab.
pub(super) type Reported = AtomicBool;

/// Lives as long as a task. It must be dropped after the locks of the task.
pub(super) struct Fate {
    shift: Arc<Shift>,
    me: String,
    reported: Option<Arc<Reported>>,
}

impl Fate {
    pub(super) fn new(shift: Arc<Shift>, me: String, reported: Option<Arc<Reported>>) -> Self {
        Self { shift, me, reported }
    }

    /// Records that the task has done its work.
    pub(super) fn fulfilled(mut self) {
        self.me.clear();
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        if self.me.is_empty() || std::thread::panicking() || !self.shift.ended(&self.me) {
            return;
        }
        if self.reported.take().is_some_and(|reported| !reported.swap(true, Ordering::SeqCst)) {
            println!("struck {:?}", Kind::EndRuntime);
        }
    }
}
