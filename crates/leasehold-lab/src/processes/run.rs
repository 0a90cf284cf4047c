//! One run of each scene.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::RedisServer;
use tempfile::TempDir;

use super::crew::Crew;
use super::judge::{Verdict, judge};
use super::notes::{self, Event, Note, Who};
use super::options::{Form, Options, Store};
use super::report::{HEAD, Report};
use super::scene::{Scene, Victim};
use super::worker::{is_whole, prepare};

/// The time between two kills.
const TICK: Duration = Duration::from_secs(1);

/// Plays the scenes one after the other, and prints the results.
pub(crate) fn run(options: &Options) -> ExitCode {
    if options.form == Form::Markdown {
        println!("{HEAD}");
    }
    let mut is_clean = true;
    for &scene in &options.scenes {
        match play(options, scene) {
            Ok(report) => {
                is_clean &= report.is_clean();
                match options.form {
                    Form::Words => print!("{}", report.words()),
                    Form::Markdown => println!("{}", report.row()),
                }
                report.verdict.violations.iter().take(20).for_each(|violation| eprintln!("  {violation}"));
                if !report.is_clean() {
                    eprintln!("  again: {}", options.replay(scene));
                }
            }
            Err(why) => {
                is_clean = false;
                eprintln!("{} on {}: {why}", scene.name(), options.store.name());
            }
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(options: &Options, scene: Scene) -> Result<Report, String> {
    let dir = TempDir::with_prefix("leasehold-processes-").map_err(|error| format!("no directory: {error}"))?;
    let server = (options.store == Store::Redis).then(RedisServer::start);
    let url = match (&options.store, &server) {
        (Store::Url(url), _) => url.clone(),
        (_, Some(server)) => server.url(),
        (_, None) => format!("file:{}", dir.path().join("store").display()),
    };
    check_support(scene, &url)?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let state = dir.path().join("state");
    prepare(scene, &state).map_err(|error| format!("no state: {error}"))?;
    let file = state.join(NOTES);
    let begun = Instant::now();
    let mut crew = Crew::start(scene, (&url, &state), options.seed);
    let mut complaints = kill_until(&mut crew, (scene, &file), begun + options.time);
    let time = begun.elapsed();
    let (deaths, late) = crew.dismiss();
    complaints.extend(late);

    let (notes, parts) = notes::read(&file).map_err(|error| format!("the notes cannot be read: {error}"))?;
    let mut verdict = judge(scene, &notes, &deaths);
    if parts > deaths.len() {
        complaints.push(format!("{parts} lines are incomplete, and {} processes were killed", deaths.len()));
    }
    complaints.extend(is_whole(scene, &state).err());
    complaints.extend(short(&verdict, scene.least(options.time)));
    complaints.append(&mut verdict.violations);
    verdict.violations = complaints;
    let (least, kills, store) = (scene.least(options.time), deaths.len(), options.store.name().to_owned());
    Ok(Report { scene, store, seed: options.seed, time, least, kills, load, verdict })
}

/// The file of all notes, in the directory of the state.
pub(crate) const NOTES: &str = "notes.jsonl";

/// Kills one process a second. Returns what went wrong.
fn kill_until(crew: &mut Crew<'_>, (scene, file): (Scene, &Path), end: Instant) -> Vec<String> {
    let (mut next, mut complaints) = (Instant::now() + TICK, Vec::new());
    while next < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += TICK;
        let victim = match scene.victim() {
            Victim::Anybody => Some(crew.any()),
            // While nobody leads, nobody is killed.
            Victim::Holder => notes::read(file).ok().and_then(|(notes, _)| holder(&notes)),
        };
        if let Some(victim) = victim.filter(|victim| crew.has(*victim)) {
            complaints.extend(crew.replace(victim));
        }
    }
    thread::sleep(end.saturating_duration_since(Instant::now()));
    complaints
}

/// Returns the process that entered last, unless it has left.
fn holder(notes: &[Note]) -> Option<Who> {
    let is_turn = |note: &&Note| matches!(note.event, Event::Enter { .. } | Event::Leave(_));
    let last = notes.iter().rfind(is_turn)?;
    matches!(last.event, Event::Enter { .. }).then_some(last.who)
}

/// Returns complaints about the processes that achieved too little.
fn short(verdict: &Verdict, least: u64) -> Vec<String> {
    let achieved = verdict.progress.iter().enumerate();
    let short = achieved.filter(|(_, sections)| **sections < least);
    let mut complaints: Vec<String> = short
        .map(|(number, sections)| format!("process {number}: {sections} sections, at least {least} wanted"))
        .collect();
    if verdict.progress.iter().sum::<u64>() == 0 {
        complaints.push("no section at all: the run proves nothing".into());
    }
    complaints
}

/// Asks a store whether it has what the scene needs.
fn check_support(scene: Scene, url: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(|error| format!("no runtime: {error}"))?.block_on(async {
        let client = Leasehold::connect(url).await?;
        let asked = match scene {
            Scene::Buffer => client.condvar("probe").notify_one().await.map(drop),
            Scene::Readers => client.rw_lock("probe").try_read().await.map(drop),
            Scene::Philosophers | Scene::Accounts | Scene::Leader => Ok(()),
        };
        client.close().await;
        asked
    });
    asked.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => format!("Unsupported: this store does not have what the scene needs ({error})"),
        _ => error.to_string(),
    })
}
