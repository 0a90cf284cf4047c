//! The properties that must never be violated, and the states that a search must reach for its result to mean anything.

use stateright::Property;

use super::cluster::{Attempt, Cluster, Phase};
use super::node::{By, Node, has};
use super::scenes::{BEHIND, SMALLER, Scene, TWICE, TWO_HOLDERS};

pub(super) fn of(scene: &Scene) -> Vec<Property<Scene>> {
    let mut all = always();
    // If the same steps cause two violations, the search looks for the expected one.
    if let Some(harm) = scene.harm {
        all.retain(|property| property.name == harm);
        return all;
    }
    all.retain(|property| property.name != BEHIND || scene.watches);
    all.push(Property::sometimes("everybody was granted", |_, cluster: &Cluster| {
        cluster.attempts.iter().all(|attempt| attempt.granted().is_some())
    }));
    if scene.early_ends > 0 {
        all.push(Property::sometimes("a grant while another one was not given back", |_, cluster: &Cluster| {
            cluster.attempts.iter().filter(|one| matches!(one.phase, Phase::Held { .. })).count() > 1
        }));
    }
    if scene.losses > 0 {
        all.push(Property::sometimes("a vote of a node that had forgotten", |_, cluster: &Cluster| {
            cluster.nodes.iter().any(|node| node.has_forgotten && node.holder.is_some())
        }));
    }
    if scene.rounds > 1 {
        all.extend(of_rounds(scene));
    }
    if scene.renews {
        all.extend(of_renewals(scene));
    }
    all
}

fn always() -> Vec<Property<Scene>> {
    vec![
        Property::always(TWICE, |_, cluster: &Cluster| {
            cluster.pairs().all(|(a, b)| a.granted().is_none() || a.granted() != b.granted())
        }),
        Property::always(SMALLER, |_, cluster: &Cluster| {
            let tokens: Vec<_> = cluster.attempts.iter().map(Attempt::granted).collect();
            let is_above = |later: &Attempt, earlier: usize| {
                !has(later.after, earlier) || later.granted().is_none_or(|token| tokens[earlier] <= Some(token))
            };
            cluster.attempts.iter().all(|later| (0..tokens.len()).all(|earlier| is_above(later, earlier)))
        }),
        Property::always(TWO_HOLDERS, |scene: &Scene, cluster: &Cluster| {
            let holds = |one: &&Attempt| matches!(one.phase, Phase::Held { until } if until > cluster.tick);
            // Without clocks a lease ends early or not at all.
            (scene.timing.is_none() && scene.early_ends > 0) || cluster.attempts.iter().filter(holds).count() <= 1
        }),
        Property::always(BEHIND, |_, cluster: &Cluster| cluster.attempts.iter().all(|attempt| !attempt.went_on)),
    ]
}

fn of_rounds(scene: &Scene) -> Vec<Property<Scene>> {
    let mut all = vec![Property::sometimes("a grant in a later round", |_, cluster: &Cluster| {
        cluster.attempts.iter().any(|attempt| attempt.rounds > 1 && attempt.granted().is_some())
    })];
    all.push(Property::sometimes("a vote for an earlier round than the one that was won", |_, cluster: &Cluster| {
        let is_earlier = |node: &Node| {
            node.holder.is_some_and(|holder| {
                let known = &cluster.attempts[holder.attempt];
                matches!(known.phase, Phase::Held { .. }) && holder.token < known.token
            })
        };
        cluster.nodes.iter().any(is_earlier)
    }));
    if scene.withdraws {
        all.push(Property::sometimes("a round that is given back late", |_, cluster: &Cluster| {
            let is_late = |(at, known): (usize, &Attempt)| {
                let is_under_way = |node: &Node| node.withdrawn().any(|(by, token)| by == at && token < known.token);
                matches!(known.phase, Phase::Held { .. }) && cluster.nodes.iter().all(is_under_way)
            };
            cluster.attempts.iter().enumerate().any(is_late)
        }));
    }
    all.push(Property::sometimes("a vote in place of an earlier round's", |_, cluster: &Cluster| {
        cluster.nodes.iter().any(|node| node.holder.is_some_and(|holder| holder.by == By::AskingAgain))
    }));
    all
}

fn of_renewals(scene: &Scene) -> Vec<Property<Scene>> {
    let mut all = vec![
        Property::sometimes("a free node that has voted for more than a holder's token", |_, cluster: &Cluster| {
            let is_behind = |known: &Attempt| {
                matches!(known.phase, Phase::Held { .. })
                    && cluster.nodes.iter().any(|node| node.holder.is_none() && node.highest > known.token)
            };
            cluster.attempts.iter().any(is_behind)
        }),
        Property::sometimes("a fill whose holder has given back", |_, cluster: &Cluster| {
            let is_late = |node: &Node| {
                node.holder.is_some_and(|holder| {
                    holder.by == By::Renewing && cluster.attempts[holder.attempt].phase == Phase::GivenBack
                })
            };
            cluster.nodes.iter().any(is_late)
        }),
    ];
    if scene.timing.is_some() {
        all.push(Property::sometimes("a lease that is longer by a vote that was filled", |scene: &Scene, cluster| {
            let lease = scene.timing.map_or(0, |timing| timing.lease);
            let counts = |node: &Node| {
                node.holder.is_some_and(|holder| {
                    let Phase::Held { until } = cluster.attempts[holder.attempt].phase else { return false };
                    holder.by == By::Renewing && node.ends[holder.attempt] >= until && until > lease
                })
            };
            cluster.nodes.iter().any(counts)
        }));
    }
    if scene.losses > 0 {
        all.push(Property::sometimes("a fill at a node that had forgotten", |_, cluster: &Cluster| {
            let is_filled = |node: &Node| node.holder.is_some_and(|holder| holder.by == By::Renewing);
            cluster.nodes.iter().any(|node| node.has_forgotten && is_filled(node))
        }));
    }
    all
}
