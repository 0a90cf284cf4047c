//! Leasehold's laboratory: where the protocol is taken apart. What each of its layers sees, and which promise it tries to
//! break, is in README.md; what each is told, in its `options.rs`; `leasehold-lab --help` says how.

mod bytes;
mod chaos;
mod models;
mod sim;
mod times;
mod usage;

use std::process::ExitCode;

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
