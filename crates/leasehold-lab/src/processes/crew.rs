//! The worker processes.

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Random, boottime_us};

use super::judge::Deaths;
use super::notes::Who;
use super::scene::Scene;
use crate::chaos::us;

/// The subcommand of a worker.
pub(crate) const WORKER: &str = "processes-worker";

/// How long the workers may take to end: longer than any wait for the lock of a killed process.
const END: Duration = Duration::from_secs(20);

/// The workers of a run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Crew<'a> {
    scene: Scene,
    url: &'a str,
    dir: &'a Path,
    random: Random,
    workers: Vec<Worker>,
    pub(crate) deaths: Deaths,
}

#[derive(Debug)]
struct Worker {
    life: u64,
    child: Child,
}

impl<'a> Crew<'a> {
    pub(crate) fn start(scene: Scene, (url, dir): (&'a str, &'a Path), seed: u64) -> Self {
        let mut crew =
            Self { scene, url, dir, random: Random::new(seed), workers: Vec::new(), deaths: Deaths::default() };
        for number in 0..scene.processes() {
            let child = crew.spawn(Who { number, life: 0 });
            crew.workers.push(Worker { life: 0, child });
        }
        crew
    }

    /// Returns any worker.
    pub(crate) fn any(&mut self) -> Who {
        let number = self.random.index(self.workers.len());
        Who { number, life: self.workers[number].life }
    }

    /// Whether this process runs, as far as the crew knows.
    pub(crate) fn has(&self, who: Who) -> bool {
        self.workers.get(who.number).is_some_and(|worker| worker.life == who.life)
    }

    /// Kills a worker, waits until it is gone, and starts it again. Returns a complaint if it had ended before.
    pub(crate) fn replace(&mut self, who: Who) -> Option<String> {
        let worker = &mut self.workers[who.number];
        let complaint = match worker.child.try_wait() {
            Ok(None) => None,
            status => Some(format!("process {}.{} ended by itself: {status:?}", who.number, who.life)),
        };
        if complaint.is_none() {
            self.deaths.insert(who, boottime_us());
        }
        end(&mut worker.child);
        let next = Who { life: who.life + 1, ..who };
        let child = self.spawn(next);
        self.workers[who.number] = Worker { life: next.life, child };
        complaint
    }

    /// Ends all workers in order. Returns complaints about those that did not end, or not well.
    pub(crate) fn dismiss(mut self) -> (Deaths, Vec<String>) {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
        }
        let (deadline, mut complaints) = (Instant::now() + END, Vec::new());
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let complaint = loop {
                match worker.child.try_wait() {
                    Ok(Some(status)) if status.success() => break None,
                    Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                    Ok(None) => break Some(format!("did not end within {END:?}")),
                    status => break Some(format!("ended with {status:?}")),
                }
            };
            complaints.extend(complaint.map(|what| format!("process {number}.{} {what}", worker.life)));
        }
        (std::mem::take(&mut self.deaths), complaints)
    }

    fn spawn(&mut self, who: Who) -> Child {
        let (number, life, seed) = (who.number.to_string(), who.life.to_string(), self.random.number().to_string());
        us().args([WORKER, self.url, self.scene.name(), &number, &life, &seed])
            .arg(self.dir)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the lab can start itself")
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(|worker| end(&mut worker.child));
    }
}

/// Ends a process, and waits until it is gone. Both fail only if it is gone already.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
