//! Judges whether the next waiter is granted the lease in time when its holder will not give it back.
//!
//! Nothing happens at a store by itself when a lease ends: a waiter has to ask then, and has to know when that is. So this
//! module judges the store and the waiters together. At the moment at which the next grant must have been made, it checks
//! whether the store has made one. It judges only plans in which every message arrives ([`Plan::carries`]), and only if a
//! waiter that knew the end has run all the time since, and still waits.
//!
//! [`Plan::carries`]: super::plan::Plan::carries

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use leasehold_spec::GrantId;

use super::exec::{Part, Pid, lock};
use super::stage::Sim;

const SECOND_US: u64 = 1_000_000;

/// The grants to judge, by number.
#[derive(Default)]
pub(super) struct Follow(Mutex<BTreeMap<u64, Ended>>);

/// A grant that its holder will not give back.
struct Ended {
    name: String,
    token: u64,
    why: Why,
    /// When the next grant must have been made, where no clock is set back.
    base_us: u64,
    /// How long the lease lasts from the moment at which the store finds that its clock was set back.
    length_us: u64,
    /// How often the clock of each node was set back meanwhile.
    set_back: BTreeMap<usize, u64>,
    /// When the next grant must have been made, if waiters were notified after a clock was set back.
    notified_us: u64,
    /// The waiters that know the end.
    informed: Vec<Waiter>,
    /// Of a quorum: the waiters in the queue of any node when the grant began to end. Waiters that have died or stand
    /// still may be called before the others, for a second.
    queue: Vec<Waiter>,
}

/// Why the grant ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its holder has died. The next waiter is granted the lease within the lease and a second: the waiters know the end
    /// from their answers.
    Death,
    /// Its holder has died, and the waiters may not know its lease: another client handed the lease over, and they have not
    /// asked since. They learn its end when they re-check at their own time (P15).
    UnseenDeath,
    /// It was revoked. The next waiter is granted the lease within the grace and a second. The waiters that are next are
    /// notified of the end (P10); the others re-check at their own time.
    Revocation,
}

/// A waiter in the queue.
pub(super) struct Waiter {
    pub(super) id: GrantId,
    pub(super) pid: Pid,
    /// How long its session had stood still when the waiter learned the end.
    halted_us: u64,
}

impl Waiter {
    pub(super) fn new(sim: &Sim, (id, pid): (GrantId, Pid)) -> Self {
        Self { id, pid, halted_us: sim.exec.halted_us(pid, Part::Session) }
    }

    /// Returns whether its session has run all the time since.
    fn has_run(&self, sim: &Sim) -> bool {
        sim.exec.is_alive(self.pid) && sim.exec.halted_us(self.pid, Part::Session) == self.halted_us
    }
}

/// A grant as the store has it.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) token: u64,
    pub(super) left_us: u64,
    pub(super) length_us: u64,
}

/// Judges this grant when its lease is over. Its holder will not give it back, and the waiters in `informed` know the
/// end.
pub(super) fn begins(sim: &Arc<Sim>, held: Held, why: Why, informed: Vec<Waiter>) {
    if !sim.plan.carries() {
        return;
    }
    let Held { name, token, left_us, length_us } = held;
    let least_us = if why == Why::UnseenDeath { sim.plan.recheck_us() } else { 0 };
    let base_us = due_us(sim, left_us.max(least_us));
    let ended = Ended {
        name,
        token,
        why,
        base_us,
        length_us: by_a_slow_clock(sim, length_us),
        set_back: BTreeMap::new(),
        notified_us: 0,
        informed,
        queue: Vec::new(),
    };
    let mut known = lock(&sim.follow.0);
    let number = known.last_key_value().map_or(0, |(last, _)| last + 1);
    known.insert(number, ended);
    drop(known);
    let there = Arc::clone(sim);
    sim.exec.after(0, move || there.follow.queue(&there, number));
    check_at(sim, number, base_us);
}

/// Records that the store had to notify these waiters of the end of a revoked grant. If the clock was set back, and no
/// client has asked since, the lease begins anew now (P1).
pub(super) fn notified(sim: &Sim, held: &Held, waiters: &[(GrantId, Pid)]) {
    let due_us = due_us(sim, held.left_us);
    let mut known = lock(&sim.follow.0);
    let is_it = |ended: &&mut Ended| ended.why == Why::Revocation && ended.is_of(&held.name, held.token);
    for ended in known.values_mut().filter(is_it) {
        ended.informed.extend(waiters.iter().map(|waiter| Waiter::new(sim, *waiter)));
        if !ended.set_back.is_empty() {
            ended.notified_us = due_us.max(ended.notified_us);
        }
    }
}

/// Records that a node's clock was set back. A lease that lies in the future of that clock lasts for its length from
/// the next request on (P1). Nodes whose clocks are set back at the same time cost that once.
pub(super) fn set_back(sim: &Sim, node: usize) {
    let now_us = sim.exec.now_us();
    for ended in lock(&sim.follow.0).values_mut().filter(|ended| ended.due_us() >= now_us) {
        *ended.set_back.entry(node).or_default() += 1;
    }
}

/// Records that the store has carried out a renewal, which a dead holder had sent before its death.
pub(super) fn renewed(sim: &Sim, name: &str, token: u64, left_us: u64) {
    let due_us = due_us(sim, left_us);
    let is_it = |ended: &&mut Ended| ended.why != Why::Revocation && ended.is_of(name, token);
    for ended in lock(&sim.follow.0).values_mut().filter(is_it) {
        (ended.base_us, ended.length_us) =
            (due_us.max(ended.base_us), by_a_slow_clock(sim, left_us).max(ended.length_us));
    }
}

fn due_us(sim: &Sim, left_us: u64) -> u64 {
    sim.exec.now_us() + by_a_slow_clock(sim, left_us) + SECOND_US + sim.plan.soon_us()
}

/// Returns how long a time of the store or of a waiter may really take.
fn by_a_slow_clock(sim: &Sim, us: u64) -> u64 {
    us + us / 1_000_000 * sim.plan.drift_ppm.unsigned_abs()
}

fn check_at(sim: &Arc<Sim>, number: u64, due_us: u64) {
    let (there, now_us) = (Arc::clone(sim), sim.exec.now_us());
    sim.exec.after(due_us.saturating_sub(now_us), move || {
        let Some(ended) = lock(&there.follow.0).remove(&number) else { return };
        let due_us = ended.due_at(&there);
        if due_us > there.exec.now_us() {
            lock(&there.follow.0).insert(number, ended);
            check_at(&there, number, due_us);
        } else {
            ended.judge(&there);
        }
    });
}

impl Follow {
    /// Records the waiters. Runs after the step that ended the grant, because that step holds the store's lock.
    fn queue(&self, sim: &Sim, number: u64) {
        if let Some(ended) = lock(&self.0).get_mut(&number).filter(|_| sim.plan.quorum.is_some()) {
            let waiters = lock(&sim.votes).waiters_at(&ended.name, 1);
            ended.queue = waiters.into_iter().map(|waiter| Waiter::new(sim, waiter)).collect();
        }
    }
}

impl Ended {
    fn is_of(&self, name: &str, token: u64) -> bool {
        self.name == name && self.token == token
    }

    fn due_us(&self) -> u64 {
        let set_back_us = self.length_us * self.set_back.values().max().copied().unwrap_or(0);
        self.notified_us.max(self.base_us + set_back_us)
    }

    /// Returns when the next grant must have been made, as it is known now. A quorum grants the lease when a majority
    /// votes, and silent waiters may be called before that.
    fn due_at(&self, sim: &Sim) -> u64 {
        if sim.plan.quorum.is_none() {
            return self.due_us();
        }
        let silent = self.queue.iter().filter(|waiter| !waiter.has_run(sim)).count() as u64;
        let votes_us = lock(&sim.votes).votes_from_us(&self.name, sim.exec.now_us(), |pid| !sim.exec.is_alive(pid));
        (self.due_us() + silent * SECOND_US).max(votes_us + SECOND_US + sim.plan.soon_us())
    }

    fn judge(&self, sim: &Sim) {
        let Self { name, token, why, .. } = self;
        let still: Vec<GrantId> = sim.waiters(name).iter().map(|waiter| waiter.id).collect();
        let is_followed = !sim.book.is_last_given(name, *token);
        let must_know = self.informed.iter().any(|waiter| waiter.has_run(sim) && still.contains(&waiter.id));
        if is_followed || must_know {
            sim.book.count(match why {
                Why::Death => "the next waiter is served after a death",
                Why::UnseenDeath => "the next waiter is served after an unseen death",
                Why::Revocation => "the next waiter is served after a revocation",
            });
        }
        if must_know && !is_followed {
            let what = format!("{name}: the grant after token {token} was not made in time after a {why:?}");
            sim.book.wrong(sim.exec.now_us(), &what);
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_spec::{Acquire, Hears, Name, Op, Order, Patience, Place, SessionId, Take, Token};

    use super::super::book::Book;
    use super::super::exec::Halt;
    use super::super::node::Ask;
    use super::super::plan::Plan;
    use super::*;

    const LEASE_US: u64 = 2_000_000;
    const NAME: &str = "name-0";

    /// A world without faults, a holder with a lease of two seconds, and this many waiters, each in a process of its
    /// own.
    struct Scene {
        sim: Arc<Sim>,
        waiters: Vec<(GrantId, Pid)>,
    }

    fn scene(waiters: usize) -> Scene {
        let plan = Plan { faults: Vec::new(), slow_in: 0, hiccup_in: 0, delay_us: (100, 100), ..Plan::of(1) };
        let sim = Sim::new(plan, Book::default());
        let mut ids = Vec::new();
        for conn in 0..=waiters {
            let (pid, session) = (sim.exec.start(0, 0), SessionId(conn as u128));
            let id = GrantId { session, counter: 1, nonce: 1 };
            let place =
                Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed };
            let patience = if conn == 0 { Patience::Try } else { Patience::Queue(place) };
            let (lease_ms, range, not_after_us, label) = (LEASE_US / 1000, 1, u64::MAX, "".into());
            let acquire =
                Op::Acquire(Acquire { id, take: Take::MUTEX, lease_ms, range, not_after_us, patience, label });
            lock(&sim.net).pids.insert(session, pid);
            serve(&sim, conn, &Ask::Attach(session));
            serve(&sim, conn, &Ask::One(name(), acquire));
            ids.push((id, pid));
        }
        sim.book.given(NAME, 7, ids[0].0, 0);
        ids.remove(0);
        Scene { sim, waiters: ids }
    }

    fn name() -> Name {
        Name::new(NAME).expect("a name")
    }

    fn serve(sim: &Sim, conn: usize, ask: &Ask) {
        lock(&sim.net).nodes[0].serve(conn as u64, ask, sim.exec.now_us());
    }

    impl Scene {
        fn held() -> Held {
            Held { name: NAME.into(), token: 7, left_us: LEASE_US, length_us: LEASE_US }
        }

        fn dies(&self) {
            begins(&self.sim, Self::held(), Why::Death, self.sim.waiters(NAME));
        }

        fn next(&self) -> Vec<(GrantId, Pid)> {
            lock(&self.sim.net).next_waiters(0, NAME, self.sim.exec.now_us())
        }

        fn is_revoked(&self) {
            let next = self.next().into_iter().map(|waiter| Waiter::new(&self.sim, waiter)).collect();
            begins(&self.sim, Self::held(), Why::Revocation, next);
        }

        fn stands_still(&self, waiter: usize) {
            self.sim.exec.halt(self.waiters[waiter].1, Halt::All);
        }

        fn leaves(&self, waiter: usize) {
            let leave = Op::Leave { id: self.waiters[waiter].0, used: Token::NONE };
            serve(&self.sim, waiter + 1, &Ask::One(name(), leave));
        }

        /// Returns what was wrong by this time.
        fn wrong(&self, until_us: u64) -> Vec<String> {
            self.sim.exec.run(until_us, || false);
            self.sim.book.wrongs()
        }

        fn is_late(&self) -> bool {
            !self.wrong(20_000_000).is_empty()
        }
    }

    #[test]
    fn a_death_is_followed_within_the_lease_and_a_second() {
        let scene = scene(1);
        scene.dies();
        assert!(scene.wrong(LEASE_US + SECOND_US).is_empty(), "it is not late yet");
        let wrong = scene.wrong(10_000_000);
        assert!(wrong.len() == 1 && wrong[0].contains("after a Death"), "{wrong:?}");
    }

    #[test]
    fn a_grant_in_time_is_right() {
        let scene = scene(1);
        scene.dies();
        scene.sim.book.given(NAME, 8, GrantId { session: SessionId(2), counter: 9, nonce: 9 }, LEASE_US);
        assert!(!scene.is_late());
    }

    #[test]
    fn a_clock_that_is_set_back_costs_one_lease_more() {
        let scene = scene(1);
        scene.dies();
        (0..3).for_each(|node| set_back(&scene.sim, node));
        assert!(scene.wrong(2 * LEASE_US + SECOND_US).is_empty(), "it is not late yet");
        assert!(!scene.wrong(2 * LEASE_US + 2 * SECOND_US).is_empty(), "the clocks were set back together");
    }

    #[test]
    fn a_lease_that_no_waiter_has_seen_is_followed_when_waiters_re_check() {
        let scene = scene(1);
        begins(&scene.sim, Scene::held(), Why::UnseenDeath, scene.sim.waiters(NAME));
        assert!(scene.wrong(LEASE_US.max(scene.sim.plan.recheck_us()) + SECOND_US).is_empty(), "it is not late yet");
        assert!(scene.is_late());
    }

    #[test]
    fn a_waiter_that_stands_still_or_has_left_is_excused() {
        let still = scene(1);
        still.dies();
        still.stands_still(0);
        assert!(!still.is_late());
        let left = scene(1);
        left.dies();
        left.leaves(0);
        assert!(!left.is_late());
        let resumed = scene(1);
        resumed.dies();
        resumed.stands_still(0);
        resumed.sim.exec.resume(resumed.waiters[0].1, Halt::All);
        assert!(resumed.is_late(), "it never stood still");
    }

    #[test]
    fn one_of_the_two_that_a_revocation_notifies_is_enough() {
        let (one, both) = (scene(3), scene(3));
        [&one, &both].iter().for_each(|scene| scene.is_revoked());
        one.stands_still(0);
        assert!(one.is_late());
        (0..2).for_each(|waiter| both.stands_still(waiter));
        assert!(!both.is_late(), "the third one was not notified");
    }

    #[test]
    fn a_leave_notifies_the_waiters_that_are_next_then() {
        let scene = scene(3);
        scene.is_revoked();
        scene.leaves(0);
        notified(&scene.sim, &Scene::held(), &scene.next());
        scene.stands_still(1);
        assert!(scene.is_late());
    }

    #[test]
    fn the_first_waiter_behind_a_clock_that_was_set_back_waits_for_a_whole_lease() {
        let (set, not) = (scene(1), scene(1));
        for scene in [&set, &not] {
            begins(&scene.sim, Scene::held(), Why::Revocation, Vec::new());
        }
        set_back(&set.sim, 0);
        for scene in [&set, &not] {
            assert!(scene.wrong(2_500_000).is_empty(), "no client waits");
            notified(&scene.sim, &Scene::held(), &scene.next());
        }
        assert!(not.is_late(), "the clock was not set");
        assert!(set.wrong(2_500_000 + LEASE_US + SECOND_US).is_empty(), "it is not late yet");
        assert!(set.is_late());
    }
}
