//! The properties that must never be violated, and the states that a search must reach for its result to mean anything.

use leasehold_spec::limits::GRANTS_MAX;
use leasehold_spec::{GrantState, Kind};
use stateright::Property;

use super::cases::{Harm, Play};
use super::pool::Pool;
use super::session::{Attempt, Phase, Session, UPGRADE};
use crate::models::scene::TICK_MS;
use crate::models::server::grant_id;

pub(super) fn of(play: &Play) -> Vec<Property<Play>> {
    // A failover forgets holders and tokens.
    let mut all = if play.scene.budget.failovers > 0 { after_a_failover() } else { always() };
    if let Some(harm) = play.watch {
        all.retain(|property| property.name == harm.name());
        return all;
    }
    all.extend(sometimes(play));
    all
}

fn always() -> Vec<Property<Play>> {
    vec![
        Property::always(Harm::WriterBesideOthers.name(), |_, pool: &Pool| {
            let writes = pool.inside().any(|(_, units)| units == GRANTS_MAX);
            !writes || pool.inside().count() == 1
        }),
        Property::always(Harm::TooManyUnits.name(), |_, pool: &Pool| {
            let newest = pool.inside().max_by_key(|(attempt, _)| attempt.inside(pool.tick));
            let units: u32 = pool.inside().map(|(_, units)| units).sum();
            newest.is_none_or(|(attempt, _)| pool.store.kind == Kind::ReadWrite || units <= attempt.allowed)
        }),
        Property::always(Harm::TokenFalls.name(), |_, pool: &Pool| !pool.has(Harm::TokenFalls)),
        Property::always(Harm::FittingWaits.name(), |_, pool: &Pool| !pool.has(Harm::FittingWaits)),
        Property::always(Harm::DeadWaits.name(), |_, pool: &Pool| !pool.has(Harm::DeadWaits)),
        Property::always(Harm::OtherEnters.name(), |_, pool: &Pool| !pool.has(Harm::OtherEnters)),
        Property::always(Harm::Ghost.name(), |_, pool: &Pool| !pool.has(Harm::Ghost)),
        Property::always(Harm::Shorter.name(), |_, pool: &Pool| !pool.has(Harm::Shorter)),
        Property::always(Harm::LostTooEarly.name(), |_, pool: &Pool| !pool.has(Harm::LostTooEarly)),
        Property::always(Harm::ReadGrantGone.name(), |_, pool: &Pool| {
            let is_gone = |(s, session): (u8, &Session)| {
                let reads = session.gave_up && session.attempts[0].inside(pool.tick).is_some();
                reads && !pool.lives(pool.store.grants.get(grant_id(s, 0)))
            };
            !(0..).zip(&pool.sessions).any(is_gone)
        }),
        Property::always(Harm::WritesAgain.name(), |_, pool: &Pool| {
            pool.inside().all(|(attempt, units)| !attempt.is_lowered || units < attempt.take.units)
        }),
        Property::always(Harm::NeverFits.name(), |_, pool: &Pool| {
            pool.store.queue.front().is_none_or(|head| head.units <= pool.store.limit)
        }),
        Property::always(Harm::Undone.name(), |_, pool: &Pool| !pool.has(Harm::Undone)),
    ]
}

fn after_a_failover() -> Vec<Property<Play>> {
    let concerns = |harm: Harm| move |property: &Property<Play>| property.name == harm.name();
    let mut all: Vec<_> = always().into_iter().filter(concerns(Harm::FittingWaits)).collect();
    all.push(Property::always(Harm::HeldByNobody.name(), |play: &Play, pool: &Pool| {
        let claim_us = u64::from(play.scene.claim) * TICK_MS * 1000;
        let stays = |(s, session): (u8, &Session)| {
            let is_under_way = !session.out.is_empty() || !session.back.is_empty();
            (0..).zip(&session.attempts).any(|(n, attempt)| {
                let grant = pool.store.grants.get(grant_id(s, n));
                let lasts = grant.is_some_and(|grant| grant.end_us() > pool.clock_us() + claim_us);
                attempt.phase == Phase::Over && lasts && !is_under_way
            })
        };
        !(0..).zip(&pool.sessions).any(stays)
    }));
    all
}

fn holds(attempt: Option<&Attempt>) -> bool {
    attempt.is_some_and(|attempt| matches!(attempt.phase, Phase::Holding { .. }))
}

fn sometimes(play: &Play) -> Vec<Property<Play>> {
    let sessions = play.scene.sessions;
    let mut all = Vec::new();
    let share = sessions.iter().filter_map(|does| does.take).filter(|take| !take.is_exclusive()).count();
    if share > 1 {
        all.push(Property::sometimes("two inside", |_, pool: &Pool| pool.inside().count() > 1));
    }
    if sessions.iter().any(|does| does.upgrades) {
        all.push(Property::sometimes("an upgrade that waited was granted", |_, pool: &Pool| {
            let upgrades = (0..).zip(&pool.sessions).map(|(s, _)| pool.store.grants.get(grant_id(s, UPGRADE)));
            upgrades.flatten().any(|grant| grant.state == GrantState::Pushed)
        }));
    }
    if sessions.iter().any(|does| does.stops) {
        all.push(Property::sometimes("a reader that gave its upgrade up", |_, pool: &Pool| {
            pool.sessions.iter().any(|session| session.gave_up && holds(session.attempts.first()))
        }));
        all.push(Property::sometimes(
            "an upgrade that was granted to a caller that stops waiting",
            |_, pool: &Pool| {
                let is_late = |(s, session): (u8, &Session)| {
                    let stops = session.attempts.get(UPGRADE as usize).is_some_and(|up| up.phase == Phase::Stopping);
                    stops && pool.store.grants.get(grant_id(s, UPGRADE)).is_some()
                };
                (0..).zip(&pool.sessions).any(is_late)
            },
        ));
    }
    if sessions.iter().any(|does| does.downgrades) {
        all.push(Property::sometimes("a reader beside the writer that became one", |_, pool: &Pool| {
            let is_lowered = |(attempt, units): (&Attempt, u32)| units < attempt.take.units;
            pool.inside().any(is_lowered) && pool.inside().count() > 1
        }));
    }
    if play.scene.budget.crashes > 0 {
        all.push(Property::sometimes("a dead session waits in the record", |_, pool: &Pool| {
            (0..).zip(&pool.sessions).any(|(s, session): (u8, &Session)| {
                !session.is_attached && pool.store.queue.iter().any(|entry| entry.id == grant_id(s, 0))
            })
        }));
    }
    if play.scene.budget.lost_pushes > 0 {
        all.push(Property::sometimes("a claim that was not taken up", |_, pool: &Pool| {
            let mut grants = pool.store.grants.iter();
            grants.any(|grant| grant.state == GrantState::Pushed && !pool.lives(Some(grant)))
        }));
    }
    if sessions.iter().any(|does| does.resize.is_some()) {
        all.push(Property::sometimes("every limit was changed", |play: &Play, pool: &Pool| {
            usize::from(pool.resized) == play.scene.sessions.iter().filter(|does| does.resize.is_some()).count()
        }));
        all.push(Property::sometimes("more is held than a smaller limit allows", |_, pool: &Pool| {
            pool.store.grants.units() > pool.store.limit
        }));
    }
    all
}
