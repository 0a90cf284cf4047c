//! A worker process: it plays its part of a scene until its standard input ends.

mod accounts;
mod buffer;
mod counter;
mod jobs;
mod leader;
mod machines;
mod philosophers;
mod readers;
pub(crate) mod rounds;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Leasehold, Released};
use leasehold_testkit::Random;
use tokio::sync::watch;
use tokio::time::sleep;

use super::notes::{Ending, Event, Notes, Share, Use, WorkerId};
use super::options::Kills;
use super::run::NOTES;
use super::scene::{LEASE, Scene};
use crate::chaos::die_with_parent;

pub(crate) use accounts::{ACCOUNTS, account};
pub(crate) use machines::MACHINES;

/// Writes the state with which a scene begins.
pub(crate) fn prepare(scene: Scene, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    match scene {
        Scene::Accounts => accounts::open(dir),
        Scene::Buffer => buffer::open(dir),
        Scene::Counter => counter::open(dir),
        Scene::Jobs => jobs::open(dir),
        Scene::Readers => readers::open(dir),
        Scene::Rounds => rounds::open(dir),
        Scene::Machines | Scene::Philosophers | Scene::Leader => Ok(()),
    }
}

/// Judges the state at the end, when all workers are gone.
pub(crate) fn check_state(scene: Scene, dir: &Path) -> Result<(), String> {
    match scene {
        Scene::Accounts => accounts::audit(dir),
        Scene::Buffer => buffer::read(dir).map(drop),
        _ => Ok(()),
    }
}

/// A worker at its post.
struct Worker {
    client: Leasehold,
    who: WorkerId,
    dir: PathBuf,
    notes: Notes,
    random: Random,
    stop: watch::Receiver<bool>,
    kills: Kills,
    section: u64,
}

/// `processes-worker URL SCENE KILLS NUMBER LIFE SEED DIR`
pub(crate) fn run(mut args: impl Iterator<Item = String>) -> ExitCode {
    let parsed = (|| {
        let what = (args.next()?, Scene::named(&args.next()?)?, Kills::named(&args.next()?)?);
        let who = WorkerId { number: args.next()?.parse().ok()?, life: args.next()?.parse().ok()? };
        Some((what, who, args.next()?.parse().ok()?, PathBuf::from(args.next()?)))
    })();
    let Some(((url, scene, kills), who, seed, dir)) = parsed else {
        eprintln!("processes-worker is started by `leasehold-lab processes`");
        return ExitCode::from(2);
    };
    die_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.expect("a runtime can be started").block_on(work((&url, scene, kills), who, seed, dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("process {}.{}: {error}", who.number, who.life);
            ExitCode::FAILURE
        }
    }
}

async fn work(
    (url, scene, kills): (&str, Scene, Kills),
    who: WorkerId,
    seed: u64,
    dir: PathBuf,
) -> leasehold::Result<()> {
    let (ends, stop) = watch::channel(false);
    std::thread::spawn(move || {
        // The end of the input is the order to stop. The lab writes nothing into it.
        let _ended = io::stdin().lock().read_to_end(&mut Vec::new());
        ends.send_replace(true);
    });
    let label = format!("{}.{}", who.number, who.life);
    let client = Leasehold::builder(url).holder(&label).lease(LEASE).connect().await?;
    let notes = Notes::append_to(&dir.join(NOTES), who).expect("a directory of the lab can be written");
    let mut worker =
        Worker { client: client.clone(), who, dir, notes, random: Random::new(seed), stop, kills, section: 0 };
    match scene {
        Scene::Counter => counter::count(&mut worker).await?,
        Scene::Machines => machines::use_them(&mut worker).await?,
        Scene::Jobs => jobs::work(&mut worker).await?,
        Scene::Rounds => rounds::play(&mut worker).await?,
        Scene::Philosophers => philosophers::dine(&mut worker).await?,
        Scene::Readers => readers::work(&mut worker).await?,
        Scene::Buffer => buffer::work(&mut worker).await?,
        Scene::Accounts => accounts::work(&mut worker).await?,
        Scene::Leader => leader::campaign(&mut worker).await?,
    }
    drop(worker);
    client.close().await;
    Ok(())
}

impl Worker {
    /// Waits for a lock. Returns `None` when the worker has to stop: the future is dropped then.
    async fn get<T>(&mut self, waiting: impl Future<Output = leasehold::Result<T>>) -> leasehold::Result<Option<T>> {
        self.note(Event::Wait);
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {
                self.note(Event::Stopped);
                Ok(None)
            }
            got = waiting => got.map(Some),
        }
    }

    /// Notes that a section begins. It uses these resources.
    fn enter(&mut self, uses: Vec<Use>) {
        self.section += 1;
        self.notes.write(self.section, Event::Enter(uses));
    }

    /// Notes that the section has ended. The next step is the release.
    fn leave(&mut self, ending: Ending) {
        self.notes.write(self.section, Event::Leave(ending));
    }

    fn note(&mut self, event: Event) {
        self.notes.write(self.section, event);
    }

    /// Sleeps for a random time: from a tenth of `most` to all of it.
    async fn pause(&mut self, most: Duration) {
        let most_us = u64::try_from(most.as_micros()).expect("a short time");
        sleep(Duration::from_micros(self.random.within(most_us / 10, most_us))).await;
    }
}

/// Returns how a section ended, by the check of its guard.
fn ending<T, E>(checked: &Result<T, E>) -> Ending {
    if checked.is_ok() { Ending::Whole } else { Ending::Lost }
}

/// Returns the error of a release. `NotHeld` is no error: the lease ended after the section did.
fn released(result: leasehold::Result<Released>) -> leasehold::Result<()> {
    result.map(drop)
}

fn alone(resource: usize, token: leasehold::Token) -> Use {
    Use { resource, share: Share::Alone, token: token.get() }
}

/// Reads a file with a number.
fn number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).expect("the lab has written the file");
    text.parse().expect("the file is a number")
}

/// Replaces a file in one step: a process that is killed leaves the old contents or the new ones.
fn replace(path: &Path, contents: &str) {
    let next = path.with_extension("next");
    fs::write(&next, contents).and_then(|()| fs::rename(&next, path)).expect("a directory of the lab can be written");
}
