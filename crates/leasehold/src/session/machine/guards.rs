//! Guards: a lease goes from its guard to the next caller here, or to the store.
//!
//! If callers still wait here, the release to the store and the next acquire of their local queue are sent together: one
//! round trip for both.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{LostHow, Op, Token};
use tokio::sync::oneshot;

use super::acquire::{self, Outgoing};
use super::attempt::{Attempt, Phase};
use super::connections::Route;
use super::hand_over::pass;
use super::lane::Upkeep;
use super::order::InFlight;
use super::turn::Turn;
use super::{grant, release};
use crate::error::Result;
use crate::lost::{LostReason, Released};
use crate::session::hold::Hold;
use crate::store::{Guess, Link};

/// The next step after a guard has released its lease.
pub(crate) enum ReleaseStep {
    /// The next caller here has it. There is nothing to wait for.
    HandedOn,
    /// Nothing of it is left here.
    NotHeld,
    /// The caller sends the release, if it can, and then the acquire of those that still wait in the local queue.
    Send { sending: Box<Sending>, upkeep: Upkeep },
}

/// A release, and the acquire that follows it.
pub(crate) struct Sending {
    pub(crate) answer: oneshot::Receiver<Result<Released>>,
    pub(crate) release: Option<(Op, InFlight)>,
    pub(crate) guess: Guess,
    /// Whether the lease was surely valid until then.
    pub(crate) was_valid: bool,
    pub(crate) next: Option<Box<Outgoing>>,
}

/// Whether the thread that drops a guard is panicking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Panicking {
    Yes,
    No,
}

/// Ends a hold of which the store has replied, on this connection, that it is lost.
pub(crate) fn lose(turn: &mut Turn<'_>, hold: &Hold, (how, highest): (LostHow, Token), link: &dyn Link) {
    let counter = hold.id.counter;
    let is_out = turn.ledger.attempts.get(&counter).is_some_and(|attempt| attempt.is_out(hold));
    if is_out && turn.server.links.is_of_this_run(link) {
        grant::lose(turn, counter, how, highest);
        turn.arm(counter);
    }
}

/// A guard releases its lease, to the next caller here or to the store.
pub(crate) fn release(turn: &mut Turn<'_>, hold: &Hold) -> ReleaseStep {
    if pass(turn, hold) {
        return ReleaseStep::HandedOn;
    }
    let (route, upkeep) = turn.route();
    match begin_release(turn, hold, &route) {
        Some(sending) => ReleaseStep::Send { sending: Box::new(sending), upkeep },
        None => ReleaseStep::NotHeld,
    }
}

/// Begins to release a lease to the store. `None`: nothing of it is left here.
fn begin_release(turn: &mut Turn<'_>, hold: &Hold, route: &Route) -> Option<Sending> {
    let counter = hold.id.counter;
    turn.ledger.attempts.get(&counter).filter(|attempt| attempt.is_out(hold))?;
    let was_valid = turn.now.us() < hold.valid_until_us();
    let queue = turn.ledger.detach(counter, turn.now.us());
    // The hold ends now: its guard must not be valid while the release is in flight.
    turn.ledger.effects.end_hold(hold, LostReason::Released);
    release::begin_return(turn, counter);
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else {
        queue.into_iter().for_each(|queue| turn.ledger.queues.leave_unattended(queue));
        return None;
    };
    // Before an acquire of it that the thread is about to send, the release would find nothing: then the thread sends
    // the release as well, after the acquire.
    let follow = attempt.order.follow().filter(|link| turn.server.links.may_use(link, route.runtime)).cloned();
    let link = match attempt.order.may_be_followed() {
        true => follow.or_else(|| route.lane.clone()).or_else(|| turn.server.links.home().cloned()),
        false => None,
    };
    let release = link.and_then(|link| release::request(turn, counter, link));
    let (tell, answer) = oneshot::channel();
    let Attempt { phase: Phase::Returning(returning), order, .. } = turn.ledger.attempts.get_mut(&counter)? else {
        return None;
    };
    returning.caller = Some(tell);
    release.iter().for_each(|(_, request)| order.note_return(request.serial));
    turn.arm(counter);
    let guess = turn.ledger.names.guess(&hold.name);
    // The acquire of the queue comes after the release on its own connection. Without a proved inbox the thread sends.
    let link = release.as_ref().and_then(|(_, request)| turn.server.links.way_in(Some(Arc::clone(&request.link))));
    let next = queue.and_then(|queue| acquire::begin_for_queue(turn, queue, (link, route)));
    Some(Sending { answer, release, guess, was_valid, next })
}

/// A guard is dropped. In a panic the lease does not go to the next caller here before the store was asked: the callers
/// outside come first, because the section may have left anything behind.
pub(crate) fn drop_guard(turn: &mut Turn<'_>, hold: &Hold, panicking: Panicking) {
    let may_pass = panicking == Panicking::No || is_on(Mutant::P20PassesPanic);
    if may_pass && pass(turn, hold) {
        return;
    }
    if turn.ledger.attempts.get(&hold.id.counter).is_some_and(|attempt| attempt.is_out(hold)) {
        release::give_back(turn, hold.id.counter);
    }
}
