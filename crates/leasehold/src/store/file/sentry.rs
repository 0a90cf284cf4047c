//! The events that the desk's runtime waits for, beside requests: our bells, connections to our lives, and the lives
//! that we watch.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_spec::{Name, SessionId};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::net::{UnixDatagram, UnixListener, UnixStream};
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::task::JoinHandle;

use super::directory::FileKey;
use super::job::{Bound, Detach, Job};
use super::live::{Live, Pulse};

/// A task that is aborted when this is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The bell of a session.
pub(super) struct Bell {
    detach: Detach,
    rung: Arc<AtomicBool>,
    _listens: Task,
}

impl Bell {
    pub(super) fn new(
        live: &Arc<Live>,
        session: SessionId,
        bell: OwnedFd,
        key: FileKey,
        jobs: WeakUnboundedSender<Job>,
    ) -> io::Result<Self> {
        let bell = UnixDatagram::from_std(bell.into())?;
        let rung = Arc::new(AtomicBool::new(false));
        let is_rung = Arc::clone(&rung);
        let listens = async move {
            while bell.recv(&mut [0; 1]).await.is_ok() {
                // However often it rings, the messages are read once, after the last ring.
                if is_rung.swap(true, Ordering::AcqRel) {
                    continue;
                }
                let Some(jobs) = jobs.upgrade() else { return };
                drop(jobs.send(Job::Rung { session }));
            }
        };
        let detach = Detach { live: Arc::clone(live), session, key };
        Ok(Self { detach, rung, _listens: Task(tokio::spawn(listens)) })
    }

    /// Called before the messages are read: a message that comes during the read rings again.
    pub(super) fn heard(&self) {
        self.rung.store(false, Ordering::Release);
    }

    pub(super) fn detach(&self) -> Detach {
        self.detach.clone()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.detach.detach();
    }
}

/// The life of a session. It keeps every connection until the other end closes. Connections that were never accepted would
/// fill the backlog, since waiters come and go.
pub(super) struct Life {
    live: Arc<Live>,
    session: SessionId,
    life: OwnedFd,
    key: FileKey,
    run: String,
    _accepts: Task,
}

/// The pause between two tries to accept a connection while no descriptor is left: there is no event for a free descriptor.
const NO_DESCRIPTOR: Duration = Duration::from_millis(100);

impl Life {
    pub(super) fn new(
        live: &Arc<Live>,
        session: SessionId,
        life: OwnedFd,
        key: FileKey,
        run: &str,
    ) -> io::Result<Self> {
        let listener = UnixListener::from_std(life.try_clone()?.into())?;
        let accepts = async move {
            let mut held = tokio::task::JoinSet::new();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(held.spawn(hold(stream))),
                    // No descriptor is left. The connections wait in the backlog, which is enough for the other side.
                    Err(_) => tokio::time::sleep(NO_DESCRIPTOR).await,
                }
                while held.try_join_next().is_some() {}
            }
        };
        let (live, run) = (Arc::clone(live), run.to_owned());
        Ok(Self { live, session, life, key, run, _accepts: Task(tokio::spawn(accepts)) })
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    pub(super) fn key(&self) -> FileKey {
        self.key
    }

    /// The database and boot in whose records the session lives.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.life
    }

    /// Returns the socket, to keep it for another link.
    pub(super) fn parts(&self) -> Option<Bound> {
        Some((self.life.try_clone().ok()?, self.key))
    }

    pub(super) fn unbind(&self) {
        self.live.unbind_life(self.session, self.key);
    }
}

async fn hold(stream: UnixStream) {
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut [0; 16]) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            // No data is sent here.
            _ => {}
        }
    }
}

/// The lives that we watch: those of the holders for whom our sessions wait.
pub(super) struct Watches {
    jobs: WeakUnboundedSender<Job>,
    holders: HashMap<SessionId, Watch>,
    names: HashMap<Name, Vec<SessionId>>,
}

struct Watch {
    names: HashSet<Name>,
    life: Arc<UnixStream>,
    _breaks: Task,
}

/// The number of names whose holders are watched again after a bell. A session that waits for more finds the rest by its
/// re-checks.
const NAMES: usize = 64;

/// The result of an attempt to watch a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Yes,
    /// It lives and accepts no more connections, or it is unknown whether it lives. The next re-check tries again.
    NotNow,
    Dead,
}

impl Watches {
    pub(super) fn new(jobs: WeakUnboundedSender<Job>) -> Self {
        Self { jobs, holders: HashMap::new(), names: HashMap::new() }
    }

    /// Returns whether this session is watched, and lives.
    pub(super) fn sees(&self, holder: SessionId) -> bool {
        let Some(watch) = self.holders.get(&holder) else { return false };
        let peek = rustix::net::recv(watch.life.as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peek, Err(Errno::AGAIN))
    }

    /// Watches these holders of the name, and no other session for it. Returns whether one of them is dead. A name without
    /// holders is known as well: the waiters of a condition variable watch those that are notified before them.
    pub(super) fn watch(&mut self, name: &Name, holders: &[SessionId], live: &Live) -> bool {
        let watched = self.names.remove(name).unwrap_or_default();
        watched.iter().filter(|one| !holders.contains(one)).for_each(|one| self.unwatch(name, *one));
        let (mut now, mut is_dead) = (Vec::new(), false);
        for holder in holders {
            let watched = if watched.contains(holder) { Watched::Yes } else { self.watch_one(name, *holder, live) };
            is_dead |= watched == Watched::Dead;
            if watched == Watched::Yes {
                now.push(*holder);
            }
        }
        self.names.insert(name.clone(), now);
        is_dead
    }

    fn watch_one(&mut self, name: &Name, holder: SessionId, live: &Live) -> Watched {
        if let Some(watch) = self.holders.get_mut(&holder) {
            watch.names.insert(name.clone());
            return Watched::Yes;
        }
        let life = match live.pulse(holder) {
            Pulse::Dead => return Watched::Dead,
            Pulse::Lives | Pulse::Unknown => return Watched::NotNow,
            Pulse::Connected(life) => life,
        };
        let Ok(life) = UnixStream::from_std(life.into()) else { return Watched::NotNow };
        let (life, jobs) = (Arc::new(life), self.jobs.clone());
        let watched = Arc::clone(&life);
        let breaks = async move {
            while watched.readable().await.is_ok() {
                match watched.try_read(&mut [0; 1]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
            if let Some(jobs) = jobs.upgrade() {
                drop(jobs.send(Job::Broken { holder }));
            }
        };
        let watch = Watch { names: HashSet::from([name.clone()]), life, _breaks: Task(tokio::spawn(breaks)) };
        self.holders.insert(holder, watch);
        Watched::Yes
    }

    /// No session of ours waits for this name any more.
    pub(super) fn forget(&mut self, name: &Name) {
        for holder in self.names.remove(name).unwrap_or_default() {
            self.unwatch(name, holder);
        }
    }

    fn unwatch(&mut self, name: &Name, holder: SessionId) {
        let Some(watch) = self.holders.get_mut(&holder) else { return };
        watch.names.remove(name);
        if watch.names.is_empty() {
            self.holders.remove(&holder);
        }
    }

    /// Takes a broken connection. Returns the names that it concerns.
    pub(super) fn broke(&mut self, holder: SessionId) -> HashSet<Name> {
        let Some(watch) = self.holders.remove(&holder) else { return HashSet::new() };
        for name in &watch.names {
            let Some(holders) = self.names.get_mut(name) else { continue };
            holders.retain(|one| *one != holder);
            if holders.is_empty() {
                self.names.remove(name);
            }
        }
        watch.names
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.names.keys().take(NAMES).cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        self.holders.clear();
        self.names.clear();
    }
}
