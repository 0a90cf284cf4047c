//! Time for tests: a clock that all processes of a machine share, and waiting that ends.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The machine's time since it was started, in microseconds: the same in every process, set by nobody, and running while
/// the machine sleeps. Histories of several processes are put in order by it.
#[cfg(target_os = "linux")]
#[must_use]
pub fn boottime_us() -> u64 {
    micros(ClockId::Boottime)
}

/// The machine's time since it was started, in microseconds. This system's clock stands still while the machine sleeps.
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

/// Waits until `done` says so. For what sends no event of its own (the state of a server); never instead of one.
///
/// # Panics
/// When `within` has passed, naming `what` was awaited.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    loop {
        // The clock is read before the look: a look that began in time counts, however long the machine kept us waiting.
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
    fn the_clock_goes_forward() {
        let before = boottime_us();
        thread::sleep(Duration::from_millis(3));
        assert!(boottime_us() - before >= 3_000);
    }

    #[test]
    fn waiting_ends_when_it_is_done() {
        let mut looks = 0;
        wait_until("the third look", Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "in vain until pigs fly")]
    fn waiting_in_vain_says_for_what() {
        wait_until("pigs fly", Duration::from_millis(10), || false);
    }
}
