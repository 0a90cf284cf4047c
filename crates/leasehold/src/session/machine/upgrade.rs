//! Upgrade: an attempt that replaces the grant of another attempt of this session (P37, P38).
//!
//! The read grant is held and renewed while its upgrade waits. The store ends it in the step that grants the upgrade. The
//! session may learn of the two in either order: the reply to a renewal may say that the read grant is lost before the
//! message arrives that brings the upgrade.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{LostHow, Mode, Take};

use super::attempt::{Attempt, Phase};
use super::release::{forget_ended, give_back};
use super::returning::ReturnKind;
use super::turn::Turn;
use crate::lost::{Lost, LostReason};
use crate::session::bounds::RETRY_US;
use crate::session::hold::Hold;
use crate::session::terms::{Terms, Wait};

/// Returns the terms of an upgrade of this hold: those of the hold, and all units.
pub(crate) fn terms(turn: &Turn<'_>, hold: &Hold) -> Result<Arc<Terms>, Lost> {
    let token = hold.check()?;
    let held = turn.ledger.attempts.get(&hold.id.counter).filter(|attempt| attempt.is_out(hold));
    let terms = held.map(|attempt| Terms { take: Take::upgrade(hold.id, token), ..Terms::clone(&attempt.terms) });
    terms.map(Arc::new).ok_or_else(|| hold.lost(LostReason::Expired))
}

/// Notes that an attempt upgrades another one, if its terms say so.
pub(crate) fn begin(turn: &mut Turn<'_>, counter: u64, terms: &Terms) {
    if let Some(read) = upgraded(terms).and_then(|read| turn.ledger.attempts.get_mut(&read)) {
        read.upgrade = counter;
    }
}

/// Returns the counter of the attempt that an attempt on these terms upgrades.
pub(crate) fn upgraded(terms: &Terms) -> Option<u64> {
    match terms.take.mode {
        Mode::Instead { id, .. } => Some(id.counter),
        Mode::Plain | Mode::Upgradeable => None,
    }
}

/// The upgrade was granted: the store has ended the grant that it replaces.
pub(crate) fn complete(turn: &mut Turn<'_>, terms: &Terms) {
    let Some(counter) = upgraded(terms) else { return };
    let Some(read) = turn.ledger.attempts.get(&counter) else { return };
    if let Phase::Held(holding) = &read.phase {
        let token = holding.budget.grant();
        turn.ledger.effects.end_hold(&holding.hold, LostReason::Released);
        if !read.order.is_settled() {
            // Its last re-check may still be carried out, and would acquire for nobody (P14).
            return give_back(turn, counter);
        }
        // A failover can bring the read grant back.
        forget_ended(turn.ledger, counter, ReturnKind::Release { token, used: token }, turn.now.us());
    }
}

/// Returns whether a report that this grant is not held has to wait: its upgrade may have been granted. The upgrade asks
/// at once, and its answer decides.
pub(crate) fn awaits_upgrade(turn: &mut Turn<'_>, counter: u64, how: LostHow) -> bool {
    let upgrade = turn.ledger.attempts.get(&counter).map_or(0, |attempt| attempt.upgrade);
    let is_waiting = turn.ledger.attempts.get(&upgrade).is_some_and(|upgrade| {
        matches!(upgrade.phase, Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. })
    });
    if !is_waiting || how == LostHow::Revoked || is_on(Mutant::P37BelievesLost) {
        return false;
    }
    hit(Mark::UpgradeLooked);
    turn.ledger.set_next(counter, turn.now.us() + RETRY_US);
    ask_now(turn, upgrade);
    true
}

/// Lets the upgrade of a grant that has ended ask at once: it ends as well, and its caller gets an error.
pub(crate) fn follow_end(turn: &mut Turn<'_>, counter: u64) {
    let upgrade = turn.ledger.attempts.get(&counter).map_or(0, |attempt| attempt.upgrade);
    let phase = turn.ledger.attempts.get(&upgrade).map(|upgrade| &upgrade.phase);
    if matches!(phase, Some(Phase::Asking { .. } | Phase::Queued { .. })) {
        ask_now(turn, upgrade);
    }
}

fn ask_now(turn: &mut Turn<'_>, counter: u64) {
    turn.ledger.set_next(counter, turn.now.us());
    turn.arm(counter);
}

/// The caller stops waiting for its upgrade, and keeps what it has: the store is asked once more, by a try. A leave would
/// hand the grant on if it was made already, and the read grant is gone then (P38). Returns whether that is so.
pub(crate) fn try_once_more(turn: &mut Turn<'_>, counter: u64) -> bool {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return false };
    let is_waiting = matches!(attempt.phase, Phase::Asking { .. } | Phase::Queued { .. });
    if upgraded(&attempt.terms).is_none() || !is_waiting || attempt.wait == Wait::No || is_on(Mutant::P38Leaves) {
        return false;
    }
    hit(Mark::UpgradeTriedLast);
    let usual_us = turn.now.us() + turn.server.usual_us();
    attempt.order.only_tries(turn.ledger.ids.last_serial());
    (attempt.wait, attempt.in_flight) = (Wait::No, None);
    attempt.phase = Phase::Asking { next_us: turn.now.us(), usual_us };
    turn.arm(counter);
    true
}

/// Repeats the last try, as long as an acquire that was sent before may be carried out behind it. That acquire would be
/// granted when the caller has its read guard back, and the leave of it would free the lock under that guard.
pub(crate) fn tries_again(attempt: &mut Attempt, server_us: u64, now_us: u64) -> bool {
    let left_us = attempt.order.may_follow_for_us(server_us).filter(|_| !is_on(Mutant::P38BusyEnds));
    if let Some(left_us) = left_us {
        attempt.set_next(now_us + left_us.min(RETRY_US));
    }
    left_us.is_some()
}
