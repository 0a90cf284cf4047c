//! Explains why a quorum has no majority, node by node, and says what to do.

use super::member::{Member, NodeStatus};
use super::tally::Tally;
use crate::error::{Error, ErrorKind};

/// Returns the error of a question that too few nodes answered. If a majority answered with the same kind of error, that
/// error is returned: it is about the name or this client, and not about the quorum.
pub(super) fn undecided(members: &[Member], tally: &Tally, now_us: u64) -> Error {
    let failed = tally.failed();
    let same = |kind: ErrorKind| failed.iter().filter(|(other, _)| *other == kind).count();
    let is_common = |kind: ErrorKind| kind != ErrorKind::Unreachable && same(kind) >= tally.majority();
    match failed.iter().find(|(kind, _)| is_common(*kind)) {
        Some((kind, text)) => Error::new(*kind, text.clone()),
        None => no_majority(members, now_us),
    }
}

/// Returns the error of a link that cannot be opened. If all unreachable nodes have the same kind of error, and waiting
/// does not help against it, the error has that kind.
pub(super) fn cannot_open(members: &[Member], away: &[(usize, Error)], now_us: u64) -> Error {
    let error = no_majority(members, now_us);
    let kind = away.first().map(|(_, error)| error.kind());
    let is_same = kind.is_some_and(|kind| away.iter().all(|(_, error)| error.kind() == kind));
    match kind {
        Some(kind @ (ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Foreign)) if is_same => {
            Error::new(kind, error.to_string())
        }
        _ => error,
    }
}

/// Returns the error of a quorum without a majority, with the status of each node.
pub(super) fn no_majority(members: &[Member], now_us: u64) -> Error {
    let nodes = members.len();
    let voting = members.iter().filter(|member| matches!(member.status(), NodeStatus::Votes)).count();
    let each = members.iter().map(|member| format!("{} {}", member.node.at(), member.describe(now_us)));
    let needed = nodes / 2 + 1;
    let hint = advice(members, needed.saturating_sub(voting), now_us);
    let missing = match voting < needed {
        true => format!("no majority of the quorum: {voting} of {nodes} nodes vote"),
        // These replies came too late for the request.
        false => format!("no majority of the quorum replied in time: {voting} of {nodes} nodes vote now"),
    };
    let each = each.collect::<Vec<_>>().join("; ");
    let message = format!("{missing} and {needed} are needed ({each}){hint}");
    Error::new(ErrorKind::Quorum, message)
}

/// Says what to do if so many votes are missing, and nodes are in quarantine.
///
/// A new quorum needs to be initialized. If an operator initializes a quorum that was in use, there may be two holders: the
/// nodes may have forgotten a lease that is held. A quorum looks new if all nodes are in quarantine, and none shows an
/// earlier use. All of them may have been emptied before this client met them, so the advice is for a quorum that nobody
/// has used.
fn advice(members: &[Member], missing: usize, now_us: u64) -> String {
    let mut left: Vec<u64> = members.iter().filter_map(|member| member.status().quarantine_us(now_us)).collect();
    if left.len() == members.len() && !members.iter().any(Member::was_used) {
        return "; if this quorum was never used, run `leasehold quorum begin`; if its servers were restarted or \
                emptied, wait: a lease that they have lost may be held"
            .to_owned();
    }
    left.sort_unstable();
    match missing.checked_sub(1).and_then(|last| left.get(last)) {
        Some(left_us) => {
            let left_s = left_us.div_ceil(1_000_000);
            format!("; wait: a majority votes in {left_s} s, and until then a lost lease may be held")
        }
        None => String::new(),
    }
}
