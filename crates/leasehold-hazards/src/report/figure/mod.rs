//! The figure of a timeline: one lane for each thread and each server, and one column for each step.
//!
//! ```text
//!                0 s                1 s
//!                                          A and B hold at once
//!                SET NX                    ━━━━━━━━━━━━━━━━━━━━
//!      A         ●  OK
//!                ▇▇ A holds ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨▨
//!                │                         SET NX
//!      B         │                         ●  OK
//!                │                         ▨▨ B holds ▨▨▨▨▨▨▨▨▨
//!      server    ▼ lock = a1               ▼ lock = b1
//! ```
//!
//! The names of the lanes are a picture of their own, so that they stay in view when a narrow screen scrolls the steps.

mod band;
mod draw;
mod label;
mod layout;
mod marks;
mod servers;
mod shapes;
mod threads;

use self::layout::Layout;
use super::html::{Element, el};
use crate::judge::Harm;
use crate::scene::Timeline;

/// The least width of the steps, so that the label of the harm has room.
const LEAST: i32 = 240;

/// A figure.
pub(super) struct Figure<'a> {
    /// The prefix of the IDs in the page.
    pub(super) id: String,
    /// The title, for readers who do not see the figure.
    pub(super) title: String,
    /// The description, for readers who do not see the figure.
    pub(super) description: String,
    /// The text below the figure.
    pub(super) caption: String,
    /// The schedule.
    pub(super) timeline: &'a Timeline,
    /// The harm that the schedule ends with.
    pub(super) harm: Option<Harm>,
    /// The guarantee that permits the harm.
    pub(super) permits: Option<&'a str>,
}

/// Draws a figure.
pub(super) fn draw(figure: &Figure<'_>) -> Element {
    let layout = Layout::of(figure.timeline, LEAST);
    let (title_id, text_id) = (format!("{}-title", figure.id), format!("{}-text", figure.id));
    let plot = picture("plot", layout.width, layout.height)
        .attr("role", "img")
        .attr("aria-labelledby", format!("{title_id} {text_id}"))
        .child(el("title").attr("id", title_id).text(&figure.title))
        .child(el("desc").attr("id", text_id).text(&figure.description))
        .children(draw::ground(&layout))
        .children(draw::wires(&layout))
        .children(band::draw(&layout, figure.harm, figure.permits))
        .children(threads::draw(&layout))
        .children(servers::draw(&layout))
        .children(draw::marks(&layout));
    let width = layout.names_width();
    let names = picture("names", width, layout.height).attr("aria-hidden", "true");
    let names = names.children(draw::names(&layout, width));
    let scroll = el("div").class("scroll").number("tabindex", 0).attr("role", "group");
    let scroll = scroll.attr("aria-label", &figure.title).child(el("div").class("lanes").child(names).child(plot));
    let legend = layout.tokens.legend().map(|legend| format!(" {legend}")).unwrap_or_default();
    let caption = el("figcaption").text(format!("{}{legend}", figure.caption));
    el("figure").attr("id", &figure.id).child(scroll).child(caption)
}

fn picture(class: &'static str, width: i32, height: i32) -> Element {
    el("svg")
        .class(class)
        .attr("viewBox", format!("0 0 {width} {height}"))
        .number("width", width)
        .number("height", height)
        .attr("style", format!("--width:{width}"))
}
