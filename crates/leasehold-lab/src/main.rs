//! Leasehold's laboratory: where the protocol is taken apart. `leasehold-lab --help` says how.

mod bytes;
mod chaos;
mod models;
mod sim;
mod usage;

use std::process::ExitCode;

use models::{Form, Options, Size};

const MODELS: &str = "leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]";

fn main() -> ExitCode {
    let said: Vec<String> = std::env::args().skip(1).collect();
    let word = said.first().map_or("", String::as_str);
    let args = said.iter().skip(1).cloned();
    if let Some(done) = chaos::hidden(word, args.clone()) {
        return done;
    }
    if said.iter().any(|arg| ["--help", "-h", "help"].contains(&arg.as_str())) {
        return usage::help();
    }
    if !usage::is_flaw_known() {
        return ExitCode::from(2);
    }
    if word != "chaos" {
        usage::end_with_the_reader();
    }
    let done = match word {
        "models" => options(args).map(|options| models::run(&options)),
        "sim" => sim::Options::of(args).map(|options| sim::run(&options)),
        "bytes" => bytes::Options::of(args).map(|options| bytes::run(&options)),
        "chaos" => chaos::main(args),
        _ => None,
    };
    let usages = match word {
        "models" => &[MODELS][..],
        "sim" => &[sim::USAGE],
        "bytes" => &[bytes::USAGE],
        "chaos" => &[chaos::USAGE],
        _ => &[MODELS, sim::USAGE, bytes::USAGE, chaos::USAGE],
    };
    done.unwrap_or_else(|| usage::refuse(&said, usages))
}

fn options(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--deep" => options.size = Size::Deep,
            "-v" => options.form = Form::Schedules,
            "--markdown" => options.form = Form::Markdown,
            "--rule" => options.rule = Some(args.next()?),
            "--scene" => options.scene = Some(args.next()?),
            _ => return None,
        }
    }
    Some(options)
}
