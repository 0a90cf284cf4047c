//! Judges a [history](crate::history) of locks, knowing nothing of who wrote it.
//!
//! A linearizability checker tries orders until one fits, and its time explodes with the history. A lock's history needs
//! none: every grant has a token, and the tokens *are* the order that the store claims. So each promise is a sweep over
//! sorted events, O(n log n), and a million grants are judged in seconds:
//!
//! | promise | what is compared |
//! |---|---|
//! | tokens are unique | tokens of a name |
//! | tokens grow | a grant that was complete before an attempt began has the smaller token; so has, among exclusive grants, the one that was claimed first |
//! | exclusion | at no time do the claimed units exceed the limit |
//! | loss is final | nobody claims a grant whose end it has recorded |
//! | the queue's order | how many overtook the waiter that was overtaken most |
//! | the fenced register | its tokens never fall; it has counted what it acknowledged, and at most what was unanswered besides |
//! | the other register | updates that were lost |
//! | it is not vacuous | how many grants there were, and how many of them after waiting |
//!
//! A test that injects what breaks a promise by nature (a clock's jump breaks exclusion) declares it with
//! [`Recorder::excuse`](crate::history::Recorder::excuse). What then breaks is counted in the [`Report`]: the honest
//! number for the documents. What breaks outside of the declared time is a violation all the same.

mod claims;
mod order;
mod registers;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Event, History, Promise};

/// What a history is held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    limit: u32,
    min_grants: u64,
    min_queued: u64,
    max_overtaken: Option<u64>,
}

impl Rules {
    /// One holder at a time.
    #[must_use]
    pub const fn mutex() -> Self {
        Self::limit(1)
    }

    /// So many units at a time: the permits of a semaphore, or what a writer takes.
    #[must_use]
    pub const fn limit(limit: u32) -> Self {
        Self { limit, min_grants: 1, min_queued: 0, max_overtaken: None }
    }

    /// At least so many grants over all names: a test in which nobody ever got the lock has broken no promise either.
    #[must_use]
    pub const fn at_least(mut self, grants: u64) -> Self {
        self.min_grants = grants;
        self
    }

    /// At least so many grants to somebody who had waited.
    #[must_use]
    pub const fn at_least_queued(mut self, grants: u64) -> Self {
        self.min_queued = grants;
        self
    }

    /// Whoever is known to stand in the queue is overtaken at most so often by those who ask later.
    #[must_use]
    pub const fn overtaken_at_most(mut self, times: u64) -> Self {
        self.max_overtaken = Some(times);
        self
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the text of each names")]
pub enum Violation {
    /// Two grants have the same token.
    SameToken { name: String, token: u64, clients: [String; 2] },
    /// A later grant has the smaller token.
    TokenFell { name: String, earlier: u64, later: u64, clients: [String; 2] },
    /// Two clients believed at the same time what only one may.
    Overlap { name: String, tokens: [u64; 2], clients: [String; 2], from_us: u64, to_us: u64 },
    /// A client believed in a grant after it had recorded its end.
    ClaimedAfterEnd { name: String, client: String, token: u64, late_us: u64 },
    /// A client speaks of a grant that it never recorded.
    UnknownGrant { name: String, client: String, token: u64 },
    /// A waiter was overtaken too often.
    Overtaken { name: String, client: String, token: u64, times: u64 },
    /// The fenced register let an older token pass.
    FenceFell { name: String, write: u64, before: u64, token: u64 },
    /// The fenced register's own numbers contradict each other.
    FenceMiscounted { name: String, acknowledged: u64, unknown: u64, counted: u64 },
    /// Updates of the other register were lost.
    LostUpdates { name: String, lost: u64 },
    /// There were too few grants to prove anything.
    Vacuous { what: &'static str, there_were: u64, wanted: u64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameToken { name, token, clients: [a, b] } => {
                write!(f, "{name}: {a} and {b} were both granted token {token}")
            }
            Self::TokenFell { name, earlier, later, clients: [a, b] } => {
                write!(f, "{name}: {a} held with token {earlier} before {b} was granted {later}, which is not larger")
            }
            Self::Overlap { name, tokens: [t, u], clients: [a, b], from_us, to_us } => {
                let us = to_us - from_us;
                write!(f, "{name}: {a} (token {t}) and {b} (token {u}) both held for {us} µs from {from_us} on")
            }
            Self::ClaimedAfterEnd { name, client, token, late_us } => {
                write!(f, "{name}: {client} claimed token {token} {late_us} µs after its end")
            }
            Self::UnknownGrant { name, client, token } => {
                write!(f, "{name}: {client} speaks of token {token}, which it was never granted")
            }
            Self::Overtaken { name, client, token, times } => {
                write!(f, "{name}: {client} (token {token}) was overtaken {times} times")
            }
            Self::FenceFell { name, write, before, token } => {
                write!(f, "{name}: the fenced register's write {write} had token {token}, after {before}")
            }
            Self::FenceMiscounted { name, acknowledged, unknown, counted } => write!(
                f,
                "{name}: the fenced register counted {counted} writes, but acknowledged {acknowledged} and left \
                 {unknown} unanswered"
            ),
            Self::LostUpdates { name, lost } => write!(f, "{name}: {lost} updates were lost"),
            Self::Vacuous { what, there_were, wanted } => {
                write!(f, "only {there_were} {what}, at least {wanted} wanted: this proves nothing")
            }
        }
    }
}

/// What a history amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Grants.
    pub grants: u64,
    /// Of those, how many had waited.
    pub queued: u64,
    /// Of those, how many were claimed for some time.
    pub claimed: u64,
    /// How often the waiter that was overtaken most was overtaken.
    pub overtaken_most: u64,
    /// Writes that the fenced register refused: each is one that an unfenced one would have suffered.
    pub refused: u64,
    /// Writes to a register that were never answered.
    pub unknown: u64,
    /// Updates that the unfenced registers lost, excused or not.
    pub lost_updates: u64,
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
        names.entry(event.name()).or_default().push(event);
    }
    for (name, events) in names {
        let locks = Lock::new(name, &events, &mut report);
        order::check(&locks, rules, &mut report);
        claims::check(&locks, rules, &mut report);
        registers::check(&locks, &events, &mut report);
    }
    for (what, there_were, wanted) in
        [("grants", report.grants, rules.min_grants), ("grants after waiting", report.queued, rules.min_queued)]
    {
        if there_were < wanted {
            report.violations.push(Violation::Vacuous { what, there_were, wanted });
        }
    }
    report
}

/// A grant, and how long it was claimed.
#[derive(Debug)]
struct Grant<'a> {
    client: &'a str,
    token: u64,
    units: u32,
    asked_us: u64,
    queued_us: Option<u64>,
    granted_us: u64,
    /// The last time at which it was claimed; that of the grant if it never was.
    claimed_us: u64,
}

impl Grant<'_> {
    /// Whether it was claimed for some time. One that was not excludes nobody.
    fn is_claimed(&self) -> bool {
        self.claimed_us > self.granted_us
    }
}

/// What is known of one name.
#[derive(Debug)]
struct Lock<'a> {
    name: &'a str,
    grants: Vec<Grant<'a>>,
    faults: Vec<(Promise, u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excuse {
    None,
    Declared,
}

impl<'a> Lock<'a> {
    fn new(name: &'a str, events: &[&'a Event], report: &mut Report) -> Self {
        let mut lock = Self { name, grants: Vec::new(), faults: Vec::new() };
        let mut known: BTreeMap<(&str, u64), usize> = BTreeMap::new();
        for event in events {
            match event {
                Event::Granted { client, token, units, asked_us, queued_us, granted_us, .. } => {
                    known.insert((client, *token), lock.grants.len());
                    lock.grants.push(Grant {
                        client,
                        token: *token,
                        units: *units,
                        asked_us: *asked_us,
                        queued_us: *queued_us,
                        granted_us: *granted_us,
                        claimed_us: *granted_us,
                    });
                }
                Event::Fault { breaks, from_us, to_us, .. } => lock.faults.push((*breaks, *from_us, *to_us)),
                _ => {}
            }
        }
        lock.add_claims(events, &known, report);
        report.grants += lock.grants.len() as u64;
        report.queued += lock.grants.iter().filter(|grant| grant.queued_us.is_some()).count() as u64;
        report.claimed += lock.grants.iter().filter(|grant| grant.is_claimed()).count() as u64;
        lock
    }

    fn add_claims(&mut self, events: &[&'a Event], known: &BTreeMap<(&str, u64), usize>, report: &mut Report) {
        let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
        for event in events {
            let (client, token) = match event {
                Event::Claimed { client, token, .. }
                | Event::Ended { client, token, .. }
                | Event::Fenced { client, token, .. } => (client, *token),
                _ => continue,
            };
            let Some(&index) = known.get(&(client.as_str(), token)) else {
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
                    ends.entry(index).and_modify(|end| *end = (*end).min(*at_us)).or_insert(*at_us);
                }
                _ => {}
            }
        }
        for (index, end_us) in ends {
            let grant = &self.grants[index];
            if grant.is_claimed() && grant.claimed_us > end_us {
                let (name, client, late_us) = (self.name.into(), grant.client.into(), grant.claimed_us - end_us);
                report.violations.push(Violation::ClaimedAfterEnd { name, client, token: grant.token, late_us });
            }
        }
    }

    /// Whether a fault that breaks this promise was declared for some time between these.
    fn excuse(&self, promise: Promise, from_us: u64, to_us: u64) -> Excuse {
        self.excuse_any(&[promise], from_us, to_us)
    }

    /// Whether one was declared that breaks any of these promises.
    fn excuse_any(&self, promises: &[Promise], from_us: u64, to_us: u64) -> Excuse {
        let declared =
            |fault: &(Promise, u64, u64)| promises.contains(&fault.0) && fault.1 <= to_us && from_us <= fault.2;
        if self.faults.iter().any(declared) { Excuse::Declared } else { Excuse::None }
    }
}

#[cfg(test)]
mod tests;
