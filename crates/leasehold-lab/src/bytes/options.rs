//! What `leasehold-lab bytes` is told.

use super::trace::Form;

/// How it is called.
pub(crate) const USAGE: &str = "leasehold-lab bytes [--seeds N] [--seed S] [-v]";

/// What it is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The first seed.
    pub(crate) first: u64,
    /// How many, from there on.
    pub(crate) seeds: u64,
    /// Whether all that happens is printed.
    pub(crate) form: Form,
}

impl Options {
    /// Reads them; `None` for what is none.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { first: 1, seeds: 300, form: Form::Brief };
        let mut is_many = false;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seeds" => (options.seeds, is_many) = (args.next()?.parse().ok().filter(|&seeds| seeds > 0)?, true),
                "--seed" => {
                    options.first = args.next()?.parse().ok()?;
                    options.seeds = if is_many { options.seeds } else { 1 };
                }
                "-v" => options.form = Form::Long,
                _ => return None,
            }
        }
        Some(options)
    }
}
