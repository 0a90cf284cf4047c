//! The cases that a history can meet, and those that every run must meet.

use std::cmp::Ordering;

use leasehold_spec::{Answer, Event, From, Grant, GrantId, Kind, Lapse, Op, Outcome, Refusal, Renew, Resource, Rest};
use leasehold_testkit::differential::{Seen, rare_at_least};

/// The model before a step, by which its case is recognized.
pub(crate) struct Before {
    grant: Option<Grant>,
    head: Option<GrantId>,
    ticket: Option<u64>,
    lapses: Vec<Lapse>,
    kept_until_us: u64,
}

impl Before {
    pub(crate) fn of(model: &Resource, op: &Op) -> Self {
        let (grant, lapses) = (model.grants.sole().cloned(), model.lapses.clone());
        let head = model.queue.front().map(|entry| entry.id);
        Self { grant, head, ticket: ticket(model, op), lapses, kept_until_us: model.keep_until_us }
    }

    /// Returns the cases of a step that led to this model.
    pub(crate) fn cases(&self, model: &Resource, op: &Op, expected: &Answer, now_us: u64) -> Vec<&'static str> {
        let (before, after) = (self.grant.as_ref(), model.grants.sole());
        let mut cases = vec![expected.outcome.word()];
        if ticket(model, op).is_some_and(|ticket| self.ticket.is_some_and(|before| ticket < before)) {
            cases.push("came back to its place");
        }
        if let (Op::Acquire(acquire), Some(grant), None) = (op, after, before)
            && grant.id == acquire.id
            && grant.range < acquire.range
        {
            cases.push("range cut");
        }
        if let (Op::HandTo { .. }, Outcome::Released, Some(grant)) = (op, &expected.outcome, after) {
            cases.push(if self.head == Some(grant.id) { "handed to the first" } else { "handed past others" });
        }
        cases.extend(self.range(model, op));
        let cools = |grant: Option<&Grant>| grant.is_some_and(|grant| !grant.is_held());
        match (cools(before), cools(after)) {
            (false, true) => cases.push("cool-down begun"),
            (true, true) => cases.push("late in a cool-down"),
            (true, false) => cases.push("cool-down over"),
            (false, false) => {}
        }
        let is_ahead = |grant: &Grant| grant.since_us > now_us;
        if after.zip(before).is_some_and(|(now, was)| now.id == was.id && is_ahead(was)) {
            cases.push("lease dated anew");
        }
        if self.lapses.iter().any(|lapse| lapse.at_us > now_us) && !model.lapses.is_empty() {
            cases.push("lapse dated anew");
        }
        if let (Op::Renew(Renew { from: From::Now, .. }), Outcome::Renewed { .. }) = (op, &expected.outcome) {
            let is_kept = model.keep_until_us == self.kept_until_us;
            cases.push(if is_kept { "renewed, kept until as before" } else { "renewed, kept for longer" });
        }
        if expected.rest == Rest::More {
            cases.push("more");
        }
        cases
    }

    /// Returns the cases of a step of a pool that led to this model.
    pub(crate) fn cases_of_pool(&self, model: &Resource, expected: &Answer) -> Vec<&'static str> {
        let mut cases = vec![expected.outcome.word()];
        if expected.rest == Rest::More {
            cases.push("more");
        }
        match (model.kind, &expected.outcome) {
            (Kind::Barrier, Outcome::Granted { range: 1, .. }) => cases.push("the last party let through"),
            (Kind::Barrier, Outcome::Granted { .. }) => cases.push("another party let through"),
            (Kind::Barrier, Outcome::Refused(Refusal::Absent)) => cases.push("an arrival dismissed"),
            _ => {}
        }
        if model.grants.len() > 1 {
            cases.push("several grants");
        }
        if model.upgrade.is_some() {
            cases.push("an upgrade waits");
        }
        if model.grants.units() > model.limit {
            cases.push("more units than the limit");
        }
        if !model.queue.is_empty() && model.grants.units() < model.limit {
            cases.push("a waiter that does not fit");
        }
        if model.lapses.len() > self.lapses.len() {
            cases.push("a claim lapsed");
        }
        cases
    }

    /// Returns what became of the tokens of a grant.
    fn range(&self, model: &Resource, op: &Op) -> Option<&'static str> {
        let ended = |grant: &&Grant| model.held_by(grant.id).is_none() && grant.range > 1;
        let before = self.grant.as_ref().filter(ended)?;
        match (op, model.released == Some(before.id)) {
            (_, false) => Some("range burnt"),
            (Op::Release { used, .. } | Op::Leave { used, .. }, true) => match used.cmp(&before.reserved()) {
                _ if *used <= before.token => Some("range unused"),
                Ordering::Greater => Some("used beyond the range"),
                Ordering::Less | Ordering::Equal => Some("range used"),
            },
            _ => None,
        }
    }
}

fn ticket(model: &Resource, op: &Op) -> Option<u64> {
    match op {
        Op::Acquire(acquire) => model.queue.iter().find(|entry| entry.id == acquire.id).map(|entry| entry.ticket),
        _ => None,
    }
}

pub(crate) const fn pushed(event: Event) -> &'static str {
    match event {
        Event::Granted => "push of a grant",
        Event::Revoked => "push of a revocation",
        Event::Wanted => "push that somebody waits",
        Event::Ending => "push of an end",
    }
}

/// Checks that the run met every outcome: otherwise it has not shown that the two agree on it.
pub(crate) fn check_coverage(seen: &Seen) {
    check(seen, (&OUTCOMES, 50), &RARE);
}

/// Checks the same for a run with pools.
pub(crate) fn check_coverage_of_pools(seen: &Seen) {
    check(seen, (&OUTCOMES_OF_POOLS, 400), &RARE_OF_POOLS);
}

/// Checks the same for a run with condition variables and latches.
pub(crate) fn check_coverage_of_gates(seen: &Seen) {
    check(seen, (&OUTCOMES_OF_GATES, 400), &RARE_OF_GATES);
}

fn check(seen: &Seen, (outcomes, part): (&[&str], u64), rare: &[&str]) {
    let count = |what: &str| seen.get(what).copied().unwrap_or(0);
    let all: u64 = outcomes.iter().map(|what| count(what)).sum();
    for outcome in outcomes {
        assert!(count(outcome) * part >= all, "{outcome}: {} of {all}, less than one in {part}", count(outcome));
    }
    for rare in rare {
        assert!(count(rare) >= rare_at_least(), "{rare}: only {}", count(rare));
    }
}

/// The outcomes that every run must have seen, each in at least two of a hundred requests.
const OUTCOMES: [&str; 19] = [
    "granted",
    "queued",
    "busy",
    "gone",
    "late",
    "full",
    "renewed",
    "reserved",
    "revoked",
    "lost",
    "released",
    "not held",
    "waited",
    "held",
    "absent",
    "marked",
    "settled",
    "inspected",
    "no memory",
];

/// Cases that every run must meet, however rare they are.
const RARE: [&str; 31] = [
    "many in one script",
    "no memory for one of many",
    "all acquired",
    "none acquired",
    "more",
    "put",
    "no waiter",
    "handed to the first",
    "handed past others",
    "came back to its place",
    "forgotten",
    "sixteen lapses",
    "push of a grant",
    "push of a revocation",
    "push that somebody waits",
    "push of an end",
    "lease dated anew",
    "lapse dated anew",
    "renewed, kept until as before",
    "renewed, kept for longer",
    "range used",
    "range unused",
    "used beyond the range",
    "range burnt",
    "range cut",
    "cool-down begun",
    "late in a cool-down",
    "cool-down over",
    "stored as a string",
    "stored as a hash",
    "stored as a hash without a queue",
];

/// The same for pools, each in at least one of four hundred requests.
const OUTCOMES_OF_POOLS: [&str; 20] = [
    "granted",
    "queued",
    "busy",
    "gone",
    "late",
    "refused",
    "renewed",
    "revoked",
    "lost",
    "released",
    "not held",
    "waited",
    "held",
    "absent",
    "lowered",
    "resized",
    "marked",
    "settled",
    "inspected",
    "no memory",
];

/// The same for condition variables and latches.
const OUTCOMES_OF_GATES: [&str; 21] = [
    "granted",
    "queued",
    "busy",
    "gone",
    "late",
    "refused",
    "renewed",
    "lost",
    "released",
    "not held",
    "waited",
    "held",
    "absent",
    "notified",
    "spent",
    "counted",
    "deleted",
    "marked",
    "settled",
    "inspected",
    "no memory",
];

const RARE_OF_GATES: [&str; 13] = [
    "the last party let through",
    "another party let through",
    "an arrival dismissed",
    "more",
    "forgotten",
    "several grants",
    "a waiter that does not fit",
    "a claim lapsed",
    "push of a grant",
    "push of a revocation",
    "push of an end",
    "stored as a pool",
    "met the other encoding",
];

const RARE_OF_POOLS: [&str; 13] = [
    "more",
    "forgotten",
    "several grants",
    "an upgrade waits",
    "more units than the limit",
    "a waiter that does not fit",
    "a claim lapsed",
    "push of a grant",
    "push of a revocation",
    "push of an end",
    "stored as a pool",
    "stored as a string",
    "met the other encoding",
];
