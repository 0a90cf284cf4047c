//! Tests of `leasehold-lab bytes`, as CI runs it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::Command;

use leasehold_testkit::part::Part;

/// Plays this many seeds. Returns the output.
fn play(seeds: u64, from: u64) -> String {
    let played = lab(seeds).args(["--from", &from.to_string()]).output().unwrap();
    let output = String::from_utf8_lossy(&played.stdout).into_owned();
    let errors = String::from_utf8_lossy(&played.stderr).into_owned();
    assert!(played.status.success(), "{output}{errors}");
    output
}

/// Plays the seeds of this part. LEASEHOLD_SEEDS says how many all parts have.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn every_seed_is_clean() {
    let all = std::env::var("LEASEHOLD_SEEDS").map_or(300, |seeds| seeds.parse().unwrap());
    let part = Part::chosen();
    println!("{}", play(part.count(all), part.first_seed(all)));
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_seed_is_played_again_to_the_same_trace() {
    let trace = |output: &str| output.lines().find(|line| line.starts_with("trace ")).unwrap().to_owned();
    let (first, second) = (trace(&play(6, 1)), trace(&play(6, 1)));
    println!("{first}\n{second}");
    assert_eq!(first, second);
}

/// The flaws that few seeds find.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn seeded_flaws_are_found() {
    for flaw in ["P12FromReceipt", "P13ReleaseOnce", "P15NoRecheck"] {
        let played = lab(12).env("LEASEHOLD_MUTANT", flaw).output().unwrap();
        let output = String::from_utf8_lossy(&played.stdout);
        assert!(played.status.code() == Some(1) && output.contains("WRONG in seed"), "{flaw}: {output}");
    }
}

fn lab(seeds: u64) -> Command {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_leasehold-lab"));
    lab.args(["bytes", "--seeds", &seeds.to_string()]);
    lab
}
