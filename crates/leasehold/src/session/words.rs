//! What callers are told, once the state's lock is free.
//!
//! Whoever is told is woken, and a waker is the caller's own code: it may poll what it wakes, come back into this session,
//! or, in an executor that is shutting down, drop the future and the guards in it, all of that on our stack. Under the
//! state's lock it would stand still for ever. So the state only notes what is to be said.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::oneshot;

use super::attempt::{GivenBack, Verdict};
use super::hold::Hold;
use crate::error::{LostReason, Result};
use crate::store::Link;

#[derive(Default)]
pub(crate) struct Words {
    /// Nearly always the only one: it needs no allocation.
    first: Option<Word>,
    more: Vec<Word>,
    /// The links to close.
    links: Vec<Arc<dyn Link>>,
}

/// What a caller waits for, and whom it is for.
pub(crate) struct Told<T> {
    number: u64,
    caller: oneshot::Sender<T>,
    what: T,
}

impl<T> Told<T> {
    /// Takes it by hand. Said through the channel, or by dropping the sender of one that is open, it would wake the task
    /// that is just running: another turn for nothing, and another thread of the runtime called for it.
    pub(crate) fn by_hand(self, channel: &mut oneshot::Receiver<T>) -> T {
        channel.close();
        self.what
    }
}

enum Word {
    Verdict(Told<Verdict>),
    GivenBack(Told<Result<GivenBack>>),
    Lost(Vec<Waker>),
    Signal(oneshot::Sender<()>),
}

impl Words {
    /// A grant that nobody takes is for the session to give back: the future's own drop gives its attempt up.
    pub(crate) fn verdict(&mut self, number: u64, caller: Option<oneshot::Sender<Verdict>>, verdict: Verdict) {
        if let Some(caller) = caller {
            self.push(Word::Verdict(Told { number, caller, what: verdict }));
        }
    }

    /// Takes out what the caller of this number (that of its attempt, or of its place in a line) is told: it is here, and
    /// need not be called.
    pub(crate) fn take_verdict(&mut self, number: u64) -> Option<Told<Verdict>> {
        match self.take_out(|word| matches!(word, Word::Verdict(told) if told.number == number))? {
            Word::Verdict(told) => Some(told),
            _ => None,
        }
    }

    /// The same of what became of the lease that this attempt gives back.
    pub(crate) fn take_given_back(&mut self, number: u64) -> Option<Told<Result<GivenBack>>> {
        match self.take_out(|word| matches!(word, Word::GivenBack(told) if told.number == number))? {
            Word::GivenBack(told) => Some(told),
            _ => None,
        }
    }

    fn take_out(&mut self, is_it: impl Fn(&Word) -> bool) -> Option<Word> {
        self.first.take_if(|word| is_it(word)).or_else(|| {
            let at = self.more.iter().position(is_it)?;
            Some(self.more.remove(at))
        })
    }

    fn push(&mut self, word: Word) {
        match self.first {
            // In the order in which it was noted.
            None if self.more.is_empty() => self.first = Some(word),
            _ => self.more.push(word),
        }
    }

    pub(crate) fn given_back(
        &mut self,
        number: u64,
        caller: Option<oneshot::Sender<Result<GivenBack>>>,
        what: impl FnOnce() -> Result<GivenBack>,
    ) {
        if let Some(caller) = caller {
            self.push(Word::GivenBack(Told { number, caller, what: what() }));
        }
    }

    /// The hold has ended from now on; who waits for that hears it a moment later.
    pub(crate) fn lost(&mut self, hold: &Hold, why: LostReason) {
        self.ended(hold.end(why).1);
    }

    /// The same of a hold whose validity is over.
    pub(crate) fn expired(&mut self, hold: &Hold, now_us: u64) {
        self.ended(hold.expire(now_us).1);
    }

    fn ended(&mut self, waiting: Vec<Waker>) {
        if !waiting.is_empty() {
            self.push(Word::Lost(waiting));
        }
    }

    /// What was waited for has come: said by dropping the channel's end.
    pub(crate) fn signal(&mut self, waiting: oneshot::Sender<()>) {
        self.push(Word::Signal(waiting));
    }

    /// Closes a link that nothing of the session goes by any more. Whoever still waits on it for an answer is woken.
    pub(crate) fn hang_up(&mut self, link: Arc<dyn Link>) {
        self.links.push(link);
    }

    /// Closes these links. It has to be called before the thread is woken: what the thread asks again by another link must
    /// not meet a later round of a closed link.
    pub(crate) fn close_links(&mut self) {
        mem::take(&mut self.links).into_iter().for_each(|link| link.close());
    }

    pub(crate) fn take(&mut self) -> Self {
        mem::take(self)
    }

    /// Says it all. Never under a lock. `untaken` gets what was granted to one who has gone in that very moment.
    pub(crate) fn say(self, mut untaken: impl FnMut(&Hold)) {
        for word in self.first.into_iter().chain(self.more) {
            match word {
                Word::Verdict(Told { caller, what, .. }) => {
                    if let Err(Verdict::Granted(hold)) = caller.send(what) {
                        untaken(&hold);
                    }
                }
                Word::GivenBack(Told { caller, what, .. }) => drop(caller.send(what)),
                Word::Lost(waiting) => waiting.into_iter().for_each(Waker::wake),
                Word::Signal(waiting) => drop(waiting),
            }
        }
    }
}
