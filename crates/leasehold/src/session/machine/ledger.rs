//! The ledger: the attempts of a session, and everything that is found by them or finds them: names, local queues, alarms,
//! and what callers wait for. The methods here keep these tables consistent with each other.
//!
//! One invariant is asserted after every change: *the waiters of a local queue wait for a guard that is out, or for an
//! attempt that the session asks about until it is over* (P21). Otherwise they would sleep, and no reply or alarm would
//! concern them. So whatever ends an attempt goes through [`Ledger::detach`], and a queue with waiters and without an
//! attempt is noted as unattended. At the end of the change the machine begins a new attempt for each of those.

use std::collections::HashSet;
use std::sync::Arc;

use leasehold_spec::SessionId;
use leasehold_spec::limits::recheck_floor_ms;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Name, Token};
use tokio::sync::oneshot;

use super::attempt::{Attempt, Phase, Requester, wait_ends_us};
use super::effects::{Effects, Verdict};
use super::holding::{Holding, Reach};
use super::ids::Ids;
use super::names::{Names, WatchAction};
use super::returning::Releases;
use crate::error::Error;
use crate::session::agenda::Agenda;
use crate::session::counters::CounterMap;
use crate::session::local::queues::Queues;
use crate::session::terms::Terms;
use crate::world::World;

/// How many alarms of ended attempts are dropped under one lock.
const IDLE_ALARMS: usize = 64;

pub(crate) struct Ledger {
    pub(crate) world: Arc<dyn World>,
    pub(crate) ids: Ids,
    pub(crate) attempts: CounterMap<Attempt>,
    pub(crate) names: Names,
    /// The callers that wait here for a name (P21).
    pub(crate) queues: Queues<Verdict>,
    pub(crate) agenda: Agenda,
    pub(crate) effects: Effects,
    /// The attempts that return a grant which nobody here waited for.
    pub(crate) ghosts: HashSet<u64>,
    /// The leases that were released lately.
    pub(crate) releases: Releases,
    /// The count-downs of latches that the store has confirmed: a failover can forget them (P44).
    pub(crate) counted: Releases,
    pub(crate) stage: Stage,
    /// Callers of `close`, which wait until everything is returned.
    pub(crate) close_waiters: Vec<oneshot::Sender<()>>,
    pub(crate) hand_over: HandOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    /// No new work. Held leases are being returned.
    Closing,
    Closed,
}

/// Where a lease may be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// Inside the session, within the bounds of P20, and by the store.
    Local,
    /// By the store only.
    Remote,
}

impl Ledger {
    pub(crate) fn new(world: Arc<dyn World>, session: SessionId, hand_over: HandOver) -> Self {
        Self {
            ids: Ids::new(session, Arc::clone(&world)),
            world,
            attempts: CounterMap::default(),
            names: Names::default(),
            queues: Queues::new(),
            agenda: Agenda::new(),
            effects: Effects::default(),
            ghosts: HashSet::new(),
            releases: Releases::default(),
            counted: Releases::default(),
            stage: Stage::Open,
            close_waiters: Vec::new(),
            hand_over,
        }
    }

    /// Returns the counters of all attempts.
    pub(crate) fn counters(&self) -> Vec<u64> {
        self.attempts.keys().copied().collect()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.attempts.is_empty()
    }

    pub(crate) fn insert(&mut self, attempt: Attempt, reach: Reach) {
        let counter = attempt.id.counter;
        let state = self.names.entry(&attempt.name);
        state.attempts += 1;
        // An attempt that only ends does not know the kind.
        if !matches!(attempt.phase, Phase::Returning(_)) {
            state.kind = attempt.terms.take.kind;
        }
        self.attempts.insert(counter, attempt);
        self.arm(counter, reach);
    }

    pub(crate) fn remove(&mut self, counter: u64, now_us: u64) -> Option<Attempt> {
        self.go_on(counter, now_us);
        let mut attempt = self.attempts.remove(&counter)?;
        self.ghosts.remove(&counter);
        attempt.order.take_followers().into_iter().for_each(|follower| self.effects.signal(follower));
        if let Some(state) = self.names.get_mut(&attempt.name) {
            state.attempts -= 1;
            state.going_back.retain(|returning| *returning != counter);
        }
        self.names.sweep(&attempt.name);
        if self.stage != Stage::Open && self.is_drained() {
            // The thread has nothing left to do but to end, and need not sleep out its tick for that.
            self.agenda.wake();
        }
        Some(attempt)
    }

    /// Returns the names of everything that is not returned yet.
    pub(crate) fn unreturned(&self) -> Vec<Name> {
        self.attempts.values().map(|attempt| attempt.name.clone()).collect()
    }

    /// Notes that the thread has sent an acquire.
    pub(crate) fn acquire_is_sent(&mut self, counter: u64) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.order.sent_by_thread();
        }
    }

    /// Notes that a return was sent: later requests on its connection come after it.
    pub(crate) fn return_is_sent(&mut self, counter: u64, serial: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        if matches!(attempt.phase, Phase::Returning(_)) {
            attempt.order.note_return(serial);
            attempt.order.take_followers().into_iter().for_each(|follower| self.effects.signal(follower));
        }
    }

    pub(crate) fn set_next(&mut self, counter: u64, at_us: u64) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.set_next(at_us);
        }
    }

    pub(crate) fn set_phase(&mut self, counter: u64, phase: Phase) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.phase = phase;
        }
    }

    /// Returns the next re-check of a waiter with this lease: jittered, so that ten thousand waiters do not re-check at
    /// once.
    pub(crate) fn next_recheck_us(&mut self, lease_ms: u64, now_us: u64) -> u64 {
        let floor_us = recheck_floor_ms(lease_ms) * 1000;
        let jitter_us = (self.ids.random() >> 32) * (floor_us * 2 / 5) / u64::from(u32::MAX);
        now_us + floor_us * 4 / 5 + jitter_us
    }

    /// Watches the lease of another holder: see [`Names::watch`].
    pub(crate) fn watch(&mut self, name: &Name, token: Token, now_us: u64, left_us: u64, action: WatchAction) {
        self.names.watch(&mut self.agenda, (name, token), now_us, left_us, action);
    }

    /// Re-checks a name after this time: see [`Names::recheck_in`].
    pub(crate) fn recheck_in(&mut self, name: &Name, now_us: u64, left_us: u64) {
        self.names.recheck_in(&mut self.agenda, name, now_us, left_us);
    }

    /// Tells the result to the caller of an attempt, or an error to all waiters of its local queue. If the queue has to ask
    /// again, its waiters need not know.
    pub(crate) fn tell(&mut self, counter: u64, verdict: Verdict) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        match (attempt.queue(), verdict) {
            (Some(queue), Verdict::Failed(error)) => self.tell_queue(queue, &error),
            (Some(_), _) => {}
            (None, verdict) => attempt.tell(&mut self.effects, verdict),
        }
    }

    fn tell_queue(&mut self, queue: u64, error: &Error) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        for waiter in queue.drain() {
            self.effects.verdict(waiter.number, Some(waiter.caller), Verdict::Failed(error.share()));
        }
    }

    pub(crate) fn tell_queues(&mut self, error: &Error) {
        self.queues.numbers().into_iter().for_each(|queue| self.tell_queue(queue, error));
    }

    /// Sets the next alarm of an attempt, and that of its queue.
    pub(crate) fn arm(&mut self, counter: u64, reach: Reach) {
        self.arm_alone(counter, reach);
        if let Some(queue) = self.attempts.get(&counter).and_then(Attempt::queue) {
            self.arm_queue(queue);
        }
    }

    /// Sets the next alarm of an attempt. Nothing has changed for the waiters of its queue: the lease is held, as before.
    pub(crate) fn arm_alone(&mut self, counter: u64, reach: Reach) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let due_us = attempt.due_us(reach);
        if due_us < attempt.alarm_us {
            attempt.alarm_us = due_us;
            self.agenda.attempts.set(due_us, counter);
        }
        self.agenda.wake_by(due_us);
    }

    /// Sets the next alarm of an attempt that was just served. A request that is still due could not be sent, and is not
    /// due again in the same turn. A request that waits for a connection has no alarm: the next connection wakes every
    /// attempt.
    pub(crate) fn arm_after(&mut self, counter: u64, reach: Reach, now_us: u64) {
        let Some(due_us) = self.attempts.get(&counter).map(|attempt| attempt.due_us(reach)) else { return };
        if due_us < u64::MAX {
            self.set_alarm(counter, due_us.max(now_us + 1_000));
        }
    }

    pub(crate) fn set_alarm(&mut self, counter: u64, at_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.alarm_us = at_us;
        self.agenda.attempts.set(at_us, counter);
    }

    /// Sets the alarm of the waiter whose deadline is first. A waiter without any time still waits for one reply.
    pub(crate) fn arm_queue(&mut self, number: u64) {
        let Some(queue) = self.queues.get_mut(number) else { return };
        let Some(first_us) = queue.first_deadline_us() else { return };
        let answer_us = self.attempts.get(&queue.attempt).map_or(0, Attempt::first_answer_us);
        let due_us = wait_ends_us(first_us, answer_us);
        if !is_on(Mutant::P21WaitsOn) && queue.sets_alarm(due_us) {
            self.agenda.queues.set(due_us, number);
            self.agenda.wake_by(due_us);
        }
    }

    /// Drops alarms for which nothing is due any more. Each request sets an alarm for its reply, and nearly every reply is
    /// in time. Left in the heap, these alarms would wake the thread a thousand times a second, for nothing.
    pub(crate) fn drop_idle_alarms(&mut self, reach: Reach) {
        for _ in 0..IDLE_ALARMS {
            let Some((at_us, counter)) = self.agenda.attempts.first() else { return };
            let attempt = self.attempts.get_mut(&counter).filter(|attempt| attempt.alarm_us == at_us);
            let due_us = attempt.as_ref().map_or(u64::MAX, |attempt| attempt.due_us(reach));
            if due_us <= at_us {
                return;
            }
            self.agenda.attempts.pop(at_us);
            let Some(attempt) = attempt else { continue };
            attempt.alarm_us = due_us;
            if due_us != u64::MAX {
                self.agenda.attempts.set(due_us, counter);
            }
        }
    }

    /// Opens a local queue for a name that has none for this lease.
    pub(crate) fn open_queue(&mut self, name: &Name, terms: &Arc<Terms>) -> u64 {
        let number = self.ids.number();
        self.names.entry(name).queues.push((terms.lease_ms, number));
        self.queues.open(number, name, terms);
        number
    }

    /// Returns the local queue for this name and lease, if nobody uses it. Opens one if there is none.
    pub(crate) fn idle_or_new_queue(&mut self, name: &Name, terms: &Arc<Terms>) -> Option<u64> {
        let Some(number) = self.names.queue_of(name, terms.lease_ms) else { return Some(self.open_queue(name, terms)) };
        let queue = self.queues.get_mut(number).filter(|queue| queue.is_idle())?;
        queue.set_terms_if_idle(terms);
        Some(number)
    }

    /// Keeps a queue that is idle for the next caller. If there are too many, another one is closed.
    fn keep_idle(&mut self, number: u64) {
        if let Some((name, closed)) = self.queues.keep_idle(number) {
            self.names.forget_queue(&name, closed);
        }
    }

    /// Returns the lease that the attempt of a queue holds.
    pub(crate) fn holding_of(&mut self, queue: u64) -> Option<&mut Holding> {
        self.holding(self.queues.get(queue)?.attempt)
    }

    /// Returns the lease that an attempt holds.
    pub(crate) fn holding(&mut self, counter: u64) -> Option<&mut Holding> {
        match &mut self.attempts.get_mut(&counter)?.phase {
            Phase::Held(holding) => Some(holding),
            _ => None,
        }
    }

    /// Lets an attempt stand for a queue.
    pub(crate) fn attach(&mut self, counter: u64, queue: u64) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.attempt = counter;
        }
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.requester = Requester::Queue(queue);
        }
    }

    /// Ends that an attempt stands for its queue. Returns the queue, if it has waiters.
    pub(crate) fn detach(&mut self, counter: u64, now_us: u64) -> Option<u64> {
        let attempt = self.attempts.get_mut(&counter)?;
        let number = attempt.queue()?;
        attempt.requester = Requester::Nobody;
        let queue = self.queues.get_mut(number)?;
        queue.attempt = 0;
        if queue.is_empty() {
            self.keep_idle(number);
            return None;
        }
        match &attempt.phase {
            Phase::Held(holding) => hit(holding.budget.why_over(holding.hold.token, now_us)),
            Phase::Ended { .. } => hit(Mark::QueueWentOn),
            _ => {}
        }
        Some(number)
    }

    /// Ends that an attempt stands for its queue. If the queue has waiters, they go on with another attempt.
    pub(crate) fn go_on(&mut self, counter: u64, now_us: u64) {
        if is_on(Mutant::P21WaitsForGuard) && self.attempts.get(&counter).is_some_and(Attempt::is_ended) {
            return;
        }
        let queue = self.detach(counter, now_us);
        queue.into_iter().for_each(|queue| self.queues.leave_unattended(queue));
    }

    /// Removes and returns a queue that needs an attempt. The last waiter of a queue may have left meanwhile.
    pub(crate) fn next_unattended(&mut self) -> Option<u64> {
        while let Some(number) = self.queues.take_unattended() {
            match self.queues.get(number) {
                Some(queue) if queue.is_idle() => self.keep_idle(number),
                Some(queue) if queue.attempt == 0 => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// P21: see the head of this file. More queues would make this the longest part of every change.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_attended(&self) {
        if self.stage == Stage::Closed {
            return; // The waiters have their errors, and the thread that served the attempts has ended.
        }
        for queue in self.queues.iter().take(64) {
            let is_attended = match self.attempts.get(&queue.attempt).map(|attempt| &attempt.phase) {
                Some(Phase::Held(holding)) => holding.is_in_use() || queue.is_empty(),
                Some(Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. }) => !queue.is_empty(),
                Some(Phase::Ended { .. } | Phase::Returning(_)) => false,
                None => queue.is_idle(),
            };
            assert!(is_attended, "P21: nobody asks for \"{}\", for which callers wait", queue.name);
        }
    }
}
