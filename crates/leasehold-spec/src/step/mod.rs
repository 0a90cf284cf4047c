//! The step: one request about one name.
//!
//! | File | Contents |
//! |---|---|
//! | `acquire.rs`, `admit.rs` | acquire: a grant, a place in the queue, or neither |
//! | `all.rs` | acquire of several mutexes: all of them, or none |
//! | `held.rs` | renew, reserve and put: requests about a grant that is held |
//! | `hand_to.rs` | the holder names the next one |
//! | `release.rs` | release, leave and cool down: requests that end an attempt |
//! | `lower.rs` | a grant takes fewer units |
//! | `upgrade.rs`, `replace.rs` | a grant becomes one that takes all units |
//! | `resize.rs` | another number of permits |
//! | `latch.rs` | create, count down and delete a latch |
//! | `barrier.rs` | the round of a barrier: complete, or broken |
//! | `condition.rs` | notify and spend: notifications of a condition variable |
//! | `revoke.rs` | revoke: a request to end the grant of another client |
//! | `inspect.rs` | inspect: the only request that changes nothing |
//! | `serve.rs` | the step within every step (P1): leases that have ended, and the next waiter |
//! | `waiter.rs` | a waiter: whether it is there, its grant, its dismissal |
//! | `notify.rs` | messages: others wait (P9, to a holder), the lease ends at another time (P10 and P23, to waiters) |
//! | `context.rs` | the state that all of these change, and the messages that they add |

mod acquire;
mod admit;
mod all;
mod barrier;
mod condition;
mod context;
mod hand_to;
mod held;
mod inspect;
mod latch;
mod lower;
mod notify;
mod release;
mod replace;
mod resize;
mod revoke;
mod serve;
mod upgrade;
mod waiter;

use acquire::acquire;
pub use all::acquire_all;
use condition::{notify, spend};
use context::Step;
use hand_to::hand_to;
use held::{put, renew, reserve};
use inspect::inspect;
use lower::lower;
use release::{cool_down, leave, release};
use resize::resize;
use revoke::revoke;

use crate::answer::{Answer, Contention, Delivery, Outcome, Rest};
use crate::env::Env;
use crate::id::Token;
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::Op;
use crate::resource::Resource;

/// Carries out one request. Changes the state, and returns the answer and the messages. The caller sends the messages
/// once the state is stored.
///
/// The function is total: every state and every request has an answer. It grants to as many waiters as fit: to at most
/// one for a mutex.
pub fn step(resource: &mut Resource, env: &Env<'_>, op: &Op) -> (Answer, Vec<Delivery>) {
    if resource.is_forgotten(env.wall_us, env.lease_us) {
        if resource.last != Token::NONE {
            hit(Mark::RecordForgotten);
        }
        *resource = Resource::default();
    }
    let mut step = Step::new(resource, env);
    let (outcome, rest) = match op {
        Op::Inspect => (Outcome::Inspected(inspect(step.resource, env.lease_us)), Rest::Done),
        Op::Acquire(request) => acquire(&mut step, request),
        Op::Renew(request) => renew(&mut step, request),
        Op::Reserve { id, token, range } => reserve(&mut step, *id, *token, *range),
        Op::Release { id, token, used } => release(&mut step, *id, *token, *used),
        Op::Leave { id, used } => leave(&mut step, *id, *used),
        Op::CoolDown { id, used, for_ms } => cool_down(&mut step, *id, *used, *for_ms),
        Op::Lower { id, token, units } => lower(&mut step, *id, *token, *units),
        Op::Resize { from, to, not_after_us } => resize(&mut step, (*from, *to), *not_after_us),
        Op::Notify { count } => notify(&mut step, *count),
        Op::Spend { id, token } => spend(&mut step, *id, *token),
        Op::CreateLatch { limit, keep_ms, not_after_us } => latch::create(&mut step, *limit, *keep_ms, *not_after_us),
        Op::Put { id, token, label } => put(&mut step, *id, *token, label),
        Op::HandTo { id, token, label } => hand_to(&mut step, *id, *token, label),
        Op::CountDown { id, born } => latch::count_down(&mut step, *id, *born),
        Op::DeleteLatch { born } => latch::delete(&mut step, *born),
        Op::Revoke { holder, token, grace_ms } => revoke(&mut step, *holder, *token, *grace_ms),
        Op::Settle => (Outcome::Settled, step.settle()),
    };
    let answer = Answer {
        now_us: env.lease_us,
        highest: step.resource.last,
        contention: if is_on(Mutant::P9Silent) { Contention::None } else { step.resource.contention() },
        rest,
        handed_claim_ms: step.handed_claim_ms,
        outcome,
    };
    (answer, step.deliveries)
}
