//! The parts of a differential test: random histories run on a real server and on the specification, and the answers,
//! the stored states and the published messages are compared after each request.
//!
//! | part | what it does |
//! |---|---|
//! | [`play`] | plays histories on several servers at once, and prints the seed of one that fails |
//! | [`Harness`] | the server: its clock, its memory, its subscribers, and the messages that it publishes |
//! | [`Inbox`] | the messages that the crate's own link has received, beside those that it should receive |
//! | [`Log`] | the steps of a history, for the report of a failure, and the cases that were seen |
//!
//! A test adds its model, its requests, and a reader of the stored state.

mod harness;
mod inbox;
mod log;
mod play;

pub use harness::{Harness, TTL_TOLERANCE_US};
pub use inbox::Inbox;
pub use log::{Log, Seen};
pub use play::{play, rare_at_least};

/// Names with every sort of special character.
pub const NAMES: [&str; 4] = ["orders/42", "a b {c} 100%", "Ä", "}"];
/// Labels with every sort of special character.
pub const LABELS: [&str; 4] = ["host/job", "", "two words", "{Ä} - F H 0"];

/// Returns a key of this name.
#[must_use]
pub fn key(prefix: &str, name: &str) -> String {
    let escaped = name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("{prefix}{{{escaped}}}")
}
