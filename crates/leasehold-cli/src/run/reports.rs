//! When a run reports a wait or an outage, and in which words: at once, and then ever more rarely.
//!
//! This module reads no clock and asks no store: times are arguments, and the caller prints what it gets.

use std::time::Duration;

use super::timing::rounded;

/// A cause that goes on is reported after these times, and from then on each `LAST`.
const STEPS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(300)];
const LAST: Duration = Duration::from_secs(900);
/// A report before this time does not say how long the run has waited: the wait has just begun.
const SHORT: Duration = Duration::from_secs(5);
/// A renewal is due after a third of the lease. It is overdue after another sixth, but at most this.
const GRACE_MAX_US: u64 = 10_000_000;
/// A supervisor that did no check for so long was stopped, or the machine slept: the store is not to blame.
const STOPPED_US: u64 = 3_000_000;

/// Returns how many reports of a cause are due within this time.
fn due(elapsed: Duration) -> usize {
    let steps = STEPS.iter().filter(|step| **step <= elapsed).count();
    let later = elapsed.saturating_sub(STEPS[STEPS.len() - 1]).as_secs() / LAST.as_secs();
    steps + usize::try_from(later).unwrap_or(usize::MAX)
}

/// Returns when the report with this number is due.
fn due_after(number: usize) -> Duration {
    let later = u32::try_from((number + 1).saturating_sub(STEPS.len())).unwrap_or(u32::MAX);
    STEPS[number.min(STEPS.len() - 1)].saturating_add(LAST.saturating_mul(later))
}

/// The cause of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The lock has a holder, which is described here. If the run waits for several locks, this is the one with `name`.
    Held { by: String, name: Option<String> },
    /// The client with this label has released the lock, and its minimum hold is not over.
    CoolingDown { by: String, name: Option<String> },
    /// Nobody holds the lock at the moment.
    Queue { waiters: usize },
    /// The store cannot be reached, for this reason.
    Unreachable(String),
    /// So many nodes of a quorum are in quarantine, the last of them for another `left`.
    Quarantine { resting: usize, nodes: usize, left: Duration },
    /// So many nodes of a quorum do not reply.
    Silent { silent: usize, nodes: usize },
    /// The lock could not be inspected.
    Unknown,
}

/// Causes of a class share their intervals: a lock that changes its holder is not reported more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lock,
    Store,
    Nodes,
}

impl Cause {
    fn class(&self) -> Option<Class> {
        match self {
            Self::Held { .. } | Self::CoolingDown { .. } | Self::Queue { .. } => Some(Class::Lock),
            Self::Unreachable(_) => Some(Class::Store),
            Self::Quarantine { .. } | Self::Silent { .. } => Some(Class::Nodes),
            Self::Unknown => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Held { by, name: None } => format!(": held by {by}"),
            Self::Held { by, name: Some(name) } => format!(": \"{name}\" is held by {by}"),
            Self::CoolingDown { by, name: None } => format!(": released by {by}, and kept for its minimum hold"),
            Self::CoolingDown { by, name: Some(name) } => {
                format!(": \"{name}\" was released by {by}, and is kept for its minimum hold")
            }
            Self::Queue { waiters } => format!(": no holder at the moment, {waiters} waiting"),
            Self::Unreachable(why) => format!(": the store is unreachable: {why}"),
            Self::Quarantine { resting, nodes, left } => {
                let left = rounded(*left);
                format!(": nodes of the quorum are in quarantine: {resting} of {nodes}, for up to {left} more")
            }
            Self::Silent { silent, nodes } => format!(": nodes of the quorum do not reply: {silent} of {nodes}"),
            Self::Unknown => String::new(),
        }
    }
}

/// The reports of a wait. Times are counted from the start of the wait.
#[derive(Debug)]
pub(crate) struct WaitReports {
    /// The locks, as messages name them.
    names: String,
    /// The last class of causes, and when it began.
    class: Option<(Class, Duration)>,
    /// When the store became unreachable, if it is.
    unreachable: Option<Duration>,
    /// How many reports of this cause were made.
    made: usize,
}

impl WaitReports {
    pub(crate) fn new(names: &str) -> Self {
        Self { names: names.to_owned(), class: None, unreachable: None, made: 0 }
    }

    /// Returns when the next report is due if the cause stays the same.
    pub(crate) fn next(&self) -> Duration {
        self.class.map_or(Duration::ZERO, |(_, since)| since.saturating_add(due_after(self.made)))
    }

    /// Notes the cause at this time, and returns the lines to print. Another cause starts the intervals anew.
    pub(crate) fn note(&mut self, waited: Duration, cause: &Cause) -> Vec<String> {
        let mut lines = Vec::new();
        match cause {
            Cause::Unreachable(_) => self.unreachable = self.unreachable.or(Some(waited)),
            Cause::Unknown => {}
            _ => lines.extend(self.reachable(waited)),
        }
        let class = cause.class().or(self.class.map(|(class, _)| class)).unwrap_or(Class::Lock);
        let since = match self.class {
            Some((known, since)) if known == class => since,
            _ => {
                self.made = 0;
                waited
            }
        };
        self.class = Some((class, since));
        let due = due(waited.saturating_sub(since));
        if due > self.made {
            self.made = due;
            let (names, text) = (&self.names, cause.text());
            lines.push(match waited < SHORT {
                true => format!("waiting for {names}{text}"),
                false => format!("still waiting for {names} after {}{text}", rounded(waited)),
            });
        }
        lines
    }

    /// Notes that the store replies. Returns the line to print if it was reported as unreachable.
    pub(crate) fn reachable(&mut self, waited: Duration) -> Option<String> {
        let since = self.unreachable.take()?;
        self.class = None;
        Some(format!("the store is reachable again after {}", rounded(waited.saturating_sub(since))))
    }
}

/// The reports about renewals that are overdue while the command runs. Times are those of the lease clock.
#[derive(Debug)]
pub(crate) struct RenewalReports {
    /// The locks, as messages name them.
    names: String,
    lease_us: u64,
    last_us: u64,
    /// The same, but later if this process was stopped since.
    renewed_us: u64,
    checked_us: u64,
    /// How many reports of this outage were made.
    made: usize,
}

impl RenewalReports {
    pub(crate) fn new(names: &str, lease_us: u64, now_us: u64) -> Self {
        Self { names: names.to_owned(), lease_us, last_us: now_us, renewed_us: now_us, checked_us: now_us, made: 0 }
    }

    /// Notes a renewal. Returns the line to print if it was reported as overdue.
    pub(crate) fn renewed(&mut self, now_us: u64) -> Option<String> {
        let (made, without_us) = (self.made, now_us.saturating_sub(self.renewed_us));
        (self.last_us, self.renewed_us, self.checked_us, self.made) = (now_us, now_us, now_us, 0);
        let without = rounded(Duration::from_micros(without_us));
        let names = &self.names;
        (made > 0).then(|| format!("the store is reachable again: {names} is renewed, after {without}"))
    }

    /// Returns the time since the last renewal.
    pub(crate) fn since(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us.saturating_sub(self.last_us))
    }

    /// Returns the line to print if the renewal is overdue. `term_us` is when the command gets its TERM.
    pub(crate) fn check(&mut self, now_us: u64, term_us: u64) -> Option<String> {
        let gap_us = now_us.saturating_sub(self.checked_us);
        self.checked_us = now_us;
        if gap_us > STOPPED_US {
            self.renewed_us += gap_us;
        }
        let without_us = now_us.saturating_sub(self.renewed_us);
        let overdue_us = without_us.checked_sub(self.lease_us / 3 + (self.lease_us / 6).min(GRACE_MAX_US))?;
        let due = due(Duration::from_micros(overdue_us));
        if due <= self.made {
            return None;
        }
        self.made = due;
        let [without, left] =
            [without_us, term_us.saturating_sub(now_us)].map(|span_us| rounded(Duration::from_micros(span_us)));
        let names = &self.names;
        Some(format!(
            "the store is unreachable: {names} was last renewed {without} ago; the command gets TERM in {left} \
             unless it is renewed"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held() -> Cause {
        Cause::Held { by: "host/backup".to_owned(), name: None }
    }

    fn away() -> Cause {
        Cause::Unreachable("connection refused".to_owned())
    }

    /// Notes the cause each second, and returns when there was a report.
    fn reported(reports: &mut WaitReports, cause: &Cause, seconds: std::ops::Range<u64>) -> Vec<u64> {
        seconds.filter(|second| !reports.note(s(*second), cause).is_empty()).collect()
    }

    #[test]
    fn a_wait_is_reported_at_once_and_then_ever_more_rarely() {
        let mut reports = WaitReports::new("\"job\"");
        assert_eq!(reported(&mut reports, &held(), 0..3_100), [0, 10, 60, 300, 1_200, 2_100, 3_000]);
        assert_eq!(reports.next(), s(3_900));
    }

    /// The caller checks only when a report is due.
    #[test]
    fn the_next_report_is_due_when_it_is_made() {
        let (mut reports, mut seen) = (WaitReports::new("\"job\""), Vec::new());
        for _ in 0..6 {
            let at = reports.next();
            assert_eq!(reports.note(at, &held()).len(), 1, "{at:?}");
            seen.push(at.as_secs());
        }
        assert_eq!(seen, [0, 10, 60, 300, 1_200, 2_100]);
    }

    #[test]
    fn reports_name_the_cause_and_the_time() {
        let mut reports = WaitReports::new("\"job\"");
        assert_eq!(reports.note(s(1), &held()), ["waiting for \"job\": held by host/backup"]);
        assert_eq!(reports.note(s(11), &held()), ["still waiting for \"job\" after 11 s: held by host/backup"]);
        assert_eq!(
            reports.note(s(130), &Cause::Quarantine { resting: 2, nodes: 3, left: s(42) }),
            ["still waiting for \"job\" after 2 min: nodes of the quorum are in quarantine: 2 of 3, for up to 42 s \
                 more"]
        );
        assert_eq!(reports.note(s(140), &Cause::Unknown), ["still waiting for \"job\" after 2 min"]);
    }

    #[test]
    fn another_cause_is_reported_at_once_and_the_end_of_an_outage_too() {
        let mut reports = WaitReports::new("\"job\"");
        assert_eq!(reported(&mut reports, &held(), 0..20), [0, 10]);
        let line = "still waiting for \"job\" after 20 s: the store is unreachable: connection refused";
        assert_eq!(reports.note(s(20), &away()), [line]);
        assert_eq!(reported(&mut reports, &away(), 21..95), [30, 80]);
        let lines = reports.note(s(95), &held());
        let wanted =
            ["the store is reachable again after 75 s", "still waiting for \"job\" after 95 s: held by host/backup"];
        assert_eq!(lines, wanted);
        assert_eq!(reports.reachable(s(96)), None, "it was reported");
        assert_eq!(reported(&mut reports, &held(), 96..110), [105]);
    }

    #[test]
    fn a_lock_that_changes_its_holder_is_not_reported_more_often() {
        let mut reports = WaitReports::new("\"job\"");
        let cause = |second: u64| match second % 3 {
            0 => Cause::Queue { waiters: 2 },
            1 => Cause::Unknown,
            _ => Cause::Held { by: format!("host/{second}"), name: None },
        };
        let reports_at = |second: &u64| !reports.note(s(*second), &cause(*second)).is_empty();
        assert_eq!((0..400).filter(reports_at).collect::<Vec<_>>(), [0, 10, 60, 300]);
    }

    #[test]
    fn a_store_that_was_never_unreachable_is_not_reported_as_back() {
        assert_eq!(WaitReports::new("\"job\"").reachable(s(1)), None);
    }

    #[test]
    fn a_renewal_is_overdue_after_half_of_a_short_lease() {
        let mut reports = RenewalReports::new("\"job\"", 12 * SECOND, 0);
        let check = |reports: &mut RenewalReports, s: u64| reports.check(s * SECOND, 9 * SECOND);
        for second in 1..6 {
            assert_eq!(check(&mut reports, second), None, "{second}");
        }
        let line = "the store is unreachable: \"job\" was last renewed 6 s ago; the command gets TERM in 3 s unless it \
                    is renewed";
        assert_eq!(check(&mut reports, 6).as_deref(), Some(line));
        assert_eq!(check(&mut reports, 7), None, "once");
        let line = "the store is reachable again: \"job\" is renewed, after 8 s";
        assert_eq!(reports.renewed(8 * SECOND).as_deref(), Some(line));
        assert_eq!((reports.renewed(9 * SECOND), check(&mut reports, 10)), (None, None));
        assert_eq!(reports.since(30 * SECOND), Duration::from_secs(21), "since the last renewal");
    }

    #[test]
    fn a_long_lease_is_overdue_ten_seconds_after_its_third() {
        let mut reports = RenewalReports::new("\"job\"", 3_600 * SECOND, 0);
        let reports_at = |s: &u64| reports.check(s * SECOND, 3_500 * SECOND).is_some();
        assert_eq!((1..1_300).filter(reports_at).collect::<Vec<_>>(), [1_210, 1_220, 1_270]);
    }

    /// The machine slept, or the job was stopped: the renewal comes with the next reply.
    #[test]
    fn a_supervisor_that_was_stopped_does_not_blame_the_store() {
        let mut reports = RenewalReports::new("\"job\"", 30 * SECOND, 0);
        assert_eq!(reports.check(SECOND, 24 * SECOND), None);
        assert_eq!(reports.check(20 * SECOND, 24 * SECOND), None);
    }
}
