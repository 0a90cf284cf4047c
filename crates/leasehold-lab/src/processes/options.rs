//! The command line options of `leasehold-lab processes`.

use std::time::Duration;

use super::scene::Scene;
use crate::usage::replay;

pub(crate) const USAGE: &str = "leasehold-lab processes [--scene NAME] [--seconds 60] [--seed 1] \
                                [--store redis|file|URL] [--crashes] [--markdown]";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) scenes: Vec<Scene>,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) store: Store,
    pub(crate) kills: Kills,
    pub(crate) form: Form,
}

/// The choice of the processes that are killed, and of the moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kills {
    /// One process a second, which is started again at once.
    EachSecond,
    /// From one process up to half of them at the same moment, at random moments. They are started again at random
    /// moments, and at the end all are killed.
    Waves,
}

impl Kills {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EachSecond => "second",
            Self::Waves => "waves",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::EachSecond, Self::Waves].into_iter().find(|kills| kills.name() == name)
    }
}

/// The store that the processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// A server that the run starts.
    Redis,
    /// A directory that the run creates.
    File,
    /// A store that exists. Its locks must not be in use.
    Url(String),
}

/// How the results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    /// Rows of the table in `docs/evidence.md`.
    Markdown,
}

impl Store {
    /// Returns the store of this argument. A store in memory cannot be shared, and a URL with a password would be readable
    /// by every user of this machine.
    fn named(word: &str) -> Option<Self> {
        match word {
            "redis" => Some(Self::Redis),
            "file" => Some(Self::File),
            url if url.contains(':') && !url.contains('@') && !url.starts_with("memory:") => {
                Some(Self::Url(url.into()))
            }
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Redis => "redis",
            Self::File => "file",
            Self::Url(url) => url,
        }
    }
}

impl Options {
    /// Parses the options. Returns `None` if they are invalid.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            scenes: Scene::ALL.to_vec(),
            time: Duration::from_secs(60),
            seed: 1,
            store: Store::Redis,
            kills: Kills::EachSecond,
            form: Form::Words,
        };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--scene" => options.scenes = vec![Scene::named(&args.next()?)?],
                "--seconds" => {
                    let seconds = args.next()?.parse().ok().filter(|seconds| (1..=3600).contains(seconds))?;
                    options.time = Duration::from_secs(seconds);
                }
                "--seed" => options.seed = args.next()?.parse().ok()?,
                "--store" => options.store = Store::named(&args.next()?)?,
                "--crashes" => options.kills = Kills::Waves,
                "--markdown" => options.form = Form::Markdown,
                _ => return None,
            }
        }
        Some(options)
    }

    /// Returns the command that plays this scene again.
    pub(crate) fn replay(&self, scene: Scene) -> String {
        let (name, seconds, seed, store) = (scene.name(), self.time.as_secs(), self.seed, self.store.name());
        let crashes = if self.kills == Kills::Waves { " --crashes" } else { "" };
        replay(&format!("processes --scene {name} --seconds {seconds} --seed {seed} --store {store}{crashes}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Options> {
        Options::of(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_parsed_and_invalid_ones_are_refused() {
        let all = parse("").expect("valid options");
        assert_eq!((all.scenes.len(), all.time, all.store.name()), (9, Duration::from_secs(60), "redis"));
        let one =
            parse("--scene leader --seconds 5 --seed 7 --store file --crashes --markdown").expect("valid options");
        assert_eq!((one.scenes.as_slice(), one.form), ([Scene::Leader].as_slice(), Form::Markdown));
        let again = one.replay(Scene::Leader);
        assert!(again.ends_with(" processes --scene leader --seconds 5 --seed 7 --store file --crashes"), "{again}");
        assert_eq!(Kills::named(one.kills.name()), Some(Kills::Waves));
        assert_eq!(parse("--store redis://localhost").expect("valid options").store.name(), "redis://localhost");
        for invalid in
            ["--scene", "--scene cooks", "--seconds 0", "--seconds x", "--store memory:x", "--store redis://:pw@h", "5"]
        {
            assert!(parse(invalid).is_none(), "{invalid}");
        }
    }
}
