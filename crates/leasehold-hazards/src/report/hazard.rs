//! The section of one hazard.

use super::figure::{self, Figure};
use super::html::{Element, el};
use super::words;
use crate::judge::{Harm, Observable};
use crate::scene::{Findings, Scene, Timeline};
use crate::world::{Action, Choice, Row};

/// Writes the section of a hazard.
pub(super) fn section(scene: &Scene, findings: &Findings) -> Element {
    let title = el("h2").child(el("a").class("id").attr("href", format!("#{}", scene.id)).text(scene.id));
    let title = title.text(format!(" {}", words::capital(scene.title)));
    let head = el("header").child(title).child(chip(scene));
    let lock = el("p").class("lock").child(el("b").text("The lock: ")).text(format!("{}.", scene.lock));
    let mut section = el("section").attr("id", scene.id).child(head).child(lock).child(el("p").text(scene.story));
    if let Some((schedule, harm)) = &findings.flawed.schedule {
        let timeline = Timeline::of(&scene.flawed_search(), schedule);
        section = section.child(flawed_figure(scene, &timeline, schedule, *harm)).child(in_words(&timeline));
    } else {
        section = section.child(el("p").text("The search found no schedule that breaks this lock."));
    }
    section = section.child(facts(scene, findings));
    let remedy = el("p").class("remedy").child(el("b").text("The remedy in Leasehold: ")).text(scene.remedy);
    section = section.child(remedy);
    match our_schedule(scene, findings) {
        None => section,
        Some((schedule, harm)) => {
            let timeline = Timeline::of(&scene.our_search(), schedule);
            section.child(our_figure(scene, &timeline, harm)).child(in_words(&timeline))
        }
    }
}

/// Names the kind of a hazard.
pub(super) fn chip(scene: &Scene) -> Element {
    let class = if scene.seeks.is_exclusion() { "chip overlap" } else { "chip stuck" };
    el("span").class(class).text(words::kind(scene.seeks))
}

fn flawed_figure(scene: &Scene, timeline: &Timeline, schedule: &[Choice], harm: Harm) -> Element {
    let outcome = words::capital(&words::harm(harm, timeline));
    let caption = format!("A shortest schedule that breaks this lock has {} steps. {outcome}.", schedule.len());
    figure::draw(&Figure {
        id: format!("{}-breaks", scene.id),
        title: format!("{}, {}: the schedule that breaks the lock", scene.id, scene.title),
        description: format!("{} {outcome}. The same schedule follows in words.", scene.story),
        caption,
        timeline,
        harm: Some(harm),
        permits: None,
    })
}

/// Returns the schedule of Leasehold that is worth a figure, and the harm if it breaks Leasehold. Otherwise it is a late
/// write that the fence refuses, if the scene is about holders that overstay, or if a guarantee permits an overlap.
fn our_schedule<'a>(scene: &Scene, findings: &'a Findings) -> Option<(&'a [Choice], Option<Harm>)> {
    if let Some((schedule, harm)) = &findings.ours.schedule {
        return Some((schedule, Some(*harm)));
    }
    if scene.seeks != Observable::Overstay && scene.ours.permits.is_none() {
        return None;
    }
    let noted = |is_meant: fn(&Harm) -> bool| {
        let found = findings.ours.noted.iter().find(|(harm, ..)| is_meant(harm));
        found.map(|(.., schedule)| (&schedule[..], None))
    };
    noted(|harm| matches!(harm, Harm::Refused(_))).or_else(|| noted(|harm| matches!(harm, Harm::Overlap(..))))
}

fn our_figure(scene: &Scene, timeline: &Timeline, broken_by: Option<Harm>) -> Element {
    let has_overlap = timeline.rows.iter().any(|row| row.inside.len() > 1);
    let permits = scene.ours.permits.filter(|_| has_overlap && broken_by.is_none());
    let caption = our_caption(timeline, broken_by, permits);
    figure::draw(&Figure {
        id: format!("{}-leasehold", scene.id),
        title: format!("{}, {}: Leasehold in the same scene", scene.id, scene.title),
        description: format!("{caption} The same schedule follows in words."),
        caption,
        timeline,
        harm: broken_by,
        permits,
    })
}

fn our_caption(timeline: &Timeline, broken_by: Option<Harm>, permits: Option<&str>) -> String {
    if let Some(harm) = broken_by {
        let outcome = words::capital(&words::harm(harm, timeline));
        return format!("This schedule breaks Leasehold in the same scene. {outcome}.");
    }
    let is_refused = |row: &&Row| matches!(row.action, Action::Write { token: Some(_), is_accepted: false });
    let late = timeline.rows.iter().find(is_refused).and_then(|row| row.thread).map(|thread| timeline.spoken(thread));
    let begin = match (permits, &late) {
        (Some(guarantee), _) => format!("A documented limit permits this overlap: “{guarantee}”."),
        (None, Some(late)) => {
            format!("{late} knows by its own clock that its lease is over, before the server grants to anybody else.")
        }
        (None, None) => String::new(),
    };
    let end = late.map_or_else(String::new, |late| {
        format!(" The write of {late} arrives late, and the resource refuses it: its token is too small.")
    });
    format!("Leasehold in the same scene. {begin}{end}")
}

/// Writes a schedule as a list.
fn in_words(timeline: &Timeline) -> Element {
    let items = timeline.rows.iter().map(|row| {
        let item = el("li").child(el("span").class("at").text(words::time(row.at_ms)));
        let item = match row.actor.is_empty() {
            true => item.text(" "),
            false => item.text(" ").child(el("b").text(&row.actor)).text(" "),
        };
        item.text(timeline.tell(row)).child(el("span").class("kept-by").text(&row.holds))
    });
    let list = el("ol").children(items);
    el("details").child(el("summary").text("This schedule in words")).child(list)
}

/// Writes the measured row.
fn facts(scene: &Scene, findings: &Findings) -> Element {
    let fact = |name: &str, value: &str| el("div").child(el("dt").text(name)).child(el("dd").text(value));
    let Findings { flawed, ours } = findings;
    let steps = flawed.steps().map_or_else(|| "none".into(), words::number);
    let lock = el("dl").child(fact("Shortest schedule", &format!("{steps} steps")));
    let lock = lock.child(fact("States until found", &words::states(flawed)));
    let lock = lock.child(fact("Time of the search", &words::took(flawed.took)));
    let own = el("dl").child(fact("States searched", &words::states(ours)));
    let own = own.child(fact("Exclusion", &words::exclusion(scene, ours)));
    let mut own = own.child(fact("Fenced resource", &words::fenced(ours)));
    if let Some(worst) = scene.tell_worst(ours) {
        own = own.child(el("div").class("wide").child(el("dt").text("At worst")).child(el("dd").text(worst)));
    }
    if let Some(guarantee) = scene.ours.permits {
        own = own.child(el("div").class("wide").child(el("dt").text("Permitted by")).child(el("dd").text(guarantee)));
    }
    let lock = el("div").class("card").child(el("h3").text("This lock")).child(lock);
    let own = el("div").class("card").child(el("h3").text(format!("Leasehold on {}", scene.ours.store))).child(own);
    el("div").class("facts").child(lock).child(own)
}
