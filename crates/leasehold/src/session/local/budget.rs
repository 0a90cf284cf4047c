//! How far one grant of the store may be handed on inside this process.
//!
//! A hand-over inside the process sends nothing, so no store can refuse it. Everything that it needs was granted before,
//! and bounds how long the hand-overs may go on:
//!
//! - **Tokens** (P19). Each hand-over takes the next of the tokens that the store reserved before the first of them was
//!   used. The client makes none: a process that was stopped for longer than its lease would make one above that of its
//!   successor.
//! - **Time** (P20). Each reply sets one moment until which hand-overs are allowed. At that moment half of the granted time
//!   is left, and at least three round trips, so that no section begins shortly before its end. The moment is at most a
//!   second after the reply, because a reply says whether others wait, in case the message that says so was lost.
//! - **Others** (P20). Once others are known to wait, a number of hand-overs and a time are left, whichever is over first.
//!   If a waiter asked for strict order, no hand-over is left.
//!
//! Pure arithmetic: every moment is an argument.

use leasehold_spec::limits::{RUN_PASSES, run_silent_us, run_us};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, LostHow, Token};

use crate::clock::Term;
use crate::lost::LostReason;

pub(crate) struct HandOverBudget {
    grant: Token,
    /// How many tokens are reserved, beginning with that of the grant.
    range: u64,
    /// How many may be reserved, if the reply to a reservation was lost.
    requested: u64,
    reserve: Reserve,
    /// From this moment on no hand-over is allowed.
    until_us: u64,
    /// The same moment, as far as it follows from the age of the last reply.
    silent_us: u64,
    /// From this moment on a hand-over asks for a renewal, so that later ones are allowed.
    refresh_us: u64,
    others: Others,
    is_sealed: bool,
}

/// Waiters outside this process, as far as the session knows.
struct Others {
    level: Contention,
    /// When the store said so, by its clock.
    said_us: u64,
    /// From this moment on no hand-over is allowed because they wait.
    until_us: u64,
    /// How many hand-overs are left because they wait.
    passes: u32,
}

/// The state of the reservation of more tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    Enough,
    Due,
    Requested,
    /// Refused, or not answered: no other request before the store has replied.
    Failed,
    /// Hardly longer than before: without a pause every hand-over would ask again.
    Short,
    /// No other request before this.
    Paused {
        until_us: u64,
    },
}

/// The pause between two reservations that bring hardly more than before: the range has its greatest length, or is as far
/// ahead of the clock as it may be.
const SHORT_PAUSE_US: u64 = 125_000;

impl HandOverBudget {
    pub(crate) fn new(grant: Token, range: u64) -> Self {
        let others = Others { level: Contention::None, said_us: 0, until_us: u64::MAX, passes: u32::MAX };
        let reserve = Reserve::Enough;
        let (until_us, silent_us, refresh_us) = (0, 0, u64::MAX);
        Self { grant, range, requested: range, reserve, until_us, silent_us, refresh_us, others, is_sealed: false }
    }

    /// Returns the token of the store's grant, which names the grant in every request.
    pub(crate) fn grant(&self) -> Token {
        self.grant
    }

    /// Notes a reply that said how much of the lease is left.
    pub(crate) fn renewed(&mut self, term: &Term, lease_us: u64, rtt_us: u64) {
        let silent_us = run_silent_us(lease_us);
        let until_us = term.half_us.min(term.until_us.saturating_sub(3 * rtt_us)).min(term.from_us + silent_us);
        if until_us >= self.until_us {
            (self.until_us, self.refresh_us) = (until_us, term.from_us + silent_us / 2);
            self.silent_us = term.from_us + silent_us;
        }
        if self.reserve == Reserve::Failed {
            self.reserve = Reserve::Enough;
        }
    }

    /// Takes a jump of the server's clock off.
    pub(crate) fn shorten(&mut self, by_us: u64) {
        self.until_us = self.until_us.saturating_sub(by_us);
        self.silent_us = self.silent_us.saturating_sub(by_us);
    }

    /// Allows no hand-over any more: the lease of the guard is not the one that the next waiter asked for.
    pub(crate) fn seal(&mut self) {
        self.is_sealed = !is_on(Mutant::P20PassesLonger);
    }

    /// Notes what the store said, at `said_us` of its clock, about others that wait. A rising level is always believed. A
    /// falling level is believed only if the server said it later, because a message overtakes replies, and nobody knows
    /// the order of two statements of one microsecond.
    pub(crate) fn note_contention(&mut self, level: Contention, said_us: u64, now_us: u64, lease_us: u64) {
        let others = &mut self.others;
        if level < others.level && said_us <= others.said_us {
            hit(Mark::OlderLevel);
            return;
        }
        if is_on(Mutant::P20Unwanted) {
            return;
        }
        let was = std::mem::replace(&mut others.level, level);
        others.said_us = others.said_us.max(said_us);
        match level {
            Contention::None => (others.until_us, others.passes) = (u64::MAX, u32::MAX),
            Contention::Strict if !is_on(Mutant::P20IgnoresStrict) => others.passes = 0,
            Contention::Others | Contention::Strict if was == Contention::None => {
                (others.until_us, others.passes) = (now_us + run_us(lease_us), RUN_PASSES);
            }
            Contention::Others | Contention::Strict => {}
        }
    }

    pub(crate) fn contention(&self) -> Contention {
        self.others.level
    }

    /// Returns when the session asks again, so that hand-overs may go on.
    pub(crate) fn refresh_us(&self) -> u64 {
        self.refresh_us
    }

    /// Returns whether another caller of this session may enter now.
    pub(crate) fn may_go_on(&self, now_us: u64) -> bool {
        let is_wanted = now_us >= self.others.until_us || self.others.passes == 0;
        let is_late = now_us >= self.until_us && !is_on(Mutant::P20PassesLate);
        !is_late && !self.is_sealed && (!is_wanted || is_on(Mutant::P20NeverEnds))
    }

    /// Returns the token of the hold after that of `used`, if a hand-over is allowed now.
    pub(crate) fn next(&self, used: Token, now_us: u64) -> Option<Token> {
        if !self.may_go_on(now_us) {
            return None;
        }
        let next = used.plus(u64::from(!is_on(Mutant::P19TokenStays)));
        (next.get() - self.grant.get() < self.range || is_on(Mutant::P19BeyondRange)).then_some(next)
    }

    /// Returns why no hand-over is allowed after the hold of `used`.
    pub(crate) fn why_over(&self, used: Token, now_us: u64) -> Mark {
        let Self { others, .. } = self;
        match () {
            () if self.is_sealed => Mark::RunLengthened,
            () if others.level == Contention::Strict && others.passes == 0 => Mark::RunStrict,
            () if others.passes == 0 => Mark::RunOutOfPasses,
            () if now_us >= others.until_us => Mark::RunOutOfTime,
            () if now_us >= self.until_us && self.until_us == self.silent_us => Mark::RunSilent,
            () if now_us >= self.until_us => Mark::RunLate,
            () if used.get() + 1 - self.grant.get() >= self.range => Mark::RunOutOfRange,
            () => Mark::RunCutShort,
        }
    }

    /// Notes a hand-over to the hold with this token. Returns what the session has to request now.
    pub(crate) fn note_pass(&mut self, used: Token, now_us: u64) -> Needs {
        hit(Mark::Passed);
        if self.others.level != Contention::None {
            self.others.passes = self.others.passes.saturating_sub(1);
        }
        self.reserve = match self.reserve {
            Reserve::Short => Reserve::Paused { until_us: now_us + SHORT_PAUSE_US },
            Reserve::Paused { until_us } if until_us <= now_us => Reserve::Enough,
            reserve => reserve,
        };
        if self.reserve == Reserve::Enough
            && used.get() - self.grant.get() >= self.range / 2
            && !is_on(Mutant::P19NeverReserves)
        {
            self.reserve = Reserve::Due;
        }
        let renew = now_us >= self.refresh_us && !is_on(Mutant::P20RenewsLate);
        Needs { renew, reserve: self.reserve == Reserve::Due }
    }

    pub(crate) fn wants_range(&self) -> bool {
        self.reserve == Reserve::Due
    }

    /// Returns how many tokens to ask for: twice as many each time, so that a crash burns tokens in proportion to those
    /// that were used.
    pub(crate) fn request_range(&mut self) -> u64 {
        self.reserve = Reserve::Requested;
        self.requested = self.requested.max(self.range.saturating_mul(2));
        self.requested
    }

    /// Notes how many tokens are reserved; `None`: nobody knows.
    pub(crate) fn reserved(&mut self, range: Option<u64>) {
        if range.is_none() {
            hit(Mark::ReserveUnheard);
        }
        let before = self.range;
        self.range = before.max(range.unwrap_or(0));
        self.reserve = match range {
            None => Reserve::Failed,
            Some(_) if (self.range - before) < (self.requested - before.min(self.requested)) / 2 => Reserve::Short,
            Some(_) => Reserve::Enough,
        };
    }

    /// Returns why a grant was lost that the store does not know any more, by the highest token that exists. A range that
    /// nobody reported back is burnt: its last token belongs to no successor. Neither do the `end` tokens by which the end
    /// of a lease counts up the last token.
    pub(crate) fn why_lost(&self, how: LostHow, highest: Token, end: u64) -> LostReason {
        let last = self.grant.plus(self.requested - 1 + end);
        let burnt = if is_on(Mutant::P19BurntIsSuccessor) { self.grant } else { last };
        match how {
            LostHow::Revoked => LostReason::Revoked,
            LostHow::NotHeld if highest > burnt => LostReason::Superseded,
            LostHow::NotHeld if highest >= self.grant => LostReason::Expired,
            LostHow::NotHeld => LostReason::Forgotten,
        }
    }
}

/// The requests that a hand-over makes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) renew: bool,
    pub(crate) reserve: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes hand-overs, one each millisecond. Returns how often they ask for more tokens; `given` is the reply.
    fn reservations(passes: u64, range: u64, mut given: impl FnMut(u64) -> Option<u64>) -> u32 {
        let grant = Token::new(7).unwrap();
        let (mut budget, mut count) = (HandOverBudget::new(grant, range), 0);
        for pass in 1..=passes {
            if budget.note_pass(grant.plus(pass), pass * 1_000).reserve {
                count += 1;
                let requested = budget.request_range();
                budget.reserved(given(requested));
            }
        }
        count
    }

    #[test]
    fn a_range_that_cannot_grow_is_requested_rarely() {
        // The range has its greatest length, or the clock allows one more token at each hand-over.
        assert_eq!(reservations(1_000, 1_500, |_| Some(1_500)), 1 + (1_000 - 750) / 126);
        let mut range = 1_500;
        let a_little_more = |_| {
            range += 1;
            Some(range)
        };
        assert_eq!(reservations(1_000, 1_500, a_little_more), 1 + (1_000 - 750) / 126);
    }

    #[test]
    fn a_range_that_can_grow_is_requested_at_half() {
        assert_eq!(reservations(1_000, 4, Some), 9);
        // Cut short, and yet much longer than before.
        assert_eq!(reservations(12, 4, |asked| Some(asked * 3 / 4)), 5);
    }
}
