//! Jobs with a part for each process. A process that has done its part waits at the latch of the job for the others.
//!
//! Each process has a file with the number of its job. A process that was killed does its part again, which counts once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Worker, number, replace};
use crate::processes::notes::{Ending, Event, Share, Use};
use crate::processes::scene::Scene;

/// How long the store keeps the latch of a job: longer than a process may be dead.
const KEEP: Duration = Duration::from_secs(20);
/// The timeout of one wait at a latch. The process then waits again.
const LATCH_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn open(dir: &Path) -> io::Result<()> {
    (0..Scene::Jobs.processes()).try_for_each(|worker| {
        fs::write(job_of(dir, worker), "1")?;
        fs::write(part_of(dir, worker), "0")
    })
}

pub(super) async fn work(worker: &mut Worker) -> leasehold::Result<()> {
    let everybody = Scene::Jobs.processes();
    let parts = u32::try_from(everybody).expect("a few processes");
    let (me, dir) = (worker.who.number, worker.dir.clone());
    loop {
        let job = number(&job_of(&dir, me));
        let latch = worker.client.latch(format!("job {job}")).keep(KEEP);
        latch.create(parts).await?;
        worker.pause(Duration::from_millis(3)).await;
        replace(&part_of(&dir, me), &job.to_string());
        latch.count_down_as(&format!("part {me}")).await?;
        loop {
            match worker.get(latch.wait_for(LATCH_TIMEOUT)).await? {
                None => return Ok(()),
                Some(true) => break,
                Some(false) => worker.note(Event::Unserved),
            }
        }
        worker.enter(vec![Use { resource: 0, share: Share::Shared, token: job }]);
        if let Some(late) = (0..everybody).find(|other| number(&part_of(&dir, *other)) < job) {
            worker.note(Event::Wrong(format!("job {job} is done, and process {late} has not done its part")));
        }
        worker.leave(Ending::Whole);
        replace(&job_of(&dir, me), &(job + 1).to_string());
    }
}

/// The job that a process works at.
fn job_of(dir: &Path, worker: usize) -> PathBuf {
    dir.join(format!("job-of-{worker}"))
}

/// The last job whose part a process has done.
fn part_of(dir: &Path, worker: usize) -> PathBuf {
    dir.join(format!("part-of-{worker}"))
}
