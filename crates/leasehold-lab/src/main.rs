//! Leasehold's laboratory: where the protocol is taken apart. What each of its layers sees, and which promise it tries to
//! break, is in README.md; what each is told, in its `options.rs`.

mod bytes;
mod chaos;
mod models;
mod sim;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let layer = args.next().unwrap_or_default();
    let done = match layer.as_str() {
        "models" => models::Options::of(args).map(|options| models::run(&options)),
        "sim" => sim::Options::of(args).map(|options| sim::run(&options)),
        "bytes" => bytes::Options::of(args).map(|options| bytes::run(&options)),
        "chaos" => chaos::Options::of(args).map(|options| chaos::run(&options)),
        word => chaos::hidden(word, args),
    };
    done.unwrap_or_else(usage)
}

fn usage() -> ExitCode {
    let usages = [models::USAGE, sim::USAGE, bytes::USAGE, chaos::USAGE];
    eprintln!("usage: {}", usages.join("\n       "));
    ExitCode::from(2)
}
