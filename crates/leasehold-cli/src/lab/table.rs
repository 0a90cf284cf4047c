//! `leasehold lab table`: the results of all searches.

use leasehold_hazards::scene::Scene;

use super::{Live, live};
use crate::exit::{Exit, Failure};
use crate::show;

pub(super) fn run(args: Live) -> Result<Exit, Failure> {
    let [live_head, live_rule] = if args.live.is_some() { [" on real servers |", "---|"] } else { ["", ""] };
    live::check(args, Scene::all())?;
    let flawed = "| hazard | lock | harm | steps | states | ms |";
    let ours = "Leasehold on | states | s | exclusion | fenced resource | at worst |";
    show::print(&[
        format!("{flawed}{live_head} {ours}{live_head}"),
        format!("|---|---|---|---|---|---|{live_rule}---|---|---|---|---|---|{live_rule}"),
    ])?;
    let mut all_as_promised = true;
    for scene in Scene::all() {
        all_as_promised &= row(scene, args)?;
    }
    Ok(if all_as_promised { Exit::Done } else { Exit::Nothing })
}

/// Prints the row of a scene. Returns whether everything was as promised.
fn row(scene: &Scene, args: Live) -> Result<bool, Failure> {
    let flawed = scene.break_it();
    let schedule = flawed.schedule.as_ref().map(|(schedule, _)| schedule);
    let runs = match (args.live, schedule) {
        (Some(count), Some(schedule)) => Some(live::break_it(scene, schedule, count)?),
        _ => None,
    };
    let trials = args.live.map(|count| live::try_ours(scene, count)).transpose()?;
    let ours = scene.try_ours();
    let [exclusion, fenced] = scene.tell_ours(&ours);
    let steps = schedule.map_or_else(|| "not found".to_owned(), |schedule| schedule.len().to_string());
    let on_servers = runs.as_ref().map_or_else(String::new, |runs| format!(" {runs} |"));
    let ours_on_servers = trials.as_ref().map_or_else(String::new, |trials| format!(" {trials} |"));
    show::print(&[format!(
        "| {}: {} | {} | {} | {steps} | {} | {} |{on_servers} `{}` | {} | {:.1} | {exclusion} | {fenced} | {} \
         |{ours_on_servers}",
        scene.id,
        scene.title,
        scene.lock,
        scene.seeks,
        flawed.states,
        flawed.took.as_millis(),
        scene.ours.store,
        ours.states,
        ours.took.as_secs_f64(),
        scene.tell_worst(&ours).unwrap_or_default(),
    )])?;
    let kept = ours.schedule.is_none() && ours.is_whole;
    let kept_live = trials.is_none_or(|trials| trials.are_as_promised());
    Ok(schedule.is_some() && kept && kept_live && runs.is_none_or(|runs| runs.is_whole()))
}
