//! The names that the session uses, and when it asks the store for a name again.
//!
//! A message can be lost, and its receiver can be frozen or dead. A lease that runs out changes nothing at the store by
//! itself, so somebody has to ask. One timer for each name and session does it, however many callers wait. A client that
//! handed over sets the timer to the end of the claim (P7), waiters to the end of the lease before them (P15), a revocation
//! to the end of its grace (P10), and a reply that says MORE to now (P1).

use leasehold_spec::{Contention, Kind, Name, Token};

use crate::session::agenda::Agenda;
use crate::session::counters::NameMap;
use crate::store::Guess;

#[derive(Default)]
pub(crate) struct Names {
    states: NameMap<NameState>,
}

#[derive(Default)]
pub(crate) struct NameState {
    /// The kind of the name, as the last caller asked for it.
    pub(crate) kind: Kind,
    /// The queue of the name, as the last reply said. It predicts the form of the record.
    pub(crate) contention: Contention,
    /// How many attempts there are.
    pub(crate) attempts: u32,
    /// The local queues of the name, each with the length of its lease in milliseconds.
    pub(crate) queues: Vec<(u64, u64)>,
    /// When all waiters of the name were last asked to re-check.
    pub(crate) rallied_us: u64,
    /// The attempt that the store queued last.
    pub(crate) waiter: u64,
    watch: Option<Watch>,
    /// The attempts whose leases are being returned and may be in the way of an acquire. Of a mutex, that with the latest
    /// grant.
    pub(crate) going_back: Vec<u64>,
}

/// A lease that somebody else holds, and when to re-check its name.
#[derive(Clone, Copy)]
struct Watch {
    token: Token,
    /// When the lease ends. `u64::MAX`: the re-check for that is done.
    due_us: u64,
    /// When to re-check because the store said that the holder died or was revoked. A reply that was sent before that moves
    /// only `due_us`. `u64::MAX`: the store has said nothing.
    announced_us: u64,
    /// The alarm that is set for the first of them. It is earlier than both if the lease was lengthened since.
    alarm_us: u64,
    action: WatchAction,
}

/// The action when a watched lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchAction {
    /// A waiter of ours re-checks, if there is one. A re-check settles as well, and its reply says when to re-check again.
    /// A settle alone would find a lease that was renewed, and the waiter would miss the new end.
    Recheck,
    /// Only settle: a re-check would be refused, or there is more to settle.
    Settle,
}

/// The delay after the end of a lease. An earlier reply would say that the lease has not ended.
const SETTLED_US: u64 = 2_000;

/// Returns when to re-check after a lease of which `left_us` are left. Never before its end: the reply would be "nothing to
/// do", and nobody would ask again.
const fn after_us(now_us: u64, left_us: u64) -> u64 {
    now_us.saturating_add(left_us).saturating_add(left_us / 500 + SETTLED_US)
}

impl Names {
    pub(crate) fn get(&self, name: &Name) -> Option<&NameState> {
        self.states.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut NameState> {
        self.states.get_mut(name)
    }

    pub(crate) fn entry(&mut self, name: &Name) -> &mut NameState {
        self.states.entry(name.clone()).or_default()
    }

    pub(crate) fn guess(&self, name: &Name) -> Guess {
        self.get(name).map(|state| Guess { kind: state.kind, contention: state.contention }).unwrap_or_default()
    }

    pub(crate) fn set_contention(&mut self, name: &Name, contention: Contention) {
        if let Some(state) = self.get_mut(name) {
            state.contention = contention;
        }
    }

    /// Returns whether the session has an attempt for the name.
    pub(crate) fn is_wanted(&self, name: &Name) -> bool {
        self.get(name).is_some_and(|state| state.attempts > 0)
    }

    pub(crate) fn queue_of(&self, name: &Name, lease_ms: u64) -> Option<u64> {
        self.get(name)?.queues.iter().find(|(length_ms, _)| *length_ms == lease_ms).map(|(_, queue)| *queue)
    }

    /// Forgets a local queue that was closed.
    pub(crate) fn forget_queue(&mut self, name: &Name, number: u64) {
        if let Some(state) = self.get_mut(name) {
            state.queues.retain(|(_, other)| *other != number);
        }
        self.sweep(name);
    }

    /// Forgets a name of which nothing is known any more.
    pub(crate) fn sweep(&mut self, name: &Name) {
        let is_idle = |state: &NameState| state.attempts == 0 && state.watch.is_none() && state.queues.is_empty();
        if self.get(name).is_some_and(is_idle) {
            self.states.remove(name);
        }
    }

    /// Watches the lease with this token, of which `left_us` are left: one timer for each name, however many wait.
    pub(crate) fn watch(
        &mut self,
        agenda: &mut Agenda,
        (name, token): (&Name, Token),
        now_us: u64,
        left_us: u64,
        action: WatchAction,
    ) {
        let state = self.entry(name);
        // A statement about an earlier grant no longer matters.
        if state.watch.is_some_and(|watch| watch.token > token) {
            return;
        }
        let due_us = after_us(now_us, left_us);
        let (announced_us, alarm_us) =
            state.watch.map_or((u64::MAX, u64::MAX), |watch| (watch.announced_us, watch.alarm_us));
        state.watch = Some(Watch { token, due_us, announced_us, alarm_us, action });
        self.ring_at(agenda, name, due_us);
    }

    /// Re-checks the name `left_us` from now: the store says that the lease ends then, because its holder was revoked or
    /// has died. A re-check in flight may have been carried out before, and a reply that comes later may say an older end.
    pub(crate) fn recheck_in(&mut self, agenda: &mut Agenda, name: &Name, now_us: u64, left_us: u64) {
        let Some(state) = self.get_mut(name).filter(|state| state.attempts > 0) else { return };
        let at_us = after_us(now_us, left_us);
        let action = WatchAction::Recheck;
        let unknown = Watch { token: Token::NONE, due_us: at_us, announced_us: at_us, alarm_us: u64::MAX, action };
        let watch = state.watch.get_or_insert(unknown);
        watch.announced_us = watch.announced_us.min(at_us);
        self.ring_at(agenda, name, at_us);
    }

    fn ring_at(&mut self, agenda: &mut Agenda, name: &Name, at_us: u64) {
        let Some(watch) = self.get_mut(name).and_then(|state| state.watch.as_mut()) else { return };
        if at_us < watch.alarm_us {
            watch.alarm_us = at_us;
            agenda.names.set(at_us, name.clone());
        }
        agenda.wake_by(at_us);
    }

    /// Returns the names whose watched lease has ended, and what to do about each.
    pub(crate) fn ended_watches(&mut self, agenda: &mut Agenda, now_us: u64) -> Vec<(Name, WatchAction)> {
        let mut ended = Vec::new();
        while let Some((at_us, name)) = agenda.names.pop(now_us) {
            let Some(state) = self.get_mut(&name) else { continue };
            // An alarm of an earlier watch is dropped: this watch has its own. If it were set again, alarms would pile up.
            let Some(watch) = state.watch.as_mut().filter(|watch| watch.alarm_us == at_us) else { continue };
            let (is_announced, is_due) = (watch.announced_us <= now_us, watch.due_us <= now_us);
            let action = if is_announced { WatchAction::Recheck } else { watch.action };
            if is_announced {
                watch.announced_us = u64::MAX;
            }
            if is_due {
                watch.due_us = u64::MAX;
            }
            // A hand-over or a renewal may have moved the end to a later time since. Or the store has named another time,
            // which no reply in flight takes back.
            watch.alarm_us = watch.due_us.min(watch.announced_us);
            if watch.alarm_us < u64::MAX {
                agenda.names.set(watch.alarm_us, name.clone());
            } else {
                state.watch = None;
                self.sweep(&name);
            }
            if is_announced || is_due {
                ended.push((name, action));
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients take turns with a lock. Each hand-over ends a watch, and each re-check begins another one.
    #[test]
    fn alarms_of_former_watches_do_not_pile_up() {
        let (mut names, mut agenda, name) = (Names::default(), Agenda::new(), Name::new("name").unwrap());
        let (mut now_us, mut token) = (0, Token::NONE);
        for _ in 0..100 {
            for (left_us, later_us) in [(30_000_000, 10_000_000), (10_000_000, 11_000_000)] {
                token = token.plus(1);
                names.watch(&mut agenda, (&name, token), now_us, left_us, WatchAction::Recheck);
                now_us += later_us;
                names.ended_watches(&mut agenda, now_us);
            }
        }
        let left = std::iter::from_fn(|| agenda.names.pop(u64::MAX)).count();
        assert!(left <= 2, "{left} alarms are set");
    }
}
