//! Lower (P39): a grant gives a part of its units back, or its right to an upgrade.

use crate::answer::{LostHow, Outcome, Rest};
use crate::grant::{Grant, GrantState};
use crate::id::{GrantId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::step::context::Step;
use crate::take::Mode;

/// Lowers the units of a grant, and hands what is free to the waiters. A repeat changes nothing, so the request has no
/// `not_after`: units never rise.
pub(super) fn lower(step: &mut Step<'_, '_>, id: GrantId, token: Token, units: u32) -> (Outcome, Rest) {
    let rest = step.settle_ended();
    let Some(grant) = step.resource.held_by(id).filter(|grant| grant.token == token) else {
        hit(Mark::LowerNotHeld);
        return (Outcome::Lost { how: LostHow::NotHeld }, rest);
    };
    if grant.state == GrantState::Revoked {
        return (Outcome::Lost { how: LostHow::Revoked }, rest);
    }
    hit(Mark::Lowered);
    let lower = |grant: &mut Grant| (grant.units, grant.mode) = (grant.units.min(units.max(1)), Mode::Plain);
    step.resource.grants.change(id, lower);
    if is_on(Mutant::P39AdmitsLater) {
        return (Outcome::Lowered, rest);
    }
    (Outcome::Lowered, step.settle_for_waiters())
}
