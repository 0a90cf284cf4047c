//! Liveness, which only a test that stops injecting faults can judge: from a repair to the next fault every attempt is
//! served.
//!
//! "Served" means granted or abandoned within a bound. A lock that no client can ever get would satisfy that, if every
//! wait has a timeout. So the refused attempts are compared with the holders: if several in a row were refused, for
//! longer than the bound, while no client held, then a lease that no client knows of kept them out.

use std::collections::BTreeMap;

use super::{Grant, Lock, Report, Rules, Violation};
use crate::history::{Event, GaveUp, History};

pub(super) fn check(history: &History, locks: &[Lock<'_>], rules: &Rules, report: &mut Report) {
    let Some(bound_us) = rules.served_within_us else { return };
    let windows = windows(history);
    let Some((last_us, _)) = windows.last() else {
        report.vacuous("healings", 0, 1);
        return;
    };
    let since = |lock: &Lock<'_>| lock.grants.iter().filter(|grant| grant.granted_us >= *last_us).count();
    if locks.iter().map(since).sum::<usize>() == 0 {
        report.vacuous("grants after the last healing", 0, 1);
    }
    let deaths = Deaths::of(history);
    let attempts = attempts(history, &deaths);
    for attempt in attempts.values().flatten() {
        let first = windows.partition_point(|(_, broken_us)| *broken_us <= attempt.asked_us);
        let last =
            windows.partition_point(|(healed_us, _)| *healed_us <= attempt.end.map_or(u64::MAX, |end| end.at_us));
        let mut of_attempt = windows.get(first..last).unwrap_or_default().iter();
        report.violations.extend(of_attempt.find_map(|window| attempt.judge(*window, bound_us)));
    }
    for lock in locks {
        let Some(attempts) = attempts.get(lock.name) else { continue };
        let long = |(from_us, to_us): &Window| to_us - from_us > bound_us;
        for gap in common(&gaps(lock, &deaths), &windows).into_iter().filter(long) {
            report.violations.extend(starved(lock.name, attempts, gap, bound_us));
        }
    }
}

/// The time from one event until before another: from a repair to the next fault, or from one holder to the next.
type Window = (u64, u64);

fn windows(history: &History) -> Vec<Window> {
    // Of two events in the same microsecond the fault comes first: the repair ends it.
    let mut turns: Vec<(u64, Turn)> = history
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Injected { at_us, .. } => Some((*at_us, Turn::Breaks)),
            Event::Healed { at_us } => Some((*at_us, Turn::Heals)),
            _ => None,
        })
        .collect();
    turns.sort_unstable();
    let mut windows: Vec<Window> = Vec::new();
    for (at_us, turn) in turns {
        let open = windows.last_mut().filter(|(_, to_us)| *to_us == u64::MAX);
        match (turn, open) {
            (Turn::Heals, None) => windows.push((at_us, u64::MAX)),
            (Turn::Breaks, Some((_, to_us))) => *to_us = at_us,
            (Turn::Heals, Some(_)) | (Turn::Breaks, None) => {}
        }
    }
    windows
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Breaks,
    Heals,
}

/// The times at which clients died.
struct Deaths<'a>(BTreeMap<&'a str, Vec<u64>>);

impl<'a> Deaths<'a> {
    fn of(history: &'a History) -> Self {
        let mut deaths: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for event in &history.events {
            if let Event::Died { client, at_us } = event {
                deaths.entry(client).or_default().push(*at_us);
            }
        }
        deaths.values_mut().for_each(|of_client| of_client.sort_unstable());
        Self(deaths)
    }

    /// Returns the first death of this client from then on.
    fn after(&self, client: &str, at_us: u64) -> Option<u64> {
        let of_client = self.0.get(client)?;
        of_client.get(of_client.partition_point(|death_us| *death_us < at_us)).copied()
    }
}

struct Attempt<'a> {
    name: &'a str,
    client: &'a str,
    number: u64,
    asked_us: u64,
    end: Option<End<'a>>,
}

#[derive(Clone, Copy)]
struct End<'a> {
    at_us: u64,
    /// `None` if the attempt was granted, or its client died.
    why: Option<&'a GaveUp>,
}

/// Returns all attempts with a recorded beginning, by name, ordered by beginning.
fn attempts<'a>(history: &'a History, deaths: &Deaths<'_>) -> BTreeMap<&'a str, Vec<Attempt<'a>>> {
    let mut ends: BTreeMap<(&str, u64), End<'_>> = BTreeMap::new();
    for event in &history.events {
        match event {
            Event::Granted { client, attempt, granted_us, .. } => {
                ends.insert((client, *attempt), End { at_us: *granted_us, why: None });
            }
            Event::GaveUp { client, attempt, at_us, why, .. } => {
                ends.insert((client, *attempt), End { at_us: *at_us, why: Some(why) });
            }
            _ => {}
        }
    }
    let mut attempts: BTreeMap<&str, Vec<Attempt<'_>>> = BTreeMap::new();
    for event in &history.events {
        let &Event::Asked { ref name, ref client, attempt: number, at_us: asked_us } = event else { continue };
        let death = deaths.after(client, asked_us).map(|at_us| End { at_us, why: None });
        let end = ends.get(&(client.as_str(), number)).copied().or(death);
        attempts.entry(name).or_default().push(Attempt { name, client, number, asked_us, end });
    }
    attempts.values_mut().for_each(|of_name| of_name.sort_by_key(|attempt| attempt.asked_us));
    attempts
}

impl Attempt<'_> {
    fn judge(&self, (healed_us, broken_us): Window, bound_us: u64) -> Option<Violation> {
        let (name, client, attempt) = (self.name.to_owned(), self.client.to_owned(), self.number);
        let since_us = self.asked_us.max(healed_us);
        let is_in_time = self.end.is_some_and(|end| end.at_us <= since_us + bound_us);
        // If a fault comes before the bound, a pending attempt is judged by the next window.
        if !is_in_time && since_us + bound_us < broken_us {
            let waited_us = self.end.map(|end| end.at_us - since_us);
            return Some(Violation::Unserved { name, client, attempt, since_us, waited_us });
        }
        match self.end?.why? {
            GaveUp::Failed(error) if self.asked_us >= healed_us + bound_us && self.end?.at_us < broken_us => {
                Some(Violation::Failed { name, client, attempt, error: error.clone() })
            }
            _ => None,
        }
    }

    /// Whether the attempt was refused because another client has the lock.
    fn was_refused(&self) -> bool {
        self.end.is_some_and(|end| matches!(end.why, Some(GaveUp::Busy | GaveUp::TimedOut)))
    }
}

/// Returns the times at which no client held.
fn gaps(lock: &Lock<'_>, deaths: &Deaths<'_>) -> Vec<Window> {
    // A grant without a recorded end lasts forever, unless its client died; the bound includes the time for which the
    // store keeps the lease after that.
    let end_us = |grant: &Grant<'_>| {
        let ended_us = grant.ended_us.or_else(|| deaths.after(grant.client, grant.granted_us));
        ended_us.unwrap_or(u64::MAX)
    };
    let mut held: Vec<Window> = lock.grants.iter().map(|grant| (grant.granted_us, end_us(grant))).collect();
    held.sort_unstable();
    let (mut gaps, mut free_us) = (Vec::new(), 0);
    for (from_us, to_us) in held {
        if from_us > free_us {
            gaps.push((free_us, from_us));
        }
        free_us = free_us.max(to_us);
    }
    gaps.push((free_us, u64::MAX));
    gaps
}

/// Returns the intersection. Each list is ordered, and its windows do not touch.
fn common(one: &[Window], other: &[Window]) -> Vec<Window> {
    let (mut both, mut i, mut j) = (Vec::new(), 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        let (from_us, to_us) = (a.0.max(b.0), a.1.min(b.1));
        if from_us < to_us {
            both.push((from_us, to_us));
        }
        if a.1 <= b.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// The number of refused attempts in a row that cannot be a coincidence. One or two may have met an attempt that was
/// granted after its client had abandoned it.
const REFUSED_IN_A_ROW: usize = 3;

fn starved(name: &str, attempts: &[Attempt<'_>], (free_us, taken_us): Window, bound_us: u64) -> Option<Violation> {
    let first = attempts.partition_point(|attempt| attempt.asked_us < free_us);
    let behind = attempts.partition_point(|attempt| attempt.asked_us < taken_us);
    let in_gap = attempts[first..behind].iter().filter(|attempt| attempt.was_refused());
    let ends_us = in_gap.filter_map(|attempt| Some((attempt.asked_us, attempt.end?.at_us)));
    let refused: Vec<Window> = ends_us.filter(|(_, end_us)| *end_us < taken_us).collect();
    let (from_us, to_us) = (refused.first()?.0, refused.iter().map(|(_, end_us)| *end_us).max()?);
    let is_starved = refused.len() >= REFUSED_IN_A_ROW && to_us - from_us > bound_us;
    let attempts = refused.len() as u64;
    is_starved.then(|| Violation::Starved { name: name.to_owned(), attempts, from_us, to_us })
}
