//! Renewals: a majority keeps the lease, or it is lost; and nodes that do not know of it are told.
//!
//! A node that was away when the lease was granted, or that had given its vote to somebody who lost the round, gives it to
//! the holder at its next renewal, so that the next failure finds a full set. That vote does not count yet: until then the
//! node was somebody else's to have.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Renewal, Said, Vote};
use leasehold_spec::{Answer, LostHow, Name, Outcome, Renew};

use super::fan::Fan;
use super::hearing::Question;
use super::node::NoVote;
use super::places::Inner;
use super::round::{Ballot, Kept, Tally};
use crate::store::Fault;
use crate::world::Pending;

/// The longest that a renewal waits for a majority. It is repeated until the validity ends.
const WITHIN_MAX_US: u64 = 1_000_000;

impl Inner {
    pub(super) async fn renew(self: Arc<Self>, batch: Vec<(Name, Renew)>) -> Vec<Result<Answer, Fault>> {
        let begun_us = self.now_us();
        let mut tallies: Vec<Tally> = batch.iter().map(|_| Tally::new(self.nodes())).collect();
        let asking = (0..self.nodes()).filter_map(|node| Some((node, self.renew_at(node, &batch)?)));
        let asking: Vec<(usize, Pending<Vec<Ballot>>)> = asking.collect();
        for node in (0..self.nodes()).filter(|node| asking.iter().all(|(asked, _)| asked != node)) {
            tallies.iter_mut().for_each(|tally| tally.hear(node, Ballot::Silent));
        }
        let mut fan = Fan::of(asking);
        let shortest_ms = batch.iter().map(|(_, renew)| renew.lease_ms).min().unwrap_or(0);
        let within_us = (shortest_ms * 100).min(WITHIN_MAX_US).max(self.shared.patience_us(u64::MAX));
        let mut time_is_up = std::pin::pin!(self.shared.timers.at(begun_us + within_us));
        while tallies.iter().any(|tally| tally.kept().is_none()) {
            tokio::select! {
                biased;
                heard = fan.next() => match heard {
                    Some((node, ballots)) => {
                        tallies.iter_mut().zip(ballots).for_each(|(tally, ballot)| tally.hear(node, ballot));
                    }
                    None => tallies.iter_mut().for_each(Tally::close),
                },
                () = &mut time_is_up => {
                    tallies.iter_mut().for_each(|tally| self.wait_no_longer(tally));
                }
            }
        }
        self.finish(fan);
        let kept = |((name, renew), tally): (&(Name, Renew), Tally)| self.kept(name, renew, &tally, begun_us);
        batch.iter().zip(tallies).map(kept).collect()
    }

    fn kept(self: &Arc<Self>, name: &Name, renew: &Renew, tally: &Tally, begun_us: u64) -> Result<Answer, Fault> {
        let outcome = match tally.kept().unwrap_or(Kept::TooFew) {
            Kept::Renewed { until_us } => {
                let nodes = self.nodes();
                let until_us = self.shared.names().bound(&renew.id, renew.token, nodes, until_us, renew.lease_ms);
                let left_us = until_us.saturating_sub(begun_us).min(renew.lease_ms * 1000);
                Outcome::Renewed { left_us }
            }
            Kept::Lost(how) => {
                hit(Mark::LostByMajority);
                if how == LostHow::NotHeld && !self.holds_another(&renew.id, renew.token) {
                    // What is left of it, or was filled just now, is in others' way.
                    self.shared.names().lapse(&renew.id, renew.token);
                    self.give_back_everywhere(name, renew.id, renew.token);
                }
                Outcome::Lost { how }
            }
            Kept::Late => {
                hit(Mark::KeptLate);
                Outcome::Late
            }
            Kept::TooFew => {
                hit(Mark::KeptTooFew);
                return Err(self.undecided(tally));
            }
        };
        Ok(self.answer(begun_us, tally, outcome))
    }

    /// The renewals of one node; `None` if it is not connected.
    fn renew_at(self: &Arc<Self>, node: usize, batch: &[(Name, Renew)]) -> Option<Pending<Vec<Ballot>>> {
        let link = self.link(node)?;
        let now_us = self.now_us();
        let renewal = |(name, renew): &(Name, Renew)| {
            let held = {
                let mut names = self.shared.names();
                names.ask_at(&renew.id, std::iter::once(node));
                names.renew(&renew.id, renew.token, now_us).cloned()
            };
            let (range, fill) = held.map_or((1, None), |held| (held.range, Some(held.label)));
            let member = &self.shared.members[node];
            // Nobody waits for it any longer: behind the release, by another connection, it would fill the node for nobody.
            let latest_us = now_us + WITHIN_MAX_US.max(self.shared.patience_us(u64::MAX));
            let not_after_us = member.time_at(renew.not_after_us.min(latest_us), now_us).unwrap_or(0);
            // A node that forgets it rests for no longer than this.
            let lease_ms = renew.lease_ms.min(self.shared.charter.max_lease_ms);
            let (id, token, from) = (renew.id, renew.token, renew.from);
            (name.clone(), Renewal { id, token, range, from, lease_ms, not_after_us, fill })
        };
        let wanted: Vec<_> = batch.iter().map(renewal).collect();
        let (inner, asking) = (Arc::clone(self), link.renew(&wanted));
        Some(Box::pin(async move {
            let sent_us = inner.now_us();
            let said = asking.await;
            let each = wanted.iter().zip(said);
            each.map(|((name, renewal), said)| {
                inner.return_late_fill(node, name, renewal, &said);
                let of = Some((renewal.id, renewal.token));
                inner.heard(&Question { node, link: &link, name, of, sent_us }, said)
            })
            .collect()
        }))
    }

    /// A release can overtake a renewal, by another connection: what the node was filled with then goes back.
    fn return_late_fill(self: &Arc<Self>, node: usize, name: &Name, renewal: &Renewal, said: &Result<Vote, NoVote>) {
        let is_filled = matches!(said, Ok(Vote { said: Said::Filled { .. }, .. }));
        if is_filled {
            hit(Mark::NodeFilled);
        }
        if is_filled && self.shared.names().held(&renewal.id).is_none() {
            hit(Mark::FillReturned);
            self.give_back_at(node, name, renewal.id, renewal.token);
        }
    }
}
