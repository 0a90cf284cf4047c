//! Hand to (P51): the holder names the waiter that holds next.

use crate::answer::{LostHow, Outcome, Rest};
use crate::id::{GrantId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::resource::Entry;
use crate::step::context::Step;
use crate::step::release::give_back;
use crate::step::waiter::reason_to_skip;
use crate::take::Kind;

/// Gives the grant of a mutex to the first live waiter with this label. If there is none, nothing changes: the holder holds
/// on.
///
/// A second copy of the request finds another holder. So it has no `not_after`, but the session sends it only once: a copy
/// that came after NO WAITER would take the lock from a holder that holds on.
pub(super) fn hand_to(step: &mut Step<'_, '_>, id: GrantId, token: Token, label: &str) -> (Outcome, Rest) {
    let rest = step.settle();
    let is_mutex = step.resource.kind == Kind::Mutex;
    if step.resource.held_by(id).filter(|grant| is_mutex && grant.token == token).is_none() {
        hit(Mark::HandToNotHeld);
        return (Outcome::Lost { how: LostHow::NotHeld }, rest);
    }
    let is_live = |entry: &Entry| reason_to_skip(step.resource, step.env, entry).is_none();
    let is_named = |entry: &Entry| entry.label == label && (is_live(entry) || is_on(Mutant::P51NamesTheDead));
    let named = step.resource.queue.iter().position(is_named);
    let Some(named) = named.or_else(|| is_on(Mutant::P51HandsToAny).then_some(0)) else {
        hit(Mark::HandToNobody);
        return (Outcome::NoWaiter, rest);
    };
    hit(Mark::HandedTo);
    // The step serves the head. This entry leaves the queue again within the step, so the queue stays in order.
    if let Some(entry) = step.resource.queue.remove(named) {
        step.resource.queue.push_front(entry);
    }
    (Outcome::Released, give_back(step, id, token))
}
