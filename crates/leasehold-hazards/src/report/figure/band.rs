//! The region of the harm: where two threads hold at once, or where nobody is granted.

use super::layout::{Layout, TOP};
use super::shapes::{line, rect, text};
use super::{label, threads};
use crate::judge::Harm;
use crate::report::html::{Element, el};
use crate::report::words;
use crate::text::list;

/// A region over some steps, with its label.
struct Band {
    class: &'static str,
    span: (i32, i32),
    label: String,
}

/// Draws the regions of an overlap. If there is none, draws the region of another harm.
pub(super) fn draw(layout: &Layout<'_>, harm: Option<Harm>, permits: Option<&str>) -> Vec<Element> {
    let overlaps: Vec<_> = threads::overlaps(layout).into_iter().map(|overlap| of_overlap(layout, overlap)).collect();
    let bands = match harm {
        Some(harm) if overlaps.is_empty() => of_harm(layout, harm).into_iter().collect(),
        _ => overlaps,
    };
    bands.iter().flat_map(|band| draw_band(layout, band, permits)).collect()
}

fn of_overlap(layout: &Layout<'_>, (from, to): (usize, usize)) -> Band {
    let holders = &layout.columns[from].end.inside;
    let names: Vec<_> = holders.iter().map(|holder| layout.timeline.spoken(holder.thread)).collect();
    Band { class: "overlap", span: layout.span(from, to), label: format!("{} hold at once", list(&names)) }
}

fn of_harm(layout: &Layout<'_>, harm: Harm) -> Option<Band> {
    let columns = &layout.columns;
    let rows = || columns.iter().map(|column| column.end);
    let begin = match harm {
        Harm::Idle(_) => {
            rows().rposition(|row| !row.inside.is_empty() || row.waiting.is_empty()).map_or(0, |at| at + 1)
        }
        Harm::Overtaken(thread, _) => rows().position(|row| row.waiting.iter().any(|it| it.thread == thread))?,
        Harm::Overrun(thread, _) => rows().position(|row| {
            let mut limits = row.waiting.iter().filter(|it| it.thread == thread).filter_map(|it| it.limit_end_ms);
            limits.any(|end_ms| row.at_ms >= end_ms)
        })?,
        Harm::Woken(_) => columns.len().checked_sub(1)?,
        _ => return None,
    };
    let span = match harm {
        Harm::Woken(_) => columns.get(begin).map(|column| (column.x, column.x + column.width))?,
        _ => layout.span(begin, columns.len()),
    };
    Some(Band { class: "stuck", span, label: words::harm(harm, layout.timeline) })
}

fn draw_band(layout: &Layout<'_>, band: &Band, permits: Option<&str>) -> Vec<Element> {
    let ((x0, x1), (top, bottom)) = (band.span, layout.thread_lanes());
    let label = if permits.is_some() { format!("{}: permitted", band.label) } else { band.label.clone() };
    // The label is above its region. If it is wider, it begins before it.
    let width = label::bold_width(&label);
    let x = (layout.width - 8 - width).min(x0 + 4).max(4);
    let y = TOP - 10;
    let class = |part: &str| format!("{part} {}", band.class);
    vec![
        rect(&class("band"), band.span, top - 4, bottom - top + 4),
        line(&class("brace"), (x0, top - 4), (x1, top - 4)),
        el("g").class(class("band-label")).child(text("", x, y, &label)),
    ]
}
