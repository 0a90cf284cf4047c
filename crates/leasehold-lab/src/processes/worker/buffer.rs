//! A bounded buffer: producers wait while it is full, and consumers while it is empty.
//!
//! The buffer is one file, which each change replaces as a whole. A process that is killed between its change and its
//! notification notifies nobody. So each process notifies everybody when it starts: this heals what its earlier life left.
//! A program without such a restart has to limit its waits.

use std::collections::VecDeque;
use std::fs;
use std::future::ready;
use std::io;
use std::path::Path;
use std::time::Duration;

use leasehold::{Condvar, Guard, Mutex, Woken};
use serde::{Deserialize, Serialize};

use super::{Worker, alone, ending, released, replace};
use crate::processes::notes::Event;

const PLACES: usize = 4;
const PRODUCERS: usize = 3;
/// A wait that takes longer has missed its notification.
const MISSED_AFTER: Duration = Duration::from_secs(20);
const FILE: &str = "buffer.json";

/// The buffer. Its items are numbered in the order in which they were put in.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Buffer {
    produced: u64,
    consumed: u64,
    items: VecDeque<u64>,
}

struct Locks {
    mutex: Mutex,
    not_empty: Condvar,
    not_full: Condvar,
}

pub(super) fn open(dir: &Path) -> io::Result<()> {
    let empty = serde_json::to_string(&Buffer::default()).expect("plain data");
    fs::write(dir.join(FILE), empty)
}

/// Reads the buffer, and checks that it has each item once, in order.
pub(super) fn read(dir: &Path) -> Result<Buffer, String> {
    let text = fs::read(dir.join(FILE)).map_err(|error| format!("no buffer: {error}"))?;
    let buffer: Buffer = serde_json::from_slice(&text).map_err(|error| format!("no buffer: {error}"))?;
    let is_whole = buffer.items.iter().copied().eq(buffer.consumed + 1..=buffer.produced);
    match is_whole && buffer.items.len() <= PLACES {
        true => Ok(buffer),
        false => Err(format!("the buffer is not whole: {buffer:?}")),
    }
}

pub(super) async fn work(worker: &mut Worker) -> leasehold::Result<()> {
    let client = &worker.client;
    let locks = Locks {
        mutex: client.mutex("buffer"),
        not_empty: client.condvar("buffer: not empty"),
        not_full: client.condvar("buffer: not full"),
    };
    for condvar in [&locks.not_empty, &locks.not_full] {
        let _how_many = condvar.notify_all().await?;
    }
    let is_producer = worker.who.number < PRODUCERS;
    let dir = worker.dir.clone();
    while let Some((guard, woken)) = worker.get(ready_guard(&locks, is_producer, &dir)).await? {
        if woken == Woken::TimedOut {
            worker.note(Event::Unserved);
            worker.note(Event::Wrong(format!("waited {MISSED_AFTER:?} for the buffer: {:?}", read(&worker.dir))));
            released(guard.release().await)?;
            continue;
        }
        worker.enter(vec![alone(0, guard.token())]);
        if let Err(what) = change(worker, is_producer, &guard).await {
            worker.note(Event::Wrong(what));
        }
        worker.leave(ending(&guard.check()));
        let other = if is_producer { &locks.not_empty } else { &locks.not_full };
        let _was_one = other.notify_one().await?;
        released(guard.release().await)?;
        worker.pause(Duration::from_millis(3)).await;
    }
    Ok(())
}

/// Returns the guard when there is a place or an item.
async fn ready_guard(locks: &Locks, is_producer: bool, dir: &Path) -> leasehold::Result<(Guard, Woken)> {
    let condvar = if is_producer { &locks.not_full } else { &locks.not_empty };
    // A buffer that is not whole ends the wait: the section reports it.
    let must_wait = |_| {
        ready(read(dir).is_ok_and(|buffer| match is_producer {
            true => buffer.items.len() == PLACES,
            false => buffer.items.is_empty(),
        }))
    };
    condvar.wait_while_for(locks.mutex.lock().await?, must_wait, MISSED_AFTER).await
}

async fn change(worker: &mut Worker, is_producer: bool, guard: &Guard) -> Result<(), String> {
    let mut buffer = read(&worker.dir)?;
    worker.pause(Duration::from_millis(2)).await;
    if is_producer {
        buffer.produced += 1;
        buffer.items.push_back(buffer.produced);
    } else {
        buffer.consumed = buffer.items.pop_front().ok_or("an item has gone under the lock")?;
    }
    if guard.check().is_ok() {
        replace(&worker.dir.join(FILE), &serde_json::to_string(&buffer).expect("plain data"));
    }
    Ok(())
}
