//! The purpose of the lock: registers that its holders write. The fenced register refuses old tokens and must always be
//! right. The unfenced register refuses nothing, and shows the value of a lock without fencing.
//!
//! A holder of a shared grant only reads the unfenced register. While it holds, no client may write: each read that it
//! made under its lease returns the same number. A read counts if the holder claimed the grant after it.
//!
//! An update of the unfenced register is lost in one of two ways. Each loss is found with its pair of writers, so that a
//! fault excuses it only if the fault was active between them:
//!
//! - Both have read the same number: the last write replaced the other.
//! - A write is missing in the end: a client that had read a smaller number wrote after it, and no client has counted on
//!   from it since (otherwise the first way finds the loss).
//!
//! A writer's window is from its read to its reply. Without a reply it has no end, as the write may be carried out at
//! any time. If two windows overlap, two sections ran at once, and the overlap is the time of the loss. But the second
//! of the pair may have read an old number that a third, late write had brought back. The third writer was in its
//! section when the first wrote: somewhere in the first's own window.

use std::collections::{BTreeMap, BTreeSet};

use super::{Lock, Report, Violation};
use crate::history::{Answered, Event, Fenced, Promise};

pub(super) fn check(lock: &Lock<'_>, events: &[&Event], report: &mut Report) {
    fenced(lock, events, report);
    unfenced(lock, events, report);
    shared(lock, events, report);
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
    // Two writes have the same number: one of them is not in the register.
    let distinct =
        accepted.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() + usize::from(!accepted.is_empty());
    let acknowledged = accepted.len() as u64;
    let last = accepted.last().map_or(0, |(write, _)| *write);
    // If all writes have different numbers, the last number is at least their count.
    let miscounted = |counted: u64| distinct < accepted.len() || last > counted || counted > acknowledged + unknown;
    let counted = events.iter().find_map(|event| match event {
        Event::FinalFenced { count, .. } => Some(*count),
        _ => None,
    });
    // Without a final reading, the last acknowledged write is the best estimate: later writes were not acknowledged.
    let counted = counted.unwrap_or(last);
    if miscounted(counted) {
        let name = lock.name.into();
        report.violations.push(Violation::FenceMiscounted { name, acknowledged, unknown, counted });
    }
}

/// A write of `read + 1` to the unfenced register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Write<'a> {
    read: u64,
    /// `u64::MAX` without a reply.
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
    // Ordered by the number that was read, and writes of the same number by their replies: each was lost to the next
    // one, or the one after that.
    writes.sort_unstable();
    let of_number = |read: u64| {
        writes.partition_point(|write| write.read <= read) - writes.partition_point(|write| write.read < read)
    };
    for pair in writes.windows(2) {
        let [first, second] = [pair[0], pair[1]];
        if first.read != second.read || !second.is_acknowledged() {
            continue;
        }
        let is_at_once = first.read_us.max(second.read_us) <= first.answered_us;
        let is_brought_back = first.read > 0 && of_number(first.read - 1) > 1;
        let from_us = match is_at_once && !is_brought_back {
            true => first.read_us.max(second.read_us),
            false => first.read_us.min(second.read_us),
        };
        lost(lock, [first, second], (from_us, first.answered_us), report);
    }
    let Some(counted) = counted else { return };
    let missing = writes.partition_point(|write| write.read < counted);
    // The writer that may have written the final number last. If several got no reply, it is the last in this order.
    let last = writes[..missing].last().filter(|write| write.read + 1 == counted);
    // Of the writes that read the same number, all but one are already counted as lost.
    let mut before = None;
    for write in writes[missing..].iter().filter(|write| write.is_acknowledged()) {
        if before.replace(write.read) != Some(write.read) {
            // No client is known to have written the final number: it was killed before it could record the write.
            let nobody = Write { client: "nobody", ..*write };
            lost(lock, [*write, *last.unwrap_or(&nobody)], (write.read_us, write.answered_us), report);
        }
    }
}

fn lost(lock: &Lock<'_>, [earlier, later]: [Write<'_>; 2], (from_us, to_us): (u64, u64), report: &mut Report) {
    let clients = [earlier.client.into(), later.client.into()];
    let violation = Violation::LostUpdate { name: lock.name.into(), read: earlier.read, clients, from_us, to_us };
    report.lost_updates += 1;
    let excuse = lock.excuse_any(&[Promise::Exclusion, Promise::UnfencedWrites], from_us, to_us);
    report.found(violation, excuse);
}

/// Checks the holders of shared grants: they write nothing, and read what was written before they held.
fn shared(lock: &Lock<'_>, events: &[&Event], report: &mut Report) {
    let (mut written, mut reads) = (BTreeSet::from([0]), BTreeMap::<_, Vec<_>>::new());
    for event in events {
        match event {
            Event::Read { client, token, read_us, at_us, number, .. } => {
                let grant = lock.shared(client, *token).filter(|grant| *at_us <= grant.claimed_us);
                let read = grant.map(|_| (*read_us, *at_us, *number));
                reads.entry((client, *token)).or_default().extend(read);
            }
            Event::Fenced { client, token, .. } | Event::Counted { client, token, .. }
                if lock.shared(client, *token).is_some() =>
            {
                let (name, client, token) = (lock.name.into(), client.clone(), *token);
                report.violations.push(Violation::WroteShared { name, client, token });
            }
            // A client that was killed with a write in flight has not recorded it; the next one has read the number.
            Event::Counted { read, .. } => written.extend([*read, read + 1]),
            Event::FinalCounted { count, .. } => drop(written.insert(*count)),
            _ => {}
        }
    }
    let promises = [Promise::Exclusion, Promise::UnfencedWrites];
    for ((client, token), mut reads) in reads {
        reads.sort_unstable();
        let name = || lock.name.to_owned();
        for &(_, at_us, number) in reads.iter().filter(|(.., number)| !written.contains(number)) {
            let excuse = lock.excuse_any(&promises, 0, at_us);
            report.found(Violation::ReadTorn { name: name(), client: client.clone(), token, number }, excuse);
        }
        for pair in reads.windows(2).filter(|pair| pair[0].2 != pair[1].2) {
            let (from_us, to_us, numbers) = (pair[0].0, pair[1].1, [pair[0].2, pair[1].2]);
            let excuse = lock.excuse_any(&promises, from_us, to_us);
            let changed =
                Violation::ReadChanged { name: name(), client: client.clone(), token, numbers, from_us, to_us };
            report.found(changed, excuse);
        }
    }
}
