//! Figures in columns, for a terminal and for a page.

use crate::bars::{Limit, Verdict};
use crate::record::{About, Failed, Missing, Record, Row};
use crate::scenario::{Case, Scenario};
use crate::stats::{Fairness, Spread};
use crate::system::System;

/// A column: its heading, and its cell for the runs of one system.
pub(crate) type Column = (&'static str, fn(&[&Row]) -> String);

const SERVER: Column = ("server µs", |rows| of(rows, 1, |row| Some(row.server_us_per_op)));
const SCRIPTS: Column = ("scripts", |rows| of(rows, 2, |row| Some(row.server_calls_per_op)));
const CPU: [Column; 2] = [
    ("server CPU µs", |rows| of(rows, 1, |row| Some(row.server_cpu_us_per_op))),
    ("client CPU µs", |rows| of(rows, 1, |row| Some(row.client_cpu_us_per_op))),
];
const SPEED: Column = ("pairs/s", |rows| of(rows, 0, |row| Some(row.ops_per_s)));
const WAITS: [Column; 4] = [
    ("p50 µs", |rows| of(rows, 0, |row| row.p50_us.map(|us| us as f64))),
    ("p99 µs", |rows| of(rows, 0, |row| row.p99_us.map(|us| us as f64))),
    ("p99.9 µs", |rows| of(rows, 0, |row| row.p999_us.map(|us| us as f64))),
    ("max µs", |rows| of(rows, 0, |row| row.max_us.map(|us| us as f64))),
];
const MEAN: Column = ("mean µs", |rows| of(rows, 0, |row| row.mean_us));
const ATTEMPTS: [Column; 3] = [
    ("attempts", |rows| of(rows, 2, |row| Some(row.attempts?.mean))),
    ("p50", |rows| of(rows, 0, |row| Some(row.attempts?.p50? as f64))),
    ("p99", |rows| of(rows, 0, |row| Some(row.attempts?.p99? as f64))),
];
const FAIRNESS: Column = ("worker/mean", |rows| {
    let wider = |a: Fairness, b: Fairness| Fairness { min: a.min.min(b.min), max: a.max.max(b.max) };
    let worst = rows.iter().filter_map(|row| row.fairness).reduce(wider);
    worst.map_or("-".to_owned(), |worst| format!("{:.2}–{:.2}", worst.min, worst.max))
});
const MESSAGES: Column = ("PUBLISH", |rows| of(rows, 2, |row| Some(row.publishes_per_op)));
const LOST: Column = ("lost", |rows| total(rows, |row| row.lost_updates));
const SHARES: [Column; 2] = [
    ("client % of a core", |rows| of(rows, 1, |row| Some(row.client_core_share * 100.0))),
    ("server % of a core", |rows| of(rows, 1, |row| Some(row.server_core_share * 100.0))),
];

const TAKEOVER: [Column; 2] = [
    ("median ms", |rows| of(rows, 1, |row| Some(row.p50_us? as f64 / 1e3))),
    ("longest ms", |rows| of(rows, 1, |row| Some(row.max_us? as f64 / 1e3))),
];

/// Returns the columns for a scenario.
pub(crate) fn columns(scenario: Scenario) -> Vec<Column> {
    let columns: &[&[Column]] = match scenario {
        Scenario::Uncontended => &[&[SPEED], &WAITS, &[SERVER], &CPU],
        Scenario::Hot | Scenario::Rwlock | Scenario::Semaphore => {
            &[&[SPEED], &WAITS, &[FAIRNESS, SERVER, SCRIPTS, MESSAGES], &CPU, &[LOST]]
        }
        Scenario::HotLocal => &[&[SPEED], &WAITS, &[FAIRNESS, SCRIPTS], &CPU, &[LOST]],
        Scenario::Queue => &[&[SERVER, SPEED, SCRIPTS, MESSAGES], &CPU],
        Scenario::Leases => &[&[("lost leases", |rows| total(rows, |row| row.lost_leases))], &SHARES],
        Scenario::ServerCost => &[&[SERVER, SCRIPTS, SPEED], &CPU],
        Scenario::Takeover => &[&TAKEOVER],
        Scenario::Quorum => &[&WAITS, &[SPEED, SCRIPTS], &CPU],
        Scenario::QuorumHot => &[&[SPEED], &WAITS, &[MEAN], &ATTEMPTS, &[FAIRNESS, SCRIPTS], &CPU, &[LOST]],
    };
    columns.concat()
}

/// Returns the rows of each case. Cases with fewer tasks come first; otherwise their order is kept.
pub(crate) fn by_case(rows: &[Row]) -> Vec<(&Case, Vec<&Row>)> {
    let mut cases: Vec<(&Case, Vec<&Row>)> = Vec::new();
    for row in rows {
        match cases.iter_mut().find(|(case, _)| **case == row.case) {
            Some((_, of_case)) => of_case.push(row),
            None => cases.push((&row.case, vec![row])),
        }
    }
    cases.sort_by_key(|(case, _)| case.tasks);
    cases
}

/// Returns the rows of each system, in the same order.
pub(crate) fn by_system<'a>(rows: &[&'a Row]) -> Vec<(&'a System, Vec<&'a Row>)> {
    let mut systems: Vec<(&System, Vec<&Row>)> = Vec::new();
    for &row in rows {
        match systems.iter_mut().find(|(system, _)| **system == row.system) {
            Some((_, of_system)) => of_system.push(row),
            None => systems.push((&row.system, vec![row])),
        }
    }
    systems
}

/// Returns the cells of one case: a line of headings, and one for each system.
pub(crate) fn cells(case: &Case, rows: &[&Row]) -> Vec<Vec<String>> {
    let columns = columns(case.scenario);
    let heads = std::iter::once("system").chain(columns.iter().map(|(head, _)| *head)).map(str::to_owned).collect();
    let mut lines = vec![heads];
    for (system, of_system) in by_system(rows) {
        let figures = columns.iter().map(|(_, figure)| figure(&of_system));
        lines.push(std::iter::once(system.name().to_owned()).chain(figures).collect());
    }
    lines
}

/// Formats cases and verdicts for a terminal.
pub(crate) fn tables(rows: &[Row], verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for (case, of_case) in by_case(rows) {
        text += &format!("{}\n{}", case.title(), aligned(&cells(case, &of_case)));
        for verdict in verdicts.iter().filter(|verdict| verdict.case == *case) {
            text += &format!("  {}\n", sentence(verdict));
        }
        text += "\n";
    }
    text
}

/// `20 %`. A bar that is just missed is not missed by 0 %.
pub(crate) fn percent(part: f64) -> String {
    if part < 0.01 { "less than 1 %".to_owned() } else { format!("{:.0} %", part * 100.0) }
}

/// `met leasehold: pairs a second, against redisson: 1.62 (1.60–1.71) (bar ≥ 1.5)`.
pub(crate) fn sentence(verdict: &Verdict) -> String {
    let Verdict { system, spread, .. } = verdict;
    let word = if verdict.is_met { "met   " } else { "MISSED" };
    let by = verdict.missed_by().map_or(String::new(), |part| format!(", missed by {}", percent(part)));
    let bar = limit(verdict.limit);
    format!("{word} {}: {}: {} (bar {bar}{by})", system.name(), question(verdict), figure(*spread))
}

/// Formats the judged comparison.
pub(crate) fn question(verdict: &Verdict) -> String {
    let Verdict { what, against, .. } = verdict;
    against.as_ref().map_or_else(|| what.clone(), |name| format!("{what}, against {name}"))
}

/// Formats the result: smaller ratios need more digits.
pub(crate) fn figure(spread: Spread) -> String {
    let digits = if spread.median.abs() >= 0.1 || spread.max == 0.0 { 2 } else { 4 };
    range(Some(spread), digits)
}

pub(crate) fn limit(limit: Limit) -> String {
    match limit {
        Limit::AtLeast(least) => format!("≥ {least}"),
        Limit::AtMost(most) => format!("≤ {most}"),
    }
}

/// Formats a record as it comes; rows wait for their table.
pub(crate) fn line_of(record: &Record) -> String {
    match record {
        Record::Machine(machine) => format!("{machine}, {}\n", machine.date),
        Record::About(about) => {
            let About { system, version, settings, .. } = about;
            format!("{} {version}: {}: {settings}\n", system.name(), about.kind())
        }
        Record::Missing(Missing { system, why }) => format!("{} is MISSING: {why}\n", system.name()),
        Record::Failed(Failed { system, case, run, why }) => {
            format!("{} FAILED in {}, run {run}: {why}\n", system.name(), case.title())
        }
        Record::Run(_) | Record::Verdict(_) => String::new(),
    }
}

/// Aligns the first column to the left, the others to the right, each as wide as its widest cell.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        text += &format!("  {:<width$}", line[0], width = width(0));
        for (column, cell) in line.iter().enumerate().skip(1) {
            text += &format!("  {cell:>width$}", width = width(column));
        }
        text += "\n";
    }
    text
}

fn of(rows: &[&Row], digits: usize, figure: fn(&Row) -> Option<f64>) -> String {
    range(Spread::of(&rows.iter().filter_map(|row| figure(row)).collect::<Vec<_>>()), digits)
}

fn total(rows: &[&Row], figure: fn(&Row) -> Option<u64>) -> String {
    let sum = rows.iter().filter_map(|row| figure(row)).reduce(|a, b| a + b);
    sum.map_or("-".to_owned(), |sum| sum.to_string())
}

/// `median (min–max)`.
pub(crate) fn range(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        Some(Spread { median, min, max }) if min == max => format!("{median:.digits$}"),
        Some(Spread { median, min, max }) => format!("{median:.digits$} ({min:.digits$}–{max:.digits$})"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::judge;
    use crate::record::tests::row;
    use crate::system::Own;

    #[test]
    fn a_table_shows_medians_ranges_and_the_worst_fairness() {
        let first = Row { lost_updates: Some(0), ..row(Scenario::Hot, "floor", 1) };
        let fairness = Some(Fairness { min: 0.5, max: 1.0 });
        let second = Row { ops_per_s: 7.0, fairness, ..row(Scenario::Hot, "floor", 2) };
        let third = Row { ops_per_s: 6.0, lost_updates: Some(2), ..row(Scenario::Hot, "floor", 3) };
        let text = tables(&[first, second, third], &[]);
        let floor = text.lines().find(|line| line.contains("floor")).unwrap();
        for cell in ["6 (5–7)", "0.50–1.10", "20.5", "2"] {
            assert!(floor.contains(cell), "{cell:?} in {floor:?}");
        }
    }

    #[test]
    fn a_verdict_says_by_how_much_it_was_missed() {
        let rows = [
            Row { ops_per_s: 72.0, ..row(Scenario::Hot, "leasehold-fair", 1) },
            Row { ops_per_s: 100.0, ..row(Scenario::Hot, "floor", 1) },
        ];
        let verdicts = judge(&rows, &[]);
        let text = tables(&rows, &verdicts);
        let wanted = "MISSED leasehold-fair: hand-overs a second, against floor: 0.72 (bar ≥ 0.9, missed by 20 %)";
        assert!(text.contains(wanted), "{text}");
        assert_eq!([0.004, 0.2].map(percent), ["less than 1 %", "20 %"]);
    }

    #[test]
    fn every_system_says_what_it_has() {
        let line_of_own = |own| line_of(&Record::About(About::of_own(own)));
        assert!(
            line_of_own(Own::S5).starts_with("s5 -: polls; has exclusion alone: SET NX PX"),
            "{}",
            line_of_own(Own::S5)
        );
        for own in [Own::Leasehold, Own::LeaseholdFair] {
            let line = line_of_own(own);
            assert!(line.contains(": waits in a queue; token, queue, pushed waits, re-entry: "), "{line}");
        }
    }

    #[test]
    fn every_scenario_has_columns_for_its_figures() {
        for scenario in Scenario::ALL {
            let row = row(scenario, "leasehold", 1);
            let lines = cells(&row.case, &[&row]);
            assert!(lines.iter().all(|line| line.len() == columns(scenario).len() + 1), "{scenario:?}");
        }
    }
}
