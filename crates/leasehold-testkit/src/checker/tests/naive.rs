//! The checker against a literal implementation of its promises: it compares every grant with every other, and examines
//! every time by itself. The histories are small and random, and contain all kinds of violations.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::*;
use super::story::NAME;
use crate::history::{Answered, Ended, GaveUp, Share};

/// The number of different times. It is small, so that they often coincide.
const TIMES: u64 = 40;
const CLIENTS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
struct Given {
    client: usize,
    token: u64,
    share: Share,
    asked_us: u64,
    queued_us: Option<u64>,
    granted_us: u64,
    claims: Vec<u64>,
    ended_us: Option<u64>,
}

impl Given {
    fn claimed_us(&self) -> u64 {
        self.claims.iter().copied().fold(self.granted_us, u64::max)
    }

    fn is_claimed(&self) -> bool {
        self.claimed_us() > self.granted_us
    }
}

fn any_time() -> std::ops::Range<u64> {
    0..TIMES
}

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![1 => Just(Share::Exclusive), 3 => (1..3u32).prop_map(Share::Shared)]
}

fn grants() -> impl Strategy<Value = Vec<Given>> {
    let times = (any_time(), any_time(), option::of(any_time()), option::weighted(0.7, any_time()));
    let grant = (0..CLIENTS.len(), 1..12u64, share(), times, vec(any_time(), 0..3)).prop_map(
        |(client, token, share, (one, other, queued_us, ended_us), claims)| {
            let (asked_us, granted_us) = (one.min(other), one.max(other));
            Given { client, token, share, asked_us, queued_us, granted_us, claims, ended_us }
        },
    );
    // A client identifies its grant by the token.
    vec(grant, 1..9).prop_map(|mut grants| {
        let mut known = BTreeSet::new();
        grants.retain(|grant| known.insert((grant.client, grant.token)));
        grants
    })
}

fn history(grants: &[Given]) -> History {
    let mut events = Vec::new();
    for (number, grant) in grants.iter().enumerate() {
        let name = || NAME.to_owned();
        let client = || CLIENTS[grant.client].to_owned();
        let &Given { token, share, asked_us, queued_us, granted_us, ended_us, .. } = grant;
        let attempt = number as u64;
        events.push(Event::Granted {
            name: name(),
            client: client(),
            attempt,
            token,
            share,
            asked_us,
            queued_us,
            granted_us,
        });
        for &at_us in &grant.claims {
            events.push(Event::Claimed { name: name(), client: client(), token, at_us });
        }
        if let Some(at_us) = ended_us {
            events.push(Event::Ended { name: name(), client: client(), token, at_us, how: Ended::Released });
        }
    }
    History { events }
}

/// Returns the later tokens of all falls.
fn falls(grants: &[Given], limit: u32) -> BTreeSet<u64> {
    let fell = |later: &&Given| {
        grants.iter().any(|earlier| {
            let in_time = earlier.granted_us < later.asked_us;
            let is_exclusive = [earlier, later].iter().any(|grant| grant.share.units(limit) == limit);
            let in_hand = earlier.is_claimed() && later.is_claimed() && earlier.granted_us < later.granted_us;
            earlier.token > later.token && (in_time || (in_hand && is_exclusive))
        })
    };
    grants.iter().filter(fell).map(|grant| grant.token).collect()
}

/// Returns the tokens of the grants that began a claim when there was no room.
fn overlaps(grants: &[Given], limit: u32) -> Vec<u64> {
    let claimed: Vec<(usize, &Given)> = grants.iter().enumerate().filter(|(_, grant)| grant.is_claimed()).collect();
    let is_there = |(i, one): (usize, &Given), (j, other): (usize, &Given)| {
        (other.granted_us, j) <= (one.granted_us, i) && other.claimed_us() > one.granted_us
    };
    let units = |one| {
        claimed.iter().filter(|other| is_there(one, **other)).map(|(_, other)| other.share.units(limit)).sum::<u32>()
    };
    let mut tokens: Vec<u64> =
        claimed.iter().filter(|one| units(**one) > limit).map(|(_, grant)| grant.token).collect();
    tokens.sort_unstable();
    tokens
}

fn overtaken(grants: &[Given]) -> u64 {
    let times = |waiter: &Given, queued_us: u64| {
        let is_later = |grant: &&Given| grant.asked_us > queued_us && grant.asked_us <= waiter.granted_us;
        grants.iter().filter(is_later).filter(|grant| grant.token < waiter.token).count() as u64
    };
    grants.iter().filter_map(|waiter| Some(times(waiter, waiter.queued_us?))).max().unwrap_or(0)
}

proptest! {
    // `PROPTEST_CASES=…` for more.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases.max(2_000),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_pair_of_grants(grants in grants(), limit in 1..4u32) {
        let report = check(&history(&grants), &Rules::limit(limit));
        let mut found = (BTreeSet::new(), Vec::new(), 0, 0);
        for violation in &report.violations {
            match violation {
                Violation::TokenFell { later, .. } => drop(found.0.insert(*later)),
                Violation::Overlap { tokens: [_, later], .. } => found.1.push(*later),
                Violation::SameToken { .. } => found.2 += 1,
                Violation::ClaimedAfterEnd { .. } => found.3 += 1,
                other => panic!("{other:?}"),
            }
        }
        found.1.sort_unstable();
        let tokens: BTreeSet<u64> = grants.iter().map(|grant| grant.token).collect();
        let is_late = |grant: &&Given| grant.is_claimed() && grant.ended_us.is_some_and(|us| us < grant.claimed_us());
        let wanted = (
            falls(&grants, limit),
            overlaps(&grants, limit),
            grants.len() - tokens.len(),
            grants.iter().filter(is_late).count(),
        );
        prop_assert_eq!(found, wanted);
        prop_assert_eq!(report.overtaken_most, overtaken(&grants));
    }

    #[test]
    fn every_update_of_a_register(sections in vec(section(), 1..8)) {
        let played = play(&sections);
        let report = check(&played.history, &Rules::mutex().at_least(0));
        prop_assert_eq!(report.violations.len() as u64, report.lost_updates);
        prop_assert!(report.lost_updates <= played.lost, "{} of {}", report.lost_updates, played.lost);
        if sections.iter().all(|section| section.answer == Answered::Acknowledged) {
            prop_assert_eq!(report.lost_updates, played.lost);
        }
        // Updates are lost only where two sections overlap: a fault in each overlap excuses all of them.
        let mut excused = played.history;
        excused.events.extend(played.overlaps.into_iter().map(|(from_us, to_us)| Event::Fault {
            name: NAME.into(),
            breaks: Promise::UnfencedWrites,
            from_us,
            to_us,
            why: "two sections at once".into(),
        }));
        check(&excused, &Rules::mutex().at_least(0)).assert_clean();
    }

    #[test]
    fn every_moment_of_waiting(tries in vec(attempt(), 0..12), held in vec((any_time(), any_time()), 0..4),
            turns in vec((any_time(), any::<bool>()), 1..5), bound_us in 1..10u64) {
        let history = of_attempts(&tries, &held, &turns);
        let report = check(&history, &Rules::mutex().served_within(Duration::from_micros(bound_us)));
        let mut found = (BTreeSet::new(), BTreeSet::new(), 0);
        for violation in &report.violations {
            match violation {
                Violation::Unserved { attempt, .. } => drop(found.0.insert(*attempt)),
                Violation::Failed { attempt, .. } => drop(found.1.insert(*attempt)),
                Violation::Starved { .. } => found.2 += 1,
                Violation::Vacuous { .. } | Violation::TokenFell { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        prop_assert_eq!(found, waited(&tries, &held, &turns, bound_us));
    }
}

/// A read of the register, and the write that follows.
#[derive(Clone, Debug)]
struct CountingSection {
    read_us: u64,
    written_us: u64,
    answered_us: u64,
    answer: Answered,
    is_executed: bool,
}

fn section() -> impl Strategy<Value = CountingSection> {
    let answer = prop_oneof![3 => Just(Answered::Acknowledged), 1 => Just(Answered::Unknown)];
    ([any_time(), any_time(), any_time()], answer, any::<bool>()).prop_map(|(mut times, answer, was_executed)| {
        times.sort_unstable();
        let [read_us, written_us, answered_us] = times;
        // A client without a reply goes on before its write is carried out, if that ever happens.
        let is_executed = answer == Answered::Acknowledged || was_executed;
        let (written_us, answered_us) = match answer {
            Answered::Acknowledged => (written_us, answered_us),
            Answered::Unknown => (answered_us, written_us),
        };
        CountingSection { read_us, written_us, answered_us, answer, is_executed }
    })
}

struct Played {
    history: History,
    /// Acknowledged updates that are missing in the final number.
    lost: u64,
    overlaps: Vec<(u64, u64)>,
}

/// Simulates a register with these sections, one operation after the other.
fn play(sections: &[CountingSection]) -> Played {
    // At the same time, reads come before writes.
    let mut steps: Vec<(u64, bool, usize)> = Vec::new();
    for (i, section) in sections.iter().enumerate() {
        steps.push((section.read_us, false, i));
        steps.extend(section.is_executed.then_some((section.written_us, true, i)));
    }
    steps.sort_unstable();
    // The content of the register: the sections that it has counted.
    let mut register: Vec<usize> = Vec::new();
    let mut read = vec![Vec::new(); sections.len()];
    for (_, is_write, i) in steps {
        match is_write {
            false => read[i] = register.clone(),
            true => register = [read[i].clone(), vec![i]].concat(),
        }
    }
    let mut events: Vec<Event> = Vec::new();
    for (i, section) in sections.iter().enumerate() {
        let (name, client, token) = (NAME.into(), CLIENTS[i % CLIENTS.len()].into(), 0);
        let &CountingSection { read_us, answered_us: at_us, answer, .. } = section;
        events.push(Event::Counted { name, client, token, read_us, at_us, read: read[i].len() as u64, answer });
    }
    events.push(Event::FinalCounted { name: NAME.into(), count: register.len() as u64 });
    let is_lost = |i: &usize| sections[*i].answer == Answered::Acknowledged && !register.contains(i);
    let end_us = |section: &CountingSection| section.written_us.max(section.answered_us);
    let mut overlaps = Vec::new();
    for (i, one) in sections.iter().enumerate() {
        for other in &sections[..i] {
            let (from_us, to_us) = (one.read_us.max(other.read_us), end_us(one).min(end_us(other)));
            overlaps.extend((from_us <= to_us).then_some((from_us, to_us)));
        }
    }
    Played { history: History { events }, lost: (0..sections.len()).filter(is_lost).count() as u64, overlaps }
}

#[derive(Clone, Debug)]
struct Tried {
    asked_us: u64,
    end: Option<(u64, GaveUp)>,
}

fn attempt() -> impl Strategy<Value = Tried> {
    let why = prop_oneof![
        3 => Just(GaveUp::Busy),
        1 => Just(GaveUp::TimedOut),
        1 => Just(GaveUp::Cancelled),
        1 => Just(GaveUp::Failed("no route".into())),
    ];
    (any_time(), option::weighted(0.95, (0..6u64, why)))
        .prop_map(|(asked_us, end)| Tried { asked_us, end: end.map(|(us, why)| (asked_us + us, why)) })
}

fn of_attempts(tries: &[Tried], held: &[(u64, u64)], turns: &[(u64, bool)]) -> History {
    let mut events = Vec::new();
    let name = || NAME.to_owned();
    for (number, tried) in tries.iter().enumerate() {
        let (client, attempt) = ("a".to_owned(), number as u64);
        events.push(Event::Asked { name: name(), client: client.clone(), attempt, at_us: tried.asked_us });
        if let Some((at_us, why)) = tried.end.clone() {
            events.push(Event::GaveUp { name: name(), client, attempt, at_us, why });
        }
    }
    for (number, &(one, other)) in held.iter().enumerate() {
        let (client, token) = ("h".to_owned(), number as u64);
        let (asked_us, granted_us, at_us) = (one.min(other), one.min(other), one.max(other));
        let (attempt, share, queued_us) = (1_000 + token, Share::Exclusive, None);
        events.push(Event::Granted {
            name: name(),
            client: client.clone(),
            attempt,
            token,
            share,
            asked_us,
            queued_us,
            granted_us,
        });
        events.push(Event::Ended { name: name(), client, token, at_us, how: Ended::Released });
    }
    events.extend(turns.iter().map(|&(at_us, is_healed)| match is_healed {
        true => Event::Healed { at_us },
        false => Event::Injected { fault: "cut".into(), at_us },
    }));
    History { events }
}

/// Returns the attempts that were not served, those that failed, and the number of starvations: one time after the
/// other.
fn waited(
    tries: &[Tried],
    held: &[(u64, u64)],
    turns: &[(u64, bool)],
    bound_us: u64,
) -> (BTreeSet<u64>, BTreeSet<u64>, usize) {
    let end_us = TIMES + 100;
    // The time since which no fault is active, if none is. A repair counts from its own time on.
    let mut healed_since: Vec<Option<u64>> = Vec::new();
    for now in 0..end_us {
        let turned = |is_healed| turns.contains(&(now, is_healed));
        let before = healed_since.last().copied().flatten();
        let before = if turned(false) { None } else { before };
        healed_since.push(before.or(turned(true).then_some(now)));
    }
    let (mut unserved, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for (number, tried) in tries.iter().enumerate() {
        let ended_us = tried.end.as_ref().map(|(us, _)| *us);
        for now in tried.asked_us..end_us {
            let Some(since_us) = healed_since[usize::try_from(now).unwrap()] else { continue };
            if ended_us.is_some_and(|us| us < now) {
                break;
            }
            // Pending for longer than the bound, without a fault.
            if now > since_us.max(tried.asked_us) + bound_us - 1 && ended_us.is_none_or(|us| us > now) {
                unserved.insert(number as u64);
            }
            let is_failed = matches!(&tried.end, Some((us, GaveUp::Failed(_))) if *us == now);
            if is_failed && tried.asked_us >= since_us + bound_us && !unserved.contains(&(number as u64)) {
                failed.insert(number as u64);
            }
        }
    }
    let is_free = |now: u64| !held.iter().any(|(one, other)| one.min(other) <= &now && now < *one.max(other));
    // A grant ends a starvation, however short it was.
    let is_granted = |now: u64| held.iter().any(|(one, other)| *one.min(other) == now);
    let (mut starved, mut begun): (usize, Option<(u64, u64)>) = (0, None);
    for now in 0..=end_us {
        let here = usize::try_from(now).ok().and_then(|i| *healed_since.get(i)?).filter(|_| is_free(now));
        match (begun, here) {
            (Some((_, of)), Some(since)) if of == since && !is_granted(now) => {}
            (ended, next) => {
                let run = ended.map(|(from_us, _)| (from_us, if now == end_us { u64::MAX } else { now }));
                starved += run.filter(|run| is_starving(tries, *run, bound_us)).iter().count();
                begun = next.map(|since| (now, since));
            }
        }
    }
    (unserved, failed, starved)
}

fn is_starving(tries: &[Tried], (from_us, to_us): (u64, u64), bound_us: u64) -> bool {
    let refused = tries.iter().filter_map(|tried| match &tried.end {
        Some((end_us, GaveUp::Busy | GaveUp::TimedOut)) => Some((tried.asked_us, *end_us)),
        _ => None,
    });
    let within: Vec<_> = refused.filter(|(asked_us, end_us)| *asked_us >= from_us && *end_us < to_us).collect();
    let first = within.iter().map(|(asked_us, _)| asked_us).min();
    let last = within.iter().map(|(_, end_us)| end_us).max();
    within.len() >= 3 && last > first.map(|us| us + bound_us).as_ref()
}
