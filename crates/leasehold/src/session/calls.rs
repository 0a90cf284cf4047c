//! The futures of callers: acquire and release. A future here may be dropped at every await, and the session goes on with
//! what the future began (P16).

pub(crate) mod together;

use std::future::{Future, poll_fn, ready};
use std::mem::take;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Op};
use tokio::sync::oneshot;

use super::hold::Hold;
use super::local::queue::WaiterId;
use super::machine::acquire::{self, Outgoing};
use super::machine::guards::{self, ReleaseStep, Sending};
use super::machine::release::accept_reply as accept_return;
use super::machine::waiting::{self, Dropped, Joined};
use super::machine::{InFlight, Predecessors, Reply, Verdict};
use super::shared::Shared;
use super::terms::{Terms, Wait};
use super::transport::lane;
use crate::error::{Error, Result};
use crate::lost::Released;
use crate::store::{Fault, Guess};
use crate::world::Pending;

/// Acquires `name`. Returns `None` if somebody else holds it and `wait` is over.
///
/// If the future is dropped, the attempt is given up in whatever phase it is.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    name: &Name,
    terms: &Arc<Terms>,
    wait: Wait,
) -> Result<Option<Arc<Hold>>> {
    loop {
        shared.check_usable()?;
        let channel = oneshot::channel();
        let verdict = match terms.may_share() {
            true => join(shared, name, terms, wait, channel).await?,
            false => Box::pin(ask_alone(shared, name, terms, wait, channel)).await?,
        };
        match verdict {
            // An arrival needs no lease: its round was let through.
            Verdict::Granted(hold) if terms.is_arrival() || hold.check().is_ok() => {
                if terms.min_hold_us > 0 {
                    hold.begin_min_hold();
                }
                return Ok(Some(hold));
            }
            // Granted, and lost before the caller was polled: no caller gets a guard that is lost already.
            Verdict::Granted(hold) => shared.drop_hold(&hold),
            Verdict::Busy => return Ok(None),
            // P52: a second attempt would arrive at the next round.
            Verdict::Again if terms.is_arrival() && !is_on(Mutant::P52ArrivesAgain) => return Err(Error::broken()),
            // Only an attempt that waits for a notification receives its place.
            Verdict::Again | Verdict::Queued { .. } => {}
            Verdict::Failed(error) => return Err(error),
        }
    }
}

/// The place of a caller in the queue of a condition variable.
pub(crate) enum Entered<'a> {
    /// The caller was notified before it knew its place.
    Notified(Arc<Hold>),
    /// The caller is in the queue.
    Waits(QueuePlace<'a>),
}

/// A caller that waits for a notification. Dropping it leaves the queue, and passes a notification on.
pub(crate) struct QueuePlace<'a>(Waiting<'a>);

/// How a wait for a notification ends.
pub(crate) enum Notice {
    Notified(Arc<Hold>),
    /// The caller may have missed a notification (P43).
    Unsure,
    /// The time of the caller is over.
    TimedOut,
}

/// Enters the queue of a condition variable, and returns once the store has said so (P41). `None`: the time is over.
///
/// If the future is dropped, the attempt is given up.
pub(crate) async fn enter_queue<'a>(
    shared: &'a Arc<Shared>,
    name: &Name,
    terms: &Arc<Terms>,
    wait: Wait,
) -> Result<Option<Entered<'a>>> {
    loop {
        shared.check_usable()?;
        match Box::pin(ask_alone(shared, name, terms, wait, oneshot::channel())).await? {
            Verdict::Granted(hold) => return Ok(Some(Entered::Notified(hold))),
            Verdict::Queued { counter, verdict } => {
                let sends = Some((counter, Dropped::Attempt));
                return Ok(Some(Entered::Waits(QueuePlace(Waiting { shared, waiter: None, sends, verdict }))));
            }
            Verdict::Busy => return Ok(None),
            Verdict::Again => {}
            Verdict::Failed(error) => return Err(error),
        }
    }
}

impl QueuePlace<'_> {
    /// Waits for the notification. If the future is dropped, the caller still stands in the queue.
    pub(crate) async fn notice(&mut self) -> Result<Notice> {
        let verdict = (&mut self.0.verdict).await;
        self.0.sends = None;
        match verdict.map_err(|_| Error::closed())? {
            Verdict::Granted(hold) => Ok(Notice::Notified(hold)),
            Verdict::Again | Verdict::Queued { .. } => Ok(Notice::Unsure),
            Verdict::Busy => Ok(Notice::TimedOut),
            Verdict::Failed(error) => Err(error),
        }
    }
}

type Channel = (oneshot::Sender<Verdict>, oneshot::Receiver<Verdict>);

/// Waits in the local queue of this name, if these terms have a queue.
async fn join(
    shared: &Arc<Shared>,
    name: &Name,
    terms: &Arc<Terms>,
    wait: Wait,
    (caller, verdict): Channel,
) -> Result<Verdict> {
    match shared.with(|turn| waiting::join(turn, (name, terms), (wait, caller))) {
        Joined::Done(verdict) => Ok(verdict),
        // Boxed, like every future that asks the store: a thousand waiters touch a thousand futures in turn, and smaller
        // futures leave more of them in the cache.
        Joined::Apart(caller) => Box::pin(ask_alone(shared, name, terms, wait, (caller, verdict))).await,
        Joined::Waits { waiter, first: None, upkeep } => {
            let mut waiting = Waiting { shared, waiter: Some(waiter), sends: None, verdict };
            lane::keep_up(shared, upkeep, None);
            let verdict = (&mut waiting.verdict).await;
            waiting.waiter = None;
            verdict.map_err(|_| Error::closed())
        }
        Joined::Waits { waiter, first: Some(first), upkeep } => {
            let sends = Some((first.id.counter, Dropped::Acquire));
            let waiting = Waiting { shared, waiter: Some(waiter), sends, verdict };
            lane::keep_up(shared, upkeep, None);
            Box::pin(ask(name, first, waiter.number, waiting)).await
        }
    }
}

/// Asks the store for one caller.
async fn ask_alone(
    shared: &Arc<Shared>,
    name: &Name,
    terms: &Arc<Terms>,
    wait: Wait,
    (caller, verdict): Channel,
) -> Result<Verdict> {
    let (counter, first, upkeep) =
        shared.with(|turn| acquire::begin_for_caller(turn, (name, terms), (wait, caller)))?;
    let mut waiting = Waiting { shared, waiter: None, sends: Some((counter, Dropped::Attempt)), verdict };
    lane::keep_up(shared, upkeep, None);
    match first {
        Some(first) => ask(name, first, counter, waiting).await,
        None => {
            let verdict = (&mut waiting.verdict).await;
            waiting.sends = None;
            verdict.map_err(|_| Error::closed())
        }
    }
}

/// Sends an acquire, and waits for the result of the caller with this number. The reply and the message that brings the
/// grant arrive on different connections. If the message is first, nobody waits for the reply.
async fn ask(name: &Name, mut first: Box<Outgoing>, number: u64, mut waiting: Waiting<'_>) -> Result<Verdict> {
    let shared = waiting.shared;
    let request = async {
        let reply = send_in_order(shared, name, &mut first).await;
        let of = (name, first.id);
        shared.with(|turn| {
            acquire::accept_reply(turn, of, &first.request, reply);
            turn.ledger.effects.take_verdict(number)
        })
    };
    let (mut request, mut is_answered) = (pin!(request), false);
    let verdict = loop {
        tokio::select! {
            biased;
            result = &mut request, if !is_answered => {
                is_answered = true;
                if let Some(result) = result {
                    break Ok(result.take_directly(&mut waiting.verdict));
                }
                // An attempt of one caller goes on until its result. An attempt of a queue belongs to the queue.
                if waiting.waiter.is_some() {
                    waiting.sends = None;
                }
            }
            verdict = &mut waiting.verdict => break verdict,
        }
    };
    // The caller has its result. A request without a reply is left to the thread, and is not given up.
    waiting.sends = waiting.sends.filter(|_| !is_answered).map(|(counter, _)| (counter, Dropped::Acquire));
    waiting.waiter = None;
    verdict.map_err(|_| Error::closed())
}

/// Sends an acquire behind what is in its way. All are sent before any is answered: one round trip.
async fn send_in_order(shared: &Arc<Shared>, name: &Name, first: &mut Outgoing) -> Reply {
    let mut acquire = send(shared, name, &first.op, &first.request, first.guess);
    let Predecessors { to_send, sent_by_thread } = take(&mut first.before);
    // If this future is dropped, the thread repeats a release without a reply.
    let mut releases: Vec<_> = to_send
        .into_iter()
        .map(|(counter, op, request)| {
            let unfinished = Unfinished { shared, of: Some((counter, Dropped::Release)) };
            (send(shared, name, &op, &request, first.guess), request, unfinished)
        })
        .collect();
    let mut poll_releases = |context: &mut Context<'_>| {
        releases.retain_mut(|(release, request, unfinished)| {
            let Poll::Ready(reply) = release.as_mut().poll(context) else { return true };
            if let Some((counter, _)) = unfinished.of.take() {
                shared.with(|turn| accept_return(turn, counter, request, reply));
            }
            false
        });
    };
    for is_sent in sent_by_thread {
        let _sent_or_over = is_sent.await;
    }
    poll_fn(|context| {
        poll_releases(context);
        acquire.as_mut().poll(context)
    })
    .await
}

/// Sends a request of the caller. A forked child sends nothing on its parent's connection.
fn send(shared: &Shared, name: &Name, op: &Op, request: &InFlight, guess: Guess) -> Pending<Reply> {
    match shared.check_surely_usable() {
        Ok(()) => request.link.apply(name, op, guess),
        Err(forked) => Box::pin(ready(Err(Fault::Refused(forked)))),
    }
}

/// Releases a lease. If it goes to the next caller in this client, this returns at once. Otherwise it goes to the store,
/// and this waits for the reply. If the future is dropped, the session repeats the release.
pub(crate) async fn release(shared: &Arc<Shared>, hold: &Arc<Hold>) -> Result<Released> {
    shared.check_usable()?;
    let (sending, upkeep) = match shared.with(|turn| guards::release(turn, hold)) {
        ReleaseStep::HandedOn => return Ok(Released::Released),
        ReleaseStep::NotHeld => return Ok(Released::NotHeld),
        ReleaseStep::Send { sending, upkeep } => (sending, upkeep),
    };
    let releasing = Unfinished { shared, of: Some((hold.id.counter, Dropped::Release)) };
    lane::keep_up(shared, upkeep, None);
    Box::pin(release_to_store(shared, hold, sending, releasing)).await
}

async fn release_to_store(
    shared: &Arc<Shared>,
    hold: &Hold,
    sending: Box<Sending>,
    mut releasing: Unfinished<'_>,
) -> Result<Released> {
    let Sending { answer, release, guess, was_valid, next } = *sending;
    let counter = hold.id.counter;
    // The callers that still wait here ask again right behind the release: one round trip for both.
    let mut next = next.map(|next| ask_for_queue(shared, &hold.name, next));
    let release = async {
        let (op, request) = release?;
        let reply = send(shared, &hold.name, &op, &request, guess).await;
        shared.with(|turn| {
            accept_return(turn, counter, &request, reply);
            turn.ledger.effects.take_released(counter)
        })
    };
    let (mut release, mut answer) = (pin!(release), answer);
    let (mut is_released, mut result) = (false, None);
    let released = poll_fn(|context| {
        if !is_released && let Poll::Ready(reply) = release.as_mut().poll(context) {
            (is_released, result) = (true, reply);
        }
        // Polled even if the release is answered at once: a request that was never polled is not sent, and if it is dropped
        // like that, nobody repeats it.
        next.take_if(|next| next.as_mut().poll(context).is_ready());
        if let Some(result) = result.take() {
            return Poll::Ready(Ok(result.take_directly(&mut answer)));
        }
        // The session's thread may have the result first: it repeats a release without a reply, and the driver of the first
        // connection may be blocked.
        match is_released || !is_on(Mutant::P17AwaitsOwnRequest) {
            true => Pin::new(&mut answer).poll(context),
            false => Poll::Pending,
        }
    })
    .await;
    // The reply to the next acquire is not for this caller. The runtime waits for it; without one, the session's thread
    // asks again.
    if let Some(next) = next {
        drop(shared.world.spawn(next));
    }
    let released = released.map_err(|_| Error::closed())?;
    releasing.of = None;
    // The work outlived the lease, even if nobody else has held the lock since.
    released.map(|released| if was_valid { released } else { Released::NotHeld })
}

/// Sends the acquire of a local queue. The caller does not wait for the reply. If this future is dropped before the reply,
/// the session repeats the request.
fn ask_for_queue(shared: &Arc<Shared>, name: &Name, mut next: Box<Outgoing>) -> Pending<()> {
    let (shared, name) = (Arc::clone(shared), name.clone());
    Box::pin(async move {
        let counter = next.id.counter;
        let mut asking = Unfinished { shared: &shared, of: Some((counter, Dropped::Acquire)) };
        let reply = send_in_order(&shared, &name, &mut next).await;
        asking.of = None;
        let of = (&name, next.id);
        shared.with(|turn| acquire::accept_reply(turn, of, &next.request, reply));
    })
}

/// A caller that waits, and whose future may be dropped.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    /// Its place in a local queue; `None` if it has none, or has its result.
    waiter: Option<WaiterId>,
    /// The attempt whose first request it sends, and that has no reply yet.
    sends: Option<(u64, Dropped)>,
    verdict: oneshot::Receiver<Verdict>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self { shared, waiter, sends, verdict } = self;
        if (waiter.is_none() && sends.is_none()) || !shared.is_ours() {
            return;
        }
        if waiter.is_none() {
            // The session drops the other end under its lock, perhaps before this end is dropped, and a waker must not be
            // called there: it may drop a guard of this client.
            verdict.close();
        }
        let left = shared.with(|turn| {
            let left = waiter.and_then(|waiter| waiting::leave(turn, waiter));
            if let Some((counter, dropped)) = *sends {
                waiting::drop_request(turn, counter, dropped);
            }
            left
        });
        if waiter.is_none() {
            return;
        }
        // If the lease was granted at this very moment and not taken, it is released like that of a dropped guard. (If the
        // result is just about to be sent, its sender finds nobody.)
        verdict.close();
        let has_result = left.is_none() && !is_on(Mutant::P21GrantStays);
        if let (true, Ok(Verdict::Granted(hold))) = (has_result, verdict.try_recv()) {
            hit(Mark::PassUntaken);
            shared.drop_hold(&hold);
        }
    }
}

/// A request whose future may be dropped. The session then continues the request.
struct Unfinished<'a> {
    shared: &'a Shared,
    /// `None` once it has its reply.
    of: Option<(u64, Dropped)>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some((counter, dropped)) = self.of.filter(|_| self.shared.is_ours()) {
            self.shared.with(|turn| waiting::drop_request(turn, counter, dropped));
        }
    }
}
