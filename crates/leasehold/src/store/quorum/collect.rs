//! Sends a request to nodes, and collects their answers until enough have arrived.
//!
//! Each answer updates what this client knows of the node: its status, its clock, and the end of its vote.

use std::sync::Arc;

use leasehold_spec::limits::CALL_MS;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Abstention, Ask, Request, Said, Vote};
use leasehold_spec::{Answer, GrantId, Name, Outcome, Rest, Token};
use tokio::task::unconstrained;

use super::attempts::Attempts;
use super::fan::Fan;
use super::links::Links;
use super::member::NodeStatus;
use super::node::{NoVote, NodeLink};
use super::tally::{Ballot, Tally};
use crate::clock::Sample;
use crate::store::{Fault, Message};
use crate::world::Pending;

/// A question to all connected nodes, and the ballots that have arrived.
pub(super) struct Question {
    pub(super) links: Arc<Links>,
    pub(super) fan: Fan<Ballot>,
    pub(super) tally: Tally,
}

impl Question {
    /// Asks each node with its own request. A node without one counts as silent.
    pub(super) fn of(links: &Arc<Links>, mut request: impl FnMut(usize) -> Option<Pending<Ballot>>) -> Self {
        let mut tally = Tally::new(links.shared.nodes());
        let mut requests = Vec::new();
        for node in 0..links.shared.nodes() {
            match request(node) {
                Some(request) => requests.push((node, request)),
                None => tally.accept(node, Ballot::Silent),
            }
        }
        Self { links: Arc::clone(links), fan: Fan::of(requests), tally }
    }

    /// Collects ballots until the question is decided. After `within_us` the missing ballots count as silent.
    pub(super) async fn count<T>(&mut self, within_us: u64, decide: impl Fn(&Tally) -> Option<T>) -> Option<T> {
        match self.collect(self.links.now_us() + within_us, &decide).await {
            None => {
                stop_waiting(&self.links, &mut self.tally);
                decide(&self.tally)
            }
            decided => decided,
        }
    }

    /// Collects ballots until the question is decided. `None` at the deadline.
    pub(super) async fn collect<T>(&mut self, until_us: u64, decide: impl Fn(&Tally) -> Option<T>) -> Option<T> {
        let mut deadline = std::pin::pin!(self.links.shared.timers.at(until_us));
        loop {
            if let Some(decision) = decide(&self.tally) {
                return Some(decision);
            }
            tokio::select! {
                biased;
                answer = self.fan.next() => match answer {
                    Some((node, ballot)) => self.tally.accept(node, ballot),
                    None => self.tally.close(),
                },
                () = &mut deadline => return None,
            }
        }
    }

    /// Reads the late answers in the background, and returns the ballots.
    pub(super) fn finish(self) -> Tally {
        finish(&self.links, self.fan);
        self.tally
    }
}

/// Returns the answer to a request that was sent at `sent_us`, on our own clock: each node has a clock of its own.
pub(super) fn answer(sent_us: u64, tally: &Tally, outcome: Outcome) -> Answer {
    let highest = match outcome {
        Outcome::Granted { token, .. } => token,
        _ => tally.passed(),
    };
    Answer {
        now_us: sent_us.max(1),
        highest,
        contention: tally.contention(),
        rest: Rest::Done,
        handed_claim_ms: tally.has_called().then_some(CALL_MS),
        outcome,
    }
}

/// Counts the missing ballots as silent, and has these nodes checked.
pub(super) fn stop_waiting(links: &Links, tally: &mut Tally) {
    for node in tally.pending_nodes() {
        links.shared.members[node].set_status(NodeStatus::Silent);
        links.doubt(node);
    }
    tally.close();
}

/// Reads the late answers in the background: they contain the nodes' clocks, and late votes may have to go back.
pub(super) fn finish<T: Send + 'static>(links: &Arc<Links>, fan: Fan<T>) {
    if !fan.is_empty() {
        links.shared.spawn(finishing(links, fan));
    }
}

/// Sends these requests, and reads the answers in the background. The session's thread reads the answers on the session's
/// own link, even if the caller's runtime stands still.
pub(super) fn send<T: Send + 'static>(links: &Arc<Links>, mut fan: Fan<T>) {
    fan.poll();
    match links.is_home() {
        true if fan.is_empty() => {}
        true => links.shared.timers.run_at_home(finishing(links, fan)),
        false => finish(links, fan),
    }
}

fn finishing<T: Send + 'static>(links: &Arc<Links>, mut fan: Fan<T>) -> Pending<()> {
    let links = Arc::clone(links);
    Box::pin(unconstrained(async move {
        tokio::select! {
            biased;
            () = fan.finish() => {}
            // If the runtime of the link stands still, nobody reads the answers, and nobody sees the connection end. With
            // the next poll the requests see that the link is closed.
            () = links.closed() => fan.poll(),
        }
    }))
}

/// Sends a request to one node. `None` if the node is not connected.
pub(super) fn ask(links: &Arc<Links>, node: usize, name: &Name, request: &Request) -> Option<Pending<Ballot>> {
    let link = links.to(node)?;
    let (links, asking, name) = (Arc::clone(links), link.ask(name, request), name.clone());
    let vote_of = if let Request::Ask(Ask { id, token, .. }) = request { Some((*id, *token)) } else { None };
    Some(Box::pin(async move {
        let sent_us = links.now_us();
        let answer = asking.await;
        Reply { links: &links, node, link: &link, name: &name, vote_of, sent_us }.accept(answer)
    }))
}

pub(super) struct Reply<'a> {
    pub(super) links: &'a Arc<Links>,
    pub(super) node: usize,
    pub(super) link: &'a Arc<dyn NodeLink>,
    pub(super) name: &'a Name,
    /// The vote that the request asks for, or renews.
    pub(super) vote_of: Option<(GrantId, Token)>,
    pub(super) sent_us: u64,
}

impl Reply<'_> {
    /// Notes what the answer shows of the node, and returns it as a ballot.
    pub(super) fn accept(&self, answer: Result<Vote, NoVote>) -> Ballot {
        let (shared, heard_us) = (&self.links.shared, self.links.now_us());
        let member = &shared.members[self.node];
        match answer {
            Ok(mut vote) => {
                self.note_vote(&mut vote, heard_us);
                shared.note_token(self.name, vote.highest, heard_us);
                // A node in quarantine answers releases and inspections, too. That does not mean that it votes.
                member.set_status(match vote.said {
                    Said::Far => NodeStatus::ClockFar,
                    _ => NodeStatus::of(self.link.quarantine_until_us(), vote.now_us, heard_us),
                });
                Ballot::Cast { sent_us: self.sent_us, vote: Box::new(vote) }
            }
            Err(NoVote::Abstains(abstention)) => {
                member.set_status(NodeStatus::Abstains(abstention, heard_us));
                hit(if abstention == Abstention::Unmarked { Mark::NodeUnmarked } else { Mark::NodeRests });
                if abstention == Abstention::Unmarked {
                    self.link.close();
                    self.links.poke(self.node);
                }
                Ballot::Abstained
            }
            Err(NoVote::Fault(fault)) => {
                let is_gone = matches!(fault, Fault::Gone(_));
                if is_gone {
                    self.link.close();
                    self.links.poke(self.node);
                }
                let error = fault.error();
                // If the link was closed because the node was silent, the node keeps that status.
                if !(is_gone && matches!(member.status(), NodeStatus::Silent)) {
                    member.set_status(NodeStatus::Unreachable(error.to_string()));
                }
                Ballot::Failed(error.kind(), error.to_string())
            }
        }
    }

    /// Notes the node's clock, and until when the node keeps its vote. Both under one lock: if another answer shows that
    /// the clock has jumped, the jump comes before both notes or after both.
    fn note_vote(&self, vote: &mut Vote, heard_us: u64) {
        let Self { links, node, link, vote_of, sent_us, .. } = *self;
        let sample = Sample { sent_us, heard_us, server_us: vote.now_us };
        let mut attempts = links.shared.attempts();
        let shortened = note_clock(links, &mut attempts, node, link.run_id(), sample);
        if let Said::Granted { left_us, .. } | Said::Renewed { left_us } = &mut vote.said {
            let forward_us = links.shared.members[node].set_forward_since(link.run_id(), &sample);
            *left_us = left_us.saturating_sub(forward_us);
        }
        if let Some((id, asked)) = vote_of {
            match vote.said {
                Said::Granted { token, left_us, .. } => attempts.note_vote(&id, token, node, sent_us + left_us),
                Said::Renewed { left_us } => attempts.note_vote(&id, asked, node, sent_us + left_us),
                Said::Lost { .. } => attempts.note_vote(&id, asked, node, 0),
                _ => {}
            }
        }
        drop(attempts);
        notify_shortened(links, shortened, heard_us);
    }
}

/// Pings a node, and notes its clock. Returns whether it has answered.
pub(super) fn ping(links: &Arc<Links>, node: usize, link: Arc<dyn NodeLink>) -> Pending<bool> {
    let links = Arc::clone(links);
    Box::pin(async move {
        let sent_us = links.now_us();
        let Ok(server_us) = link.ping().await else { return false };
        let sample = Sample { sent_us, heard_us: links.now_us(), server_us };
        let shortened = note_clock(&links, &mut links.shared.attempts(), node, link.run_id(), sample);
        notify_shortened(&links, shortened, sample.heard_us);
        true
    })
}

type Shortened = Vec<(GrantId, Token, u64)>;

/// Notes a sample of a node's clock. If the clock was set forward, returns the grants that end earlier by that.
fn note_clock(links: &Links, attempts: &mut Attempts, node: usize, run_id: &str, sample: Sample) -> Option<Shortened> {
    let by_us = links.shared.members[node].sample(run_id, sample)?;
    hit(Mark::NodeJumped);
    Some(attempts.shorten(node, links.shared.nodes(), by_us))
}

/// Notifies the session that a clock was set forward. These grants end earlier, and the session re-checks all names.
fn notify_shortened(links: &Links, shortened: Option<Shortened>, since_us: u64) {
    let Some(shortened) = shortened else { return };
    for (id, token, until_us) in shortened {
        links.home.deliver(Message::Shortened { id, token, until_us, since_us });
    }
    links.home.deliver(Message::RecheckAll);
}
