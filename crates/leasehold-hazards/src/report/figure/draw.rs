//! The time axis, the marks, and the ways of commands to servers.

use super::layout::{BAR, Column, Lane, LaneOf, Layout, TOP};
use super::marks::{At, Kind, Mark};
use super::shapes::{arrow, bar, cross, line, rect, text};
use crate::client::ServerId;
use crate::report::html::{Element, el};
use crate::report::words;

/// The height of the time axis.
const AXIS: i32 = 22;

/// Draws the lanes and the time axis, which are behind everything else.
pub(super) fn ground(layout: &Layout<'_>) -> Vec<Element> {
    let mut shapes = Vec::new();
    for (place, lane) in layout.lanes.iter().enumerate() {
        if place > 0 {
            shapes.push(line("between", (0, lane.y), (layout.width, lane.y)));
        }
    }
    shapes.push(line("axis", (0, AXIS), (layout.width - 6, AXIS)));
    shapes.push(text("time", 2, AXIS - 7, "0 s"));
    let mut before_ms = 0;
    for column in &layout.columns {
        let at_ms = column.end.at_ms;
        if column.is_tick {
            let span = (column.x + 2, column.x + column.width - 2);
            shapes.push(rect("pass", span, AXIS, layout.height - AXIS - 2));
        }
        if at_ms != before_ms {
            shapes.push(text("time middle", column.center(), AXIS - 7, &words::time(at_ms)));
            shapes.push(line("axis", (column.center(), AXIS - 3), (column.center(), AXIS + 3)));
        }
        before_ms = at_ms;
    }
    shapes
}

/// Draws the ways of commands and messages, which are behind the bars.
pub(super) fn wires(layout: &Layout<'_>) -> Vec<Element> {
    let mut shapes = Vec::new();
    for column in &layout.columns {
        for mark in &column.marks {
            let Some(lane) = layout.lane(mark.at) else { continue };
            let x = column.center();
            let mut way = |class, to: i32| shapes.push(line(class, (x, lane.mark_y()), (x, to)));
            match mark.kind {
                Kind::Command(server) | Kind::LostReply(server) => way("wire", server_y(layout, server)),
                Kind::LostRequest(_) => way("wire", lane.y + lane.height + 8),
                Kind::Fenced { .. } => way("wire", layout.lane_of(LaneOf::Resource).map_or(0, Lane::bar_y)),
                Kind::Notified(server) => {
                    let x = x + 7;
                    shapes.push(line("wire", (x, lane.mark_y()), (x, server_y(layout, server))));
                }
                Kind::Write | Kind::Local | Kind::Pause | Kind::Fault => {}
            }
        }
    }
    shapes
}

fn server_y(layout: &Layout<'_>, server: ServerId) -> i32 {
    layout.lane_of(LaneOf::Server(server)).map_or(TOP, Lane::bar_y)
}

/// Draws the marks with their labels.
pub(super) fn marks(layout: &Layout<'_>) -> Vec<Element> {
    let each = |column| move |mark| (column, mark);
    let marks = layout.columns.iter().flat_map(|column: &Column<'_>| column.marks.iter().map(each(column)));
    marks.filter_map(|(column, mark)| layout.lane(mark.at).map(|lane| draw_mark(layout, column, lane, mark))).collect()
}

fn draw_mark(layout: &Layout<'_>, column: &Column<'_>, lane: &Lane, mark: &Mark) -> Element {
    let (x, y) = (column.center(), lane.mark_y());
    let is_fault = matches!(mark.kind, Kind::Fault | Kind::LostReply(_) | Kind::LostRequest(_) | Kind::Pause);
    let (mut label, mut reply) = ("label", if is_fault { "reply fault" } else { "reply" });
    if matches!(mark.kind, Kind::Fault | Kind::Pause) {
        label = "label fault";
    }
    if matches!(mark.kind, Kind::Fenced { is_accepted: false, .. }) {
        (label, reply) = ("label refused", "reply refused");
    }
    let mut group = el("g").child(el("title").text(&mark.tip));
    // Without a second line the first one is nearer to its mark.
    let label_y = if mark.reply.is_empty() { lane.y + 28 } else { lane.y + 16 };
    group = group.child(text(label, x, label_y, &mark.label));
    if !mark.reply.is_empty() {
        group = group.child(text(reply, x, lane.y + 30, &mark.reply));
    }
    group.children(shape(layout, x, y, lane, mark))
}

fn shape(layout: &Layout<'_>, x: i32, y: i32, lane: &Lane, mark: &Mark) -> Vec<Element> {
    let dot = |class| el("circle").class(class).number("cx", x).number("cy", y).number("r", 4);
    match mark.kind {
        Kind::Command(server) | Kind::LostReply(server) => {
            vec![dot("dot"), arrow("tip", x, server_y(layout, server) - 5, 5)]
        }
        Kind::LostRequest(_) => vec![dot("dot"), cross("fault-line", x, lane.y + lane.height + 8)],
        Kind::Write => vec![rect("dot", (x - 4, x + 4), y - 4, 8)],
        Kind::Fenced { is_accepted, .. } => {
            let end = layout.lane_of(LaneOf::Resource).map_or(0, Lane::bar_y);
            let tip = if is_accepted { arrow("tip", x, end - 5, 5) } else { cross("refused-line", x, end - 4) };
            vec![rect("dot", (x - 4, x + 4), y - 4, 8), tip]
        }
        Kind::Local => vec![dot("ring")],
        Kind::Notified(_) => vec![arrow("tip", x + 7, y + 5, -6)],
        Kind::Pause => vec![bar("fault-fill", (x - 5, x - 2), y - 5, 10), bar("fault-fill", (x + 2, x + 5), y - 5, 10)],
        // A thread that dies has its cross on its line of life.
        Kind::Fault if matches!(mark.at, At::Thread(_)) && mark.label == "killed" => vec![],
        Kind::Fault => vec![cross("fault-line", x, y)],
    }
}

/// Draws the names of the lanes.
pub(super) fn names(layout: &Layout<'_>, width: i32) -> Vec<Element> {
    let mut shapes = Vec::new();
    for (place, lane) in layout.lanes.iter().enumerate() {
        if place > 0 {
            shapes.push(line("between", (0, lane.y), (width, lane.y)));
        }
        let y = lane.bar_y() + BAR - 6;
        if lane.note.is_empty() {
            shapes.push(text("name", 0, y, &lane.name));
        } else {
            shapes.push(text("name", 0, y - 15, &lane.name));
            shapes.push(text("note", 0, y, &lane.note));
        }
    }
    shapes
}
