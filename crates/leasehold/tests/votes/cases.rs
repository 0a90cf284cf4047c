//! The cases that a history can meet, and those that every run must meet.

use leasehold_spec::node::{Record, Rings, Said};
use leasehold_spec::{LostHow, Was};

/// Returns the cases that a request was, before and after which these are the models.
pub(crate) fn of(before: &Record, after: &Record, said: &Said, now_us: u64) -> Vec<&'static str> {
    let mut cases = vec![kind(said)];
    let cools = |record: &Record| record.grant.as_ref().is_some_and(|granted| !granted.is_held());
    if cools(after) {
        cases.push(if cools(before) { "late in a cool-down" } else { "a cool-down begun" });
    }
    // Times in the future of a clock that was set back.
    let since = |record: &Record| record.grant.as_ref().map(|granted| (granted.id, granted.since_us));
    if since(before).is_some_and(|(_, since_us)| since_us > now_us) && since(before) != since(after) {
        cases.push("a vote dated anew");
    }
    let call = |record: &Record| record.called.map(|called| (called.id, called.until_us));
    let is_cut = |(id, until_us)| call(before).is_some_and(|before| before.0 == id && before.1 > until_us);
    if call(after).is_some_and(is_cut) {
        cases.push("a call cut short");
    }
    cases
}

pub(crate) const fn rung(rings: Rings) -> &'static str {
    match rings {
        Rings::Call => "call",
        Rings::Wanted { .. } => "wanted",
        Rings::Revoked { .. } => "notified of a revocation",
        Rings::Ending { .. } => "notified of an end",
    }
}

fn kind(said: &Said) -> &'static str {
    match said {
        Said::Granted { .. } => "granted",
        Said::Refused { holder: Some(_), .. } => "refused: held",
        Said::Refused { holder: None, .. } => "refused: called",
        Said::Below => "below",
        Said::Far => "far",
        Said::Late => "late",
        Said::Full => "full",
        Said::Renewed { .. } => "renewed",
        Said::Filled { .. } => "filled",
        Said::Lost { how: LostHow::Revoked } => "lost: revoked",
        Said::Lost { how: LostHow::NotHeld } => "lost: not held",
        Said::GivenBack { was: Was::Granted } => "given back: granted",
        Said::GivenBack { was: Was::Queued } => "given back: queued",
        Said::GivenBack { was: Was::Absent } => "given back: absent",
        Said::Revoking { .. } => "revoking",
        Said::NotHeld => "not held",
        Said::Settled => "settled",
        Said::Inspected(_) => "inspected",
    }
}

/// The events that every run must have seen at least twenty times.
pub(crate) const WANTED: [&str; 36] = [
    "granted",
    "refused: held",
    "refused: called",
    "below",
    "far",
    "late",
    "full",
    "renewed",
    "filled",
    "lost: revoked",
    "lost: not held",
    "given back: granted",
    "given back: queued",
    "given back: absent",
    "revoking",
    "not held",
    "settled",
    "inspected",
    "no memory",
    "call",
    "wanted",
    "notified of a revocation",
    "notified of an end",
    "a cool-down begun",
    "late in a cool-down",
    "a vote dated anew",
    "a call cut short",
    "forgotten",
    "unmarked",
    "resting",
    "unlike",
    "greeted",
    "begun",
    "changed",
    "entered",
    "put",
];
