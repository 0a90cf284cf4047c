//! The contact with the store: messages, connections that come and go, and requests outside any attempt.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Name};

use super::attempt::Shortened;
use super::connections::for_now;
use super::lane::Upkeep;
use super::ledger::Stage;
use super::turn::Turn;
use super::{close, condition, grant, inbox_moves, lower, release, replies};
use crate::clock::Sample;
use crate::error::{Error, Result};
use crate::store::{Link, Message, Progress};
use crate::world::RuntimeId;

/// Accepts a message that came from this run of the store. A lane may lead to an old primary that lives on, cut off.
pub(crate) fn accept_message(turn: &mut Turn<'_>, run_id: &str, message: Message) {
    match message {
        Message::Detached => turn.ledger.agenda.wake(),
        _ if !turn.server.links.is_this_run(run_id) => hit(Mark::AnswerOfAnotherRun),
        Message::Delivery(name, delivery) => grant::accept_message(turn, &name, &delivery),
        Message::Shortened { id, token, until_us, since_us } => {
            grant::shorten(turn, id, Shortened { token, until_us, since_us });
        }
        Message::Recheck(name) => turn.ledger.recheck_in(&name, turn.now.us(), 0),
        Message::Ending { name, at_us } => {
            turn.ledger.recheck_in(&name, turn.now.us(), at_us.saturating_sub(turn.now.us()));
        }
        Message::RecheckAll => turn.wake_all(),
    }
}

/// Notes that a new connection leads to this run of the store.
pub(crate) fn meet(turn: &mut Turn<'_>, run_id: &str) {
    turn.server.meet(turn.ledger, run_id);
}

/// Notes that the inbox is proved on a new connection. Every attempt asks again (P11, P13).
pub(crate) fn attached(turn: &mut Turn<'_>, link: Arc<dyn Link>) {
    if turn.server.links.take_new_run() {
        release::repeat_releases(turn);
        lower::repeat(turn);
        condition::meet_new_run(turn);
    }
    turn.server.links.set_home(Some(link));
    turn.server.links.note_check(Progress::Moving, turn.now.us()); // The thread checks the lane from now on.
    inbox_moves::reconnected(turn);
    if !is_on(Mutant::P15NoResync) {
        turn.wake_all();
    }
}

/// Notes that the session's own connection is gone.
pub(crate) fn detached(turn: &mut Turn<'_>) {
    turn.server.links.set_home(None);
}

/// Notes why the store cannot be reached.
pub(crate) fn unreachable(turn: &mut Turn<'_>, error: Error) {
    turn.server.links.trouble = Some(for_now(error));
}

/// Returns the session's own connection, for a request outside any attempt.
pub(crate) fn home(turn: &Turn<'_>) -> Result<Arc<dyn Link>> {
    close::check_open(turn)?;
    turn.server.links.home().cloned().ok_or_else(|| turn.server.links.away())
}

/// Notes the reply to a request outside any attempt.
pub(crate) fn note(turn: &mut Turn<'_>, name: &Name, answer: &Answer, link: &dyn Link, sent_us: u64) {
    if turn.server.links.is_of_this_run(link) {
        replies::note(turn, name, answer, sent_us);
    }
}

/// Notes that a connection left a request unanswered. The thread pings it.
pub(crate) fn doubt(turn: &mut Turn<'_>, link: &Arc<dyn Link>) {
    turn.server.links.doubt(&mut turn.ledger.agenda, link);
}

/// Notes the reply to a ping.
pub(crate) fn note_ping(turn: &mut Turn<'_>, link: &dyn Link, sample: Sample) {
    if turn.server.links.is_of_this_run(link) {
        turn.server.contact.replied(sample.heard_us);
        turn.server.note_sample(turn.ledger, sample);
    }
}

/// Ends a ping. If it failed, the thread replaces the connection.
pub(crate) fn end_proof(turn: &mut Turn<'_>, link: &Arc<dyn Link>, is_proved: bool) {
    turn.server.links.end_proof(link);
    if !is_proved {
        turn.ledger.agenda.wake();
    }
}

/// Requests the lane for the caller. Returns what has to be done for the lane.
pub(crate) fn want_lane(turn: &mut Turn<'_>) -> Upkeep {
    turn.route().1
}

/// Accepts the lane that a task has opened, or the error that prevented it.
pub(crate) fn lane_opened(turn: &mut Turn<'_>, runtime: RuntimeId, opened: Result<Arc<dyn Link>>) {
    let links = &mut turn.server.links;
    match opened {
        Ok(link) if turn.ledger.stage == Stage::Closed => link.close(), // Nobody would ever close it.
        Ok(link) => links.lane.opened(runtime, Ok(link), turn.now.us()),
        Err(error) => {
            if !links.lane.is_open() {
                links.trouble = Some(for_now(error));
            }
            links.lane.opened(runtime, Err(()), turn.now.us());
        }
    }
}

/// Checks the lane, if a check is due: whether its runtime reads it, if it has the inbox, or else drives it. Gives up a
/// lane that is not driven. Returns when the next check is due.
pub(crate) fn check_lane(turn: &mut Turn<'_>) -> u64 {
    let (links, now_us) = (&mut turn.server.links, turn.now.us());
    if links.next_check_us() <= now_us {
        let read = links.inbox.check(now_us);
        let progress = read.unwrap_or_else(|| links.lane.progress());
        links.note_check(progress, now_us);
        if read.is_none() && progress == Progress::Stalled && !is_on(Mutant::P17LaneStandsStill) {
            replies::give_lane_up(turn);
        }
    }
    turn.server.links.next_check_us()
}
