//! What the desk's runtime waits for beside requests: our bells, who connects to our lives, the lives that we watch.

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

use super::desk::{Bound, Job};
use super::directory::FileKey;
use super::live::{Live, Pulse};

/// A task that ends with this.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A session's bell.
pub(super) struct Bell {
    detach: Detach,
    rung: Arc<AtomicBool>,
    _listens: Task,
}

/// Takes a bell's name away: from then on its session is detached.
#[derive(Clone)]
pub(super) struct Detach {
    live: Arc<Live>,
    session: SessionId,
    key: FileKey,
}

impl Detach {
    pub(super) fn detach(&self) {
        self.live.unbind_bell(self.session, self.key);
    }
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
                // However often it rings: what is new is read once, behind the last of it.
                if is_rung.swap(true, Ordering::AcqRel) {
                    continue;
                }
                let Some(jobs) = jobs.upgrade() else { return };
                drop(jobs.send(Job::NodeMessage { session }));
            }
        };
        let detach = Detach { live: Arc::clone(live), session, key };
        Ok(Self { detach, rung, _listens: Task(tokio::spawn(listens)) })
    }

    /// Before what is new is read: what comes while it is read rings again.
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

/// A session's life, on which we hold every connection until its other end goes: left in the backlog, those of waiters that
/// came and went would fill it.
pub(super) struct Life {
    live: Arc<Live>,
    session: SessionId,
    life: OwnedFd,
    key: FileKey,
    run: String,
    _accepts: Task,
}

/// Between two tries to take a connection while the process has no descriptor for it: nothing tells when it has one.
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
                    // No descriptor is left. Who connects waits in the backlog meanwhile, and lacks nothing.
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

    /// Which database's records say that its session lives, since which boot.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.life
    }

    /// The socket as it is, to be kept over another link.
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
            // Nobody sends anything here.
            _ => {}
        }
    }
}

/// The lives that we watch: of those who hold what our sessions wait for.
pub(super) struct Watches {
    jobs: WeakUnboundedSender<Job>,
    holders: HashMap<SessionId, Watch>,
    names: HashMap<Name, SessionId>,
}

struct Watch {
    names: HashSet<Name>,
    life: Arc<UnixStream>,
    _breaks: Task,
}

/// How many names a bell has us look after again. Who waits for more finds the rest out by its looks.
const NAMES: usize = 64;

/// Whether somebody could be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Yes,
    /// It lives, and takes no more connections; or it is not known whether it lives. The next look tries again.
    NotNow,
    Dead,
}

impl Watched {
    pub(super) fn is_dead(self) -> bool {
        self == Self::Dead
    }
}

impl Watches {
    pub(super) fn new(jobs: WeakUnboundedSender<Job>) -> Self {
        Self { jobs, holders: HashMap::new(), names: HashMap::new() }
    }

    /// Whether this one is watched, and lives.
    pub(super) fn sees(&self, holder: SessionId) -> bool {
        let Some(watch) = self.holders.get(&holder) else { return false };
        let peek = rustix::net::recv(watch.life.as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peek, Err(Errno::AGAIN))
    }

    /// Watches who holds this name, and nobody else for it.
    pub(super) fn watch(&mut self, name: &Name, holder: SessionId, live: &Live) -> Watched {
        if self.names.get(name) == Some(&holder) {
            return Watched::Yes;
        }
        self.forget(name);
        if let Some(watch) = self.holders.get_mut(&holder) {
            watch.names.insert(name.clone());
            self.names.insert(name.clone(), holder);
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
        self.names.insert(name.clone(), holder);
        Watched::Yes
    }

    /// Nobody of ours waits for this name any more.
    pub(super) fn forget(&mut self, name: &Name) {
        let Some(holder) = self.names.remove(name) else { return };
        let Some(watch) = self.holders.get_mut(&holder) else { return };
        watch.names.remove(name);
        if watch.names.is_empty() {
            self.holders.remove(&holder);
        }
    }

    /// The connection broke. Answers whom it concerns.
    pub(super) fn broke(&mut self, holder: SessionId) -> HashSet<Name> {
        let Some(watch) = self.holders.remove(&holder) else { return HashSet::new() };
        for name in &watch.names {
            self.names.remove(name);
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
