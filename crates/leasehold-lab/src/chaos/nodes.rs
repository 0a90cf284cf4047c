//! A set of servers.

use std::fmt;

use super::plan::NODES;
use leasehold_testkit::Random;

/// A set of servers, by number. A store with one server has the first one only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nodes(u8);

impl Nodes {
    pub(crate) const FIRST: Self = Self(1);

    /// Returns this many nodes of a quorum.
    pub(crate) fn random(count: usize, random: &mut Random) -> Self {
        Self((1 << NODES) - 1).some(count, random)
    }

    /// Returns this many of these nodes, or all of them.
    pub(crate) fn some(self, count: usize, random: &mut Random) -> Self {
        let mut all: Vec<usize> = self.iter().collect();
        random.shuffle(&mut all);
        Self(all.into_iter().take(count).fold(0, |some, at| some | 1 << at))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(move |at| self.0 & 1 << at != 0)
    }

    pub(crate) fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_choice_is_a_subset() {
        let mut random = Random::new(1);
        for count in 1..=NODES {
            let some = Nodes::random(count, &mut random);
            assert_eq!(some.iter().count(), count);
            let fewer = some.some(2, &mut random);
            assert!(fewer.meet(some) && fewer.iter().all(|at| some.iter().any(|other| other == at)), "{fewer:?}");
        }
        assert!(Nodes::FIRST.iter().eq([0]) && Nodes::FIRST.some(3, &mut random) == Nodes::FIRST);
    }
}
