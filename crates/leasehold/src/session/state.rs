//! What a session knows, behind one short lock: its attempts, its names, and the store's clock.
//!
//! Nothing here waits or sends. Callers change the state; whatever is to be sent follows from it, when the session's
//! thread asks what is due.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use leasehold_spec::limits::{CLAIM_MIN_MS, NOT_AFTER_MAX_MS, look_floor_ms};
use leasehold_spec::{Answer, Contention, GrantId, Name, Rest, SessionId, Token};

use super::alarms::Alarms;
use super::attempt::{Asked, Attempt, Phase, Reach, Returning, Terms, What, same};
use super::clock::{Sample, ServerClock};
use super::lane::LaneState;
use super::words::Words;
use tokio::sync::oneshot;

use crate::error::{Error, Lost};
use crate::store::Link;
use crate::world::World;

pub(crate) struct State {
    pub(crate) world: Arc<dyn World>,
    pub(crate) session: SessionId,
    pub(crate) attempts: HashMap<u64, Attempt, BuildHasherDefault<Spread>>,
    /// P21: what a session knows of a name. Local queues will stand here.
    pub(crate) slots: HashMap<Name, Slot>,
    pub(crate) alarms: Alarms<u64>,
    pub(crate) watches: Alarms<Name>,
    pub(crate) clock: ServerClock,
    pub(crate) run: String,
    /// Whether that is another run than before, and what was released there must be said again.
    pub(crate) met_anew: bool,
    pub(crate) lane: LaneState,
    /// The link that the inbox is proved on.
    pub(crate) home: Option<Arc<dyn Link>>,
    /// Links that left a request unanswered.
    pub(crate) doubted: Vec<Arc<dyn Link>>,
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
    /// Callers' timers: dropped when their moment has come.
    pub(crate) bells: Vec<(u64, oneshot::Sender<()>)>,
    /// Who waits for the end.
    pub(crate) mourners: Vec<oneshot::Sender<()>>,
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
    /// When all waiters of the name were last called to look.
    pub(crate) rallied_us: u64,
    /// The waiter that was told so last.
    pub(crate) waiter: u64,
    /// Whose lease to look after when it ends, and when that is.
    watch: Option<Watch>,
}

#[derive(Clone, Copy)]
struct Watch {
    token: Token,
    due_us: u64,
    alarm_us: u64,
    then: Then,
}

/// What to do when a watched lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// A waiter of ours looks, if there is one: it settles as well, and hears when to look again. A settle alone would
    /// find a lease that was renewed, and the waiter would miss its new end by up to its own floor.
    Look,
    /// Settle only: a look would be refused, or there is more to settle.
    Settle,
}

pub(crate) struct GivenUp {
    pub(crate) name: Name,
    pub(crate) id: GrantId,
    pub(crate) what: What,
    pub(crate) until_us: u64,
}

/// How many random numbers are drawn at once.
const DRAWN: usize = 32;
/// How many alarms of attempts that are over are dropped under one lock.
const IDLE_ALARMS: usize = 64;
/// An answer takes no longer than this, or than eight round trips, unless something is wrong: as long as a doubted link has
/// for its ping.
const USUAL_MIN_US: u64 = 500_000;
/// How many releases a session remembers.
const RELEASES: usize = 1024;

impl State {
    pub(crate) fn new(world: Arc<dyn World>, session: SessionId) -> Self {
        Self {
            world,
            session,
            attempts: HashMap::default(),
            slots: HashMap::new(),
            alarms: Alarms::default(),
            watches: Alarms::default(),
            clock: ServerClock::default(),
            run: String::new(),
            met_anew: false,
            lane: LaneState::Absent,
            words: Words::default(),
            bells: Vec::new(),
            mourners: Vec::new(),
            home: None,
            doubted: Vec::new(),
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

    pub(crate) fn new_id(&mut self) -> GrantId {
        let counter = self.next_counter;
        self.next_counter += 1;
        GrantId { session: self.session, counter, nonce: self.random() }
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
        let usual_us = until_us.min(now_us + USUAL_MIN_US.max(8 * self.rtt_us));
        Asked { link, sent_us: now_us, until_us, usual_us, serial: self.next_serial }
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
        let attempt = self.attempts.remove(&counter)?;
        if let Some(slot) = self.slots.get_mut(&attempt.name) {
            slot.attempts -= 1;
        }
        self.sweep(&attempt.name);
        Some(attempt)
    }

    fn sweep(&mut self, name: &Name) {
        if self.slots.get(name).is_some_and(|slot| slot.attempts == 0 && slot.watch.is_none()) {
            self.slots.remove(name);
        }
    }

    /// Sets the attempt's next alarm, and wakes the thread when it would look too late.
    pub(crate) fn arm(&mut self, counter: u64) {
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
        if self.home.is_some() { Reach::Online } else { Reach::Offline }
    }

    pub(crate) fn guess(&self, name: &Name) -> Contention {
        self.slots.get(name).map(|slot| slot.guess).unwrap_or_default()
    }

    /// What every answer says, whatever it answers. Answers our moment from which on counts what it says to be left: that
    /// before its sending (P12), or an earlier one if the server's clock has been set forward since it was made.
    pub(crate) fn note(&mut self, name: &Name, answer: &Answer, sent_us: u64, heard_us: u64) -> u64 {
        let sample = Sample { sent_us, heard_us, server_us: answer.now_us };
        if answer.now_us != 0 {
            self.sample(sample);
        }
        if let Some(slot) = self.slots.get_mut(name) {
            slot.guess = answer.contention;
        }
        if let Some(claim_ms) = answer.handed {
            // Who handed over looks once when the claim has ended: the receiver may be frozen or dead (P7).
            self.watch(name, answer.highest, heard_us, claim_ms * 1000, Then::Look);
        }
        if answer.rest == Rest::More {
            self.watch(name, answer.highest, heard_us, 0, Then::Settle);
        }
        sent_us.saturating_sub(self.clock.set_forward_since(&sample))
    }

    pub(crate) fn sample(&mut self, sample: Sample) {
        // A stop of this process is no property of the way: one that slept for an hour would ask for claims of as long.
        let trip_us = sample.heard_us.saturating_sub(sample.sent_us).min(NOT_AFTER_MAX_MS * 1000);
        self.rtt_us = (7 * self.rtt_us + trip_us) / 8;
        let Some(jump_us) = self.clock.observe(sample) else { return };
        // The server's clock went ahead: every lease on it ends that much earlier. What is left is shortened now, and
        // asked for at once.
        for attempt in self.attempts.values_mut() {
            if let Phase::Held(holding) = &mut attempt.phase {
                holding.hold.shorten(jump_us);
                if holding.renew_us != u64::MAX {
                    holding.renew_us = 0;
                }
            }
        }
        let all: Vec<u64> = self.attempts.keys().copied().collect();
        all.into_iter().for_each(|counter| self.arm(counter));
    }

    /// Looks after a name when the lease with this token has ended: one timer per name and session, however many wait.
    pub(crate) fn watch(&mut self, name: &Name, token: Token, now_us: u64, left_us: u64, then: Then) {
        let slot = self.slots.entry(name.clone()).or_default();
        // What was said of an earlier grant no longer matters.
        if slot.watch.is_some_and(|watch| watch.token > token) {
            return;
        }
        // Not before the end: the answer would be "nothing to do", and nobody would ask again.
        let due_us = now_us + left_us + left_us / 500 + 2_000;
        let alarm_us = slot.watch.map_or(u64::MAX, |watch| watch.alarm_us);
        slot.watch = Some(Watch { token, due_us, alarm_us: alarm_us.min(due_us), then });
        if due_us < alarm_us {
            self.watches.set(due_us, name.clone());
        }
        if due_us < self.planned_us {
            self.wake = Wake::Now;
        }
    }

    /// The names whose watched lease has ended, and what to do about it.
    pub(crate) fn ended_watches(&mut self, now_us: u64) -> Vec<(Name, Then)> {
        let mut ended = Vec::new();
        while let Some(name) = self.watches.pop(now_us) {
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            let Some(watch) = &mut slot.watch else { continue };
            if watch.due_us > now_us {
                // It was moved back since: hand-overs, or a renewal that somebody heard of.
                watch.alarm_us = watch.due_us;
                self.watches.set(watch.due_us, name);
                continue;
            }
            let then = watch.then;
            slot.watch = None;
            self.sweep(&name);
            ended.push((name, then));
        }
        ended
    }

    /// Makes an attempt one to give back, whatever it was.
    pub(crate) fn give_back(&mut self, counter: u64, now_us: u64) {
        self.turn_back(counter, now_us);
        self.arm(counter);
    }

    /// The same without its alarm, for a caller that sends the release itself: an alarm that is due now wakes the thread,
    /// and at each release that costs more than the release.
    pub(crate) fn turn_back(&mut self, counter: u64, now_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let token = match &attempt.phase {
            Phase::Returning(_) => return,
            // The store has ended it already. Its alarm may not have rung yet.
            Phase::Ended { until_us, .. } if *until_us <= now_us && attempt.tries.is_settled() => {
                self.remove(counter);
                return;
            }
            Phase::Held(holding) => {
                self.words.lost(&holding.hold, Lost::Released);
                Some(holding.hold.token)
            }
            Phase::Claiming { token, .. } | Phase::Ended { token, .. } => Some(*token),
            Phase::Asking { .. } | Phase::Queued { .. } => None,
        };
        // While an acquire of it is unanswered the grant may have lapsed and been made anew, with a token that nobody here
        // has heard of. A release of the old one would find nothing and close the attempt.
        let what = match token {
            Some(token) if attempt.tries.is_settled() => What::Release(token),
            _ => What::Leave,
        };
        let never_sent = what == What::Leave && attempt.ticket.is_none() && attempt.tries.is_settled();
        if never_sent {
            self.remove(counter);
            return;
        }
        // The longest that the store can keep it: a request carried out at its last moment, and a whole lease.
        let until_us = now_us + attempt.terms.lease_us() + 2_000_000;
        attempt.asked = None;
        attempt.phase = Phase::Returning(Returning { what, until_us, next_us: now_us, caller: None });
    }

    pub(crate) fn remember_release(&mut self, released: GivenUp, now_us: u64) {
        while self.released.front().is_some_and(|old| old.until_us <= now_us) || self.released.len() >= RELEASES {
            self.released.pop_front();
        }
        self.released.push_back(released);
    }

    pub(crate) fn doubt(&mut self, link: &Arc<dyn Link>) {
        if !self.doubted.iter().any(|known| same(known, link)) {
            self.doubted.push(Arc::clone(link));
            self.wake = Wake::Now;
        }
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
        // What a watch asks for needs a link: without one it stays due until there is.
        let watch_us = self.watches.next_us().filter(|_| self.home.is_some());
        let bell_us = self.bells.iter().map(|(at_us, _)| *at_us).min();
        [self.alarms.next_us(), watch_us, bell_us].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}
