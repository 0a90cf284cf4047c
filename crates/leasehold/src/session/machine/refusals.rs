//! Acquires that the store refuses, and their errors.

use leasehold_spec::limits::QUEUE_MAX;
use leasehold_spec::{Kind, LostHow, Refusal, Take, Token};

use super::arrival;
use super::effects::Verdict;
use super::grant;
use super::recheck::rally;
use super::release::{fail, finish};
use super::turn::Turn;
use super::upgrade::upgraded;
use crate::error::{Error, ErrorKind};
use crate::lost::{Lost, LostReason};

/// Ends an attempt that the store has refused.
pub(crate) fn refused(turn: &mut Turn<'_>, counter: u64, refusal: Refusal, highest: Token) {
    if refusal == Refusal::NoGrant {
        return lose_read_grant(turn, counter, highest);
    }
    let Some(attempt) = turn.ledger.attempts.get(&counter) else { return };
    if refusal == Refusal::Absent {
        let name = attempt.name.clone();
        let is_arrival = attempt.terms.is_arrival();
        let verdict = if is_arrival { arrival::dismissed(attempt) } else { Verdict::Failed(Error::absent()) };
        if is_arrival {
            arrival::remember_place(turn.ledger, counter, turn.now.us());
        }
        // The others here learn the same.
        rally(turn, &name, counter);
        return finish(turn, counter, verdict);
    }
    let error = contradicts(&attempt.terms.take, refusal);
    finish(turn, counter, Verdict::Failed(error));
}

/// The store does not hold the grant that an upgrade names: it is lost, and the upgrade with it.
fn lose_read_grant(turn: &mut Turn<'_>, counter: u64, highest: Token) {
    let Some(upgrade) = turn.ledger.attempts.get(&counter) else { return };
    let (name, read) = (upgrade.name.clone(), upgraded(&upgrade.terms));
    let mut reason = LostReason::Expired;
    if let Some((read, attempt)) = read.and_then(|read| Some((read, turn.ledger.attempts.get_mut(&read)?))) {
        // No upgrade is waited for any more.
        attempt.upgrade = 0;
        let hold = attempt.hold();
        grant::lose(turn, read, LostHow::NotHeld, highest);
        reason = hold.and_then(|hold| hold.why_lost()).unwrap_or(reason);
    }
    fail(turn, counter, Lost::new(&name, reason).into());
}

/// Returns the error of a caller that knows another kind or another limit of the name than its record (P31, P40).
fn contradicts(take: &Take, refusal: Refusal) -> Error {
    let (kind, limit) = match refusal {
        Refusal::Other { kind, limit } => (kind, limit),
        Refusal::TooMany { limit } => (take.kind, limit),
        Refusal::NoGrant | Refusal::Absent => (take.kind, take.limit),
    };
    let known = match kind {
        Kind::Semaphore => format!("a semaphore with {limit} permits"),
        Kind::Barrier => format!("a barrier of {limit} parties"),
        other => format!("a {}", other.word()),
    };
    let asked = match take.kind {
        Kind::Semaphore => format!("{} of {} permits of a semaphore", take.units, take.limit),
        Kind::Barrier => format!("a barrier of {} parties", take.limit),
        other => format!("a {}", other.word()),
    };
    let message = format!(
        "the name is {known}, and this call is for {asked}: use one kind and one number everywhere. The \
         store forgets them a minute after the last use"
    );
    Error::new(ErrorKind::Mismatch, message)
}

pub(crate) fn full() -> Error {
    let message =
        format!("the queue is full ({QUEUE_MAX} waiters), and nothing was queued: try again later, or split the name");
    Error::new(ErrorKind::Full, message)
}
