//! Handing a lease on inside the session: to the next in line, or to who will come (P20). How far that goes says `run.rs`.

use std::sync::Arc;

use leasehold_spec::{Contention, Token};

use super::attempt::{Holding, Kept, Phase, Terms, Verdict};
use super::hold::Hold;
use super::run::Asks;
use super::state::{Stage, State};
use super::words::Words;
use crate::error::Lost;

impl State {
    /// Hands a lease on to who waits for it here, or keeps it for who comes. Answers whether it did: then nothing goes
    /// back.
    pub(crate) fn pass(&mut self, hold: &Hold, now_us: u64) -> bool {
        let Some(attempt) = self.attempts.get_mut(&hold.id.counter).filter(|attempt| attempt.id == hold.id) else {
            return false;
        };
        let (Phase::Held(holding), Some(line)) = (&mut attempt.phase, attempt.line) else { return false };
        if holding.hold.token != hold.token || !holding.is_in_use() || now_us >= hold.valid_until_us() {
            return false;
        }
        let Some(token) = holding.run.next(hold.token, now_us) else { return false };
        let Some(line) = self.lines.get_mut(&line) else { return false };
        match line.next() {
            Some(waiter) => {
                holding.succeed(token, &mut self.words);
                holding.sticky_us = waiter.sticky_us;
                let verdict = Verdict::Granted(Arc::clone(&holding.hold));
                self.words.verdict(waiter.number, Some(waiter.caller), verdict);
            }
            None if holding.sticky_us == 0 || holding.run.others() != Contention::None => return false,
            None if self.stage != Stage::Open => return false,
            None => {
                holding.succeed(token, &mut self.words);
                holding.kept = Kept::Until { until_us: now_us + holding.sticky_us };
                // Renewed from now on often enough to hear of others in time.
                holding.renew_us = holding.renew_us.min(holding.run.refresh_us());
                self.arm(hold.id.counter);
            }
        }
        self.passed(hold.id.counter, token, now_us);
        true
    }

    /// Asks for what a run needs to go on.
    fn passed(&mut self, counter: u64, token: Token, now_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let Phase::Held(holding) = &mut attempt.phase else { return };
        let Asks { renew, reserve } = holding.run.passed(token, now_us);
        if renew && attempt.asked.is_none() {
            holding.renew_us = holding.renew_us.min(now_us);
        }
        if reserve || (renew && attempt.asked.is_none()) {
            self.arm(counter);
        }
    }

    /// Enters a lease that is kept. One that may not be handed on is given back: others wait, or nobody knows whether.
    pub(super) fn enter_kept(&mut self, line: u64, terms: &Terms) -> Option<Arc<Hold>> {
        self.holding(line).filter(|holding| !holding.is_in_use())?;
        let now_us = self.world.now_us();
        let holding = self.holding(line)?;
        // The hold has been made when the lease was kept: its token is that of the pass.
        let may = holding.run.may_go_on(now_us) && now_us < holding.hold.valid_until_us();
        if may {
            (holding.kept, holding.sticky_us) = (Kept::InUse, terms.sticky_us);
            return Some(Arc::clone(&holding.hold));
        }
        let counter = self.attempt_of(line);
        self.give_back(counter, now_us);
        None
    }

    /// An attempt that was somebody's own holds now. Where nothing stands for its line yet it does: who comes next waits
    /// for it here.
    pub(crate) fn adopt(&mut self, counter: u64) {
        let Some(attempt) = self.attempts.get(&counter).filter(|a| a.line.is_none() && a.range > 1) else { return };
        let (name, terms) = (attempt.name.clone(), Arc::clone(&attempt.terms));
        if self.line_of(&name, terms.lease_ms).is_none() {
            let line = self.open_line(&name, &terms);
            self.stands_for(line, counter);
            if let Some(attempt) = self.attempts.get_mut(&counter) {
                attempt.line = Some(line);
            }
        }
    }
}

impl Holding {
    /// The next hold of the same grant takes the place of this one.
    fn succeed(&mut self, token: Token, words: &mut Words) {
        let hold = Arc::new(self.hold.next(token, self.run.others()));
        words.lost(&self.hold, Lost::Released);
        self.hold = hold;
    }
}
