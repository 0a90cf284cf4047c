//! The options of the command line.

use super::trace::Form;

pub(crate) const USAGE: &str = "leasehold-lab bytes [--seeds N] [--from S] [-v]
       leasehold-lab bytes --seed S [-v]";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(super) seeds: u64,
    pub(super) from: u64,
    /// Whether each event is printed.
    pub(super) form: Form,
}

impl Options {
    /// Parses the arguments. Returns `None` if they are not valid.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { seeds: 300, from: 1, form: Form::Brief };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seeds" => options.seeds = args.next()?.parse().ok().filter(|seeds| *seeds > 0)?,
                "--from" => options.from = args.next()?.parse().ok()?,
                // This seed alone.
                "--seed" => (options.from, options.seeds) = (args.next()?.parse().ok()?, 1),
                "-v" => options.form = Form::Long,
                _ => return None,
            }
        }
        Some(options)
    }
}
