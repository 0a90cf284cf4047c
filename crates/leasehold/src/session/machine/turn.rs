//! One turn of the machine: an event that is being handled.

use std::cell::OnceCell;

use super::attempt::Phase;
use super::connections::Route;
use super::lane::Upkeep;
use super::ledger::Ledger;
use super::order::InFlight;
use super::server::Server;
use crate::session::inbox_keeper::InboxKeeper;
use crate::session::terms::Terms;
use crate::world::{RuntimeId, World};

/// The parts of the machine, and the moment of the event.
pub(crate) struct Turn<'m> {
    pub(crate) ledger: &'m mut Ledger,
    pub(crate) server: &'m mut Server,
    pub(crate) now: Moment<'m>,
    /// The runtime of the caller that makes the change, once it is known.
    runtime: OnceCell<Option<RuntimeId>>,
}

/// The moment of an event: one reading of the clock, made when it is first needed. Most events of a local queue need none,
/// and a reading costs as much as the rest of such an event.
pub(crate) struct Moment<'m> {
    world: &'m dyn World,
    us: OnceCell<u64>,
}

impl<'m> Moment<'m> {
    pub(crate) fn of(world: &'m dyn World) -> Self {
        Self { world, us: OnceCell::new() }
    }

    /// Returns the moment in microseconds: the same for the whole event.
    pub(crate) fn us(&self) -> u64 {
        *self.us.get_or_init(|| self.world.now_us())
    }
}

impl<'m> Turn<'m> {
    pub(crate) fn new(ledger: &'m mut Ledger, server: &'m mut Server, now: Moment<'m>) -> Self {
        Self { ledger, server, now, runtime: OnceCell::new() }
    }

    /// Returns the runtime of the caller that makes the change. Only a change that sends something needs it: tokio takes
    /// as long to tell it as a hand-over inside the process takes.
    fn runtime(&self) -> Option<RuntimeId> {
        *self.runtime.get_or_init(|| self.now.world.runtime())
    }

    /// Returns how the caller that makes the change sends its requests, and what it has to do for the lane.
    pub(crate) fn route(&mut self) -> (Route, Upkeep) {
        let runtime = self.runtime();
        self.server.links.route(&mut self.ledger.effects, runtime, self.now.us())
    }

    /// Keeps the inbox with the thread for the caller that makes the change, if it needs that for these terms.
    pub(crate) fn keep_inbox(&mut self, terms: &Terms) -> Option<InboxKeeper> {
        if !self.server.links.profile().moves_inbox {
            return None;
        }
        let runtime = self.runtime();
        self.server.links.keep_inbox(&mut self.ledger.agenda, terms, runtime)
    }

    /// Sets the next alarm of an attempt, and that of its queue.
    pub(crate) fn arm(&mut self, counter: u64) {
        self.ledger.arm(counter, self.server.links.reach());
    }

    /// Sets the next alarm of an attempt after the reply to this request. If a message may have been lost since the request
    /// was sent, the attempt asks again now.
    pub(crate) fn arm_after_reply(&mut self, counter: u64, request: &InFlight) {
        self.ask_again_if_missed(counter, request);
        self.arm(counter);
    }

    /// Asks again if a message may have been lost since this request was sent: its reply may be older than the message.
    pub(crate) fn ask_again_if_missed(&mut self, counter: u64, request: &InFlight) {
        if self.server.links.inbox.may_have_missed(request.sent_us) {
            let attempt = self.ledger.attempts.get_mut(&counter);
            let attempt = attempt.filter(|attempt| !matches!(attempt.phase, Phase::Returning(_)));
            attempt.into_iter().for_each(|attempt| attempt.set_next(self.now.us()));
        }
    }

    /// Makes every attempt re-check, renew or repeat its request at once: messages from before this moment may be lost. An
    /// attempt whose request is in flight does so after the reply.
    pub(crate) fn wake_all(&mut self) {
        self.server.links.inbox.note_missed(self.now.us());
        for counter in self.ledger.counters() {
            self.ledger.set_next(counter, self.now.us());
            self.arm(counter);
        }
    }
}
