//! The scripts of a node say what the specification says.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod greetings;
