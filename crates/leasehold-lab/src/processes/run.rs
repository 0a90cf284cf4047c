//! One run of each scene.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::RedisServer;
use tempfile::TempDir;

use super::crew::{Crew, Setting};
use super::judge::{Verdict, judge};
use super::notes::{self, Event, Note, WorkerId};
use super::options::{Form, Kills, Options, Store};
use super::report::{HEAD, Report};
use super::residue::residue;
use super::scene::{LEASE, Scene, Victim};
use super::worker::{check_state, prepare};

/// The time between two kills.
const TICK: Duration = Duration::from_secs(1);
/// The longest time between a death and the next start, if many are killed at once.
const DEAD_MAX: Duration = Duration::from_secs(2);
/// The longest time from the last start to the next kills: longer than anybody may wait.
const CALM_MAX: Duration = Duration::from_secs(6);

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
    let setting = Setting { scene, kills: options.kills, url: &url, dir: &state };
    let mut crew = Crew::start(setting, options.seed);
    let end = begun + options.time;
    let mut complaints = match options.kills {
        Kills::EachSecond => kill_each_second(&mut crew, (scene, &file), end),
        Kills::Waves => kill_in_waves(&mut crew, end),
    };
    let time = begun.elapsed();
    let (lives, late) = match options.kills {
        Kills::EachSecond => crew.dismiss(),
        Kills::Waves => crew.kill_all(),
    };
    complaints.extend(late);
    if options.kills == Kills::Waves {
        complaints.extend(residue(scene, &url, server.as_ref())?);
    }

    let (notes, parts) = notes::read(&file).map_err(|error| format!("the notes cannot be read: {error}"))?;
    let mut verdict = judge(scene, &notes, &lives);
    let killed = lives.deaths.len();
    if parts > killed {
        complaints.push(format!("{parts} lines are incomplete, and {killed} processes were killed"));
    }
    complaints.extend(check_state(scene, &state).err());
    complaints.extend(too_little_progress(&verdict, scene.least(options.time)));
    complaints.append(&mut verdict.violations);
    verdict.violations = complaints;
    let (least, store) = (scene.least(options.time), options.store.name().to_owned());
    Ok(Report { scene, store, seed: options.seed, kills: options.kills, time, least, killed, load, verdict })
}

/// The file of all notes, in the directory of the state.
pub(crate) const NOTES: &str = "notes.jsonl";

/// Kills one process a second. Returns what went wrong.
fn kill_each_second(crew: &mut Crew<'_>, (scene, file): (Scene, &Path), end: Instant) -> Vec<String> {
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
            complaints.extend(crew.replace(victim.number));
        }
    }
    thread::sleep(end.saturating_duration_since(Instant::now()));
    complaints
}

/// Kills from one process up to half of them at the same moment, starts each again at a moment of its own, and leaves them
/// alone for a while. Returns what went wrong.
fn kill_in_waves(crew: &mut Crew<'_>, end: Instant) -> Vec<String> {
    let mut complaints = Vec::new();
    loop {
        let calm = Duration::from_millis(crew.random.within(500, millis(CALM_MAX)));
        let now = Instant::now();
        if now + calm + DEAD_MAX >= end {
            thread::sleep(end.saturating_duration_since(now));
            return complaints;
        }
        thread::sleep(calm);
        let mut victims = crew.running();
        crew.random.shuffle(&mut victims);
        let half = victims.len() as u64 / 2;
        victims.truncate(crew.random.within(1, half) as usize);
        complaints.extend(crew.kill(&victims));
        let dead_since = Instant::now();
        let mut restarts: Vec<(u64, usize)> =
            victims.into_iter().map(|number| (crew.random.below(millis(DEAD_MAX)), number)).collect();
        restarts.sort_unstable();
        for (after_ms, number) in restarts {
            thread::sleep((dead_since + Duration::from_millis(after_ms)).saturating_duration_since(Instant::now()));
            crew.start_again(number);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a short time")
}

/// Returns the process that entered last, unless it has left.
fn holder(notes: &[Note]) -> Option<WorkerId> {
    let is_turn = |note: &&Note| matches!(note.event, Event::Enter { .. } | Event::Leave(_));
    let last = notes.iter().rfind(is_turn)?;
    matches!(last.event, Event::Enter { .. }).then_some(last.who)
}

/// Returns complaints about the processes that achieved too little.
fn too_little_progress(verdict: &Verdict, least: u64) -> Vec<String> {
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
        let client = Leasehold::builder(url).lease(LEASE).connect().await?;
        let asked = match scene {
            Scene::Buffer => client.condvar("probe").notify_one().await.map(drop),
            Scene::Readers => client.rw_lock("probe").try_read().await.map(drop),
            Scene::Machines => client.semaphore("probe", 1).try_acquire().await.map(drop),
            Scene::Jobs => client.latch("probe").keep(LEASE).create(1).await,
            Scene::Rounds => client.barrier("probe", 2).wait_for(Duration::ZERO).await.map(drop),
            Scene::Counter | Scene::Philosophers | Scene::Accounts | Scene::Leader => Ok(()),
        };
        client.close().await;
        asked
    });
    asked.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => format!("Unsupported: this store does not have what the scene needs ({error})"),
        _ => error.to_string(),
    })
}
