//! The due work of a session: when its clock says so, when a connection breaks, or when an inbox is proved.
//!
//! [`Session::pump`] alone decides which requests are sent, from the phase of each attempt. Callers send on the second
//! connection, the session's own thread on the first, which has the inbox (P17). If one connection is broken, the other
//! one replaces it.

use std::collections::VecDeque;

use super::network::{Ask, Link, Request};
use super::rules::Slip;
use super::session::{Holding, Life, NEVER, Now, Open, Phase, Sent, Session};

impl Session {
    /// Does the due work after time has passed or a pause has ended.
    pub(crate) fn wake(&mut self, now: &Now<'_>) {
        if self.life != Life::Awake {
            return;
        }
        for i in (0..self.attempts.len()).rev() {
            match self.attempts[i].phase {
                Phase::Holding(Holding { until, .. }) if until <= now.tick => self.lose(now, i, false),
                // While a reply can still arrive on a live connection, the attempt is kept.
                Phase::Leaving { asked: None, close_at, .. }
                    if close_at <= now.tick && self.attempts[i].open.iter().all(|o| o.link.is_none()) =>
                {
                    now.log(|| format!("closes attempt {} by its own clock", self.attempts[i].n));
                    self.attempts.remove(i);
                }
                _ => {}
            }
        }
        self.pump(now);
    }

    /// Handles a broken connection once this side knows of it. Returns the requests on it.
    pub(crate) fn lose_link(&mut self, now: &Now<'_>, k: u8) -> VecDeque<Request> {
        let out = self.links[k as usize].cut();
        self.is_proved &= k != 0;
        let gone = |asked: &mut Option<u8>| asked.take_if(|a| *a == k).is_some();
        let mut dropped = Vec::new();
        for i in 0..self.attempts.len() {
            let attempt = &mut self.attempts[i];
            let unanswered = attempt.open.iter_mut().filter_map(|o| o.link.take_if(|l| *l == k)).count() > 0;
            match &mut attempt.phase {
                Phase::Waiting { recheck_at } if unanswered => {
                    *recheck_at = now.tick;
                    if now.slips(Slip::RetryIsNew) {
                        dropped.push(i);
                    }
                }
                Phase::Claiming { asked, .. } | Phase::Leaving { asked, .. } => drop(gone(asked)),
                Phase::Releasing { asked, sent, .. } => {
                    if gone(asked) {
                        *sent = Sent::Again;
                        dropped.extend(now.slips(Slip::ReleaseOnce).then_some(i));
                    }
                }
                Phase::Holding(holding) => drop((gone(&mut holding.renewing), gone(&mut holding.run.reserving))),
                Phase::Waiting { .. } => {}
            }
        }
        for i in dropped.into_iter().rev() {
            self.ask_again(now, i);
            self.attempts.remove(i);
        }
        self.pump(now);
        out
    }

    pub(crate) fn reconnect(&mut self, now: &Now<'_>, k: u8) {
        self.links[k as usize] = Link::open(false);
        if k == 0 {
            self.send(now, 0, 0, Ask::Subscribe);
        }
        self.pump(now);
    }

    /// Handles the proof of a new connection's inbox: every ID is checked again (P11, P15).
    pub(crate) fn proved(&mut self, now: &Now<'_>) {
        self.is_proved = true;
        for attempt in &mut self.attempts {
            match &mut attempt.phase {
                Phase::Waiting { recheck_at } => *recheck_at = now.tick,
                Phase::Holding(holding) if !now.scene.is_fixed() => holding.renew_at = now.tick,
                _ => {}
            }
        }
    }

    pub(crate) fn may_retry(&self, i: usize) -> bool {
        let live = self.attempts[i].open.iter().filter(|o| o.link.is_some()).count();
        live == 1 && matches!(self.attempts[i].phase, Phase::Waiting { .. }) && self.other_link(i).is_some()
    }

    fn other_link(&self, i: usize) -> Option<u8> {
        let used = self.attempts[i].open.iter().find_map(|o| o.link)?;
        (0..self.links.len() as u8).find(|k| *k != used && self.is_usable(*k))
    }

    /// Sends the same request once more, on the other connection, because its reply is slow.
    pub(crate) fn retry(&mut self, now: &Now<'_>, i: usize) {
        if let Some(k) = self.other_link(i) {
            self.recheck(now, i, k);
        }
    }

    /// Sends the next request of a connection again, behind the others, because the store has refused its batch (P53). An
    /// acquire that nobody waits for any more is not sent again.
    pub(crate) fn resend(&mut self, k: u8) {
        let request = self.links[k as usize].out.pop_front().expect("a request is in flight");
        let is_wanted = match request.ask {
            Ask::Acquire { .. } => self.find(request.n).is_some_and(|i| self.is_waiting(i)),
            _ => true,
        };
        if is_wanted {
            self.links[k as usize].out.push_back(request);
        }
    }

    fn is_usable(&self, k: u8) -> bool {
        self.links.get(k as usize).is_some_and(|l| l.is_up) && (k != 0 || self.is_proved)
    }

    fn pick(&self, prefer: u8) -> Option<u8> {
        [prefer, 1 - prefer].into_iter().find(|k| self.is_usable(*k))
    }

    /// Sends due requests in the order of P11: first releases and leaves, then renewals, then acquires.
    pub(crate) fn pump(&mut self, now: &Now<'_>) {
        if self.life != Life::Awake {
            return;
        }
        for i in 0..self.attempts.len() {
            self.send_return(now, i);
        }
        for i in 0..self.attempts.len() {
            self.send_renewal(now, i);
            if let Some(k) = self.pick(0) {
                self.reserves(now, i, k);
            }
        }
        if self.ends_at <= now.tick && self.is_proved {
            self.ends_at = NEVER;
            self.recheck_after_revocation(now);
        }
        for i in 0..self.attempts.len() {
            let attempt = &self.attempts[i];
            let is_due = matches!(attempt.phase, Phase::Waiting { recheck_at } if recheck_at <= now.tick);
            let is_asked = attempt.open.iter().any(|o| o.link.is_some());
            let prefer = u8::from(attempt.ticket.is_none());
            if let Some(k) = self.pick(prefer).filter(|_| is_due && !is_asked && self.is_proved) {
                self.recheck(now, i, k);
            }
        }
        if let Some(k) = self.pick(0).filter(|_| self.settle_at <= now.tick) {
            self.settle_at = NEVER;
            self.send(now, k, 0, Ask::Settle);
        }
    }

    /// Re-checks after a revoked lease has ended. A waiter without a re-check in flight sends one. If every waiter has
    /// one in flight, which may have been carried out too early, the session settles the name.
    fn recheck_after_revocation(&mut self, now: &Now<'_>) {
        let mut waiting = self.attempts.iter_mut().filter(|a| matches!(a.phase, Phase::Waiting { .. })).peekable();
        if waiting.peek().is_none() {
            return;
        }
        match waiting.find(|a| a.open.iter().all(|o| o.link.is_none())) {
            Some(attempt) => attempt.phase = Phase::Waiting { recheck_at: now.tick },
            None => self.settle_at = now.tick,
        }
    }

    fn send_return(&mut self, now: &Now<'_>, i: usize) {
        let n = self.attempts[i].n;
        match self.attempts[i].phase {
            Phase::Releasing { token, asked: None, .. } => {
                let Some(k) = self.pick(1) else { return };
                if let Phase::Releasing { asked, .. } = &mut self.attempts[i].phase {
                    *asked = Some(k);
                }
                let used = if now.slips(Slip::ReleasesOwn) { token } else { self.attempts[i].used.max(token) };
                self.send(now, k, n, Ask::Release { token, used });
            }
            Phase::Leaving { asked: None, again_at, .. } if again_at <= now.tick => {
                // On another connection the leave would overtake its acquire, and find nothing to leave.
                let behind = self.attempts[i].open.iter().rev().find_map(|o| o.link);
                let behind = if now.slips(Slip::LeaveOvertakes) { behind.map(|k| 1 - k) } else { behind };
                let Some(k) = behind.filter(|k| self.is_usable(*k)).or_else(|| self.pick(1)) else { return };
                if let Phase::Leaving { asked, .. } = &mut self.attempts[i].phase {
                    *asked = Some(k);
                }
                let (used, min_until) = (self.attempts[i].used, self.attempts[i].cools_until);
                let ticks = match now.slips(Slip::CoolsAnew) {
                    true if min_until > now.tick => now.scene.min_hold,
                    _ => min_until.saturating_sub(now.tick),
                };
                self.send(now, k, n, if ticks > 0 { Ask::CoolDown { used, ticks } } else { Ask::Leave { used } });
            }
            _ => {}
        }
    }

    fn send_renewal(&mut self, now: &Now<'_>, i: usize) {
        let Some(k) = self.pick(0) else { return };
        let attempt = &mut self.attempts[i];
        let n = attempt.n;
        let token = match &mut attempt.phase {
            Phase::Holding(h) if h.renewing.is_none() && !h.is_revoked && h.renew_at <= now.tick => {
                h.renewing = Some(k);
                h.token
            }
            Phase::Claiming { token, asked, .. } if asked.is_none() => {
                *asked = Some(k);
                *token
            }
            _ => return,
        };
        self.send(now, k, n, Ask::Renew { token });
    }

    fn recheck(&mut self, now: &Now<'_>, i: usize, k: u8) {
        let attempt = &mut self.attempts[i];
        attempt.open.push(Open { link: Some(k), not_after: now.tick + now.scene.slack });
        let (n, ask) = (attempt.n, Ask::Acquire { ticket: attempt.ticket, order: attempt.order });
        self.send(now, k, n, ask);
    }

    pub(crate) fn send(&mut self, now: &Now<'_>, k: u8, n: u8, ask: Ask) {
        let attempt = self.find(n).map(|i| &self.attempts[i]);
        let not_after = match (ask, attempt.map(|a| &a.phase)) {
            (Ask::Acquire { .. }, _) => now.tick + now.scene.slack,
            (Ask::Renew { .. }, Some(Phase::Holding(h))) => h.until,
            (Ask::Renew { .. }, _) => now.tick + now.scene.slack,
            _ => NEVER,
        };
        let bar = attempt
            .filter(|_| matches!(ask, Ask::Leave { .. } | Ask::CoolDown { .. }))
            .and_then(|a| a.open.iter().filter(|o| o.link != Some(k)).map(|o| o.not_after).max());
        self.links[k as usize].out.push_back(Request { n, ask, sent: now.tick, not_after, bar });
    }
}
