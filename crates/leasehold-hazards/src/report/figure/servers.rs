//! The lanes of servers, and of a resource that checks tokens.

use std::fmt::Write as _;

use super::label;
use super::layout::{BAR, Lane, LaneOf, Layout, runs};
use super::marks::Kind;
use super::shapes::{bar, fitting, line, path};
use crate::client::ServerId;
use crate::redis::Holding;
use crate::report::html::Element;

/// Draws the lanes of all servers and of the resource.
pub(super) fn draw(layout: &Layout<'_>) -> Vec<Element> {
    let mut shapes = Vec::new();
    for lane in &layout.lanes {
        match lane.of {
            LaneOf::Thread(_) => {}
            LaneOf::Server(server) => draw_server(layout, lane, server, &mut shapes),
            LaneOf::Resource => draw_resource(layout, lane, &mut shapes),
        }
    }
    shapes
}

fn draw_server(layout: &Layout<'_>, lane: &Lane, server: ServerId, shapes: &mut Vec<Element>) {
    let text_y = lane.bar_y() + BAR - 6;
    shapes.push(life(layout, lane));
    let states = layout.columns.iter().map(|column| {
        let view = &column.end.servers[server];
        let names = view.holds.iter().map(|holding| label::holding(holding, &layout.tokens));
        // A queue that grows is no other grant: the last name of each holding is its shortest one.
        let key: Vec<_> = names.filter_map(|names| names.last().cloned()).collect();
        (view.is_up, key)
    });
    for ((is_up, key), from, to) in runs(states) {
        let span = layout.span(from, to);
        if !is_up {
            shapes.push(bar("stopped", span, lane.bar_y(), BAR));
            shapes.extend(fitting("in-holds-none", span, text_y, &["stopped".into()]));
        } else if key.is_empty() {
            shapes.extend(fitting("in-holds-none", span, text_y, &["nothing".into()]));
        } else {
            shapes.push(bar("kept", span, lane.bar_y(), BAR));
            shapes.push(gauge(layout, lane, server, (from, to)));
            let longest = layout.columns[from..to].iter().max_by_key(|column| column.end.holds.len());
            let holds = longest.map(|column| &column.end.servers[server].holds[..]).unwrap_or_default();
            shapes.extend(fitting("in-kept", span, text_y, &names(layout, holds)));
        }
    }
}

/// Returns the names of what a server holds, from the longest to the shortest.
fn names(layout: &Layout<'_>, holds: &[Holding]) -> Vec<String> {
    let each: Vec<_> = holds.iter().map(|holding| label::holding(holding, &layout.tokens)).collect();
    let most = each.iter().map(Vec::len).max().unwrap_or(0);
    let name = |level: usize| {
        let names = each.iter().filter_map(|names| names.get(level).or(names.last()).map(String::as_str));
        names.collect::<Vec<_>>().join("; ")
    };
    (0..most).map(name).collect()
}

/// Draws the time that is left of what a server holds, as the height of a fill.
fn gauge(layout: &Layout<'_>, lane: &Lane, server: ServerId, (from, to): (usize, usize)) -> Element {
    let left_ms = |holding: &Holding| holding.left_ms();
    let all = layout.timeline.rows.iter().flat_map(|row| &row.servers).flat_map(|view| &view.holds);
    let most_ms = all.filter_map(left_ms).max().unwrap_or(1).max(1);
    let bottom = lane.bar_y() + BAR;
    let mut d = format!("M{} {bottom}", layout.span(from, to).0);
    for column in from..to {
        let held = layout.columns[column].end.servers[server].holds.first();
        let share = held.and_then(Holding::left_ms).map_or(most_ms, |left_ms| left_ms);
        let height = i32::try_from(share * BAR as u64 / most_ms).unwrap_or(BAR);
        let (x0, x1) = layout.span(column, column + 1);
        let _ = write!(d, "V{}H{x1}", bottom - height);
        debug_assert!(x0 <= x1, "columns stand in their order");
    }
    path("left", &format!("{d}V{bottom}Z"))
}

fn draw_resource(layout: &Layout<'_>, lane: &Lane, shapes: &mut Vec<Element>) {
    let text_y = lane.bar_y() + BAR - 6;
    shapes.push(life(layout, lane));
    let mut largest = None;
    let states = layout.columns.iter().map(|column| {
        for mark in &column.marks {
            if let Kind::Fenced { token, is_accepted: true } = mark.kind {
                largest = largest.max(Some(token));
            }
        }
        largest
    });
    for (largest, from, to) in runs(states.collect::<Vec<_>>()) {
        let Some(largest) = largest else { continue };
        let (span, token) = (layout.span(from, to), layout.tokens.name(largest));
        shapes.push(bar("fence", span, lane.bar_y(), BAR));
        shapes.extend(fitting("in-fence", span, text_y, &[format!("has seen {token}"), token]));
    }
}

fn life(layout: &Layout<'_>, lane: &Lane) -> Element {
    let y = lane.bar_y() + BAR / 2;
    line("life", (2, y), (layout.width - 6, y))
}
