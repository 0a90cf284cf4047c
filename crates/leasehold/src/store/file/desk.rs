//! The one thread of a client that opens, locks, reads and writes.
//!
//! All of that can block: for a turn that a stopped process has, on a disk that is slow. So it is done in one place
//! (`worker.rs`), one request after the other, and whoever asks only waits for an answer. A client that gives a link up,
//! and opens another, asks the same desk: however often it does that while a writer is stopped, one thread waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Name, Op, SessionId};
use tokio::sync::{mpsc, oneshot};

use super::directory::FileKey;
use super::link::Tie;
use super::presence::Presence;
use super::sentry::Life;
use super::turn::Waiting;
use super::worker::Worker;
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Inbox};
use crate::world::World;

/// Something to do.
pub(super) enum Job {
    Open {
        tell: oneshot::Sender<Result<Opened, Error>>,
    },
    Apply {
        tie: Arc<Tie>,
        name: Name,
        op: Op,
        tell: oneshot::Sender<Result<Answer, Fault>>,
    },
    Renew {
        tie: Arc<Tie>,
        batch: Vec<(Name, Op)>,
        tell: oneshot::Sender<Result<Vec<Result<Answer, Fault>>, Fault>>,
    },
    Names {
        tie: Arc<Tie>,
        from: u64,
        tell: oneshot::Sender<Result<(Vec<Name>, u64), Fault>>,
    },
    Attach {
        tie: Arc<Tie>,
        session: SessionId,
        inbox: Inbox,
        tell: oneshot::Sender<Result<(), Fault>>,
    },
    Ping {
        tie: Arc<Tie>,
        tell: oneshot::Sender<Result<u64, Fault>>,
    },
    /// A link was closed that had an inbox.
    Detached {
        session: SessionId,
        tie: Weak<Tie>,
    },
    /// A bell rang.
    NodeMessage {
        session: SessionId,
    },
    /// Somebody died whom we wait for.
    Broken {
        holder: SessionId,
    },
}

/// What a link is to know of the store.
pub(super) struct Opened {
    pub(super) run: String,
    pub(super) tie: Arc<Tie>,
}

/// The way to the thread.
pub(super) struct Desk {
    world: Arc<dyn World>,
    path: PathBuf,
    process: u32,
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    pub(super) shown: Arc<Shown>,
}

/// What others than the thread may look at, also while that waits for its turn.
#[derive(Default)]
pub(super) struct Shown {
    /// How many requests of the client are not done.
    pub(super) asked: AtomicUsize,
    pub(super) waiting: Waiting,
    pub(super) lives: Mutex<Vec<Arc<Life>>>,
    pub(super) presence: Presence,
}

impl Desk {
    pub(super) fn new(path: PathBuf, world: Arc<dyn World>) -> Self {
        let process = world.process();
        Self { world, path, process, jobs: Mutex::default(), shown: Arc::default() }
    }

    /// Asks for a link. The thread begins with the first one.
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
        // It is there: nobody else can have ended it meanwhile.
        self.shown.asked.fetch_add(1, Ordering::Relaxed);
        drop(sender.send(Job::Open { tell }));
        Ok(())
    }

    pub(super) fn send(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            self.shown.asked.fetch_add(1, Ordering::Relaxed);
            // The thread has ended: who waits for an answer sees the other end go.
            drop(jobs.send(job));
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Not in a forked child: that has this memory, and none of these names is its own.
    pub(super) fn is_ours(&self) -> bool {
        self.process == self.world.process()
    }

    /// Why there is no answer, as far as that is known here.
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

    /// The life of the session that attached last.
    pub(super) fn life(&self) -> Option<OwnedFd> {
        let lives = self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.last()?.descriptor().try_clone().ok()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // Who may still be in a record must not take away what its death is told by. (A session that is closed has given
        // everything back by now. Not one whose thread has panicked.)
        if self.is_ours() && (self.shown.presence.end() || is_on(Mutant::P26LeavesNameless)) {
            // Here, and not by the thread: a program that ends now leaves nothing behind.
            self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|life| life.unbind());
        }
    }
}

/// Which socket it is: descriptor and file.
pub(super) type Bound = (OwnedFd, FileKey);

pub(super) fn gone() -> Fault {
    Fault::Gone(Error::new(ErrorKind::Unreachable, "the connection was closed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::Real;

    #[test]
    fn a_busy_store_says_for_whom() {
        let desk = Desk::new("/nowhere".into(), Real::world());
        assert!(desk.silence().is_none(), "nobody waits for it");
        desk.shown.asked.store(812, Ordering::Relaxed);
        let said = desk.silence().expect("it is busy").to_string();
        assert!(said.starts_with("the store in /nowhere is busy with 812 requests of this client: "), "{said}");
    }
}
