//! The session's thread. It connects, proves the inbox, sends what is due, and begins again when the connection is gone.
//!
//! The thread decides nothing: the machine says what to send, and the replies go back into the machine.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Op, SessionId};
use tokio::sync::oneshot;

use super::inbox;
use super::task::{begun, first_of, race, spawn};
use crate::clock::Sample;
use crate::error::{Error, ErrorKind};
use crate::observe::{self, Event};
use crate::session::agenda::window::Kind;
use crate::session::bounds::{ANSWER_MAX_US, OPEN_WITHIN_US, REOPEN_MAX_US};
use crate::session::machine::due::{self, DueRequest};
use crate::session::machine::{
    InFlight, Reply, acquire, beside, close, contact, inbox_moves, recheck, release, renew, silent,
};
use crate::session::shared::Shared;
use crate::store::{Fault, Link};
use crate::world::Pending;

type Ready = oneshot::Sender<Result<(), Error>>;

/// The longest sleep: deadlines are on a clock that runs while the machine sleeps, and timers are not.
const TICK_US: u64 = 250_000;
/// The shortest sleep of a timer.
const PAUSE_US: u64 = 1_000;
/// An idle connection is asked for the time this often, so that the moment of a message is known, and a dead connection is
/// detected.
const IDLE_US: u64 = 20_000_000;
/// How often deadlines are checked while there is no connection.
const OFFLINE_TICK_US: u64 = 50_000;
/// The longest time that a ping waits behind other replies. After as much, requests are refused as late, so a connection
/// that is so slow is worth nothing.
const PROOF_MAX_US: u64 = ANSWER_MAX_US;
/// The first pause between two tries to connect.
const BACKOFF_MIN_US: u64 = 20_000;

/// The consequence if the first try to connect fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// There is no session: the caller of `connect` decides whether to try again.
    Connected,
    /// If the store is away, the session goes on and tries again, as after a connection that broke.
    Lazy,
}

/// Runs the session until it is closed and everything is returned, or cannot be any more.
pub(crate) async fn run(shared: Arc<Shared>, id: SessionId, start: Start, ready: Ready) {
    let _end = EndOfThread(Arc::clone(&shared));
    let mut ready = Some(ready);
    let (mut backoff_us, mut is_lost) = (BACKOFF_MIN_US, false);
    while !is_over(&shared) {
        let opening = race(&*shared.world, OPEN_WITHIN_US, open(&shared, id));
        let is_first = ready.is_some();
        let unanswered = || {
            let known = shared.store.silence();
            Err(known.unwrap_or_else(if is_first { no_reply } else { silent }))
        };
        match meanwhile(&shared, opening).await.unwrap_or_else(unanswered) {
            Ok(link) => {
                backoff_us = BACKOFF_MIN_US;
                shared.with(|turn| contact::attached(turn, Arc::clone(&link)));
                if std::mem::take(&mut is_lost) {
                    observe::emit(Event::StoreBack);
                }
                if let Some(ready) = ready.take() {
                    drop(ready.send(Ok(())));
                }
                serve(&shared, id, &link).await;
                if is_over(&shared) {
                    link.idle().await;
                }
                shared.with(contact::detached);
                link.close();
                is_lost = !is_over(&shared);
                if is_lost {
                    observe::emit(Event::StoreLost);
                }
            }
            Err(error) => {
                let first = ready.take();
                if first.is_some() && (start == Start::Connected || !is_away(&error)) {
                    first.map(|ready| ready.send(Err(error)));
                    break;
                }
                shared.with(|turn| contact::unreachable(turn, error));
                // The caller of a lazy connect goes on now, and may ask for that trouble.
                first.map(|ready| ready.send(Ok(())));
                let pause = shared.world.sleep(Duration::from_micros(backoff_us));
                meanwhile(&shared, pause).await;
                backoff_us = (backoff_us * 2).min(REOPEN_MAX_US);
            }
        }
    }
}

/// Returns whether the store may be there later. Another URL, password or version is not a matter of time.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}

/// However the thread ends, nobody waits for it afterwards.
struct EndOfThread(Arc<Shared>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// P11: connects with a handshake (role, run ID), asks for the time, attaches the inbox and proves it.
async fn open(shared: &Arc<Shared>, id: SessionId) -> Result<Arc<dyn Link>, Error> {
    let link = shared.store.open().await?;
    shared.with(|turn| contact::meet(turn, link.run_id()));
    // Both at once, in this order. The moment of a message that comes before the reply to the first is not known: its grant
    // is claimed before it is entered.
    let attaching = inbox::attach(shared, id, &link);
    tokio::try_join!(biased; ask_time(shared, &link), attaching).map_err(to_error)?;
    Ok(link)
}

/// Sends what is due until the connection is gone or the session is over.
async fn serve(shared: &Arc<Shared>, id: SessionId, link: &Arc<dyn Link>) {
    let mut asked_time_us = shared.world.now_us();
    while !link.is_closed() && !is_over(shared) {
        let (requests, doubted, now_us) =
            shared.with(|turn| (due::due_requests(turn), turn.server.links.take_doubted(), turn.now.us()));
        requests.into_iter().for_each(|request| send(shared, link, request));
        doubted.into_iter().for_each(|doubted| prove(shared, doubted));
        let (check_lane_us, due_move) =
            shared.with(|turn| (contact::check_lane(turn), inbox_moves::begin_due_move(turn)));
        due_move.into_iter().for_each(|due| inbox::begin(shared, id, link, due));
        if now_us.saturating_sub(asked_time_us) > IDLE_US {
            asked_time_us = now_us;
            prove(shared, Arc::clone(link));
        }
        sleep(shared, check_lane_us.saturating_sub(now_us).clamp(PAUSE_US, TICK_US)).await;
    }
}

/// Waits for a connection, or for the next try. Little can be sent meanwhile, but deadlines pass all the same.
async fn meanwhile<T>(shared: &Arc<Shared>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Some(output) = first_of(work.as_mut(), sleep(shared, OFFLINE_TICK_US)).await {
            return output;
        }
        // A leave behind an acquire on the callers' connection: that one may still be up.
        for request in shared.with(due::due_requests) {
            if let DueRequest::Return { counter, name, op, request } = request {
                send_return(shared, counter, (name, op, request));
            }
        }
    }
}

fn send(shared: &Arc<Shared>, link: &Arc<dyn Link>, request: DueRequest) {
    match request {
        DueRequest::Return { counter, name, op, request } => send_return(shared, counter, (name, op, request)),
        DueRequest::Acquire { id, name, op, request } => {
            let sent = begun(apply(shared, &name, &op, &request));
            shared.with(|turn| turn.ledger.acquire_is_sent(id.counter));
            spawn(shared, |shared| async move {
                let reply = sent.await;
                shared.with(|turn| {
                    turn.ledger.agenda.end_requests(Kind::Recheck, 1);
                    acquire::accept_reply(turn, (&name, id), &request, reply);
                });
            });
        }
        DueRequest::Renew(batch) => {
            let sent = begun(link.renew(&batch.renewals, batch.kind));
            spawn(shared, |shared| async move {
                let replies = sent.await;
                shared.with(|turn| renew::accept_replies(turn, &batch, replies));
            });
        }
        DueRequest::Beside(of) => {
            let sent = begun(apply(shared, &of.name, &of.op, &of.request));
            spawn(shared, |shared| async move {
                let reply = sent.await;
                shared.with(|turn| beside::accept_reply(turn, &of, reply));
            });
        }
        DueRequest::Settle { name, request } => {
            let sent = begun(apply(shared, &name, &Op::Settle, &request));
            spawn(shared, |shared| async move {
                let reply = sent.await;
                shared.with(|turn| recheck::accept_reply(turn, &name, &request, reply));
            });
        }
    }
}

/// Sends a return. A caller that acquires the name waits until it is sent (`machine/precede.rs`).
fn send_return(shared: &Arc<Shared>, counter: u64, (name, op, request): (Name, Op, InFlight)) {
    let sent = begun(apply(shared, &name, &op, &request));
    shared.with(|turn| turn.ledger.return_is_sent(counter, request.serial));
    spawn(shared, |shared| async move {
        let reply = sent.await;
        shared.with(|turn| {
            turn.ledger.agenda.end_requests(Kind::Return, 1);
            release::accept_reply(turn, counter, &request, reply);
        });
    });
}

fn apply(shared: &Shared, name: &Name, op: &Op, request: &InFlight) -> Pending<Reply> {
    request.link.apply(name, op, shared.with(|turn| turn.ledger.names.guess(name)))
}

/// Pings a connection that left a request unanswered. If it does not answer in time, it is replaced: otherwise a stalled
/// connection stays open for ever, and everything on it waits.
///
/// A connection on which other replies go on coming is not stalled: the ping waits behind them, at a server or in a process
/// that is slow. On another connection all of it would be asked for once more, of a server that is not done with the first.
fn prove(shared: &Arc<Shared>, link: Arc<dyn Link>) {
    if !shared.with(|turn| turn.server.links.begin_proof(&link)) {
        return;
    }
    spawn(shared, |shared| async move {
        let begun_us = shared.world.now_us();
        let mut ping = pin!(ask_time(&shared, &link));
        let is_proved = loop {
            let (within_us, before) = shared.with(|turn| turn.server.proof(&link));
            match race(&*shared.world, within_us, ping.as_mut()).await {
                Some(answered) => break answered.is_ok(),
                None if shared.world.now_us().saturating_sub(begun_us) > PROOF_MAX_US => break false,
                None if shared.with(|turn| turn.server.proof(&link)).1 == before => break false,
                None => {}
            }
        };
        if !is_proved {
            // A connection that has ended by itself meanwhile is not replaced by this.
            if !link.is_closed() {
                hit(Mark::LinkReplaced);
            }
            link.close();
        }
        shared.with(|turn| contact::end_proof(turn, &link, is_proved));
    });
}

async fn ask_time(shared: &Arc<Shared>, link: &Arc<dyn Link>) -> Result<(), Fault> {
    let sent_us = shared.world.now_us();
    let server_us = link.ping().await?;
    let heard_us = shared.world.now_us();
    shared.with(|turn| contact::note_ping(turn, &**link, Sample { sent_us, heard_us, server_us }));
    Ok(())
}

/// Sleeps until something is due or the thread is woken, at most `at_most_us`.
///
/// If something fell due during the turn, the thread does not sleep: it was not woken for that, and a guard that was
/// dropped meanwhile would be released too late by the shortest sleep. A request that could not be sent is never due at
/// once (`Ledger::arm_after`).
async fn sleep(shared: &Arc<Shared>, at_most_us: u64) {
    let (for_us, until_us) = shared.with(|turn| {
        let for_us = match due::next_due_us(turn).saturating_sub(turn.now.us()) {
            0 => 0,
            later_us => later_us.clamp(PAUSE_US, at_most_us),
        };
        due::sleep_until(turn, turn.now.us() + for_us);
        (for_us, turn.now.us() + for_us)
    });
    if is_on(Mutant::P17LostWake) {
        shared.with(|turn| turn.ledger.agenda.plan(until_us));
    }
    if for_us == 0 {
        step_aside().await;
    } else {
        first_of(pin!(shared.wake.notified()), shared.world.sleep(Duration::from_micros(for_us))).await;
    }
    shared.with(due::woke);
}

/// Lets spawned tasks run, once.
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

fn is_over(shared: &Arc<Shared>) -> bool {
    shared.with(|turn| close::is_over(turn))
}

/// Returns the error of a client whose store has never replied.
fn no_reply() -> Error {
    Error::new(ErrorKind::Unreachable, "the store does not reply: is it running, and is the network up?")
}

fn to_error(fault: Fault) -> Error {
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
    use crate::session::machine::for_now;

    /// An error about nodes in quarantine must not send its reader to look for a broken network.
    #[test]
    fn an_error_of_a_quorum_about_its_nodes_keeps_its_kind() {
        let quorum = || Error::new(ErrorKind::Quorum, "2 of 5 nodes vote");
        assert!(quorum().is_retryable());
        let faults: [fn(Error) -> Fault; 4] = [Fault::Gone, Fault::Damaged, Fault::Refused, Fault::NoMemory];
        let errors = faults.map(|of| to_error(of(quorum())));
        for error in errors.into_iter().chain([for_now(quorum())]) {
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Quorum, "2 of 5 nodes vote".to_owned()));
        }
    }
}
