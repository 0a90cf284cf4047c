//! The times of TERM and KILL: the arithmetic that supervisor and minder share.
//!
//! ```text
//!   renewed                            TERM                          KILL         validity     end at the store
//!      ├──────────────────────────────┼──────────────────────────────┼──────────────┼──────────────┤
//!      │        renewals go on        │         `kill_after`         │    margin    │  1 % + 2 ms  │
//! ```
//!
//! TERM is final: a command that got TERM has lost its lock, even if a late renewal succeeds.

use std::time::Duration;

use leasehold_spec::limits;
use leasehold_spec::mutant::{Mutant, is_on};

/// The shortest lease of a command. A tenth of a shorter one is less than a busy machine takes to wake a minder and to
/// carry out a KILL.
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest lease, as in the library.
const LEASE_MAX: Duration = Duration::from_millis(limits::LEASE_MAX_MS);
/// Both limits, for messages.
const LEASES: &str = "use 1s to 24h";
/// The part of a lease or grace that is reserved for the KILL to take effect: a tenth, within these bounds.
const MARGIN_MIN_US: u64 = 100_000;
const MARGIN_MAX_US: u64 = 1_000_000;
/// The default of `--kill-after` is a sixth of the lease, but at most this.
const KILL_AFTER_MAX: Duration = Duration::from_secs(5);
/// The interval between two KILLs: a process can join the group after the first.
const AGAIN_US: u64 = 50_000;

/// The parts of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) lease_us: u64,
    pub(crate) kill_after_us: u64,
}

impl Timing {
    /// Checks the options.
    ///
    /// # Errors
    /// If the lease or `kill_after` is out of range.
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
        // If it were longer, one late renewal would end a healthy command.
        if kill_after > lease / 3 {
            let (longest, lease) = (rounded(lease / 3), rounded(lease));
            return Err(format!("--kill-after is too long: use at most a third of the lease, {longest} of {lease}"));
        }
        Ok(Self { lease_us: micros(lease), kill_after_us: micros(kill_after) })
    }

    /// Returns when the KILL is due for a lease that is held until this time.
    pub(crate) fn kill_us(&self, until_us: u64) -> u64 {
        if is_on(Mutant::P29KillsLate) {
            return until_us + self.lease_us;
        }
        until_us.saturating_sub(margin_us(self.lease_us))
    }

    /// Returns when the KILL is due within the grace of a revoked lease.
    pub(crate) fn kill_within(now_us: u64, grace: Duration) -> u64 {
        let grace_us = micros(grace);
        now_us + grace_us.saturating_sub(margin_us(grace_us))
    }

    /// Returns how often the supervisor checks for a renewal to report to the minder. This is often enough that no command
    /// is ended for a renewal that was seen too late.
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

/// Formats a duration for people: with tenths below ten seconds, and in whole units above.
pub(crate) fn rounded(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    match (u64::try_from(tenths / 10).unwrap_or(u64::MAX), tenths % 10) {
        (seconds @ 0..10, tenth @ 1..) => format!("{seconds}.{tenth} s"),
        (seconds @ 0..120, _) => format!("{seconds} s"),
        (seconds @ 120..7_200, _) => format!("{} min", (seconds + 30) / 60),
        (seconds, _) => format!("{} h", seconds / 3_600 + u64::from(seconds % 3_600 >= 1_800)),
    }
}

/// An action on a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Sends TERM, and CONT for stopped processes.
    Term,
    Kill,
}

/// When a group gets TERM and KILL. Each renewal defers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    term_us: u64,
    kill_us: u64,
    kill_after_us: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    TermSent,
    Killed,
}

impl Deadline {
    pub(crate) fn new(kill_us: u64, kill_after_us: u64) -> Self {
        Self { term_us: kill_us.saturating_sub(kill_after_us), kill_us, kill_after_us, stage: Stage::Open }
    }

    /// Sets the KILL for a lease that was renewed, or that ends earlier than expected. After TERM it is never deferred.
    pub(crate) fn put_off(&mut self, kill_us: u64) {
        match self.stage {
            Stage::Open => *self = Self::new(kill_us, self.kill_after_us),
            Stage::TermSent | Stage::Killed => self.kill_us = self.kill_us.min(kill_us),
        }
    }

    /// Makes the TERM due now, and the KILL at `kill_us`, or earlier if it was due before.
    pub(crate) fn bring_forward(&mut self, kill_us: u64) {
        self.term_us = 0;
        self.kill_us = self.kill_us.min(kill_us);
    }

    /// Returns the action that is due. Each is returned once.
    pub(crate) fn due(&mut self, now_us: u64) -> Option<Act> {
        match self.stage {
            // This process was stopped beyond the end. A command that got a TERM now would handle it without the lock.
            _ if now_us >= self.kill_us => {
                self.stage = Stage::Killed;
                self.kill_us = now_us + AGAIN_US;
                Some(Act::Kill)
            }
            Stage::Open if now_us >= self.term_us => {
                self.stage = Stage::TermSent;
                Some(Act::Term)
            }
            Stage::Open | Stage::TermSent | Stage::Killed => None,
        }
    }

    /// Returns when the next action is due.
    pub(crate) fn next_us(&self) -> u64 {
        match self.stage {
            Stage::Open => self.term_us.min(self.kill_us),
            Stage::TermSent | Stage::Killed => self.kill_us,
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
            // The first renewal is due at a third, and two more tries fit in before TERM.
            let term_us = Deadline::new(kill_us, timing.kill_after_us).next_us();
            assert!(until_us - term_us < timing.lease_us / 2, "{timing:?}");
        }
    }

    #[test]
    fn a_revoked_command_has_most_of_its_grace() {
        assert_eq!(Timing::kill_within(SECOND, Duration::from_secs(5)), SECOND + 4_500_000);
        assert_eq!(Timing::kill_within(SECOND, Duration::from_millis(300)), SECOND + 200_000);
        assert_eq!(Timing::kill_within(SECOND, Duration::ZERO), SECOND);
    }

    #[test]
    fn durations_are_rounded() {
        for (ms, text) in [
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
            assert_eq!(rounded(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn durations_out_of_range_are_rejected() {
        assert!(Timing::new(Duration::from_millis(999), None).unwrap_err().contains("use 1s to 24h"));
        let third = Some(Duration::from_secs(10));
        assert!(Timing::new(Duration::from_secs(30), third).is_ok());
        assert!(Timing::new(Duration::from_secs(29), third).unwrap_err().contains("third"));
    }

    #[test]
    fn a_renewal_defers_the_end() {
        let mut deadline = Deadline::new(10 * SECOND, 2 * SECOND);
        assert_eq!(deadline.due(7 * SECOND), None);
        deadline.put_off(20 * SECOND);
        assert_eq!((deadline.due(9 * SECOND), deadline.next_us()), (None, 18 * SECOND));
        assert_eq!(deadline.due(18 * SECOND), Some(Act::Term));
        assert_eq!(deadline.due(18 * SECOND), None, "once");
        deadline.put_off(30 * SECOND);
        assert_eq!(deadline.due(20 * SECOND), Some(Act::Kill), "TERM is final");
        assert_eq!(deadline.due(20 * SECOND + AGAIN_US), Some(Act::Kill));
    }

    #[test]
    fn a_loss_sends_term_at_once() {
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
    fn after_a_stop_beyond_the_end_there_is_no_term() {
        let mut deadline = Deadline::new(10 * SECOND, 2 * SECOND);
        assert_eq!(deadline.due(3_600 * SECOND), Some(Act::Kill));
    }
}
