//! Time for tests: a clock that all processes of a machine share, and waits with a time limit.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since the machine was started, in microseconds. All processes read the same value, nobody can set it,
/// and it runs while the machine sleeps. It orders the histories of several processes.
#[cfg(target_os = "linux")]
#[must_use]
pub fn boottime_us() -> u64 {
    micros(ClockId::Boottime)
}

/// Returns the time since the machine was started, in microseconds. On this system the clock stops while the machine
/// sleeps.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn boottime_us() -> u64 {
    micros(ClockId::Monotonic)
}

fn micros(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).expect("a clock that counts from the machine's start is never negative");
    let nanos = u64::try_from(now.tv_nsec).expect("a clock reading has 0 to 999,999,999 nanoseconds");
    seconds * 1_000_000 + nanos / 1000
}

const POLL: Duration = Duration::from_millis(2);

/// Polls until `done` returns true. Use it only for things that send no event of their own (the state of a server).
///
/// # Panics
/// If `done` is still false after `within`. The message names `what` was awaited.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    loop {
        // The clock is read before the poll: a poll that began in time counts, however late the machine runs us.
        let late = started.elapsed() >= within;
        if done() {
            return;
        }
        assert!(!late, "waited {within:?} in vain until {what}");
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let before = boottime_us();
        thread::sleep(Duration::from_millis(3));
        assert!(boottime_us() - before >= 3_000);
    }

    #[test]
    fn wait_ends_when_the_condition_holds() {
        let mut looks = 0;
        wait_until("the third poll", Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "in vain until pigs fly")]
    fn failed_wait_names_its_condition() {
        wait_until("pigs fly", Duration::from_millis(10), || false);
    }
}
