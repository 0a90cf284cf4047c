//! Writes to the register without a fence while they are under way, and what is no fault of the lock when one is late.
//!
//! A lock keeps two apart for as long as the holder of it believes in it. What was sent by then may arrive at any time
//! later, whoever holds: fencing tokens are for that. Whoever sends when its guard says no breaks a promise, and nothing
//! here excuses it. Nor does anything excuse the fenced register.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};

use leasehold::Lost;
use leasehold::seam::Pending;

use super::exec::{Exec, Pid};

/// A write under way, as its sender saw it.
pub(super) struct Sent {
    at_us: u64,
    /// So much was left of its lease.
    left_us: u64,
    /// `None`: its guard had said that the lease is lost.
    told: Option<Arc<Told>>,
    /// It has a seat with the hold for as long as it lives.
    _lost: Pending<Lost>,
}

/// When the hold ended by its own guard: given back, or told of its loss.
struct Told {
    exec: Arc<Exec>,
    pid: Pid,
    at_us: OnceLock<u64>,
}

/// Since when a write had no lease behind it when it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) from_us: u64,
    pub(super) met: &'static str,
    pub(super) why: &'static str,
}

impl Sent {
    /// It leaves now, and `lost` is its guard's signal. Nobody is woken for it, so that no run is another because it is
    /// looked at.
    pub(super) fn now(exec: &Arc<Exec>, pid: Pid, left_us: u64, mut lost: Pending<Lost>) -> Self {
        let told = Arc::new(Told { exec: Arc::clone(exec), pid, at_us: OnceLock::new() });
        let waker = Waker::from(Arc::clone(&told));
        let is_held = lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        Self { at_us: exec.now_us(), left_us, told: is_held.then_some(told), _lost: lost }
    }

    /// It arrives. Its work was dropped, or its lease revoked, at `cut_us`.
    pub(super) fn arrives(&self, cut_us: Option<u64>, now_us: u64) -> Vec<Late> {
        let Some(told) = &self.told else { return Vec::new() };
        let lease = (now_us - self.at_us >= self.left_us).then_some(Late {
            from_us: self.at_us,
            met: "a write arrives behind its lease",
            why: "a write was under way for longer than its lease",
        });
        let cut_us = cut_us.filter(|cut_us| *cut_us < now_us);
        let work = cut_us.map(|from_us| Late {
            from_us,
            met: "a write arrives behind its work",
            why: "a write was under way when its work was dropped, or its lease revoked",
        });
        // The others say so already of what they are about.
        let told_us =
            told.at_us.get().filter(|told_us| lease.is_none() && cut_us.is_none_or(|cut_us| **told_us < cut_us));
        let hold = told_us.map(|&from_us| Late {
            from_us,
            met: "a write arrives behind its hold",
            why: "a write was under way when its sender gave back, or was told that the lease is lost",
        });
        [lease, work, hold].into_iter().flatten().collect()
    }
}

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        // Who dies gives nothing back, and is told nothing: the lease stays what it was.
        if !self.exec.tasks_of(self.pid).is_empty() {
            self.at_us.get_or_init(|| self.exec.now_us());
        }
    }
}
