//! Processes that count in one file, under a mutex. Each reads the number, waits, and writes the next one.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Worker, alone, ending, number, released, replace};
use crate::processes::notes::Event;

const FILE: &str = "counter";

pub(super) fn open(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(FILE), "0")
}

pub(super) async fn count(worker: &mut Worker) -> leasehold::Result<()> {
    let mutex = worker.client.mutex("counter");
    let file = worker.dir.join(FILE);
    while let Some(guard) = worker.get(mutex.lock()).await? {
        worker.enter(vec![alone(0, guard.token())]);
        let next = number(&file) + 1;
        worker.pause(Duration::from_millis(2)).await;
        if guard.check().is_ok() {
            replace(&file, &next.to_string());
            worker.pause(Duration::from_millis(1)).await;
            let there = number(&file);
            if guard.check().is_ok() && there != next {
                worker.note(Event::Wrong(format!("it wrote {next}, and under the same lock it reads {there}")));
            }
        }
        worker.leave(ending(&guard.check()));
        released(guard.release().await)?;
        worker.pause(Duration::from_millis(3)).await;
    }
    Ok(())
}
