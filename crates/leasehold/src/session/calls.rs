//! What callers wait for: a lease, and the word that it is given back. Futures that may be dropped at every await, and the
//! session goes on with what they began (P16).

use std::future::{poll_fn, ready};
use std::mem::replace;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, GrantId, Name, Op};
use tokio::sync::oneshot;

use super::Session;
use super::attempt::{Asked, GivenBack, Verdict};
use super::callers::{Before, First, LetGo, Panicking, Sending};
use super::heard::Heard;
use super::hold::Hold;
use super::lines::{Stood, WaiterId};
use super::state::{Stage, State};
use super::terms::{Terms, Wait};
use crate::error::{Error, Result};
use crate::store::Fault;
use crate::sync::panicking;
use crate::world::Pending;

impl Session {
    /// Acquires `name`. `None`: somebody else holds it, and `wait` is over.
    ///
    /// Dropping the future gives the attempt up, whatever became of it.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: &Name,
        terms: &Arc<Terms>,
        wait: Wait,
    ) -> Result<Option<Arc<Hold>>> {
        loop {
            self.check_usable()?;
            let verdict = match terms.may_stand() {
                true => self.stand(name, terms, wait).await?,
                false => Box::pin(self.attempt(name, terms, wait, oneshot::channel())).await?,
            };
            match verdict {
                Verdict::Granted(hold) if hold.check().is_ok() => {
                    if terms.min_hold_us > 0 {
                        hold.begin_min_hold();
                    }
                    return Ok(Some(hold));
                }
                // Granted and lost before the caller came to look: nobody gets a guard that is already lost.
                Verdict::Granted(hold) => self.drop_hold(&hold),
                Verdict::Busy => return Ok(None),
                Verdict::Again => {}
                Verdict::Failed(error) => return Err(error),
            }
        }
    }

    /// In the line for this name, where there is one for these terms: a waiter, and no attempt of its own.
    async fn stand(self: &Arc<Self>, name: &Name, terms: &Arc<Terms>, wait: Wait) -> Result<Verdict> {
        // Made before the state is locked, for which others wait.
        let (caller, verdict) = oneshot::channel();
        match self.with(|state| state.stand(name, terms, wait, caller)) {
            Stood::Told(verdict) => Ok(verdict),
            // Boxed, like whatever asks the store: a thousand that wait in line touch a thousand futures in turn, and the
            // smaller they are the more of them are still in the cache.
            Stood::Apart(caller) => Box::pin(self.attempt(name, terms, wait, (caller, verdict))).await,
            Stood::InLine { waiter, first: None, upkeep } => {
                let mut standing = Standing { session: self, waiter: Some(waiter), sends: 0, verdict };
                self.keep_up(upkeep, None);
                let told = (&mut standing.verdict).await;
                standing.waiter = None;
                told.map_err(|_| Error::closed())
            }
            Stood::InLine { waiter, first: Some(first), upkeep } => {
                let standing = Standing { session: self, waiter: Some(waiter), sends: first.0.counter, verdict };
                self.keep_up(upkeep, None);
                Box::pin(self.lead(name, waiter, first, standing)).await
            }
        }
    }

    /// The first in a line, who sends its request.
    async fn lead(
        &self,
        name: &Name,
        waiter: WaiterId,
        first: Box<(GrantId, First)>,
        mut standing: Standing<'_>,
    ) -> Result<Verdict> {
        let (id, mut first) = *first;
        let ask = async {
            let heard = self.ask(name, &mut first).await;
            self.with(|state| {
                state.heard_acquire(name, id, &first.asked, heard);
                state.words.take_verdict(waiter.number)
            })
        };
        let mut ask = pin!(ask);
        let told = loop {
            tokio::select! {
                biased;
                told = &mut ask, if standing.sends != 0 => {
                    standing.sends = 0;
                    if let Some(told) = told {
                        break Ok(told.by_hand(&mut standing.verdict));
                    }
                }
                told = &mut standing.verdict => break told,
            }
        };
        standing.waiter = None;
        told.map_err(|_| Error::closed())
    }

    async fn attempt(
        self: &Arc<Self>,
        name: &Name,
        terms: &Arc<Terms>,
        wait: Wait,
        (tell, verdict): (oneshot::Sender<Verdict>, oneshot::Receiver<Verdict>),
    ) -> Result<Verdict> {
        let (id, first, upkeep) = self.with(|state| {
            if state.stage != Stage::Open {
                return Err(Error::closed());
            }
            let now_us = state.world.now_us();
            let (link, upkeep) = state.lane_link(now_us);
            let (id, first) = state.begin(name, terms, wait, tell, link, now_us);
            Ok((id, first, upkeep))
        })?;
        let mut asking = Unfinished { session: self, counter: id.counter, on_drop: Some(State::abandon) };
        self.keep_up(upkeep, None);
        let ask = async {
            let mut first = first?;
            let heard = self.ask(name, &mut first).await;
            self.with(|state| {
                state.heard_acquire(name, id, &first.asked, heard);
                state.words.take_verdict(id.counter)
            })
        };
        // The answer and the push come by different ways, and the push may be first: then nobody waits for the answer.
        let (mut ask, mut verdict) = (pin!(ask), verdict);
        let mut is_answered = false;
        let told = loop {
            tokio::select! {
                biased;
                told = &mut ask, if !is_answered => {
                    is_answered = true;
                    if let Some(told) = told {
                        break Ok(told.by_hand(&mut verdict));
                    }
                }
                told = &mut verdict => break told,
            }
        };
        asking.disarm();
        if !is_answered {
            self.with(|state| state.left_alone(id.counter));
        }
        told.map_err(|_| Error::closed())
    }

    /// Sends a caller's request behind what it would find in its way. Both leave before either is answered: one round trip.
    async fn ask(&self, name: &Name, first: &mut First) -> Heard {
        let asking = self.send(name, &first.op, &first.asked, first.guess);
        let (counter, op, asked) = match replace(&mut first.before, Before::Nothing) {
            Before::Nothing => return asking.await,
            Before::Leaves(leaves) => {
                let _left_or_over = leaves.await;
                return asking.await;
            }
            Before::Sent(before) => *before,
        };
        // Whatever becomes of this future: a release that is not heard of is the thread's to repeat.
        let mut returning = Unfinished { session: self, counter, on_drop: Some(State::go_unheard) };
        let (mut release, mut asking) = (self.send(name, &op, &asked, first.guess), asking);
        let mut is_heard = false;
        poll_fn(|context| {
            if !is_heard && let Poll::Ready(heard) = release.as_mut().poll(context) {
                is_heard = true;
                returning.disarm();
                self.with(|state| state.heard_return(counter, &asked, heard));
            }
            asking.as_mut().poll(context)
        })
        .await
    }

    /// Gives a lease back: to the next one here, at once, or to the store, and then waits for its word. Dropping the future
    /// leaves the release to the session.
    pub(crate) async fn release(self: &Arc<Self>, hold: &Arc<Hold>) -> Result<GivenBack> {
        self.check_usable()?;
        let (sending, upkeep) = match self.with(|state| state.let_go(hold)) {
            LetGo::Passed => return Ok(GivenBack::Released),
            LetGo::NotHeld => return Ok(GivenBack::NotHeld),
            LetGo::Sent { sending, upkeep } => (sending, upkeep),
        };
        let counter = hold.id.counter;
        let releasing = Unfinished { session: self, counter, on_drop: Some(State::go_unheard) };
        self.keep_up(upkeep, None);
        Box::pin(self.give_back(hold, *sending, releasing)).await
    }

    /// Gives a lease back to the store.
    async fn give_back(
        self: &Arc<Self>,
        hold: &Hold,
        sending: Sending,
        mut releasing: Unfinished<'_>,
    ) -> Result<GivenBack> {
        let Sending { answer, release, next, was_valid } = sending;
        let counter = hold.id.counter;
        // Those who still wait in line ask again behind the release, on its heels: one round trip for both.
        let next = next.map(|(id, first)| self.ask_for(&hold.name, id, first));
        let release = async {
            if let Some(first) = release {
                let heard = self.send(&hold.name, &first.op, &first.asked, first.guess).await;
                return self.with(|state| {
                    state.heard_return(counter, &first.asked, heard);
                    state.words.take_given_back(counter)
                });
            }
            None
        };
        let (mut release, mut answer) = (pin!(release), answer);
        let (mut is_released, mut told, mut next_asked) = (false, None, next);
        let given_back = poll_fn(|context| {
            if !is_released && let Poll::Ready(heard) = release.as_mut().poll(context) {
                (is_released, told) = (true, heard);
            }
            // Also where the release is answered at once: what was never polled is not sent, and dropped like that it is
            // nobody's to repeat.
            next_asked.take_if(|next| next.as_mut().poll(context).is_ready());
            if let Some(told) = told.take() {
                return Poll::Ready(Ok(told.by_hand(&mut answer)));
            }
            // The session's thread may have the answer first: it repeats a release that is not answered, and what drives
            // the link of the first one may stand still.
            match is_released || !is_on(Mutant::P17AwaitsOwnRequest) {
                true => Pin::new(&mut answer).poll(context),
                false => Poll::Pending,
            }
        })
        .await;
        // The answer to the next acquire is not for this caller. The runtime waits for it, or, where there is none, the
        // session's thread asks anew.
        if let Some(next) = next_asked {
            drop(self.world.spawn(next));
        }
        let given_back = given_back.map_err(|_| Error::closed())?;
        releasing.disarm();
        // The work outlived the lease, even if nobody came between.
        given_back.map(|word| if was_valid { word } else { GivenBack::NotHeld })
    }

    /// The request of a line that its caller does not wait for. Dropped before its answer it is the session's to repeat.
    fn ask_for(self: &Arc<Self>, name: &Name, id: GrantId, mut first: First) -> Pending<()> {
        let (session, name) = (Arc::clone(self), name.clone());
        Box::pin(async move {
            let mut asking = Unfinished { session: &session, counter: id.counter, on_drop: Some(State::left_alone) };
            let heard = session.ask(&name, &mut first).await;
            asking.disarm();
            session.with(|state| state.heard_acquire(&name, id, &first.asked, heard));
        })
    }

    /// What a caller asks the store itself. In a child that has not been told of its fork, too, nothing goes out by the
    /// parent's connection.
    fn send(&self, name: &Name, op: &Op, asked: &Asked, guess: Contention) -> Pending<Heard> {
        match self.check_surely_usable() {
            Ok(()) => asked.link.apply(name, op, guess),
            Err(forked) => Box::pin(ready(Err(Fault::Refused(forked)))),
        }
    }

    /// Gives a lease back in the background: what dropping a guard does, with a runtime or without.
    pub(crate) fn drop_hold(&self, hold: &Hold) {
        if !self.is_ours() || is_on(Mutant::P16RenewsDropped) {
            return; // The lease is the parent's.
        }
        let panicking = if panicking() { Panicking::Yes } else { Panicking::No };
        self.with(|state| state.dropped(hold, panicking));
    }
}

/// Somebody in a line, whose future may be dropped.
struct Standing<'a> {
    session: &'a Session,
    /// `None` once it was told.
    waiter: Option<WaiterId>,
    /// The attempt whose first request this one sends, and has not heard of; 0: none.
    sends: u64,
    verdict: oneshot::Receiver<Verdict>,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let Self { session, waiter, sends, verdict } = self;
        if (waiter.is_none() && *sends == 0) || !session.is_ours() {
            return;
        }
        let left = session.with(|state| {
            let left = waiter.and_then(|waiter| state.leave_line(waiter));
            if *sends != 0 {
                state.left_alone(*sends);
            }
            left
        });
        if waiter.is_none() {
            return;
        }
        // Granted in this very moment, and not taken: it goes the way of a dropped guard. (Or the word is only about to be
        // said: then whoever says it finds nobody.)
        verdict.close();
        let was_told = left.is_none() && !is_on(Mutant::P21GrantStays);
        if let (true, Ok(Verdict::Granted(hold))) = (was_told, verdict.try_recv()) {
            hit(Mark::PassUntaken);
            session.drop_hold(&hold);
        }
    }
}

/// A future of the caller's that may be dropped: the session goes on with what it began.
struct Unfinished<'a> {
    session: &'a Session,
    counter: u64,
    /// `None` once it is finished.
    on_drop: Option<fn(&mut State, u64)>,
}

impl Unfinished<'_> {
    fn disarm(&mut self) {
        self.on_drop = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(on_drop) = self.on_drop.filter(|_| self.session.is_ours()) {
            self.session.with(|state| on_drop(state, self.counter));
        }
    }
}
