//! Readers and writers of one record with two halves, which a writer changes one after the other. A writer that is killed
//! between them leaves a torn record, which readers may see until the next writer has written both halves.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Worker, alone, ending, number, released, replace};
use crate::processes::notes::{Event, Share, Use};

const RECORD: usize = 0;
const WRITERS: usize = 2;
const HALVES: [&str; 2] = ["left", "right"];

pub(super) fn open(dir: &Path) -> io::Result<()> {
    HALVES.iter().try_for_each(|half| fs::write(dir.join(half), "0"))
}

pub(super) async fn work(worker: &mut Worker) -> leasehold::Result<()> {
    match worker.who.number < WRITERS {
        true => write(worker).await,
        false => read(worker).await,
    }
}

async fn write(worker: &mut Worker) -> leasehold::Result<()> {
    let record = worker.client.rw_lock("record");
    while let Some(guard) = worker.get(record.write()).await? {
        worker.enter(vec![alone(RECORD, guard.token())]);
        let next = half(&worker.dir, HALVES[0]).max(half(&worker.dir, HALVES[1])) + 1;
        let mut checked = guard.check();
        for half in HALVES {
            if checked.is_ok() {
                replace(&worker.dir.join(half), &next.to_string());
                worker.pause(Duration::from_millis(2)).await;
                checked = guard.check();
            }
        }
        worker.leave(ending(&checked));
        released(guard.release().await)?;
        worker.pause(Duration::from_millis(8)).await;
    }
    Ok(())
}

async fn read(worker: &mut Worker) -> leasehold::Result<()> {
    let record = worker.client.rw_lock("record");
    let mut highest = 0;
    while let Some(guard) = worker.get(record.read()).await? {
        worker.enter(vec![Use { resource: RECORD, share: Share::Shared, token: guard.token().get() }]);
        let left = half(&worker.dir, HALVES[0]);
        worker.pause(Duration::from_millis(2)).await;
        let right = half(&worker.dir, HALVES[1]);
        let checked = guard.check();
        if checked.is_ok() && left != right {
            worker.note(Event::Torn { resource: RECORD });
        }
        if checked.is_ok() && left.max(right) < highest {
            worker.note(Event::Wrong(format!("the record went back from {highest} to {left} and {right}")));
        }
        highest = highest.max(left).max(right);
        worker.leave(ending(&checked));
        released(guard.release().await)?;
        worker.pause(Duration::from_millis(2)).await;
    }
    Ok(())
}

fn half(dir: &Path, name: &str) -> u64 {
    number(&dir.join(name))
}
