//! Charts, as SVG: a bar for each system or size, as long as its median, with a line over its range.
//!
//! Written by hand: a bar is a rectangle and two texts, and a crate that draws charts would be more to learn than this.

use std::fmt::Write;
use std::path::Path;

use crate::error::{Context, Result};
use crate::record::Row;
use crate::scenario::{Case, Ending, Inside, Scenario};
use crate::stats::Spread;
use crate::system::{Own, System};
use crate::table::{by_case, by_system};

/// A chart of one scenario or of one of its cases.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chart {
    /// The name of its file, without the extension.
    pub(crate) file: String,
    pub(crate) title: String,
    bars: Vec<Bar>,
    digits: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Bar {
    label: String,
    spread: Spread,
    colour: &'static str,
}

/// The figure of a bar: a title, the useful number of digits, and the figure.
type Figure = (&'static str, usize, fn(&Row) -> Option<f64>);

const SPEED: Figure = ("pairs a second", 0, |row| Some(row.ops_per_s));
const SLOWEST: Figure = ("p99.9 wait, ms (less is better)", 1, |row| Some(row.p999_us? as f64 / 1e3));
const SLOW: Figure = ("p99 wait, ms (less is better)", 1, |row| Some(row.p99_us? as f64 / 1e3));
const TAKEN: Figure = ("until it is held, µs (less is better)", 0, |row| Some(row.p50_us? as f64));
const SERVER: Figure = ("server time of a pair, µs (less is better)", 1, |row| Some(row.server_us_per_op));
const CLIENT_SHARE: Figure = ("client, % of a core (less is better)", 1, |row| Some(row.client_core_share * 100.0));
const SERVER_SHARE: Figure = ("server, % of a core (less is better)", 1, |row| Some(row.server_core_share * 100.0));
const TAKEOVER: Figure = ("until the next one holds, ms (less is better)", 1, |row| Some(row.p50_us? as f64 / 1e3));

const OURS: &str = "#1f6f8b";
const YARDSTICK: &str = "#9aa5b1";
const PEER: &str = "#d98e32";

/// Draws all charts of these rows into a directory, which is created if it is missing.
pub(crate) fn write(dir: &Path, rows: &[Row]) -> Result<()> {
    std::fs::create_dir_all(dir).context(format!("making {}", dir.display()))?;
    for scenario in Scenario::ALL {
        for chart in charts(scenario, rows) {
            let file = dir.join(format!("{}.svg", chart.file));
            std::fs::write(&file, chart.svg()).context(format!("writing {}", file.display()))?;
        }
    }
    Ok(())
}

/// Returns the charts of one scenario: one for each case where systems are compared, one of all where sizes are.
pub(crate) fn charts(scenario: Scenario, rows: &[Row]) -> Vec<Chart> {
    let rows: Vec<Row> = rows.iter().filter(|row| row.scenario() == scenario).cloned().collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let (figures, is_by_system): (&[(&str, Figure)], bool) = match scenario {
        Scenario::Uncontended | Scenario::HotLocal => (&[("", SPEED)], true),
        Scenario::Hot | Scenario::Rwlock | Scenario::Semaphore => (&[("", SPEED), ("-wait", SLOWEST)], true),
        Scenario::Quorum => (&[("", TAKEN)], true),
        Scenario::QuorumHot => (&[("", SPEED), ("-wait", SLOW)], true),
        Scenario::ServerCost => (&[("", SERVER)], true),
        Scenario::Queue => (&[("", SERVER)], false),
        Scenario::Leases => (&[("-client", CLIENT_SHARE), ("-server", SERVER_SHARE)], false),
        Scenario::Takeover => (&[("", TAKEOVER)], false),
    };
    let mut charts = Vec::new();
    for (suffix, (what, digits, figure)) in figures {
        let mut draw = |name: String, of: String, bars: Vec<Bar>| {
            let (file, title) = (format!("{name}{suffix}"), format!("{of}: {what}"));
            charts.push(Chart { file, title, bars, digits: *digits });
        };
        if !is_by_system {
            let bars = by_case(&rows).into_iter().filter_map(|(case, of)| Bar::of(case.size(), OURS, &of, *figure));
            draw(scenario.name().to_owned(), scenario.name().to_owned(), bars.collect());
            continue;
        }
        for (case, of_case) in by_case(&rows) {
            let bar = |(system, of): (&System, Vec<&Row>)| Bar::of(system.name().into(), colour(system), &of, *figure);
            draw(slug(case), case.title(), by_system(&of_case).into_iter().filter_map(bar).collect());
        }
    }
    charts
}

fn colour(system: &System) -> &'static str {
    match system {
        System::Own(Own::Leasehold | Own::LeaseholdFair | Own::LeaseholdRemote) => OURS,
        System::Own(_) => YARDSTICK,
        System::Peer(_) => PEER,
    }
}

/// Returns a case as part of a file's name.
fn slug(case: &Case) -> String {
    let name = case.scenario.name();
    let size = match case.scenario {
        Scenario::Uncontended | Scenario::Queue | Scenario::Leases => format!("{name}-{}", case.tasks),
        Scenario::QuorumHot => {
            let pause = if case.pause_us.is_some() { "-pause" } else { "" };
            format!("{name}-{}x{}{pause}", case.processes, case.tasks)
        }
        Scenario::Hot => {
            let inside = if case.inside == Some(Inside::Nothing) { "-empty" } else { "" };
            format!("{name}-{}x{}{inside}", case.processes, case.tasks)
        }
        Scenario::Rwlock => format!("{name}-{}", case.writes_percent.unwrap_or(0)),
        Scenario::Semaphore => format!("{name}-{}", case.permits.unwrap_or(1)),
        Scenario::Quorum => format!("{name}-{}us", case.delay_us.unwrap_or(0)),
        Scenario::HotLocal => format!("{name}-{}-{}us", case.tasks, case.busy_us.unwrap_or(0)),
        Scenario::ServerCost => format!("{name}-{}", case.names.name()),
        Scenario::Takeover => {
            let ending = if case.ending == Some(Ending::Killed) { "killed" } else { "released" };
            format!("{name}-{}ms-{ending}", case.lease_ms())
        }
    };
    match case.threads {
        usual if usual == case.scenario.threads(case.tasks)[0] => size,
        threads => format!("{size}-on-{threads}"),
    }
}

impl Bar {
    fn of(label: String, colour: &'static str, rows: &[&Row], figure: fn(&Row) -> Option<f64>) -> Option<Self> {
        let figures: Vec<f64> = rows.iter().filter_map(|row| figure(row)).collect();
        Some(Self { label, spread: Spread::of(&figures)?, colour })
    }
}

const BAR: usize = 18;
const STEP: usize = 27;
const TOP: usize = 46;
const LENGTH: f64 = 420.0;
/// The width of a letter in a proportional font of 13 pixels, rounded up.
const LETTER: usize = 7;

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let letters = self.bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = 24 + letters * LETTER;
        let most = self.bars.iter().map(|bar| bar.spread.max).fold(f64::MIN_POSITIVE, f64::max);
        let at = |figure: f64| left as f64 + figure.max(0.0) / most * LENGTH;
        let (width, height) = (left + LENGTH as usize + 110, TOP + self.bars.len() * STEP + 12);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#1d2733\">\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-weight=\"bold\">{}</text>\n",
            escaped(&self.title)
        );
        for (row, bar) in self.bars.iter().enumerate() {
            let (top, middle) = (TOP + row * STEP, TOP + row * STEP + BAR / 2);
            let Spread { median, min, max } = bar.spread;
            let text = format!("{median:.digits$}", digits = self.digits);
            // Writing to a string cannot fail.
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{left}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{}\"/>\n\
                 <path d=\"M{:.1} {middle}H{:.1}\" stroke=\"#1d2733\" stroke-width=\"2\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\">{text}</text>\n",
                left - 8,
                middle + 5,
                escaped(&bar.label),
                at(median) - left as f64,
                bar.colour,
                at(min),
                at(max),
                at(max) + 8.0,
                middle + 5,
            );
        }
        svg + "</svg>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::row;

    #[test]
    fn systems_are_compared_in_a_case_and_sizes_in_a_scenario() {
        let of = |scenario, tasks, system: &str, run| {
            let row = row(scenario, system, run);
            Row { case: Case { tasks, ..row.case }, ops_per_s: f64::from(run * tasks), ..row }
        };
        let rows = [
            of(Scenario::Uncontended, 1, "s5", 1),
            of(Scenario::Uncontended, 1, "leasehold", 1),
            of(Scenario::Uncontended, 1, "leasehold", 3),
            of(Scenario::Uncontended, 64, "redsync", 1),
            of(Scenario::Queue, 10, "leasehold-fair", 1),
            of(Scenario::Queue, 500, "leasehold-fair", 1),
        ];
        let charts: Vec<Chart> = Scenario::ALL.into_iter().flat_map(|scenario| charts(scenario, &rows)).collect();
        let files: Vec<_> = charts.iter().map(|chart| (chart.file.as_str(), chart.bars.len())).collect();
        assert_eq!(files, [("uncontended-1", 2), ("uncontended-64", 1), ("queue", 2)]);
        let ours = &charts[0].bars[1];
        assert_eq!(
            (ours.label.as_str(), ours.spread, ours.colour),
            ("leasehold", Spread { median: 2.0, min: 1.0, max: 3.0 }, OURS)
        );
        assert_eq!((charts[0].bars[0].colour, charts[1].bars[0].colour), (YARDSTICK, PEER));
    }

    #[test]
    fn cases_of_one_scenario_have_files_of_their_own() {
        let case = |scenario| row(scenario, "leasehold", 1).case;
        let (hot, alone) = (case(Scenario::Hot), Case { tasks: 64, ..case(Scenario::Uncontended) });
        let slugs = [
            slug(&hot),
            slug(&Case { inside: Some(Inside::Nothing), ..hot.clone() }),
            slug(&Case { threads: 2, ..hot }),
            slug(&alone),
            slug(&Case { threads: 1, ..alone }),
        ];
        let wanted = ["hot-2x8", "hot-2x8-empty", "hot-2x8-on-2", "uncontended-64", "uncontended-64-on-1"];
        assert_eq!(slugs, wanted);
    }

    #[test]
    fn a_bar_is_as_long_as_its_median_and_its_line_as_its_range() {
        let bar = |label: &str, median| Bar {
            label: label.into(),
            spread: Spread { median, min: median / 2.0, max: median * 2.0 },
            colour: OURS,
        };
        let (file, title) = ("x".into(), "a < b".into());
        let svg = Chart { file, title, bars: vec![bar("abc", 50.0), bar("&", 100.0)], digits: 1 }.svg();
        // The longest line is 200: 420 pixels after 24 and three letters.
        for part in
            ["a &lt; b", "width=\"105.0\"", "width=\"210.0\"", "M97.5 55H255.0", ">100.0</text>", ">&amp;</text>"]
        {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
