//! Tips for verbs and options that other programs have, and `leasehold` has not.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

const SEPARATOR: &str = "put -- before the command: leasehold run NAME -- COMMAND";
const REVOKE: [&str; 2] =
    ["a lock is released when its command ends", "'leasehold revoke' takes a lock away from its holder"];

/// Adds tips to an error of this command line, if the mistake is a known one.
pub(crate) fn add(error: &mut clap::Error, arguments: &[OsString]) {
    let has_separator = arguments.iter().any(|argument| argument == "--");
    let verb = arguments.get(1).and_then(|verb| verb.to_str()).unwrap_or_default();
    let tips = match error.kind() {
        ErrorKind::InvalidSubcommand => text(error, ContextKind::InvalidSubcommand).map_or_else(Vec::new, of_verb),
        // Only these verbs have options with other names elsewhere.
        ErrorKind::UnknownArgument => match (verb, text(error, ContextKind::InvalidArg)) {
            ("run", Some(argument)) => of_argument(argument, has_separator),
            ("elect", Some(argument)) => of_argument_of_elect(argument, has_separator),
            _ => return,
        },
        // `run NAME COMMAND` names two locks and no command.
        ErrorKind::MissingRequiredArgument if verb == "run" => of_missing(error, has_separator),
        ErrorKind::MissingRequiredArgument if verb == "lab" => owned(&["'leasehold lab list' names the hazards"]),
        _ => return,
    };
    if tips.is_empty() {
        return;
    }
    // In place of arguments that are only spelled alike.
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        error.remove(kind);
    }
    let tips = tips.into_iter().map(StyledStr::from).collect();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

fn of_missing(error: &clap::Error, has_separator: bool) -> Vec<String> {
    let lacks_command = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|argument| argument.contains("CMD")),
        _ => false,
    };
    if lacks_command && !has_separator { vec![SEPARATOR.to_owned()] } else { vec![] }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

fn of_verb(verb: &str) -> Vec<String> {
    let tips: &[&str] = match verb {
        "list" | "locks" => &["'leasehold ls' lists the locks"],
        "unlock" | "release" | "free" => &REVOKE,
        "kill" | "steal" | "break" => &REVOKE[1..],
        "status" | "show" | "info" | "stat" => &["'leasehold inspect' shows who holds a lock"],
        "lab" => &[
            "this build has no laboratory: install it with 'cargo install --path crates/leasehold-cli --features lab'",
        ],
        "lock" | "acquire" | "exec" => &["'leasehold run' runs a command while it holds a lock"],
        _ => &[],
    };
    owned(tips)
}

fn of_argument(argument: &str, has_separator: bool) -> Vec<String> {
    let tips: &[&str] = match argument {
        "--timeout" | "--time" => &[
            "--wait DUR limits how long to wait for the lock",
            "--kill-after DUR is the time that a command has between TERM and KILL",
        ],
        "--ttl" | "--expire" | "--duration" => &["--lease DUR sets how long the lock outlives a holder that has died"],
        "--nonblock" | "--nb" | "--non-blocking" => &["--no-wait ends at once if somebody else holds the lock"],
        // An option of a command without `--` in front of it, as flock(1) takes it.
        _ if !has_separator => &[SEPARATOR],
        _ => &[],
    };
    owned(tips)
}

fn of_argument_of_elect(argument: &str, has_separator: bool) -> Vec<String> {
    let tips: &[&str] = match argument {
        "--wait" | "--no-wait" | "-w" | "-n" | "--timeout" => {
            &["a candidate waits until it leads, also for the store; a signal ends the wait"]
        }
        "--ttl" | "--expire" | "--duration" => {
            &["--lease DUR sets for how long a leader that has died keeps the leadership"]
        }
        "--holder" => &["--value TEXT is what others see of this leader"],
        // Another name, or a command without `--` in front of it.
        _ if !argument.starts_with('-') || !has_separator => {
            &["an election has one name; put -- before the command: leasehold elect NAME -- COMMAND"]
        }
        _ => &[],
    };
    owned(tips)
}

fn owned(tips: &[&str]) -> Vec<String> {
    tips.iter().map(|tip| (*tip).to_owned()).collect()
}
