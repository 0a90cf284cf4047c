//! The worker processes.

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Random, boottime_us};

use super::judge::Lives;
use super::notes::WorkerId;
use super::options::Kills;
use super::scene::Scene;
use crate::chaos::us;

/// The subcommand of a worker.
pub(crate) const WORKER: &str = "processes-worker";

/// How long the workers may take to end: longer than any wait for the lock of a killed process.
const END: Duration = Duration::from_secs(20);

/// The workers of a run. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Crew<'a> {
    setting: Setting<'a>,
    pub(crate) random: Random,
    workers: Vec<Worker>,
    pub(crate) lives: Lives,
}

/// The scene of the workers, and the store and directory that they use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) scene: Scene,
    pub(crate) kills: Kills,
    pub(crate) url: &'a str,
    pub(crate) dir: &'a Path,
}

#[derive(Debug)]
struct Worker {
    life: u64,
    /// Empty between a death and the next start.
    child: Option<Child>,
}

impl<'a> Crew<'a> {
    pub(crate) fn start(setting: Setting<'a>, seed: u64) -> Self {
        let mut crew = Self { setting, random: Random::new(seed), workers: Vec::new(), lives: Lives::default() };
        for number in 0..setting.scene.processes() {
            let child = Some(crew.spawn(WorkerId { number, life: 0 }));
            crew.workers.push(Worker { life: 0, child });
        }
        crew
    }

    /// Returns any worker.
    pub(crate) fn any(&mut self) -> WorkerId {
        let number = self.random.index(self.workers.len());
        WorkerId { number, life: self.workers[number].life }
    }

    /// Returns the workers that run, as far as the crew knows.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.workers.len()).filter(|number| self.workers[*number].child.is_some()).collect()
    }

    /// Whether this process runs, as far as the crew knows.
    pub(crate) fn has(&self, who: WorkerId) -> bool {
        self.workers.get(who.number).is_some_and(|worker| worker.life == who.life && worker.child.is_some())
    }

    /// Kills a worker, waits until it is gone, and starts it again. Returns a complaint if it had ended before.
    pub(crate) fn replace(&mut self, number: usize) -> Option<String> {
        let complaints = self.kill(&[number]);
        self.start_again(number);
        complaints.into_iter().next()
    }

    /// Kills workers at the same moment, and waits until they are gone. Returns complaints about those that had ended
    /// before.
    pub(crate) fn kill(&mut self, numbers: &[usize]) -> Vec<String> {
        let (mut complaints, mut dying) = (Vec::new(), Vec::new());
        for &number in numbers {
            let worker = &mut self.workers[number];
            let Some(mut child) = worker.child.take() else { continue };
            let who = WorkerId { number, life: worker.life };
            match child.try_wait() {
                Ok(None) => drop(self.lives.deaths.insert(who, boottime_us())),
                status => complaints.push(format!("process {number}.{} ended by itself: {status:?}", who.life)),
            }
            // It fails only if the process is gone already.
            let _ = child.kill();
            dying.push(child);
        }
        dying.iter_mut().for_each(kill_and_reap);
        complaints
    }

    /// Starts a worker that was killed.
    pub(crate) fn start_again(&mut self, number: usize) {
        let life = self.workers[number].life + 1;
        let child = Some(self.spawn(WorkerId { number, life }));
        self.workers[number] = Worker { life, child };
        self.lives.restarts.push(boottime_us());
    }

    /// Kills all workers.
    pub(crate) fn kill_all(mut self) -> (Lives, Vec<String>) {
        let complaints = self.kill(&self.running());
        (std::mem::take(&mut self.lives), complaints)
    }

    /// Asks all workers to stop by closing their inputs, and waits. Returns complaints about those that did not end well.
    pub(crate) fn dismiss(mut self) -> (Lives, Vec<String>) {
        for child in self.workers.iter_mut().filter_map(|worker| worker.child.as_mut()) {
            drop(child.stdin.take());
        }
        let (deadline, mut complaints) = (Instant::now() + END, Vec::new());
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let Some(child) = &mut worker.child else { continue };
            let complaint = loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => break None,
                    Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                    Ok(None) => break Some(format!("did not end within {END:?}")),
                    status => break Some(format!("ended with {status:?}")),
                }
            };
            complaints.extend(complaint.map(|what| format!("process {number}.{} {what}", worker.life)));
        }
        (std::mem::take(&mut self.lives), complaints)
    }

    fn spawn(&mut self, who: WorkerId) -> Child {
        let (number, life, seed) = (who.number.to_string(), who.life.to_string(), self.random.number().to_string());
        let Setting { scene, kills, url, dir } = self.setting;
        us().args([WORKER, url, scene.name(), kills.name(), &number, &life, &seed])
            .arg(dir)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the lab can start itself")
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.workers.iter_mut().filter_map(|worker| worker.child.as_mut()).for_each(kill_and_reap);
    }
}

/// Kills a process, and waits until it is gone. Both fail only if it is gone already.
fn kill_and_reap(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
