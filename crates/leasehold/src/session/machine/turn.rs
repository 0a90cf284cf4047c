//! One turn of the machine: an event that is being handled.

use super::ledger::Ledger;
use super::server::Server;

/// The parts of the machine, and the moment of the event.
pub(crate) struct Turn<'m> {
    pub(crate) ledger: &'m mut Ledger,
    pub(crate) server: &'m mut Server,
    pub(crate) now_us: u64,
}

impl Turn<'_> {
    /// Sets the next alarm of an attempt, and that of its queue.
    pub(crate) fn arm(&mut self, counter: u64) {
        self.ledger.arm(counter, self.server.links.reach());
    }
}
