//! One turn of a task: a name, and everything that an act on it needs.

use leasehold::Leasehold;
use leasehold_testkit::{Random, Registers};

use super::shift::Shift;

pub(super) struct Turn<'a> {
    pub(super) shift: &'a Shift,
    pub(super) client: &'a Leasehold,
    /// The client of the history. Each turn has its own: if records are lost and the clock is behind, a task may be
    /// granted a token twice.
    pub(super) me: &'a str,
    /// The runtime of the task.
    pub(super) at: usize,
    pub(super) name: &'a str,
    pub(super) registers: &'a mut Registers,
    pub(super) random: &'a mut Random,
}

impl Turn<'_> {
    /// Declares what the task does from now on.
    pub(super) fn doing(&self, what: &'static str) {
        self.shift.doing(self.me, what, self.name);
    }
}
