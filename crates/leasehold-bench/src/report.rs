//! Figures for people and for programs.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::bars::{Limit, Verdict, judge};
use crate::error::{Context, Result};
use crate::scenario::{Case, NameUse, Scenario};
use crate::stats::{Fairness, Spread};
use crate::system::System;

/// The figures of one run of one system in one case. An op is a pair: lock and unlock, and what is between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Always `run`: tells it from a verdict.
    pub(crate) record: &'static str,
    pub(crate) scenario: Scenario,
    pub(crate) system: System,
    pub(crate) names: NameUse,
    pub(crate) processes: u32,
    /// Of each process.
    pub(crate) tasks: u32,
    /// Of each process.
    pub(crate) threads: u32,
    pub(crate) run: u32,
    pub(crate) ops: u64,
    pub(crate) ops_per_s: f64,
    /// From asking to holding, and the same below.
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p999_us: u64,
    pub(crate) max_us: u64,
    pub(crate) fairness: Option<Fairness>,
    /// The server's own time in EVALSHA.
    pub(crate) server_us_per_op: f64,
    pub(crate) server_calls_per_op: f64,
    /// The server's processor time, whatever it was spent on.
    pub(crate) server_cpu_us_per_op: f64,
    /// The processor time of all worker processes.
    pub(crate) client_cpu_us_per_op: f64,
    /// `null` where nothing was counted.
    pub(crate) lost_updates: Option<u64>,
}

/// What the output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
}

/// Where figures go: standard output for them, standard error for the progress.
pub(crate) struct Report {
    format: Format,
    progress: ProgressBar,
    /// Of the case that runs.
    rows: Vec<Row>,
    lost_updates: u64,
}

/// A verdict as a line of JSON.
#[derive(Serialize)]
struct VerdictLine<'a> {
    record: &'static str,
    scenario: Scenario,
    names: NameUse,
    processes: u32,
    tasks: u32,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

impl Report {
    pub(crate) fn new(format: Format, steps: u64) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style =
            ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {eta}").expect("the template is a constant");
        let progress = ProgressBar::with_draw_target(Some(steps), target).with_style(style);
        Self { format, progress, rows: Vec::new(), lost_updates: 0 }
    }

    pub(crate) fn begin(&self, case: &Case, system: System, run: u32) {
        self.progress.set_message(format!(
            "{} {} tasks, {}, run {run}",
            case.scenario.name(),
            case.tasks,
            system.name()
        ));
        self.progress.tick();
    }

    pub(crate) fn row(&mut self, row: Row) -> Result<()> {
        self.progress.inc(1);
        if self.format == Format::Json {
            self.print(&format!("{}\n", serde_json::to_string(&row).context("writing a row")?))?;
        }
        if row.system != System::None {
            self.lost_updates += row.lost_updates.unwrap_or(0);
        }
        self.rows.push(row);
        Ok(())
    }

    /// The case is complete: its medians, ranges and verdicts.
    pub(crate) fn end(&mut self, case: &Case) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let verdicts = judge(&rows);
        let text = match self.format {
            Format::Table => table(case, &rows, &verdicts),
            Format::Json => verdicts.iter().map(|verdict| verdict_line(case, verdict)).collect::<Result<String>>()?,
        };
        self.print(&text)
    }

    /// How many updates the locks lost, in all runs: any is a broken lock.
    pub(crate) fn lost_updates(&self) -> u64 {
        self.lost_updates
    }

    fn print(&self, text: &str) -> Result<()> {
        self.progress.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing the figures")
        })
    }
}

fn verdict_line(case: &Case, verdict: &Verdict) -> Result<String> {
    let Case { scenario, names, processes, tasks, .. } = *case;
    let line = VerdictLine { record: "verdict", scenario, names, processes, tasks, verdict };
    Ok(format!("{}\n", serde_json::to_string(&line).context("writing a verdict")?))
}

const HEADS: [&str; 12] = [
    "system",
    "pairs/s",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "max µs",
    "worker/mean",
    "script µs",
    "scripts",
    "server CPU µs",
    "client CPU µs",
    "lost",
];

fn table(case: &Case, rows: &[Row], verdicts: &[Verdict]) -> String {
    let mut systems: Vec<System> = Vec::new();
    for row in rows {
        if !systems.contains(&row.system) {
            systems.push(row.system);
        }
    }
    let mut lines = vec![HEADS.map(String::from)];
    for system in systems {
        let of: Vec<&Row> = rows.iter().filter(|row| row.system == system).collect();
        lines.push(cells(system, &of));
    }
    let mut text = format!("{}\n{}", case.title(), columns(&lines));
    for verdict in verdicts {
        let Verdict { what, spread, limit, is_met } = verdict;
        let (sign, bar) = match limit {
            Limit::AtLeast(least) => ('≥', least),
            Limit::AtMost(most) => ('≤', most),
        };
        let word = if *is_met { "met" } else { "MISSED" };
        text += &format!("  {word:<6} {what}: {} (bar {sign} {bar})\n", range(Some(*spread), 2));
    }
    text + "\n"
}

fn cells(system: System, rows: &[&Row]) -> [String; HEADS.len()] {
    let spread = |figure: fn(&Row) -> f64| Spread::of(&rows.iter().map(|row| figure(row)).collect::<Vec<_>>());
    let wider = |a: Fairness, b: Fairness| Fairness { min: a.min.min(b.min), max: a.max.max(b.max) };
    let worst = rows.iter().filter_map(|row| row.fairness).reduce(wider);
    let lost = rows.iter().filter_map(|row| row.lost_updates).reduce(|a, b| a + b);
    [
        system.name().to_owned(),
        range(spread(|row| row.ops_per_s), 0),
        range(spread(|row| row.p50_us as f64), 0),
        range(spread(|row| row.p99_us as f64), 0),
        range(spread(|row| row.p999_us as f64), 0),
        range(spread(|row| row.max_us as f64), 0),
        worst.map_or("-".to_owned(), |worst| format!("{:.2}–{:.2}", worst.min, worst.max)),
        range(spread(|row| row.server_us_per_op), 1),
        range(spread(|row| row.server_calls_per_op), 2),
        range(spread(|row| row.server_cpu_us_per_op), 1),
        range(spread(|row| row.client_cpu_us_per_op), 1),
        lost.map_or("-".to_owned(), |lost| lost.to_string()),
    ]
}

/// The first column to the left, the others to the right, each as wide as its widest cell.
fn columns(lines: &[[String; HEADS.len()]]) -> String {
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

/// `median (min–max)`.
fn range(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        Some(Spread { median, min, max }) if min == max => format!("{median:.digits$}"),
        Some(Spread { median, min, max }) => format!("{median:.digits$} ({min:.digits$}–{max:.digits$})"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row() -> Row {
        Row {
            record: "run",
            scenario: Scenario::Hot,
            system: System::Floor,
            names: NameUse::Shared,
            processes: 2,
            tasks: 8,
            threads: 1,
            run: 1,
            ops: 10,
            ops_per_s: 5.0,
            p50_us: 1,
            p99_us: 2,
            p999_us: 3,
            max_us: 4,
            fairness: Some(Fairness { min: 0.9, max: 1.1 }),
            server_us_per_op: 20.5,
            server_calls_per_op: 2.0,
            server_cpu_us_per_op: 30.5,
            client_cpu_us_per_op: 40.5,
            lost_updates: Some(0),
        }
    }

    fn case() -> Case {
        Case {
            scenario: Scenario::Hot,
            names: NameUse::Shared,
            processes: 2,
            tasks: 8,
            threads: 1,
            window_ms: 1_000,
            pairs: 0,
        }
    }

    #[test]
    fn a_row_is_one_flat_line_of_json() {
        let line = serde_json::to_string(&row()).unwrap();
        let wanted = concat!(
            r#"{"record":"run","scenario":"hot","system":"floor","names":"shared","processes":2,"tasks":8,"#,
            r#""threads":1,"run":1,"ops":10,"ops_per_s":5.0,"p50_us":1,"p99_us":2,"p999_us":3,"max_us":4,"#,
            r#""fairness":{"min":0.9,"max":1.1},"server_us_per_op":20.5,"server_calls_per_op":2.0,"#,
            r#""server_cpu_us_per_op":30.5,"client_cpu_us_per_op":40.5,"lost_updates":0}"#
        );
        assert_eq!(line, wanted);
        let bare = Row { fairness: None, lost_updates: None, ..row() };
        let line = serde_json::to_string(&bare).unwrap();
        assert!(line.contains(r#""fairness":null"#) && line.contains(r#""lost_updates":null"#), "{line}");
    }

    #[test]
    fn a_verdict_is_one_line_of_json() {
        let spread = Spread { median: 0.9, min: 0.8, max: 1.0 };
        let verdict = Verdict { what: "speed", spread, limit: Limit::AtLeast(0.8), is_met: true };
        let wanted = concat!(
            r#"{"record":"verdict","scenario":"hot","names":"shared","processes":2,"tasks":8,"what":"speed","#,
            r#""spread":{"median":0.9,"min":0.8,"max":1.0},"limit":{"at_least":0.8},"is_met":true}"#,
            "\n"
        );
        assert_eq!(verdict_line(&case(), &verdict).unwrap(), wanted);
    }

    #[test]
    fn a_table_shows_medians_ranges_and_the_worst_fairness() {
        let second = Row { run: 2, ops_per_s: 7.0, fairness: Some(Fairness { min: 0.5, max: 1.0 }), ..row() };
        let third = Row { run: 3, ops_per_s: 6.0, lost_updates: Some(2), ..row() };
        let text = table(&case(), &[row(), second, third], &[]);
        let floor = text.lines().find(|line| line.contains("floor")).unwrap();
        for cell in ["6 (5–7)", "0.50–1.10", "20.5", "2"] {
            assert!(floor.contains(cell), "{cell:?} in {floor:?}");
        }
    }

    #[test]
    fn lost_updates_add_up_except_where_there_is_no_lock() {
        let mut report = Report::new(Format::Table, 3);
        for (system, lost) in [(System::Floor, 1), (System::None, 50), (System::Floor, 2)] {
            report.row(Row { system, lost_updates: Some(lost), ..row() }).unwrap();
        }
        assert_eq!(report.lost_updates(), 3);
    }
}
