//! The locks that a run holds: one, or several as a multi-lock.

use std::fmt;
use std::time::Duration;

use leasehold::{All, Inspection, Leasehold, Member};

/// The names of the locks that a run holds together, and how it holds each of them.
#[derive(Debug)]
pub(crate) struct Names {
    names: Vec<String>,
    share: Share,
}

/// The share of each lock that the run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// A mutex.
    Whole,
    /// The leadership of an election, which is a mutex with observers.
    Leader,
    /// The side of a reader.
    Read,
    /// The side of a writer.
    Write,
    /// Some of the permits of a semaphore.
    Permits { permits: u32, limit: u32 },
}

/// The settings of each lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) min_hold: Duration,
}

impl Names {
    /// Returns the names, in the order in which the user gave them.
    ///
    /// # Errors
    /// If a name occurs twice: the run would wait for itself.
    pub(crate) fn new(names: Vec<String>, share: Share) -> Result<Self, String> {
        for (number, name) in names.iter().enumerate() {
            if names[..number].contains(name) {
                return Err(format!("{name:?} is named twice, and the run would wait for itself"));
            }
        }
        Ok(Self { names, share })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the only name, unless there are several.
    pub(crate) fn only(&self) -> Option<&str> {
        match &self.names[..] {
            [name] => Some(name),
            _ => None,
        }
    }

    /// Returns the multi-lock of these names, which may have one member only.
    pub(crate) fn of(&self, client: &Leasehold, settings: Settings) -> All {
        leasehold::all(self.iter().map(|name| self.member(client, name, settings)))
    }

    fn member(&self, client: &Leasehold, name: &str, Settings { lease, min_hold }: Settings) -> Member {
        match self.share {
            Share::Whole | Share::Leader => client.mutex(name).lease(lease).min_hold(min_hold).full_lease().into(),
            Share::Read => client.rw_lock(name).lease(lease).full_lease().reading(),
            Share::Write => client.rw_lock(name).lease(lease).full_lease().writing(),
            Share::Permits { permits, limit } => {
                client.semaphore(name, limit).lease(lease).full_lease().member(permits)
            }
        }
    }

    /// Notifies the observers of an election, after its leader has changed.
    pub(crate) async fn announce(&self, client: &Leasehold) {
        if self.share == Share::Leader {
            for name in self.iter() {
                leasehold::seam::announce(client, name).await;
            }
        }
    }

    /// Inspects one of the locks.
    pub(crate) async fn inspect(&self, client: &Leasehold, name: &str) -> leasehold::Result<Inspection> {
        match self.share {
            Share::Whole | Share::Leader => client.mutex(name).inspect().await,
            Share::Read | Share::Write => client.rw_lock(name).inspect().await,
            Share::Permits { limit, .. } => client.semaphore(name, limit).inspect().await,
        }
    }
}

/// Writes a noun in the singular: `"a"`, or `the multi-lock of "a", "b" and "c"`.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names[..] {
            [name] => write!(f, "\"{name}\""),
            [first @ .., last] => {
                let first: Vec<String> = first.iter().map(|name| format!("\"{name}\"")).collect();
                write!(f, "the multi-lock of {} and \"{last}\"", first.join(", "))
            }
            [] => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Result<Names, String> {
        Names::new(names.iter().map(|name| (*name).to_owned()).collect(), Share::Whole)
    }

    #[test]
    fn names_are_a_noun_in_the_singular() {
        for (of, shown) in [
            (&["a"][..], "\"a\""),
            (&["a", "b"], "the multi-lock of \"a\" and \"b\""),
            (&["a", "b c", "d"], "the multi-lock of \"a\", \"b c\" and \"d\""),
        ] {
            assert_eq!(names(of).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_name_that_occurs_twice_is_refused() {
        assert!(names(&["a", "b", "a"]).unwrap_err().starts_with("\"a\" is named twice"));
    }
}
