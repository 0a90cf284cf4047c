//! What the lock is for: registers that its holders write. One refuses old tokens and must be right always; the other
//! refuses nothing, and shows what a lock without fencing is worth.

use super::{Lock, Report, Violation};
use crate::history::{Answered, Event, Fenced, Promise};

pub(super) fn check(lock: &Lock<'_>, events: &[&Event], report: &mut Report) {
    fenced(lock, events, report);
    unfenced(lock, events, report);
}

fn fenced(lock: &Lock<'_>, events: &[&Event], report: &mut Report) {
    let (mut accepted, mut unknown) = (Vec::new(), 0);
    for event in events {
        match event {
            Event::Fenced { token, answer: Fenced::Accepted(write), .. } => accepted.push((*write, *token)),
            Event::Fenced { answer: Fenced::Refused, .. } => report.refused += 1,
            Event::Fenced { answer: Fenced::Unknown, .. } => unknown += 1,
            _ => {}
        }
    }
    report.unknown += unknown;
    accepted.sort_unstable();
    for pair in accepted.windows(2) {
        let [(_, before), (write, token)] = [pair[0], pair[1]];
        if token < before {
            report.violations.push(Violation::FenceFell { name: lock.name.into(), write, before, token });
        }
    }
    // Two writes that were both the seventh: one of them is not in the register.
    let distinct =
        accepted.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() + usize::from(!accepted.is_empty());
    let acknowledged = accepted.len() as u64;
    let last = accepted.last().map_or(0, |(write, _)| *write);
    // Where all writes have numbers of their own, the last number is at least their count.
    let miscounted = |counted: u64| distinct < accepted.len() || last > counted || counted > acknowledged + unknown;
    let counted = events.iter().find_map(|event| match event {
        Event::FinalFenced { count, .. } => Some(*count),
        _ => None,
    });
    // Without a final reading the last write is the best there is: what came after it was not acknowledged.
    let counted = counted.unwrap_or(last);
    if miscounted(counted) {
        let name = lock.name.into();
        report.violations.push(Violation::FenceMiscounted { name, acknowledged, unknown, counted });
    }
}

/// Each acknowledged write has raised the register by one; what is missing in the end was written over.
fn unfenced(lock: &Lock<'_>, events: &[&Event], report: &mut Report) {
    let (mut reads, mut unknown, mut span) = (Vec::new(), 0, (u64::MAX, 0));
    let mut counted = None;
    for event in events {
        match event {
            Event::Counted { read, at_us, answer, .. } => {
                span = (span.0.min(*at_us), span.1.max(*at_us));
                match answer {
                    Answered::Acknowledged => reads.push(*read),
                    Answered::Unknown => unknown += 1,
                }
            }
            Event::FinalCounted { count, .. } => counted = Some(*count),
            _ => {}
        }
    }
    report.unknown += unknown;
    // Two writers that read the same number: one update is lost, also when somebody has counted on since.
    let acknowledged = reads.len() as u64;
    reads.sort_unstable();
    let repeated = reads.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    let missing = counted.map_or(0, |counted| acknowledged.saturating_sub(counted));
    let lost = repeated.max(missing);
    if lost == 0 {
        return;
    }
    report.lost_updates += lost;
    // Which of the updates was lost cannot be told: a fault at any time between the first and the last excuses them.
    let excuse = lock.excuse_any(&[Promise::Exclusion, Promise::UnfencedWrites], span.0, span.1);
    report.found(Violation::LostUpdates { name: lock.name.into(), lost }, excuse);
}
