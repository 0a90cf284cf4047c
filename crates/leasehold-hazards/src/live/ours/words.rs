//! The words between a trial and its workers: orders and events, one in each line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The number of a thread within its worker.
pub type Slot = usize;

/// An order to one thread of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Lock, and wait for at most this many milliseconds. `None`: for as long as it takes.
    Lock(Option<u64>),
    /// Drop the future that waits for the lock.
    Cancel,
    /// Ask the guard whether the lock is held, for a later [`Write`](Self::Write).
    Check,
    /// Write to the resource, if the last check said that the lock is held.
    Write,
    /// Release, and wait until it is confirmed.
    Release,
    /// Drop the guard, and wait for nothing.
    Drop,
}

/// An event of a thread of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time on the monotonic clock, which all processes of a machine share.
    pub at: Duration,
    /// The thread.
    pub slot: Slot,
    /// The news.
    pub news: News,
}

/// The news of a thread of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The worker is connected. This is its wall clock.
    Ready(Duration),
    /// The thread begins to wait for the lock, for at most this many milliseconds.
    Wants(Option<u64>),
    /// The thread holds the lock with this token. Without a renewal it believes so until this time.
    Enters(u64, Duration),
    /// The thread believes that it holds the lock until this time.
    Believes(Duration),
    /// The thread has stopped waiting.
    GivesUp,
    /// The thread has checked its guard: is the lock held?
    Checked(bool),
    /// The thread writes to the resource with this token.
    Writes(u64),
    /// The thread has ended its critical section. This is so before it sends its release.
    Leaves,
    /// The release is over.
    Released,
    /// A call of the library has failed.
    Failed(String),
}

impl Event {
    /// Makes an event that happens now.
    #[must_use]
    pub fn now(slot: Slot, news: News) -> Self {
        Self { at: now(), slot, news }
    }
}

/// Returns the time on the monotonic clock.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(None) => f.write_str("lock"),
            Self::Lock(Some(ms)) => write!(f, "lock {ms}"),
            Self::Cancel => f.write_str("cancel"),
            Self::Check => f.write_str("check"),
            Self::Write => f.write_str("write"),
            Self::Release => f.write_str("release"),
            Self::Drop => f.write_str("drop"),
        }
    }
}

impl FromStr for Order {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match word {
            "lock" => Self::Lock(limit(rest)?),
            "cancel" => Self::Cancel,
            "check" => Self::Check,
            "write" => Self::Write,
            "release" => Self::Release,
            "drop" => Self::Drop,
            _ => return Err(Unknown),
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at.as_nanos(), self.slot, self.news)
    }
}

impl FromStr for Event {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().ok_or(Unknown);
        let (at, slot, news) = (time(next()?)?, next()?.parse()?, next()?.parse()?);
        Ok(Self { at, slot, news })
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(clock) => write!(f, "ready {}", clock.as_nanos()),
            Self::Wants(None) => f.write_str("wants"),
            Self::Wants(Some(ms)) => write!(f, "wants {ms}"),
            Self::Enters(token, until) => write!(f, "enters {token} {}", until.as_nanos()),
            Self::Believes(until) => write!(f, "believes {}", until.as_nanos()),
            Self::GivesUp => f.write_str("gives-up"),
            Self::Checked(is_held) => write!(f, "checked {is_held}"),
            Self::Writes(token) => write!(f, "writes {token}"),
            Self::Leaves => f.write_str("leaves"),
            Self::Released => f.write_str("released"),
            Self::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for News {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match word {
            "ready" => Self::Ready(time(rest)?),
            "wants" => Self::Wants(limit(rest)?),
            "enters" => {
                let (token, until) = rest.split_once(' ').ok_or(Unknown)?;
                Self::Enters(token.parse()?, time(until)?)
            }
            "believes" => Self::Believes(time(rest)?),
            "gives-up" => Self::GivesUp,
            "checked" => Self::Checked(rest.parse().map_err(|_| Unknown)?),
            "writes" => Self::Writes(rest.parse()?),
            "leaves" => Self::Leaves,
            "released" => Self::Released,
            "failed" => Self::Failed(rest.to_owned()),
            _ => return Err(Unknown),
        })
    }
}

/// The text is no order and no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl From<std::num::ParseIntError> for Unknown {
    fn from(_: std::num::ParseIntError) -> Self {
        Self
    }
}

fn limit(text: &str) -> Result<Option<u64>, Unknown> {
    Ok(if text.is_empty() { None } else { Some(text.parse()?) })
}

fn time(text: &str) -> Result<Duration, Unknown> {
    Ok(Duration::from_nanos(text.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let until = Duration::from_nanos(17);
        let all = [
            News::Ready(until),
            News::Wants(None),
            News::Wants(Some(5)),
            News::Enters(7, until),
            News::Believes(until),
            News::GivesUp,
            News::Checked(false),
            News::Writes(7),
            News::Leaves,
            News::Released,
            News::Failed("no server: refused".into()),
        ];
        for news in all {
            let event = Event::now(2, news);
            assert_eq!(event.to_string().parse(), Ok(event.clone()), "{event}");
        }
        assert_eq!("17 0 sleeps".parse::<Event>(), Err(Unknown));
    }

    #[test]
    fn every_order_is_read_as_it_was_written() {
        let all = [
            Order::Lock(None),
            Order::Lock(Some(5)),
            Order::Cancel,
            Order::Check,
            Order::Write,
            Order::Release,
            Order::Drop,
        ];
        for order in all {
            assert_eq!(order.to_string().parse(), Ok(order), "{order}");
        }
    }
}
