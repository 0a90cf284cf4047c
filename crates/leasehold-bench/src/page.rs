//! The report: a page of all measurements. Everything in it comes from the raw lines, except three texts. The method is
//! part of this program. The summary (`front.md`) and the losses (`losses.md`) are written by hand.

use std::fmt::Write;
use std::path::Path;

use crate::bars::{Verdict, judge};
use crate::chart::{self, Chart};
use crate::error::{Context, Result};
use crate::record::{About, Failed, Machine, Missing, Record, Row};
use crate::scenario::Scenario;
use crate::table::{by_case, cells, figure, limit, percent, question};

const METHOD: &str = include_str!("page.md");

/// All measurements, in the order of their files.
#[derive(Default)]
struct Found {
    machines: Vec<Machine>,
    abouts: Vec<About>,
    missing: Vec<Missing>,
    failed: Vec<Failed>,
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
}

/// Makes the page and the charts from the files in `dir/raw`.
pub(crate) fn write(dir: &Path) -> Result<()> {
    let losses = dir.join("losses.md");
    let losses = std::fs::read_to_string(&losses)
        .context(format!("reading {}, the hand-written text on what we lose and why", losses.display()))?;
    // A summary for readers who have ten minutes. It is written by hand, and a short test run has none.
    let front = std::fs::read_to_string(dir.join("front.md")).unwrap_or_default();
    let raw = dir.join("raw");
    let mut files: Vec<_> = std::fs::read_dir(&raw)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>())
        .context(format!("reading {}", raw.display()))?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
    files.sort();
    let mut found = Found::default();
    for file in files {
        let text = std::fs::read_to_string(&file).context(format!("reading {}", file.display()))?;
        found.add(&text).context(format!("reading {}", file.display()))?;
    }
    if found.rows.is_empty() {
        return Err(format!("{} has no figures: run scripts/bench", raw.display()).into());
    }
    chart::write(&dir.join("charts"), &found.rows)?;
    std::fs::write(dir.join("REPORT.md"), found.page(&front, &losses)).context("writing the page")
}

impl Found {
    /// Adds one file. Its rows are judged separately, because each file counts its turns anew.
    fn add(&mut self, text: &str) -> Result<()> {
        let (mut rows, mut abouts) = (Vec::new(), Vec::new());
        for line in text.lines() {
            match serde_json::from_str(line).context(line)? {
                Record::Machine(machine) => add_new(&mut self.machines, machine),
                Record::About(about) => abouts.push(about),
                Record::Missing(missing) => add_new(&mut self.missing, missing),
                Record::Run(row) => rows.push(*row),
                Record::Failed(failed) => self.failed.push(failed),
                // They are judged again: the bars are in the program, and not in the file.
                Record::Verdict(_) => {}
            }
        }
        self.verdicts.extend(judge(&rows, &abouts));
        abouts.into_iter().for_each(|about| add_new(&mut self.abouts, about));
        self.rows.extend(rows);
        Ok(())
    }

    fn page(&self, front: &str, losses: &str) -> String {
        let mut page = String::from("# What locks cost\n\n");
        if !front.is_empty() {
            line(&mut page, &format!("{}\n", front.trim()));
        }
        line(
            &mut page,
            "`scripts/bench` makes this page of the lines in `raw`, `front.md` and `losses.md`. Edit these, not this \
             page.\n",
        );
        for machine in &self.machines {
            line(&mut page, &format!("{}: {machine}.\n", machine.date));
        }
        line(&mut page, "## What was promised\n");
        page += &self.verdicts();
        line(&mut page, "\n## What we lose, and why\n");
        line(&mut page, losses.trim());
        line(&mut page, "\n## How it was measured\n");
        line(&mut page, METHOD.trim());
        line(&mut page, "\n## Who took part\n");
        page += &self.systems();
        for scenario in Scenario::ALL {
            page += &self.scenario(scenario);
        }
        page
    }

    fn verdicts(&self) -> String {
        let missed = self.verdicts.iter().filter(|verdict| !verdict.is_met).count();
        let all = self.verdicts.len();
        let mut lines = vec![["", "system", "case", "what", "figure", "bar"].map(str::to_owned).to_vec()];
        for verdict in &self.verdicts {
            let Verdict { system, case, spread, limit: bar, is_met, .. } = verdict;
            let by = verdict.missed_by().map_or(String::new(), |part| format!(" by {}", percent(part)));
            let word = if *is_met { "met".to_owned() } else { format!("**missed**{by}") };
            lines.push(vec![word, system.name().into(), case.title(), question(verdict), figure(*spread), limit(*bar)]);
        }
        format!("{} of {all} are kept, and {missed} missed.\n\n{}", all - missed, markdown(&lines))
    }

    fn systems(&self) -> String {
        let mut lines = vec![["system", "version", "waits by", "has", "settings"].map(str::to_owned).to_vec()];
        for About { system, class, has, version, settings } in &self.abouts {
            let class = class.map_or("-".to_owned(), |class| word(&class));
            let has = match &has[..] {
                [] => "-".to_owned(),
                some => some.iter().map(|has| has.words()).collect::<Vec<_>>().join(", "),
            };
            lines.push(vec![system.name().into(), version.clone(), class, has, settings.clone()]);
        }
        let mut text = markdown(&lines);
        if self.missing.is_empty() {
            line(&mut text, "\nNo peer is missing.");
        }
        for Missing { system, why } in &self.missing {
            line(&mut text, &format!("\n**Missing: {}**, which could not be installed: {why}", system.name()));
        }
        for Failed { system, case, run, why } in &self.failed {
            let of = format!("{} in {}, run {run}", system.name(), case.title());
            line(&mut text, &format!("\n**Failed: {of}** and took no further part: {why}"));
        }
        text
    }

    fn scenario(&self, scenario: Scenario) -> String {
        let rows: Vec<Row> = self.rows.iter().filter(|row| row.scenario() == scenario).cloned().collect();
        if rows.is_empty() {
            return String::new();
        }
        let mut text = format!("\n## {}\n\n{}.\n", scenario.name(), scenario.question());
        for (case, of_case) in by_case(&rows) {
            line(&mut text, &format!("\n### {}\n", case.size()));
            text += &markdown(&cells(case, &of_case));
        }
        for Chart { file, title, .. } in chart::charts(scenario, &rows) {
            line(&mut text, &format!("\n![{title}](charts/{file}.svg)"));
        }
        text
    }
}

fn add_new<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
}

/// Returns its name in JSON.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Formats a table whose first line has the headings.
fn markdown(lines: &[Vec<String>]) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
    let Some((heads, rest)) = lines.split_first() else { return String::new() };
    let rule = format!("|{}\n", "---|".repeat(heads.len()));
    row(heads) + &rule + &rest.iter().map(|cells| row(cells)).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::row;

    fn json(record: &Record) -> String {
        serde_json::to_string(record).unwrap() + "\n"
    }

    fn run(scenario: Scenario, system: &str, run: u32, ops_per_s: f64) -> String {
        json(&Record::Run(Box::new(Row { ops_per_s, ..row(scenario, system, run) })))
    }

    #[test]
    fn a_page_has_the_figures_and_the_written_parts() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine {
            cpu: "Fast CPU".into(),
            cores: 2,
            kernel: "6.1".into(),
            redis: "7.0.15".into(),
            awake: true,
            date: "2026-11-21".into(),
        };
        let missing = Missing { system: crate::system::System::named("redsync"), why: "no Go".into() };
        let head = json(&Record::Machine(machine)) + &json(&Record::Missing(missing));
        let hot = run(Scenario::Hot, "floor", 1, 100.0) + &run(Scenario::Hot, "leasehold-fair", 1, 45.0);
        let error = write(dir.path()).unwrap_err().to_string();
        assert!(error.contains("losses.md") && error.contains("what we lose"), "{error}");
        std::fs::write(dir.path().join("losses.md"), "We lose *this*.\n").unwrap();
        std::fs::create_dir(dir.path().join("raw")).unwrap();
        assert!(write(dir.path()).unwrap_err().to_string().contains("run scripts/bench"));
        std::fs::write(dir.path().join("raw/1-hot.jsonl"), head.clone() + &hot).unwrap();
        std::fs::write(dir.path().join("raw/2-queue.jsonl"), head + &run(Scenario::Queue, "leasehold-fair", 1, 9.0))
            .unwrap();
        std::fs::write(dir.path().join("front.md"), "In ten lines.\n").unwrap();
        write(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("REPORT.md")).unwrap();
        assert!(page.starts_with("# What locks cost\n\nIn ten lines.\n\n"), "{page}");
        for part in [
            "2026-11-21: Fast CPU, 2 cores (kept awake), Linux 6.1, Redis 7.0.15.",
            "We lose *this*.",
            "hand-overs a second, against floor | 0.45 | ≥ 0.9 |",
            "**missed** by 50 %",
            "**Missing: redsync**, which could not be installed: no Go",
            "## queue",
            "![hot · 2 processes × 8 tasks on 1 thread, one name: pairs a second](charts/hot-2x8.svg)",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert_eq!(page.matches("Fast CPU").count(), 1, "the same machine is named once");
        assert!(dir.path().join("charts/hot-2x8-wait.svg").exists() && dir.path().join("charts/queue.svg").exists());
    }

    #[test]
    fn turns_of_different_files_are_not_compared() {
        let mut found = Found::default();
        found.add(&run(Scenario::Hot, "floor", 1, 100.0)).unwrap();
        found.add(&run(Scenario::Hot, "leasehold", 1, 10.0)).unwrap();
        assert!(found.verdicts.iter().all(|verdict| verdict.against.is_none()), "{:?}", found.verdicts);
        assert!(found.add("{}").is_err());
    }
}
