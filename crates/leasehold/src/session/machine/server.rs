//! The server's clock, as far as the session knows it, and how long replies take.

use std::sync::Arc;

use leasehold_spec::limits::{CLAIM_MIN_MS, NOT_AFTER_MAX_US};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Token};

use super::attempt::Phase;
use super::connections::{Connections, Reply};
use super::ledger::Ledger;
use super::order::InFlight;
use crate::clock::{Sample, ServerClock};
use crate::session::agenda::Agenda;
use crate::session::expiry::Contact;
use crate::store::Link;

/// No reply is late before this time: a busy machine is not a dead server.
const USUAL_MIN_US: u64 = 500_000;

pub(crate) struct Server {
    pub(crate) links: Connections,
    pub(crate) clock: ServerClock,
    pub(crate) contact: Arc<Contact>,
    rtt_us: u64,
}

impl Server {
    pub(crate) fn new(links: Connections) -> Self {
        Self { links, clock: ServerClock::default(), contact: Arc::default(), rtt_us: 0 }
    }

    pub(crate) fn rtt_us(&self) -> u64 {
        self.rtt_us
    }

    /// Returns how long a reply takes unless something is wrong. A fixed bound would replace every doubted connection to a
    /// store that is far away.
    pub(crate) fn usual_us(&self) -> u64 {
        USUAL_MIN_US.max(4 * self.rtt_us)
    }

    /// Returns how long a ping may take, and how many other replies have come on its connection since it was sent.
    pub(crate) fn proof(&self, link: &Arc<dyn Link>) -> (u64, u64) {
        (self.usual_us(), self.links.replies_meanwhile(link))
    }

    /// Returns how long a grant that a message brings shall last before the client has answered.
    pub(crate) fn claim_ms(&self) -> u64 {
        CLAIM_MIN_MS.max(self.rtt_us / 100)
    }

    /// Returns a request that is sent now, and whose connection is doubted after `within_us`.
    pub(crate) fn request(&self, link: Arc<dyn Link>, within_us: u64, serial: u64, now_us: u64) -> InFlight {
        let until_us = now_us + within_us;
        let usual_us = until_us.min(now_us + self.usual_us());
        InFlight { link, sent_us: now_us, until_us, usual_us, serial }
    }

    /// Decides what a reply is worth: see [`Connections::judge`].
    pub(crate) fn judge(&mut self, agenda: &mut Agenda, request: &InFlight, reply: Reply, now_us: u64) -> Reply {
        self.links.judge(agenda, &self.contact, request, reply, now_us)
    }

    /// Notes the time of a reply. Returns the local moment from which the time counts that the reply says to be left: the
    /// moment before its request was sent (P12), or an earlier one if the server's clock has been set forward since.
    pub(crate) fn note_time(&mut self, ledger: &mut Ledger, answer: &Answer, sent_us: u64, now_us: u64) -> u64 {
        self.contact.replied(now_us);
        let sample = Sample { sent_us, heard_us: now_us, server_us: answer.now_us };
        if answer.now_us != 0 {
            self.note_sample(ledger, sample);
        }
        sent_us.saturating_sub(self.clock.set_forward_since(&sample))
    }

    /// Notes a pair of clocks: how long the way is, and whether the server's clock was set.
    pub(crate) fn note_sample(&mut self, ledger: &mut Ledger, sample: Sample) {
        // A stop of this process says nothing about the way: a client that slept for an hour would ask for claims of an
        // hour.
        let trip_us = sample.heard_us.saturating_sub(sample.sent_us).min(NOT_AFTER_MAX_US);
        self.rtt_us = if self.rtt_us == 0 { trip_us } else { (7 * self.rtt_us + trip_us) / 8 };
        let Some(jump_us) = self.clock.observe(sample) else { return };
        hit(Mark::JumpTakenOff);
        // The server's clock was set forward, so every lease on it ends that much earlier. Shorten what is left now, and
        // renew at once.
        let reach = self.links.reach();
        for attempt in ledger.attempts.values_mut() {
            if let Phase::Held(holding) = &mut attempt.phase {
                holding.shorten(jump_us);
                if holding.renew_us != u64::MAX {
                    holding.renew_us = 0;
                }
            }
        }
        ledger.counters().into_iter().for_each(|counter| ledger.arm(counter, reach));
    }

    /// Notes the run of the store that a new connection leads to. Times of two runs are never compared, nor are the tokens
    /// of grants that are not held: a store that restarted empty, with its clock set back, begins below the tokens that
    /// its waiters know, and they would believe no reply.
    pub(crate) fn meet(&mut self, ledger: &mut Ledger, run_id: &str) {
        if !self.links.meet(run_id) {
            return;
        }
        self.clock = ServerClock::default();
        for attempt in ledger.attempts.values_mut() {
            match attempt.phase {
                Phase::Asking { .. } | Phase::Queued { .. } => attempt.latest = Token::NONE,
                // A grant that another run pushed must not be claimed here.
                Phase::Claiming { .. } => {
                    attempt.latest = Token::NONE;
                    attempt.phase = Phase::Queued { next_us: 0 };
                }
                Phase::Held(_) | Phase::Ended { .. } if !is_on(Mutant::P13SameToken) => {
                    attempt.is_of_earlier_run = true;
                }
                Phase::Returning(ref mut returning) => returning.kind = returning.kind.at_a_new_run(),
                Phase::Held(_) | Phase::Ended { .. } => {}
            }
        }
    }
}
