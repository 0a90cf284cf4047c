//! The client's knowledge about a store's clock, which it derives from replies.
//!
//! A request was sent at local `sent`, and its reply arrived at local `heard` and says "server time S". So S was *now*
//! at some moment between the two. That gives two bounds on the difference of the clocks, and everything here follows
//! from them:
//!
//! - the local time at which a pushed grant begins: the earliest moment at which it can have been made. If the client
//!   counted from the arrival, it would trust a message that lay in a buffer while the client was stopped;
//! - the `not_after` of a request;
//! - that the server's clock was set: the bounds no longer meet.
//!
//! Pure arithmetic on microseconds. The rates of the clocks differ by less than 1 %.

use leasehold_spec::limits::NOT_AFTER_MAX_US;
use leasehold_spec::mutant::{Mutant, is_on};

/// The times of one request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) sent_us: u64,
    pub(crate) heard_us: u64,
    pub(crate) server_us: u64,
}

impl Sample {
    /// The smallest possible local minus server time.
    fn low(&self) -> i64 {
        difference(self.sent_us, self.server_us)
    }

    /// The largest possible local minus server time.
    fn high(&self) -> i64 {
        difference(self.heard_us, self.server_us)
    }

    /// Returns whether this sample gives a better lower bound than an older one. The older bound is of its own time,
    /// and too large by now if the server's clock is faster. While such a bound is used, a request whose `not_after`
    /// was computed from it may come late.
    fn is_lower_bound_before(&self, older: &Self) -> bool {
        self.low() >= older.low() - self.drift_since(older)
    }

    fn is_upper_bound_before(&self, older: &Self) -> bool {
        self.high() <= older.high() + self.drift_since(older)
    }

    /// Returns by how much clocks that are not set can drift apart between the two samples.
    fn drift_since(&self, older: &Self) -> i64 {
        (self.heard_us.saturating_sub(older.sent_us) / DRIFT).cast_signed()
    }
}

/// One part in this many: twice the maximum rate at which a kernel slews a clock, on both machines.
const DRIFT: u64 = 500;

/// The clock of one run of a store, as this client knows it.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// The samples with the tightest lower and upper bound of this half minute and of the one before.
    recent: [Option<Bounds>; 2],
    half_minute: u64,
    last_jump: Jump,
}

/// The last observed setting of the server's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Jump {
    /// When the client observed it.
    heard_us: u64,
    /// The maximum by which the clock is ahead of the time in a reply from before this jump, or from before an earlier
    /// jump as well.
    forward_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    lowest: Sample,
    highest: Sample,
}

const WINDOW_US: u64 = 30_000_000;

impl ServerClock {
    /// Adds a sample. Returns by how much the server's clock jumped forward, if it did. The caller takes this time off
    /// every lease of that server.
    pub(crate) fn observe(&mut self, sample: Sample) -> Option<u64> {
        self.turn(sample.heard_us);
        // Replies come by two connections, so a reply from before a jump can arrive after one from after the jump. It
        // says nothing new. If it were believed, the next reply would look like a second jump, which ends leases that
        // were granted since.
        if self.is_from_before_a_jump(&sample) {
            return None;
        }
        let jump = self.jump(&sample);
        if let (Some(_), Some(before)) = (jump, self.known(sample.heard_us)) {
            let forward_us = self.last_jump.forward_us.saturating_add_signed(before.highest.high() - sample.low());
            self.last_jump = Jump { heard_us: sample.heard_us, forward_us };
            self.recent = [None, None];
        }
        let newest = &mut self.recent[0];
        let mut bounds = newest.unwrap_or(Bounds { lowest: sample, highest: sample });
        if sample.is_lower_bound_before(&bounds.lowest) {
            bounds.lowest = sample;
        }
        if sample.is_upper_bound_before(&bounds.highest) {
            bounds.highest = sample;
        }
        *newest = Some(bounds);
        jump.filter(|&forward| forward > 0 && !is_on(Mutant::P12NoJump)).map(i64::unsigned_abs)
    }

    /// Returns whether a reply was made, or can have been made, before the last jump: its request was sent before the
    /// jump was observed, and its time contradicts the samples since then, or there are no such samples.
    fn is_from_before_a_jump(&self, sample: &Sample) -> bool {
        let is_old = sample.sent_us < self.last_jump.heard_us;
        is_old && (self.jump(sample).is_some() || self.known(sample.heard_us).is_none())
    }

    /// Returns by how much the server's clock is known to have been set forward since this reply was made. Replies come
    /// by two connections: a reply with the rest of a lease can arrive after another one that showed the jump.
    pub(crate) fn set_forward_since(&self, sample: &Sample) -> u64 {
        if !self.is_from_before_a_jump(sample) || is_on(Mutant::P12NoJump) {
            return 0;
        }
        match self.jump(sample) {
            Some(forward) if forward < 0 => forward.unsigned_abs(),
            Some(_) => 0,
            // The reply took so long that there are no other samples.
            None => self.last_jump.forward_us,
        }
    }

    /// Returns the earliest local moment at which the server's clock can have shown `server_us`, or `None` without a
    /// sample of the last minute.
    pub(crate) fn local_of(&self, server_us: u64, now_us: u64) -> Option<u64> {
        let bounds = self.known(now_us)?;
        let anchor = bounds.lowest;
        let drift = anchor.server_us.abs_diff(server_us) / 100;
        let local = i128::from(server_us) + i128::from(anchor.low()) - i128::from(drift);
        u64::try_from(local).ok()
    }

    /// Returns the `not_after` of a request that must not be executed later than `within_us` from now.
    pub(crate) fn not_after(&self, now_us: u64, within_us: u64) -> u64 {
        let within_us = within_us.min(NOT_AFTER_MAX_US);
        self.server_at(now_us + within_us, now_us).unwrap_or(0)
    }

    /// Returns the approximate time of the server's clock at a local moment.
    pub(crate) fn server_at(&self, local_us: u64, now_us: u64) -> Option<u64> {
        let bounds = self.known(now_us)?;
        u64::try_from(i128::from(local_us) - i128::from(bounds.lowest.low())).ok()
    }

    fn turn(&mut self, now_us: u64) {
        let half_minute = now_us / WINDOW_US;
        match half_minute.saturating_sub(self.half_minute) {
            0 => {}
            1 => self.recent = [None, self.recent[0]],
            _ => self.recent = [None, None],
        }
        self.half_minute = self.half_minute.max(half_minute);
    }

    fn known(&self, now_us: u64) -> Option<Bounds> {
        let fresh = |b: &Bounds| b.lowest.heard_us + 2 * WINDOW_US > now_us;
        let [newest, older] = self.recent;
        match (newest, older.filter(fresh)) {
            (Some(a), Some(b)) => Some(Bounds {
                lowest: if a.lowest.is_lower_bound_before(&b.lowest) { a.lowest } else { b.lowest },
                highest: if a.highest.is_upper_bound_before(&b.highest) { a.highest } else { b.highest },
            }),
            (a, b) => a.filter(fresh).or(b),
        }
    }

    /// Returns how far the server's clock is ahead of the expected time (negative: behind), if drift and delay cannot
    /// explain the difference. It is the widest difference that the bounds allow, because giving a lease up early is
    /// safe.
    fn jump(&self, sample: &Sample) -> Option<i64> {
        let bounds = self.known(sample.heard_us)?;
        let slack = |since: &Sample| sample.drift_since(since) + 1000;
        let forward = sample.high() < bounds.lowest.low() - slack(&bounds.lowest);
        let backward = sample.low() > bounds.highest.high() + slack(&bounds.highest);
        if forward {
            Some(bounds.highest.high() - sample.low())
        } else if backward {
            Some(bounds.lowest.low() - sample.high())
        } else {
            None
        }
    }
}

/// Returns how long the client may rely on a lease of which `left_us` were left at the store.
fn reliable_us(left_us: u64) -> u64 {
    if is_on(Mutant::P12NoMargin) { left_us } else { left_us.saturating_sub(margin_us(left_us)) }
}

/// Returns the part of a lease that the client never relies on: 1 % of `left_us` and 2 ms, for clocks that run at
/// different rates, and for the time between a check and the action after it.
pub(crate) fn margin_us(left_us: u64) -> u64 {
    left_us / 100 + 2_000
}

/// A lease of which `left_us` were left at the store, in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// The end of the time in which the client may rely on the lease.
    pub(crate) until_us: u64,
    /// When to renew the lease: this leaves time for two more tries.
    pub(crate) renew_us: u64,
    /// The moment from which the lease counts.
    pub(crate) from_us: u64,
    /// The moment at which half of the lease is over.
    pub(crate) half_us: u64,
}

impl Term {
    /// Counts from the moment before the request was sent (P12).
    pub(crate) fn of(from_us: u64, left_us: u64) -> Self {
        Self {
            until_us: from_us + reliable_us(left_us),
            renew_us: from_us + left_us / 3,
            from_us,
            half_us: from_us + left_us / 2,
        }
    }
}

fn difference(local_us: u64, server_us: u64) -> i64 {
    local_us.cast_signed() - server_us.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_795_193_818_000_000;

    fn sample(sent_us: u64, heard_us: u64, server_us: u64) -> Sample {
        Sample { sent_us, heard_us, server_us }
    }

    #[test]
    fn a_grant_is_placed_before_the_moment_that_it_was_made() {
        let mut clock = ServerClock::default();
        // The server's S is the local 1_000_300: sent at 1_000_000, and received at 1_001_000.
        assert_eq!(clock.observe(sample(1_000_000, 1_001_000, S)), None);
        // Made 0.5 s later, at 1_500_300. The client assumes a moment that is 0.3 ms and 1 % earlier.
        assert_eq!(clock.local_of(S + 500_000, 2_000_000), Some(1_495_000));
        // A tighter sample moves the moment closer, and never past it.
        clock.observe(sample(1_600_290, 1_601_000, S + 600_000));
        assert_eq!(clock.local_of(S + 600_000, 2_000_000), Some(1_600_290));
    }

    #[test]
    fn a_server_whose_clock_is_faster_is_not_asked_too_late() {
        let mut clock = ServerClock::default();
        let (mut worst_us, trip_us) = (0, 400);
        for answer in 0..600_u64 {
            let sent_us = 1_000_000 + answer * 100_000;
            // 500 ppm.
            let server_us = |at_us: u64| S + at_us + at_us / 2000;
            assert_eq!(clock.observe(sample(sent_us, sent_us + trip_us, server_us(sent_us + trip_us / 2))), None);
            let told_us = clock.server_at(sent_us + trip_us, sent_us + trip_us).expect("a sample has just been added");
            worst_us = worst_us.max(server_us(sent_us + trip_us).abs_diff(told_us));
        }
        assert!(worst_us < 1_000, "{worst_us} µs off, and a first request is accepted for 50,000");
    }

    #[test]
    fn nothing_is_known_after_a_minute() {
        let mut clock = ServerClock::default();
        clock.observe(sample(1_000_000, 1_000_100, S));
        assert!(clock.server_at(1, 60_000_000).is_some());
        assert!(clock.server_at(1, 62_000_000).is_none());
        assert_eq!(clock.not_after(62_000_000, 1), 0);
    }

    #[test]
    fn a_forward_jump_is_seen_and_measured_and_drift_is_not() {
        let mut clock = ServerClock::default();
        for second in 1..50_u64 {
            // 500 ppm fast, as a clock that is being slewed.
            let drift = second * 500;
            let at = second * 1_000_000;
            assert_eq!(clock.observe(sample(at, at + 200, S + at + drift)), None, "second {second}");
        }
        let at = 50_000_000;
        let jump = clock.observe(sample(at, at + 200, S + at + 3_000_000)).expect("seen");
        assert!((2_974_000..=3_026_000).contains(&jump), "{jump}");
        assert_eq!(clock.observe(sample(at + 100, at + 300, S + at + 3_000_100)), None, "reported once");
    }

    #[test]
    fn an_answer_from_before_a_jump_is_no_second_one() {
        let mut clock = ServerClock::default();
        clock.observe(sample(1_000_000, 1_000_200, S));
        assert!(clock.observe(sample(2_000_000, 2_000_200, S + 61_000_000)).is_some());
        let old = sample(1_999_900, 2_000_300, S + 1_000_000);
        assert_eq!(clock.observe(old), None, "sent before, on the other connection");
        assert!((60_000_000..60_001_000).contains(&clock.set_forward_since(&old)), "its time is old by the jump");
        let new = sample(1_999_900, 2_000_300, S + 61_000_100);
        assert_eq!(clock.set_forward_since(&new), 0, "sent before, and answered after");
        assert_eq!(clock.observe(sample(2_100_000, 2_100_200, S + 61_100_000)), None, "no second jump");
        assert!(clock.observe(sample(2_200_000, 2_200_200, S + 91_200_000)).is_some(), "this is a second jump");
    }

    #[test]
    fn an_answer_from_before_a_jump_is_none_a_minute_later_either() {
        let mut clock = ServerClock::default();
        clock.observe(sample(1_000_000, 1_000_200, S));
        assert!(clock.observe(sample(2_000_000, 2_000_200, S + 61_000_000)).is_some());
        // The reply arrives when there are no other samples any more.
        let old = sample(1_999_900, 99_000_000, S + 1_000_000);
        let forward_us = clock.set_forward_since(&old);
        assert!((60_000_000..60_001_000).contains(&forward_us), "its time is old by the jump: {forward_us}");
        assert_eq!(clock.observe(old), None);
        assert_eq!(clock.observe(sample(99_100_000, 99_100_200, S + 158_100_000)), None, "no second jump");
    }

    /// The second of two jumps says little about a reply from before the first one.
    #[test]
    fn an_answer_from_before_two_jumps_is_old_by_both() {
        for (second, whole) in [(-1_000_000, 59_000_000_i64), (5_000_000, 65_000_000), (-70_000_000, 0)] {
            let mut clock = ServerClock::default();
            clock.observe(sample(1_000_000, 1_000_200, S));
            clock.observe(sample(2_000_000, 2_000_200, S + 61_000_000));
            clock.observe(sample(3_000_000, 3_000_200, (S + 62_000_000).saturating_add_signed(second)));
            for heard_us in [3_000_300, 99_000_000] {
                let old = sample(1_999_900, heard_us, S + 1_000_000);
                let forward_us = clock.set_forward_since(&old).cast_signed();
                assert!(forward_us >= whole, "received at {heard_us}, after {second}: {forward_us} of {whole}");
            }
        }
    }

    #[test]
    fn a_backward_jump_takes_nothing_off_and_anchors_anew() {
        let mut clock = ServerClock::default();
        clock.observe(sample(1_000_000, 1_000_200, S));
        assert_eq!(clock.observe(sample(2_000_000, 2_000_200, S - 9_000_000)), None);
        assert_eq!(clock.server_at(3_000_000, 3_000_000), Some(S - 8_000_000));
    }

    #[test]
    fn validity_leaves_a_margin() {
        assert_eq!(reliable_us(30_000_000), 29_698_000);
        assert_eq!(reliable_us(100_000), 97_000);
        assert_eq!(reliable_us(1_000), 0);
    }
}
