//! Acquire several mutexes by one request: all of them, or none (P46).

use crate::answer::{Answer, Contention, Rest};
use crate::env::Env;
use crate::mutant::{Mutant, is_on};
use crate::op::Acquire;
use crate::resource::Resource;
use crate::step::admit::grant;
use crate::step::context::{Step, is_late};
use crate::take::Take;

/// Grants every request if each name is a mutex that is free and for which nobody waits. Otherwise it changes nothing and
/// returns `None`. The caller stores all the states at once. The names are distinct.
///
/// "Free" is meant strictly: a name whose lease has ended, or whose clock was set back, is not free before a step about
/// that name has settled it. So this function sends no message, and serves nobody.
///
/// A repeat of a request that was granted finds the names taken, and returns `None`. So a client sends the request once,
/// and gives all IDs back if it gets no reply.
pub fn acquire_all(members: &mut [(&mut Resource, &Acquire)], env: &Env<'_>) -> Option<Vec<Answer>> {
    let are_free = members.iter().all(|(resource, request)| is_free(resource, request, env));
    if is_on(Mutant::P46TakesSome) && !are_free {
        let free = members.iter_mut().filter(|(resource, request)| is_free(resource, request, env));
        free.for_each(|(resource, request)| drop(take(resource, request, env)));
    }
    if !are_free {
        return None;
    }
    Some(members.iter_mut().map(|(resource, request)| take(resource, request, env)).collect())
}

fn is_free(resource: &Resource, request: &Acquire, env: &Env<'_>) -> bool {
    let is_new = *resource == Resource::default() || resource.is_forgotten(env.wall_us, env.lease_us);
    let is_unclaimed = resource.is_idle() || is_on(Mutant::P46PassesQueue);
    let is_left = resource.kind == Take::MUTEX.kind
        && resource.grants.is_empty()
        && is_unclaimed
        && !resource.was_given_back(request.id)
        && resource.last.get() < env.wall_us;
    request.take == Take::MUTEX && !is_late(env, request.not_after_us) && (is_new || is_left)
}

fn take(resource: &mut Resource, request: &Acquire, env: &Env<'_>) -> Answer {
    if resource.is_forgotten(env.wall_us, env.lease_us) {
        *resource = Resource::default();
    }
    let mut step = Step::new(resource, env);
    let outcome = grant(&mut step, request);
    let (now_us, highest) = (env.lease_us, step.resource.last);
    Answer { now_us, highest, contention: Contention::None, rest: Rest::Done, handed_claim_ms: None, outcome }
}
