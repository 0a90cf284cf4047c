//! Records which clients know that the server's clock jumped forward.
//!
//! If no answer has shown the jump to a client, the client computes the age of a message from the clock as it was before.
//! A delayed message then looks young. An answer shows a jump only if the jump is larger than two delays together: the way
//! back of this answer, and the shortest way there of the answers before the jump.

use std::collections::BTreeMap;

use super::exec::Pid;

/// The tolerance of the client's arithmetic: a millisecond, and one part in [`DRIFT`] for clocks of different rates.
const SLACK_US: u64 = 1_000;
const DRIFT: u64 = 500;

/// When an answer was requested, made and received, in true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) sent_us: u64,
    pub(super) made_us: u64,
    pub(super) received_us: u64,
}

#[derive(Default)]
pub(super) struct Jumps {
    /// When the clock was set forward, and by how much.
    set_us: Vec<(u64, u64)>,
    known: BTreeMap<Pid, Known>,
}

/// A client's knowledge of the server's clock.
struct Known {
    /// The client knows all jumps before this time.
    until_us: u64,
    /// The answer with the shortest way there since the client last learned of a jump.
    best: Trip,
}

impl Jumps {
    pub(super) fn set_forward(&mut self, at_us: u64, by_us: u64) {
        self.set_us.push((at_us, by_us));
    }

    /// Records that a client receives an answer.
    pub(super) fn record_answer(&mut self, pid: Pid, trip: Trip) {
        let Some(known) = self.known.get_mut(&pid) else {
            self.known.insert(pid, Known { until_us: trip.made_us, best: trip });
            return;
        };
        let is_new = |at_us: u64| known.until_us < at_us && at_us <= trip.made_us;
        let by_us: u64 = self.set_us.iter().filter(|(at_us, _)| is_new(*at_us)).map(|(_, by_us)| by_us).sum();
        let slack_us = SLACK_US + trip.received_us.saturating_sub(known.best.sent_us) / DRIFT;
        let (there, back_us) = (|trip: Trip| trip.made_us - trip.sent_us, trip.received_us - trip.made_us);
        if by_us > 0 && by_us <= there(known.best) + back_us + slack_us {
            return;
        }
        known.until_us = known.until_us.max(trip.made_us);
        if by_us > 0 || there(trip) <= there(known.best) {
            known.best = trip;
        }
    }

    /// Returns whether the clock jumped forward before this time without the client knowing it.
    pub(super) fn is_unknown(&self, pid: Pid, before_us: u64) -> bool {
        let until_us = self.known.get(&pid).map_or(0, |known| known.until_us);
        self.set_us.iter().any(|(at_us, _)| until_us < *at_us && *at_us <= before_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// Returns an answer that was made at this time, after these delays there and back.
    fn trip(made_ms: u64, there_ms: u64, back_ms: u64) -> Trip {
        let made_us = made_ms * MS;
        Trip { sent_us: made_us - there_ms * MS, made_us, received_us: made_us + back_ms * MS }
    }

    #[test]
    fn an_answer_shows_a_jump() {
        let mut jumps = Jumps::default();
        jumps.record_answer(1, trip(100, 1, 1));
        jumps.set_forward(200 * MS, 300 * MS);
        assert!(jumps.is_unknown(1, 250 * MS) && !jumps.is_unknown(1, 150 * MS));
        jumps.record_answer(2, trip(210, 1, 1));
        assert!(!jumps.is_unknown(2, 250 * MS), "its clock is from after the jump");
        jumps.record_answer(1, trip(260, 1, 1));
        assert!(!jumps.is_unknown(1, 250 * MS));
    }

    #[test]
    fn an_answer_does_not_show_a_jump_that_is_shorter_than_the_delays() {
        let mut jumps = Jumps::default();
        jumps.record_answer(1, trip(1_000, 150, 1));
        jumps.set_forward(1_100 * MS, 300 * MS);
        jumps.record_answer(1, trip(1_200, 1, 200));
        assert!(jumps.is_unknown(1, 1_300 * MS), "the sum of 150 ms and 200 ms is more than 300 ms");
        jumps.record_answer(1, trip(1_300, 1, 100));
        assert!(!jumps.is_unknown(1, 1_300 * MS));
        jumps.set_forward(1_400 * MS, 300 * MS);
        jumps.record_answer(1, trip(1_500, 1, 200));
        assert!(!jumps.is_unknown(1, 1_600 * MS), "the answer that showed the jump took 1 ms");
    }
}
