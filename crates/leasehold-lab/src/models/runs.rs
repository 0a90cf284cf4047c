//! Local hand-over: the tasks of one session pass a lease on to each other without a message to the store (P19 to P21).
//!
//! Only the session itself knows of a pass. So before each pass it checks that the lease has time left, that a token is
//! reserved for the pass, and that a recent reply from the store has arrived. The limits of a run follow from the
//! session's knowledge, which may be out of date.

use leasehold_spec::{Answer, Contention, Delivery, LostHow, Outcome, Token};

use super::ledger::Ledger;
use super::network::Ask;
use super::rules::Slip;
use super::scene::{clock_us, ticks, when};
use super::session::{Holding, Now, Phase, Run, Sent, Session, Task};

impl Session {
    /// Ends the holder's section. The lease goes to the next local waiter if the run may go on (P20), else back to the
    /// store. Returns the grant that was passed on, if any.
    pub(crate) fn finish(&mut self, now: &Now<'_>, ledger: &mut Ledger, task: u8) -> Option<Holding> {
        self.tasks[task as usize] = Task::Served;
        let inside = |h: &Holding| h.task == task;
        let i = self.attempts.iter().position(|a| matches!(&a.phase, Phase::Holding(h) if inside(h)))?;
        let passed = if self.may_pass(now, i) { self.pass(now, ledger, i) } else { None };
        if let (None, Phase::Holding(holding)) = (&passed, &self.attempts[i].phase) {
            self.attempts[i].cools_until = holding.min_until;
            self.end_run(now, i, Slip::ReleaseOnly);
        }
        self.pump(now);
        passed
    }

    fn pass(&mut self, now: &Now<'_>, ledger: &mut Ledger, i: usize) -> Option<Holding> {
        let attempt = &mut self.attempts[i];
        let Phase::Holding(holding) = &mut attempt.phase else { return None };
        holding.task = attempt.waiters.remove(0);
        holding.pass += 1;
        holding.run.passes += u8::from(holding.run.others != Contention::None);
        holding.run.passes_while_wanted += u8::from(holding.run.knows_waiters);
        attempt.used = holding.current();
        self.tasks[holding.task as usize] = Task::Inside;
        ledger.enters(holding.current(), holding.pass);
        ledger.passed(now.scene, now.tick, &holding.run);
        now.log(|| {
            let token = super::words::token(holding.current());
            format!("passes the lease on to its own task {}, with token {token}", holding.task)
        });
        Some(holding.clone())
    }

    fn may_pass(&self, now: &Now<'_>, i: usize) -> bool {
        let attempt = &self.attempts[i];
        let Phase::Holding(holding) = &attempt.phase else { return false };
        let run = holding.run;
        let within = match run.others {
            Contention::None => true,
            Contention::Strict if !now.slips(Slip::StrictIsRelaxed) => false,
            _ => run.passes < now.scene.passes,
        };
        let is_long_enough = 2 * (holding.until.saturating_sub(now.tick)) >= now.scene.lease;
        let is_confirmed = now.tick <= run.asked_at + now.scene.third() || now.slips(Slip::RunsUnconfirmed);
        now.scene.has_runs()
            && holding.min_until <= now.tick
            && !attempt.waiters.is_empty()
            && (holding.pass + 1 < run.range || now.slips(Slip::MintsBeyond))
            && (!holding.is_revoked || now.slips(Slip::RunsRevoked))
            && (within || now.slips(Slip::IgnoresOthers))
            && (is_long_enough && is_confirmed || now.slips(Slip::ReadsNoClock))
    }

    /// Gives the grant back, and acquires again for the remaining local waiters: release and acquire in one pipeline.
    /// The slip `forgets` omits the acquire.
    pub(crate) fn end_run(&mut self, now: &Now<'_>, i: usize, forgets: Slip) {
        let attempt = &mut self.attempts[i];
        let Phase::Holding(Holding { token, .. }) = attempt.phase else { return };
        if attempt.cools_until > now.tick {
            self.leave(now, i);
        } else if attempt.open.is_empty() || now.slips(Slip::ReleaseOvertakes) {
            attempt.phase = Phase::Releasing { token, asked: None, sent: Sent::Once };
        } else {
            // A re-check has no reply. A release on another connection would overtake it, and the re-check would take
            // the lease anew.
            self.leave(now, i);
        }
        if !now.slips(forgets) {
            self.ask_again(now, i);
        }
    }

    /// Returns how many tokens to reserve, if there are more local waiters than tokens (P19).
    pub(crate) fn wants_tokens(&self, now: &Now<'_>, i: usize) -> Option<(Token, u8)> {
        let attempt = &self.attempts[i];
        let Phase::Holding(holding) = &attempt.phase else { return None };
        let enough = holding.pass + 1 + attempt.waiters.len() as u8;
        let is_asked = holding.run.reserving.is_some() || holding.is_revoked || holding.until <= now.tick;
        (now.scene.has_runs() && !is_asked && holding.run.range < enough).then_some((holding.token, enough))
    }

    /// Requests more tokens. They are reserved once the store has confirmed them, and not before.
    pub(crate) fn reserves(&mut self, now: &Now<'_>, i: usize, k: u8) {
        let Some((token, range)) = self.wants_tokens(now, i) else { return };
        let n = self.attempts[i].n;
        if let Phase::Holding(holding) = &mut self.attempts[i].phase {
            holding.run.reserving = Some(k);
            if now.slips(Slip::TrustsReserve) {
                holding.run.range = range;
            }
        }
        self.send(now, k, n, Ask::Reserve { token, range });
    }

    pub(crate) fn reserved(&mut self, now: &Now<'_>, i: usize, asked_for: Token, answer: &Answer, run: Run) {
        let Phase::Holding(holding) = &mut self.attempts[i].phase else { return };
        if holding.token != asked_for {
            return;
        }
        holding.run.reserving = None;
        match answer.outcome {
            Outcome::Reserved { range } => {
                holding.run = run.after(now, holding.run);
                holding.run.range = holding.run.range.max(range as u8);
            }
            Outcome::Lost { how } => self.lose(now, i, how == LostHow::NotHeld),
            _ => {}
        }
    }

    /// Accepts the message that others now wait. A session that misses it learns it from the next reply (P9).
    pub(crate) fn wanted(&mut self, push: &Delivery) {
        let Some(i) = self.find(push.id.counter as u8) else { return };
        let Phase::Holding(holding) = &mut self.attempts[i].phase else { return };
        if holding.token == push.token {
            holding.run.others = holding.run.others.max(push.contention);
            holding.run.stated_at = holding.run.stated_at.max(when(push.now_us));
            holding.run.knows_waiters = true;
        }
    }

    /// Accepts a revocation: the run ends with the section, or with the grace (P10).
    pub(crate) fn revoked(&mut self, now: &Now<'_>, push: &Delivery) {
        let Some(i) = self.find(push.id.counter as u8) else { return };
        match &mut self.attempts[i].phase {
            Phase::Holding(holding) if holding.token == push.token => {
                holding.is_revoked = true;
                let end = when(push.now_us).saturating_sub(self.lag.unwrap_or(0)) + ticks(push.left_us);
                if !now.slips(Slip::RunsRevoked) {
                    holding.until = holding.until.min(end);
                }
                if holding.until <= now.tick {
                    self.lose(now, i, false);
                }
            }
            // The grant was made and revoked before this session learned of it.
            Phase::Waiting { .. } | Phase::Claiming { .. } => {
                self.ask_again(now, i);
                self.leave(now, i);
            }
            _ => {}
        }
    }

    /// Returns the token of a task that was let in just before its process paused, and that reads the clock as it
    /// resumes.
    pub(crate) fn late_token(&self, now: &Now<'_>) -> Option<(Token, Token)> {
        let passed = self.attempts.iter().find_map(|a| match &a.phase {
            Phase::Holding(h) if h.pass > 0 => Some(h.token),
            _ => None,
        });
        let clock = Token::new(clock_us(now.tick)).filter(|_| now.slips(Slip::MintsByClock));
        passed.zip(clock)
    }
}

impl Run {
    /// Combines a newer reply with the state of a run that goes on.
    ///
    /// There are two connections, so the message that others wait may arrive before a reply that was given earlier.
    pub(crate) fn after(self, now: &Now<'_>, before: Self) -> Self {
        let knows_waiters = before.knows_waiters || self.knows_waiters;
        let is_older = self.stated_at <= before.stated_at && !now.slips(Slip::OlderLevelWins);
        let (others, stated_at) = match is_older {
            true => (self.others.max(before.others), before.stated_at),
            false => (self.others, self.stated_at),
        };
        let passes = if others == Contention::None { 0 } else { before.passes };
        let Self { passes_while_wanted, range, reserving, .. } = before;
        Self { others, stated_at, passes, passes_while_wanted, knows_waiters, range, reserving, ..self }
    }
}
