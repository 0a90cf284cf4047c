//! The promises that are judged while no store is broken: in the calm second of a round, and while a fault that comes
//! alone does nothing to the store.
//!
//! - A call returns in time and does not fail, on each runtime that its program does not block: [`Call`].
//! - A holder that is revoked or dead has a successor in time, if another client waits: [`Follow`].

use std::time::Duration;

use leasehold_testkit::history::Event;

use super::notes::Call;

/// The extra time for every bound: two processors run all clients and other work.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

/// The times when no store was broken, and the promises for these times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calm {
    pub(crate) times: Vec<(u64, u64)>,
    pub(crate) follows: Vec<Follow>,
}

/// The promise that another client gets this name.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    pub(crate) name: String,
    /// The holder before it, and the reason why its grant ends.
    pub(crate) behind: String,
    pub(crate) why: String,
    pub(crate) from_us: u64,
    /// The deadline, as documented.
    pub(crate) by_us: u64,
}

/// The result of the calm times.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) violations: Vec<String>,
    /// How many calls were judged.
    pub(crate) calls: u64,
    /// The longest time by which a call outlasted the wait that its caller had requested.
    pub(crate) longest_us: u64,
}

impl Calm {
    pub(crate) fn judge(&self, calls: &[Call], events: &[Event]) -> Shown {
        let mut shown = Shown::default();
        for call in calls.iter().filter(|call| self.covers(call.began_us, call.ended_us)) {
            shown.calls += 1;
            shown.longest_us = shown.longest_us.max((call.ended_us - call.began_us).saturating_sub(call.wait_us));
            shown.violations.extend(call.judge());
        }
        shown.violations.extend(self.follows.iter().filter_map(|follow| follow.judge(events)));
        shown
    }

    fn covers(&self, from_us: u64, to_us: u64) -> bool {
        self.times.iter().any(|(begun_us, over_us)| *begun_us <= from_us && to_us <= *over_us)
    }
}

impl Call {
    fn judge(&self) -> Option<String> {
        let Self { client, what, began_us, ended_us, within_us, error, .. } = self;
        let (took_us, most_us) = (ended_us - began_us, within_us + us(SLACK));
        let call = format!("{client}: while no store was broken, at {began_us} µs, {what}");
        match error {
            Some(error) => Some(format!("{call} failed with {error} after {took_us} µs")),
            None if took_us > most_us => Some(format!("{call} took {took_us} µs; the limit is {most_us} µs")),
            None => None,
        }
    }
}

impl Follow {
    fn judge(&self, events: &[Event]) -> Option<String> {
        let by_us = self.by_us + us(SLACK);
        let behind = format!("{}/", self.behind);
        let followed_us = events.iter().filter_map(|event| match event {
            Event::Granted { name, client, granted_us, .. }
                if *name == self.name && !client.starts_with(&behind) && *granted_us >= self.from_us =>
            {
                Some(*granted_us)
            }
            _ => None,
        });
        let followed_us = followed_us.min();
        if followed_us.is_some_and(|at_us| at_us <= by_us) {
            return None;
        }
        let next = followed_us.map_or("did not come".into(), |at_us| format!("came after {} µs", at_us - self.from_us));
        let Self { name, behind, why, from_us, .. } = self;
        let most_us = by_us - from_us;
        let what = format!("{behind} held {name} and was {why} at {from_us} µs");
        Some(format!("{what}: the next grant {next}, the limit is {most_us} µs"))
    }
}

pub(crate) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("seconds")
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::history::Share;

    use super::*;

    fn call(began_us: u64, took_us: u64, error: Option<&str>) -> Call {
        let (client, what) = ("c1.1/t1".to_owned(), "lock".to_owned());
        Call {
            client,
            what,
            began_us,
            ended_us: began_us + took_us,
            wait_us: 0,
            within_us: 10,
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn calls_are_judged_while_no_store_is_broken() {
        let calm = Calm { times: vec![(100, 200), (10_000_000, 20_000_000)], follows: vec![] };
        let shown = |calls: &[Call]| {
            let shown = calm.judge(calls, &[]);
            (shown.calls, shown.violations.len())
        };
        assert_eq!(shown(&[call(100, 50, None)]), (1, 0));
        assert_eq!(shown(&[call(100, 50, Some("Unreachable"))]), (1, 1));
        assert_eq!(shown(&[call(150, 51, Some("Unreachable")), call(99, 5, Some("Unreachable"))]), (0, 0));
        assert_eq!(shown(&[call(10_000_000, 1_000_010, None), call(10_000_000, 1_000_011, None)]), (2, 1));
    }

    #[test]
    fn another_client_must_follow_in_time() {
        let follow = Follow { name: "n".into(), behind: "c1.1".into(), why: "killed".into(), from_us: 50, by_us: 100 };
        let granted = |client: &str, granted_us| Event::Granted {
            name: "n".into(),
            client: client.into(),
            attempt: 1,
            token: 1,
            share: Share::Exclusive,
            asked_us: 0,
            queued_us: None,
            granted_us,
        };
        assert!(follow.judge(&[granted("c1.1/t1", 60), granted("c2.1/t1", 40)]).is_some());
        assert!(follow.judge(&[granted("c1.10/t1", 1_000_100)]).is_none());
        assert!(follow.judge(&[granted("c2.1/t1", 1_000_101)]).is_some());
    }
}
