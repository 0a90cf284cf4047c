//! The beginning of the page: what it shows, the list of hazards, the legend and the table.

use super::hazard::chip;
use super::html::{Element, el};
use super::words;
use crate::scene::{Findings, Scene};

/// Writes the beginning.
pub(super) fn head(results: &[(&Scene, Findings)]) -> Element {
    let overlaps = results.iter().filter(|(scene, _)| scene.seeks.is_exclusion()).count();
    let lead = format!(
        "This page shows {} hazards of distributed locks, each with a lock from a tutorial or a library. A search \
         found a shortest schedule that breaks each lock: {overlaps} schedules end with two holders at once. The same \
         search tried the schedules of Leasehold with the same faults.",
        results.len()
    );
    el("header")
        .class("top")
        .child(el("h1").text("How distributed locks break"))
        .child(el("p").class("lead").text(lead))
}

/// Writes the list of hazards.
pub(super) fn contents(results: &[(&Scene, Findings)]) -> Element {
    let items = results.iter().map(|(scene, _)| {
        let link = el("a").attr("href", format!("#{}", scene.id));
        let link = link.child(el("span").class("id").text(scene.id)).text(words::capital(scene.title));
        el("li").child(link).child(chip(scene))
    });
    let list = el("ol").children(items);
    el("nav").attr("aria-labelledby", "contents").child(el("h2").attr("id", "contents").text("Hazards")).child(list)
}

/// Explains the figures.
pub(super) fn legend() -> Element {
    let key = |class: &str, text: &str| {
        let sample = el("span").class(format!("sample {class}")).attr("aria-hidden", "true");
        el("li").child(sample).text(text)
    };
    let list = el("ul")
        .class("legend")
        .child(key("key-holds", "the thread is in its critical section"))
        .child(key("key-wants", "the thread wants the lock"))
        .child(key("key-overlap", "two threads hold at once"))
        .child(key("key-late", "the thread knows that its lease is over"))
        .child(key("key-fault", "a fault: a crash, a loss, a jump of a clock (two bars: a pause)"))
        .child(key("key-pass", "time passes"))
        .child(key("key-kept", "the server holds this; the height is the time that is left"))
        .child(key("key-fence", "the resource has seen this token, and refuses smaller ones"));
    let text = "A dot is a command, a ring is a thread that enters, and a square is a write. Each column is one step \
                of the schedule, and each lane is a thread or a server. Steps without a command, such as the start \
                of a process, have no column. Time passes only where the axis shows it.";
    el("section")
        .attr("aria-labelledby", "legend")
        .child(el("h2").attr("id", "legend").text("How to read the figures"))
        .child(el("p").text(text))
        .child(list)
}

/// Writes the table.
pub(super) fn table(results: &[(&Scene, Findings)]) -> Element {
    let names =
        ["Hazard", "Harm", "Steps", "States", "Time", "Store", "States", "Exclusion", "Fenced resource", "At worst"];
    let group = |span, name: &str| el("th").number("colspan", span).attr("scope", "colgroup").text(name);
    let groups = el("tr").child(group(2, "")).child(group(3, "The lock breaks")).child(group(5, "Leasehold"));
    let columns = el("tr").children(names.iter().map(|name| el("th").attr("scope", "col").text(*name)));
    let rows = results.iter().map(|(scene, findings)| row(scene, findings));
    let head = el("thead").child(groups).child(columns);
    let table = el("table").child(head).child(el("tbody").children(rows));
    let note = "Steps: the length of the shortest schedule. States: the states that the search reached. Exclusion: \
                whether two holders ever believe at once that they hold. Fenced resource: the writes with a token \
                that is too small. At worst: the largest harm of the kind that the row is about. Times depend on \
                the machine and on the build.";
    el("section")
        .attr("aria-labelledby", "table")
        .child(el("h2").attr("id", "table").text("Measurements"))
        .child(
            el("div")
                .class("scroll")
                .number("tabindex", 0)
                .attr("role", "group")
                .attr("aria-label", "Measurements")
                .child(table),
        )
        .child(el("p").class("small").text(note))
}

fn row(scene: &Scene, findings: &Findings) -> Element {
    let Findings { flawed, ours } = findings;
    let cell = |text: &str| el("td").text(text);
    let count = |text: &str| el("td").class("number").text(text);
    let link = el("a").attr("href", format!("#{}", scene.id)).child(el("span").class("id").text(scene.id));
    let name = el("th").attr("scope", "row").child(link.text(words::capital(scene.title)));
    el("tr")
        .child(name)
        .child(el("td").child(chip(scene)))
        .child(count(&flawed.steps().map_or_else(|| "none".into(), words::number)))
        .child(count(&words::states(flawed)))
        .child(count(&words::took(flawed.took)))
        .child(cell(scene.ours.store))
        .child(count(&words::states(ours)))
        .child(cell(&words::exclusion(scene, ours)))
        .child(cell(&words::fenced(ours)))
        .child(cell(&scene.tell_worst(ours).unwrap_or_default()))
}
