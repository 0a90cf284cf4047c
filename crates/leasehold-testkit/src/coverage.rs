//! What has happened in many runs together: which faults, and which of the code's interesting paths.
//!
//! A simulation that passes for ten thousand seeds has shown nothing about a fault that it never injected, nor about a
//! branch that it never took. So every run says what happened in it, the runs are added up, over processes as well, and
//! what never happened out of a stated list fails the campaign.
//!
//! ```
//! use leasehold_testkit::coverage::{Coverage, Kind};
//! use leasehold_testkit::history::Recorder;
//!
//! let recorder = Recorder::in_memory();
//! recorder.injected("cut");
//! let mut coverage = Coverage::of(&recorder.history());
//! coverage.count(Kind::Mark, "GhostPushed", 3);
//! assert_eq!(coverage.missing(Kind::Fault, ["cut", "freeze"]), ["freeze"]);
//! coverage.assert_all(Kind::Mark, ["GhostPushed"]);
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::history::{Event, History, line};

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A test did it to the system.
    Fault,
    /// The system took this path: `leasehold_spec::mark`.
    Mark,
}

/// How often each thing has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<(Kind, String), u64>);

#[derive(Serialize, Deserialize)]
struct Line {
    kind: Kind,
    what: String,
    times: u64,
}

impl Coverage {
    /// The faults of a history.
    #[must_use]
    pub fn of(history: &History) -> Self {
        let mut coverage = Self::default();
        for event in &history.events {
            if let Event::Injected { fault, .. } = event {
                coverage.count(Kind::Fault, fault, 1);
            }
        }
        coverage
    }

    /// It has happened so often; 0 times is not at all.
    pub fn count(&mut self, kind: Kind, what: &str, times: u64) {
        if times > 0 {
            *self.0.entry((kind, what.to_owned())).or_default() += times;
        }
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        for ((kind, what), times) in &other.0 {
            self.count(*kind, what, *times);
        }
    }

    /// How often it has happened.
    #[must_use]
    pub fn times(&self, kind: Kind, what: &str) -> u64 {
        self.0.get(&(kind, what.to_owned())).copied().unwrap_or(0)
    }

    /// All of this kind that happened, and how often.
    pub fn iter(&self, kind: Kind) -> impl Iterator<Item = (&str, u64)> {
        let of_kind = self.0.iter().filter(move |((known, _), _)| *known == kind);
        of_kind.map(|((_, what), times)| (what.as_str(), *times))
    }

    /// What of these has never happened.
    pub fn missing<'a>(&self, kind: Kind, wanted: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        wanted.into_iter().filter(|what| self.times(kind, what) == 0).collect()
    }

    /// Panics with what of these has never happened, if there is any.
    ///
    /// # Panics
    /// If something is missing.
    #[track_caller]
    pub fn assert_all<'a>(&self, kind: Kind, wanted: impl IntoIterator<Item = &'a str>) {
        let missing = self.missing(kind, wanted);
        assert!(missing.is_empty(), "what has passed proves nothing about what never happened ({kind:?}): {missing:?}");
    }

    /// Appends it to a file, in one piece: many processes can share one.
    pub fn append_to(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut text = Vec::new();
        for ((kind, what), times) in &self.0 {
            text.extend(line(&Line { kind: *kind, what: what.clone(), times: *times })?);
        }
        File::options().create(true).append(true).open(path)?.write_all(&text)
    }

    /// Reads what was appended to a file, all together.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut coverage = Self::default();
        for text in std::fs::read_to_string(path)?.lines() {
            let Line { kind, what, times } = serde_json::from_str(text)?;
            coverage.count(kind, &what, times);
        }
        Ok(coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Recorder;

    fn of_faults(faults: &[&str]) -> Coverage {
        let recorder = Recorder::in_memory();
        faults.iter().for_each(|fault| recorder.injected(fault));
        Coverage::of(&recorder.history())
    }

    #[test]
    fn what_never_happened_is_named() {
        let mut coverage = of_faults(&["cut", "freeze", "cut"]);
        coverage.count(Kind::Mark, "kill", 1);
        coverage.count(Kind::Fault, "jump", 0);
        assert_eq!(coverage.missing(Kind::Fault, ["kill", "cut", "jump"]), ["kill", "jump"]);
        assert_eq!(coverage.iter(Kind::Fault).collect::<Vec<_>>(), [("cut", 2), ("freeze", 1)]);
        coverage.assert_all(Kind::Mark, ["kill"]);
    }

    #[test]
    #[should_panic(expected = "never happened (Fault): [\"kill\"]")]
    fn what_is_missing_fails() {
        of_faults(&["cut"]).assert_all(Kind::Fault, ["kill", "cut"]);
    }

    #[test]
    fn runs_add_up_in_memory_and_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("coverage");
        let (mut one, two) = (of_faults(&["cut", "a \"b\"\n"]), of_faults(&["cut", "kill"]));
        one.append_to(&path).unwrap();
        two.append_to(&path).unwrap();
        one.add(&two);
        assert_eq!(one.times(Kind::Fault, "cut"), 2);
        assert_eq!(Coverage::read(&path).unwrap(), one);
    }
}
