//! A waiter in the queues of the nodes: calls and alarms begin its next rounds.
//!
//! A node that becomes free calls the first waiter. If a majority has called it, the waiter asks at once. If fewer nodes
//! have called it, the waiter asks a little later. If no node calls, because calls were lost or the nodes do not agree who
//! was first, the waiter asks after a random time.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::{Delivery, Event, GrantId, Name, Rest, Token};
use tokio::task::unconstrained;

use super::acquire::{self, series_us};
use super::attempts::{Call, Waiting};
use super::give_back;
use super::links::Links;
use super::schedule::{RoundEnd, schedule, set_alarm};
use super::tally::RoundResult;
use crate::store::Message;

/// Handles a node's call for an attempt of ours.
pub(super) fn called(links: &Arc<Links>, node: usize, name: &Name, id: &GrantId) {
    let (shared, now_us) = (&links.shared, links.now_us());
    let call = {
        let mut attempts = shared.attempts();
        let is_live = attempts.is_live(id);
        let waiting = attempts.waiting(id);
        waiting.map(|waiting| (waiting.call(node, shared.majority()), waiting.is_asking(now_us))).ok_or(is_live)
    };
    match call {
        Ok((Call::Majority, false)) => {
            hit(Mark::TurnCalled);
            ask_again(links, *id);
        }
        Ok((Call::First, false)) => set_alarm(shared, id, now_us + shared.timeout_us(u64::MAX)),
        // The attempt is over. The next waiter must not wait for it.
        Err(false) => {
            hit(Mark::CalledGone);
            give_back::at_node(links, node, name, *id, Token::HIGHEST);
        }
        Ok(_) | Err(true) => {}
    }
}

/// Handles an alarm: the other calls were lost, or the random time is over.
pub(super) fn alarm(links: &Arc<Links>, id: &GrantId, alarm: u64) {
    let now_us = links.now_us();
    let is_due = |waiting: &mut Waiting| waiting.alarm == alarm && !waiting.is_asking(now_us);
    let is_due = links.shared.attempts().waiting(id).is_some_and(is_due);
    if is_due {
        hit(Mark::TurnByAlarm);
        ask_again(links, *id);
    }
}

/// Begins more rounds of a waiter, in the background.
fn ask_again(links: &Arc<Links>, id: GrantId) {
    links.shared.spawn(Box::pin(unconstrained(rounds(Arc::clone(links), id))));
}

async fn rounds(links: Arc<Links>, id: GrantId) {
    let begun_us = links.now_us();
    let begin =
        |waiting: &mut Waiting| waiting.begin_next(begun_us, |lease_ms| series_us(&links, lease_ms), links.number);
    let begun = links.shared.attempts().waiting(&id).and_then(begin);
    let Some((name, acquire, wait, series)) = begun else { return };
    let (result, tally) = acquire::rounds(&links, &name, &acquire, Some((wait, series))).await;
    match result {
        RoundResult::Won { token, range, until_us } => {
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
            links.deliver(Message::Delivery(name, delivery));
        }
        RoundResult::Refused(refusal) => schedule(&links.shared, &id, refusal.into()),
        RoundResult::Full | RoundResult::TooFew | RoundResult::Again => {
            schedule(&links.shared, &id, RoundEnd::TooFew);
        }
    }
}
