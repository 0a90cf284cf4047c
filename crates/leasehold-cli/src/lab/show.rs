//! `leasehold lab show`: one hazard.

use leasehold_hazards::judge::Harm;
use leasehold_hazards::scene::{Scene, Timeline};
use leasehold_hazards::world::{Choice, Found};

use super::{Live, live};
use crate::exit::{Exit, Failure};
use crate::show;

pub(super) fn run(scene: &Scene, args: Live) -> Result<Exit, Failure> {
    live::check(args, std::slice::from_ref(scene))?;
    show::print(&[format!("{}: {}", scene.id, scene.title), format!("Lock: {}", scene.lock), String::new()])?;
    show::print(&wrapped(scene.story))?;
    let found = scene.break_it();
    let Some((schedule, harm)) = &found.schedule else {
        show::print(&[String::new(), format!("No schedule among {} states breaks it.", found.states)])?;
        return Ok(Exit::Nothing);
    };
    let (steps, states, ms) = (schedule.len(), found.states, found.took.as_millis());
    show::print(&[
        String::new(),
        format!("A shortest schedule ({steps} steps; {states} states searched in {ms} ms):"),
    ])?;
    show_schedule(scene, schedule, *harm)?;
    let broken = args.live.map(|count| live::break_it(scene, schedule, count)).transpose()?;
    if let Some(runs) = &broken {
        show::print(&[String::new(), format!("On real servers: {runs} runs did the same harm.")])?;
    }
    let kept = show_ours(scene)?;
    let tried = args.live.map(|count| live::try_ours(scene, count)).transpose()?;
    if let Some(trials) = &tried {
        show::print(&[String::new(), format!("On real servers, {trials}.")])?;
    }
    let is_shown = broken.is_none_or(|runs| runs.is_whole()) && tried.is_none_or(|trials| trials.are_as_promised());
    Ok(if kept && is_shown { Exit::Done } else { Exit::Nothing })
}

fn show_schedule(scene: &Scene, schedule: &[Choice], harm: Harm) -> Result<(), Failure> {
    let timeline = Timeline::of(&scene.flawed_search(), schedule);
    let mut lines = vec![String::new()];
    lines.extend(timeline.lines().iter().map(|line| format!("  {line}")));
    lines.extend([String::new(), harm.tell(&timeline.names)]);
    show::print(&lines).map(drop)
}

/// Shows the search of all schedules of Leasehold. Returns whether it kept its promises.
fn show_ours(scene: &Scene) -> Result<bool, Failure> {
    show::print(&[String::new(), format!("Leasehold on {}", scene.ours.store)])?;
    show::print(&wrapped(scene.remedy))?;
    show::warn("searching the schedules of Leasehold; this can take a minute");
    let found = scene.try_ours();
    let [exclusion, fenced] = scene.tell_ours(&found);
    let mut lines = vec![
        String::new(),
        format!("{} with the same faults, in {:.1} s:", states(&found), found.took.as_secs_f64()),
        format!("  exclusion        {exclusion}"),
        format!("  fenced resource  {fenced}"),
    ];
    lines.extend(scene.tell_worst(&found).map(|worst| format!("  at worst         {worst}")));
    show::print(&lines)?;
    Ok(found.schedule.is_none() && found.is_whole)
}

/// Tells how many states a search has reached.
fn states(found: &Found) -> String {
    match found.is_whole {
        true => format!("All {} states", found.states),
        false => format!("{} states, which are not all,", found.states),
    }
}

/// Breaks a text into lines for a terminal.
fn wrapped(text: &str) -> Vec<String> {
    const MOST_COLUMNS: usize = 100;
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = terminal.map_or(MOST_COLUMNS, |size| usize::from(size.ws_col).clamp(40, MOST_COLUMNS));
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < columns => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
