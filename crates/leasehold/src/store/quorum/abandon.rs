//! Abandons rounds that were lost, and attempts that are over: their votes go back.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Request, Said, Wait};
use leasehold_spec::{GrantId, Name, Token};
use tokio::task::unconstrained;

use super::collect::{self, Question};
use super::fan::Fan;
use super::give_back;
use super::links::Links;
use super::tally::{Ballot, Tally};
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

    /// Gives the votes of the last of several rounds back. A node that has not answered yet is notified on the link that
    /// asked it.
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
            return nodes.into_iter().for_each(|node| give_back::at_node(links, node, name, id, upto));
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
                    give_back::at_node(&links, node, &name, id, upto);
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

/// Returns a vote that arrives after the end of its attempt. The release may have overtaken the request on another
/// connection. Then this is the only code that gives the vote back: otherwise the node would block others for a lease.
pub(super) fn return_if_over(
    links: &Arc<Links>,
    node: usize,
    name: &Name,
    (id, token): (GrantId, Token),
    asking: Pending<Ballot>,
) -> Pending<Ballot> {
    let (links, name) = (Arc::clone(links), name.clone());
    Box::pin(async move {
        let ballot = asking.await;
        let is_mine = matches!(&ballot, Ballot::Cast { vote, .. } if matches!(vote.said, Said::Granted { .. }));
        if is_mine && !links.shared.attempts().is_live(&id) && !links.has_released(&id) {
            hit(Mark::VotedGone);
            give_back::at_node(&links, node, &name, id, token);
        }
        ballot
    })
}
