//! One seed, from its plan to the verdict.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use leasehold_spec::GrantState;
use leasehold_spec::limits::CLAIM_MIN_MS;
use leasehold_spec::mark::{self, Mark};
use leasehold_testkit::checker::{Report, Rules, Violation, check};

use super::acts;
use super::book::Book;
use super::crew::{Crew, Fate};
use super::exec::{Part, Pid, Stop, WORLD, lock};
use super::faults::go_wrong;
use super::kind::Kind;
use super::node::Role;
use super::plan::Plan;
use super::quorum;
use super::registers;
use super::rng::Rng;
use super::stage::Sim;
use super::words::client;

/// All waiters are served within this, once everything has healed: connections are opened again, claims of dead clients
/// expire one after the other, and each waiter has its turn. It does not include the lease with which a client died.
const SERVED_WITHIN_US: u64 = 45_000_000;
/// How often the deadline is extended for the leases of dead clients: one of them may come after the other.
const EXTENDED_MOST: u32 = 5;
/// The time after which everything that was given back or closed is gone.
const QUIET_AFTER_US: u64 = 8_000_000;

/// Paths that no session takes if nothing fails. A client that gets no messages, or is slow, still breaks no promise,
/// because these paths make up for that. So only these paths reveal such a client.
const ONLY_AFTER_FAULTS: &[Mark] =
    &[Mark::ClaimLapsed, Mark::ClaimRanOut, Mark::ClaimLost, Mark::LinkReplaced, Mark::PassedDetached];

/// The result of a seed.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) seed: u64,
    pub(super) hash: u64,
    pub(super) steps: u64,
    pub(super) simulated_us: u64,
    pub(super) report: Report,
    /// Everything that is wrong, in words.
    pub(super) wrong: Vec<String>,
    pub(super) counts: BTreeMap<Cow<'static, str>, u64>,
    /// The paths that were taken in the product, and how often.
    pub(super) marks: Vec<(Mark, u64)>,
    /// The reason of each update that the unfenced register lost.
    pub(super) lost_updates: Vec<&'static str>,
    pub(super) lines: Vec<String>,
}

/// Plays a seed.
pub(super) fn play(plan: Plan, book: Book) -> Verdict {
    let sim = Sim::new(plan, book);
    // The paths that this thread has counted before belong to another seed.
    drop(mark::take_here());
    let left = catch_unwind(AssertUnwindSafe(|| go(&sim))).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        sim.book.wrong(sim.exec.now_us(), &format!("a panic: {what}"));
        Vec::new()
    });
    let mut verdict = judge(&sim);
    sim.exec.clear();
    verdict.marks = mark::take_here().into_iter().filter(|(_, times)| *times > 0).collect();
    // If no session gave up a return by time, every return has reached the store.
    if !verdict.marks.iter().any(|(mark, _)| *mark == Mark::ReturnExpired) {
        verdict.wrong.extend(left);
    }
    if sim.plan.keeps_leases() {
        let taken = verdict.marks.iter().filter(|(mark, _)| ONLY_AFTER_FAULTS.contains(mark));
        verdict.wrong.extend(taken.map(|(mark, times)| format!("{mark:?}, {times} times, but no fault interfered")));
    }
    if sim.plan.is_steady() && verdict.marks.iter().any(|(mark, _)| *mark == Mark::RunSilent) {
        verdict.wrong.push("P20: a local hand-over ended without an answer, but no fault interfered".into());
    }
    verdict
}

/// Runs the seed. Returns the entries in queues that clients left when they closed.
fn go(sim: &Arc<Sim>) -> Vec<String> {
    let mut rng = Rng::new(sim.plan.seed ^ 0x63_7265_7773);
    sim.note(sim.plan.seed, || format!("{:?}", sim.plan));
    let crew = Crew::new(sim, rng.fork());
    (0..sim.plan.clients).for_each(|_| crew.start());
    let wrong = go_wrong(Arc::clone(sim), Arc::clone(&crew), rng.fork());
    sim.exec.spawn(WORLD, Part::Thread, "the faults", Box::pin(wrong));
    if !ran(sim, sim.exec.run(sim.plan.chaos_us, || false)) {
        return Vec::new();
    }
    lock(&sim.net).is_calm = true;
    quorum::heal(sim);
    sim.note(0, || "everything has healed".into());
    let mut until_us = sim.plan.chaos_us + kept_by_the_dead(sim, &crew) + SERVED_WITHIN_US;
    let mut extended = 0;
    while !crew.is_done() {
        match sim.exec.run(until_us, || crew.is_done()) {
            Stop::Done => break,
            // The clients that still wait are about to close: no client holds what they wait for.
            Stop::Time if crew.is_served() && extended < EXTENDED_MOST => {
                extended += 1;
                until_us = sim.exec.now_us() + SERVED_WITHIN_US;
            }
            // A minimum hold kept everybody out for a part of this time.
            Stop::Time if sim.book.cools_until_us() + SERVED_WITHIN_US > until_us && extended < EXTENDED_MOST => {
                extended += 1;
                until_us = sim.book.cools_until_us() + SERVED_WITHIN_US;
            }
            Stop::Time => match kept_by_the_dead(sim, &crew) {
                left_us if left_us == 0 || extended == EXTENDED_MOST => {
                    unserved(sim, &crew);
                    return Vec::new();
                }
                left_us => {
                    extended += 1;
                    until_us = sim.exec.now_us() + left_us + SERVED_WITHIN_US;
                }
            },
            stop => {
                ran(sim, stop);
                unserved(sim, &crew);
                return Vec::new();
            }
        }
    }
    let quiet_us = sim.exec.now_us() + QUIET_AFTER_US;
    ran(sim, sim.exec.run(quiet_us, || false));
    let left = residue(sim, &crew);
    registers::record_final(sim);
    left
}

/// Returns whether the executor reached the end of its time.
fn ran(sim: &Sim, stop: Stop) -> bool {
    if stop == Stop::Livelock {
        sim.book.wrong(sim.exec.now_us(), "a livelock: time does not advance");
    }
    stop != Stop::Livelock
}

/// Returns for how long a lease is kept by a client that has died with it, or could not give it back before it closed.
/// If the server's clock was set back, a lease can outlive every attempt to give it back.
fn kept_by_the_dead(sim: &Sim, crew: &Crew) -> u64 {
    if let Some(settings) = &sim.plan.quorum {
        return quorum::kept(sim, settings, &crew.fates());
    }
    let (net, fates, now_us) = (lock(&sim.net), crew.fates(), sim.exec.now_us());
    let node = &net.nodes[net.primary];
    let was_set_back = was_set_back(sim);
    let kept = node.records.keys().flat_map(|name| node.held(name, now_us)).filter_map(|(session, state, left_us)| {
        if state == GrantState::CoolingDown {
            return Some(left_us);
        }
        // A client that died before it got its grant has only a claim, unless the grant is an upgrade.
        if state == GrantState::Pushed && left_us <= CLAIM_MIN_MS * 1000 && !was_set_back {
            return None;
        }
        let is_dead = net.pids.get(&session).is_none_or(|pid| fates.get(pid) != Some(&Fate::Alive));
        (is_dead || was_set_back).then_some(left_us)
    });
    kept.max().unwrap_or(0)
}

fn was_set_back(sim: &Sim) -> bool {
    sim.book.counts().contains_key(Kind::JumpBack.name())
}

fn unserved(sim: &Sim, crew: &Crew) {
    for (pid, fate) in crew.fates() {
        if fate == Fate::Alive && sim.plan.serves() {
            let tasks = sim.exec.tasks_of(pid).join(", ");
            let what = format!("{} still waits although everything has healed: {tasks}", client(pid));
            sim.book.wrong(sim.exec.now_us(), &what);
        }
    }
}

/// Checks that clients that have closed left nothing. Returns their entries in queues: such an entry is right only if a
/// client could not reach the store for so long that it gave the entry up by time (P14).
fn residue(sim: &Sim, crew: &Crew) -> Vec<String> {
    let (now_us, mut left) = (sim.exec.now_us(), Vec::new());
    let wrong = |what: String| sim.book.wrong(now_us, &what);
    let fates = crew.fates();
    // A request that may still be carried out delays the final leave. If a clock was set back, it may delay it for
    // long.
    let was_set_back = was_set_back(sim);
    let has_failed_over = sim.book.counts().contains_key(Kind::Failover.name());
    for (pid, fate) in &fates {
        let Fate::Closed { unconfirmed, at_us, .. } = fate else { continue };
        let tasks = sim.exec.tasks_of(*pid);
        if !tasks.is_empty() && unconfirmed.is_empty() {
            wrong(format!("{} is closed, and still runs: {}", client(*pid), tasks.join(", ")));
        }
        if *at_us > sim.plan.chaos_us + SERVED_WITHIN_US / 3 && !unconfirmed.is_empty() && !was_set_back {
            wrong(format!("{} has not given back {unconfirmed:?}, but no fault interfered", client(*pid)));
        }
    }
    if sim.plan.quorum.is_some() {
        quorum::residue(sim, &fates);
        return left;
    }
    let net = lock(&sim.net);
    let node = &net.nodes[net.primary];
    if node.role != Role::Primary || node.freezes > 0 || node.full > 0 || net.refuses > 0 {
        wrong("the simulation has not healed".into());
    }
    // The leases and entries of a client must be gone if it closed after the faults and gave everything back.
    let is_clean = |pid: &Pid| {
        matches!(fates.get(pid), Some(Fate::Closed { unconfirmed, at_us, .. })
            if unconfirmed.is_empty() && *at_us > sim.plan.chaos_us)
    };
    for (session, conns) in &node.inboxes {
        if net.pids.get(session).is_none_or(is_clean) {
            wrong(format!("an inbox is still attached, on connections {conns:?}"));
        }
    }
    for (name, record) in &node.records {
        let held = node
            .held(name, now_us)
            .into_iter()
            .filter(|(_, state, left_us)| *left_us > 0 && *state != GrantState::CoolingDown && !was_set_back);
        for pid in held.filter_map(|(session, ..)| net.pids.get(&session)).filter(|pid| is_clean(pid)) {
            wrong(format!("{name} is still held by {}, which has closed", client(*pid)));
        }
        // A failover can bring an entry back. A clock that was set back can bring back an acquire that was to come too
        // late. The entry is passed over at its turn, and costs no client anything.
        let is_relived = |seen_us: u64| seen_us < node.relives_until_us;
        for entry in record.queue.iter().filter(|entry| !has_failed_over && !is_relived(entry.seen_us)) {
            if let Some(pid) = net.pids.get(&entry.id.session).filter(|pid| is_clean(pid)) {
                left.push(format!("{} has closed, and still waits for {name}", client(*pid)));
            }
        }
    }
    left
}

fn judge(sim: &Arc<Sim>) -> Verdict {
    let limited = |rules: Rules, name: &String| rules.limited(name, acts::of(name).limit);
    let election = acts::election(&sim.plan);
    let names: Vec<String> = sim.plan.names.iter().cloned().chain([election.clone()]).collect();
    let rules = names.iter().fold(Rules::mutex().at_least(0), limited);
    let rules = if sim.plan.keeps_order() { rules.overtaken_at_most(0) } else { rules };
    let mut report = check(&sim.book.history(&names), &rules);
    // A leader may hand over to any candidate (P51).
    report.violations.retain(|v| !matches!(v, Violation::Overtaken { name, .. } if *name == election));
    let mut wrong = sim.book.wrongs();
    let twice = granted_twice(&report);
    // If a token was granted twice, a claim cannot be assigned to one of the two grants. The second grant is reported
    // by itself.
    let is_of_two = |v: &Violation| match v {
        // One of the two grants may be a reader's, and the other one a writer's.
        Violation::ClaimedAfterEnd { token, .. } | Violation::WroteShared { token, .. } => twice.contains(token),
        _ => false,
    };
    wrong.extend(report.violations.drain(..).filter(|v| !is_of_two(v)).map(|violation| violation.to_string()));
    let (lost_updates, unexcused) = sim.book.lost_updates();
    for lost in unexcused {
        let (from, to) = (lost.read_us as f64 / 1e6, lost.written_us as f64 / 1e6);
        wrong.push(format!(
            "{}: {} read at {from:.6} and wrote at {to:.6} over another's write",
            lost.name, lost.client
        ));
    }
    Verdict {
        seed: sim.plan.seed,
        hash: sim.exec.hash(),
        steps: sim.exec.steps(),
        simulated_us: sim.exec.now_us(),
        report,
        wrong,
        counts: sim.book.counts(),
        marks: Vec::new(),
        lost_updates,
        lines: sim.book.take_lines(),
    }
}

fn granted_twice(report: &Report) -> BTreeSet<u64> {
    let token = |violation: &Violation| match violation {
        Violation::SameToken { token, .. } => Some(*token),
        _ => None,
    };
    report.excused.iter().chain(&report.violations).filter_map(token).collect()
}
