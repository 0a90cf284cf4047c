//! The output: figures to standard output, for people or for programs, and the progress to standard error.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bars::judge;
use crate::bench::Entrant;
use crate::error::{Context, Result};
use crate::record::{About, Record, Row};
use crate::table;

/// The reader of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
}

/// Writes the records as they come, and keeps those that are still to be judged.
pub(crate) struct Output {
    format: Format,
    progress: ProgressBar,
    abouts: Vec<About>,
    rows: Vec<Row>,
    /// The rows of the running group.
    of_group: Vec<Row>,
    lost_updates: u64,
}

impl Output {
    pub(crate) fn new(format: Format, steps: u64) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style =
            ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {eta}").expect("the template is a constant");
        let progress = ProgressBar::with_draw_target(Some(steps), target).with_style(style);
        Self { format, progress, abouts: Vec::new(), rows: Vec::new(), of_group: Vec::new(), lost_updates: 0 }
    }

    /// Shows a step that takes a while and is no run.
    pub(crate) fn doing(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        self.progress.tick();
    }

    /// Shows a warning for the reader of the figures. Programs do not need it.
    pub(crate) fn hint(&self, what: &str) {
        self.progress.suspend(|| eprintln!("leasehold-bench: {what}"));
    }

    pub(crate) fn begin(&self, entrant: &Entrant, run: u32) {
        self.doing(&format!("{}, run {run}", entrant.title()));
    }

    pub(crate) fn record(&mut self, record: &Record) -> Result<()> {
        match self.format {
            Format::Json => self.print_json(record)?,
            Format::Table => self.print(&table::line_of(record))?,
        }
        match record {
            Record::About(about) => self.abouts.push(about.clone()),
            Record::Run(row) => {
                self.lost_updates += row.wrongly_lost();
                self.of_group.push((**row).clone());
            }
            _ => {}
        }
        if matches!(record, Record::Run(_) | Record::Failed(_)) {
            self.progress.inc(1);
        }
        Ok(())
    }

    /// Ends a group: prints its medians, ranges and verdicts.
    pub(crate) fn end_of_group(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.of_group);
        let verdicts = judge(&rows, &self.abouts);
        match self.format {
            Format::Table => self.print(&table::tables(&rows, &verdicts))?,
            Format::Json => verdicts.into_iter().try_for_each(|one| self.print_json(&Record::Verdict(one)))?,
        }
        self.rows.extend(rows);
        Ok(())
    }

    /// Returns how many updates the locks lost in all runs: one is enough for a broken lock.
    pub(crate) fn lost_updates(&self) -> u64 {
        self.lost_updates
    }

    /// Returns all rows of all groups.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn print_json(&self, record: &Record) -> Result<()> {
        self.print(&format!("{}\n", serde_json::to_string(record).context("writing a line")?))
    }

    fn print(&self, text: &str) -> Result<()> {
        self.progress.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing the figures")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::row;
    use crate::scenario::Scenario;

    #[test]
    fn lost_updates_add_up_over_groups_except_where_there_is_no_lock() {
        let mut output = Output::new(Format::Table, 3);
        for (system, lost) in [("floor", 1), ("none", 50), ("leasehold", 2)] {
            let row = Row { lost_updates: Some(lost), ..row(Scenario::Hot, system, 1) };
            output.record(&Record::Run(Box::new(row))).unwrap();
            output.end_of_group().unwrap();
        }
        assert_eq!((output.lost_updates(), output.rows().len()), (3, 3));
    }
}
