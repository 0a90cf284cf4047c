//! Moves the inbox between the session's connection and the lane (P17).
//!
//! A message that the thread receives wakes the thread, and then the runtime of the caller. If the runtime of the lane
//! receives the message, it wakes its own caller. This saves a switch of threads for each hand-over. But this runtime may
//! block or end at any moment, and its callers then still have to be served by the thread. So:
//!
//! - The inbox moves to the lane only while messages come in quick succession, and nobody needs the thread to receive them.
//! - While the lane has the inbox, the thread checks that the lane is read. If it is not, the inbox returns.
//! - The inbox is attached to the new connection, with proof, before it is detached from the other one.
//! - If the lane was not read until the inbox was detached from it, everything is asked again (P13, P15).

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::inbox::Place;
use super::order::same;
use super::replies::give_lane_up;
use super::turn::Turn;
use crate::store::{Link, Progress};

/// A move of the inbox, for the thread to carry out.
pub(crate) enum Move {
    ToLane(Arc<dyn Link>),
    ToHome,
}

/// Returns the move that is due.
pub(crate) fn due_move(turn: &mut Turn<'_>) -> Option<Move> {
    let links = &mut turn.server.links;
    let lane = links.lane_of_this_run();
    let is_lane = |link: &Arc<dyn Link>| lane.as_ref().is_some_and(|lane| same(lane, link));
    links.home()?;
    match links.inbox.place() {
        Place::Home if links.profile().moves_inbox && links.inbox.may_leave(turn.now.us()) => {
            let lane = lane?;
            links.inbox.leave(Arc::clone(&lane));
            Some(Move::ToLane(lane))
        }
        Place::Lane(link) if !is_lane(link) || links.inbox.must_return(turn.now.us()) => {
            let lane = Arc::clone(link);
            links.inbox.go_home(lane, turn.now.us());
            Some(Move::ToHome)
        }
        _ => None,
    }
}

/// Returns whether the lane has the inbox, so that it has to be checked often.
pub(crate) fn is_at_lane(turn: &Turn<'_>) -> bool {
    matches!(turn.server.links.inbox.place(), Place::Lane(_))
}

/// Checks that the lane is read, if it has the inbox. Returns its progress.
pub(crate) fn check(turn: &mut Turn<'_>) -> Option<Progress> {
    let Place::Lane(lane) = turn.server.links.inbox.place() else { return None };
    let progress = lane.check_read();
    if progress == Progress::Stalled && !is_on(Mutant::P17BelievesLane) {
        turn.server.links.inbox.note_unread(turn.now.us());
    }
    Some(progress.min(Progress::Waiting))
}

/// Takes in that the inbox was attached to the lane, or could not be. Returns the connection to detach it from.
pub(crate) fn lane_attached(turn: &mut Turn<'_>, lane: &Arc<dyn Link>, is_attached: bool) -> Option<Arc<dyn Link>> {
    let links = &mut turn.server.links;
    if links.inbox.arrive(lane, is_attached, turn.now.us()) {
        hit(Mark::InboxAtLane);
        return links.home().cloned();
    }
    Some(Arc::clone(lane)).filter(|lane| !lane.is_closed())
}

/// Takes in that the inbox was attached to the session's connection again. Returns the lane, to detach it from: if it is
/// read until then, no message is lost.
pub(crate) fn home_attached(turn: &mut Turn<'_>, home: &Arc<dyn Link>) -> Option<Arc<dyn Link>> {
    let links = &mut turn.server.links;
    if !matches!(links.inbox.place(), Place::ToHome(_)) || !links.home().is_some_and(|link| same(link, home)) {
        return None; // The session has another connection by now, or none.
    }
    let (lane, is_unread) = links.inbox.come_home()?;
    hit(Mark::InboxBack);
    if is_unread && links_to(turn, &lane) {
        give_lane_up(turn);
    }
    if is_unread || lane.is_closed() {
        ask_again(turn);
        return None;
    }
    Some(lane)
}

/// The session has another connection, which has the inbox. So the lane needs it no more.
pub(crate) fn reconnected(turn: &mut Turn<'_>) {
    let Some((lane, _)) = turn.server.links.inbox.come_home() else { return };
    if links_to(turn, &lane) {
        give_lane_up(turn);
    }
}

/// A connection has ended before the inbox was detached from it.
pub(crate) fn detach_failed(turn: &mut Turn<'_>) {
    if matches!(turn.server.links.inbox.place(), Place::Home) {
        ask_again(turn);
    }
}

/// Messages that came by the lane may not have been read: every attempt asks again.
fn ask_again(turn: &mut Turn<'_>) {
    if !is_on(Mutant::P17AsksNobody) {
        turn.wake_all();
    }
}

/// The store has refused to detach the inbox from this connection: the user lacks the right.
pub(crate) fn detach_refused(turn: &mut Turn<'_>, link: &Arc<dyn Link>) {
    turn.server.links.inbox.stay_for_good();
    if links_to(turn, link) {
        give_lane_up(turn);
    }
    turn.ledger.agenda.wake();
}

fn links_to(turn: &Turn<'_>, link: &Arc<dyn Link>) -> bool {
    turn.server.links.lane.open().is_some_and(|lane| same(lane, link))
}
