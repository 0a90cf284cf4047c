//! The simulation as a command: the same seed is the same run in another process, and seeded flaws are found.

use std::io::Read as _;
use std::process::{Command, Output, Stdio};

use leasehold_testkit::part::Part;

fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_leasehold-lab"))
}

fn sim(args: &[&str]) -> Output {
    lab().arg("sim").args(args).output().expect("the laboratory is built, and starts")
}

/// Enough seeds for every kind of fault, in a build without optimization.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn nothing_is_wrong_with_many_seeds() {
    let (seeds, from) = (Part::chosen().count(150).to_string(), Part::chosen().first_seed(150).to_string());
    let (played, json) = (sim(&["--seeds", &seeds, "--from", &from]), sim(&["--seeds", "20", "--json"]));
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stdout));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    let (seeds, grants) = (json["seeds"].as_u64(), json["grants"].as_u64());
    assert_eq!(seeds, Some(20));
    assert!(grants.expect("they are counted") > 20 * 20, "only {grants:?} grants");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_seed_is_the_same_run_in_every_process() {
    for seed in ["5", "77"] {
        let (once, again) = (sim(&["--seed", seed, "-v"]), sim(&["--seed", seed, "-v"]));
        assert!(once.status.success(), "seed {seed}");
        assert!(once.stdout.len() > 10_000 && once.stdout == again.stdout, "seed {seed}");
    }
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn invalid_arguments_are_rejected() {
    assert_eq!(sim(&["--sedes", "5"]).status.code(), Some(2));
    assert_eq!(sim(&["--seeds", "0"]).status.code(), Some(2));
    assert_eq!(sim(&["--mutant", "P99NoSuchFlaw"]).status.code(), Some(2));
    let code = |command: &mut Command| command.output().expect("it starts").status.code();
    assert_eq!(code(lab().args(["models", "--rule", "P99"])), Some(2), "nothing was searched");
    assert_eq!(code(lab().args(["sim", "--seed", "5"]).env("LEASEHOLD_MUTANT", "P99NoSuchFlaw")), Some(2));
    assert_eq!(code(lab().args(["sim", "--help"])), Some(0));
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_closed_pipe_causes_no_panic() {
    let mut lab = lab().args(["sim", "--seed", "77", "-v"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let lab = lab.as_mut().expect("it starts");
    drop(lab.stdout.take());
    let mut errors = String::new();
    lab.stderr.take().expect("piped").read_to_string(&mut errors).expect("read");
    assert_eq!((lab.wait().expect("it ends").code(), errors.as_str()), (Some(141), ""));
}

/// The printed command plays the same again.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_failure_prints_the_command_that_plays_it_again() {
    let found = sim(&["--mutant", "P15NoRecheck"]);
    let output = String::from_utf8_lossy(&found.stdout).into_owned();
    let (_, again) = output.split_once("LEASEHOLD_MUTANT=P15NoRecheck cargo run").expect("the flaw and the command");
    let (_, args) = again.trim().split_once(" -- ").expect("arguments");
    let played = lab().args(args.split(' ')).env("LEASEHOLD_MUTANT", "P15NoRecheck").output().expect("it starts");
    assert_eq!(played.status.code(), Some(1));
    let output = String::from_utf8_lossy(&played.stdout).into_owned();
    assert!(output.contains("FAILED") && output.contains("LEASEHOLD_MUTANT=P15NoRecheck cargo run"), "{args}");
}

/// The flaws that few seeds find: `sim --mutant all` tries the others, too.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn seeded_flaws_are_found() {
    const FLAWS: [&str; 19] = [
        "P1Barging",
        "P2RepeatExtends",
        "P3ForgetsRelease",
        "P5WakeOnly",
        "P6LosesPlace",
        "P9Silent",
        "P9TellsNoHolder",
        "P12PushFromReceipt",
        "P15NoRecheck",
        "P16DropSilent",
        "P16InnerReleases",
        "P16LeaveKeeps",
        "P19ForgetsUsed",
        "P19TokenStays",
        "P20NeverEnds",
        "P20PassesPanic",
        "P20Unwanted",
        "P21WaitsOn",
        "P29StartsOnClaim",
    ];
    for flaw in Part::chosen().of(FLAWS) {
        let found = sim(&["--mutant", flaw, "--seeds", "90"]);
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
    }
}
