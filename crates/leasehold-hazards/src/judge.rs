//! The judge: it sees what all threads do, in true order and true time, and reports the harm.

use std::collections::BTreeMap;
use std::fmt;

use crate::client::{Held, Mark, ThreadId};
use crate::redis::seconds;

/// Something that a lock should prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Harm {
    /// Two threads are in their critical sections, and the lease of neither has ended.
    Overlap(ThreadId, ThreadId),
    /// Two threads are in their critical sections, and the lease of the first one has ended.
    Overstay(ThreadId, ThreadId),
    /// The unfenced resource accepted a write of an earlier holder after a write of a later one, by the order in which they
    /// entered.
    StaleWrite(ThreadId),
    /// A thread entered with a token that is not above the token of a thread that had entered before it asked. A fence
    /// would accept the writes of both in any order.
    TokenOrder(ThreadId),
    /// The fence refused a write, because it has seen a larger token.
    Refused(ThreadId),
    /// The fence refused a write, although nobody has entered after the thread that wrote.
    ShutOut(ThreadId),
    /// A thread waits, nobody is in a critical section, and this has been so for this time.
    Idle(u64),
    /// Others entered this many times while this thread waited.
    Overtaken(ThreadId, u32),
    /// One release woke this many clients.
    Woken(usize),
    /// A thread that wanted to wait for a limited time has waited for longer, by this time.
    Overrun(ThreadId, u64),
}

#[cfg(feature = "live")]
impl Harm {
    /// Returns the threads that it concerns, in the order of their numbers.
    pub(crate) fn threads(self) -> Vec<ThreadId> {
        match self {
            Self::Overlap(a, b) | Self::Overstay(a, b) => vec![a.min(b), a.max(b)],
            Self::StaleWrite(a) | Self::TokenOrder(a) | Self::Refused(a) | Self::ShutOut(a) => vec![a],
            Self::Overtaken(a, _) | Self::Overrun(a, _) => vec![a],
            Self::Idle(_) | Self::Woken(_) => vec![],
        }
    }
}

/// The harm that a scene looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Observable {
    /// Two holders at once, within their leases.
    Overlap,
    /// Two holders at once, of whom the first may have overstayed its lease.
    Overstay,
    /// A free lock that nobody is granted, for this time, although a thread waits.
    Stall(u64),
    /// A waiter that others overtake this many times.
    Starvation(u32),
    /// A release that wakes this many clients.
    Herd(usize),
    /// A wait that is this much longer than the caller asked for.
    Overrun(u64),
}

impl Observable {
    /// Whether the harm is what the scene looks for.
    #[must_use]
    pub fn is_met_by(self, harm: Harm) -> bool {
        match (self, harm) {
            (Self::Overlap | Self::Overstay, Harm::Overlap(..)) | (Self::Overstay, Harm::Overstay(..)) => true,
            (Self::Stall(limit_ms), Harm::Idle(ms)) => ms >= limit_ms,
            (Self::Starvation(limit), Harm::Overtaken(_, times)) => times >= limit,
            (Self::Herd(limit), Harm::Woken(clients)) => clients >= limit,
            (Self::Overrun(limit_ms), Harm::Overrun(_, ms)) => ms >= limit_ms,
            _ => false,
        }
    }

    /// Returns the size of the harm, if it is of the kind that the scene looks for: milliseconds, times, or clients.
    #[must_use]
    pub const fn measure(self, harm: Harm) -> Option<u64> {
        match (self, harm) {
            (Self::Stall(_), Harm::Idle(ms)) | (Self::Overrun(_), Harm::Overrun(_, ms)) => Some(ms),
            (Self::Starvation(_), Harm::Overtaken(_, times)) => Some(times as u64),
            (Self::Herd(_), Harm::Woken(clients)) => Some(clients as u64),
            _ => None,
        }
    }

    /// Whether the scene is about exclusion.
    #[must_use]
    pub const fn is_exclusion(self) -> bool {
        matches!(self, Self::Overlap | Self::Overstay)
    }
}

impl fmt::Display for Observable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap => f.write_str("two holders within their leases"),
            Self::Overstay => f.write_str("two holders at once"),
            Self::Stall(ms) => write!(f, "nobody holds for {} s, and a client waits", seconds(*ms)),
            Self::Starvation(times) => write!(f, "a waiter is overtaken {times} times"),
            Self::Herd(clients) => write!(f, "one release wakes {clients} clients"),
            Self::Overrun(ms) => write!(f, "a wait ends {} s too late, or never", seconds(*ms)),
        }
    }
}

/// A thread in its critical section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The thread.
    pub thread: ThreadId,
    /// Its fencing token, if its lock has tokens.
    pub token: Option<u64>,
}

/// A thread that waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The thread.
    pub thread: ThreadId,
    /// The time at which it wants to stop, in milliseconds since the beginning.
    pub limit_end_ms: Option<u64>,
    /// The number of times that others entered while it waited.
    pub overtaken: u32,
}

#[derive(Clone, Debug, Hash)]
struct Waiting {
    since_ms: u64,
    limit_ms: Option<u64>,
    /// Whether the server has seen a command of the waiter.
    is_known: bool,
    overtaken: u32,
}

#[derive(Clone, Debug, Hash)]
struct Section {
    /// The number of the entry, over all threads.
    entry: u32,
    token: Option<u64>,
    lease_end_ms: Option<u64>,
    /// From this time on the holder does not believe that it holds.
    belief_end_ms: Option<u64>,
}

impl Section {
    fn is_believed(&self, now_ms: u64) -> bool {
        self.belief_end_ms.is_none_or(|end_ms| now_ms < end_ms)
    }
}

/// The state of the judge.
#[derive(Clone, Debug, Default, Hash)]
pub struct Judge {
    waiting: BTreeMap<ThreadId, Waiting>,
    open: BTreeMap<ThreadId, Section>,
    entries: u32,
    /// The last entry that wrote to the unfenced resource.
    written: u32,
    /// The largest token of a write to the fenced resource.
    fence: u64,
    /// The largest token with which a thread entered.
    highest: u64,
    /// For each thread, the largest token with which others had entered when it asked.
    floors: BTreeMap<ThreadId, u64>,
    last_command_ms: BTreeMap<ThreadId, u64>,
    idle_since_ms: Option<u64>,
}

impl Judge {
    /// Notes that a server carries out a command of a thread.
    pub(crate) fn command(&mut self, now_ms: u64, thread: ThreadId) {
        self.last_command_ms.insert(thread, now_ms);
        if let Some(waiting) = self.waiting.get_mut(&thread) {
            waiting.is_known = true;
        }
    }

    /// Notes the mark of a thread. Its times are true times here.
    pub(crate) fn mark(&mut self, now_ms: u64, thread: ThreadId, mark: Mark) -> Vec<Harm> {
        match mark {
            Mark::Wants(limit_ms) => {
                let waiting = Waiting { since_ms: now_ms, limit_ms, is_known: false, overtaken: 0 };
                self.waiting.insert(thread, waiting);
                vec![]
            }
            Mark::Asks => {
                self.floors.insert(thread, self.highest);
                vec![]
            }
            Mark::GivesUp => {
                self.waiting.remove(&thread);
                vec![]
            }
            Mark::Enters(held) => self.enters(now_ms, thread, held),
            Mark::Believes(until_ms) => self.believes(now_ms, thread, until_ms),
            Mark::Leaves => {
                self.open.remove(&thread);
                vec![]
            }
        }
    }

    /// Notes for how long a holder believes that it holds. If it believed nothing before, it comes back to its section.
    fn believes(&mut self, now_ms: u64, thread: ThreadId, until_ms: u64) -> Vec<Harm> {
        let Some(section) = self.open.get_mut(&thread) else { return vec![] };
        let comes_back = !section.is_believed(now_ms);
        section.belief_end_ms = Some(until_ms);
        if comes_back && section.is_believed(now_ms) { self.beside(now_ms, thread) } else { vec![] }
    }

    /// Notes that the check of a holder has passed: it holds at this moment, whatever it has reported before.
    #[cfg(feature = "live")]
    pub(crate) fn checks(&mut self, now_ms: u64, thread: ThreadId) -> Vec<Harm> {
        let Some(section) = self.open.get(&thread) else { return vec![] };
        if section.is_believed(now_ms) { vec![] } else { self.believes(now_ms, thread, now_ms + 1) }
    }

    /// Returns the harm of a thread that begins to hold now: a harm for each other holder.
    fn beside(&self, now_ms: u64, thread: ThreadId) -> Vec<Harm> {
        let believed = self.open.iter().filter(|(_, section)| section.is_believed(now_ms));
        let others = believed.filter(|(other, _)| **other != thread);
        let harm = others.map(|(&other, section)| {
            let is_late = section.lease_end_ms.is_some_and(|end_ms| end_ms <= now_ms);
            if is_late { Harm::Overstay(other, thread) } else { Harm::Overlap(other, thread) }
        });
        harm.collect()
    }

    fn enters(&mut self, now_ms: u64, thread: ThreadId, held: Held) -> Vec<Harm> {
        let mut harm = self.beside(now_ms, thread);
        self.waiting.remove(&thread);
        for (&waiter, waiting) in self.waiting.iter_mut().filter(|(_, waiting)| waiting.is_known) {
            waiting.overtaken += 1;
            harm.push(Harm::Overtaken(waiter, waiting.overtaken));
        }
        if let Some(token) = held.token {
            let floor = self.floors.remove(&thread).unwrap_or(0);
            harm.extend((token <= floor).then_some(Harm::TokenOrder(thread)));
            self.highest = self.highest.max(token);
        }
        self.entries += 1;
        let granted_ms = self.last_command_ms.get(&thread).copied().unwrap_or(now_ms);
        let lease_end_ms = held.lease_ms.map(|lease_ms| granted_ms + lease_ms);
        let (entry, token, belief_end_ms) = (self.entries, held.token, held.until_ms);
        self.open.insert(thread, Section { entry, token, lease_end_ms, belief_end_ms });
        self.idle_since_ms = None;
        harm
    }

    /// Notes a write to both resources. Returns whether the fence accepted it, and the harm.
    pub(crate) fn write(&mut self, thread: ThreadId, token: Option<u64>) -> (bool, Vec<Harm>) {
        let Some(entry) = self.open.get(&thread).map(|section| section.entry) else { return (false, vec![]) };
        let mut harm = Vec::new();
        harm.extend((entry < self.written).then_some(Harm::StaleWrite(thread)));
        self.written = entry;
        let Some(token) = token else { return (false, harm) };
        let is_accepted = token >= self.fence;
        harm.extend((!is_accepted).then_some(Harm::Refused(thread)));
        harm.extend((!is_accepted && entry == self.entries).then_some(Harm::ShutOut(thread)));
        self.fence = self.fence.max(token);
        (is_accepted, harm)
    }

    /// Notes that one command sent this many messages.
    pub(crate) fn published(&self, clients: usize) -> Option<Harm> {
        (clients > 0).then_some(Harm::Woken(clients))
    }

    /// Notes that a thread is dead.
    pub(crate) fn dies(&mut self, thread: ThreadId) {
        self.waiting.remove(&thread);
        self.open.remove(&thread);
    }

    /// Notes the time after each choice. A thread that the scene may pause does not count as a waiter.
    pub(crate) fn time(&mut self, now_ms: u64, can_pause: impl Fn(ThreadId) -> bool) -> Vec<Harm> {
        let is_idle = self.waiting.keys().any(|thread| !can_pause(*thread))
            && !self.open.values().any(|section| section.is_believed(now_ms));
        self.idle_since_ms = is_idle.then(|| self.idle_since_ms.unwrap_or(now_ms));
        let idle = self.idle_since_ms.map(|since_ms| now_ms - since_ms).filter(|ms| *ms > 0).map(Harm::Idle);
        let overruns = self.waiting.iter().filter_map(|(&thread, waiting)| {
            let late_ms = (now_ms - waiting.since_ms).saturating_sub(waiting.limit_ms?);
            (late_ms > 0).then_some(Harm::Overrun(thread, late_ms))
        });
        idle.into_iter().chain(overruns).collect()
    }

    /// Returns the threads that are in their critical sections and believe it.
    pub(crate) fn holders(&self, now_ms: u64) -> impl Iterator<Item = Holder> + '_ {
        let believed = self.open.iter().filter(move |(_, section)| section.is_believed(now_ms));
        believed.map(|(&thread, section)| Holder { thread, token: section.token })
    }

    /// Returns the threads that are in their critical sections and do not believe any more that they hold.
    pub(crate) fn late(&self, now_ms: u64) -> impl Iterator<Item = Holder> + '_ {
        let late = self.open.iter().filter(move |(_, section)| !section.is_believed(now_ms));
        late.map(|(&thread, section)| Holder { thread, token: section.token })
    }

    /// Returns the threads that wait, once a server has seen a command of theirs.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = Waiter> + '_ {
        let known = self.waiting.iter().filter(|(_, waiting)| waiting.is_known);
        known.map(|(&thread, Waiting { since_ms, limit_ms, overtaken, .. })| Waiter {
            thread,
            limit_end_ms: limit_ms.map(|limit_ms| since_ms + limit_ms),
            overtaken: *overtaken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enters(judge: &mut Judge, now_ms: u64, thread: ThreadId, token: u64, until_ms: u64) -> Vec<Harm> {
        let held = Held { token: Some(token), lease_ms: None, until_ms: Some(until_ms) };
        judge.mark(now_ms, thread, Mark::Enters(held))
    }

    /// Thread 0 has entered with token 1, and its belief has ended. Then thread 1 has entered with token 3.
    fn one_after_the_other() -> Judge {
        let mut judge = Judge::default();
        assert_eq!(enters(&mut judge, 0, 0, 1, 5), []);
        assert_eq!(enters(&mut judge, 10, 1, 3, 100), []);
        judge
    }

    #[test]
    fn a_holder_whose_belief_comes_back_is_a_second_holder() {
        let mut judge = one_after_the_other();
        assert_eq!(judge.mark(20, 1, Mark::Believes(200)), [], "thread 1 goes on");
        assert_eq!(judge.mark(20, 0, Mark::Believes(15)), [], "the belief of thread 0 is over");
        assert_eq!(judge.mark(20, 0, Mark::Believes(30)), [Harm::Overlap(1, 0)]);
        assert_eq!(judge.mark(21, 0, Mark::Believes(31)), [], "this has been said");
    }

    #[cfg(feature = "live")]
    #[test]
    fn a_holder_whose_check_passes_is_a_second_holder() {
        let mut judge = one_after_the_other();
        assert_eq!(judge.checks(20, 1), []);
        assert_eq!(judge.checks(20, 0), [Harm::Overlap(1, 0)]);
    }

    #[test]
    fn a_refused_write_of_the_last_thread_that_entered_is_not_late() {
        let mut judge = one_after_the_other();
        assert_eq!(judge.write(1, Some(3)), (true, vec![]));
        assert_eq!(judge.write(0, Some(1)), (false, vec![Harm::StaleWrite(0), Harm::Refused(0)]));
        judge.mark(20, 1, Mark::Leaves);
        // The token of the next holder is smaller than that of thread 1.
        assert_eq!(enters(&mut judge, 30, 2, 2, 100), []);
        assert_eq!(judge.write(2, Some(2)), (false, vec![Harm::Refused(2), Harm::ShutOut(2)]));
    }
}
