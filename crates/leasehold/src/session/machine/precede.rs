//! The releases that a client sends before its own acquire.
//!
//! A lease of this session that nobody uses is in the way of the session's own acquire of the same name. There are two such
//! leases: one that is kept on other terms, and one whose guard was dropped and whose release the thread has still to send.
//! Without this file, a caller that drops a guard and calls `try_lock` would now and then learn that somebody holds the
//! lock, and that would be itself. So the caller of the acquire sends the release first, both on one connection, which
//! keeps their order. A release that was sent is not sent again: the acquire follows it on its connection.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Op};
use tokio::sync::oneshot;

use super::attempt::Phase;
use super::connections::Route;
use super::ledger::Ledger;
use super::order::{InFlight, same};
use super::release;
use super::turn::Turn;
use crate::store::Link;

/// The releases that come right before an acquire, on the same connection. A pool can have several.
#[derive(Default)]
pub(crate) struct Predecessors {
    /// The caller of the acquire sends these.
    pub(crate) to_send: Vec<(u64, Op, InFlight)>,
    /// One signal for each release that the session's thread is about to send.
    pub(crate) sent_by_thread: Vec<oneshot::Receiver<()>>,
}

/// The connection of an acquire. The first release before it may choose another one.
struct Way<'a> {
    link: Arc<dyn Link>,
    is_chosen: bool,
    route: &'a Route,
}

/// Returns the connection of an acquire that its caller sends, and what comes right before it. Without a connection the
/// thread sends all of it, in this order.
pub(crate) fn clear_the_way(
    turn: &mut Turn<'_>,
    name: &Name,
    (link, route): (Option<Arc<dyn Link>>, &Route),
) -> (Option<Arc<dyn Link>>, Predecessors) {
    let mut before = Predecessors::default();
    if is_on(Mutant::P16TriesBefore) {
        return (link, before);
    }
    if let Some(kept) = kept_of(turn.ledger, name) {
        release::begin_return(turn, kept);
        if link.is_none() {
            turn.arm(kept);
        }
    }
    let Some(link) = link else { return (None, before) };
    let returning = turn.ledger.names.get(name).map(|state| state.going_back.clone()).unwrap_or_default();
    let mut way = Way { link, is_chosen: false, route };
    for counter in returning {
        // Only the releases on one connection come right before the acquire. One that is in flight on another connection is
        // not waited for.
        if let Some(link) = put_before(turn, counter, &way, &mut before) {
            (way.link, way.is_chosen) = (link, true);
        }
    }
    (Some(way.link), before)
}

/// Returns the attempt that keeps a lease of this name which nobody uses.
fn kept_of(ledger: &Ledger, name: &Name) -> Option<u64> {
    let queues = &ledger.names.get(name)?.queues;
    queues.iter().filter_map(|(_, queue)| Some(ledger.queues.get(*queue)?.attempt)).find(|counter| {
        let phase = ledger.attempts.get(counter).map(|attempt| &attempt.phase);
        matches!(phase, Some(Phase::Held(holding)) if !holding.is_in_use())
    })
}

/// Puts one release before the acquire, if it can come before it. Returns the connection of the release.
fn put_before(
    turn: &mut Turn<'_>,
    counter: u64,
    Way { link, is_chosen, route }: &Way<'_>,
    before: &mut Predecessors,
) -> Option<Arc<dyn Link>> {
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let may_use =
        |other: &Arc<dyn Link>| turn.server.links.may_use(other, route.runtime) && (!is_chosen || same(other, link));
    // A release on the lane of another runtime is no use to this caller: it is sent again, by a connection that is driven.
    let in_flight = attempt.in_flight.as_ref().filter(|request| may_use(&request.link));
    let follow = attempt.order.follow().filter(|link| may_use(link)).cloned();
    let Phase::Returning(returning) = &attempt.phase else { return None };
    if let Some(InFlight { link, serial, .. }) = in_flight {
        let link = Arc::clone(link);
        if !attempt.order.has_sent_return(*serial) {
            before.sent_by_thread.push(attempt.order.wait_behind());
        }
        return Some(link);
    }
    if returning.next_us > turn.now.us() {
        return None; // It was refused a moment ago, and would be again.
    }
    // The release may end an acquire that is in flight on `follow`. On another connection it would overtake that acquire.
    if !attempt.order.may_be_followed() || attempt.order.has_followers() {
        let link = follow.or_else(|| turn.server.links.home().filter(|home| may_use(home)).cloned())?;
        before.sent_by_thread.push(attempt.order.wait_behind());
        turn.arm(counter);
        return Some(link);
    }
    let link = follow.unwrap_or_else(|| Arc::clone(link));
    let (op, request) = release::request(turn, counter, Arc::clone(&link))?;
    if let Some(attempt) = turn.ledger.attempts.get_mut(&counter) {
        attempt.order.note_return(request.serial);
    }
    turn.arm(counter);
    before.to_send.push((counter, op, request));
    Some(link)
}
