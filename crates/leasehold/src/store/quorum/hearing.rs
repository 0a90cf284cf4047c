//! Asking nodes, and hearing them: what each answer says of its node, and when enough of them have come.

use std::sync::Arc;

use leasehold_spec::Name;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Abstention, Request, Said, Vote};
use tokio::task::unconstrained;

use super::fan::Fan;
use super::member::Standing;
use super::node::{NoVote, NodeLink};
use super::places::Inner;
use super::round::{Ballot, Tally};
use crate::clock::Sample;
use crate::error::ErrorKind;
use crate::store::{Fault, Message};
use crate::world::Pending;

impl Inner {
    /// Asks one node; `None` if it is not connected.
    pub(super) fn ask(self: &Arc<Self>, node: usize, name: &Name, request: &Request) -> Option<Pending<Ballot>> {
        let link = self.link(node)?;
        let (inner, asking, name) = (Arc::clone(self), link.ask(name, request), name.clone());
        Some(Box::pin(async move {
            let sent_us = inner.now_us();
            let said = asking.await;
            inner.heard(node, &link, &name, sent_us, said)
        }))
    }

    /// Asks all nodes. Those that are not connected have no vote.
    pub(super) fn ask_all(
        self: &Arc<Self>,
        name: &Name,
        tally: &mut Tally,
        request: impl Fn(usize) -> Request,
    ) -> Fan<Ballot> {
        let ask = |node| match self.ask(node, name, &request(node)) {
            Some(asking) => Some((node, asking)),
            None => {
                tally.hear(node, Ballot::Silent);
                None
            }
        };
        Fan::of((0..self.nodes()).filter_map(ask).collect::<Vec<_>>())
    }

    /// What a node's answer says of the node, and what it is worth.
    pub(super) fn heard(
        &self,
        node: usize,
        link: &Arc<dyn NodeLink>,
        name: &Name,
        sent_us: u64,
        said: Result<Vote, NoVote>,
    ) -> Ballot {
        let (member, heard_us) = (&self.shared.members[node], self.now_us());
        match said {
            Ok(mut vote) => {
                let sample = Sample { sent_us, heard_us, server_us: vote.now_us };
                if let Some(by_us) = member.sample(link.run(), sample) {
                    self.jumped(node, by_us);
                }
                if let Said::Granted { left_us, .. } | Said::Renewed { left_us } = &mut vote.said {
                    *left_us = left_us.saturating_sub(member.set_forward_since(link.run(), &sample));
                }
                self.shared.see(name, vote.highest, heard_us);
                // Who rests gives back and looks all the same, and has no vote by that.
                member.stand(match vote.said {
                    Said::Far => Standing::Far,
                    _ => Standing::of(link.rests_until_us(), vote.now_us, heard_us),
                });
                Ballot::Cast { sent_us, vote: Box::new(vote) }
            }
            Err(NoVote::Abstains(abstention)) => {
                member.stand(Standing::Abstains(abstention, heard_us));
                hit(if abstention == Abstention::Unmarked { Mark::NodeUnmarked } else { Mark::NodeRests });
                if abstention == Abstention::Unmarked {
                    link.close();
                    self.look_at(node);
                }
                Ballot::Abstained
            }
            Err(NoVote::Fault(fault)) => {
                let is_gone = matches!(fault, Fault::Gone(_));
                if is_gone {
                    link.close();
                    self.look_at(node);
                }
                let error = fault.error();
                // A link that was given up because nothing came is the silence's doing.
                if !(is_gone && matches!(member.standing(), Standing::Silent)) {
                    member.stand(Standing::Away(error.to_string()));
                }
                Ballot::Failed(error.kind(), error.to_string())
            }
        }
    }

    /// Hears out what is no longer waited for: the nodes' clocks, and what is to be done about late votes.
    pub(super) fn finish<T: Send + 'static>(&self, fan: Fan<T>) {
        if !fan.is_empty() {
            // Without a runtime nobody hears them: they were sent, and nothing depends on more.
            drop(self.shared.world.spawn(Box::pin(unconstrained(fan.finish()))));
        }
    }

    /// A round, to its end: heard until it is decided, or for so long.
    pub(super) async fn count<T>(
        &self,
        fan: &mut Fan<Ballot>,
        tally: &mut Tally,
        within_us: u64,
        decide: impl Fn(&Tally) -> Option<T>,
    ) -> Option<T> {
        let until_us = self.now_us() + within_us;
        match self.hear(fan, tally, until_us, &decide).await {
            None => {
                self.wait_no_longer(tally);
                decide(tally)
            }
            decided => decided,
        }
    }

    /// Hears a round until it is decided; `None` when time is up.
    pub(super) async fn hear<T>(
        &self,
        fan: &mut Fan<Ballot>,
        tally: &mut Tally,
        until_us: u64,
        decide: impl Fn(&Tally) -> Option<T>,
    ) -> Option<T> {
        let mut time_is_up = std::pin::pin!(self.shared.timers.at(until_us));
        loop {
            if let Some(decision) = decide(tally) {
                return Some(decision);
            }
            tokio::select! {
                biased;
                heard = fan.next() => match heard {
                    Some((node, ballot)) => tally.hear(node, ballot),
                    None => tally.close(),
                },
                () = &mut time_is_up => return None,
            }
        }
    }

    /// Who has not answered by now has no vote, and is looked after.
    pub(super) fn wait_no_longer(&self, tally: &mut Tally) {
        for node in tally.pending_nodes() {
            self.shared.members[node].stand(Standing::Silent);
            self.doubt(node);
        }
        tally.close();
    }

    /// What too few votes mean to whoever asked: mostly that there is no quorum; but what a majority says is wrong with the
    /// name, or with us, is wrong.
    pub(super) fn undecided(&self, tally: &Tally) -> Fault {
        Fault::Undecided(self.shared.too_few(common_failure(tally)))
    }

    /// Asks a node for its time. Answers whether it said it.
    pub(super) fn ping_node(self: &Arc<Self>, node: usize, link: Arc<dyn NodeLink>) -> Pending<bool> {
        let inner = Arc::clone(self);
        Box::pin(async move {
            let sent_us = inner.now_us();
            let Ok(server_us) = link.ping().await else { return false };
            let sample = Sample { sent_us, heard_us: inner.now_us(), server_us };
            if let Some(by_us) = inner.shared.members[node].sample(link.run(), sample) {
                inner.jumped(node, by_us);
            }
            true
        })
    }

    /// A node's clock was set forward, and leases end early there. What a majority keeps for less time than it said is
    /// believed for less, and all that is left is asked of all nodes.
    fn jumped(&self, node: usize, by_us: u64) {
        hit(Mark::NodeJumped);
        let shortened = self.shared.names().jump(node, self.nodes(), by_us);
        for (id, token, until_us) in shortened {
            self.shared.tell_home(Message::Shortened { id, token, until_us });
        }
        // What it stands for here is its effect: everything is looked at again.
        self.shared.tell_home(Message::Garbled);
    }
}

/// An error of a kind that a majority answers with, in the words of the first of them. That nodes cannot be reached is
/// nothing that is wrong with us.
fn common_failure(tally: &Tally) -> Option<(ErrorKind, String)> {
    let failed = tally.failed();
    let same = |kind: ErrorKind| failed.iter().filter(|(other, _)| *other == kind).count();
    let (kind, text) =
        failed.iter().find(|(kind, _)| *kind != ErrorKind::Unreachable && same(*kind) >= tally.majority())?;
    Some((*kind, text.clone()))
}
