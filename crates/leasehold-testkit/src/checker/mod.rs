//! Judges a [history](crate::history) of locks, independently of the system that produced it.
//!
//! A linearizability checker tries orders until one fits, and its time explodes with the length of the history. A lock's
//! history does not need that: every grant has a token, and the tokens *are* the order that the store claims. So each
//! promise is a sweep over sorted events, O(n log n), and a million grants are judged in seconds:
//!
//! | promise | check |
//! |---|---|
//! | tokens are unique | tokens of a name |
//! | tokens grow | a grant that was complete before an attempt began has the smaller token; of two exclusive grants, the one that was claimed first has the smaller token |
//! | exclusion | at no time do the claimed units exceed the limit; an exclusive grant takes all of them |
//! | loss is final | no client claims a grant after it has recorded the end of that grant |
//! | the queue's order | the largest number of times that a waiter was overtaken |
//! | the fenced register | its tokens never fall; it has counted all acknowledged writes, and in addition at most the unanswered ones |
//! | the unfenced register | each lost update, with the two sections between which it was lost |
//! | readers | a holder of a shared grant writes no register, and the number that it reads does not change while it holds |
//! | liveness | from a repair to the next fault every attempt ends within a bound, and is not refused while nobody holds |
//! | no residue | the residue that the test has found; and that it has checked |
//! | the history is not vacuous | how many grants there were, how many of them after waiting, how many before the first fault |
//!
//! A test may inject a fault that breaks a promise by its nature (a clock's jump breaks exclusion). It declares the
//! fault with [`Recorder::excuse`](crate::history::Recorder::excuse). The [`Report`] counts promises that break during
//! the declared time: the honest number for the documents. A promise that breaks outside of the declared time is a
//! violation all the same.
//!
//! Whether faults of every kind happened, and whether every path was taken, is a question about many histories: see
//! [`coverage`](crate::coverage).

mod claims;
mod order;
mod registers;
mod rules;
mod served;
mod violation;
mod whole;

use std::collections::BTreeMap;

pub use self::rules::Rules;
pub use self::violation::Violation;
use crate::history::{Event, History, Promise, Share};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Grants.
    pub grants: u64,
    /// The number of grants whose attempts had waited.
    pub queued: u64,
    /// The number of grants that were claimed for some time.
    pub claimed: u64,
    /// The largest number of times that a waiter was overtaken.
    pub overtaken_most: u64,
    /// Writes that the fenced register refused: an unfenced register would have accepted each of them.
    pub refused: u64,
    /// Writes to a register that got no reply.
    pub unknown: u64,
    /// Updates that the unfenced registers lost, excused or not.
    pub lost_updates: u64,
    /// The time until the first fault.
    pub whole_us: u64,
    /// The number of grants in that time.
    pub grants_while_whole: u64,
    /// Broken promises that were declared.
    pub excused: Vec<Violation>,
    /// Broken promises.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Panics with every violation, if there is one.
    ///
    /// # Panics
    /// If the history breaks a promise.
    #[track_caller]
    pub fn assert_clean(&self) {
        let shown: Vec<String> = self.violations.iter().take(20).map(|v| format!("  {v}")).collect();
        let count = self.violations.len();
        assert!(count == 0, "the history has {count} violations in {} grants:\n{}", self.grants, shown.join("\n"));
    }

    fn vacuous(&mut self, what: &'static str, there_were: u64, wanted: u64) {
        if there_were < wanted {
            self.violations.push(Violation::Vacuous { what, there_were, wanted });
        }
    }

    fn found(&mut self, violation: Violation, excuse: Excuse) {
        match excuse {
            Excuse::None => self.violations.push(violation),
            Excuse::Declared => self.excused.push(violation),
        }
    }
}

/// Judges a history.
#[must_use]
pub fn check(history: &History, rules: &Rules) -> Report {
    let mut report = Report::default();
    let mut names: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in &history.events {
        if let Some(name) = event.name() {
            names.entry(name).or_default().push(event);
        }
    }
    let mut locks = Vec::new();
    for (name, events) in names {
        let lock = Lock::new(name, &events, &mut report);
        order::check(&lock, rules, &mut report);
        claims::check(&lock, rules, &mut report);
        registers::check(&lock, &events, &mut report);
        locks.push(lock);
    }
    served::check(history, &locks, rules, &mut report);
    whole::check(history, rules, &mut report);
    report
}

/// A grant, and the time for which it was claimed.
#[derive(Debug)]
struct Grant<'a> {
    client: &'a str,
    token: u64,
    share: Share,
    asked_us: u64,
    queued_us: Option<u64>,
    granted_us: u64,
    /// The last time at which it was claimed, or the time of the grant if it never was.
    claimed_us: u64,
    /// When it ended, if its client has recorded that.
    ended_us: Option<u64>,
}

impl Grant<'_> {
    /// Whether it was claimed for some time. A grant without a claim excludes nobody.
    fn is_claimed(&self) -> bool {
        self.claimed_us > self.granted_us
    }
}

/// The events of one name.
#[derive(Debug)]
struct Lock<'a> {
    name: &'a str,
    grants: Vec<Grant<'a>>,
    /// The indexes of the grants, by client and token.
    known: BTreeMap<(&'a str, u64), usize>,
    faults: Vec<(Promise, u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excuse {
    None,
    Declared,
}

impl<'a> Lock<'a> {
    fn new(name: &'a str, events: &[&'a Event], report: &mut Report) -> Self {
        let mut lock = Self { name, grants: Vec::new(), known: BTreeMap::new(), faults: Vec::new() };
        for event in events {
            match event {
                Event::Granted { client, token, share, asked_us, queued_us, granted_us, .. } => {
                    lock.known.insert((client, *token), lock.grants.len());
                    lock.grants.push(Grant {
                        client,
                        token: *token,
                        share: *share,
                        asked_us: *asked_us,
                        queued_us: *queued_us,
                        granted_us: *granted_us,
                        claimed_us: *granted_us,
                        ended_us: None,
                    });
                }
                Event::Fault { breaks, from_us, to_us, .. } => lock.faults.push((*breaks, *from_us, *to_us)),
                _ => {}
            }
        }
        lock.add_claims(events, report);
        report.grants += lock.grants.len() as u64;
        report.queued += lock.grants.iter().filter(|grant| grant.queued_us.is_some()).count() as u64;
        report.claimed += lock.grants.iter().filter(|grant| grant.is_claimed()).count() as u64;
        lock
    }

    fn add_claims(&mut self, events: &[&'a Event], report: &mut Report) {
        for event in events {
            let (client, token) = match event {
                Event::Claimed { client, token, .. }
                | Event::Ended { client, token, .. }
                | Event::Fenced { client, token, .. }
                | Event::Read { client, token, .. } => (client, *token),
                _ => continue,
            };
            let Some(&index) = self.known.get(&(client.as_str(), token)) else {
                let (name, client) = (self.name.into(), client.clone());
                report.violations.push(Violation::UnknownGrant { name, client, token });
                continue;
            };
            match event {
                Event::Claimed { at_us, .. } => {
                    let claimed_us = &mut self.grants[index].claimed_us;
                    *claimed_us = (*claimed_us).max(*at_us);
                }
                Event::Ended { at_us, .. } => {
                    let ended_us = &mut self.grants[index].ended_us;
                    *ended_us = Some(ended_us.map_or(*at_us, |earlier| earlier.min(*at_us)));
                }
                _ => {}
            }
        }
        for grant in self.grants.iter().filter(|grant| grant.is_claimed()) {
            let late_us = grant.ended_us.map_or(0, |ended_us| grant.claimed_us.saturating_sub(ended_us));
            if late_us > 0 {
                let (name, client) = (self.name.into(), grant.client.into());
                report.violations.push(Violation::ClaimedAfterEnd { name, client, token: grant.token, late_us });
            }
        }
    }

    /// Returns this grant, if it is a shared one.
    fn shared(&self, client: &str, token: u64) -> Option<&Grant<'a>> {
        let grant = &self.grants[*self.known.get(&(client, token))?];
        (grant.share != Share::Exclusive).then_some(grant)
    }

    /// Returns whether a fault that breaks this promise was declared for some time between these times.
    fn excuse(&self, promise: Promise, from_us: u64, to_us: u64) -> Excuse {
        self.excuse_any(&[promise], from_us, to_us)
    }

    /// Returns whether a fault was declared that breaks any of these promises.
    fn excuse_any(&self, promises: &[Promise], from_us: u64, to_us: u64) -> Excuse {
        let declared =
            |fault: &(Promise, u64, u64)| promises.contains(&fault.0) && fault.1 <= to_us && from_us <= fault.2;
        if self.faults.iter().any(declared) { Excuse::Declared } else { Excuse::None }
    }
}

#[cfg(test)]
mod tests;
