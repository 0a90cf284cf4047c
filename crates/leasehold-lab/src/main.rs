//! Leasehold's laboratory: where the protocol is taken apart. What each of its layers sees, and which promise it tries to
//! break, is in README.md; what each is told, in its `options.rs`; `leasehold-lab --help` says how.
//!
//! It is built with `--cfg leasehold_lab`, which compiles seeded flaws into the product and counts its paths.

#[cfg(leasehold_lab)]
mod bytes;
#[cfg(leasehold_lab)]
mod chaos;
#[cfg(leasehold_lab)]
mod models;
#[cfg(leasehold_lab)]
mod sim;
#[cfg(leasehold_lab)]
mod times;
#[cfg(leasehold_lab)]
mod usage;

use std::process::ExitCode;

/// Refuses: without the flaws and the counts no run would prove anything.
#[cfg(not(leasehold_lab))]
fn main() -> ExitCode {
    eprintln!("leasehold-lab: this build has no seeded flaws and counts no paths, so it can prove nothing; run");
    eprintln!("    RUSTFLAGS=\"--cfg leasehold_lab\" cargo run -p leasehold-lab -- --help");
    ExitCode::from(2)
}

/// Stands for the unit tests of a build that has none of them.
#[cfg(not(leasehold_lab))]
#[test]
#[ignore = "the unit tests of the laboratory need RUSTFLAGS=\"--cfg leasehold_lab\""]
fn every_unit_test() {}

#[cfg(leasehold_lab)]
fn main() -> ExitCode {
    let said: Vec<String> = std::env::args().skip(1).collect();
    let layer = said.first().map_or("", String::as_str);
    let args = said.iter().skip(1).cloned();
    if let Some(done) = chaos::hidden(layer, args.clone()) {
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
        "times" => (times::Options::of(args).map(|options| times::run(&options)), vec![times::USAGE]),
        _ => (None, vec![models::USAGE, sim::USAGE, bytes::USAGE, chaos::USAGE, times::USAGE]),
    };
    done.unwrap_or_else(|| usage::refuse(&said, &usages))
}
