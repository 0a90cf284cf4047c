//! All cells of a store, and their presentation.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::bounds::{self, SLACK};
use super::cell::{Cell, Ground};
use super::playing::{Measured, Playing};
use super::{Call, Face, Flavor, Place, Weather};
use crate::conformance::{Backend, HandOver, Running};

/// How many cells of a healthy store run at once. Each has a client, and three to five threads.
const AT_ONCE: usize = 8;
/// How long a silent store stays silent at least: longer than every bound, so that `lock` has to outlast it.
const SILENT: Duration = Duration::from_secs(6);

dimension! {
    /// How much of the table is measured.
    Share {
        /// All of it.
        Whole,
        /// One kind of runtime that connects, and on a silent store the blocking calls in one place.
        Quick,
    }
}

/// The measurements on one store.
#[derive(Clone, Debug)]
pub struct Table {
    /// The store.
    pub backend: Backend,
    /// Every cell that was played.
    pub cells: BTreeMap<Cell, Measured>,
}

/// Starts a store of this kind, and measures it in these weathers.
///
/// # Panics
/// If the store does not start.
#[must_use]
pub fn measure(backend: Backend, share: Share, weathers: &[Weather]) -> Table {
    let runtime = Flavor::OneWorker.build();
    let running = runtime.block_on(Running::start(backend, HandOver::Local));
    let ground = Ground::new(running.url(), HandOver::Local);
    let wanted = |cell: &Cell| weathers.contains(&cell.weather) && share.has(*cell);
    let cells: Vec<Cell> = Cell::all(backend).into_iter().filter(wanted).collect();
    let (healthy, silent) = cells.into_iter().partition(|cell| cell.weather == Weather::Healthy);
    let mut measured = in_good_weather(healthy, &ground);
    measured.extend(in_silence(silent, &ground, &running));
    Table { backend, cells: measured }
}

/// Plays one cell on a healthy store, with a name that no other cell uses.
pub(crate) fn play(cell: Cell, ground: &Ground, name: String) -> Measured {
    let mut playing = cell.begin(ground, name);
    playing.ready();
    playing.go();
    playing.first();
    playing.rest();
    playing.judged()
}

fn in_good_weather(cells: Vec<Cell>, ground: &Ground) -> BTreeMap<Cell, Measured> {
    let (cells, done) = (Mutex::new(VecDeque::from(cells)), Mutex::new(BTreeMap::new()));
    let next = || cells.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(cell) = next() {
                    let measured = play(cell, ground, cell.to_string());
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(cell, measured);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Plays all of them at once: they wait for most of the time.
fn in_silence(cells: Vec<Cell>, ground: &Ground, running: &Running) -> BTreeMap<Cell, Measured> {
    if cells.is_empty() {
        return BTreeMap::new();
    }
    let mut all: Vec<(Cell, Playing)> =
        cells.into_iter().map(|cell| (cell, cell.begin(ground, cell.to_string()))).collect();
    all.iter_mut().for_each(|(_, playing)| playing.ready());
    let silence = running.silence().expect("a store that can be silent");
    let begun = Instant::now();
    all.iter().for_each(|(_, playing)| playing.go());
    let (mut outlast, mut end): (Vec<_>, Vec<_>) = all.into_iter().partition(|(cell, _)| cell.call == Call::Lock);
    end.iter_mut().for_each(|(_, playing)| playing.first());
    thread::sleep(SILENT.saturating_sub(begun.elapsed()));
    for (_, playing) in &mut outlast {
        if !playing.still_waits() {
            playing.wrong("it did not wait until the store was back".into());
        }
    }
    let silent = begun.elapsed();
    drop(silence);
    for (_, playing) in &mut outlast {
        playing.first();
        playing.take_off(silent);
    }
    let mut all = outlast;
    all.append(&mut end);
    all.iter_mut().for_each(|(_, playing)| playing.rest());
    all.into_iter().map(|(cell, playing)| (cell, playing.judged())).collect()
}

impl Share {
    fn has(self, cell: Cell) -> bool {
        match self {
            Self::Whole => {
                cell.weather == Weather::Healthy || cell.face == Face::Tasks || cell.place == Place::NoRuntime
            }
            Self::Quick => {
                cell.flavor == Flavor::CurrentThread && (cell.face == Face::Tasks || cell.place == Place::NoRuntime)
            }
        }
    }
}

impl Table {
    /// Returns the cells that broke their bound, or failed otherwise.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failure = |(cell, measured): (&Cell, &Measured)| {
            measured.wrong.as_ref().map(|wrong| format!("{:?}/{cell}: {wrong}", self.backend))
        };
        self.cells.iter().filter_map(failure).collect()
    }

    fn rows(&self, weather: Weather) -> Vec<(Call, Face, Flavor)> {
        let of = self.cells.keys().filter(|cell| cell.weather == weather);
        let mut rows: Vec<_> = of.map(|cell| (cell.face, cell.call, cell.flavor)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows.into_iter().map(|(face, call, flavor)| (call, face, flavor)).collect()
    }
}

/// Markdown, a table for each weather.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &weather in Weather::ALL {
            let rows = self.rows(weather);
            if rows.is_empty() {
                continue;
            }
            let is = match weather {
                Weather::Healthy => "healthy: the first call / the best of five later ones",
                Weather::Silent => "silent from right before the call",
            };
            writeln!(f, "\n### {:?}, {is}\n", self.backend)?;
            write!(f, "| call | by | connected in | bound |")?;
            Place::ALL.iter().try_for_each(|place| write!(f, " {place} |"))?;
            writeln!(f, "\n|---|---|---|---|{}", "---|".repeat(Place::ALL.len()))?;
            for (call, face, flavor) in rows {
                let by = if face == Face::Tasks { "a task" } else { "a thread" };
                let kind = if flavor == Flavor::CurrentThread { "current_thread" } else { "multi_thread" };
                write!(f, "| {call} | {by} | {kind} | {} |", bounds::documented(call, weather))?;
                for &place in Place::ALL {
                    let cell = Cell { weather, call, face, flavor, place };
                    write!(f, " {} |", self.cells.get(&cell).map_or("—".into(), shown))?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "\nSlack for a busy machine, beyond each bound: {SLACK:?}.")
    }
}

fn shown(measured: &Measured) -> String {
    let first = measured.first.map_or_else(|| "HANGS".into(), time);
    let both = match measured.again {
        Some(again) => format!("{first} / {}", time(again)),
        None => first,
    };
    if measured.wrong.is_some() { format!("**{both}** ✗") } else { both }
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_is_wrong_is_marked_and_listed() {
        let cell = |place| Cell {
            weather: Weather::Healthy,
            call: Call::Release,
            face: Face::Tasks,
            flavor: Flavor::CurrentThread,
            place,
        };
        let took = |ms, wrong: Option<&str>| Measured {
            first: Some(Duration::from_millis(ms)),
            again: Some(Duration::from_micros(20)),
            wrong: wrong.map(str::to_owned),
        };
        let cells = [(cell(Place::OwnIdle), took(2, None)), (cell(Place::NoRuntime), took(1500, Some("slow")))];
        let table = Table { backend: Backend::Redis, cells: cells.into() };
        let page = table.to_string();
        let row = page.lines().find(|line| line.starts_with("| release |")).expect("a row");
        assert_eq!(
            row,
            "| release | a task | current_thread | the lease of 2 s + 2 s | 2.0 ms / 20 µs | — | — | — | \
             **1.50 s / 20 µs** ✗ | — | — |"
        );
        let header = page.lines().find(|line| line.starts_with("| call |")).expect("a header");
        assert_eq!(header.matches('|').count(), row.matches('|').count());
        assert_eq!(table.failures(), ["Redis/Healthy/Release/Tasks/CurrentThread/NoRuntime: slow"]);
    }

    /// Every call is measured in every place on every store, except for the few that have no meaning there.
    #[test]
    fn no_cell_is_missing() {
        for &backend in Backend::ALL {
            let cells = Cell::all(backend);
            for (call, place) in Call::ALL.iter().flat_map(|call| Place::ALL.iter().map(move |place| (*call, *place))) {
                let of = |face| {
                    let is_this = |cell: &&Cell| (cell.call, cell.place, cell.face) == (call, place, face);
                    cells.iter().filter(is_this).filter(|cell| cell.weather == Weather::Healthy).count()
                };
                let is_connect = call == Call::Connect;
                let nothing_before = is_connect && place.needs_connected();
                let expected = if nothing_before { 0 } else { 1 };
                assert_eq!(of(Face::Threads), expected, "{call} {place}");
                let expected = match call {
                    Call::LockOrCancel => 0,
                    _ if is_connect => expected,
                    _ => Flavor::ALL.len(),
                };
                assert_eq!(of(Face::Tasks), expected, "{call} {place}");
            }
        }
    }
}
