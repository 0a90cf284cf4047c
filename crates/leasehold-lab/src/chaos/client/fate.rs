//! What becomes of a task: it ends by itself, or its runtime ends under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::kind::Kind;
use super::shift::Shift;

/// Whether the end of a runtime was reported to the lab already.
pub(super) type Told = AtomicBool;

/// Lives as long as a task. Drop it behind the locks of the task.
pub(super) struct Fate {
    shift: Arc<Shift>,
    me: String,
    told: Option<Arc<Told>>,
}

impl Fate {
    pub(super) fn new(shift: Arc<Shift>, me: String, told: Option<Arc<Told>>) -> Self {
        Self { shift, me, told }
    }

    /// The task has done its work.
    pub(super) fn fulfilled(mut self) {
        self.me.clear();
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        if self.me.is_empty() || std::thread::panicking() || !self.shift.ended(&self.me) {
            return;
        }
        if self.told.take().is_some_and(|told| !told.swap(true, Ordering::SeqCst)) {
            println!("struck {:?}", Kind::EndRuntime);
        }
    }
}
