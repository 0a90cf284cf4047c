//! The calls of the callers of a session, and the states in which they are possible.

use leasehold_spec::Take;

use super::cases::{Play, Slip};
use super::pool::{Act, Pool};
use super::scenes::Does;
use super::session::{Ask, Attempt, Phase, UPGRADE};
use crate::models::server::grant_id;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Call {
    Acquire,
    AcquireAgain,
    Release(u8),
    /// A waiter drops its future.
    Cancel,
    Upgrade,
    /// The caller stops waiting for its upgrade, and keeps its read guard.
    Stop,
    /// The caller drops the future of its upgrade, and with it the read guard.
    Drop,
    Downgrade,
    Resize,
}

impl Pool {
    /// Adds the calls that a session may get next.
    pub(super) fn calls(&self, play: &Play, s: u8, acts: &mut Vec<Act>) {
        let does = &play.scene.sessions[s as usize];
        let session = &self.sessions[s as usize];
        let mut add = |is_possible: bool, call: Call| {
            if is_possible {
                acts.push(Act::Call(s, call));
            }
        };
        if let Some((nth, _)) = does.resize {
            add(!session.has_resized && self.resized == nth, Call::Resize);
        }
        let (Some(first), upgrade) = (session.attempts.first(), session.attempts.get(UPGRADE as usize)) else { return };
        let is_upgrading = upgrade.is_some_and(Attempt::is_waiting);
        add(first.phase == Phase::New, Call::Acquire);
        add(does.repeats && first.phase == Phase::Over && upgrade.is_none(), Call::AcquireAgain);
        add(does.cancels && first.phase == Phase::Waiting, Call::Cancel);
        for (n, attempt) in (0..).zip(&session.attempts) {
            add(attempt.inside(self.tick).is_some() && !(n == 0 && is_upgrading), Call::Release(n));
        }
        let is_reading = first.inside(self.tick).is_some();
        add(does.upgrades && is_reading && upgrade.is_none(), Call::Upgrade);
        add(does.stops && is_reading && upgrade.is_some_and(|up| up.phase == Phase::Waiting), Call::Stop);
        add(does.drops && is_upgrading, Call::Drop);
        let writes = first.inside(self.tick).is_some_and(|(_, units)| units == first.take.units && !first.is_lowered);
        add(does.downgrades && writes, Call::Downgrade);
    }

    pub(super) fn call(&mut self, play: &Play, s: u8, call: Call) {
        let tick = self.tick;
        let Does { resize, .. } = play.scene.sessions[s as usize];
        let session = &mut self.sessions[s as usize];
        match call {
            Call::Acquire => {
                session.attempts[0].phase = Phase::Waiting;
                session.send(tick, 0, Ask::Queue);
            }
            Call::AcquireAgain => {
                let first = session.attempts[0].take;
                session.attempts.push(Attempt { phase: Phase::Waiting, ..Attempt::new(first) });
                session.send(tick, UPGRADE, Ask::Queue);
            }
            Call::Release(n) => {
                let Phase::Holding { token, .. } = session.attempts[n as usize].phase else { return };
                // P11: a re-check without a reply may take the lease anew. P13: an earlier run may have granted it.
                if session.is_open(n, Ask::asks) || session.attempts[n as usize].is_of_earlier_run {
                    return session.leave(tick, n);
                }
                session.attempts[n as usize].phase = Phase::Over;
                session.send(tick, n, Ask::Release(token));
            }
            Call::Cancel => session.leave(tick, 0),
            Call::Upgrade => {
                let Phase::Holding { token, .. } = session.attempts[0].phase else { return };
                session.attempts.push(Attempt::new(Take::upgrade(grant_id(s, 0), token)));
                session.attempts[UPGRADE as usize].phase = Phase::Waiting;
                session.send(tick, UPGRADE, Ask::Queue);
            }
            Call::Stop if play.slips(Slip::Leaves) => {
                session.gave_up = true;
                session.leave(tick, UPGRADE);
            }
            Call::Stop => {
                session.attempts[UPGRADE as usize].phase = Phase::Stopping;
                session.send(tick, UPGRADE, Ask::Try);
            }
            Call::Drop => {
                session.leave(tick, UPGRADE);
                session.leave(tick, 0);
            }
            Call::Downgrade => {
                let Attempt { phase, is_lowered, .. } = &mut session.attempts[0];
                let Phase::Holding { token, units, .. } = phase else { return };
                (*units, *is_lowered) = (1, true);
                let lower = Ask::Lower(*token, 1);
                session.send(tick, 0, lower);
            }
            Call::Resize => {
                session.has_resized = true;
                session.send(tick, u8::MAX, Ask::Resize(resize.map_or(0, |(nth, _)| nth)));
            }
        }
    }
}
