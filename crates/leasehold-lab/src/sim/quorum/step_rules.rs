//! The checks of every step of a node, apart from the specification itself. A client may never notice that one of these
//! rules is broken: see `QFillCounts` in docs/evidence.md.

use leasehold_spec::Token;
use leasehold_spec::node::{Granted, Record, Request, Said};

/// One step: the record before, the request, and the results.
pub(super) struct Seen<'a> {
    pub(super) before: &'a Record,
    pub(super) request: &'a Request,
    pub(super) now_us: u64,
    pub(super) after: &'a Record,
    pub(super) said: &'a Said,
}

/// Returns the first rule that the step has broken, if there is one.
pub(super) fn wrong(seen: &Seen<'_>) -> Option<&'static str> {
    let Seen { before, request, now_us, after, said } = seen;
    let is_remembered = before.keep_until_us > *now_us;
    let highest = if is_remembered { before.highest } else { Token::NONE };
    if is_remembered && after.highest < before.highest {
        return Some("a node forgot a token for which it had voted");
    }
    let lasts = |grant: &&Granted| is_remembered && grant.left_us(*now_us) > 0;
    let kept = before.grant.as_ref().filter(lasts);
    match (request, said) {
        (Request::Renew(renewal), Said::Renewed { .. }) => {
            let is_its = |grant: &Granted| (grant.id, grant.token) == (renewal.id, renewal.token);
            (!kept.is_some_and(is_its)).then_some("a node counts a vote at once that it did not have")
        }
        (Request::Ask(ask), Said::Granted { token, .. }) => {
            let is_repeated = kept.is_some_and(|grant| (grant.id, grant.token) == (ask.id, *token));
            (!is_repeated && *token <= highest).then_some("a node voted for a token that is not above its highest")
        }
        _ => None,
    }
}
