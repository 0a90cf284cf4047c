//! A held lease, as the guard, its signals and the session share it.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, GrantId, Name, Token};

use super::expiry::Lifetime;
use crate::clock::Term;
use crate::lost::{Lost, LostReason};
use crate::observe::{self, Event};
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use crate::world::World;

/// A held lease. A guard reads it without asking the session. It ends once, for one reason, and wakes the tasks that wait
/// for the end.
pub(crate) struct Hold {
    grant: Arc<Grant>,
    pub(crate) token: Token,
    /// The moment of our clock until which nobody else can hold; 0 once lost. The usual check needs no lock.
    valid_until_us: AtomicU64,
    fate: Mutex<Fate>,
}

/// The part that all holds of one grant share: a hand-over copies nothing of it.
pub(crate) struct Grant {
    pub(crate) name: Name,
    pub(crate) id: GrantId,
    pub(crate) world: Arc<dyn World>,
    pub(crate) lifetime: Lifetime,
    /// Of a barrier: the place of the arrival, counted from the last one. Otherwise 1.
    pub(crate) place: u64,
}

#[derive(Default)]
struct Fate {
    lost: Option<LostReason>,
    /// Until when the store keeps others out although the hold has ended: the grace of a revocation, if any.
    kept_until_us: u64,
    contention: Contention,
    /// Whether a guard took it and did not waive the minimum hold (P23). If nobody took it, it is released at once.
    keeps_min_hold: bool,
    /// The tasks that wait for the end, in the order of their seats.
    waiting: Vec<(u64, Waker)>,
    next_seat: u64,
}

/// The place of a task that waits for the end of a hold.
#[derive(Debug, Default)]
pub(crate) struct Seat(Option<u64>);

/// The end of a hold.
pub(crate) struct Ended {
    pub(crate) reason: LostReason,
    /// Whether this call has ended the hold.
    is_first: bool,
    /// The tasks to wake.
    pub(crate) waiting: Vec<Waker>,
}

impl Ended {
    /// Returns whether the holder has lost its lease by this end.
    pub(crate) fn is_loss(&self) -> bool {
        self.is_first && self.reason != LostReason::Released
    }
}

impl Hold {
    pub(crate) fn new(grant: Grant, token: Token, valid_until_us: u64) -> Self {
        let grant = Arc::new(grant);
        Self { grant, token, valid_until_us: AtomicU64::new(valid_until_us), fate: Mutex::default() }
    }

    /// Returns the next hold of the same grant, with the same validity and a token of its own.
    pub(crate) fn next(&self, token: Token, contention: Contention) -> Self {
        let valid_until_us = AtomicU64::new(self.valid_until_us());
        let fate = Mutex::new(Fate { contention, ..Fate::default() });
        Self { grant: Arc::clone(&self.grant), token, valid_until_us, fate }
    }

    /// Returns the token, or why the lease is lost. Reads the clock at every call: after a stop of an hour the first check
    /// reports the loss, before any timer has run.
    pub(crate) fn check(&self) -> Result<Token, Lost> {
        let now_us = self.world.now_us();
        if now_us < self.valid_until_us.load(Ordering::Acquire) {
            return Ok(self.token);
        }
        Err(self.over(now_us))
    }

    /// Ends a hold whose time is over, and returns why it has ended.
    #[cold]
    fn over(&self, now_us: u64) -> Lost {
        let ended = self.expire(now_us);
        if ended.is_loss() {
            observe::emit(self.lost_event(ended.reason));
        }
        ended.waiting.into_iter().for_each(Waker::wake);
        self.lost(ended.reason)
    }

    pub(crate) fn lost(&self, reason: LostReason) -> Lost {
        Lost::new(&self.name, reason)
    }

    pub(crate) fn lost_event(&self, reason: LostReason) -> Event {
        Event::Lost { name: self.name.clone(), reason }
    }

    pub(crate) fn remaining_us(&self) -> u64 {
        self.valid_until_us.load(Ordering::Acquire).saturating_sub(self.world.now_us())
    }

    pub(crate) fn valid_until_us(&self) -> u64 {
        self.valid_until_us.load(Ordering::Acquire)
    }

    /// Lengthens the validity. A shorter one comes from a reply that was overtaken. A lost hold stays lost.
    pub(crate) fn extend(&self, term: &Term) {
        let fate = self.fate();
        if fate.lost.is_none() && self.valid_until_us.fetch_max(term.until_us, Ordering::AcqRel) < term.until_us {
            self.lifetime.extended(term);
        }
    }

    /// Shortens the validity, for example by a jump of the server's clock.
    pub(crate) fn shorten(&self, by_us: u64) {
        let fate = self.fate();
        if fate.lost.is_none() {
            let until_us = self.valid_until_us.load(Ordering::Acquire);
            self.valid_until_us.store(until_us.saturating_sub(by_us).max(1), Ordering::Release);
        }
    }

    /// Notes that the store keeps others out until then, whatever becomes of the hold.
    pub(crate) fn keep_until(&self, until_us: u64) {
        self.fate().kept_until_us = until_us;
    }

    /// Returns how long others are surely kept out.
    pub(crate) fn kept_us(&self) -> u64 {
        let kept_until_us = self.fate().kept_until_us;
        self.remaining_us().max(kept_until_us.saturating_sub(self.world.now_us()))
    }

    /// Ends the hold. If it has ended before, the first reason stays.
    pub(crate) fn end(&self, reason: LostReason) -> Ended {
        self.end_with(|_| reason)
    }

    /// Ends a hold whose validity is over.
    pub(crate) fn expire(&self, now_us: u64) -> Ended {
        self.end_with(|until_us| self.lifetime.why_over(until_us, now_us))
    }

    fn end_with(&self, reason: impl FnOnce(u64) -> LostReason) -> Ended {
        let mut fate = self.fate();
        let is_first = fate.lost.is_none();
        let reason = *fate.lost.get_or_insert_with(|| reason(self.valid_until_us()));
        self.valid_until_us.store(0, Ordering::Release);
        let waiting = std::mem::take(&mut fate.waiting);
        drop(fate);
        // Nearly always nobody waits, and every hand-over ends a hold.
        let wakers = |waiting: Vec<(u64, Waker)>| waiting.into_iter().map(|(_, waker)| waker).collect();
        let waiting = if waiting.is_empty() { Vec::new() } else { wakers(waiting) };
        Ended { reason, is_first, waiting }
    }

    pub(crate) fn why_lost(&self) -> Option<LostReason> {
        self.fate().lost
    }

    pub(crate) fn poll_lost(&self, seat: &mut Seat, context: &Context<'_>) -> Poll<Lost> {
        if let Err(lost) = self.check() {
            return Poll::Ready(lost);
        }
        let waker = context.waker().clone();
        let mut fate = self.fate();
        if let Some(lost) = fate.lost.filter(|_| !is_on(Mutant::P18LostSignal)) {
            drop(fate);
            return Poll::Ready(self.lost(lost));
        }
        let number = *seat.0.get_or_insert_with(|| {
            fate.next_seat += 1;
            fate.next_seat
        });
        let before = match fate.waiting.binary_search_by_key(&number, |(seat, _)| *seat) {
            Ok(at) => Some(std::mem::replace(&mut fate.waiting[at].1, waker)),
            Err(at) => {
                fate.waiting.insert(at, (number, waker));
                None
            }
        };
        // Dropping a waker may drop its task: never under the lock.
        drop(fate);
        drop(before);
        Poll::Pending
    }

    /// Removes a task that waits no longer. Otherwise a lease that is held for weeks would keep a waker for each task that
    /// ever waited for its loss.
    pub(crate) fn leave(&self, seat: &Seat) {
        if let Some(number) = seat.0 {
            let mut fate = self.fate();
            let at = fate.waiting.binary_search_by_key(&number, |(seat, _)| *seat);
            let left = at.map(|at| fate.waiting.remove(at));
            // As above.
            drop(fate);
            drop(left);
        }
    }

    /// Notes that a caller took it: from here on its minimum hold counts.
    pub(crate) fn begin_min_hold(&self) {
        self.fate().keeps_min_hold = true;
    }

    pub(crate) fn waive_min_hold(&self) {
        self.fate().keeps_min_hold = false;
    }

    pub(crate) fn keeps_min_hold(&self) -> bool {
        self.fate().keeps_min_hold || is_on(Mutant::P23CoolsTheUntaken)
    }

    pub(crate) fn contention(&self) -> Contention {
        self.fate().contention
    }

    pub(crate) fn set_contention(&self, level: Contention) {
        self.fate().contention = level;
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Hold {
    type Target = Grant;

    fn deref(&self) -> &Grant {
        &self.grant
    }
}
