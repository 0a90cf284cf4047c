//! Calls whose duration and result are promised while no store is broken. The lab judges them, because it knows the
//! times of the faults.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::boottime_us;

use super::super::calm::us;
use super::super::notes::Call as Noted;
use super::shift::Shift;

/// A call in flight.
pub(super) struct Call<'a> {
    shift: &'a Shift,
    /// The runtime that polls the call.
    at: usize,
    undisturbed: Option<u64>,
    what: &'static str,
    wait: Duration,
    within: Duration,
    began_us: u64,
}

impl<'a> Call<'a> {
    /// Begins a call that waits for a lock for at most `wait`, and returns within `within` after that.
    pub(super) fn begin(shift: &'a Shift, at: usize, what: &'static str, (wait, within): (Duration, Duration)) -> Self {
        let undisturbed = shift.runtimes.undisturbed(at);
        Self { shift, at, undisturbed, what, wait, within, began_us: boottime_us() }
    }

    /// Records the result of the call, unless its own runtime was blocked or replaced meanwhile.
    pub(super) fn ended(self, client: &str, error: Option<ErrorKind>) {
        let ended_us = boottime_us();
        if self.undisturbed.is_none() || self.undisturbed != self.shift.runtimes.undisturbed(self.at) {
            return;
        }
        let (wait_us, within_us) = (us(self.wait), us(self.wait + self.within));
        let (client, what, began_us) = (client.to_owned(), self.what.to_owned(), self.began_us);
        let error = error.map(|kind| format!("{kind:?}"));
        self.shift.notes.called(Noted { client, what, began_us, ended_us, wait_us, within_us, error });
    }
}
