//! Judges a round by the histories of its clients, and keeps the score.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use leasehold_testkit::boottime_us;
use leasehold_testkit::checker::{self, Rules, Violation};
use leasehold_testkit::history::{Event, History, Promise};

use super::calm::Calm;
use super::client::limit_of;
use super::line::Line;
use super::names::Names;
use super::notes::{self, Call};

/// The figures of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Score {
    pub(crate) grants: u64,
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    pub(crate) lost_updates: u64,
    /// Overlaps that were excused, by reason.
    pub(crate) excused: BTreeMap<String, u64>,
    /// Calls whose duration and result were judged.
    pub(crate) calm_calls: u64,
    pub(crate) calm_longest_us: u64,
    /// The grants per second of each round, before its faults.
    pub(crate) calm_grants_per_s: Vec<u64>,
    /// Waiters whose place in a queue was judged.
    pub(crate) in_line: u64,
}

/// The verdict on one round.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) grants: u64,
    pub(crate) calm_grants_per_s: u64,
    pub(crate) excused: usize,
    pub(crate) violations: Vec<String>,
}

/// Judges an epoch, round by round.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The events of names that outlive their round.
    long: Vec<Event>,
}

/// The evidence of one round.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) dir: &'a Path,
    /// The killed clients, and the times of their deaths.
    pub(crate) deaths: BTreeMap<String, u64>,
    /// The lab's own events: its checks, its excuses, and the final state of the registers.
    pub(crate) ours: Vec<Event>,
    pub(crate) begun_us: u64,
    pub(crate) calm_us: u64,
    pub(crate) calm: Calm,
    pub(crate) line: Line,
    /// The bound after the repair.
    pub(crate) served_within: Duration,
}

impl Judge {
    /// Judges a round and adds it to the score. Afterward `merged.jsonl` has the judged events.
    pub(crate) fn round(&mut self, evidence: Evidence<'_>, score: &mut Score) -> io::Result<Verdict> {
        let (mut events, calls) = read_all(&evidence)?;
        let shown = evidence.calm.judge(&calls, &events);
        score.in_line += evidence.line.record(&mut events);
        score.calm_calls += shown.calls;
        score.calm_longest_us = score.calm_longest_us.max(shown.longest_us);
        let (begun_us, calm_us) = (evidence.begun_us, evidence.calm_us);
        let is_calm = |event: &&Event| matches!(event, Event::Granted { granted_us, .. } if *granted_us < calm_us);
        let calm = events.iter().filter(is_calm).count() as u64;
        let calm_grants_per_s = calm * 1_000_000 / (calm_us - begun_us).max(1);
        score.grants += count(&events, |event| matches!(event, Event::Granted { .. }));
        score.writes += count(&events, |event| matches!(event, Event::Fenced { .. }));
        let grants = count(&events, |event| matches!(event, Event::Granted { .. }));

        // Excuses and final numbers of a long name are for this judgment only; its events are also for the next ones.
        let (long, round): (Vec<Event>, Vec<Event>) =
            events.drain(..).partition(|event| event.name().is_some_and(Names::is_of_epoch));
        self.long.extend(long);
        self.long.extend(round.iter().filter(|event| matches!(event, Event::Died { .. })).cloned());
        events.extend(round);
        events.extend(self.long.iter().cloned());
        events.extend(evidence.ours);
        let history = History { events };
        history.write(evidence.dir.join("merged.jsonl"))?;
        let names: BTreeSet<&str> = history.events.iter().filter_map(Event::name).collect();
        let limited = |rules: Rules, name: &str| rules.limited(name, limit_of(name));
        let rules = Rules::mutex().served_within(evidence.served_within).overtaken_at_most(0);
        let rules = names.into_iter().fold(rules, limited);
        let report = checker::check(&history, &rules);
        score.refused += report.refused;
        score.lost_updates += report.lost_updates;
        for excused in &report.excused {
            for reason in reasons(&history, excused) {
                *score.excused.entry(reason).or_default() += 1;
            }
        }
        score.calm_grants_per_s.push(calm_grants_per_s);
        let broken = report.violations.iter().map(ToString::to_string);
        let violations = shown.violations.into_iter().chain(broken).collect();
        Ok(Verdict { grants, calm_grants_per_s, excused: report.excused.len(), violations })
    }

    /// Forgets the names of the last epoch: a new epoch has new names.
    pub(crate) fn clear(&mut self) {
        self.long.clear();
    }
}

fn read_all(evidence: &Evidence<'_>) -> io::Result<(Vec<Event>, Vec<Call>)> {
    let now_us = boottime_us();
    let (mut events, mut calls) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(evidence.dir)? {
        let path = entry?.path();
        let file = notes::read(&path, now_us)?;
        let death_us = path.file_stem().and_then(|label| evidence.deaths.get(label.to_str()?));
        if let Some(&at_us) = death_us {
            // The client was killed, so nobody waits for its requests any more.
            events.extend(file.events.iter().filter_map(|event| match event {
                Event::Asked { client, .. } => Some(Event::Died { client: client.clone(), at_us }),
                _ => None,
            }));
        }
        events.extend(file.events);
        calls.extend(file.calls);
    }
    Ok((events, calls))
}

fn count(events: &[Event], wanted: impl Fn(&Event) -> bool) -> u64 {
    events.iter().filter(|event| wanted(event)).count() as u64
}

/// Returns the declared faults that excuse a violation.
fn reasons(history: &History, excused: &Violation) -> Vec<String> {
    let (kind, name, span) = match excused {
        Violation::Overlap { name, from_us, to_us, .. } => ("overlap", name, (*from_us, *to_us)),
        Violation::LostUpdate { name, from_us, to_us, .. } => ("lost update", name, (*from_us, *to_us)),
        Violation::ReadChanged { name, from_us, to_us, .. } => ("changed read", name, (*from_us, *to_us)),
        Violation::ReadTorn { name, .. } => ("torn read", name, (0, u64::MAX)),
        Violation::TokenFell { name, .. } => ("token fell", name, (0, u64::MAX)),
        Violation::SameToken { name, .. } => ("same token", name, (0, u64::MAX)),
        _ => return vec!["other".into()],
    };
    let of = |promise: &Promise| match kind {
        "overlap" => *promise == Promise::Exclusion,
        "token fell" => *promise != Promise::UnfencedWrites,
        "same token" => *promise == Promise::Tokens,
        _ => *promise != Promise::Tokens,
    };
    let mut reasons: Vec<String> = history
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Fault { name: of_name, breaks, from_us, to_us, why }
                if of_name == name && of(breaks) && *from_us <= span.1 && span.0 <= *to_us =>
            {
                Some(format!("{kind}: {why}"))
            }
            _ => None,
        })
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    // A violation without a reason is reported as such, so that the count is complete.
    if reasons.is_empty() {
        reasons.push(format!("{kind}: no declared fault"));
    }
    reasons
}
