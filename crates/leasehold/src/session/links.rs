//! Links that come and go: what that means for everything that is asked over them.
//!
//! Another link may lead to another *run* of the store: one that restarted, or the replica that took over. Its clock has
//! nothing to do with that of the one before, it may have forgotten grants, and may remember what was released; and the
//! old primary may live on, cut off, and go on answering.

use std::sync::Arc;

use leasehold_spec::Token;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempt::{Asked, Attempt, Phase};
use super::heard::Heard;
use super::silent;
use super::state::{State, Wake};
use crate::clock::ServerClock;
use crate::error::Error;
use crate::store::{Fault, Link};

/// How many links are remembered with the reason of their end: two at a time, and those before, while something may yet be
/// heard of them.
const ENDS: usize = 4;

impl State {
    /// A link leads to this run of the store. Times of two runs are never compared, nor tokens that are not held: one that
    /// restarted empty, with its clock behind, begins below what its waiters have heard, and they would believe nothing.
    pub(crate) fn meet(&mut self, run: &str) {
        if self.run == run {
            return;
        }
        self.clock = ServerClock::default();
        self.met_anew = !self.run.is_empty();
        if self.met_anew {
            hit(Mark::MetAnotherRun);
        }
        self.run = run.to_owned();
        for attempt in self.attempts.values_mut() {
            match attempt.phase {
                Phase::Asking { .. } | Phase::Queued { .. } => attempt.latest = Token::NONE,
                // What another run pushed is not to be claimed here.
                Phase::Claiming { .. } => {
                    attempt.latest = Token::NONE;
                    attempt.phase = Phase::Queued { next_us: 0 };
                }
                Phase::Held(_) | Phase::Ended { .. } | Phase::Returning(_) => {}
            }
        }
    }

    /// Everything is looked at again: the inbox is proved on a new link (P11, P13).
    pub(crate) fn attached(&mut self, link: Arc<dyn Link>, now_us: u64) {
        if std::mem::take(&mut self.met_anew) {
            // A failover can bring back what was released.
            for old in std::mem::take(&mut self.released) {
                if old.until_us > now_us && !self.attempts.contains_key(&old.id.counter) {
                    self.return_again(old);
                }
            }
        }
        self.home = Some(link);
        self.trouble = None;
        if !is_on(Mutant::P15NoResync) {
            self.look_at_everything(now_us);
        }
    }

    /// What an answer is worth that came by this link.
    ///
    /// What another run of the store says is none: after a failover the old primary may live on, cut off, and grant, renew
    /// and release to whoever is still connected to it. Nor is its clock to be compared with that of this one.
    ///
    /// And a store that is not the one to ask (a replica, one that loads) goes on answering, never with an answer: the link
    /// is given up, and the next one is greeted anew. What it says of itself concerns whoever waits for an answer, unlike
    /// what a store refuses of one name.
    pub(crate) fn hear(&mut self, asked: &Asked, heard: Heard) -> Heard {
        if heard.is_ok()
            && let Some((_, answers)) = self.proving.iter_mut().find(|(known, _)| same(known, &asked.link))
        {
            *answers += 1;
        }
        let is_of_this_run = asked.link.run_id() == self.run;
        let of_another = |_| {
            hit(Mark::AnswerOfAnotherRun);
            Err(Fault::Gone(silent()))
        };
        let heard = if is_of_this_run { heard } else { heard.and_then(of_another) };
        match heard {
            Err(Fault::Refused(_) | Fault::NoMemory(_)) => {
                self.contact.replied(self.world.now_us());
                heard
            }
            // Of the record, as it looks. A ping shows whether the link can still be asked.
            Err(Fault::Damaged(error)) => {
                self.contact.replied(self.world.now_us());
                self.doubt(&asked.link);
                Err(Fault::Damaged(error))
            }
            Err(Fault::Gone(error)) => Err(Fault::Gone(self.give_up(&asked.link, error))),
            heard => heard,
        }
    }

    /// Gives a link up, and answers what to tell whoever was on it: its end has one reason, the first that was heard. Those
    /// behind it hear from the link only that it broke.
    fn give_up(&mut self, link: &Arc<dyn Link>, error: Error) -> Error {
        link.close();
        let Some((_, reason)) = self.ends.iter().find(|(known, _)| same(known, link)) else {
            hit(Mark::LinkGivenUp);
            self.trouble = Some(error.share());
            if self.ends.len() >= ENDS {
                self.ends.pop_front();
            }
            self.ends.push_back((Arc::clone(link), error.share()));
            return error;
        };
        self.trouble = Some(reason.share());
        if reason.to_string() == error.to_string() {
            return error;
        }
        let message =
            format!("the connection was given up with this request on it, for what another had heard: {reason}");
        Error::new(reason.kind(), message).may_act()
    }

    /// The session's own link. Once it has ended nothing is sent on it any more, also before the thread has seen that: what
    /// was never sent is surely not carried out.
    pub(crate) fn home(&self) -> Option<&Arc<dyn Link>> {
        self.home.as_ref().filter(|link| !link.is_closed())
    }

    /// Why the store cannot be asked now, for a call that was not sent: what may have become of those that were, on the
    /// link that broke, is no word about this one.
    pub(crate) fn away(&self) -> Error {
        self.trouble.as_ref().map_or_else(|| self.silence(), Error::share).was_not_sent()
    }

    /// The same for an attempt of which nothing was heard: some of it may have been sent.
    pub(crate) fn away_for(&self, attempt: &Attempt) -> Error {
        if attempt.tries.is_settled() { self.away() } else { self.away().may_act() }
    }

    /// A request was left unanswered on this link: it answers a ping in time, or is replaced.
    pub(crate) fn doubt(&mut self, link: &Arc<dyn Link>) {
        let known = self.proving.iter().map(|(known, _)| known).chain(&self.doubted);
        if !known.into_iter().any(|known| same(known, link)) {
            hit(Mark::LinkDoubted);
            self.doubted.push(Arc::clone(link));
            self.wake = Wake::Now;
        }
    }

    /// A ping is under way on this link. Answers whether it is the only one.
    pub(crate) fn begin_proof(&mut self, link: &Arc<dyn Link>) -> bool {
        let is_new = !self.proving.iter().any(|(known, _)| same(known, link));
        if is_new {
            self.proving.push((Arc::clone(link), 0));
        }
        is_new
    }

    /// How many answers have come on this link while its ping is under way.
    pub(crate) fn answers_meanwhile(&self, link: &Arc<dyn Link>) -> u64 {
        self.proving.iter().find(|(known, _)| same(known, link)).map_or(0, |(_, answers)| *answers)
    }

    pub(crate) fn end_proof(&mut self, link: &Arc<dyn Link>) {
        self.proving.retain(|(known, _)| !same(known, link));
    }
}

pub(crate) fn same(a: &Arc<dyn Link>, b: &Arc<dyn Link>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
