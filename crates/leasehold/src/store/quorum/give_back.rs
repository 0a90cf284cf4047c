//! Gives votes back: of lost rounds, and of attempts that are over. Unreachable nodes get them back later.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::node::{Request, Said, Wait};
use leasehold_spec::{GrantId, Name, Token};
use tokio::task::unconstrained;

use super::attempts::{Nodes, Traces};
use super::collect::{self, Question};
use super::fan::Fan;
use super::links::Links;
use super::member::PendingReturn;
use super::runs::Pause;
use super::tally::{Ballot, Tally};
use crate::error::ErrorKind;
use crate::store::Message;
use crate::world::Pending;

/// A round that was lost. The attempt may wait for the next round.
#[derive(Clone)]
pub(super) struct LostRound {
    pub(super) name: Name,
    pub(super) id: GrantId,
    /// The proposed token. A vote for a later token stays.
    pub(super) token: Token,
    /// The place of the attempt in the queues, if it waits.
    pub(super) wait: Option<Wait>,
}

impl LostRound {
    /// Gives the votes back, or waits at the nodes, and returns the ballots. Late answers are handled when they arrive.
    pub(super) fn abandon(self, question: Question) -> Tally {
        let Question { links, fan, tally } = question;
        let (answered, late) = self.not_refused(&tally);
        self.withdraw(&links, answered);
        match late.is_empty() {
            true => collect::finish(&links, fan),
            false => self.withdraw_late(&links, fan, tally.clone()),
        }
        tally
    }

    /// Gives the votes of the last of several rounds back. Late nodes are notified on the link that asked them.
    pub(super) fn abandon_last(&self, links: &Arc<Links>, tally: &Tally) {
        let (answered, late) = self.not_refused(tally);
        self.withdraw(links, answered);
        self.withdraw_by(links, late);
    }

    /// Returns the nodes that may have voted: those that have answered, and those that have not.
    fn not_refused(&self, tally: &Tally) -> (Vec<usize>, Vec<usize>) {
        tally.not_refused().into_iter().partition(|node| !tally.is_late(*node))
    }

    /// Gives the votes of these nodes back, and waits at the nodes. They have answered, so any link keeps the order. The
    /// session's link is preferred: the caller's runtime may not be polled any more.
    fn withdraw(&self, links: &Arc<Links>, nodes: Vec<usize>) {
        let home = links.home();
        let (by_home, by_links): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| home.to(*node).is_some());
        self.withdraw_by(&home, by_home);
        self.withdraw_by(links, by_links);
    }

    /// Gives the votes of these nodes back by this link, and waits at the nodes.
    fn withdraw_by(&self, links: &Arc<Links>, nodes: Vec<usize>) {
        let Self { ref name, id, token: upto, wait } = *self;
        let Some(wait) = wait.filter(|_| links.shared.attempts().is_live(&id)) else {
            return nodes.into_iter().for_each(|node| at_node(links, node, name, id, upto));
        };
        links.shared.attempts().note_asked(&id, nodes.iter().copied());
        let withdraw = |node| -> Option<(usize, Pending<()>)> {
            // A node that is not connected is notified by the next round of the attempt, or by its end.
            let waiting = collect::ask(links, node, name, &Request::GiveBack { id, upto, wait: Some(wait) })?;
            let (links, name) = (Arc::clone(links), name.clone());
            let waiting = async move {
                waiting.await;
                // The leave of the attempt may have overtaken this request on another connection.
                if !links.shared.attempts().is_live(&id) {
                    hit(Mark::StoodBackGone);
                    at_node(&links, node, &name, id, upto);
                }
            };
            Some((node, Box::pin(waiting)))
        };
        collect::send(links, Fan::of(nodes.into_iter().filter_map(withdraw).collect::<Vec<_>>()));
    }

    /// Gives the votes of late nodes back once they answer. Most of them refuse, and then there is no vote. If such a
    /// refusal shows that a majority is free earlier than the session knows, the session is notified. If the link is closed
    /// because its runtime stands still, nobody reads the answers: then all of these nodes are notified.
    fn withdraw_late(self, links: &Arc<Links>, mut fan: Fan<Ballot>, mut tally: Tally) {
        let (links, id) = (Arc::clone(links), self.id);
        let shared = Arc::clone(&links.shared);
        let withdraw = async move {
            loop {
                let answer = tokio::select! {
                    biased;
                    answer = fan.next() => answer,
                    () = links.closed() => break,
                };
                let Some((node, ballot)) = answer else { return };
                let is_refused =
                    matches!(&ballot, Ballot::Cast { vote, .. } if matches!(vote.said, Said::Refused { .. }));
                if let Some(at_us) = tally.free_earlier(node, ballot).filter(|_| self.wait.is_some()) {
                    hit(Mark::FreeEarlier);
                    links.home.deliver(Message::Ending { name: self.name.clone(), at_us });
                }
                let holds = links.shared.attempts().held(&id).is_some();
                if !holds && (!is_refused || !links.shared.attempts().is_live(&id)) {
                    hit(Mark::StoodBackLate);
                    self.withdraw(&links, vec![node]);
                }
            }
            if links.shared.attempts().held(&id).is_none() {
                hit(Mark::StoodBackLate);
                self.withdraw(&links, fan.nodes().collect());
            }
        };
        shared.spawn(Box::pin(unconstrained(withdraw)));
    }
}

/// Why an attempt asks a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// For a round. If the attempt is over, the round gives its votes back.
    InRound,
    /// For a lease that it holds already.
    WhileHeld,
}

/// If the attempt is over, gives its vote back when the vote arrives, or when its reply is lost. The release may have
/// overtaken the request on another connection. Then this is the only code that gives the vote back: otherwise the node
/// would block others for a lease. While the attempt holds, its release may overtake the request on the same connection as
/// well.
pub(super) fn return_if_over(
    links: &Arc<Links>,
    node: usize,
    name: &Name,
    (id, token, asks): (GrantId, Token, Asks),
    asking: Pending<Ballot>,
) -> Pending<Ballot> {
    let (links, name) = (Arc::clone(links), name.clone());
    Box::pin(async move {
        let ballot = asking.await;
        let may_be_vote = match &ballot {
            Ballot::Cast { vote, .. } => matches!(vote.said, Said::Granted { .. }),
            Ballot::Failed(..) => !is_on(Mutant::QForgetsLostVote),
            Ballot::Pending | Ballot::Silent => true,
            Ballot::Abstained => false,
        };
        // The release has followed the request on the same connection, unless that broke.
        let is_answered = matches!(ballot, Ballot::Cast { .. });
        let is_returned = asks == Asks::InRound && is_answered && links.has_released(&id);
        if may_be_vote && !is_returned && !links.shared.attempts().is_live(&id) {
            hit(Mark::VotedGone);
            at_node(&links, node, &name, id, token);
        }
        ballot
    })
}

/// Gives the votes of an attempt back at all nodes, up to this token. Does not wait for the answers.
pub(super) fn everywhere(links: &Arc<Links>, name: &Name, id: GrantId, upto: Token) {
    if links.shared.releases.defer(&id, Nodes::ALL) {
        return;
    }
    let traces = links.shared.attempts().traces(&id);
    let pending = return_of(links, name, id, upto);
    let mut question = at_all(links, &pending, traces);
    question.fan.poll();
    question.finish();
}

/// Gives the votes of an ended attempt back at the nodes that are connected, once more: they call the next waiter. Does not
/// wait for the answers.
pub(super) fn at_connected(links: &Arc<Links>, name: &Name, id: GrantId) {
    let request = Request::GiveBack { id, upto: Token::HIGHEST, wait: None };
    let asking = |node| Some((node, collect::ask(links, node, name, &request)?));
    collect::send(links, Fan::of((0..links.shared.nodes()).filter_map(asking).collect::<Vec<_>>()));
}

/// Gives the votes of an attempt back at one node, up to this token. Does not wait for the answer.
pub(super) fn at_node(links: &Arc<Links>, node: usize, name: &Name, id: GrantId, upto: Token) {
    if links.shared.releases.defer(&id, Nodes::of(std::iter::once(node))) {
        return;
    }
    let traces = links.shared.attempts().traces(&id);
    let pending = return_of(links, name, id, upto);
    collect::send(links, Fan::of(at(links, node, &pending, traces).map(|giving_back| (node, giving_back))));
}

/// Returns what an attempt owes a node that may have voted for it, up to this token.
pub(super) fn return_of(links: &Links, name: &Name, id: GrantId, upto: Token) -> PendingReturn {
    let cools_until_us = links.shared.releases.cools_until_us(&id);
    // Every lease that was granted before this call has ended by then. A return with a longer cool-down stays pending
    // until its end: the node keeps the vote until then.
    let until_us = (links.now_us() + links.shared.charter.max_lease_ms * 1000).max(cools_until_us);
    PendingReturn { name: name.clone(), id, upto, until_us, cools_until_us }
}

/// Gives the votes of an attempt back at all nodes.
pub(super) fn at_all(links: &Arc<Links>, pending: &PendingReturn, traces: Traces) -> Question {
    Question::of(links, |node| at(links, node, pending, traces))
}

/// Gives the votes of an attempt back in a pause, at the nodes that it asked. Other nodes need no pause.
pub(super) fn pause(links: &Arc<Links>, pending: &PendingReturn, asked: Nodes, Pause { notice_ms }: Pause) -> Question {
    let request = Request::Pause { id: pending.id, upto: pending.upto, notice_ms };
    Question::of(links, |node| if asked.has(node) { send_as(links, node, pending.clone(), &request) } else { None })
}

/// Gives a vote back at one node. The attempt keeps a later vote for a larger token. If the node cannot be reached, the
/// return stays pending. A node that was never asked gets no pending return: their number has a limit.
fn at(links: &Arc<Links>, node: usize, pending: &PendingReturn, traces: Traces) -> Option<Pending<Ballot>> {
    if links.to(node).is_none() && !traces.asked.has(node) {
        return None;
    }
    send_return(links, node, pending.clone(), traces.wait)
}

/// Sends the pending returns to a node that was reconnected, or that has refused one.
pub(super) fn send_pending(links: &Arc<Links>, node: usize) {
    if links.to(node).is_none() {
        return; // The node is gone again, or this link was closed meanwhile. Another link sends them.
    }
    for pending in links.shared.members[node].returns.take(links.now_us()) {
        hit(Mark::OwedPaid);
        let wait = links.shared.attempts().traces(&pending.id).wait;
        let mut fan = Fan::of(send_return(links, node, pending, wait).map(|returning| (node, returning)));
        fan.poll();
        collect::finish(links, fan);
    }
}

/// Gives one vote back. The vote belongs to an earlier round: if the attempt waits again, it keeps its place in the queue.
fn send_return(links: &Arc<Links>, node: usize, pending: PendingReturn, wait: Option<Wait>) -> Option<Pending<Ballot>> {
    let request = pending.request(wait, links.now_us());
    send_as(links, node, pending, &request)
}

/// Gives one vote back by this request.
///
/// The link may be closed because its runtime stands still. Then nobody reads the answer, and the vote must be given back
/// again. Closing the link does not wake this future, so its caller waits for the close, too.
fn send_as(links: &Arc<Links>, node: usize, pending: PendingReturn, request: &Request) -> Option<Pending<Ballot>> {
    let keeps_place = matches!(request, Request::GiveBack { wait: Some(_), .. });
    let Some(mut returning) = collect::ask(links, node, &pending.name, request) else {
        remember(links, node, pending);
        return None;
    };
    let links = Arc::clone(links);
    Some(Box::pin(async move {
        let closed = || Ballot::Failed(ErrorKind::Unreachable, "the connection was closed".into());
        let ballot = poll_fn(|context| match returning.as_mut().poll(context) {
            Poll::Pending if links.is_closed() => Poll::Ready(closed()),
            polled => polled,
        })
        .await;
        match ballot {
            Ballot::Cast { .. } if !keeps_place || links.shared.attempts().is_live(&pending.id) => {}
            // The leave of the attempt may have overtaken this request on another connection.
            Ballot::Cast { .. } => at_node(&links, node, &pending.name, pending.id, pending.upto),
            _ => remember(&links, node, pending),
        }
        // The connection broke. The connector may have replaced it, and sent the pending returns before this one was added.
        if matches!(ballot, Ballot::Failed(ErrorKind::Unreachable, _)) {
            send_pending(&links, node);
        }
        ballot
    }))
}

fn remember(links: &Links, node: usize, pending: PendingReturn) {
    hit(Mark::Owed);
    links.shared.members[node].returns.add(pending, links.now_us());
    // If the node is connected and has refused, its connector sends it again.
    links.poke(node);
}
