//! A run: one grant of the store, entered by one waiter of this session after the other.
//!
//! Nothing of a pass leaves the process, so nobody else can refuse one that should not be. What it needs was granted
//! before, and this is how far that goes:
//!
//! - **Tokens** (P19). Each pass takes the next of those that the store reserved before the first of them was used. None is
//!   made here: a process that was stopped for longer than its lease would make one above its successor's.
//! - **Time** (P20). One moment, computed at each answer, until which passes are allowed: half of what was granted then
//!   has to be left, and three round trips, so that a section does not begin with an end in sight; and the answer is not
//!   older than a second, because an answer is what says that others wait, should the message that says so be lost.
//! - **The others** (P20). From when they are known to wait, a number of passes and a time, whichever is over first;
//!   nothing at all for one who asked for strict order.
//!
//! Arithmetic only: every moment comes as an argument.

use leasehold_spec::limits::{RUN_PASSES, run_silent_us, run_us};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, LostHow, Token};

use crate::clock::Term;
use crate::error::LostReason;

pub(crate) struct Run {
    grant: Token,
    /// How many tokens are reserved, from that of the grant on.
    range: u64,
    /// How many may be: the answer to a reservation can be lost.
    asked: u64,
    reserve: Reserve,
    /// No pass from this moment on.
    until_us: u64,
    /// Where that is for want of an answer.
    silent_us: u64,
    /// From this moment on a pass asks for a renewal, so that the next ones are allowed.
    refresh_us: u64,
    others: Others,
    is_sealed: bool,
}

/// What is known of those who wait elsewhere.
struct Others {
    level: Contention,
    /// When the store said so, by its clock.
    said_us: u64,
    /// No pass from this moment on for them.
    until_us: u64,
    /// So many passes are left for them.
    passes: u32,
}

/// How far the reservation of more tokens is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    Enough,
    Due,
    Asked,
    /// Refused, or not answered: not again before the store has been heard.
    Failed,
    /// Hardly more than there was: the next pass would ask again, and each behind it.
    Short,
    /// Not again before this.
    Paused {
        until_us: u64,
    },
}

/// Between two reservations that bring hardly more than there was: a range is at its longest, or as far ahead of the clock
/// as it may be.
const SHORT_PAUSE_US: u64 = 125_000;

impl Run {
    pub(crate) fn new(grant: Token, range: u64) -> Self {
        let others = Others { level: Contention::None, said_us: 0, until_us: u64::MAX, passes: u32::MAX };
        let reserve = Reserve::Enough;
        let (until_us, silent_us, refresh_us) = (0, 0, u64::MAX);
        Self { grant, range, asked: range, reserve, until_us, silent_us, refresh_us, others, is_sealed: false }
    }

    /// The token of the store's grant: what names it in every request.
    pub(crate) fn grant(&self) -> Token {
        self.grant
    }

    /// So much of the lease was left at a moment of our clock.
    pub(crate) fn heard(&mut self, term: &Term, lease_us: u64, rtt_us: u64) {
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

    /// A jump of the server's clock is taken off.
    pub(crate) fn shorten(&mut self, by_us: u64) {
        self.until_us = self.until_us.saturating_sub(by_us);
        self.silent_us = self.silent_us.saturating_sub(by_us);
    }

    /// No pass any more, whatever is heard: what the guard has is not what the next one in line asked for.
    pub(crate) fn seal(&mut self) {
        self.is_sealed = !is_on(Mutant::P20PassesLonger);
    }

    /// The store said at `said_us` of its clock whether others wait. A level that rises is believed whenever it was said;
    /// one that falls only where it was said later: a push overtakes answers, and of two words of one microsecond nobody
    /// knows which was first.
    pub(crate) fn hear_of_others(&mut self, level: Contention, said_us: u64, now_us: u64, lease_us: u64) {
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

    pub(crate) fn others(&self) -> Contention {
        self.others.level
    }

    /// When the session asks again, so that the run may go on.
    pub(crate) fn refresh_us(&self) -> u64 {
        self.refresh_us
    }

    /// Whether somebody else of this session may enter now.
    pub(crate) fn may_go_on(&self, now_us: u64) -> bool {
        let is_wanted = now_us >= self.others.until_us || self.others.passes == 0;
        let is_late = now_us >= self.until_us && !is_on(Mutant::P20PassesLate);
        !is_late && !self.is_sealed && (!is_wanted || is_on(Mutant::P20NeverEnds))
    }

    /// The token of the next hold behind that of `used`, if there may be one now.
    pub(crate) fn next(&self, used: Token, now_us: u64) -> Option<Token> {
        if !self.may_go_on(now_us) {
            return None;
        }
        let next = used.plus(u64::from(!is_on(Mutant::P19TokenStays)));
        (next.get() - self.grant.get() < self.range || is_on(Mutant::P19BeyondRange)).then_some(next)
    }

    /// Why a run is over behind the hold of `used`, for who is still in line.
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

    /// One more pass, to the hold of this token. Answers whether the session has something to ask for now.
    pub(crate) fn passed(&mut self, used: Token, now_us: u64) -> Asks {
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
        Asks { renew, reserve: self.reserve == Reserve::Due }
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.reserve == Reserve::Due
    }

    /// How many tokens to ask for: twice as many each time, so that what a crash burns is in proportion to what was used.
    pub(crate) fn reserve(&mut self) -> u64 {
        self.reserve = Reserve::Asked;
        self.asked = self.asked.max(self.range.saturating_mul(2));
        self.asked
    }

    /// So many are reserved; `None`: nobody knows.
    pub(crate) fn reserved(&mut self, range: Option<u64>) {
        if range.is_none() {
            hit(Mark::ReserveUnheard);
        }
        let before = self.range;
        self.range = before.max(range.unwrap_or(0));
        self.reserve = match range {
            None => Reserve::Failed,
            Some(_) if (self.range - before) < (self.asked - before.min(self.asked)) / 2 => Reserve::Short,
            Some(_) => Reserve::Enough,
        };
    }

    /// Why a grant that the store does not know any more was lost, by the highest token there is. A range that nobody
    /// reported back is burnt: its last token is no successor's.
    pub(crate) fn why_lost(&self, how: LostHow, highest: Token) -> LostReason {
        let burnt = if is_on(Mutant::P19BurntIsSuccessor) { self.grant } else { self.grant.plus(self.asked - 1) };
        match how {
            LostHow::Revoked => LostReason::Revoked,
            LostHow::NotHeld if highest > burnt => LostReason::Superseded,
            LostHow::NotHeld if highest >= self.grant => LostReason::Expired,
            LostHow::NotHeld => LostReason::Forgotten,
        }
    }
}

/// What a pass makes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asks {
    pub(crate) renew: bool,
    pub(crate) reserve: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many passes, a millisecond each: how often they ask for more, which is answered by `given`.
    fn reservations(passes: u64, range: u64, mut given: impl FnMut(u64) -> Option<u64>) -> u32 {
        let grant = Token::new(7).unwrap();
        let (mut run, mut count) = (Run::new(grant, range), 0);
        for pass in 1..=passes {
            if run.passed(grant.plus(pass), pass * 1_000).reserve {
                count += 1;
                let asked = run.reserve();
                run.reserved(given(asked));
            }
        }
        count
    }

    #[test]
    fn a_range_that_cannot_be_lengthened_is_not_asked_for_at_each_pass() {
        // At its longest, or with a clock that lets one token more be reserved at each pass.
        assert_eq!(reservations(1_000, 1_500, |_| Some(1_500)), 1 + (1_000 - 750) / 126);
        let mut range = 1_500;
        let a_little_more = |_| {
            range += 1;
            Some(range)
        };
        assert_eq!(reservations(1_000, 1_500, a_little_more), 1 + (1_000 - 750) / 126);
    }

    #[test]
    fn one_that_can_be_is_asked_for_at_half() {
        assert_eq!(reservations(1_000, 4, Some), 9);
        // Cut short, and yet much longer than before.
        assert_eq!(reservations(12, 4, |asked| Some(asked * 3 / 4)), 5);
    }
}
