//! Gives votes back: at one node or at all of them, and later at nodes that cannot be reached now.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::Wait;
use leasehold_spec::{GrantId, Name, Token};

use super::attempts::Traces;
use super::collect::{self, Question};
use super::fan::Fan;
use super::links::Links;
use super::member::Debt;
use super::tally::Ballot;
use crate::error::ErrorKind;
use crate::world::Pending;

/// Gives the votes of an attempt back at all nodes, up to this token. Does not wait for the answers.
pub(super) fn everywhere(links: &Arc<Links>, name: &Name, id: GrantId, upto: Token) {
    let traces = links.shared.attempts().traces(&id);
    let debt = votes(links, name, id, upto);
    let mut question = at_all(links, &debt, traces);
    question.fan.poll();
    question.finish();
}

/// Gives the votes of an attempt back at one node, up to this token. Does not wait for the answer.
pub(super) fn at_node(links: &Arc<Links>, node: usize, name: &Name, id: GrantId, upto: Token) {
    let traces = links.shared.attempts().traces(&id);
    let debt = votes(links, name, id, upto);
    collect::send(links, Fan::of(at(links, node, &debt, traces).map(|giving_back| (node, giving_back))));
}

fn votes(links: &Links, name: &Name, id: GrantId, upto: Token) -> Debt {
    Debt { name: name.clone(), id, upto, until_us: longest_lease_end_us(links), cools_until_us: 0 }
}

/// Returns the time at which every lease has ended that was granted before this call.
pub(super) fn longest_lease_end_us(links: &Links) -> u64 {
    links.now_us() + links.shared.charter.max_lease_ms * 1000
}

/// Gives a vote back at all nodes.
pub(super) fn at_all(links: &Arc<Links>, debt: &Debt, traces: Traces) -> Question {
    Question::of(links, |node| at(links, node, debt, traces))
}

/// Gives a vote back at one node. The attempt may ask for a larger token meanwhile, and keeps that vote. If the node cannot
/// be reached, the vote is remembered as a debt. A node that was never asked has no vote, and gets no debt: the number of
/// debts has a limit.
fn at(links: &Arc<Links>, node: usize, debt: &Debt, traces: Traces) -> Option<Pending<Ballot>> {
    if !traces.asked.has(node) && links.to(node).is_none() {
        return None;
    }
    pay(links, node, debt.clone(), traces.wait)
}

/// Pays the debts at a node that was reconnected, or that has refused a payment.
pub(super) fn pay_all(links: &Arc<Links>, node: usize) {
    if links.to(node).is_none() {
        return; // The node is gone again, or this link was closed meanwhile. Another link pays.
    }
    for debt in links.shared.members[node].debts.take(links.now_us()) {
        hit(Mark::OwedPaid);
        let wait = links.shared.attempts().traces(&debt.id).wait;
        let mut fan = Fan::of(pay(links, node, debt, wait).map(|paying| (node, paying)));
        fan.poll();
        collect::finish(links, fan);
    }
}

/// Pays one debt. The debt belongs to an earlier round: if the attempt waits again, it keeps its place in the queue.
///
/// The link may be closed because its runtime stands still. Then nobody reads the answer, and the debt must be paid again.
/// Closing the link does not wake this future, so its caller waits for the close, too.
fn pay(links: &Arc<Links>, node: usize, debt: Debt, wait: Option<Wait>) -> Option<Pending<Ballot>> {
    let request = debt.request(wait, links.now_us());
    let Some(mut paying) = collect::ask(links, node, &debt.name, &request) else {
        remember(links, node, debt);
        return None;
    };
    let links = Arc::clone(links);
    Some(Box::pin(async move {
        let closed = || Ballot::Failed(ErrorKind::Unreachable, "the connection was closed".into());
        let ballot = poll_fn(|context| match paying.as_mut().poll(context) {
            Poll::Pending if links.is_closed() => Poll::Ready(closed()),
            polled => polled,
        })
        .await;
        match ballot {
            Ballot::Cast { .. } if wait.is_none() || links.shared.attempts().is_live(&debt.id) => {}
            // The leave of the attempt may have overtaken this request on another connection.
            Ballot::Cast { .. } => at_node(&links, node, &debt.name, debt.id, debt.upto),
            _ => remember(&links, node, debt),
        }
        // The connection broke, and the connector may have replaced it and paid before this debt was remembered.
        if matches!(ballot, Ballot::Failed(ErrorKind::Unreachable, _)) {
            pay_all(&links, node);
        }
        ballot
    }))
}

fn remember(links: &Links, node: usize, debt: Debt) {
    hit(Mark::Owed);
    links.shared.members[node].debts.add(debt, links.now_us());
    // If the node is connected and has refused, its connector pays again.
    links.poke(node);
}
