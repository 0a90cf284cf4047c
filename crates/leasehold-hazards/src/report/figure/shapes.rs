//! The shapes of a figure.

use crate::report::html::{Element, el};

pub(super) fn rect(class: &str, (x0, x1): (i32, i32), y: i32, height: i32) -> Element {
    let width = (x1 - x0).max(0);
    el("rect").class(class).number("x", x0).number("y", y).number("width", width).number("height", height)
}

/// A rectangle with round corners.
pub(super) fn bar(class: &str, span: (i32, i32), y: i32, height: i32) -> Element {
    rect(class, span, y, height).number("rx", 4)
}

pub(super) fn line(class: &str, (x0, y0): (i32, i32), (x1, y1): (i32, i32)) -> Element {
    el("line").class(class).number("x1", x0).number("y1", y0).number("x2", x1).number("y2", y1)
}

pub(super) fn text(class: &str, x: i32, y: i32, text: &str) -> Element {
    el("text").class(class).number("x", x).number("y", y).text(text)
}

pub(super) fn path(class: &str, d: &str) -> Element {
    el("path").class(class).attr("d", d)
}

/// A cross.
pub(super) fn cross(class: &str, x: i32, y: i32) -> Element {
    let (left, right, top, bottom) = (x - 4, x + 4, y - 4, y + 4);
    path(class, &format!("M{left} {top}L{right} {bottom}M{right} {top}L{left} {bottom}"))
}

/// A small triangle that points down, or up.
pub(super) fn arrow(class: &str, x: i32, y: i32, by: i32) -> Element {
    path(class, &format!("M{} {y}L{} {y}L{x} {}Z", x - 3, x + 3, y + by))
}

/// Writes the first text that fits into a bar, if one does.
pub(super) fn fitting(class: &str, span: (i32, i32), y: i32, texts: &[String]) -> Option<Element> {
    let room = span.1 - span.0 - 10;
    let fits = texts.iter().find(|text| super::label::width(text) <= room)?;
    Some(text(class, span.0 + 7, y, fits))
}
