//! What a session knows, behind one short lock: its attempts, its names, and the store's clock.
//!
//! Nothing here waits or sends. Callers change the state; whatever is to be sent follows from it, when the session's
//! thread asks what is due.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use leasehold_spec::limits::{CLAIM_MIN_MS, look_floor_ms};
use leasehold_spec::{Contention, GrantId, Name, SessionId};
use tokio::sync::oneshot;

use super::alarms::Alarms;
use super::attempt::{Asked, Attempt, Phase, Reach};
use super::batches::Batches;
use super::expiry::Contact;
use super::lane::Lane;
use super::lines::Line;
use super::pace::Pace;
use super::returns::GivenUp;
use super::silent;
use super::terms::Terms;
use super::watch::Watch;
use super::window::Windows;
use super::words::Words;
use crate::clock::ServerClock;
use crate::error::Error;
use crate::store::{Link, Store};
use crate::world::World;

pub(crate) struct State {
    pub(crate) world: Arc<dyn World>,
    store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) attempts: HashMap<u64, Attempt, BuildHasherDefault<Spread>>,
    /// What a session knows of a name.
    pub(crate) slots: HashMap<Name, Slot>,
    /// Who waits here for which name (P21).
    pub(crate) lines: HashMap<u64, Line, BuildHasherDefault<Spread>>,
    /// Whether leases are handed on inside the session.
    pub(crate) hand_over: HandOver,
    pub(crate) alarms: Alarms<u64>,
    pub(crate) line_alarms: Alarms<u64>,
    /// When renewals are planned.
    pub(crate) pace: Pace,
    /// What is due, and how much is under way.
    pub(crate) windows: Windows,
    pub(crate) watches: Alarms<Name>,
    /// Renewals that are under way.
    pub(crate) batches: Batches,
    pub(crate) clock: ServerClock,
    pub(crate) contact: Arc<Contact>,
    pub(crate) run: String,
    /// Whether that is another run than before, and what was released there must be said again.
    pub(crate) met_anew: bool,
    pub(crate) lane: Lane,
    /// The link that the inbox is proved on.
    pub(crate) home: Option<Arc<dyn Link>>,
    /// Links that left a request unanswered.
    pub(crate) doubted: Vec<Arc<dyn Link>>,
    /// Links that a ping is under way on, and how many other answers have come meanwhile.
    pub(crate) proving: Vec<(Arc<dyn Link>, u64)>,
    /// Links that ended lately, and why.
    pub(crate) ends: VecDeque<(Arc<dyn Link>, Error)>,
    /// Why the store could not be reached last.
    pub(crate) trouble: Option<Error>,
    /// What was released lately: a failover can bring it back (P13).
    pub(crate) released: VecDeque<GivenUp>,
    pub(crate) stage: Stage,
    /// When the session's thread looks next without being woken.
    pub(crate) planned_us: u64,
    pub(crate) wake: Wake,
    pub(crate) rtt_us: u64,
    /// What is to be said once the lock is free.
    pub(crate) words: Words,
    /// Callers' timers, and when they fire.
    pub(crate) timers: Vec<(u64, oneshot::Sender<()>)>,
    /// Who waits for everything to be given back.
    pub(crate) close_waiters: Vec<oneshot::Sender<()>>,
    next_counter: u64,
    next_serial: u64,
    /// Random numbers drawn ahead: a system call for each would be dear.
    drawn: Vec<u64>,
}

/// Spreads our own counters over a table. Nobody chooses them to collide, and SipHash takes longer than the look-up.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    /// No new work; what is held goes back.
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

/// Whether the session's thread is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    No,
    Now,
}

/// What a session knows of one name.
#[derive(Default)]
pub(crate) struct Slot {
    /// What was heard of the queue last: which form of the record to expect.
    pub(crate) guess: Contention,
    pub(crate) attempts: u32,
    /// The lines of the name, by the length of the lease that is asked for in each, ms.
    pub(crate) lines: Vec<(u64, u64)>,
    /// When all waiters of the name were last called to look.
    pub(crate) rallied_us: u64,
    /// The waiter that was told so last.
    pub(crate) waiter: u64,
    /// Whose lease to look after when it ends, and when that is.
    pub(crate) watch: Option<Watch>,
    /// The attempt whose lease is being released; 0: none. Of several the one with the latest grant.
    pub(crate) going_back: u64,
}

/// How many random numbers are drawn at once.
const DRAWN: usize = 32;
/// How many alarms of attempts that are over are dropped under one lock.
const IDLE_ALARMS: usize = 64;
/// No answer is called late before this: a busy machine is not a dead server.
const USUAL_MIN_US: u64 = 500_000;

impl State {
    pub(crate) fn new(
        world: Arc<dyn World>,
        store: Arc<dyn Store>,
        session: SessionId,
        lane: Lane,
        hand_over: HandOver,
    ) -> Self {
        Self {
            world,
            store,
            session,
            attempts: HashMap::default(),
            slots: HashMap::new(),
            lines: HashMap::default(),
            hand_over,
            alarms: Alarms::default(),
            line_alarms: Alarms::default(),
            pace: Pace::default(),
            windows: Windows::default(),
            watches: Alarms::default(),
            batches: Batches::default(),
            clock: ServerClock::default(),
            contact: Arc::default(),
            run: String::new(),
            met_anew: false,
            lane,
            words: Words::default(),
            timers: Vec::new(),
            close_waiters: Vec::new(),
            home: None,
            doubted: Vec::new(),
            proving: Vec::new(),
            ends: VecDeque::new(),
            trouble: None,
            released: VecDeque::new(),
            stage: Stage::Open,
            planned_us: 0,
            wake: Wake::No,
            rtt_us: 0,
            next_counter: 1,
            next_serial: 1,
            drawn: Vec::new(),
        }
    }

    pub(crate) fn check_lease(&self, lease_ms: u64) -> Result<(), Error> {
        self.store.profile().check_lease(lease_ms)
    }

    /// Whether what the store has ended can last in a part of it.
    pub(crate) fn has_parts(&self) -> bool {
        self.store.profile().partial_grants
    }

    /// Whether tokens that are reserved in vain are in the way of whoever comes next.
    pub(crate) fn burns_ranges(&self) -> bool {
        self.store.profile().burns_unused_tokens
    }

    /// What to tell who hears nothing: why, if the store knows.
    pub(crate) fn silence(&self) -> Error {
        self.store.silence().unwrap_or_else(silent)
    }

    pub(crate) fn new_id(&mut self) -> GrantId {
        let counter = self.next_number();
        GrantId { session: self.session, counter, nonce: self.random() }
    }

    /// Numbers attempts, lines and waiters: whom a word is for follows from it.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_counter += 1;
        self.next_counter - 1
    }

    fn random(&mut self) -> u64 {
        self.drawn.pop().unwrap_or_else(|| {
            let mut bytes = [0; 8 * DRAWN];
            self.world.random(&mut bytes);
            let (numbers, _) = bytes.as_chunks();
            self.drawn.extend(numbers[1..].iter().map(|number| u64::from_ne_bytes(*number)));
            u64::from_ne_bytes(numbers[0])
        })
    }

    /// A request of an attempt with these terms, sent now.
    pub(crate) fn asked(&mut self, link: Arc<dyn Link>, terms: &Terms, now_us: u64) -> Asked {
        self.asked_within(link, terms.answer_within_us(), now_us)
    }

    pub(crate) fn asked_within(&mut self, link: Arc<dyn Link>, within_us: u64, now_us: u64) -> Asked {
        self.next_serial += 1;
        let until_us = now_us + within_us;
        let usual_us = until_us.min(now_us + self.usual_us());
        Asked { link, sent_us: now_us, until_us, usual_us, serial: self.next_serial }
    }

    /// An answer takes no longer than this unless something is wrong: as long as a doubted link has for its ping. Where the
    /// way is long a fixed bound would replace every link that was ever doubted.
    pub(crate) fn usual_us(&self) -> u64 {
        USUAL_MIN_US.max(4 * self.rtt_us)
    }

    /// The serial of the latest request.
    pub(crate) fn last_serial(&self) -> u64 {
        self.next_serial
    }

    pub(crate) fn insert(&mut self, attempt: Attempt) {
        let counter = attempt.id.counter;
        self.slots.entry(attempt.name.clone()).or_default().attempts += 1;
        self.attempts.insert(counter, attempt);
        self.arm(counter);
    }

    pub(crate) fn remove(&mut self, counter: u64) -> Option<Attempt> {
        let now_us = self.world.now_us();
        self.go_on(counter, now_us);
        let mut attempt = self.attempts.remove(&counter)?;
        if let Phase::Returning(returning) = &mut attempt.phase {
            returning.behind.drain(..).for_each(|behind| self.words.signal(behind));
        }
        if let Some(slot) = self.slots.get_mut(&attempt.name) {
            slot.attempts -= 1;
            if slot.going_back == counter {
                slot.going_back = 0;
            }
        }
        self.sweep(&attempt.name);
        if self.stage != Stage::Open && self.is_drained() {
            // The thread has nothing left to do but to end, and need not sleep out its tick for that.
            self.wake = Wake::Now;
        }
        Some(attempt)
    }

    pub(crate) fn sweep(&mut self, name: &Name) {
        if self.slots.get(name).is_some_and(|slot| slot.attempts == 0 && slot.watch.is_none() && slot.lines.is_empty())
        {
            self.slots.remove(name);
        }
    }

    /// Sets the attempt's next alarm, and wakes the thread when it would look too late.
    pub(crate) fn arm(&mut self, counter: u64) {
        self.arm_alone(counter);
        if let Some(line) = self.attempts.get(&counter).and_then(|attempt| attempt.line) {
            self.arm_line(line);
        }
    }

    /// The same where nothing has changed for those who stand in its line: what they wait for is held, as before.
    pub(crate) fn arm_alone(&mut self, counter: u64) {
        let reach = self.reach();
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let due_us = attempt.due_us(reach);
        if due_us < attempt.alarm_us {
            attempt.alarm_us = due_us;
            self.alarms.set(due_us, counter);
        }
        if due_us < self.planned_us {
            self.wake = Wake::Now;
        }
    }

    pub(crate) fn reach(&self) -> Reach {
        if self.home().is_some() { Reach::Online } else { Reach::Offline }
    }

    pub(crate) fn guess(&self, name: &Name) -> Contention {
        self.slots.get(name).map(|slot| slot.guess).unwrap_or_default()
    }

    /// Drops the alarms for which nothing is due any more. Each request sets one for its answer, and nearly every answer
    /// is in time: left in the heap they would wake the thread a thousand times a second, for nothing.
    fn drop_idle_alarms(&mut self) {
        let reach = self.reach();
        for _ in 0..IDLE_ALARMS {
            let Some((at_us, counter)) = self.alarms.first() else { return };
            let attempt = self.attempts.get_mut(&counter).filter(|attempt| attempt.alarm_us == at_us);
            let due_us = attempt.as_ref().map_or(u64::MAX, |attempt| attempt.due_us(reach));
            if due_us <= at_us {
                return;
            }
            self.alarms.pop(at_us);
            let Some(attempt) = attempt else { continue };
            attempt.alarm_us = due_us;
            if due_us != u64::MAX {
                self.alarms.set(due_us, counter);
            }
        }
    }

    pub(crate) fn set_phase(&mut self, counter: u64, phase: Phase) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.phase = phase;
        }
    }

    pub(crate) fn set_next(&mut self, counter: u64, at_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        match &mut attempt.phase {
            Phase::Asking { next_us, .. } | Phase::Queued { next_us } | Phase::Claiming { next_us, .. } => {
                *next_us = at_us;
            }
            Phase::Held(holding) if holding.renew_us != u64::MAX => holding.renew_us = at_us,
            Phase::Held(_) | Phase::Ended { .. } => {}
            Phase::Returning(returning) => returning.next_us = at_us,
        }
    }

    /// The next look of a waiter with this lease: jittered, so that ten thousand waiters do not look at once.
    pub(crate) fn next_look_us(&mut self, lease_ms: u64, now_us: u64) -> u64 {
        let floor_us = look_floor_ms(lease_ms) * 1000;
        let spread_us = (self.random() >> 32) * (floor_us * 2 / 5) / u64::from(u32::MAX);
        now_us + floor_us * 4 / 5 + spread_us
    }

    /// How long a pushed grant shall last before we have answered.
    pub(crate) fn claim_ms(&self) -> u64 {
        CLAIM_MIN_MS.max(self.rtt_us / 100)
    }

    /// When the thread has to look at the latest.
    pub(crate) fn next_due_us(&mut self) -> u64 {
        self.drop_idle_alarms();
        if self.windows.is_due() || (self.windows.may_settle() && self.home().is_some()) {
            return 0;
        }
        // What a watch asks for needs a link: without one it stays due until there is.
        let watch_us = self.watches.next_us();
        let watch_us = watch_us.filter(|_| self.home().is_some());
        let timer_us = self.timers.iter().map(|(at_us, _)| *at_us).min();
        [self.alarms.next_us(), self.line_alarms.next_us(), self.batches.next_us(), watch_us, timer_us]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }
}
