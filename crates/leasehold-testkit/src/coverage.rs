//! The coverage of many runs together: faults, and interesting paths of the code.
//!
//! A simulation that passes for ten thousand seeds has proved nothing about a fault that it never injected, nor about a
//! branch that it never took. So every run counts its events, the counts are added up, and an event of a given list that
//! never happened fails the campaign.
//!
//! ```
//! use leasehold_testkit::coverage::{Coverage, Kind};
//!
//! let mut coverage = Coverage::default();
//! coverage.count(Kind::Fault, "cut", 1);
//! coverage.count(Kind::Mark, "GhostPush", 3);
//! assert_eq!(coverage.missing(Kind::Fault, ["cut", "freeze"]), ["freeze"]);
//! assert!(coverage.missing(Kind::Mark, ["GhostPush"]).is_empty());
//! ```

use std::collections::BTreeMap;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A test injected a fault.
    Fault,
    /// A client or a server did something, or got a message.
    Event,
    /// The system took this path: `leasehold_spec::mark`.
    Mark,
}

/// The counts of all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<(Kind, String), u64>);

impl Coverage {
    /// Adds to a count; adding 0 does not create an entry.
    pub fn count(&mut self, kind: Kind, what: &str, times: u64) {
        if times > 0 {
            *self.0.entry((kind, what.to_owned())).or_default() += times;
        }
    }

    /// Returns the count of an event.
    #[must_use]
    pub fn times(&self, kind: Kind, what: &str) -> u64 {
        self.0.get(&(kind, what.to_owned())).copied().unwrap_or(0)
    }

    /// Returns all events of this kind, with their counts.
    pub fn iter(&self, kind: Kind) -> impl Iterator<Item = (&str, u64)> {
        let of_kind = self.0.iter().filter(move |((known, _), _)| *known == kind);
        of_kind.map(|((_, what), times)| (what.as_str(), *times))
    }

    /// Returns the wanted events that have never happened.
    pub fn missing<'a>(&self, kind: Kind, wanted: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        wanted.into_iter().filter(|what| self.times(kind, what) == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_events_are_listed() {
        let mut coverage = Coverage::default();
        ["cut", "freeze", "cut"].iter().for_each(|fault| coverage.count(Kind::Fault, fault, 1));
        coverage.count(Kind::Mark, "kill", 1);
        coverage.count(Kind::Fault, "jump", 0);
        assert_eq!(coverage.missing(Kind::Fault, ["kill", "cut", "jump"]), ["kill", "jump"]);
        assert_eq!(coverage.iter(Kind::Fault).collect::<Vec<_>>(), [("cut", 2), ("freeze", 1)]);
        assert!(coverage.missing(Kind::Mark, ["kill"]).is_empty());
    }
}
