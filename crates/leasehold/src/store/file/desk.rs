//! The one thread of a client that opens, locks, reads and writes.
//!
//! All of that can block: while a stopped process has the turn, or on a slow disk. So it is done in one place
//! (`worker.rs`), one request after the other, and the callers only wait for replies. A client that closes a link and
//! opens another uses the same desk. However often it does that while a writer is stopped, one thread waits for the writer.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_spec::mutant::{Mutant, is_on};
use tokio::sync::{mpsc, oneshot};

use super::job::{Job, Opened};
use super::shown::Shown;
use super::worker::Worker;
use crate::error::{Error, ErrorKind};
use crate::world::World;

/// The connection of links to the thread.
pub(super) struct Desk {
    world: Arc<dyn World>,
    path: PathBuf,
    process: u32,
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    pub(super) shown: Arc<Shown>,
}

impl Desk {
    pub(super) fn new(path: PathBuf, world: Arc<dyn World>) -> Self {
        let process = world.process();
        Self { world, path, process, jobs: Mutex::default(), shown: Arc::default() }
    }

    /// Asks for a link. The first call starts the thread.
    pub(super) fn open(&self, tell: oneshot::Sender<Result<Opened, Error>>) -> io::Result<()> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = jobs.as_ref().filter(|jobs| !jobs.is_closed());
        let sender = match known {
            Some(sender) => sender.clone(),
            None => {
                let (sender, received) = mpsc::unbounded_channel();
                let (world, shown) = (Arc::clone(&self.world), Arc::clone(&self.shown));
                let worker = Worker::new(world, self.path.clone(), shown, sender.downgrade());
                self.world.spawn_session(Box::pin(worker.work(received)))?;
                jobs.insert(sender).clone()
            }
        };
        // The thread runs: nobody else can have ended it in the meantime.
        self.shown.asked.fetch_add(1, Ordering::Relaxed);
        drop(sender.send(Job::Open { tell }));
        Ok(())
    }

    pub(super) fn send(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            self.shown.asked.fetch_add(1, Ordering::Relaxed);
            // If the thread has ended, the callers see that the other end of their channel is gone.
            drop(jobs.send(job));
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns false in a forked child, which has a copy of this memory but owns none of these names.
    pub(super) fn is_ours(&self) -> bool {
        self.process == self.world.process()
    }

    /// Returns why there is no reply, as far as the desk knows.
    pub(super) fn silence(&self) -> Option<Error> {
        let turn = self.shown.waiting.turn();
        if let Some(stopped) = turn.as_ref().and_then(|turn| turn.stopped(self.world.now_us())) {
            return Some(Error::new(ErrorKind::Unreachable, stopped));
        }
        let place = self.path.display();
        let message = match (self.shown.asked.load(Ordering::Relaxed), turn) {
            (0, _) => return None,
            (1, None) => {
                format!("the store in {place} has not answered yet: is its disk slow, or the machine overloaded?")
            }
            (1, Some(_)) => format!("the store in {place} is busy with other clients: try again, or wait longer"),
            (asked, None) => format!(
                "the store in {place} is busy with {asked} requests of this client: send fewer at once, or wait longer"
            ),
            (asked, Some(_)) => format!(
                "the store in {place} is busy with {asked} requests of this client, and with other clients: send fewer \
                 at once, or wait longer"
            ),
        };
        Some(Error::new(ErrorKind::Unreachable, message))
    }

    /// Returns the life of the session that attached last.
    pub(super) fn life(&self) -> Option<OwnedFd> {
        let lives = self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.last()?.descriptor().try_clone().ok()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // A session that may still be in a record must keep the name by which others notice its death. (A closed
        // session has given everything back by now, but not one whose thread has panicked.)
        if self.is_ours() && (self.shown.presence.end() || is_on(Mutant::P26LeavesNameless)) {
            // Here and not in the thread, so that a program that ends now leaves nothing behind.
            self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|life| life.unbind());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::Real;

    #[test]
    fn a_busy_store_says_whose_requests_are_pending() {
        let desk = Desk::new("/nowhere".into(), Real::world());
        assert!(desk.silence().is_none(), "nobody waits for it");
        desk.shown.asked.store(812, Ordering::Relaxed);
        let said = desk.silence().expect("it is busy").to_string();
        assert!(said.starts_with("the store in /nowhere is busy with 812 requests of this client: "), "{said}");
    }
}
