//! How a session accepts messages.
//!
//! Every message may be older than the session's state: the grant may have been released, may have ended, or may have
//! been made anew for the same ID since. So each branch below checks the *current* phase of the attempt and compares
//! tokens (P3).

use leasehold_spec::{Answer, Delivery, Event, LostHow, Outcome, Token};

use super::ledger::Ledger;
use super::network::{Ask, Message, Request};
use super::rules::Slip;
use super::scene::{ticks, when};
use super::session::{Attempt, Holding, NEVER, Now, Phase, Run, Sent, Session, Task};

impl Session {
    pub(crate) fn receive(&mut self, now: &Now<'_>, ledger: &mut Ledger, k: u8, message: Message) {
        match message {
            Message::Subscribed => self.proved(now),
            Message::Push(delivery) => match delivery.event {
                Event::Granted => self.pushed(now, ledger, &delivery),
                Event::Wanted => self.wanted(&delivery),
                Event::Revoked => self.revoked(now, &delivery),
                Event::Ending => self.ending(now, &delivery),
            },
            Message::Answer { to, answer, others } => {
                let executed = when(answer.now_us);
                let ahead = executed.saturating_sub(to.sent);
                self.lag = Some(self.lag.map_or(ahead, |lag| lag.min(ahead)));
                if answer.handed_claim_ms.is_some() && !now.slips(Slip::SkipsSettle) {
                    self.settle_at = executed + now.scene.claim;
                }
                // As with validity: the reply describes the store as it was when the request was sent, and perhaps not
                // as it is now.
                let asked_at = if now.slips(Slip::CountsFromArrival) { now.tick } else { to.sent };
                let (stated_at, knows_waiters) = (executed, others);
                let run = Run { others: answer.contention, stated_at, asked_at, knows_waiters, ..Run::default() };
                self.settle_open(&to, k);
                self.answered(now, ledger, &to, &answer, now.scene.run(run));
            }
            Message::Refused { to } => {
                self.settle_open(&to, k);
                self.refused(now, &to);
            }
        }
        self.pump(now);
    }

    fn answered(&mut self, now: &Now<'_>, ledger: &mut Ledger, to: &Request, answer: &Answer, run: Run) {
        let Some(i) = self.find(to.n) else {
            // P14: a grant without a registered attempt is given back.
            if matches!((to.ask, &answer.outcome), (Ask::Acquire { .. }, Outcome::Granted { .. })) {
                self.leave_unknown(now, to.n);
            }
            return;
        };
        match to.ask {
            Ask::Acquire { .. } => self.accept_acquire_reply(now, ledger, i, to, answer, run),
            Ask::Renew { token } => self.renewed(now, ledger, i, to, answer, token, run),
            Ask::Release { token, .. } => self.released(now, ledger, i, token, answer),
            Ask::Reserve { token, .. } => self.reserved(now, i, token, answer, run),
            Ask::Leave { .. } | Ask::CoolDown { .. } => self.left(now, i, to, answer),
            Ask::Subscribe | Ask::Settle => {}
        }
    }

    /// Removes the acquire that this message answers from the open ones.
    fn settle_open(&mut self, to: &Request, k: u8) {
        let Some(i) = self.find(to.n).filter(|_| matches!(to.ask, Ask::Acquire { .. })) else { return };
        let open = &mut self.attempts[i].open;
        if let Some(at) = open.iter().position(|o| o.link == Some(k)) {
            open.remove(at);
        }
    }

    /// Accepts the reply to an acquire: the first one, a retry, or a re-check.
    fn accept_acquire_reply(
        &mut self,
        now: &Now<'_>,
        ledger: &mut Ledger,
        i: usize,
        to: &Request,
        answer: &Answer,
        run: Run,
    ) {
        let attempt = &mut self.attempts[i];
        // P11: the leave behind the acquire takes back anything that the acquire grants.
        if matches!(attempt.phase, Phase::Releasing { .. } | Phase::Leaving { .. }) {
            return;
        }
        match answer.outcome {
            Outcome::Granted { token, left_us, range } => {
                let run = now.scene.run(Run { range: range as u8, ..run });
                let base = if now.slips(Slip::FromReceipt) { now.tick } else { to.sent };
                self.granted(now, ledger, i, token, base + ticks(left_us), run);
            }
            Outcome::Queued { ticket, left_us, .. } => {
                // The reply was given after its request was sent, whatever the store's clock shows.
                let deadline = (when(answer.now_us).max(to.sent) + ticks(left_us)).max(now.tick + 1);
                let recheck_at =
                    if now.slips(Slip::NoRecheck) { NEVER } else { deadline.min(now.tick + now.scene.floor()) };
                attempt.ticket = Some(ticket);
                self.queued(now, i, answer.highest, recheck_at);
            }
            Outcome::Gone => {
                self.ask_again(now, i);
                self.close(now, i);
            }
            Outcome::Late => {
                if let Phase::Waiting { recheck_at } = &mut attempt.phase {
                    *recheck_at = now.tick;
                }
            }
            _ => {}
        }
    }

    fn granted(&mut self, now: &Now<'_>, ledger: &mut Ledger, i: usize, token: Token, until: u8, run: Run) {
        match &mut self.attempts[i].phase {
            Phase::Waiting { .. } | Phase::Claiming { .. } if until > now.tick => {
                self.enter(now, ledger, i, token, until, run);
            }
            // The lease ended before the grant arrived. `lock()` never returns a guard that is lost already.
            Phase::Waiting { recheck_at } => *recheck_at = now.tick,
            Phase::Holding(h) if h.token == token && !h.is_revoked => h.until = h.until.max(until),
            Phase::Holding(h) if now.slips(Slip::LastMessageWins) => h.token = token,
            Phase::Holding(h) if token > h.token => self.superseded(now, i, token),
            _ => {}
        }
    }

    /// Gives a newer grant back. A re-check was in flight. Meanwhile the grant arrived, was entered, and ended at the
    /// store. The re-check then got another grant for the same attempt. Nobody enters on that grant: it is given back.
    fn superseded(&mut self, now: &Now<'_>, i: usize, newer: Token) {
        if let Phase::Holding(h) = &mut self.attempts[i].phase {
            (h.token, h.pass) = (newer, 0);
        }
        self.lose(now, i, false);
    }

    fn queued(&mut self, now: &Now<'_>, i: usize, highest: Token, next_recheck: u8) {
        // P3: a reply that says queued counts if it was given after the grant, that is, if the highest token is above
        // ours.
        let is_newer = |token: Token| highest > token || now.slips(Slip::LastMessageWins);
        match &mut self.attempts[i].phase {
            Phase::Waiting { recheck_at } => *recheck_at = next_recheck,
            Phase::Claiming { token, .. } if is_newer(*token) => {
                self.attempts[i].phase = Phase::Waiting { recheck_at: next_recheck };
            }
            Phase::Holding(Holding { token, task, .. }) if is_newer(*token) => {
                self.tasks[*task as usize] = Task::Served;
                self.attempts[i].phase = Phase::Waiting { recheck_at: next_recheck };
                if self.attempts[i].waiters.is_empty() {
                    self.attempts[i].phase = leaving_at_once(now);
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one reply with all its parts")]
    fn renewed(
        &mut self,
        now: &Now<'_>,
        ledger: &mut Ledger,
        i: usize,
        to: &Request,
        answer: &Answer,
        asked_for: Token,
        run: Run,
    ) {
        let left = match answer.outcome {
            Outcome::Renewed { left_us } => Some(ticks(left_us)),
            _ => None,
        };
        let base = if now.slips(Slip::FromReceipt) { now.tick } else { to.sent };
        match &mut self.attempts[i].phase {
            Phase::Holding(h) if h.token == asked_for => {
                h.renewing = None;
                match (left, &answer.outcome) {
                    (Some(left), _) => {
                        h.until = h.until.max(base + left);
                        h.renew_at = if now.scene.is_fixed() { NEVER } else { now.tick + now.scene.third() };
                        h.run = run.after(now, h.run);
                    }
                    (None, Outcome::Lost { how }) => self.lose(now, i, *how == LostHow::NotHeld),
                    (None, _) => h.renew_at = now.tick,
                }
            }
            Phase::Claiming { token, range, .. } if *token == asked_for => {
                match left.filter(|left| base + left > now.tick) {
                    Some(left) => {
                        let run = now.scene.run(Run { range: *range, ..run });
                        self.enter(now, ledger, i, asked_for, base + left, run);
                    }
                    None if matches!(answer.outcome, Outcome::Lost { how: LostHow::Revoked }) => {
                        self.ask_again(now, i);
                        self.leave(now, i);
                    }
                    None => self.attempts[i].phase = Phase::Waiting { recheck_at: now.tick },
                }
            }
            _ => {}
        }
    }

    fn released(&mut self, now: &Now<'_>, ledger: &mut Ledger, i: usize, released: Token, answer: &Answer) {
        let Phase::Releasing { token, sent, .. } = self.attempts[i].phase else { return };
        if token != released {
            return;
        }
        // The record remembers one released ID. In reply to a repeated release, NotHeld may mean that another release
        // came since.
        let is_sure = sent == Sent::Once || now.slips(Slip::BelievesNotHeld);
        ledger.reported((self.me, self.attempts[i].n), answer.outcome == Outcome::NotHeld && is_sure);
        self.close(now, i);
    }

    fn left(&mut self, now: &Now<'_>, i: usize, to: &Request, answer: &Answer) {
        let Phase::Leaving { asked, .. } = &mut self.attempts[i].phase else { return };
        *asked = None;
        let open_now = || self.attempts[i].open.iter().map(|o| o.not_after).max();
        let bar = match now.off {
            _ if now.slips(Slip::FirstLeave) => None,
            _ if now.slips(Slip::BarAtAnswer) => open_now(),
            _ => to.bar,
        };
        match bar.filter(|bar| when(answer.now_us) <= *bar) {
            Some(bar) => {
                if let Phase::Leaving { again_at, .. } = &mut self.attempts[i].phase {
                    *again_at = bar + 1;
                }
            }
            None => {
                now.log(|| format!("closes attempt {}", to.n));
                self.attempts.remove(i);
            }
        }
    }

    /// Accepts a grant that the store made while this attempt waited.
    fn pushed(&mut self, now: &Now<'_>, ledger: &mut Ledger, push: &Delivery) {
        let n = push.id.counter as u8;
        let Some(i) = self.find(n) else {
            if !now.slips(Slip::IgnoresUnknownPush) {
                self.leave_unknown(now, n);
            }
            return;
        };
        // The time of the grant on our clock, at the latest: it follows from the time pair (P12).
        let base = match self.lag {
            Some(_) if now.slips(Slip::PushFromReceipt) => now.tick,
            Some(lag) => when(push.now_us).saturating_sub(lag),
            None => 0,
        };
        let until = base + ticks(push.left_us);
        let is_fresh = 2 * until.saturating_sub(now.tick) > ticks(push.left_us);
        let range = push.range as u8;
        let (others, stated_at) = (push.contention, when(push.now_us));
        let run = Run { others, stated_at, asked_at: base, range, ..Run::default() };
        match &mut self.attempts[i].phase {
            Phase::Waiting { .. } if is_fresh => self.enter(now, ledger, i, push.token, until, now.scene.run(run)),
            Phase::Waiting { .. } => self.attempts[i].phase = Phase::Claiming { token: push.token, range, asked: None },
            Phase::Leaving { asked: None, again_at, .. } => *again_at = now.tick,
            _ => {}
        }
    }

    /// Accepts the message that the lease which we wait for was revoked (P10). An older reply that arrives later does
    /// not undo it.
    fn ending(&mut self, now: &Now<'_>, push: &Delivery) {
        if !now.slips(Slip::WaitsOn) {
            self.ends_at = self.ends_at.min(when(push.now_us) + ticks(push.left_us));
        }
    }

    /// Leaves with an ID that is not ours (any more) and holds (P14).
    fn leave_unknown(&mut self, now: &Now<'_>, n: u8) {
        now.log(|| format!("does not know attempt {n} and leaves"));
        let phase = leaving_at_once(now);
        let order = leasehold_spec::Order::Relaxed;
        let (ticket, used, cools_until) = (None, Token::NONE, 0);
        self.attempts.push(Attempt {
            n,
            order,
            ticket,
            waiters: Vec::new(),
            used,
            cools_until,
            open: Vec::new(),
            phase,
        });
    }

    /// Accepts an error: the script was refused and changed nothing (P8). For a new attempt the caller gets the error. A
    /// re-check is retried, and a settle is sent, which needs no memory (P1).
    fn refused(&mut self, now: &Now<'_>, to: &Request) {
        let Some(i) = self.find(to.n) else { return };
        match to.ask {
            Ask::Acquire { .. } => {
                let attempt = &mut self.attempts[i];
                let Phase::Waiting { recheck_at } = &mut attempt.phase else { return };
                if attempt.ticket.is_some() {
                    *recheck_at = now.tick + now.scene.floor();
                    self.settle_at = now.tick;
                    return;
                }
                for task in std::mem::take(&mut attempt.waiters) {
                    self.tasks[task as usize] = Task::Gone;
                }
                now.log(|| format!("attempt {} was refused: an error to its caller", to.n));
                self.close(now, i);
            }
            Ask::Release { .. } => drop(self.attempts.remove(i)),
            _ => {}
        }
    }
}

fn leaving_at_once(now: &Now<'_>) -> Phase {
    Phase::Leaving { asked: None, again_at: now.tick, close_at: now.tick + now.scene.lease }
}
