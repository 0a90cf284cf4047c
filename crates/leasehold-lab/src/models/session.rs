//! The session, as small as the rules allow: its state for each attempt, and when it sends each request.
//!
//! There is only one name, so a session has one *slot* (an attempt on behalf of all its relaxed local waiters, P21) and
//! one attempt for each strict waiter. A session only reacts: to its caller, to a message, to the clock, to a broken
//! connection. [`Session::pump`] alone decides which requests are sent, from the phase of each attempt.

use std::cell::RefCell;

use leasehold_spec::{Contention, Order, Token};

use super::ledger::Ledger;
use super::network::Link;
use super::rules::{Off, Slip};
use super::scene::Scene;

/// The time that never comes, on the model's clock.
pub(crate) const NEVER: u8 = u8::MAX;

/// The information that a session may use besides its own state: the clock, and the parameters of the run.
pub(crate) struct Now<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) off: Off,
    pub(crate) tick: u8,
    pub(crate) log: Option<&'a RefCell<Vec<String>>>,
}

impl Now<'_> {
    /// Logs an event, if there is a log.
    pub(crate) fn log(&self, what: impl FnOnce() -> String) {
        if let Some(log) = self.log {
            log.borrow_mut().push(what());
        }
    }

    pub(crate) fn slips(&self, slip: Slip) -> bool {
        self.off.slips(slip)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Awake,
    Paused,
    /// It has resumed: its tasks run first, and its timers when its thread's turn comes.
    Waking,
    Dead,
}

/// One local caller of `lock()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    Idle,
    Waiting,
    Inside,
    /// It was inside, and released or lost the lease.
    Served,
    /// Its future was dropped, or it was refused.
    Gone,
}

/// One attempt: the state that the real session keeps under a grant ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) n: u8,
    pub(crate) order: Order,
    /// The place in the queue that the store reported last.
    pub(crate) ticket: Option<u64>,
    /// The local queue.
    pub(crate) waiters: Vec<u8>,
    /// The highest token that was used under any grant of this attempt, in scenes with runs (P19).
    pub(crate) used: Token,
    /// Until when its lease is to cool down after the release; 0: no cool-down (P23).
    pub(crate) cools_until: u8,
    /// Acquires that were sent and have no reply yet.
    pub(crate) open: Vec<Open>,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Open {
    /// The connection on which the reply can still arrive.
    pub(crate) link: Option<u8>,
    pub(crate) not_after: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Waiting {
        recheck_at: u8,
    },
    /// A pushed grant that is too old to enter without a request: the session claims first, then enters (P12).
    Claiming {
        token: Token,
        range: u8,
        asked: Option<u8>,
    },
    Holding(Holding),
    Releasing {
        token: Token,
        asked: Option<u8>,
        sent: Sent,
    },
    Leaving {
        asked: Option<u8>,
        again_at: u8,
        close_at: u8,
    },
}

/// Whether a release was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sent {
    Once,
    /// An earlier release got no reply.
    Again,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) token: Token,
    /// Local validity ends here (P12).
    pub(crate) until: u8,
    pub(crate) renew_at: u8,
    pub(crate) renewing: Option<u8>,
    pub(crate) task: u8,
    /// When the minimum hold is over; 0 without one (P23).
    pub(crate) min_until: u8,
    /// Local passes since the grant. The task's token is this far above the grant's token (P19).
    pub(crate) pass: u8,
    /// Whether its session was notified of the revocation (P10).
    pub(crate) is_revoked: bool,
    pub(crate) run: Run,
}

/// The limits of a local run (P20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) others: Contention,
    /// The store's clock when the store reported `others`.
    pub(crate) stated_at: u8,
    /// When the session sent the request of the newest reply.
    pub(crate) asked_at: u8,
    /// How many tokens are reserved, as far as the session knows.
    pub(crate) range: u8,
    /// The connection on which more tokens were requested.
    pub(crate) reserving: Option<u8>,
    /// Passes since the session learned that others wait.
    pub(crate) passes: u8,
    /// For the property only: whether a reply has arrived that was given while others really waited, and the passes
    /// since.
    pub(crate) knows_waiters: bool,
    pub(crate) passes_while_wanted: u8,
}

impl Holding {
    /// Returns the token of the task that is inside.
    pub(crate) fn current(&self) -> Token {
        self.token.plus(u64::from(self.pass))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    pub(crate) me: u8,
    pub(crate) life: Life,
    pub(crate) links: Vec<Link>,
    /// Whether the inbox of the first connection is proved (P11).
    pub(crate) is_proved: bool,
    /// The tightest time pair: the store's clock was ahead of ours by at most this many ticks (P12).
    pub(crate) lag: Option<u8>,
    pub(crate) attempts: Vec<Attempt>,
    /// How many attempts were ever made, which is also the next number.
    pub(crate) made: u8,
    pub(crate) tasks: Vec<Task>,
    /// When to re-check a claim that this session handed over (P7).
    pub(crate) settle_at: u8,
    /// When the revoked lease ends that this session waits for (P10).
    pub(crate) ends_at: u8,
}

impl Session {
    pub(crate) fn new(scene: &Scene, me: u8, tasks: usize) -> Self {
        Self {
            me,
            life: Life::Awake,
            links: (0..scene.links_of(me)).map(|k| Link::open(k == 0 && !scene.polls(me))).collect(),
            is_proved: true,
            lag: Some(0),
            attempts: Vec::new(),
            made: 0,
            tasks: vec![Task::Idle; tasks],
            settle_at: NEVER,
            ends_at: NEVER,
        }
    }

    /// Whether no message is in flight on its connections, and its inbox works.
    pub(crate) fn is_settled(&self) -> bool {
        self.life == Life::Awake && self.is_proved && self.links.iter().all(|l| !l.is_up || l.is_quiet())
    }

    pub(crate) fn is_waiting(&self, i: usize) -> bool {
        matches!(self.attempts[i].phase, Phase::Waiting { .. })
    }

    pub(crate) fn find(&self, n: u8) -> Option<usize> {
        self.attempts.iter().position(|a| a.n == n)
    }

    pub(crate) fn start(&mut self, now: &Now<'_>, task: u8, order: Order) {
        self.tasks[task as usize] = Task::Waiting;
        let live = |a: &&mut Attempt| {
            a.order == Order::Relaxed
                && matches!(a.phase, Phase::Waiting { .. } | Phase::Claiming { .. } | Phase::Holding(_))
        };
        match self.attempts.iter_mut().find(live).filter(|_| order == Order::Relaxed) {
            Some(slot) => slot.waiters.push(task),
            None => self.attempt(now, order, vec![task]),
        }
        self.pump(now);
    }

    fn attempt(&mut self, now: &Now<'_>, order: Order, waiters: Vec<u8>) {
        let n = self.made;
        self.made += 1;
        let phase = Phase::Waiting { recheck_at: now.tick };
        let (ticket, used, cools_until, open) = (None, Token::NONE, 0, Vec::new());
        self.attempts.push(Attempt { n, order, ticket, waiters, used, cools_until, open, phase });
    }

    /// Handles a dropped future of a waiting task (P16).
    pub(crate) fn cancel(&mut self, now: &Now<'_>, task: u8) {
        self.tasks[task as usize] = Task::Gone;
        let Some(i) = self.attempts.iter().position(|a| a.waiters.contains(&task)) else { return };
        let was_first = self.attempts[i].waiters.first() == Some(&task);
        if !now.slips(Slip::PushToTheDead) {
            self.attempts[i].waiters.retain(|w| *w != task);
        }
        let gone = |w: &u8| self.tasks[*w as usize] == Task::Gone;
        let is_last = self.attempts[i].waiters.iter().all(gone);
        let goes = is_last || was_first && now.slips(Slip::EntryOfTask);
        if goes && matches!(self.attempts[i].phase, Phase::Waiting { .. } | Phase::Claiming { .. }) {
            if now.slips(Slip::DropSilent) {
                self.attempts.remove(i);
            } else {
                self.leave(now, i);
            }
        }
        self.pump(now);
    }

    pub(crate) fn leave(&mut self, now: &Now<'_>, i: usize) {
        let attempt = &mut self.attempts[i];
        let last = attempt.open.iter().map(|o| o.not_after).max().unwrap_or(now.tick).max(now.tick);
        let counts_from = if now.slips(Slip::ClosesEarly) { last - now.scene.slack.min(last) } else { last };
        let close_at = counts_from + now.scene.lease;
        attempt.phase = Phase::Leaving { asked: None, again_at: now.tick, close_at };
    }

    /// Starts a new attempt for the local waiters of an attempt that has ended.
    pub(crate) fn ask_again(&mut self, now: &Now<'_>, i: usize) {
        let waiters = std::mem::take(&mut self.attempts[i].waiters);
        let order = self.attempts[i].order;
        if !waiters.is_empty() {
            self.attempt(now, order, waiters);
        }
    }

    /// Lets the first local waiter enter: the grant is valid until `until`.
    pub(crate) fn enter(&mut self, now: &Now<'_>, ledger: &mut Ledger, i: usize, token: Token, until: u8, run: Run) {
        let attempt = &mut self.attempts[i];
        if attempt.waiters.is_empty() {
            return self.leave(now, i);
        }
        let task = attempt.waiters.remove(0);
        let left = until - now.tick;
        let third = (left / 3).max(1);
        // A fixed lease that is only a claim yet is renewed once; it is never lengthened.
        let is_claimed = left >= now.scene.lease;
        let renew_at = if now.scene.is_fixed() && is_claimed { NEVER } else { now.tick + third };
        let (renewing, pass, is_revoked) = (None, 0, false);
        let min_until = if now.scene.cools_down() { now.tick + now.scene.min_hold } else { 0 };
        let holding = Holding { token, until, renew_at, renewing, task, min_until, pass, is_revoked, run };
        attempt.phase = Phase::Holding(holding);
        attempt.used = if now.scene.has_runs() { token } else { Token::NONE };
        ledger.enters(token, 0);
        if self.tasks[task as usize] == Task::Waiting {
            self.tasks[task as usize] = Task::Inside;
        }
        now.log(|| format!("task {task} enters with token {}, valid until tick {until}", super::words::token(token)));
    }

    /// Ends the grant. If the store did not report the end itself, the session notifies the store (P13).
    pub(crate) fn lose(&mut self, now: &Now<'_>, i: usize, by_store: bool) {
        let Phase::Holding(Holding { task, .. }) = self.attempts[i].phase else { return };
        if self.tasks[task as usize] == Task::Inside {
            self.tasks[task as usize] = Task::Served;
        }
        now.log(|| format!("task {task} is notified that the lease is lost"));
        if !by_store {
            return self.end_run(now, i, Slip::LostForgets);
        }
        if !now.slips(Slip::LostForgets) {
            self.ask_again(now, i);
        }
        self.close(now, i);
    }

    /// Closes an attempt that holds nothing any more. If a request of it may still be carried out, sends one more leave
    /// first (P14).
    pub(crate) fn close(&mut self, now: &Now<'_>, i: usize) {
        if self.attempts[i].open.is_empty() {
            self.attempts.remove(i);
        } else {
            self.leave(now, i);
        }
    }
}
