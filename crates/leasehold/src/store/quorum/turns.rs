//! Whose turn it is: what brings an attempt that waits to its next round.
//!
//! A node that becomes free calls the first waiter. Called by a majority, the attempt asks at once; called by fewer, a
//! little later. Where nobody calls, because the calls were lost or the nodes do not agree who was first, it asks after a
//! random while.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::{Delivery, Event, GrantId, Name, Rest, Token};
use tokio::task::unconstrained;

use super::names::{Call, Turn, Waiting};
use super::places::Inner;
use super::round::{Asked, Refusal};
use crate::store::Message;

/// When to ask again where too few nodes vote.
const TOO_FEW_US: u64 = 250_000;
/// The shortest random while, and the longest.
pub(super) const WHILE_MIN_US: u64 = 2_000;
const WHILE_MAX_US: u64 = 500_000;

/// Marks an attempt as asking, for as long as it does: a caller's future can be dropped in a round.
pub(super) struct Asking<'a> {
    pub(super) inner: &'a Inner,
    pub(super) id: GrantId,
    pub(super) turn: Turn,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.inner.shared.names().waiting(&self.id) {
            waiting.end(self.turn);
        }
    }
}

impl Inner {
    /// A node calls an attempt of ours.
    pub(super) fn called(self: &Arc<Self>, node: usize, name: &Name, id: &GrantId) {
        let (majority, now_us) = (self.nodes() / 2 + 1, self.now_us());
        let call = {
            let mut names = self.shared.names();
            let is_live = names.is_live(id);
            names.waiting(id).map(|waiting| (waiting.call(node, majority), waiting.is_asking(now_us))).ok_or(is_live)
        };
        match call {
            Ok((Call::Majority, false)) => {
                hit(Mark::TurnCalled);
                self.take_turn(*id);
            }
            Ok((Call::First, false)) => self.set_alarm(id, now_us + self.shared.patience_us(u64::MAX)),
            // It is over: whoever is next shall not wait for it.
            Err(false) => {
                hit(Mark::CalledGone);
                self.give_back_at(node, name, *id, Token::HIGHEST);
            }
            Ok(_) | Err(true) => {}
        }
    }

    /// An alarm rings: the calls of the others were lost, or a random while is over.
    pub(super) fn alarm(self: &Arc<Self>, id: &GrantId, alarm: u64) {
        let now_us = self.now_us();
        let is_due =
            self.shared.names().waiting(id).is_some_and(|waiting| waiting.alarm == alarm && !waiting.is_asking(now_us));
        if is_due {
            hit(Mark::TurnByAlarm);
            self.take_turn(*id);
        }
    }

    /// A round of an attempt that waits.
    fn take_turn(self: &Arc<Self>, id: GrantId) {
        let inner = Arc::clone(self);
        let turn = unconstrained(async move { inner.turn(id).await });
        self.shared.spawn(Box::pin(turn));
    }

    async fn turn(self: Arc<Self>, id: GrantId) {
        let begun_us = self.now_us();
        let begin = |waiting: &mut Waiting| waiting.begin(begun_us, |lease_ms| self.turn_us(lease_ms), self.number);
        let Some((name, acquire, wait, turn)) = self.shared.names().waiting(&id).and_then(begin) else { return };
        let (asked, tally) = {
            let _asking = Asking { inner: &self, id, turn };
            self.rounds(&name, &acquire, Some(wait)).await
        };
        match asked {
            Asked::Won { token, range, until_us } => {
                let delivery = Delivery {
                    to: id.session,
                    now_us: begun_us.max(1),
                    contention: tally.contention(),
                    rest: Rest::Done,
                    id,
                    token,
                    left_us: until_us.saturating_sub(begun_us).min(acquire.lease_ms * 1000),
                    range,
                    event: Event::Granted,
                };
                self.tell(Message::Delivery(name, delivery));
            }
            Asked::Refused(refusal) => self.wait_for_turn(&id, Then::of(&refusal)),
            Asked::Full | Asked::TooFew | Asked::Again => self.wait_for_turn(&id, Then::TooFew),
        }
    }

    /// A round was lost: what brings the next one.
    pub(super) fn wait_for_turn(self: &Arc<Self>, id: &GrantId, then: Then) {
        let majority = self.nodes() / 2 + 1;
        let (calls, splits) = {
            let mut names = self.shared.names();
            let Some(waiting) = names.waiting(id) else { return };
            waiting.splits = if then == Then::Held { 0 } else { waiting.splits + 1 };
            (waiting.calls(), waiting.splits)
        };
        let now_us = self.now_us();
        match then {
            // They came while the round was under way.
            _ if calls >= majority => {
                hit(Mark::CalledInRound);
                self.set_alarm(id, now_us + self.random_while_us(splits));
            }
            Then::Held if calls > 0 => self.set_alarm(id, now_us + self.shared.patience_us(u64::MAX)),
            // The holder's release calls.
            Then::Held => {}
            // Whoever was called is at it, and its release calls in turn; to ask meanwhile is in its way. If nothing comes
            // of it, the word of that may be lost.
            Then::Called => {
                let while_us = self.random_while_us(splits);
                self.set_alarm(id, now_us + while_us.max(self.shared.patience_us(u64::MAX)));
            }
            Then::Split => self.set_alarm(id, now_us + self.random_while_us(splits)),
            Then::TooFew => self.set_alarm(id, now_us + TOO_FEW_US),
        }
    }

    /// It asks again at that moment, unless another alarm is set, or a round of it begins, by then.
    fn set_alarm(&self, id: &GrantId, at_us: u64) {
        if let Some(waiting) = self.shared.names().waiting(id) {
            waiting.alarm += 1;
            self.shared.timers.turn_at(at_us, *id, waiting.alarm);
        }
    }

    /// A random while, longer with each round that was lost: around the time of a round trip at first.
    pub(super) fn random_while_us(&self, lost: u32) -> u64 {
        let mut random = [0; 8];
        self.shared.world.random(&mut random);
        let about_us = (2 * self.shared.rtt_us()).max(WHILE_MIN_US) << lost.min(8);
        let about_us = about_us.min(WHILE_MAX_US);
        about_us / 2 + u64::from_ne_bytes(random) % about_us
    }
}

/// How a round was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Somebody holds.
    Held,
    /// Nobody does yet, and somebody was called.
    Called,
    /// Nobody does.
    Split,
    /// Too few nodes vote.
    TooFew,
}

impl Then {
    pub(super) fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal { is_held: true, .. } => Self::Held,
            Refusal { is_called: true, .. } => Self::Called,
            _ => Self::Split,
        }
    }
}
