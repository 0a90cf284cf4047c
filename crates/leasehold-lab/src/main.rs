//! Leasehold's laboratory: where the protocol is taken apart.
//!
//! `leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]`
//! `leasehold-lab sim [--seeds N] [--from S] [--seed S] [--minutes M] [-v]`

mod models;
mod sim;

use std::process::ExitCode;

use models::{Form, Options, Size};

const USAGE: &str = "usage: leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("models") => match options(args) {
            Some(options) => models::run(&options),
            None => usage(),
        },
        Some("sim") => match sim::Options::of(args) {
            Some(options) => sim::run(&options),
            None => usage(),
        },
        _ => usage(),
    }
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
    eprintln!("{USAGE}\n       {}", sim::USAGE);
    ExitCode::from(2)
}
