//! The command line options of `leasehold-lab chaos`.

use std::time::Duration;

use crate::usage::replay;

pub(crate) const USAGE: &str = "leasehold-lab chaos [--minutes 2] [--seed N] [--store redis|file | --quorum] [--json]";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) store: Store,
    pub(crate) form: Form,
}

/// The store that faults strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Redis,
    /// A directory of this host: its client programs die, pause and starve.
    File,
    /// Five servers. Faults strike any of them, and sometimes most of them.
    Quorum,
}

/// How the figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    Json,
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::File => "file",
            Self::Quorum => "quorum",
        }
    }

    /// Whether the store has read-write locks and semaphores.
    pub(crate) const fn has_pools(self) -> bool {
        matches!(self, Self::Redis | Self::File)
    }

    /// Whether waiters are served first come, first served. A quorum promises it only as far as its nodes agree.
    pub(crate) const fn keeps_order(self) -> bool {
        matches!(self, Self::Redis | Self::File)
    }

    /// Returns the length of a run that must meet every kind of fault. A quorum of which most nodes have forgotten
    /// something is in quarantine for some three rounds.
    pub(crate) fn whole(self) -> Duration {
        Duration::from_secs(if self == Self::Quorum { 240 } else { 120 })
    }

    /// Returns the store of a client that was started with this URL.
    pub(crate) fn of(url: &str) -> Self {
        match url.split(':').next() {
            Some("file") => Self::File,
            Some("quorum") => Self::Quorum,
            _ => Self::Redis,
        }
    }
}

impl Options {
    /// Parses the options. Returns `None` if they are invalid.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options =
            Self { time: Duration::from_secs(120), seed: any_seed(), store: Store::Redis, form: Form::Words };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--minutes" => {
                    let minutes: f64 = args.next()?.parse().ok()?;
                    options.time = Duration::try_from_secs_f64(minutes * 60.0).ok()?;
                }
                "--seed" => options.seed = args.next()?.parse().ok()?,
                "--store" => {
                    options.store = match args.next()?.as_str() {
                        "redis" => Store::Redis,
                        "file" => Store::File,
                        "quorum" => Store::Quorum,
                        _ => return None,
                    }
                }
                "--quorum" => options.store = Store::Quorum,
                "--json" => options.form = Form::Json,
                _ => return None,
            }
        }
        Some(options)
    }

    /// Returns the command that repeats the schedule.
    pub(crate) fn replay(&self) -> String {
        let store = match self.store {
            Store::Redis => "",
            Store::File => " --store file",
            Store::Quorum => " --quorum",
        };
        let minutes = self.time.as_secs_f64() / 60.0;
        replay(&format!("chaos --minutes {minutes} --seed {}{store}", self.seed))
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
        Options::of(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_parsed_and_invalid_ones_are_refused() {
        let options = parse("--minutes 0.5 --seed 7 --json").expect("valid options");
        assert_eq!(options, Options { time: Duration::from_secs(30), seed: 7, store: Store::Redis, form: Form::Json });
        assert!(options.replay().ends_with("-p leasehold-lab -- chaos --minutes 0.5 --seed 7"), "{}", options.replay());
        let file = parse("--store file --seed 3").expect("valid options");
        assert!(file.replay().ends_with(" chaos --minutes 2 --seed 3 --store file"), "{}", file.replay());
        let quorum = parse("--quorum --seed 3").expect("valid options");
        assert_eq!(parse("--store quorum --seed 3"), Some(quorum.clone()));
        assert!(quorum.replay().ends_with(" chaos --minutes 2 --seed 3 --quorum"), "{}", quorum.replay());
        assert_eq!(parse("").expect("valid options").time, Duration::from_secs(120));
        for invalid in ["--minutes", "--minutes -1", "--seed x", "--json x", "--store etcd", "seed"] {
            assert!(parse(invalid).is_none(), "{invalid}");
        }
    }
}
