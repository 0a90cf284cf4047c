//! Builds histories for the tests.

use super::super::*;
use crate::history::{Answered, Ended, Fenced, GaveUp, Share};

pub(super) const NAME: &str = "stock";

/// A history under construction. Times are in microseconds from an arbitrary origin.
#[derive(Default)]
pub(super) struct Story(pub(super) Vec<Event>);

impl Story {
    pub(super) fn grant(self, client: &str, token: u64, asked_us: u64, granted_us: u64) -> Self {
        self.waited(client, token, asked_us, None, granted_us)
    }

    pub(super) fn waited(
        mut self,
        client: &str,
        token: u64,
        asked_us: u64,
        queued_us: Option<u64>,
        granted_us: u64,
    ) -> Self {
        let (name, client) = (NAME.into(), client.into());
        let attempt = self.next();
        let share = Share::Exclusive;
        self.0.push(Event::Granted { name, client, attempt, token, share, asked_us, queued_us, granted_us });
        self
    }

    /// Makes the last grant a shared one.
    pub(super) fn shared(mut self, units: u32) -> Self {
        match self.0.last_mut() {
            Some(Event::Granted { share, .. }) => *share = Share::Shared(units),
            other => panic!("only a grant is shared: {other:?}"),
        }
        self
    }

    /// Adds a claim of the last grant at this time.
    pub(super) fn until(mut self, at_us: u64) -> Self {
        let Some(Event::Granted { client, token, .. }) = self.0.last() else { panic!("only a grant is claimed") };
        let (name, client, token) = (NAME.into(), client.clone(), *token);
        self.0.push(Event::Claimed { name, client, token, at_us });
        self
    }

    pub(super) fn ended(mut self, client: &str, token: u64, at_us: u64) -> Self {
        self.0.push(Event::Ended { name: NAME.into(), client: client.into(), token, at_us, how: Ended::Released });
        self
    }

    pub(super) fn fenced(mut self, client: &str, token: u64, answer: Fenced) -> Self {
        self.0.push(Event::Fenced { name: NAME.into(), client: client.into(), token, at_us: 0, answer });
        self
    }

    /// Adds a section of `a` that began with its read, at `read_us`.
    pub(super) fn counted(self, read: u64, read_us: u64, answered_us: u64) -> Self {
        self.count("a", (read, read_us), (answered_us, Answered::Acknowledged))
    }

    pub(super) fn count(mut self, client: &str, (read, read_us): (u64, u64), (at_us, answer): (u64, Answered)) -> Self {
        let (name, client, token) = (NAME.into(), client.into(), 0);
        self.0.push(Event::Counted { name, client, token, read_us, at_us, read, answer });
        self
    }

    /// Adds a read of the unfenced register under a shared grant.
    pub(super) fn read(mut self, (client, token): (&str, u64), number: u64, (read_us, at_us): (u64, u64)) -> Self {
        let (name, client) = (NAME.into(), client.into());
        self.0.push(Event::Read { name, client, token, read_us, at_us, number });
        self
    }

    /// Adds an attempt that ended without a grant.
    pub(super) fn refused(mut self, client: &str, asked_us: u64, end_us: u64, why: GaveUp) -> Self {
        let attempt = self.next();
        self = self.asks(client, asked_us);
        self.0.push(Event::GaveUp { name: NAME.into(), client: client.into(), attempt, at_us: end_us, why });
        self
    }

    /// Adds an attempt without an end.
    pub(super) fn asks(mut self, client: &str, at_us: u64) -> Self {
        let attempt = self.next();
        self.0.push(Event::Asked { name: NAME.into(), client: client.into(), attempt, at_us });
        self
    }

    /// Adds an attempt that was granted.
    pub(super) fn served(self, client: &str, token: u64, asked_us: u64, granted_us: u64) -> Self {
        let mut story = self.asks(client, asked_us);
        let attempt = story.next() - 1;
        story = story.grant(client, token, asked_us, granted_us);
        match story.0.last_mut() {
            Some(Event::Granted { attempt: number, .. }) => *number = attempt,
            other => panic!("a grant: {other:?}"),
        }
        story
    }

    pub(super) fn event(mut self, event: Event) -> Self {
        self.0.push(event);
        self
    }

    /// Returns a number that no attempt has yet.
    fn next(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn last(mut self, event: fn(String, u64) -> Event, count: u64) -> Self {
        self.0.push(event(NAME.into(), count));
        self
    }

    pub(super) fn fault(mut self, breaks: Promise, from_us: u64, to_us: u64) -> Self {
        self.0.push(Event::Fault { name: NAME.into(), breaks, from_us, to_us, why: "the clock jumps".into() });
        self
    }

    pub(super) fn check(self, rules: &Rules) -> Report {
        check(&History { events: self.0 }, rules)
    }
}

pub(super) fn final_fenced(name: String, count: u64) -> Event {
    Event::FinalFenced { name, count }
}

pub(super) fn final_counted(name: String, count: u64) -> Event {
    Event::FinalCounted { name, count }
}

/// Returns a valid history of two clients, one after the other.
pub(super) fn good() -> Story {
    Story::default().grant("a", 10, 100, 110).until(200).waited("b", 11, 105, Some(115), 210).until(300)
}

#[track_caller]
pub(super) fn only(report: &Report) -> &Violation {
    assert_eq!(report.violations.len(), 1, "{report:?}");
    assert!(report.excused.is_empty(), "{report:?}");
    &report.violations[0]
}
