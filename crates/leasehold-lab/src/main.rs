//! Leasehold's laboratory: where the protocol is taken apart.
//!
//! `leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]`
//! `leasehold-lab bytes [--seeds N] [--seed S] [-v]`
//! `leasehold-lab chaos [--minutes 2] [--seed N] [--json]`

mod bytes;
mod chaos;
mod models;

use std::process::ExitCode;

use models::{Form, Options, Size};

const USAGE: &str = "leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let word = args.next().unwrap_or_default();
    let done = match word.as_str() {
        "models" => options(args).map(|options| models::run(&options)),
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
    eprintln!("usage: {USAGE}\n       {}\n       {}", bytes::USAGE, chaos::USAGE);
    ExitCode::from(2)
}
