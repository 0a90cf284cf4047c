//! Moves the inbox between the session's connection and the lane (P17).
//!
//! A message that the thread receives wakes the thread, and then the runtime of the caller. If the runtime of the lane
//! receives the message, it wakes its own caller. This saves a switch of threads for each hand-over. But this runtime may
//! block or end at any moment, and its callers then still have to be served by the thread. So:
//!
//! - The inbox moves to the lane only while messages come in quick succession, and nobody needs the thread to receive them.
//! - While the lane has the inbox, the thread checks that the lane is read. If it is not, the inbox returns.
//! - The inbox is attached to the new connection, with proof, before it is detached from the other one.
//! - If the store does not confirm in time that the inbox is detached from the lane, everything is asked again (P13, P15):
//!   the lane was not read until then, and messages may lie there.
//!
//! `inbox_place.rs` knows where the inbox is, and decides when it moves. This file has the effects of a move on the lane
//! and on the attempts.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::inbox_place::Move;
use super::order::same;
use super::replies::give_lane_up;
use super::turn::Turn;
use crate::store::Link;

/// Begins the move that is due, and returns it.
pub(crate) fn begin_due_move(turn: &mut Turn<'_>) -> Option<Move> {
    turn.server.links.begin_due_move(turn.now.us())
}

/// Notes that the inbox is attached to the lane. Returns the connection to detach it from.
pub(crate) fn attached_to_lane(turn: &mut Turn<'_>, lane: &Arc<dyn Link>) -> Option<Arc<dyn Link>> {
    let links = &mut turn.server.links;
    if links.inbox.note_at_lane(lane, turn.now.us()) {
        hit(Mark::InboxAtLane);
        return links.home().cloned();
    }
    unless_closed(lane)
}

/// Notes that the inbox could not be attached to the lane in time. Returns the connection to detach it from: the store may
/// attach it later.
pub(crate) fn failed_at_lane(turn: &mut Turn<'_>, lane: &Arc<dyn Link>) -> Option<Arc<dyn Link>> {
    turn.server.links.inbox.note_lane_failed(lane, turn.now.us());
    unless_closed(lane)
}

/// Notes that the inbox is attached to the session's connection again. Returns the lane, from which the inbox is to be
/// detached. If the lane is read until then, no message is lost.
pub(crate) fn attached_to_home(turn: &mut Turn<'_>, home: &Arc<dyn Link>) -> Option<Arc<dyn Link>> {
    if !is_home(turn, home) {
        return None; // The session has another connection by now, or none.
    }
    let (lane, fault) = turn.server.links.inbox.note_back_home()?;
    hit(Mark::InboxBack);
    if fault.is_some() {
        give_up_if_lane(turn, &lane);
    }
    if fault.is_some() || lane.is_closed() {
        ask_again(turn);
        return None;
    }
    Some(lane)
}

/// Notes that the session has another connection, which has the inbox. A lane that had the inbox is given up.
pub(crate) fn reconnected(turn: &mut Turn<'_>) {
    if let Some(lane) = turn.server.links.inbox.reset_to_home() {
        give_up_if_lane(turn, &lane);
    }
}

/// Returns how long the store may take to confirm that the inbox is detached from this connection. The confirmation proves
/// that all messages before it were read. The session's connection needs no limit: the thread reads it, or replaces it.
pub(crate) fn detach_within_us(turn: &Turn<'_>, link: &Arc<dyn Link>) -> Option<u64> {
    let is_limited = !is_home(turn, link) && !is_on(Mutant::P17AwaitsDetach);
    is_limited.then(|| turn.server.usual_us())
}

/// The store has not confirmed in time that the inbox is detached from the lane: nobody reads it.
pub(crate) fn detach_late(turn: &mut Turn<'_>, lane: &Arc<dyn Link>) {
    give_up_if_lane(turn, lane);
    detach_failed(turn, lane);
}

/// A connection has ended before the inbox was detached from it. If it was the lane, messages may have been lost with it.
pub(crate) fn detach_failed(turn: &mut Turn<'_>, link: &Arc<dyn Link>) {
    if !is_home(turn, link) {
        ask_again(turn);
    }
}

/// The store has refused to detach the inbox from this connection: the user lacks the right.
pub(crate) fn detach_refused(turn: &mut Turn<'_>, link: &Arc<dyn Link>) {
    turn.server.links.inbox.forbid_moves();
    give_up_if_lane(turn, link);
    turn.ledger.agenda.wake();
}

/// Messages that came by the lane may not have been read: every attempt asks again.
fn ask_again(turn: &mut Turn<'_>) {
    if !is_on(Mutant::P17AsksNobody) {
        turn.wake_all();
    }
}

fn is_home(turn: &Turn<'_>, link: &Arc<dyn Link>) -> bool {
    turn.server.links.home().is_some_and(|home| same(home, link))
}

fn give_up_if_lane(turn: &mut Turn<'_>, link: &Arc<dyn Link>) {
    if turn.server.links.lane.open().is_some_and(|lane| same(lane, link)) {
        give_lane_up(turn);
    }
}

fn unless_closed(link: &Arc<dyn Link>) -> Option<Arc<dyn Link>> {
    Some(link).filter(|link| !link.is_closed()).cloned()
}
