//! The simulation of a quorum, as a command.

use std::process::{Command, Output};

use leasehold_testkit::part::Part;

fn sim(args: &[&str]) -> Output {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_leasehold-lab"));
    lab.args(["sim", "--quorum"]).args(args).output().expect("the laboratory is built, and starts")
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn nothing_is_wrong_with_many_seeds_of_a_quorum() {
    let (seeds, from) = (Part::chosen().count(60).to_string(), Part::chosen().first_seed(60).to_string());
    let played = sim(&["--seeds", &seeds, "--from", &from]);
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stdout));
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_seed_of_a_quorum_is_the_same_run_in_every_process() {
    let (once, again) = (sim(&["--seed", "5", "-v"]), sim(&["--seed", "5", "-v"]));
    assert!(once.stdout.len() > 10_000 && once.stdout == again.stdout);
}

/// No client notices the first one: the steps of the nodes show it.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn seeded_flaws_of_nodes_are_found() {
    for flaw in ["QFillCounts", "QVotesBelow", "QNoRest"] {
        let found = sim(&["--mutant", flaw, "--seeds", "60"]);
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
    }
}

/// These seeds mostly make other random choices now; the kept worlds are those that were too much for an earlier state.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn seeds_that_have_found_something_find_nothing() {
    for seed in [
        "856", "1035", "2303", "3231", "4615", "18868", "20239", "33459", "43293", "105465", "108118", "201481",
        "304611", "25640", "71103", "72506",
    ] {
        let played = sim(&["--seed", seed]);
        assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stdout));
    }
}
