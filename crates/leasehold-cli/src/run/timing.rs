//! When a command is told to end, and when it is ended: the same arithmetic for supervisor and minder.
//!
//! ```text
//!   renewed                     told to end (TERM)              ended (KILL)    validity      the store's end
//!      ├──────────────────────────────┼──────────────────────────────┼──────────────┼──────────────┤
//!      │        renewals go on        │         `kill_after`         │    margin    │  1 % + 2 ms  │
//! ```
//!
//! There is no way back from TERM: who was told to end has lost its lock, even if a late renewal should succeed.

use std::time::Duration;

use leasehold_spec::limits;
use leasehold_spec::mutant::{Mutant, is_on};

/// The shortest lease of a command. Below, a tenth of it is less than a busy machine takes to wake a minder and to carry
/// a KILL out.
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest, as in the library.
const LEASE_MAX: Duration = Duration::from_millis(limits::LEASE_MAX_MS);
/// Both of them, for the user.
const LEASES: &str = "at least 1s, at most 24 h";
/// How much of the lease, or of a grace, is kept for the KILL to take effect: a tenth, within these bounds.
const MARGIN_MIN_US: u64 = 100_000;
const MARGIN_MAX_US: u64 = 1_000_000;
/// `--kill-after`, unless said: a sixth of the lease, at most this.
const KILL_AFTER_MAX: Duration = Duration::from_secs(5);
/// What was not ended by one KILL is sent another after this: a process can join the group behind the first.
const AGAIN_US: u64 = 50_000;

/// The parts of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) lease_us: u64,
    pub(crate) kill_after_us: u64,
}

impl Timing {
    /// # Errors
    /// What does not fit, in words.
    pub(crate) fn new(lease: Duration, kill_after: Option<Duration>) -> Result<Self, String> {
        if lease < LEASE_MIN {
            let lease = humantime::format_duration(lease);
            return Err(format!(
                "a lease of {lease} is too short to end a command in time on a busy machine: {LEASES}"
            ));
        }
        if lease > LEASE_MAX {
            return Err(format!("a lease of {} is too long: {LEASES}", rounded(lease)));
        }
        let kill_after = kill_after.unwrap_or_else(|| KILL_AFTER_MAX.min(lease / 6));
        // More, and one late renewal would end a healthy command.
        if kill_after > lease / 3 {
            let (longest, lease) = (rounded(lease / 3), rounded(lease));
            return Err(format!("--kill-after can be at most a third of the lease: {longest} of {lease}"));
        }
        Ok(Self { lease_us: micros(lease), kill_after_us: micros(kill_after) })
    }

    /// When the KILL is due for a lease that is ours until then.
    pub(crate) fn kill_us(&self, until_us: u64) -> u64 {
        if is_on(Mutant::P29KillsLate) {
            return until_us + self.lease_us;
        }
        until_us.saturating_sub(margin_us(self.lease_us))
    }

    /// The same for what is left of a revoked one.
    pub(crate) fn kill_within(now_us: u64, grace: Duration) -> u64 {
        let grace_us = micros(grace);
        now_us + grace_us.saturating_sub(margin_us(grace_us))
    }

    /// How often the supervisor looks for a renewal to tell the minder of: no end then comes for lack of a look.
    pub(crate) fn tick_us(&self) -> u64 {
        (self.lease_us / 20).clamp(50_000, 1_000_000)
    }
}

fn margin_us(span_us: u64) -> u64 {
    (span_us / 10).clamp(MARGIN_MIN_US, MARGIN_MAX_US)
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A length of time, for people: with a tenth below ten seconds, and in whole units above.
pub(crate) fn rounded(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    match (u64::try_from(tenths / 10).unwrap_or(u64::MAX), tenths % 10) {
        (seconds @ 0..10, tenth @ 1..) => format!("{seconds}.{tenth} s"),
        (seconds @ 0..120, _) => format!("{seconds} s"),
        (seconds @ 120..7_200, _) => format!("{} min", (seconds + 30) / 60),
        (seconds, _) => format!("{} h", (seconds + 1_800) / 3_600),
    }
}

/// What is to be done to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is told to end; also those that are stopped, by a CONT.
    Term,
    Kill,
}

/// When a group is told to end, and killed: put off by each renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    tell_us: u64,
    kill_us: u64,
    kill_after_us: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Told,
    Killed,
}

impl Deadline {
    pub(crate) fn new(kill_us: u64, kill_after_us: u64) -> Self {
        Self { tell_us: kill_us.saturating_sub(kill_after_us), kill_us, kill_after_us, stage: Stage::Open }
    }

    /// The lease goes on until then, or ends earlier than was thought. Who was told is not spared.
    pub(crate) fn put_off(&mut self, kill_us: u64) {
        match self.stage {
            Stage::Open => *self = Self::new(kill_us, self.kill_after_us),
            Stage::Told | Stage::Killed => self.kill_us = self.kill_us.min(kill_us),
        }
    }

    /// Tells the group now, and ends it at `kill_us`, or earlier where that was to come.
    pub(crate) fn bring_forward(&mut self, kill_us: u64) {
        self.tell_us = 0;
        self.kill_us = self.kill_us.min(kill_us);
    }

    /// What is due, once.
    pub(crate) fn due(&mut self, now_us: u64) -> Option<Act> {
        match self.stage {
            // Stopped beyond the end: whoever would hear a TERM would act on it without the lock.
            _ if now_us >= self.kill_us => {
                self.stage = Stage::Killed;
                self.kill_us = now_us + AGAIN_US;
                Some(Act::Kill)
            }
            Stage::Open if now_us >= self.tell_us => {
                self.stage = Stage::Told;
                Some(Act::Term)
            }
            Stage::Open | Stage::Told | Stage::Killed => None,
        }
    }

    /// When something is due next.
    pub(crate) fn next_us(&self) -> u64 {
        match self.stage {
            Stage::Open => self.tell_us.min(self.kill_us),
            Stage::Told | Stage::Killed => self.kill_us,
        }
    }

    pub(crate) fn kill_at_us(&self) -> u64 {
        self.kill_us
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.stage == Stage::Killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn timing(lease_s: u64) -> Timing {
        Timing::new(Duration::from_secs(lease_s), None).unwrap()
    }

    #[test]
    fn a_command_is_ended_before_its_lease() {
        for lease_s in [1, 3, 30, 3_600, 86_400] {
            let timing = timing(lease_s);
            let (until_us, kill_us) = (100 * timing.lease_us, timing.kill_us(100 * timing.lease_us));
            assert!(until_us - kill_us >= MARGIN_MIN_US, "{timing:?}");
            // The first renewal is due at a third, and two more tries fit in before anybody is told.
            let tell_us = Deadline::new(kill_us, timing.kill_after_us).next_us();
            assert!(until_us - tell_us < timing.lease_us / 2, "{timing:?}");
        }
    }

    #[test]
    fn a_revoked_command_has_most_of_its_grace() {
        assert_eq!(Timing::kill_within(SECOND, Duration::from_secs(5)), SECOND + 4_500_000);
        assert_eq!(Timing::kill_within(SECOND, Duration::from_millis(300)), SECOND + 200_000);
        assert_eq!(Timing::kill_within(SECOND, Duration::ZERO), SECOND);
    }

    #[test]
    fn lengths_are_rounded() {
        for (ms, told) in [
            (0, "0 s"),
            (104, "0.1 s"),
            (1_960, "2 s"),
            (3_333, "3.3 s"),
            (9_949, "9.9 s"),
            (9_950, "10 s"),
            (30_049, "30 s"),
            (119_900, "119 s"),
            (120_000, "2 min"),
            (172_800_000, "48 h"),
        ] {
            assert_eq!(rounded(Duration::from_millis(ms)), told);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Timing::new(Duration::from_millis(999), None).unwrap_err().contains("at least 1s"));
        let third = Some(Duration::from_secs(10));
        assert!(Timing::new(Duration::from_secs(30), third).is_ok());
        assert!(Timing::new(Duration::from_secs(29), third).unwrap_err().contains("third"));
    }

    #[test]
    fn a_renewal_puts_the_end_off() {
        let mut deadline = Deadline::new(10 * SECOND, 2 * SECOND);
        assert_eq!(deadline.due(7 * SECOND), None);
        deadline.put_off(20 * SECOND);
        assert_eq!((deadline.due(9 * SECOND), deadline.next_us()), (None, 18 * SECOND));
        assert_eq!(deadline.due(18 * SECOND), Some(Act::Term));
        assert_eq!(deadline.due(18 * SECOND), None, "once");
        deadline.put_off(30 * SECOND);
        assert_eq!(deadline.due(20 * SECOND), Some(Act::Kill), "who was told is not spared");
        assert_eq!(deadline.due(20 * SECOND + AGAIN_US), Some(Act::Kill));
    }

    #[test]
    fn a_loss_tells_at_once() {
        let mut deadline = Deadline::new(10 * SECOND, 2 * SECOND);
        deadline.bring_forward(3 * SECOND);
        assert_eq!(deadline.due(SECOND), Some(Act::Term));
        assert_eq!(deadline.due(3 * SECOND), Some(Act::Kill));
        let mut near = Deadline::new(2 * SECOND, 2 * SECOND);
        near.bring_forward(3 * SECOND);
        assert_eq!(near.next_us().min(near.kill_at_us()), 0);
        assert_eq!(near.kill_at_us(), 2 * SECOND, "not later than it was to come");
    }

    #[test]
    fn after_a_stop_beyond_the_end_nobody_is_told_first() {
        let mut deadline = Deadline::new(10 * SECOND, 2 * SECOND);
        assert_eq!(deadline.due(3_600 * SECOND), Some(Act::Kill));
    }
}
