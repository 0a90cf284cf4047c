//! The report: one page of HTML with a figure of each schedule that breaks a lock.
//!
//! The page needs no script, no font and no other file, so it can be mailed, printed and kept. It is well-formed XML, so
//! that a test can parse it.
//!
//! | File | Contents |
//! |---|---|
//! | `html.rs` | elements, and the one place that escapes texts |
//! | `summary.rs` | the beginning: contents, legend, table |
//! | `hazard.rs` | the section of a hazard |
//! | `figure/` | the figure of a timeline |
//! | `words.rs` | numbers, times and harm in words |
//! | `style.css` | the look, in light, in dark and on paper |

mod figure;
mod hazard;
mod html;
mod summary;
mod words;

use self::html::{Element, el};
use crate::scene::{Findings, Scene};

/// Texts of the style sheet are not escaped by browsers, so it contains none of `&`, `<`, `>` and `"`.
const STYLE: &str = include_str!("style.css");

/// Returns the report as one page of HTML, with a section for each scene in the order of `results`.
///
/// The caller searches, one scene after another, and can show its progress. A release build searches all scenes in about a
/// minute.
///
/// # Examples
/// ```
/// use leasehold_hazards::report;
/// use leasehold_hazards::scene::Scene;
///
/// let scenes = Scene::all().iter().filter(|scene| scene.id == "H9");
/// let results: Vec<_> = scenes.map(|scene| (scene, scene.search())).collect();
/// let page = report::page(&results);
/// assert!(page.starts_with("<!DOCTYPE html>"));
/// ```
#[must_use]
pub fn page(results: &[(&Scene, Findings)]) -> String {
    let main = el("main")
        .child(summary::head(results))
        .child(summary::contents(results))
        .child(summary::legend())
        .child(summary::table(results))
        .children(results.iter().map(|(scene, findings)| hazard::section(scene, findings)));
    let html = el("html").attr("lang", "en").child(head()).child(el("body").child(patterns()).child(main));
    format!("<!DOCTYPE html>\n{html}\n")
}

/// The text by which a page of the report can be recognized.
pub const GENERATOR: &str = "leasehold lab report";

fn head() -> Element {
    el("head")
        .child(el("meta").attr("charset", "utf-8"))
        .child(el("meta").attr("name", "viewport").attr("content", "width=device-width, initial-scale=1"))
        .child(el("meta").attr("name", "color-scheme").attr("content", "light dark"))
        .child(el("meta").attr("name", "generator").attr("content", GENERATOR))
        .child(el("title").text("How distributed locks break"))
        .child(el("style").text(STYLE))
}

/// The hatches of all figures.
fn patterns() -> Element {
    let hatch = |id: &str, class: &str, d: &str| {
        let pattern = el("pattern").attr("id", id).number("width", 8).number("height", 8);
        let pattern = pattern.attr("patternUnits", "userSpaceOnUse");
        let ground = el("rect").class(format!("{class}-ground")).number("width", 8).number("height", 8);
        pattern.child(ground).child(el("path").class(class).attr("d", d))
    };
    let rising = "M-2 2L2 -2M0 8L8 0M6 10L10 6";
    let falling = "M-2 6L2 10M0 0L8 8M6 -2L10 2";
    let hatches = el("defs")
        .child(hatch("hatch-overlap", "hatch-overlap", rising))
        .child(hatch("hatch-wants", "hatch-wants", falling))
        .child(hatch("hatch-none", "hatch-none", falling));
    el("svg").class("patterns").number("width", 0).number("height", 0).attr("aria-hidden", "true").child(hatches)
}
