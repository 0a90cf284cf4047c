//! What the lock is for: registers that its holders write. One refuses old tokens and must be right always; the other
//! refuses nothing, and shows what a lock without fencing is worth.
//!
//! An update of the other register is lost in one of two ways, and each is found with the pair of writers that it is
//! between, so that a fault excuses it only if it was active just then:
//!
//! - both have read the same number: whichever wrote last wrote over the other;
//! - a write is missing in the end: somebody who had read a smaller number wrote after it, and nobody counted on since
//!   (or the first way shows it).
//!
//! A writer's window is from its read to its answer; without an answer it has no end, as the write may be carried out at
//! any time. Two windows that overlap are two sections at once, and the overlap is when. They need not: a third, late
//! write can bring an old number back for somebody to read again. Then it came in the gap between the two.

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

/// A write of `read + 1` to the other register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Write<'a> {
    read: u64,
    /// `u64::MAX` without an answer.
    answered_us: u64,
    read_us: u64,
    client: &'a str,
}

impl Write<'_> {
    fn is_acknowledged(&self) -> bool {
        self.answered_us != u64::MAX
    }
}

fn unfenced(lock: &Lock<'_>, events: &[&Event], report: &mut Report) {
    let mut counted = None;
    let mut writes = Vec::new();
    for event in events {
        match event {
            Event::Counted { client, read_us, at_us, read, answer, .. } => {
                let answered_us = if *answer == Answered::Acknowledged { *at_us } else { u64::MAX };
                writes.push(Write { read: *read, answered_us, read_us: *read_us, client });
            }
            Event::FinalCounted { count, .. } => counted = Some(*count),
            _ => {}
        }
    }
    report.unknown += writes.iter().filter(|write| !write.is_acknowledged()).count() as u64;
    // By what they read, and those of the same number in the order of their answers: each was lost to the next, or the
    // next to it.
    writes.sort_unstable();
    for pair in writes.windows(2) {
        let [first, second] = [pair[0], pair[1]];
        if first.read == second.read && second.is_acknowledged() {
            lost(lock, first, second, report);
        }
    }
    let Some(counted) = counted else { return };
    let missing = writes.partition_point(|write| write.read < counted);
    // Who may have written last what is there now. Without an answer, of several: that is the last in this order.
    let last = writes[..missing].last().filter(|write| write.read + 1 == counted);
    // Of those that read the same number all but one are lost already.
    let mut before = None;
    for write in writes[missing..].iter().filter(|write| write.is_acknowledged()) {
        if before.replace(write.read) != Some(write.read) {
            // Nobody is known to have written it: a client that was killed before it could say so. It began at any time.
            let nobody = Write { read: counted, answered_us: u64::MAX, read_us: write.read_us, client: "nobody" };
            lost(lock, *write, *last.unwrap_or(&nobody), report);
        }
    }
}

fn lost(lock: &Lock<'_>, earlier: Write<'_>, later: Write<'_>, report: &mut Report) {
    let began_us = earlier.read_us.max(later.read_us);
    let ended_us = earlier.answered_us.min(later.answered_us);
    let (from_us, to_us) = (began_us.min(ended_us), began_us.max(ended_us));
    let clients = [earlier.client.into(), later.client.into()];
    let violation = Violation::LostUpdate { name: lock.name.into(), read: earlier.read, clients, from_us, to_us };
    report.lost_updates += 1;
    let excuse = lock.excuse_any(&[Promise::Exclusion, Promise::UnfencedWrites], from_us, to_us);
    report.found(violation, excuse);
}
