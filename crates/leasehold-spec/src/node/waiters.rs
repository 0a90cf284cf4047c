//! The waiters of one node: which one it calls when the vote is free, and which ones it notifies that the vote ends at
//! another time.

use crate::answer::Contention;
use crate::grant::GrantState;
use crate::id::{GrantId, Token};
use crate::limits::{CALL_MS, RETENTION_US, REVOKE_NOTIFIED, SETTLE_STEPS};
use crate::mutant::{Mutant, is_on};
use crate::node::record::{Called, Granted};
use crate::node::request::{Bell, Rings, Wait};
use crate::node::vote::Node;

impl Node<'_, '_> {
    /// Calls the first waiter that is attached, if the vote is free and nobody is called.
    ///
    /// If the step ends before it has found a waiter that is attached, it calls nobody and does not report that: the
    /// vote stays free, and the first client that asks gets it. Every waiter asks at its next re-check, at the latest.
    /// On a single store, which makes the grants itself, the lease could stay free while others wait. So `step` must
    /// report MORE (P1), and a node need not.
    pub(super) fn settle(&mut self) {
        self.end_expired();
        let now_us = self.env.wall_us;
        if self.record.grant.is_some() {
            return;
        }
        if let Some(called) = self.record.called {
            let first = self.record.queue.first_key_value().map(|((ticket, _), _)| *ticket);
            // A waiter that came earlier is before the called one in the queue, and is called instead.
            let is_first = first.is_none_or(|first| first >= called.ticket);
            if called.until_us > now_us && is_first {
                return;
            }
            self.end_call();
        }
        for _ in 0..SETTLE_STEPS {
            let Some(((ticket, id), order)) = self.record.queue.pop_first() else { return };
            if !(self.env.attached)(id.session) {
                continue;
            }
            self.record.queue.insert((ticket, id), order);
            let until_us = now_us + CALL_MS * 1000;
            self.record.called = Some(Called { id, ticket, until_us });
            self.record.keep_until_us = self.record.keep_until_us.max(until_us + RETENTION_US);
            self.has_called = true;
            let (highest, contention) = (self.record.highest, self.record.contention());
            self.bells.push(Bell { to: id.session, now_us, highest, contention, id, rings: Rings::Call });
            return;
        }
    }

    /// Ends the call. A waiter that let its call lapse leaves the queue; its next re-check brings it back to its place.
    pub(super) fn end_call(&mut self) {
        let lapsed = self.record.called.take().filter(|called| called.until_us <= self.env.wall_us);
        if let Some(called) = lapsed {
            self.record.queue.remove(&(called.ticket, called.id));
        }
    }

    /// Returns whether the vote may stay free in a pause: somebody waits, nobody is called, and the first waiter accepts
    /// relaxed order.
    pub(super) fn may_pause(&self) -> bool {
        let is_relaxed = match self.record.contention() {
            Contention::None => false,
            Contention::Others => true,
            Contention::Strict => is_on(Mutant::QPausesStrict),
        };
        is_relaxed && self.record.grant.is_none() && self.record.called.is_none()
    }

    /// P10, P23: notifies the sessions of the next waiters of the time at which a vote ends that is marked or cools
    /// down. The node calls nobody at that time by itself: it calls a waiter with the next request.
    pub(super) fn notify_next_waiters(&mut self) {
        let has_new_end = |granted: &&Granted| match granted.state {
            GrantState::Revoked => true,
            GrantState::CoolingDown => !is_on(Mutant::P23TellsNoWaiter),
            GrantState::Held | GrantState::Pushed => false,
        };
        let ending = self.record.grant.as_ref().filter(has_new_end);
        let Some(ending) = ending.filter(|_| !is_on(Mutant::P10TellsNoWaiter)) else { return };
        self.notify_waiters(ending.token, ending.left_us(self.env.wall_us));
    }

    /// Notifies the sessions of the next waiters, so that they ask after `left_us`. They wait for the grant of this token.
    pub(super) fn notify_waiters(&mut self, token: Token, left_us: u64) {
        let now_us = self.env.wall_us;
        let (highest, contention) = (self.record.highest, self.record.contention());
        let rings = Rings::Ending { token, left_us };
        let mut notified = Vec::new();
        for (_, id) in self.record.queue.keys().take(SETTLE_STEPS) {
            let to = id.session;
            if notified.contains(&to) || !(self.env.attached)(to) {
                continue;
            }
            notified.push(to);
            self.bells.push(Bell { to, now_us, highest, contention, id: *id, rings });
            if notified.len() == REVOKE_NOTIFIED {
                return;
            }
        }
    }

    pub(super) fn enqueue(&mut self, id: GrantId, wait: Wait) {
        let before = self.record.contention();
        self.record.queue.insert((wait.ticket, id), wait.order);
        let (now_us, highest, contention) = (self.env.wall_us, self.record.highest, self.record.contention());
        self.record.keep_until_us = self.record.keep_until_us.max(now_us + RETENTION_US);
        if contention <= before {
            return;
        }
        // The holder of a range may be handing the lease on inside its session (P9).
        if let Some(granted) = self.record.grant.as_ref().filter(|granted| granted.range > 1) {
            let (id, rings) = (granted.id, Rings::Wanted { token: granted.token });
            self.bells.push(Bell { to: id.session, now_us, highest, contention, id, rings });
        }
    }

    /// Removes the entry of the attempt, at whatever place it is. Returns whether there was one.
    pub(super) fn leave_queue(&mut self, id: GrantId) -> bool {
        let before = self.record.queue.len();
        self.record.queue.retain(|(_, waiter), _| *waiter != id);
        self.record.queue.len() < before
    }
}
