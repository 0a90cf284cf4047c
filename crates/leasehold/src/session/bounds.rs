//! The bounds of time that more than one part of the session uses, each with its reason. The bounds of the protocol are in
//! [`leasehold_spec::limits`]. A bound that one file needs stands in that file.

use leasehold_spec::limits::NOT_AFTER_MAX_US;

/// The longest time that a request stays unanswered before its connection is doubted. After this time the store refuses
/// the request as late.
pub(crate) const ANSWER_MAX_US: u64 = NOT_AFTER_MAX_US;
/// The longest time for one try to open a connection, with handshake and proof of the inbox.
pub(crate) const OPEN_WITHIN_US: u64 = 5_000_000;
/// The longest pause between two such tries. It bounds how long callers wait for a store that is back.
pub(crate) const REOPEN_MAX_US: u64 = 1_000_000;
/// The longest time that a caller waits for the reply to its release, if nothing depends on the reply. The session repeats
/// the release with or without the caller.
pub(crate) const GIVEN_BACK_WITHIN_US: u64 = 5_000_000;
/// The pause before a request is repeated that the store refused, or whose reply was not accepted. An earlier retry would
/// get the same reply.
pub(crate) const RETRY_US: u64 = 250_000;
