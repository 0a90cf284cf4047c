//! Messages that make no grant. They notify a holder that others wait (P9), and waiters that the lease ends at another
//! time than they know (P10, P23).

use crate::answer::{Contention, Delivery, Event, Rest};
use crate::grant::{Grant, GrantState};
use crate::id::SessionId;
use crate::limits::{REVOKE_NOTIFIED, SETTLE_STEPS};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{Hears, Order};
use crate::policy;
use crate::step::context::Step;
use crate::step::waiter::reason_to_skip;

/// P9: the holder of a range may be handing the lease on inside its session, so it is notified that others wait. Every
/// later answer has the same information: the message only saves the time until then.
pub(super) fn notify_holder(step: &mut Step<'_, '_>, before: Contention, order: Order) {
    let contention = match order {
        Order::Relaxed => Contention::Others,
        Order::Strict => Contention::Strict,
    };
    let Some(grant) = step.resource.grants.iter().find(|grant| grant.range > 1 && contention > before) else { return };
    hit(Mark::HolderTold);
    if is_on(Mutant::P9TellsNoHolder) {
        return;
    }
    let now_us = step.env.lease_us;
    step.deliveries.push(Delivery {
        to: grant.id.session,
        now_us,
        contention,
        rest: Rest::Done,
        id: grant.id,
        token: grant.token,
        left_us: grant.left_us(now_us),
        range: grant.range,
        event: Event::Wanted,
    });
}

/// Notifies the waiters that are next, if the grant is marked for revocation or cools down.
///
/// The lease ends at another time than they know, and nothing happens at the store by itself when it does. Their
/// sessions re-check then, so each session needs one message. The parties of a barrier wait for each other.
pub(super) fn notify_next_waiters(step: &mut Step<'_, '_>) {
    if policy::waits_together(step.resource.kind) {
        return;
    }
    let has_new_end = |grant: &&Grant| match grant.state {
        GrantState::Revoked => true,
        GrantState::CoolingDown => !is_on(Mutant::P23TellsNoWaiter),
        GrantState::Held | GrantState::Pushed => false,
    };
    let ending = step.resource.grants.iter().filter(has_new_end).min_by_key(|grant| grant.end_us());
    let Some(ending) = ending.filter(|_| !is_on(Mutant::P10TellsNoWaiter)) else { return };
    let (now_us, contention) = (step.env.lease_us, step.resource.contention());
    let first = step.deliveries.len();
    for entry in step.resource.queue.iter().take(SETTLE_STEPS) {
        let is_notified = |session: SessionId| step.deliveries[first..].iter().any(|message| message.to == session);
        let is_next = entry.hears == Hears::Listens && !is_notified(entry.id.session);
        if !is_next || reason_to_skip(step.resource, step.env, entry).is_some() {
            continue;
        }
        hit(Mark::WaiterNotified);
        step.deliveries.push(Delivery {
            to: entry.id.session,
            now_us,
            contention,
            rest: Rest::Done,
            id: entry.id,
            token: ending.token,
            left_us: ending.left_us(now_us),
            range: 1,
            event: Event::Ending,
        });
        if step.deliveries.len() - first == REVOKE_NOTIFIED {
            break;
        }
    }
}
