//! P23: a grant is given back, and cools down. Nobody is granted the lease before the cool-down is over.

use crate::id::{GrantId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::GrantState;
use crate::resource::Resource;
use crate::step::Env;

/// Makes the grant of `id` cool down, and returns whether it cools down now. A revoked grant does not cool down: the
/// operator wants its end.
///
/// The lease is not free, so nobody is granted it. Nothing happens at the store by itself when the cool-down is over. So
/// the step also notifies the waiters that are next of that time.
pub(crate) fn cool_down(resource: &mut Resource, env: &Env<'_>, (id, used): (GrantId, Token), for_ms: u64) -> bool {
    let Some(grant) = resource.grant.as_mut().filter(|grant| grant.id == id) else { return false };
    match grant.state {
        GrantState::Revoked => return false,
        // A lease that has ended is lost, and its minimum hold with it. A request can be this late: the store stood still.
        GrantState::Held | GrantState::Pushed if grant.end_us() <= env.lease_us && !is_on(Mutant::P23CoolsTheEnded) => {
            return false;
        }
        // The reply to the first request was lost. A repeat does not lengthen the cool-down.
        GrantState::CoolingDown if !is_on(Mutant::P23RepeatExtends) => {
            hit(Mark::CoolDownRepeated);
            return true;
        }
        GrantState::Held | GrantState::Pushed | GrantState::CoolingDown => {}
    }
    hit(Mark::CoolDownBegun);
    grant.token = grant.used(used);
    grant.range = 1;
    (grant.since_us, grant.length_ms, grant.state) = (env.lease_us, for_ms, GrantState::CoolingDown);
    resource.last = grant.token;
    resource.keep_until_us = grant.keep_until_us(env);
    true
}
