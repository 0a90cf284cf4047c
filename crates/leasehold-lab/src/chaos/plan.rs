//! The schedule of faults: a function of the seed, and of nothing else.
//!
//! Time is divided into *rounds*: a calm second, some seconds of faults, a repair. Each round has its own mix, a random
//! subset of the kinds (a swarm: if two kinds are never mixed, their combined bugs are never found; if all kinds are
//! always mixed, they hide each other's bugs). But chance alone leaves some kind out for minutes. So every round also
//! deals five kinds from a deck of all kinds, which is shuffled anew when it is empty. As a result two minutes meet
//! every kind, whatever the seed.
//!
//! Between the calm second and the mix one fault comes alone, a *solo*: the promises that hold while nothing else is
//! broken are judged there.
//!
//! Rounds of one *epoch* share a server and its clients, which remember the faults of the rounds before.

use super::kind::{Kind, Target};
use super::nodes::Nodes;
use super::options::Store;
use leasehold_testkit::Random;

/// How the server keeps the commands that it has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// It keeps nothing.
    None,
    /// An append-only file, flushed each second.
    EverySecond,
    /// An append-only file, flushed before each reply.
    Always,
}

/// How clients that are not behind the faulty proxy connect to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To its own port.
    Direct,
    /// To a proxy that only forwards to the current primary: there are failovers.
    Led,
}

/// The common properties of rounds that share a server and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) disk: Disk,
    pub(crate) reach: Reach,
    /// The minority of a quorum's nodes that forget in this epoch, once or more. With a different minority in each
    /// round, all nodes would soon be in quarantine.
    pub(crate) frail: Nodes,
}

/// One planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) kind: Kind,
    /// In milliseconds since the round's faults began.
    pub(crate) at_ms: u64,
    pub(crate) for_ms: u64,
    /// The servers that the fault strikes.
    pub(crate) nodes: Nodes,
    /// A random number for the choices that the kind leaves open: the client, the distance, the frequency.
    pub(crate) dice: u64,
}

impl Strike {
    pub(crate) fn ends_ms(&self) -> u64 {
        self.at_ms + self.for_ms
    }
}

/// A calm second, a fault that comes alone, faults, a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    pub(crate) is_first_of_epoch: bool,
    /// The fault that comes first and alone.
    pub(crate) solo: Strike,
    pub(crate) faults_ms: u64,
    /// Sorted by their beginnings.
    pub(crate) strikes: Vec<Strike>,
    /// The seed of the clients' own choices.
    pub(crate) seed: u64,
}

/// The length of the calm second of a round: its grants show that the system works at all.
pub(crate) const CALM_MS: u64 = 1_000;
const FAULTS_MS: (u64, u64) = (5_000, 6_500);
/// How many faults each round deals from the deck, and how many more it has at most.
const DEALT: usize = 5;
/// How many of these strike the server's process: more would find no room beside each other.
const SERVER_DEALT: usize = 2;
const MORE: u64 = 5;
/// How often the planner looks for a place for a fault that must not overlap another one.
const TRIES: usize = 100;
/// How many servers a quorum has.
pub(crate) const NODES: usize = 5;
/// How many of them a fault strikes, by weight: a minority in most cases.
const STRUCK: [(u64, usize); 5] = [(50, 1), (30, 2), (12, 3), (3, 4), (5, NODES)];
/// The number of rounds of an epoch. The first epochs, one for each disk, deal the whole deck.
const EPOCH_ROUNDS: u64 = 3;
/// The number of rounds after which every kind was planned.
#[cfg(test)]
const ROUNDS_OF_ALL: u64 = 3 * EPOCH_ROUNDS;

/// Plans one round after the other.
#[derive(Debug)]
pub(crate) struct Planner {
    store: Store,
    random: Random,
    number: u64,
    epoch: Epoch,
    /// The rounds left in this epoch.
    rounds_left: u64,
    disks: Vec<Disk>,
    deck: Vec<Kind>,
    solos: Vec<Kind>,
}

impl Planner {
    pub(crate) fn new(seed: u64, store: Store) -> Self {
        let random = Random::new(seed);
        let epoch = Epoch { number: 0, disk: Disk::None, reach: Reach::Direct, frail: Nodes::FIRST };
        Self { store, random, number: 0, epoch, rounds_left: 0, disks: vec![], deck: vec![], solos: vec![] }
    }

    pub(crate) fn next_round(&mut self) -> Round {
        let is_first_of_epoch = self.rounds_left == 0;
        if is_first_of_epoch {
            self.begin_epoch();
        }
        self.rounds_left -= 1;
        self.number += 1;
        let solo = self.solo();
        let faults_ms = self.random.within(FAULTS_MS.0, FAULTS_MS.1);
        let strikes = self.strikes(faults_ms);
        let seed = self.random.number();
        Round { number: self.number, epoch: self.epoch, is_first_of_epoch, solo, faults_ms, strikes, seed }
    }

    fn begin_epoch(&mut self) {
        if self.disks.is_empty() {
            self.disks = vec![Disk::None, Disk::EverySecond, Disk::Always];
            self.random.shuffle(&mut self.disks);
        }
        let number = self.epoch.number + 1;
        let is_led = self.store != Store::Quorum && !number.is_multiple_of(2);
        let reach = if is_led { Reach::Led } else { Reach::Direct };
        let frail = match self.store {
            Store::Quorum => Nodes::random(1 + self.random.index(NODES / 2), &mut self.random),
            Store::Redis | Store::File => Nodes::FIRST,
        };
        self.epoch = Epoch { number, disk: self.disks.pop().expect("three disks"), reach, frail };
        self.rounds_left = EPOCH_ROUNDS;
    }

    fn solo(&mut self) -> Strike {
        if self.solos.is_empty() {
            self.solos = kinds(self.store).into_iter().filter(|kind| kind.is_solo()).collect();
            self.random.shuffle(&mut self.solos);
        }
        let kind = self.solos.pop().expect("every store has some");
        let (least_ms, most_ms) = kind.lasts_ms();
        let for_ms = self.random.within(least_ms, most_ms);
        Strike { kind, at_ms: 0, for_ms, nodes: Nodes::FIRST, dice: self.random.number() }
    }

    fn strikes(&mut self, faults_ms: u64) -> Vec<Strike> {
        let mut strikes = Vec::new();
        let mut dealt = self.deal();
        // Faults that need the most room are placed first.
        dealt.sort_by_key(|kind| std::cmp::Reverse(kind.lasts_ms().1));
        for kind in dealt {
            match self.place(kind, faults_ms, &strikes) {
                Some(strike) => strikes.push(strike),
                // No room in this round: it is dealt first in the next.
                None => self.deck.push(kind),
            }
        }
        // The swarm: half of the kinds may come in this round.
        let mut swarm: Vec<Kind> = kinds(self.store);
        swarm.retain(|kind| kind.is_mixed() && kind.strikes(self.epoch));
        self.random.shuffle(&mut swarm);
        swarm.truncate(swarm.len() / 2);
        for _ in 0..self.random.below(MORE + 1) {
            let kind = *self.random.pick(&swarm);
            strikes.extend(self.place(kind, faults_ms, &strikes));
        }
        strikes.sort_by_key(|strike| strike.at_ms);
        strikes
    }

    /// Deals the next kinds of the deck that this epoch allows: first the kinds that other epochs may not allow. If the
    /// deck has no fitting kind left, a new deck is put under the rest, so that a kind that could not be dealt for a
    /// long time is dealt first when it can be.
    fn deal(&mut self) -> Vec<Kind> {
        let mut dealt: Vec<Kind> = Vec::new();
        while dealt.len() < DEALT {
            let is_server = |kind: &Kind| kind.target() == Target::ServerProcess;
            let is_crowded = dealt.iter().filter(|kind| is_server(kind)).count() == SERVER_DEALT;
            let fits = |kind: &Kind| kind.strikes(self.epoch) && !(is_crowded && is_server(kind));
            let rare = self.deck.iter().rposition(|kind| fits(kind) && kind.is_rare());
            match rare.or_else(|| self.deck.iter().rposition(fits)) {
                Some(at) => dealt.push(self.deck.remove(at)),
                None => {
                    let mut fresh: Vec<Kind> = kinds(self.store).into_iter().filter(|kind| kind.is_mixed()).collect();
                    self.random.shuffle(&mut fresh);
                    self.deck.splice(..0, fresh);
                }
            }
        }
        dealt
    }

    fn nodes(&mut self, kind: Kind) -> Nodes {
        if self.store != Store::Quorum || kind.target() == Target::Clients {
            return Nodes::FIRST;
        }
        let count = self.random.weighted(&STRUCK);
        match kind.forgets() && count <= NODES / 2 {
            true => self.epoch.frail.some(count, &mut self.random),
            false => Nodes::random(count, &mut self.random),
        }
    }

    /// Finds a place in the round for the fault, beside the faults that have their places.
    fn place(&mut self, kind: Kind, faults_ms: u64, others: &[Strike]) -> Option<Strike> {
        for _ in 0..TRIES {
            let (least_ms, most_ms) = kind.lasts_ms();
            let for_ms = self.random.within(least_ms, most_ms);
            let at_ms = self.random.below(faults_ms - for_ms.min(faults_ms - 1));
            let dice = self.random.number();
            let strike = Strike { kind, at_ms, for_ms, nodes: self.nodes(kind), dice };
            if !others.iter().any(|other| collide(&strike, other)) {
                return Some(strike);
            }
        }
        None
    }
}

impl Round {
    /// Returns the kinds of its faults.
    #[cfg(test)]
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        std::iter::once(self.solo.kind).chain(self.strikes.iter().map(|strike| strike.kind))
    }
}

/// Returns the kinds of faults that can strike this store.
pub(crate) fn kinds(store: Store) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_of(store)).collect()
}

/// Whether two faults strike the same target at the same time, so that the end of one would end the other.
fn collide(one: &Strike, other: &Strike) -> bool {
    // A server takes some time to come back.
    const APART_MS: u64 = 300;
    let meet = one.at_ms <= other.ends_ms() + APART_MS && other.at_ms <= one.ends_ms() + APART_MS;
    let is_server = |strike: &Strike| strike.kind.target() == Target::ServerProcess;
    let is_client = |strike: &Strike| strike.kind.target() == Target::Clients;
    let share = one.nodes.meet(other.nodes);
    meet && share && ((is_server(one) && is_server(other)) || (one.kind == other.kind && !is_client(one)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn rounds(seed: u64, count: u64) -> Vec<Round> {
        rounds_of(Store::Redis, seed, count)
    }

    fn rounds_of(store: Store, seed: u64, count: u64) -> Vec<Round> {
        let mut planner = Planner::new(seed, store);
        (0..count).map(|_| planner.next_round()).collect()
    }

    #[test]
    fn a_seed_repeats_its_plan_and_another_seed_plans_differently() {
        assert_eq!(rounds(7, 50), rounds(7, 50));
        assert_ne!(rounds(7, 1)[0].strikes, rounds(8, 1)[0].strikes);
    }

    #[test]
    fn every_kind_is_planned_within_two_minutes_for_any_seed() {
        for seed in 0..2_000 {
            let planned: BTreeSet<Kind> = rounds(seed, ROUNDS_OF_ALL).iter().flat_map(Round::kinds).collect();
            let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !planned.contains(kind)).collect();
            assert!(missing.is_empty(), "seed {seed}: {missing:?}");
            let planned_ms: u64 = rounds(seed, ROUNDS_OF_ALL).iter().map(|round| CALM_MS + round.faults_ms).sum();
            assert!(planned_ms < 90_000, "seed {seed}: {planned_ms} ms, and each round heals");
        }
    }

    #[test]
    fn faults_of_one_server_do_not_overlap_and_end_within_their_round() {
        for round in (0..200).flat_map(|seed| rounds(seed, 12)) {
            for (i, one) in round.strikes.iter().enumerate() {
                assert!(one.ends_ms() < round.faults_ms && one.kind.strikes(round.epoch), "{one:?} in {round:?}");
                assert!(round.strikes[..i].iter().all(|other| !collide(one, other)), "{round:?}");
            }
            assert!(round.strikes.len() >= 3, "{round:?}");
        }
    }

    #[test]
    fn faults_of_a_directory_strike_only_its_clients() {
        let mut planner = Planner::new(3, Store::File);
        let rounds: Vec<Round> = (0..ROUNDS_OF_ALL).map(|_| planner.next_round()).collect();
        let planned: BTreeSet<Kind> = rounds.iter().flat_map(Round::kinds).collect();
        assert_eq!(planned, kinds(Store::File).into_iter().collect());
        assert!(planned.iter().all(|kind| kind.target() == Target::Clients), "{planned:?}");
    }

    #[test]
    fn faults_of_a_quorum_strike_a_minority_mostly_and_sometimes_a_majority() {
        for seed in 0..200 {
            let rounds = rounds_of(Store::Quorum, seed, ROUNDS_OF_ALL);
            let strikes = || rounds.iter().flat_map(|round| round.strikes.iter().map(move |strike| (round, strike)));
            let planned: BTreeSet<Kind> = rounds.iter().flat_map(Round::kinds).collect();
            assert_eq!(planned, kinds(Store::Quorum).into_iter().collect(), "seed {seed}");
            for (round, strike) in strikes().filter(|(_, strike)| strike.kind.forgets()) {
                let is_of_few = strike.nodes.iter().all(|at| round.epoch.frail.iter().any(|frail| frail == at));
                assert!(is_of_few || strike.nodes.iter().count() > NODES / 2, "{strike:?} in {round:?}");
            }
            let of_most = strikes().filter(|(_, strike)| strike.nodes.iter().count() > NODES / 2).count();
            assert!((1..strikes().count() / 2).contains(&of_most), "seed {seed}: {of_most}");
        }
    }

    /// `tests/chaos_quorum.rs` relies on it.
    #[test]
    fn a_known_seed_empties_most_nodes_in_the_first_round_and_later() {
        let empties = |strike: &Strike| {
            let is_empty = matches!(strike.kind, Kind::FlushAll | Kind::CrashEmpty);
            is_empty && strike.nodes.iter().count() > NODES / 2
        };
        let times = |seed, rounds| {
            let strikes = rounds_of(Store::Quorum, seed, rounds).into_iter().flat_map(|round| round.strikes);
            strikes.filter(empties).count()
        };
        assert_eq!((times(6_516_004, 1), times(6_516_004, 6)), (3, 6));
    }

    #[test]
    fn mixes_differ() {
        let mixes: BTreeSet<Vec<Kind>> =
            rounds(1, 100).iter().map(|round| round.strikes.iter().map(|strike| strike.kind).collect()).collect();
        assert_eq!(mixes.len(), 100);
        let overlaps = |round: &Round| {
            round.strikes.windows(2).any(|pair| pair[0].ends_ms() > pair[1].at_ms && pair[0].kind != pair[1].kind)
        };
        assert!(rounds(1, 100).iter().filter(|round| overlaps(round)).count() > 50, "faults overlap");
    }

    #[test]
    fn all_kinds_are_listed_once() {
        assert_eq!(BTreeSet::from(Kind::ALL).len(), Kind::ALL.len());
        assert_eq!(Kind::ALL.last(), Some(&Kind::Garble), "the last variant");
        assert_eq!(Kind::ALL.len(), Kind::Garble as usize + 1);
    }
}
