//! The layout of a figure: a column for each step, and a lane for each thread and each server.

use super::label::{self, Tokens};
use super::marks::{At, Kind, Mark, marks};
use crate::client::{ServerId, ThreadId};
use crate::scene::Timeline;
use crate::world::{Action, Row};

/// The height of the time axis and of the label of the harm.
pub(super) const TOP: i32 = 56;
/// The height of a lane with marks.
const TALL: i32 = 76;
/// The height of a lane without marks.
const SHORT: i32 = 38;
/// The height of a bar.
pub(super) const BAR: i32 = 20;
/// The width of a step of time.
const TICK: i32 = 32;
/// The least width of another step.
const NARROW: i32 = 42;
/// The width after the last step, which shows the state that the schedule ends in.
const TAIL: i32 = 92;
const PADDING: i32 = 8;

/// A step.
pub(super) struct Column<'a> {
    pub(super) x: i32,
    pub(super) width: i32,
    pub(super) marks: Vec<Mark>,
    /// The last line of the step, with the state after it.
    pub(super) end: &'a Row,
    /// Whether time passes in the step.
    pub(super) is_tick: bool,
}

impl Column<'_> {
    pub(super) const fn center(&self) -> i32 {
        self.x + self.width / 2
    }
}

/// The kind of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneOf {
    Thread(ThreadId),
    Server(ServerId),
    /// The resource that checks tokens.
    Resource,
}

/// A lane.
pub(super) struct Lane {
    pub(super) of: LaneOf,
    pub(super) name: String,
    pub(super) note: String,
    pub(super) y: i32,
    pub(super) height: i32,
}

impl Lane {
    /// Returns the upper edge of the bars.
    pub(super) const fn bar_y(&self) -> i32 {
        self.y + self.height - BAR - 7
    }

    /// Returns the center of the marks.
    pub(super) const fn mark_y(&self) -> i32 {
        self.bar_y() - 8
    }
}

/// A layout.
pub(super) struct Layout<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) columns: Vec<Column<'a>>,
    pub(super) lanes: Vec<Lane>,
    pub(super) tokens: Tokens,
    pub(super) width: i32,
    pub(super) height: i32,
}

impl<'a> Layout<'a> {
    /// Lays a timeline out, with room for a label of this width.
    pub(super) fn of(timeline: &'a Timeline, least_width: i32) -> Self {
        let columns = columns(timeline);
        let lanes = lanes(timeline, &columns);
        let width = columns.last().map_or(PADDING, |column| column.x + column.width) + TAIL;
        let width = width.max(least_width);
        let height = lanes.last().map_or(TOP, |lane| lane.y + lane.height) + 2;
        Self { timeline, columns, lanes, tokens: Tokens::of(timeline), width, height }
    }

    /// Returns the lane of a mark.
    pub(super) fn lane(&self, at: At) -> Option<&Lane> {
        let of = match at {
            At::Thread(thread) => LaneOf::Thread(thread),
            At::Server(server) => LaneOf::Server(server),
        };
        self.lane_of(of)
    }

    pub(super) fn lane_of(&self, of: LaneOf) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.of == of)
    }

    /// Returns the horizontal position of the state after a step: from its center to the center of the step `to`.
    pub(super) fn span(&self, from: usize, to: usize) -> (i32, i32) {
        let x = |column: usize| self.columns.get(column).map_or(self.width - 6, Column::center);
        (x(from), x(to))
    }

    /// Returns the width of the names of the lanes.
    pub(super) fn names_width(&self) -> i32 {
        let widths = self.lanes.iter().map(|lane| label::bold_width(&lane.name).max(label::width(&lane.note)));
        widths.max().unwrap_or(0) + 10
    }

    /// Returns the upper edge of the lanes, and the lower edge of those of threads.
    pub(super) fn thread_lanes(&self) -> (i32, i32) {
        let threads = self.lanes.iter().filter(|lane| matches!(lane.of, LaneOf::Thread(_)));
        (TOP, threads.map(|lane| lane.y + lane.height).max().unwrap_or(TOP))
    }
}

/// Returns the runs of equal states: the state, its first step, and the step after its last one.
pub(super) fn runs<T: PartialEq>(states: impl IntoIterator<Item = T>) -> Vec<(T, usize, usize)> {
    let mut runs: Vec<(T, usize, usize)> = Vec::new();
    for (column, state) in states.into_iter().enumerate() {
        match runs.last_mut() {
            Some((same, _, end)) if *same == state => *end = column + 1,
            _ => runs.push((state, column, column + 1)),
        }
    }
    runs
}

fn columns(timeline: &Timeline) -> Vec<Column<'_>> {
    let mut x = PADDING;
    let mut columns: Vec<Column<'_>> = Vec::new();
    for rows in timeline.rows.chunk_by(|row, next| row.step == next.step) {
        let Some(end) = rows.last() else { continue };
        let (marks, is_tick) = (marks(timeline, rows), matches!(end.action, Action::Tick { .. }));
        let widest = marks.iter().map(|mark| label::bold_width(&mark.label).max(label::width(&mark.reply))).max();
        let width = match is_tick {
            true => widest.map_or(TICK, |widest| TICK.max(widest + 6)),
            false => NARROW.max(widest.unwrap_or(0) + 12),
        };
        columns.push(Column { x, width, marks, end, is_tick });
        x += width;
    }
    columns
}

fn lanes(timeline: &Timeline, columns: &[Column<'_>]) -> Vec<Lane> {
    let marks = || columns.iter().flat_map(|column| &column.marks);
    let mut threads: Vec<_> = (0..timeline.names.len()).filter(|thread| timeline.acts(*thread)).collect();
    threads.sort_by_key(|thread| (timeline.processes[*thread].0, *thread));
    let mut lanes: Vec<_> = threads.into_iter().map(|thread| thread_lane(timeline, thread)).collect();
    if marks().any(|mark| matches!(mark.kind, Kind::Fenced { .. })) {
        lanes.push(lane(LaneOf::Resource, "resource", "", SHORT));
    }
    let servers = timeline.rows.first().map_or(0, |row| row.servers.len());
    for server in 0..servers {
        let has_marks = marks().any(|mark| mark.at == At::Server(server));
        let name = if servers == 1 { "server".into() } else { format!("server {}", server + 1) };
        lanes.push(lane(LaneOf::Server(server), &name, "", if has_marks { TALL } else { SHORT }));
    }
    let mut y = TOP;
    for lane in &mut lanes {
        lane.y = y;
        y += lane.height;
    }
    lanes
}

fn lane(of: LaneOf, name: &str, note: &str, height: i32) -> Lane {
    Lane { of, name: name.to_owned(), note: note.to_owned(), y: 0, height }
}

fn thread_lane(timeline: &Timeline, thread: ThreadId) -> Lane {
    let (process, note) = timeline.names[thread].split_once(", ").unwrap_or((&timeline.names[thread], ""));
    let clock = match timeline.processes[thread].1 {
        0 => note.to_owned(),
        ahead_ms => format!("clock +{} s", ahead_ms / 1000),
    };
    lane(LaneOf::Thread(thread), process, &clock, TALL)
}
