//! The faults of a connection, and the requests that they strike.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::random::Random;

/// A request as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The connection to the proxy by which it came, counted from 1.
    pub connection: u64,
    /// When it arrived, on the clock of [`boottime_us`](crate::boottime_us).
    pub at_us: u64,
    /// Its name, in capitals.
    pub name: String,
    /// The arguments after the name.
    pub arguments: Vec<Vec<u8>>,
}

impl Command {
    /// Returns an argument as text, counted from 0 after the name.
    #[must_use]
    pub fn argument(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.arguments.get(index)?).ok()
    }
}

type Predicate = dyn Fn(&Command) -> bool + Send + Sync;

/// The requests that a fault strikes.
#[derive(Clone)]
pub struct Requests(Arc<Predicate>);

impl Requests {
    /// All requests.
    #[must_use]
    pub fn all() -> Self {
        Self::matching(|_| true)
    }

    /// Requests of one command.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let name = name.to_ascii_uppercase();
        Self::matching(move |command| command.name == name)
    }

    /// Calls of one script by its SHA-1.
    #[must_use]
    pub fn script(sha: &str) -> Self {
        let sha = sha.to_owned();
        Self::matching(move |command| {
            command.name.starts_with("EVALSHA")
                && command.argument(0).is_some_and(|given| given.eq_ignore_ascii_case(&sha))
        })
    }

    /// Requests that `wanted` accepts. `wanted` must not call the proxy, which waits for it.
    pub fn matching(wanted: impl Fn(&Command) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(wanted))
    }

    pub(super) fn contains(&self, command: &Command) -> bool {
        (self.0)(command)
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests(..)")
    }
}

/// A fault for [`FaultProxy::inject`](super::FaultProxy::inject). It strikes every time it can, unless
/// [`times`](Fault::times) limits it.
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    pub(super) at: At,
    /// How many occasions it lets pass first.
    pub(super) skip: u64,
    /// How often it still strikes.
    pub(super) left: u64,
}

/// Where a fault strikes.
#[derive(Clone, Debug)]
pub(super) enum At {
    Request(Requests, RequestFault),
    Reply(Requests, ReplyFault),
    Push,
}

#[derive(Clone, Debug)]
pub(super) enum RequestFault {
    Refuse(Vec<u8>),
    Cut,
    Hold,
    Delay(Duration),
}

#[derive(Clone, Debug)]
pub(super) enum ReplyFault {
    Drop,
    Mute,
    Cut,
    Replace(Vec<u8>),
}

impl Fault {
    const fn new(at: At) -> Self {
        Self { at, skip: 0, left: u64::MAX }
    }

    /// The server carries the request out, and the reply is dropped; the connection stays open, and goes on. TCP loses
    /// nothing out of the middle: a client with several requests in flight takes the next reply for this one's. For such
    /// a client use [`mute_at_reply`](Self::mute_at_reply).
    pub const fn drop_reply(to: Requests) -> Self {
        Self::new(At::Reply(to, ReplyFault::Drop))
    }

    /// The server carries the request out, and from its reply on nothing more arrives by this connection, messages
    /// included. The connection stays open, and the server carries out what the client sends. New connections work.
    pub const fn mute_at_reply(to: Requests) -> Self {
        Self::new(At::Reply(to, ReplyFault::Mute))
    }

    /// The server carries the request out, and the connection breaks in place of the reply.
    pub const fn cut_at_reply(to: Requests) -> Self {
        Self::new(At::Reply(to, ReplyFault::Cut))
    }

    /// The server carries the request out, and these bytes arrive in place of the reply.
    pub fn replace_reply(to: Requests, with: impl Into<Vec<u8>>) -> Self {
        Self::new(At::Reply(to, ReplyFault::Replace(with.into())))
    }

    /// The server carries the request out, and bytes that are not RESP arrive in place of the reply.
    pub fn garble_reply(to: Requests) -> Self {
        Self::replace_reply(to, "\u{7}this is no answer\r\n")
    }

    /// The request never reaches the server: the proxy answers it with this error.
    pub fn refuse(requests: Requests, error: &str) -> Self {
        Self::new(At::Request(requests, RequestFault::Refuse(format!("-{error}\r\n").into_bytes())))
    }

    /// The request never reaches the server: the connection breaks before it.
    pub const fn cut_before(requests: Requests) -> Self {
        Self::new(At::Request(requests, RequestFault::Cut))
    }

    /// The request, and everything after it on its connection, reaches the server only when the fault is
    /// [lifted](super::Injected::lift), even if its client has gone by then. It is counted when it is held.
    pub const fn hold(requests: Requests) -> Self {
        Self::new(At::Request(requests, RequestFault::Hold))
    }

    /// The request, and everything after it on its connection, reaches the server this much later, even if its client has
    /// gone by then. It is counted when its delay begins.
    pub const fn delay(requests: Requests, by: Duration) -> Self {
        Self::new(At::Request(requests, RequestFault::Delay(by)))
    }

    /// Messages of subscriptions, and other pushes of RESP3, do not arrive. Confirmations of subscriptions are replies.
    pub const fn drop_push() -> Self {
        Self::new(At::Push)
    }

    /// Lets the first `n` pass.
    pub const fn after(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Strikes `n` times and no more.
    pub const fn times(mut self, n: u64) -> Self {
        self.left = n;
        self
    }

    /// Strikes once.
    pub const fn once(self) -> Self {
        self.times(1)
    }

    /// Returns whether it strikes this time.
    pub(super) fn strikes(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.left -= 1;
        true
    }
}

/// How long everything takes in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The delay of every request and every reply.
    pub fixed: Duration,
    /// A random addition to the delay, at most this long. Order is kept.
    pub jitter: Duration,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Latency {
    /// The same delay for all.
    #[must_use]
    pub const fn fixed(each_way: Duration) -> Self {
        Self { fixed: each_way, jitter: Duration::ZERO, seed: 0 }
    }

    /// Returns the delay of the next one.
    pub(super) fn draw(&mut self) -> Duration {
        let mut random = Random::new(self.seed);
        self.seed = random.number();
        let jitter_ns = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX - 1);
        self.fixed + Duration::from_nanos(random.below(jitter_ns + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_as_often_as_configured() {
        let mut fault = Fault::drop_push().after(2).times(3);
        let struck: Vec<bool> = (0..7).map(|_| fault.strikes()).collect();
        assert_eq!(struck, [false, false, true, true, true, false, false]);
    }

    #[test]
    fn a_seed_repeats_its_jitter_within_the_limit() {
        let latency = Latency { fixed: Duration::from_micros(100), jitter: Duration::from_micros(50), seed: 7 };
        let row = |mut latency: Latency| (0..100).map(|_| latency.draw()).collect::<Vec<_>>();
        assert_eq!(row(latency), row(latency));
        assert_ne!(row(latency), row(Latency { seed: 8, ..latency }));
        assert!(row(latency).iter().all(|d| (100..=150).contains(&d.as_micros())));
        assert!(row(latency).windows(2).any(|pair| pair[0] != pair[1]));
    }
}
