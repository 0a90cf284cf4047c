//! The names that are locked, and their leases.
//!
//! A name belongs to its round, so that each round is judged by itself and an excuse of one round does not hide a
//! violation of another. One name lives for a whole epoch: its tokens must increase in spite of all faults of its
//! server.

use std::time::Duration;

use leasehold_testkit::Random;

use super::client::RUNTIMES;
use super::fleet::{CLIENTS, slot_of};
use super::options::Store;
use super::quorum::MAX_LEASE;

/// The use of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Every client wants it.
    Hot,
    /// A few clients want it; its leases are short.
    Warm,
    /// Seldom wanted; its leases are long.
    Cold,
    /// The only name whose holders are revoked, because a revocation excuses violations of its name.
    Open,
    /// For clients that are not killed. Its leases are so long that none ends by itself: a grant of an abandoned
    /// attempt, or a grant whose release never arrived, is still there when the round is over.
    Far,
    /// Each runtime of a client has one, which no other client wants.
    Own,
    /// For orders of the lab: its holder is stopped and revoked.
    Revoked,
    /// For orders of the lab: its holder is killed, and the clock is set back.
    Bereft,
    /// For orders of the lab: clients come one after the other, and are to be served in this order.
    Line,
    /// A read-write lock.
    Rw,
    /// A semaphore.
    Pool,
    /// A mutex with a condition variable, a latch and a barrier.
    Meet,
    /// Lives for all rounds of an epoch; has fenced effects only.
    Long,
}

const WARM: u64 = 4;
const COLD: u64 = 24;
const FAR: u64 = 2;
const RW: u64 = 2;
const POOL: u64 = 2;
const MEET: u64 = 2;
const OWN: u64 = (CLIENTS * RUNTIMES) as u64;

impl Class {
    pub(crate) fn of(name: &str) -> Self {
        match name.split_once('.').map_or(name, |(_, class)| class).trim_end_matches(|c: char| c.is_ascii_digit()) {
            "hot" => Self::Hot,
            "warm" => Self::Warm,
            "cold" => Self::Cold,
            "open" => Self::Open,
            "far" => Self::Far,
            "own" => Self::Own,
            "revoked" => Self::Revoked,
            "bereft" => Self::Bereft,
            "line" => Self::Line,
            "rw" => Self::Rw,
            "pool" => Self::Pool,
            "meet" => Self::Meet,
            _ => Self::Long,
        }
    }

    /// Returns the longest lease of such a name on this store.
    pub(crate) fn longest_lease(self, store: Store) -> Duration {
        if self == Self::Far && store == Store::Quorum {
            return MAX_LEASE;
        }
        Duration::from_millis(match self {
            Self::Hot => 1_000,
            Self::Warm => 400,
            Self::Cold => 3_000,
            Self::Open => 1_500,
            Self::Far => 60_000,
            // The longest lease that a quorum allows.
            Self::Revoked => 20_000,
            Self::Bereft => 4_500,
            Self::Line => 1_500,
            Self::Own => 9_000,
            Self::Rw | Self::Pool | Self::Meet => 1_200,
            Self::Long => 2_000,
        })
    }
}

/// Whether a client may be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Mortal,
    Keeper,
}

/// The names of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) round: u64,
    pub(crate) epoch: u64,
}

impl Names {
    pub(crate) fn hot(self) -> String {
        format!("r{}.hot", self.round)
    }

    /// Whether the name outlives its round.
    pub(crate) fn is_of_epoch(name: &str) -> bool {
        Class::of(name) == Class::Long
    }

    /// Returns all names that clients of this store use.
    pub(crate) fn all(self, store: Store) -> Vec<String> {
        let pools = if store.has_pools() { (RW, POOL, MEET) } else { (0, 0, 0) };
        let numbered = |class: &'static str, count| (0..count).map(move |i| format!("r{}.{class}{i}", self.round));
        let single = [self.hot(), format!("r{}.open", self.round), self.revoked(), self.bereft(), self.long()];
        let line = store.keeps_order().then(|| self.line());
        single
            .into_iter()
            .chain(line)
            .chain(numbered("warm", WARM))
            .chain(numbered("cold", COLD))
            .chain(numbered("far", FAR))
            .chain(numbered("own", OWN))
            .chain(numbered("rw", pools.0))
            .chain(numbered("pool", pools.1))
            .chain(numbered("meet", pools.2))
            .collect()
    }

    /// Returns the name of one runtime of the client with this label.
    pub(crate) fn own(self, label: &str, runtime: usize) -> String {
        let slot = slot_of(label).expect("clients are numbered");
        format!("r{}.own{}", self.round, slot * RUNTIMES + runtime)
    }

    pub(crate) fn revoked(self) -> String {
        format!("r{}.revoked", self.round)
    }

    pub(crate) fn bereft(self) -> String {
        format!("r{}.bereft", self.round)
    }

    pub(crate) fn line(self) -> String {
        format!("r{}.line", self.round)
    }

    /// Returns the name that a client wants next.
    pub(crate) fn pick(self, random: &mut Random, (who, store): (Life, Store)) -> String {
        let far = if who == Life::Keeper { 25 } else { 0 };
        let pool = if store.has_pools() { 15 } else { 0 };
        let class = random.weighted(&[
            (40, Class::Hot),
            (30, Class::Warm),
            (15, Class::Cold),
            (8, Class::Open),
            (far, Class::Far),
            (7, Class::Long),
            (pool, Class::Rw),
            (pool, Class::Pool),
            (pool, Class::Meet),
        ]);
        match class {
            Class::Hot => self.hot(),
            Class::Warm => format!("r{}.warm{}", self.round, random.below(WARM)),
            Class::Cold => format!("r{}.cold{}", self.round, random.below(COLD)),
            Class::Open => format!("r{}.open", self.round),
            Class::Far => format!("r{}.far{}", self.round, random.below(FAR)),
            Class::Long => self.long(),
            Class::Rw => format!("r{}.rw{}", self.round, random.below(RW)),
            Class::Pool => format!("r{}.pool{}", self.round, random.below(POOL)),
            Class::Meet => format!("r{}.meet{}", self.round, random.below(MEET)),
            Class::Own | Class::Revoked | Class::Bereft | Class::Line => {
                unreachable!("only orders of the lab use {class:?}")
            }
        }
    }

    fn long(self) -> String {
        format!("e{}.long", self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_derived_from_the_name() {
        let names = Names { round: 12, epoch: 3 };
        let mut random = Random::new(1);
        let all = names.all(Store::Redis);
        assert!((0..200).all(|_| all.contains(&names.pick(&mut random, (Life::Keeper, Store::Redis)))));
        let mut mortal = || Class::of(&names.pick(&mut random, (Life::Mortal, Store::Quorum)));
        assert!(
            (0..200).map(|_| mortal()).all(|class| ![Class::Far, Class::Rw, Class::Pool, Class::Meet].contains(&class))
        );
        assert_eq!(all.len() - names.all(Store::Quorum).len(), 7);
        let count = |class| all.iter().filter(|name| Class::of(name) == class).count() as u64;
        let classes = [Class::Hot, Class::Warm, Class::Cold, Class::Open, Class::Far, Class::Long];
        assert_eq!(classes.map(count), [1, WARM, COLD, 1, FAR, 1]);
        assert_eq!([Class::Own, Class::Revoked, Class::Bereft, Class::Line].map(count), [OWN, 1, 1, 1]);
        assert!(all.contains(&names.own("c6.3", RUNTIMES - 1)) && names.own("c0.1", 0) == "r12.own0");
        assert!(Names::is_of_epoch("e3.long") && !Names::is_of_epoch("r12.hot"));
    }
}
