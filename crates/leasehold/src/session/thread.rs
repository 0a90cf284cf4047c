//! The session's thread: it connects, proves the inbox, sends what is due, and does it all again when the link is gone.
//!
//! Nothing here decides: [`State::errands`] says what to send, and the answers go back into the state.

use std::future::{Future, poll_fn, ready};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Op, SessionId};
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::attempt::{Asked, Shortened};
use super::bounds::{ANSWER_MAX_US, OPEN_WITHIN_US, REOPEN_MAX_US};
use super::errand::Errand;
use super::heard::Heard;
use super::lane::LOOK_US;
use super::state::{Stage, State, Wake};
use super::window::Kind;
use super::{Session, Start, silent, unanswered};
use crate::clock::Sample;
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Inbox, Link, Message};
use crate::world::{Pending, World};

type Ready = oneshot::Sender<Result<(), Error>>;

/// The longest sleep: deadlines are on a clock that runs while the machine sleeps, and timers are not.
pub(crate) const TICK_US: u64 = 250_000;
/// The shortest: timers know no shorter one.
const PAUSE_US: u64 = 1_000;
/// An idle link is asked for the time this often, so that a push can be placed, and a dead link is found out.
const IDLE_US: u64 = 20_000_000;
/// How often deadlines are looked at while there is no link.
const OFFLINE_TICK_US: u64 = 50_000;
/// The longest that a ping waits behind other answers: with as much before them requests are refused as late, and what is
/// left on such a link is worth nothing.
const PROOF_MAX_US: u64 = ANSWER_MAX_US;
/// The first pause between two tries to connect.
const BACKOFF_MIN_US: u64 = 20_000;

/// Runs the session until it is closed and everything is given back, or cannot be any more.
pub(crate) async fn run(session: Arc<Session>, id: SessionId, start: Start, ready: Ready) {
    let _last_words = LastWords(Arc::clone(&session));
    let mut ready = Some(ready);
    let mut backoff_us = BACKOFF_MIN_US;
    while !is_over(&session) {
        let opening = race(&*session.world, OPEN_WITHIN_US, open(&session, id));
        let is_first = ready.is_some();
        let unanswered = || {
            let known = session.store.silence();
            Err(known.unwrap_or_else(if is_first { unanswered } else { silent }))
        };
        match meanwhile(&session, opening).await.unwrap_or_else(unanswered) {
            Ok(link) => {
                backoff_us = BACKOFF_MIN_US;
                session.with(|state| state.attached(Arc::clone(&link), state.world.now_us()));
                if let Some(ready) = ready.take() {
                    drop(ready.send(Ok(())));
                }
                serve(&session, &link).await;
                if is_over(&session) {
                    link.idle().await;
                }
                session.with(|state| state.home = None);
                link.close();
            }
            Err(error) => {
                let first = ready.take();
                if first.is_some() && (start == Start::Connected || !is_away(&error)) {
                    first.map(|ready| ready.send(Err(error)));
                    break;
                }
                session.with(|state| state.trouble = Some(for_now(error)));
                // The caller of a lazy connect goes on now, and may ask for that trouble.
                first.map(|ready| ready.send(Ok(())));
                let pause = session.world.sleep(Duration::from_micros(backoff_us));
                meanwhile(&session, pause).await;
                backoff_us = (backoff_us * 2).min(REOPEN_MAX_US);
            }
        }
    }
}

/// Whether the store may be there later. Another URL, password or version is not a matter of time.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}

/// However the thread ends, nobody waits for it afterwards.
struct LastWords(Arc<Session>);

impl Drop for LastWords {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// P11: connect and be greeted (role, run), ask the time, attach the inbox and prove it.
async fn open(session: &Arc<Session>, id: SessionId) -> Result<Arc<dyn Link>, Error> {
    let link = session.store.open().await?;
    session.with(|state| state.meet(link.run_id()));
    // Both at once, in this order. A push that arrives before the answer to the first cannot be placed in time: it is
    // claimed then, before it is entered.
    let attaching = link.attach(id, inbox(session));
    tokio::try_join!(biased; ask_time(session, &link), attaching).map_err(fault)?;
    Ok(link)
}

fn inbox(session: &Arc<Session>) -> Inbox {
    let session = Arc::downgrade(session);
    Arc::new(move |message| {
        let Some(session) = Weak::upgrade(&session) else { return };
        session.with(|state| match message {
            Message::Delivery(name, delivery) => state.pushed(name, &delivery),
            Message::Shortened { id, token, until_us, since_us } => {
                state.shortened(id, Shortened { token, until_us, since_us });
            }
            Message::Look(name) => state.look_behind(&name, state.world.now_us(), 0),
            Message::Ending { name, at_us } => {
                let now_us = state.world.now_us();
                state.look_behind(&name, now_us, at_us.saturating_sub(now_us));
            }
            Message::LookAtAll => state.look_at_everything(state.world.now_us()),
            Message::Detached => state.wake = Wake::Now,
        });
    })
}

/// Sends what is due until the link is gone or the session is over.
async fn serve(session: &Arc<Session>, link: &Arc<dyn Link>) {
    let mut asked_time_us = session.world.now_us();
    let mut look_at_lane_us = asked_time_us + LOOK_US;
    while !link.is_closed() && !is_over(session) {
        let now_us = session.world.now_us();
        let (errands, doubted) = session.with(|state| (state.errands(now_us), std::mem::take(&mut state.doubted)));
        errands.into_iter().for_each(|errand| send(session, link, errand));
        doubted.into_iter().for_each(|doubted| prove(session, doubted));
        if look_at_lane_us <= now_us {
            look_at_lane_us = now_us + session.with(State::look_at_lane);
        }
        if now_us.saturating_sub(asked_time_us) > IDLE_US {
            asked_time_us = now_us;
            prove(session, Arc::clone(link));
        }
        rest(session, look_at_lane_us.saturating_sub(now_us).clamp(PAUSE_US, TICK_US)).await;
    }
}

/// Waits for a link, or to try again. There is little to send meanwhile, but deadlines pass all the same.
async fn meanwhile<T>(session: &Arc<Session>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        let mut tick = pin!(rest(session, OFFLINE_TICK_US));
        let done = poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => tick.as_mut().poll(context).map(|()| None),
        });
        if let Some(output) = done.await {
            return output;
        }
        let now_us = session.world.now_us();
        // A leave behind an acquire on the callers' link: that one may still be up.
        session.with(|state| state.errands(now_us)).into_iter().for_each(|errand| send_return(session, errand));
    }
}

fn send(session: &Arc<Session>, link: &Arc<dyn Link>, errand: Errand) {
    match errand {
        Errand::Return { .. } => send_return(session, errand),
        Errand::Look { id, name, op, asked } => {
            let request = begun(ask(session, &name, &op, &asked));
            session.with(|state| state.has_looked(id.counter));
            spawn(session, |session| async move {
                let heard = request.await;
                session.with(|state| {
                    state.ended(Kind::Look, 1);
                    state.heard_acquire(&name, id, &asked, heard);
                });
            });
        }
        Errand::Renew(batch) => {
            let request = begun(link.renew(&batch.wanted));
            spawn(session, |session| async move {
                let heard = request.await;
                session.with(|state| state.heard_batch(&batch, heard));
            });
        }
        Errand::Reserve(one) => {
            let request = begun(ask(session, &one.name, &one.op, &one.asked));
            spawn(session, |session| async move {
                let heard = request.await;
                session.with(|state| state.heard_reserve(&one, heard));
            });
        }
        Errand::Settle { name, asked } => {
            let request = begun(ask(session, &name, &Op::Settle, &asked));
            spawn(session, |session| async move {
                let heard = request.await;
                session.with(|state| {
                    state.ended(Kind::Settle, 1);
                    state.heard_settle(&name, &asked, heard);
                });
            });
        }
    }
}

/// Makes a request about one name.
fn ask(session: &Arc<Session>, name: &Name, op: &Op, asked: &Asked) -> Pending<Heard> {
    asked.link.apply(name, op, session.with(|state| state.guess(name)))
}

fn send_return(session: &Arc<Session>, errand: Errand) {
    let Errand::Return { counter, name, op, asked } = errand else { return };
    let request = begun(ask(session, &name, &op, &asked));
    // Who asks for that name waits for it to have left (`passes.rs`).
    session.with(|state| state.has_left(counter, &asked));
    spawn(session, |session| async move {
        let heard = request.await;
        session.with(|state| {
            state.ended(Kind::Return, 1);
            state.heard_return(counter, &asked, heard);
        });
    });
}

/// Polls a request once: what is sent on its link from now on comes behind it, in whatever order tasks are run. Outside of
/// the runtime's budget: behind some hundred others of one turn it would be put off, and not sent.
fn begun<T: Send + 'static>(mut request: Pending<T>) -> Pending<T> {
    let first = pin!(unconstrained(request.as_mut())).poll(&mut Context::from_waker(Waker::noop()));
    match first {
        Poll::Ready(heard) => Box::pin(ready(heard)),
        Poll::Pending => request,
    }
}

/// A link that left a request unanswered answers a ping in time, or is replaced: a stalled connection stays open for
/// ever otherwise, and everything on it waits.
///
/// One on which other answers go on coming is not stalled: the ping waits behind them, at a server, or in a process, that
/// is behind. On another link all of it would be asked for once more, of a server that is not done with the first.
fn prove(session: &Arc<Session>, link: Arc<dyn Link>) {
    if !session.with(|state| state.begin_proof(&link)) {
        return;
    }
    spawn(session, |session| async move {
        let begun_us = session.world.now_us();
        let mut proof = pin!(ask_time(&session, &link));
        let is_proved = loop {
            let (within_us, before) = session.with(|state| (state.usual_us(), state.answers_meanwhile(&link)));
            match race(&*session.world, within_us, proof.as_mut()).await {
                Some(proved) => break proved.is_ok(),
                None if session.world.now_us().saturating_sub(begun_us) > PROOF_MAX_US => break false,
                None if session.with(|state| state.answers_meanwhile(&link)) == before => break false,
                None => {}
            }
        };
        if !is_proved {
            // One that was closed meanwhile, by its own end, is replaced by nobody.
            if !link.is_closed() {
                hit(Mark::LinkReplaced);
            }
            link.close();
        }
        session.with(|state| {
            state.end_proof(&link);
            if !is_proved {
                state.wake = Wake::Now;
            }
        });
    });
}

async fn ask_time(session: &Arc<Session>, link: &Arc<dyn Link>) -> Result<(), Fault> {
    let sent_us = session.world.now_us();
    let server_us = link.ping().await?;
    let heard_us = session.world.now_us();
    session.with(|state| {
        if state.run == link.run_id() {
            state.contact.replied(heard_us);
            state.sample(Sample { sent_us, heard_us, server_us });
        }
    });
    Ok(())
}

fn spawn<T: Future<Output = ()> + Send + 'static>(session: &Arc<Session>, task: impl FnOnce(Arc<Session>) -> T) {
    let task: Pending<()> = Box::pin(task(Arc::clone(session)));
    // The thread has a runtime of its own: this cannot fail there.
    drop(session.world.spawn(task));
}

/// Sleeps until something is due, or somebody says so; at most `at_most_us`.
///
/// Not at all where something fell due during the turn: the thread is not woken for that, and a guard that was dropped
/// meanwhile would go back by the shortest sleep too late. What could not be sent is never due at once (`arm_after`).
async fn rest(session: &Arc<Session>, at_most_us: u64) {
    let now_us = session.world.now_us();
    let for_us = session.with(|state| {
        let for_us = match state.next_due_us().saturating_sub(now_us) {
            0 => 0,
            later_us => later_us.clamp(PAUSE_US, at_most_us),
        };
        state.contact.sleeps(now_us + for_us);
        if !is_on(Mutant::P17LostWake) {
            state.planned_us = now_us + for_us;
        }
        for_us
    });
    if is_on(Mutant::P17LostWake) {
        session.with(|state| state.planned_us = now_us + for_us);
    }
    if for_us == 0 {
        step_aside().await;
    } else {
        let mut woken = pin!(session.wake.notified());
        let mut slept = session.world.sleep(Duration::from_micros(for_us));
        poll_fn(|context| match woken.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => slept.as_mut().poll(context),
        })
        .await;
    }
    // While it works, the thread sees every change at the end of its turn.
    session.with(|state| {
        state.contact.woke(state.world.now_us());
        state.planned_us = 0;
        state.fire_timers();
    });
}

/// Lets what was spawned run, once.
async fn step_aside() {
    let mut is_aside = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_aside, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn is_over(session: &Arc<Session>) -> bool {
    session.with(|state| state.stage != Stage::Open && state.is_drained())
}

async fn race<T>(world: &dyn World, within_us: u64, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut slept = world.sleep(Duration::from_micros(within_us));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => slept.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Why a store that was connected before cannot be reached now. A primary that is a replica today is a failover under way:
/// worth another try, whatever it is to somebody who connects for the first time.
pub(crate) fn for_now(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Denied | ErrorKind::Quorum | ErrorKind::Unreachable => error,
        _ => Error::new(ErrorKind::Unreachable, error.to_string()),
    }
}

fn fault(fault: Fault) -> Error {
    match fault {
        Fault::Gone(error) | Fault::Damaged(error) | Fault::Undecided(error) => error,
        Fault::Refused(error) | Fault::NoMemory(error) => match error.kind() {
            ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Foreign | ErrorKind::Quorum => error,
            _ => Error::new(ErrorKind::Unreachable, error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is told that nodes rest, and for how long, is not to look for a broken network.
    #[test]
    fn what_a_quorum_says_of_its_nodes_stays_what_it_is() {
        let quorum = || Error::new(ErrorKind::Quorum, "2 of 5 nodes vote");
        assert!(quorum().is_retryable());
        let faults: [fn(Error) -> Fault; 4] = [Fault::Gone, Fault::Damaged, Fault::Refused, Fault::NoMemory];
        let told = faults.map(|of| fault(of(quorum())));
        for error in told.into_iter().chain([for_now(quorum())]) {
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Quorum, "2 of 5 nodes vote".to_owned()));
        }
    }
}
