//! Unfenced writes in flight, and the reasons for which the lock is not at fault when one of them is late.
//!
//! A lock keeps two holders apart for as long as the holder believes in it. A write that was sent by then may arrive at
//! any later time, whoever holds: fencing tokens are for that. A client that sends after its guard has reported the
//! loss breaks a promise, and nothing here excuses it. Nor does anything excuse the fenced register.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};

use leasehold::Lost;
use leasehold::seam::Pending;

use super::exec::{Exec, Pid};

/// A write in flight, as its sender saw it.
pub(super) struct Sent {
    at_us: u64,
    /// How much was left of its lease.
    left_us: u64,
    /// `None` if its guard had already reported that the lease is lost.
    own_end: Option<Arc<OwnEnd>>,
    /// Keeps the hold's loss signal registered for as long as the write lives.
    _lost: Pending<Lost>,
}

/// When the hold ended by its own guard: it was released, or its loss was reported.
struct OwnEnd {
    exec: Arc<Exec>,
    pid: Pid,
    at_us: OnceLock<u64>,
}

/// From when on an arriving write had no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) from_us: u64,
    pub(super) met: &'static str,
    pub(super) why: &'static str,
}

impl Sent {
    /// Returns a write that is sent now; `lost` is the signal of its guard. The signal wakes no task, so that this
    /// observation does not change the run.
    pub(super) fn now(exec: &Arc<Exec>, pid: Pid, left_us: u64, mut lost: Pending<Lost>) -> Self {
        let own_end = Arc::new(OwnEnd { exec: Arc::clone(exec), pid, at_us: OnceLock::new() });
        let waker = Waker::from(Arc::clone(&own_end));
        let is_held = lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        Self { at_us: exec.now_us(), left_us, own_end: is_held.then_some(own_end), _lost: lost }
    }

    /// Returns why the arriving write is late. Its work was dropped, or its lease revoked, at `cut_us`.
    pub(super) fn arrives(&self, cut_us: Option<u64>, now_us: u64) -> Vec<Late> {
        let Some(own_end) = &self.own_end else { return Vec::new() };
        let lease = (now_us - self.at_us >= self.left_us).then_some(Late {
            from_us: self.at_us,
            met: "a write arrives after its lease",
            why: "a write was in flight for longer than its lease",
        });
        let cut_us = cut_us.filter(|cut_us| *cut_us < now_us);
        let work = cut_us.map(|from_us| Late {
            from_us,
            met: "a write arrives after its work",
            why: "a write was in flight when its work was dropped, or its lease revoked",
        });
        // The other reasons already cover their own cases.
        let own_end_us = own_end
            .at_us
            .get()
            .filter(|own_end_us| lease.is_none() && cut_us.is_none_or(|cut_us| **own_end_us < cut_us));
        let hold = own_end_us.map(|&from_us| Late {
            from_us,
            met: "a write arrives after its hold",
            why: "a write was in flight when its sender released, or was notified that the lease is lost",
        });
        [lease, work, hold].into_iter().flatten().collect()
    }
}

impl Wake for OwnEnd {
    fn wake(self: Arc<Self>) {
        // A dying client gives nothing back and is notified of nothing: the lease stays what it was.
        if !self.exec.tasks_of(self.pid).is_empty() {
            self.at_us.get_or_init(|| self.exec.now_us());
        }
    }
}
