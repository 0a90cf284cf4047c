//! The requests of a client that its thread has not carried out yet, and which of them is next.
//!
//! A program can ask for thousands of locks at once, and each acquire takes a turn (P27). In the order of arrival,
//! everything else waited behind them: renewals until their leases had ended, and an operator's `inspect` until it failed.
//! So only acquires wait for each other. Every other request goes before them: it keeps a lease, gives one back, or is a
//! single question.
//!
//! A request that gives back must not overtake the acquire that it ends ([`Link`](crate::store::Link)): A sends acquire. A
//! drops the future, and sends leave. The leave finds nothing. The acquire is granted, for nobody. So a request about one
//! grant waits while an acquire of that grant does.

use std::collections::{HashMap, VecDeque};

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{GrantId, Name, Op};

use super::job::Job;

/// The number of requests that go before a waiting acquire. Later requests go behind it, so that it is not delayed for
/// ever.
const BEFORE: usize = 64;

#[derive(Default)]
pub(super) struct Backlog {
    first: VecDeque<Job>,
    /// Acquires, and requests that must follow them.
    acquires: VecDeque<Job>,
    /// The number of these for each grant.
    of: HashMap<GrantId, usize>,
    /// The number of requests that were taken from `first` since the last acquire.
    taken: usize,
}

impl Backlog {
    pub(super) fn push(&mut self, job: Job) {
        let id = grant_of(&job);
        let is_acquire = matches!(job, Job::Apply { op: Op::Acquire(_), .. });
        let follows = id.is_some_and(|id| self.of.contains_key(&id));
        if !is_acquire && !follows && !is_on(Mutant::P27AllWait) {
            self.first.push_back(job);
            return;
        }
        if let Some(id) = id {
            *self.of.entry(id).or_default() += 1;
        }
        self.acquires.push_back(job);
    }

    pub(super) fn pop(&mut self) -> Option<Job> {
        // Behind all requests that came before it: one of them may give back the lease that it asks for (P16).
        if self.taken >= BEFORE
            && let Some(acquire) = self.pop_acquire()
        {
            self.first.push_back(acquire);
        }
        match self.first.pop_front() {
            Some(job) => {
                self.taken += 1;
                Some(job)
            }
            None => self.pop_acquire(),
        }
    }

    /// Returns the next acquire, if it comes next anyway and asks for this name.
    pub(super) fn pop_same(&mut self, of: &Name) -> Option<Job> {
        let is_same = |job: &Job| matches!(job, Job::Apply { name, op: Op::Acquire(_), .. } if name == of);
        let is_next = self.first.is_empty() && self.acquires.front().is_some_and(is_same);
        if is_next { self.pop_acquire() } else { None }
    }

    fn pop_acquire(&mut self) -> Option<Job> {
        self.taken = 0;
        let job = self.acquires.pop_front()?;
        if let Some(id) = grant_of(&job) {
            self.done(id);
        }
        Some(job)
    }

    fn done(&mut self, id: GrantId) {
        if let Some(count) = self.of.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&id);
            }
        }
    }
}

/// Returns the grant that a request concerns. A batch of renewals concerns several grants, and all of them were acquired.
/// So was the grant that a revocation ends: an inspection has shown it.
fn grant_of(job: &Job) -> Option<GrantId> {
    if let Job::Apply { op, .. } = job { op.subject() } else { None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_spec::{Acquire, Name, Patience, SessionId, Take, Token};
    use tokio::sync::oneshot;

    use super::super::job::Tie;
    use super::*;

    fn id(counter: u64) -> GrantId {
        GrantId { session: SessionId(1), counter, nonce: 0 }
    }

    fn job(op: Op) -> Job {
        let (tell, _) = oneshot::channel();
        Job::Apply { tie: Arc::new(Tie::new()), name: Name::new("x").unwrap(), op, tell }
    }

    fn acquire(counter: u64) -> Job {
        let (id, patience) = (id(counter), Patience::Try);
        job(Op::Acquire(Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: 1000,
            range: 1,
            not_after_us: 0,
            patience,
            label: "".into(),
        }))
    }

    fn leave(counter: u64) -> Job {
        job(Op::Leave { id: id(counter), used: Token::NONE })
    }

    fn said(job: &Job) -> String {
        match job {
            Job::Apply { op: Op::Acquire(acquire), .. } => format!("acquire {}", acquire.id.counter),
            Job::Apply { op: Op::Leave { id, .. }, .. } => format!("leave {}", id.counter),
            Job::Apply { op: Op::Inspect, .. } => "inspect".into(),
            _ => unreachable!("no test pushes it"),
        }
    }

    fn order(jobs: impl IntoIterator<Item = Job>) -> Vec<String> {
        let mut backlog = Backlog::default();
        jobs.into_iter().for_each(|job| backlog.push(job));
        let order = std::iter::from_fn(|| backlog.pop()).map(|job| said(&job)).collect();
        assert!(backlog.of.is_empty(), "it remembers what has gone");
        order
    }

    #[test]
    fn only_acquires_wait_for_acquires() {
        let jobs = [acquire(1), acquire(2), job(Op::Inspect), leave(7), job(Op::Inspect)];
        assert_eq!(order(jobs), ["inspect", "leave 7", "inspect", "acquire 1", "acquire 2"]);
    }

    #[test]
    fn a_leave_does_not_overtake_its_acquire() {
        let jobs = [acquire(1), acquire(2), acquire(2), leave(2), leave(2), acquire(3), leave(4)];
        let expected = ["leave 4", "acquire 1", "acquire 2", "acquire 2", "leave 2", "leave 2", "acquire 3"];
        assert_eq!(order(jobs), expected);
    }

    /// Only acquires that would come next: a renewal or a leave goes before them, and another name is another record.
    #[test]
    fn acquires_of_one_name_are_taken_together() {
        let mut backlog = Backlog::default();
        [acquire(1), acquire(2), acquire(3), leave(3), acquire(4)].into_iter().for_each(|job| backlog.push(job));
        let (x, y) = (Name::new("x").unwrap(), Name::new("y").unwrap());
        assert_eq!(backlog.pop().map(|job| said(&job)).as_deref(), Some("acquire 1"));
        assert!(backlog.pop_same(&y).is_none());
        assert_eq!(backlog.pop_same(&x).map(|job| said(&job)).as_deref(), Some("acquire 2"));
        backlog.push(job(Op::Inspect));
        assert!(backlog.pop_same(&x).is_none(), "the inspection comes first");
        assert_eq!(backlog.pop().map(|job| said(&job)).as_deref(), Some("inspect"));
        assert_eq!(backlog.pop_same(&x).map(|job| said(&job)).as_deref(), Some("acquire 3"));
        assert!(backlog.pop_same(&x).is_none(), "a leave of the third one follows");
    }

    #[test]
    fn an_acquire_is_not_delayed_for_ever() {
        let mut backlog = Backlog::default();
        backlog.push(acquire(1));
        let before = std::iter::from_fn(|| {
            backlog.push(job(Op::Inspect));
            backlog.pop().filter(|job| said(job) == "inspect")
        });
        assert_eq!(before.take(1000).count(), BEFORE + 1);
    }

    #[test]
    fn p16_an_acquire_does_not_overtake_an_earlier_give_back() {
        let order = order((2..200).map(leave).chain([acquire(1)]));
        assert_eq!(order.last().map(String::as_str), Some("acquire 1"));
    }
}
