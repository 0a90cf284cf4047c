//! The state that a step changes, and the messages that it adds.

use crate::answer::{Delivery, Rest};
use crate::env::Env;
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::resource::Resource;
use crate::step::serve::{Settled, settle};

/// One step that is being carried out.
pub(super) struct Step<'a, 'e> {
    pub(super) resource: &'a mut Resource,
    pub(super) env: &'a Env<'e>,
    /// The messages to send once the state is stored.
    pub(super) deliveries: Vec<Delivery>,
    /// The length of the claim, if the step has handed the lease to a waiter.
    pub(super) handed_claim_ms: Option<u64>,
}

impl<'a, 'e> Step<'a, 'e> {
    pub(super) fn new(resource: &'a mut Resource, env: &'a Env<'e>) -> Self {
        Self { resource, env, deliveries: Vec::new(), handed_claim_ms: None }
    }

    /// Settles the name (P1), and keeps the messages of that.
    pub(super) fn settle(&mut self) -> Rest {
        let Settled { rest, handed_claim_ms, deliveries } = settle(self.resource, self.env);
        self.handed_claim_ms = handed_claim_ms.max(self.handed_claim_ms);
        match self.deliveries.is_empty() {
            true => self.deliveries = deliveries,
            false => self.deliveries.extend(deliveries),
        }
        rest
    }

    /// Settles the name if a lease has ended, or if it is a mutex. In a pool, a request about one grant of thousands
    /// changes nothing else otherwise.
    pub(super) fn settle_ended(&mut self) -> Rest {
        let has_ended = self.resource.grants.first_end_us().is_none_or(|end_us| end_us <= self.env.lease_us);
        if has_ended || !policy::leaves_others_alone(self.resource) { self.settle() } else { Rest::Done }
    }

    /// Settles the name if somebody waits, or if it is a mutex. In a pool, leases that have ended keep nobody out until
    /// somebody asks.
    pub(super) fn settle_for_waiters(&mut self) -> Rest {
        if !self.resource.is_idle() || !policy::leaves_others_alone(self.resource) {
            return self.settle();
        }
        policy::note_idle(self.resource);
        Rest::Done
    }

    /// Whether the request came after its `not_after` (P4).
    pub(super) fn is_late(&self, not_after_us: u64) -> bool {
        is_late(self.env, not_after_us)
    }

    /// Returns the time that is left until the first lease ends.
    pub(super) fn first_left_us(&self) -> u64 {
        self.resource.grants.first_left_us(self.env.lease_us)
    }
}

/// Whether a request comes after its `not_after` (P4).
pub(super) fn is_late(env: &Env<'_>, not_after_us: u64) -> bool {
    env.lease_us > not_after_us && !is_on(Mutant::P4RunsLate)
}
