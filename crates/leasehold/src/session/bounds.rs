//! How long and how often: the bounds that more than one part of the session goes by, each with its reason. (Those of the
//! protocol are in [`leasehold_spec::limits`]; one that a single file needs stands there.)

use leasehold_spec::limits::NOT_AFTER_MAX_US;

/// The longest that a request stays unanswered before its link is doubted: after as much the store refuses it as late, and
/// whoever still waits for it waits for nothing.
pub(crate) const ANSWER_MAX_US: u64 = NOT_AFTER_MAX_US;
/// How long one try to open a link may take, with greeting and proving.
pub(crate) const OPEN_WITHIN_US: u64 = 5_000_000;
/// The longest pause between two such tries: nobody waits much longer for a store that is back.
pub(crate) const REOPEN_MAX_US: u64 = 1_000_000;
/// How long a caller waits for the store's word on what it gives back, where nothing depends on that word: the session sees
/// to it, with or without the caller.
pub(crate) const GIVEN_BACK_WITHIN_US: u64 = 5_000_000;
/// Between two tries of a request that the store refuses, or whose answer is not believed: it would be the same again.
pub(crate) const RETRY_US: u64 = 250_000;
