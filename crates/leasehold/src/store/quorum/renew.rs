//! Renewals. A majority keeps the lease, or it is lost. Nodes that do not know the lease are filled.
//!
//! A node may have been unreachable when the lease was granted, or may have voted for an attempt that lost. At the next
//! renewal such a node votes for the holder: it is filled. So the next failure finds all votes in place. The vote of a
//! filled node does not count for this renewal: the node may have voted for others until then.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::node::{Renewal, Said, Vote};
use leasehold_spec::{Answer, LostHow, Name, Outcome, Renew};

use super::collect::{self, Reply, answer};
use super::fan::Fan;
use super::give_back;
use super::links::Links;
use super::node::NoVote;
use super::tally::{Ballot, RenewResult, Tally};
use super::timers::Due;
use crate::store::Fault;
use crate::world::Pending;

/// The longest time that a renewal waits for a majority. The session repeats it until the validity ends.
const WITHIN_MAX_US: u64 = 1_000_000;

pub(super) async fn renew(links: Arc<Links>, batch: Vec<(Name, Renew)>) -> Vec<Result<Answer, Fault>> {
    let begun_us = links.now_us();
    let mut tallies: Vec<Tally> = batch.iter().map(|_| Tally::new(links.shared.nodes())).collect();
    let mut asking: Vec<(usize, Pending<Vec<Ballot>>)> = Vec::new();
    for node in 0..links.shared.nodes() {
        match renew_at(&links, node, &batch) {
            Some(renewing) => asking.push((node, renewing)),
            None => tallies.iter_mut().for_each(|tally| tally.accept(node, Ballot::Silent)),
        }
    }
    let mut fan = Fan::of(asking);
    let shortest_ms = batch.iter().map(|(_, renew)| renew.lease_ms).min().unwrap_or(0);
    let within_us = (shortest_ms * 100).min(WITHIN_MAX_US).max(links.shared.timeout_us(u64::MAX));
    let mut deadline = std::pin::pin!(links.shared.timers.at(begun_us + within_us));
    while tallies.iter().any(|tally| tally.renewal().is_none()) {
        tokio::select! {
            biased;
            answer = fan.next() => match answer {
                Some((node, ballots)) => {
                    tallies.iter_mut().zip(ballots).for_each(|(tally, ballot)| tally.accept(node, ballot));
                }
                None => tallies.iter_mut().for_each(Tally::close),
            },
            () = &mut deadline => {
                tallies.iter_mut().for_each(|tally| collect::stop_waiting(&links, tally));
            }
        }
    }
    collect::finish(&links, fan);
    let each = batch.iter().zip(tallies);
    each.map(|((name, renew), tally)| conclude(&links, name, renew, &tally, begun_us)).collect()
}

/// Sends the renewals to one node. `None` if the node is not connected.
fn renew_at(links: &Arc<Links>, node: usize, batch: &[(Name, Renew)]) -> Option<Pending<Vec<Ballot>>> {
    let link = links.to(node)?;
    let now_us = links.now_us();
    // After this time the caller has given up. A later renewal could follow the release on another connection, and would
    // fill the node for no holder.
    let latest_us = now_us + WITHIN_MAX_US.max(links.shared.timeout_us(u64::MAX));
    let renewals: Vec<_> =
        batch.iter().map(|(name, renew)| (name.clone(), renewal(links, node, renew, (now_us, latest_us)))).collect();
    let (links, renewing) = (Arc::clone(links), link.renew(&renewals));
    Some(Box::pin(async move {
        let sent_us = links.now_us();
        let answers = renewing.await;
        let mut lost = Vec::new();
        let each = renewals.iter().zip(answers);
        let ballots = each.map(|((name, renewal), answer)| {
            match &answer {
                Ok(Vote { said: Said::Filled { .. }, .. }) => {
                    hit(Mark::NodeFilled);
                    return_fill_if_over(&links, node, name, renewal);
                }
                Err(NoVote::Fault(_)) if renewal.fill.is_some() && !is_on(Mutant::QForgetsLostVote) => {
                    return_fill_if_over(&links, node, name, renewal);
                    lost.push((name.clone(), renewal.clone()));
                }
                Ok(_) | Err(_) => {}
            }
            let vote_of = Some((renewal.id, renewal.token));
            Reply { links: &links, node, link: &link, name, vote_of, sent_us }.accept(answer)
        });
        let ballots = ballots.collect();
        if !lost.is_empty() {
            let late_us = latest_us + links.shared.timeout_us(u64::MAX);
            links.shared.timers.handle_at(late_us, Due::LateFills { node, renewals: lost });
        }
        ballots
    }))
}

fn renewal(links: &Links, node: usize, renew: &Renew, (now_us, latest_us): (u64, u64)) -> Renewal {
    let shared = &links.shared;
    let held = {
        let mut attempts = shared.attempts();
        attempts.note_asked(&renew.id, std::iter::once(node));
        attempts.renew(&renew.id, renew.token, now_us).cloned()
    };
    let (range, fill) = held.map_or((1, None), |held| (held.range, Some(held.label)));
    let not_after_us = shared.members[node].time_at(renew.not_after_us.min(latest_us), now_us).unwrap_or(0);
    // A node that forgets the lease is in quarantine for no longer than the longest lease.
    let lease_ms = renew.lease_ms.min(shared.charter.max_lease_ms);
    let (id, token, from) = (renew.id, renew.token, renew.from);
    Renewal { id, token, range, from, lease_ms, not_after_us, fill }
}

/// Gives the vote of a node back that is filled, or may be, if the attempt is over: a release has overtaken the renewal on
/// another connection.
fn return_fill_if_over(links: &Arc<Links>, node: usize, name: &Name, renewal: &Renewal) {
    if links.shared.attempts().held(&renewal.id).is_none() {
        hit(Mark::FillReturned);
        give_back::at_node(links, node, name, renewal.id, renewal.token);
    }
}

/// Does the same for renewals whose replies were lost, once the node refuses them as late. The node may have stood still:
/// then the release arrives on a new connection, and the node reads the renewal on the old one after that.
pub(super) fn return_fills_if_over(links: &Arc<Links>, node: usize, renewals: &[(Name, Renewal)]) {
    renewals.iter().for_each(|(name, renewal)| return_fill_if_over(links, node, name, renewal));
}

fn conclude(links: &Arc<Links>, name: &Name, renew: &Renew, tally: &Tally, begun_us: u64) -> Result<Answer, Fault> {
    let shared = &links.shared;
    let outcome = match tally.renewal().unwrap_or(RenewResult::TooFew) {
        RenewResult::Renewed { until_us } => {
            let nodes = shared.nodes();
            let until_us = shared.attempts().bound(&renew.id, renew.token, nodes, until_us, renew.lease_ms);
            let left_us = until_us.saturating_sub(begun_us).min(renew.lease_ms * 1000);
            Outcome::Renewed { left_us }
        }
        RenewResult::Lost(how) => {
            hit(Mark::LostByMajority);
            if how == LostHow::NotHeld && !shared.attempts().holds_another(&renew.id, renew.token) {
                // The remaining votes, and those of filled nodes, would block others.
                shared.attempts().lapse(&renew.id, renew.token);
                give_back::everywhere(links, name, renew.id, renew.token);
            }
            Outcome::Lost { how }
        }
        RenewResult::Late => {
            hit(Mark::KeptLate);
            Outcome::Late
        }
        RenewResult::TooFew => {
            hit(Mark::KeptTooFew);
            return Err(shared.undecided(tally));
        }
    };
    Ok(answer(begun_us, tally, outcome))
}
