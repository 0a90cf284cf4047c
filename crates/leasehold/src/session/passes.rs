//! Handing a lease on inside the session: to the next in line, or to who will come (P20). How far that goes says `run.rs`.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, Name, Token};
use tokio::sync::oneshot;

use super::attempt::{Asked, Holding, Phase, Verdict};
use super::callers::Before;
use super::hold::Hold;
use super::run::Asks;
use super::state::{Stage, State};
use super::terms::Terms;
use super::words::Words;
use crate::error::LostReason;
use crate::store::Link;

impl State {
    /// Hands a lease on to who waits for it here, or keeps it for who comes. Answers whether it did: then nothing goes
    /// back.
    pub(crate) fn pass(&mut self, hold: &Hold, now_us: u64) -> bool {
        let counter = hold.id.counter;
        let Some(attempt) = self.attempts.get_mut(&counter).filter(|attempt| attempt.id == hold.id) else {
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
                holding.kept_until_us = Some(now_us + holding.sticky_us);
                // Renewed from now on often enough to hear of others in time.
                holding.renew_us = holding.renew_us.min(holding.run.refresh_us());
            }
        }
        // What the run needs to go on.
        let Asks { renew, reserve } = holding.run.passed(token, now_us);
        let renew = renew && attempt.asked.is_none();
        if renew {
            holding.renew_us = holding.renew_us.min(now_us);
        }
        if renew || reserve || !holding.is_in_use() {
            self.arm(counter);
        }
        true
    }

    /// Enters a lease that is kept. One that may not be handed on is given back: others wait, or nobody knows whether.
    pub(super) fn enter_kept(&mut self, line: u64, terms: &Terms) -> Option<Arc<Hold>> {
        self.holding(line).filter(|holding| !holding.is_in_use())?;
        let now_us = self.world.now_us();
        let holding = self.holding(line)?;
        // The hold has been made when the lease was kept: its token is that of the pass.
        let may = holding.run.may_go_on(now_us) && now_us < holding.hold.valid_until_us();
        if may {
            (holding.kept_until_us, holding.sticky_us) = (None, terms.sticky_us);
            return Some(Arc::clone(&holding.hold));
        }
        let counter = self.attempt_of(line);
        self.give_back(counter, now_us);
        None
    }

    /// What this session itself has of a name and does not use is in the way of its own request for it: a lease that is
    /// kept on other terms, and the release of a dropped guard that the thread has still to send. Whoever drops a guard
    /// and tries again would hear that somebody holds, now and then, and that would be itself. So the release goes first,
    /// by the caller of the request, and both on one link, which keeps their order. What has left already is not sent
    /// again: the request follows it on its link.
    ///
    /// Answers the link of the request, and what goes right before it. (Without a link the thread sends both, in this
    /// order.)
    pub(super) fn clear_the_way(
        &mut self,
        name: &Name,
        link: Option<Arc<dyn Link>>,
        now_us: u64,
    ) -> (Option<Arc<dyn Link>>, Before) {
        if is_on(Mutant::P16TriesBefore) {
            return (link, Before::Nothing);
        }
        if let Some(kept) = self.kept_of(name) {
            self.begin_return(kept, now_us);
            if link.is_none() {
                self.arm(kept);
            }
        }
        let Some(link) = link else { return (None, Before::Nothing) };
        let (link, before) = self.hurry_back(name, &link, now_us).unwrap_or((link, Before::Nothing));
        (Some(link), before)
    }

    /// The attempt by which a lease of this name is kept that nobody uses.
    fn kept_of(&self, name: &Name) -> Option<u64> {
        let lines = &self.slots.get(name)?.lines;
        lines.iter().filter_map(|(_, line)| Some(self.lines.get(line)?.counter())).find(|counter| {
            let phase = self.attempts.get(counter).map(|attempt| &attempt.phase);
            matches!(phase, Some(Phase::Held(holding)) if !holding.is_in_use())
        })
    }

    /// The link on which a release of this name leaves, or has left, and what is still to be done for that.
    fn hurry_back(&mut self, name: &Name, link: &Arc<dyn Link>, now_us: u64) -> Option<(Arc<dyn Link>, Before)> {
        let counter = self.slots.get(name)?.going_back;
        let attempt = self.attempts.get(&counter)?;
        // What is sent on another runtime's lane is no use to this caller: it is sent again, by a link that is driven.
        let asked = attempt.asked.clone().filter(|asked| self.may_use(&asked.link));
        let follow = attempt.tries.follow().filter(|link| self.may_use(link)).cloned();
        let attempt = self.attempts.get_mut(&counter)?;
        let Phase::Returning(returning) = &mut attempt.phase else { return None };
        if let Some(Asked { link, serial, .. }) = asked {
            if serial <= returning.left {
                return Some((link, Before::Nothing));
            }
            let (tell, leaves) = oneshot::channel();
            returning.behind.push(tell);
            return Some((link, Before::Leaves(leaves)));
        }
        if returning.next_us > now_us {
            return None; // It was refused a moment ago, and would be again.
        }
        // What it ends may be unanswered yet, on that link: on another one it would overtake that.
        if !attempt.tries.may_be_followed() || !returning.behind.is_empty() {
            // The thread sends it, and where it does (`due_return`).
            let link = follow.or_else(|| self.home.clone().filter(|link| !link.is_closed()))?;
            let (tell, leaves) = oneshot::channel();
            returning.behind.push(tell);
            self.arm(counter);
            return Some((link, Before::Leaves(leaves)));
        }
        let link = follow.unwrap_or_else(|| Arc::clone(link));
        let (op, asked) = self.ask_return(counter, Arc::clone(&link), now_us)?;
        if let Phase::Returning(returning) = &mut self.attempts.get_mut(&counter)?.phase {
            returning.left = asked.serial;
        }
        self.arm(counter);
        Some((link, Before::Sent(Box::new((counter, op, asked)))))
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
        words.lost(&self.hold, LostReason::Released);
        self.hold = hold;
    }
}
