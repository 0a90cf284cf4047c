//! The effects of a change on callers, which take place once the lock of the machine is free.
//!
//! A notified caller is woken, and a waker is the caller's own code. It may poll what it wakes, call this session again,
//! or, in an executor that shuts down, drop futures and guards, all on our stack. Under the lock of the machine this would
//! deadlock. So the machine only collects the effects.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::lost::{LostReason, Released};
use crate::observe::{Event, Events};
use crate::session::hold::{Ended, Hold};
use crate::store::Link;

/// The result of an acquire.
pub(crate) enum Verdict {
    Granted(Arc<Hold>),
    /// The caller waits for a notification from now on: the next result comes by this channel (P41).
    Queued {
        counter: u64,
        verdict: oneshot::Receiver<Verdict>,
    },
    /// Somebody else holds the lock, and the caller does not wait any longer.
    Busy,
    /// The grant ID was used up by the reply to an older request: the caller asks again with a new one.
    Again,
    Failed(Error),
}

#[derive(Default)]
pub(crate) struct Effects {
    /// Nearly always the only one, so that it needs no allocation.
    first: Option<Effect>,
    more: Vec<Effect>,
    /// Connections to close.
    links: Vec<Arc<dyn Link>>,
    /// Events for the subscriber of the program.
    events: Events,
}

/// A result, with the caller that waits for it.
pub(crate) struct Notice<T> {
    number: u64,
    caller: oneshot::Sender<T>,
    result: T,
}

impl<T> Notice<T> {
    /// Takes the result without the channel. Sent through the channel, it would wake the task that is just running: an
    /// additional turn, and another thread of the runtime would be woken for it.
    pub(crate) fn take_directly(self, channel: &mut oneshot::Receiver<T>) -> T {
        channel.close();
        self.result
    }
}

enum Effect {
    Verdict(Notice<Verdict>),
    Released(Notice<Result<Released>>),
    Lost(Vec<Waker>),
    Signal(oneshot::Sender<()>),
}

impl Effect {
    fn happen(self, untaken: &mut impl FnMut(&Hold)) {
        match self {
            Self::Verdict(Notice { caller, result, .. }) => {
                if let Err(Verdict::Granted(hold)) = caller.send(result) {
                    untaken(&hold);
                }
            }
            Self::Released(Notice { caller, result, .. }) => drop(caller.send(result)),
            Self::Lost(waiting) => waiting.into_iter().for_each(Waker::wake),
            Self::Signal(waiting) => drop(waiting),
        }
    }
}

impl Effects {
    /// Adds the result of an acquire, for its caller. If nobody takes a grant, [`Effects::flush`] returns it to the
    /// session.
    pub(crate) fn verdict(&mut self, number: u64, caller: Option<oneshot::Sender<Verdict>>, verdict: Verdict) {
        if let Some(caller) = caller {
            self.push(Effect::Verdict(Notice { number, caller, result: verdict }));
        }
    }

    /// Adds the result of a release, for its caller.
    pub(crate) fn released(
        &mut self,
        number: u64,
        caller: Option<oneshot::Sender<Result<Released>>>,
        result: impl FnOnce() -> Result<Released, Error>,
    ) {
        if let Some(caller) = caller {
            self.push(Effect::Released(Notice { number, caller, result: result() }));
        }
    }

    /// Ends a hold, and wakes the tasks that wait for its loss.
    pub(crate) fn end_hold(&mut self, hold: &Hold, reason: LostReason) {
        self.ended(hold, hold.end(reason));
    }

    /// Ends a hold whose validity is over, and wakes the tasks that wait for its loss.
    pub(crate) fn expire_hold(&mut self, hold: &Hold, now_us: u64) {
        self.ended(hold, hold.expire(now_us));
    }

    fn ended(&mut self, hold: &Hold, ended: Ended) {
        if ended.is_loss() {
            self.events.push(|| hold.lost_event(ended.reason));
        }
        if !ended.waiting.is_empty() {
            self.push(Effect::Lost(ended.waiting));
        }
    }

    /// Adds an event for the subscriber of the program.
    pub(crate) fn event(&mut self, event: impl FnOnce() -> Event) {
        self.events.push(event);
    }

    /// Signals an event by dropping the sender.
    pub(crate) fn signal(&mut self, waiting: oneshot::Sender<()>) {
        self.push(Effect::Signal(waiting));
    }

    /// Closes a connection that the session no longer uses. Callers that wait for a reply on it are woken.
    pub(crate) fn hang_up(&mut self, link: Arc<dyn Link>) {
        self.links.push(link);
    }

    /// Takes out the result of the acquire with this number (that of its attempt, or of its waiter): its caller is here,
    /// and needs no wake-up.
    pub(crate) fn take_verdict(&mut self, number: u64) -> Option<Notice<Verdict>> {
        match self.take_out(|effect| matches!(effect, Effect::Verdict(reply) if reply.number == number))? {
            Effect::Verdict(reply) => Some(reply),
            _ => None,
        }
    }

    /// Takes out the result of the release of this attempt.
    pub(crate) fn take_released(&mut self, number: u64) -> Option<Notice<Result<Released>>> {
        match self.take_out(|effect| matches!(effect, Effect::Released(reply) if reply.number == number))? {
            Effect::Released(reply) => Some(reply),
            _ => None,
        }
    }

    fn take_out(&mut self, is_it: impl Fn(&Effect) -> bool) -> Option<Effect> {
        self.first.take_if(|effect| is_it(effect)).or_else(|| {
            let at = self.more.iter().position(is_it)?;
            Some(self.more.remove(at))
        })
    }

    /// Adds an effect behind the others: effects keep their order.
    fn push(&mut self, effect: Effect) {
        match self.first {
            None if self.more.is_empty() => self.first = Some(effect),
            _ => self.more.push(effect),
        }
    }

    pub(crate) fn take(&mut self) -> Self {
        mem::take(self)
    }

    /// Closes the connections. This comes before the thread is woken: a request that the thread repeats on another
    /// connection must not meet a later round of a closed one.
    pub(crate) fn close_links(&mut self) {
        if !self.links.is_empty() {
            mem::take(&mut self.links).into_iter().for_each(|link| link.close());
        }
    }

    /// Notifies everybody. Never called under a lock. `untaken` gets each grant whose caller has just gone.
    pub(crate) fn flush(self, mut untaken: impl FnMut(&Hold)) {
        let Self { first, more, events, .. } = self;
        events.emit();
        if let Some(first) = first {
            first.happen(&mut untaken);
        }
        // Nearly always empty, and even an empty loop costs something at each hand-over.
        if !more.is_empty() {
            more.into_iter().for_each(|effect| effect.happen(&mut untaken));
        }
    }
}
