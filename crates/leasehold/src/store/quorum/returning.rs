//! What is left at nodes of rounds that were not won, and of attempts that are over.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Request, Said, Wait};
use leasehold_spec::{GrantId, Name, Token};
use tokio::task::unconstrained;

use super::fan::Fan;
use super::places::Inner;
use super::round::{Ballot, Tally};
use crate::store::Message;
use crate::world::Pending;

/// A round that was not won, and where its attempt waits for the next one.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    pub(super) id: GrantId,
    /// What it proposed: a vote for a later one stays.
    pub(super) token: Token,
    pub(super) wait: Option<Wait>,
}

impl Inner {
    /// A vote that comes when the attempt is over already. What gave it back may have overtaken the request, by another
    /// connection, and nobody else would: the node would be in others' way for a whole lease.
    pub(super) fn returned_if_over(
        self: &Arc<Self>,
        node: usize,
        name: &Name,
        (id, token): (GrantId, Token),
        asking: Pending<Ballot>,
    ) -> Pending<Ballot> {
        let (inner, name) = (Arc::clone(self), name.clone());
        Box::pin(async move {
            let ballot = asking.await;
            let is_mine = matches!(&ballot, Ballot::Cast { vote, .. } if matches!(vote.said, Said::Granted { .. }));
            if is_mine && !inner.shared.names().is_live(&id) && !inner.has_given_back(&id) {
                hit(Mark::VotedGone);
                inner.give_back_at(node, &name, id, token);
            }
            ballot
        })
    }

    /// A round is lost: what was voted for it goes back, or waits, also where the answer is still to come.
    pub(super) fn lose(self: &Arc<Self>, name: &Name, lost: Lost, fan: Fan<Ballot>, tally: &Tally) {
        let (heard, late): (Vec<_>, Vec<_>) = tally.not_refused().into_iter().partition(|node| !tally.is_late(*node));
        self.stand_back(name, lost, heard);
        match late.is_empty() {
            true => self.finish(fan),
            false => self.stand_back_late(fan, name, lost, tally.clone()),
        }
    }

    /// Gives back what may have been voted for a lost round, and waits at those nodes. They have answered, so any link
    /// keeps the order. The session's link is used: the caller's runtime may be polled no longer.
    fn stand_back(self: &Arc<Self>, name: &Name, lost: Lost, nodes: Vec<usize>) {
        let home_link = self.by_home();
        let (home, own): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| home_link.link(*node).is_some());
        home_link.stand_back_by(name, lost, home);
        self.stand_back_by(name, lost, own);
    }

    /// Gives back after the last of several rounds. A node that has not answered yet is told on the link that asked it.
    pub(super) fn stand_back_after(self: &Arc<Self>, name: &Name, lost: Lost, tally: &Tally) {
        let (heard, late): (Vec<_>, Vec<_>) = tally.not_refused().into_iter().partition(|node| !tally.is_late(*node));
        self.stand_back(name, lost, heard);
        self.stand_back_by(name, lost, late);
    }

    /// Gives back, or waits, at these nodes by this link.
    fn stand_back_by(self: &Arc<Self>, name: &Name, lost: Lost, nodes: Vec<usize>) {
        let Lost { id, token: upto, wait } = lost;
        let Some(wait) = wait.filter(|_| self.shared.names().is_live(&id)) else {
            return nodes.into_iter().for_each(|node| self.give_back_at(node, name, id, upto));
        };
        self.shared.names().ask_at(&id, nodes.iter().copied());
        let stand_back = |node| -> Option<(usize, Pending<()>)> {
            // One that cannot be told is told by the attempt's next round, or by its end.
            let standing = self.ask(node, name, &Request::GiveBack { id, upto, wait: Some(wait) })?;
            let (inner, name) = (Arc::clone(self), name.clone());
            let standing = async move {
                standing.await;
                // Its leave can have overtaken this, on another connection.
                if !inner.shared.names().is_live(&id) {
                    hit(Mark::StoodBackGone);
                    inner.give_back_at(node, &name, id, upto);
                }
            };
            Some((node, Box::pin(standing)))
        };
        let mut fan = Fan::of(nodes.into_iter().filter_map(stand_back).collect::<Vec<_>>());
        fan.poll();
        match self.attached.get() {
            Some(_) => self.finish_at_home(fan),
            None => self.finish(fan),
        }
    }

    /// Gives back at nodes that have not answered yet, once they do: most of them refuse as well, and there is nothing to
    /// give back. If such a refusal says that a majority is free earlier than the session knows, the session is notified.
    /// Nobody reads the answers of a link that was closed because its runtime stands still: then all of these nodes are
    /// told.
    fn stand_back_late(self: &Arc<Self>, mut fan: Fan<Ballot>, name: &Name, lost: Lost, mut tally: Tally) {
        let (inner, late_name, id) = (Arc::clone(self), name.clone(), lost.id);
        let hear = async move {
            loop {
                let heard = tokio::select! {
                    biased;
                    heard = fan.next() => heard,
                    () = inner.closed() => break,
                };
                let Some((node, ballot)) = heard else { return };
                let is_refused =
                    matches!(&ballot, Ballot::Cast { vote, .. } if matches!(vote.said, Said::Refused { .. }));
                if let Some(at_us) = tally.free_earlier(node, ballot).filter(|_| lost.wait.is_some()) {
                    hit(Mark::FreeEarlier);
                    inner.shared.tell_home(Message::Ending { name: late_name.clone(), at_us });
                }
                let holds = inner.shared.names().held(&id).is_some();
                if !holds && (!is_refused || !inner.shared.names().is_live(&id)) {
                    hit(Mark::StoodBackLate);
                    inner.stand_back(&late_name, lost, vec![node]);
                }
            }
            if inner.shared.names().held(&id).is_none() {
                hit(Mark::StoodBackLate);
                inner.stand_back(&late_name, lost, fan.nodes().collect());
            }
        };
        self.shared.spawn(Box::pin(unconstrained(hear)));
    }
}
