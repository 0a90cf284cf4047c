//! Tests of `leasehold-lab bytes`, as CI runs it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::Command;

/// Plays this many seeds. Returns the output.
fn play(seeds: &str) -> String {
    let played = lab(seeds).output().unwrap();
    let output = String::from_utf8_lossy(&played.stdout).into_owned();
    let errors = String::from_utf8_lossy(&played.stderr).into_owned();
    assert!(played.status.success(), "{output}{errors}");
    output
}

/// Plays as many seeds as LEASEHOLD_SEEDS says.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn every_seed_is_clean() {
    println!("{}", play(&std::env::var("LEASEHOLD_SEEDS").unwrap_or_else(|_| "300".into())));
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_seed_is_played_again_to_the_same_trace() {
    let trace = |output: &str| output.lines().find(|line| line.starts_with("trace ")).unwrap().to_owned();
    let (first, second) = (trace(&play("6")), trace(&play("6")));
    println!("{first}\n{second}");
    assert_eq!(first, second);
}

/// The flaws that few seeds find.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn seeded_flaws_are_found() {
    for flaw in ["P12FromReceipt", "P13ReleaseOnce", "P15NoLook"] {
        let played = lab("12").env("LEASEHOLD_MUTANT", flaw).output().unwrap();
        let output = String::from_utf8_lossy(&played.stdout);
        assert!(played.status.code() == Some(1) && output.contains("WRONG in seed"), "{flaw}: {output}");
    }
}

fn lab(seeds: &str) -> Command {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_leasehold-lab"));
    lab.args(["bytes", "--seeds", seeds]);
    lab
}
