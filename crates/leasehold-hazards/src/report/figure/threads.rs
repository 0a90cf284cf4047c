//! The bars of threads: they hold the lock, want it, or hold it no more.

use super::layout::{BAR, Column, Lane, LaneOf, Layout, runs};
use super::shapes::{bar, cross, fitting, line, text};
use crate::client::ThreadId;
use crate::report::html::Element;
use crate::world::Action;

/// The relation of a thread to the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Out,
    Wants,
    Holds(Option<u64>),
    /// The thread is in its critical section, and its own clock says that its lease has ended.
    Late,
    Dead,
}

/// Draws the bars of all threads.
pub(super) fn draw(layout: &Layout<'_>) -> Vec<Element> {
    let mut shapes = Vec::new();
    for lane in &layout.lanes {
        if let LaneOf::Thread(thread) = lane.of {
            draw_lane(layout, lane, thread, &mut shapes);
        }
    }
    shapes
}

/// Returns the runs of steps after which at least two threads hold.
pub(super) fn overlaps(layout: &Layout<'_>) -> Vec<(usize, usize)> {
    let overlaps = runs(layout.columns.iter().map(|column| column.end.inside.len() > 1));
    overlaps.into_iter().filter(|(is_overlap, ..)| *is_overlap).map(|(_, from, to)| (from, to)).collect()
}

fn draw_lane(layout: &Layout<'_>, lane: &Lane, thread: ThreadId, shapes: &mut Vec<Element>) {
    let (y, text_y) = (lane.bar_y(), lane.bar_y() + BAR - 6);
    let mut is_dead = false;
    let stays = layout.columns.iter().map(|column| {
        is_dead |= dies(layout, column, thread);
        if is_dead { Stay::Dead } else { stay(column, thread) }
    });
    let stays = runs(stays);
    let death = stays.iter().find(|(stay, ..)| *stay == Stay::Dead).map(|(_, from, _)| layout.span(*from, 0).0);
    shapes.push(line("life", (2, y + BAR / 2), (death.unwrap_or(layout.width - 6), y + BAR / 2)));
    for (stay, from, to) in stays {
        let span = layout.span(from, to);
        match stay {
            Stay::Out => {}
            Stay::Dead => shapes.push(cross("fault-line", span.0, y + BAR / 2)),
            Stay::Wants => {
                shapes.push(bar("wants", span, y, BAR));
                shapes.extend(fitting("in-wants", span, text_y, &["wants the lock".into(), "wants".into()]));
            }
            Stay::Late => {
                shapes.push(bar("late", span, y, BAR));
                shapes.extend(fitting("in-late", span, text_y, &["its lease is over".into(), "over".into()]));
            }
            Stay::Holds(token) => {
                let name = &lane.name;
                let token = token.map(|token| layout.tokens.name(token));
                let texts = match token {
                    Some(token) => vec![format!("{name} holds, {token}"), token, name.clone()],
                    None => vec![format!("{name} holds"), name.clone()],
                };
                shapes.push(bar("holds", span, y, BAR));
                for (first, last) in overlaps(layout) {
                    if first < to && from < last {
                        shapes.push(bar("overlap", layout.span(first.max(from), last.min(to)), y, BAR));
                    }
                }
                let alone = overlaps(layout).first().map_or(span.1, |(first, _)| layout.span(*first, 0).0.min(span.1));
                // The name stands before the overlap, if there is room for it.
                let before = fitting("in-holds", (span.0, alone), text_y, &texts);
                shapes.extend(before.or_else(|| fitting("in-overlap", span, text_y, &texts)));
            }
        }
    }
    shapes.extend(overtakings(layout, lane, thread));
}

fn dies(layout: &Layout<'_>, column: &Column<'_>, thread: ThreadId) -> bool {
    matches!(column.end.action, Action::Kill(process) if layout.timeline.processes[thread].0 == process)
}

fn stay(column: &Column<'_>, thread: ThreadId) -> Stay {
    let row = column.end;
    let inside = row.inside.iter().find(|holder| holder.thread == thread);
    match inside {
        Some(holder) => Stay::Holds(holder.token),
        None if row.late.iter().any(|holder| holder.thread == thread) => Stay::Late,
        None if row.waiting.iter().any(|waiter| waiter.thread == thread) => Stay::Wants,
        None => Stay::Out,
    }
}

/// Counts on the bar of a waiter how often others entered, if this happens more than once.
fn overtakings(layout: &Layout<'_>, lane: &Lane, thread: ThreadId) -> Vec<Element> {
    let times = |column: &Column<'_>| {
        let waiter = column.end.waiting.iter().find(|waiter| waiter.thread == thread);
        waiter.map_or(0, |waiter| waiter.overtaken)
    };
    let counts = runs(layout.columns.iter().map(times));
    if counts.iter().all(|(times, ..)| *times < 2) {
        return vec![];
    }
    let counts = counts.into_iter().filter(|(times, ..)| *times > 0);
    let y = lane.bar_y() + BAR - 6;
    counts.map(|(times, from, _)| text("count", layout.span(from, 0).0, y, &format!("{times} ×"))).collect()
}
