//! Requests of operators, to all nodes: inspect, revoke, settle, and the list of names.

use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::node::{Request, Said};
use leasehold_spec::{Answer, Inspection, Name, Outcome, PublicId, Token};

use super::collect::{self, Question, answer};
use super::links::Links;
use super::member::NodeStatus;
use super::tally::Tally;
use crate::inspection::{NodeSays, NodeView};
use crate::store::Fault;

/// How long a majority may take for an answer. Only the caller waits for it.
const WITHIN_US: u64 = 1_000_000;

pub(super) async fn inspect(links: Arc<Links>, name: Name) -> Result<(Answer, Vec<NodeView>), Fault> {
    let begun_us = links.now_us();
    let tally = ask_all(&links, &name, &Request::Inspect, Tally::shows_enough).await;
    let seen = |said: &Said| if let Said::Inspected(seen) = said { Some(seen.clone()) } else { None };
    let views: Vec<Option<Inspection>> = tally.votes().map(|vote| seen(&vote?.1.said)).collect();
    if views.iter().flatten().count() < tally.majority() {
        return Err(links.shared.undecided(&tally));
    }
    let holder = tally.shown().cloned();
    let waiters = views.iter().flatten().map(|view| view.waiters).max().unwrap_or(0);
    let nodes = views.iter().enumerate().map(|(node, seen)| view(&links, node, seen.as_ref())).collect();
    Ok((answer(begun_us, &tally, Outcome::Inspected(Inspection::of_mutex(holder, waiters))), nodes))
}

fn view(links: &Links, node: usize, seen: Option<&Inspection>) -> NodeView {
    let (member, now_us) = (&links.shared.members[node], links.now_us());
    let status = member.status();
    let says = match (seen, status.quarantine_us(now_us)) {
        (_, Some(left_us)) => NodeSays::Resting { left: Duration::from_micros(left_us) },
        (Some(seen), None) => match seen.holder() {
            Some(holder) => NodeSays::Voted(holder.clone().into()),
            None => NodeSays::Free,
        },
        // The node was not connected yet when the others were asked.
        (None, None) if matches!(status, NodeStatus::Votes) => {
            NodeSays::Nothing { why: "is connected just now".into() }
        }
        (None, None) => NodeSays::Nothing { why: member.describe(now_us) },
    };
    NodeView::new(member.node.at(), says)
}

pub(super) async fn revoke(
    links: Arc<Links>,
    name: Name,
    holder: PublicId,
    token: Token,
    grace_ms: u64,
) -> Result<Answer, Fault> {
    let begun_us = links.now_us();
    let request = Request::Revoke { holder, token, grace_ms };
    // A majority of answers may not decide it: one node has marked the grant, and another one does not know it.
    let tally = ask_all(&links, &name, &request, |tally| tally.revoked().is_some()).await;
    let outcome = tally.revoked().ok_or_else(|| links.shared.undecided(&tally))?;
    Ok(answer(begun_us, &tally, outcome))
}

pub(super) async fn settle(links: Arc<Links>, name: Name) -> Result<Answer, Fault> {
    let begun_us = links.now_us();
    let tally = ask_all(&links, &name, &Request::Settle, Tally::shows_enough).await;
    Ok(answer(begun_us, &tally, Outcome::Settled))
}

/// Asks all nodes. Waits for enough answers, and for the others that answer in time.
async fn ask_all(links: &Arc<Links>, name: &Name, request: &Request, is_enough: impl Fn(&Tally) -> bool) -> Tally {
    let mut question = Question::of(links, |node| collect::ask(links, node, name, request));
    let all = |tally: &Tally| tally.pending_nodes().is_empty().then_some(());
    let enough = |tally: &Tally| if is_enough(tally) { Some(()) } else { all(tally) };
    let now_us = links.now_us();
    if question.collect(now_us + links.shared.timeout_us(u64::MAX), all).await.is_none() {
        question.collect(now_us + WITHIN_US, enough).await;
    }
    collect::stop_waiting(links, &mut question.tally);
    question.finish()
}

/// Returns a page of the names that any node has, one node after the other.
pub(super) async fn names(links: Arc<Links>, from: u64) -> Result<(Vec<Name>, u64), Fault> {
    let nodes = links.shared.nodes();
    let too_few = || Fault::Undecided(links.shared.no_majority());
    // A majority knows every lock that is held. Without a majority of voting nodes an empty list would prove nothing.
    let now_us = links.now_us();
    let may_vote = links.shared.members.iter().filter(|member| member.status().may_vote(now_us)).count();
    if from == 0 && may_vote < links.shared.majority() {
        return Err(too_few());
    }
    // The page number has the node in the lowest 4 bits, the number of skipped nodes in the next 4, and the node's own page
    // above. The page numbers of a server fit into half of 64 bits.
    let (mut node, mut skipped, mut page) = ((from & 15) as usize, from >> 4 & 15, from >> 8);
    let (mut names, mut next) = (Vec::new(), 0);
    while node < nodes && names.is_empty() {
        match links.to(node) {
            Some(link) => (names, next) = link.names(page).await?,
            None => skipped += 1,
        }
        if next != 0 {
            return Ok((names, next << 8 | skipped << 4 | node as u64));
        }
        (node, page) = (node + 1, 0);
    }
    match (node < nodes, skipped as usize > nodes / 2) {
        (true, _) => Ok((names, skipped << 4 | node as u64)),
        // The connections may have broken while no request was in flight. The skipped nodes may have been a majority.
        (false, true) => Err(too_few()),
        (false, false) => Ok((names, 0)),
    }
}
