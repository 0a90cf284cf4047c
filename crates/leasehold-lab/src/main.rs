//! Leasehold's laboratory: where the protocol is taken apart.
//!
//! `leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]`
//! `leasehold-lab sim [--seeds N] [--from S] [--seed S] [--minutes M] [-v]`
//! `leasehold-lab bytes [--seeds N] [--seed S] [-v]`
//! `leasehold-lab chaos [--minutes 2] [--seed N] [--json]`

mod bytes;
mod chaos;
mod models;
mod sim;

use std::process::ExitCode;

use models::{Form, Options, Size};

const USAGE: &str = "leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let word = args.next().unwrap_or_default();
    let done = match word.as_str() {
        "models" => options(args).map(|options| models::run(&options)),
        "sim" => sim::Options::of(args).map(|options| sim::run(&options)),
        "bytes" => bytes::Options::of(args).map(|options| bytes::run(&options)),
        "chaos" => chaos::main(args),
        word => chaos::hidden(word, args),
    };
    done.unwrap_or_else(usage)
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

fn usage() -> ExitCode {
    let usages = [USAGE, sim::USAGE, bytes::USAGE, chaos::USAGE];
    eprintln!("usage: {}", usages.join("\n       "));
    ExitCode::from(2)
}
