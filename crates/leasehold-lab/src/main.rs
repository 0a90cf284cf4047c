//! Leasehold's laboratory: it tries to break the protocol. README.md describes what each of its layers can see, and
//! which promise it tries to break; the `options.rs` of each layer has its options; `leasehold-lab --help` shows the
//! usage.
//!
//! It is built with `--cfg leasehold_lab`, which compiles seeded flaws into the product and counts its paths.

#[cfg(leasehold_lab)]
mod bytes;
#[cfg(leasehold_lab)]
mod chaos;
#[cfg(leasehold_lab)]
mod lease;
#[cfg(leasehold_lab)]
mod models;
#[cfg(leasehold_lab)]
mod processes;
#[cfg(leasehold_lab)]
mod sim;
#[cfg(leasehold_lab)]
mod times;
#[cfg(leasehold_lab)]
mod usage;

use std::process::ExitCode;

/// Refuses to run: without the flaws and the counts no run would prove anything.
#[cfg(not(leasehold_lab))]
fn main() -> ExitCode {
    eprintln!("leasehold-lab: this build has no seeded flaws and counts no paths, so it can prove nothing; run");
    eprintln!("    RUSTFLAGS=\"--cfg leasehold_lab\" cargo run -p leasehold-lab -- --help");
    ExitCode::from(2)
}

/// Represents the unit tests in a build that has none of them.
#[cfg(not(leasehold_lab))]
#[test]
#[ignore = "the unit tests of the laboratory need RUSTFLAGS=\"--cfg leasehold_lab\""]
fn every_unit_test() {}

#[cfg(leasehold_lab)]
fn main() -> ExitCode {
    let said: Vec<String> = std::env::args().skip(1).collect();
    let layer = said.first().map_or("", String::as_str);
    let args = said.iter().skip(1).cloned();
    if let Some(done) = chaos::hidden(layer, args.clone()).or_else(|| processes::hidden(layer, args.clone())) {
        return done;
    }
    if said.iter().any(|arg| ["--help", "-h", "help"].contains(&arg.as_str())) {
        return usage::help();
    }
    if !usage::is_flaw_known() {
        return ExitCode::from(2);
    }
    if layer != "chaos" {
        usage::end_with_the_reader();
    }
    let (done, usages) = match layer {
        "models" => (models::Options::of(args).map(|options| models::run(&options)), vec![models::USAGE]),
        "sim" => (sim::Options::of(args).map(|options| sim::run(&options)), vec![sim::USAGE]),
        "bytes" => (bytes::Options::of(args).map(|options| bytes::run(&options)), vec![bytes::USAGE]),
        "chaos" => (chaos::Options::of(args).map(|options| chaos::run(&options)), vec![chaos::USAGE]),
        "processes" => (processes::Options::of(args).map(|options| processes::run(&options)), vec![processes::USAGE]),
        "times" => (times::Options::of(args).map(|options| times::run(&options)), vec![times::USAGE]),
        _ => (None, vec![models::USAGE, sim::USAGE, bytes::USAGE, chaos::USAGE, processes::USAGE, times::USAGE]),
    };
    done.unwrap_or_else(|| usage::refuse(&said, &usages))
}
