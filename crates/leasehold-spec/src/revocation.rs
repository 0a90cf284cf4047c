//! P10: a grant is marked for revocation, and the waiters that are next are notified of its new end.

use crate::id::{PublicId, SessionId, Token};
use crate::limits::{REVOKE_NOTIFIED, SETTLE_STEPS};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{Contention, Delivery, Event, GrantState, Hears, Rest};
use crate::resource::{Grant, Resource};
use crate::settle::gone;
use crate::step::Env;

/// Marks the grant that the caller saw, and shortens its lease to the grace. Returns the message to its holder.
pub(crate) fn mark(
    resource: &mut Resource,
    env: &Env<'_>,
    holder: PublicId,
    token: Token,
    grace_ms: u64,
) -> Option<Delivery> {
    let now_us = env.lease_us;
    let seen = |g: &&mut Grant| g.id.public() == holder && g.token == token;
    let grant = resource.grant.as_mut().filter(seen)?;
    hit(Mark::GrantRevoked);
    // Nobody works under a grant that cools down, so nobody needs the grace.
    let grace_ms = if is_on(Mutant::P10NoGrace) || !grant.is_held() { 0 } else { grace_ms };
    let end_us = grant.end_us().min(now_us + grace_ms * 1000);
    grant.length_ms = (end_us - grant.since_us) / 1000;
    grant.state = GrantState::Revoked;
    resource.keep_until_us = grant.keep_until_us(env);
    Some(Delivery {
        to: grant.id.session,
        now_us,
        contention: Contention::None,
        rest: Rest::Done,
        id: grant.id,
        token: grant.token,
        left_us: grant.left_us(now_us),
        range: grant.range,
        event: Event::Revoked,
    })
}

/// The messages to the waiters that are next, if the lease is marked or cools down: it ends at another time than they were
/// told, and nothing happens at the store by itself when it does. Their sessions look then, so each needs one message.
pub(crate) fn next_waiters(resource: &Resource, env: &Env<'_>) -> Vec<Delivery> {
    let tells = |grant: &&Grant| match grant.state {
        GrantState::Revoked => true,
        GrantState::CoolingDown => !is_on(Mutant::P23TellsNoWaiter),
        GrantState::Held | GrantState::Pushed => false,
    };
    let marked = resource.grant.as_ref().filter(tells);
    let Some(marked) = marked.filter(|_| !is_on(Mutant::P10TellsNoWaiter)) else { return Vec::new() };
    let (now_us, contention) = (env.lease_us, resource.contention());
    let mut deliveries: Vec<Delivery> = Vec::new();
    for entry in resource.queue.iter().take(SETTLE_STEPS) {
        let is_notified = |session: SessionId| deliveries.iter().any(|delivery| delivery.to == session);
        let is_next = entry.hears == Hears::Listens && !is_notified(entry.id.session);
        if !is_next || gone(resource, env, entry).is_some() {
            continue;
        }
        hit(Mark::WaiterNotified);
        deliveries.push(Delivery {
            to: entry.id.session,
            now_us,
            contention,
            rest: Rest::Done,
            id: entry.id,
            token: marked.token,
            left_us: marked.left_us(now_us),
            range: 1,
            event: Event::Ending,
        });
        if deliveries.len() == REVOKE_NOTIFIED {
            break;
        }
    }
    deliveries
}
