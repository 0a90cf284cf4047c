//! What the user said.

use std::time::Duration;

pub(crate) const USAGE: &str = "leasehold-lab chaos [--minutes 2] [--seed N] [--json]";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) form: Form,
}

/// How the figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    Json,
}

impl Options {
    /// `None` for what makes no sense.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { time: Duration::from_secs(120), seed: any_seed(), form: Form::Words };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--minutes" => {
                    let minutes: f64 = args.next()?.parse().ok()?;
                    options.time = Duration::try_from_secs_f64(minutes * 60.0).ok()?;
                }
                "--seed" => options.seed = args.next()?.parse().ok()?,
                "--json" => options.form = Form::Json,
                _ => return None,
            }
        }
        Some(options)
    }

    /// The command that repeats the schedule.
    pub(crate) fn replay(&self) -> String {
        format!("leasehold-lab chaos --minutes {:.1} --seed {}", self.time.as_secs_f64() / 60.0, self.seed)
    }
}

fn any_seed() -> u64 {
    use std::hash::BuildHasher;
    std::collections::hash_map::RandomState::new().hash_one(0) % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Options> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_nonsense_is_not() {
        let options = parse("--minutes 0.5 --seed 7 --json").expect("sense");
        assert_eq!(options, Options { time: Duration::from_secs(30), seed: 7, form: Form::Json });
        assert_eq!(options.replay(), "leasehold-lab chaos --minutes 0.5 --seed 7");
        assert_eq!(parse("").expect("sense").time, Duration::from_secs(120));
        for nonsense in ["--minutes", "--minutes -1", "--seed x", "--json x", "seed"] {
            assert!(parse(nonsense).is_none(), "{nonsense}");
        }
    }
}
