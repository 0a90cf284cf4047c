//! Chaos on a quorum, as a command. Most of the real servers are emptied: this costs time but breaks no promise. The
//! same with nodes that forget and vote at once: the command has to find that.

use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// A schedule whose first round empties most of the nodes three times, and whose next five do so three times more: a
/// test in `plan.rs` checks that.
const SEED: &str = "6516004";

/// Each chaos has five servers and dozens of clients. Two at once would keep a small machine so busy that calls are late.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn chaos(minutes: &str, flaw: Option<&str>) -> (Output, serde_json::Value) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_leasehold-lab"));
    lab.args(["chaos", "--quorum", "--json", "--seed", SEED, "--minutes", minutes]);
    lab.env_remove("LEASEHOLD_MUTANT").envs(flaw.map(|flaw| ("LEASEHOLD_MUTANT", flaw)));
    let played = lab.output().expect("the laboratory is built, and starts");
    let json = serde_json::from_slice(&played.stdout).expect("it is JSON");
    (played, json)
}

/// One round: no client is granted anything until the quarantine of a majority has ended, and then every client is.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn most_nodes_forget_and_nothing_is_wrong() {
    let (played, json) = chaos("0.05", None);
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    assert_eq!(json["rounds"], 1);
    let empty = ["FlushAll", "CrashEmpty"].map(|kind| json["faults"][kind].as_u64().unwrap_or(0));
    assert!(empty.iter().sum::<u64>() >= 3, "{json}");
    assert!(json["fenced_writes"].as_u64().expect("they are counted") > 50, "{json}");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn nodes_that_forget_and_vote_at_once_are_found() {
    // It ends with the first violation. On an idle machine the first or the second round has one, after 8 to 16 s.
    let (played, json) = chaos("2", Some("QNoRest"));
    assert_eq!(played.status.code(), Some(1), "{}", String::from_utf8_lossy(&played.stderr));
    let violations = json["violations"].as_array().expect("a list");
    // Two holders, or a vote that came back with the state of a second ago. That the run proved nothing
    // is not enough.
    let is_of_the_flaw = |violation: &serde_json::Value| {
        let words = violation.as_str().expect("words");
        ["both held", "both granted", "which is not larger", "left behind"].iter().any(|what| words.contains(what))
    };
    assert!(violations.iter().any(is_of_the_flaw), "{violations:?}");
}
