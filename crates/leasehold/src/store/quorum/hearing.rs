//! Asking nodes, and hearing them: what each answer says of its node, and when enough of them have come.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Abstention, Ask, Request, Said, Vote};
use leasehold_spec::{GrantId, Name, Token};
use tokio::task::unconstrained;

use super::fan::Fan;
use super::member::Standing;
use super::names::Names;
use super::node::{NoVote, NodeLink};
use super::places::Inner;
use super::round::{Ballot, Tally};
use crate::clock::Sample;
use crate::error::ErrorKind;
use crate::store::{Fault, Message};
use crate::world::Pending;

/// What one node was asked, as its answer needs it.
pub(super) struct Question<'a> {
    pub(super) node: usize,
    pub(super) link: &'a Arc<dyn NodeLink>,
    pub(super) name: &'a Name,
    /// The vote that it is asked for, or to keep.
    pub(super) of: Option<(GrantId, Token)>,
    pub(super) sent_us: u64,
}

impl Inner {
    /// Asks one node; `None` if it is not connected.
    pub(super) fn ask(self: &Arc<Self>, node: usize, name: &Name, request: &Request) -> Option<Pending<Ballot>> {
        let link = self.link(node)?;
        let (inner, asking, name) = (Arc::clone(self), link.ask(name, request), name.clone());
        let of = if let Request::Ask(Ask { id, token, .. }) = request { Some((*id, *token)) } else { None };
        Some(Box::pin(async move {
            let sent_us = inner.now_us();
            let said = asking.await;
            inner.heard(&Question { node, link: &link, name: &name, of, sent_us }, said)
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
    pub(super) fn heard(&self, question: &Question<'_>, said: Result<Vote, NoVote>) -> Ballot {
        let Question { node, link, name, sent_us, .. } = *question;
        let (member, heard_us) = (&self.shared.members[node], self.now_us());
        match said {
            Ok(mut vote) => {
                self.note(question, &mut vote, heard_us);
                self.shared.see(name, vote.highest, heard_us);
                // Who rests gives back and looks all the same, and has no vote by that.
                member.stand(match vote.said {
                    Said::Far => Standing::Far,
                    _ => Standing::of(link.quarantine_until_us(), vote.now_us, heard_us),
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

    /// What a vote says of its node's clock, and until when the node keeps it. One step: a jump of that clock that another
    /// answer shows is known before all of it or behind all of it.
    fn note(&self, question: &Question<'_>, vote: &mut Vote, heard_us: u64) {
        let Question { node, link, of, sent_us, .. } = *question;
        let sample = Sample { sent_us, heard_us, server_us: vote.now_us };
        let mut names = self.shared.names();
        let shortened = self.sample(&mut names, node, link.run_id(), sample);
        if let Said::Granted { left_us, .. } | Said::Renewed { left_us } = &mut vote.said {
            *left_us = left_us.saturating_sub(self.shared.members[node].set_forward_since(link.run_id(), &sample));
        }
        if let Some((id, asked)) = of {
            match vote.said {
                Said::Granted { token, left_us, .. } => names.keeps(&id, token, node, sent_us + left_us),
                Said::Renewed { left_us } => names.keeps(&id, asked, node, sent_us + left_us),
                Said::Lost { .. } => names.keeps(&id, asked, node, 0),
                _ => {}
            }
        }
        drop(names);
        self.tell_shortened(shortened, heard_us);
    }

    /// Takes what an answer says of a node's clock. That was set forward: leases end as much earlier there, and a majority
    /// keeps these for less time than it said.
    fn sample(&self, names: &mut Names, node: usize, run: &str, sample: Sample) -> Option<Vec<(GrantId, Token, u64)>> {
        let by_us = self.shared.members[node].sample(run, sample)?;
        hit(Mark::NodeJumped);
        Some(names.jump(node, self.nodes(), by_us))
    }

    /// A clock was seen to be set forward: what is shortened by that is believed for less, and all that is left is asked of
    /// all nodes.
    fn tell_shortened(&self, shortened: Option<Vec<(GrantId, Token, u64)>>, since_us: u64) {
        let Some(shortened) = shortened else { return };
        for (id, token, until_us) in shortened {
            self.shared.tell_home(Message::Shortened { id, token, until_us, since_us });
        }
        self.shared.tell_home(Message::LookAtAll);
    }

    /// Hears out what is no longer waited for: the nodes' clocks, and what is to be done about late votes.
    pub(super) fn finish<T: Send + 'static>(self: &Arc<Self>, fan: Fan<T>) {
        if !fan.is_empty() {
            self.shared.spawn(self.finishing(fan));
        }
    }

    /// The same of what was sent by the session's link: its thread hears it, also where the caller's runtime stands still.
    pub(super) fn finish_at_home<T: Send + 'static>(self: &Arc<Self>, fan: Fan<T>) {
        if !fan.is_empty() {
            self.shared.leave(self.finishing(fan));
        }
    }

    fn finishing<T: Send + 'static>(self: &Arc<Self>, mut fan: Fan<T>) -> Pending<()> {
        let inner = Arc::clone(self);
        Box::pin(unconstrained(async move {
            tokio::select! {
                biased;
                () = fan.finish() => {}
                // If its runtime stands still, nobody reads the answers, and nobody sees the connection end. With the next
                // poll the requests see that the link is closed.
                () = inner.closed() => fan.poll(),
            }
        }))
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
            let shortened = inner.sample(&mut inner.shared.names(), node, link.run_id(), sample);
            inner.tell_shortened(shortened, sample.heard_us);
            true
        })
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
