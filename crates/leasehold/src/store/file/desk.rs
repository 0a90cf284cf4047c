//! The one thread of a client that opens, locks, reads and writes.
//!
//! All of that can block: for a turn that a stopped process has, on a disk that is slow. So it is done in one place, one
//! request after the other, and whoever asks only waits for an answer. A client that gives a link up, and opens another, asks
//! the same desk: however often it does that while a writer is stopped, there is one thread that waits for it.
//!
//! Beside the requests there come: bells, when there is news for a session of ours (P27); and connections to the lives of
//! those whom our sessions wait for, when they break (P26).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Delivery, Name, Op, SessionId};
use tokio::sync::{mpsc, oneshot};

use super::fault::{Means, Trouble, share};
use super::link::Tie;
use super::live::{Live, Pulse};
use super::place::FileKey;
use super::sentry::{Bell, Life, Watches};
use super::site::{Ask, Done, Site};
use super::turn::Waiting;
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Inbox, Message};
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
    Rung {
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
    pub(super) waiting: Waiting,
    lives: Mutex<Vec<Arc<Life>>>,
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
                let worker = Worker {
                    world: Arc::clone(&self.world),
                    path: self.path.clone(),
                    shown: Arc::clone(&self.shown),
                    site: None,
                    ties: Vec::new(),
                    attached: HashMap::new(),
                    watches: Watches::new(sender.downgrade()),
                    jobs: sender.downgrade(),
                };
                self.world.spawn_session(Box::pin(worker.work(received)))?;
                jobs.insert(sender).clone()
            }
        };
        // It is there: nobody else can have ended it meanwhile.
        drop(sender.send(Job::Open { tell }));
        Ok(())
    }

    pub(super) fn send(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
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
        self.shown.waiting.reason(self.world.now_us())
    }

    /// The life of the session that attached last.
    pub(super) fn life(&self) -> Option<OwnedFd> {
        let lives = self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.last()?.descriptor().try_clone().ok()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if self.is_ours() {
            // Here, and not by the thread: a program that ends now leaves nothing behind.
            self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|life| life.unbind());
        }
    }
}

struct Worker {
    world: Arc<dyn World>,
    path: PathBuf,
    shown: Arc<Shown>,
    site: Option<Site>,
    ties: Vec<Weak<Tie>>,
    attached: HashMap<SessionId, Attached>,
    watches: Watches,
    jobs: mpsc::WeakUnboundedSender<Job>,
}

struct Attached {
    inbox: Inbox,
    tie: Weak<Tie>,
    bell: Bell,
}

impl Worker {
    async fn work(mut self, mut received: mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = received.recv().await {
            self.handle(job);
            // The bells, lives and watches have their turn, too.
            tokio::task::yield_now().await;
        }
    }

    fn handle(&mut self, job: Job) {
        // An answer that nobody waits for any more is dropped.
        match job {
            // Its caller went: many of them may have, while somebody else had the turn.
            Job::Open { tell } if tell.is_closed() => {}
            Job::Open { tell } => drop(tell.send(self.open())),
            // A link that was given up carries nothing out any more: what was asked by it long ago least of all.
            Job::Apply { tie, .. }
            | Job::Renew { tie, .. }
            | Job::Names { tie, .. }
            | Job::Attach { tie, .. }
            | Job::Ping { tie, .. }
                if tie.is_closed() => {}
            Job::Apply { name, op, tell, .. } => {
                let mut heard = self.apply(&[(&name, &op)]);
                drop(tell.send(heard.pop().unwrap_or_else(|| Err(gone()))));
            }
            Job::Renew { batch, tell, .. } => {
                let batch: Vec<_> = batch.iter().map(|(name, op)| (name, op)).collect();
                drop(tell.send(Ok(self.apply(&batch))));
            }
            Job::Names { from, tell, .. } => {
                let names = self.with_site(|site| site.names(from));
                drop(tell.send(names));
            }
            Job::Attach { tie, session, inbox, tell } => drop(tell.send(self.attach(&tie, session, inbox))),
            Job::Ping { tell, .. } => {
                let checked = self.with_site(|site| site.check());
                drop(tell.send(checked.map(|()| self.world.now_us())));
            }
            Job::Detached { session, tie } => {
                if self.attached.get(&session).is_some_and(|known| Weak::ptr_eq(&known.tie, &tie)) {
                    self.attached.remove(&session);
                }
            }
            Job::Rung { session } => self.rung(session),
            Job::Broken { holder } => {
                for name in self.watches.broke(holder) {
                    self.attached.values().for_each(|one| (one.inbox)(Message::Look(name.clone())));
                }
            }
        }
    }

    fn open(&mut self) -> Result<Opened, Error> {
        if let Some(Err(trouble)) = self.site.as_ref().map(Site::check) {
            self.close_site(trouble);
        }
        let site = match &mut self.site {
            Some(site) => site,
            closed => closed.insert(Site::open(&self.path, &*self.world, &self.shown.waiting)?),
        };
        let (tie, run) = (Arc::new(Tie::new()), site.run().to_owned());
        self.ties.retain(|tie| tie.strong_count() > 0);
        self.ties.push(Arc::downgrade(&tie));
        Ok(Opened { run, tie })
    }

    fn with_site<T>(&mut self, ask: impl FnOnce(&mut Site) -> Result<T, Trouble>) -> Result<T, Fault> {
        match self.site.as_mut().map(ask) {
            Some(Ok(asked)) => Ok(asked),
            Some(Err(trouble)) => Err(self.fault(trouble)),
            None => Err(gone()),
        }
    }

    fn fault(&mut self, trouble: Trouble) -> Fault {
        match trouble {
            Trouble::Other(error, means @ (Means::Gone | Means::Moved)) => {
                let told = error.share();
                self.close_site(Trouble::Other(error, means));
                Fault::Gone(told)
            }
            trouble => trouble.fault(&self.path),
        }
    }

    /// The database is to be opened anew, or another one is. Every link of ours ends with it.
    fn close_site(&mut self, trouble: Trouble) {
        self.site = None;
        self.watches.clear();
        if matches!(trouble, Trouble::Other(_, Means::Moved)) {
            // They are where nobody looks any more.
            self.lives().clear();
        }
        let reason = trouble.at_open(&self.path);
        for tie in std::mem::take(&mut self.ties) {
            if let Some(tie) = tie.upgrade() {
                tie.end(&reason);
            }
        }
        for attached in std::mem::take(&mut self.attached).into_values() {
            (attached.inbox)(Message::Detached);
        }
    }

    fn apply(&mut self, batch: &[(&Name, &Op)]) -> Vec<Result<Answer, Fault>> {
        let own = self.own();
        let Some(site) = &mut self.site else { return batch.iter().map(|_| Err(gone())).collect() };
        let (watches, live) = (&self.watches, Arc::clone(&site.live));
        let is_ours = |session| own.contains(&session);
        let is_dead = |session| match own.contains(&session) || watches.sees(session) {
            true => false,
            false => matches!(live.pulse(session), Pulse::Dead),
        };
        let ask = Ask { world: &*self.world, waiting: &self.shown.waiting, is_dead: &is_dead, is_ours: &is_ours };
        match site.apply(&ask, batch) {
            Ok(all) => {
                let mut told = Vec::new();
                let answered = batch.iter().zip(all).map(|((name, _), done)| match done {
                    Ok(done) => Ok(self.after((*name).clone(), done, &live, &mut told)),
                    Err(trouble) => Err(trouble.fault(&self.path)),
                });
                let answered = answered.collect();
                told.into_iter().for_each(|(inbox, name, delivery)| inbox(Message::Delivery(name, delivery)));
                answered
            }
            Err(trouble) => {
                let fault = self.fault(trouble);
                (1..batch.len()).map(|_| Err(share(&fault))).chain([Err(share(&fault))]).collect()
            }
        }
    }

    /// What follows a step that is stored: who is told, and whom we watch from now on.
    fn after(&mut self, name: Name, done: Done, live: &Live, told: &mut Vec<(Inbox, Name, Delivery)>) -> Answer {
        for delivery in done.deliveries {
            match self.attached.get(&delivery.to) {
                Some(attached) => told.push((Arc::clone(&attached.inbox), name.clone(), delivery)),
                None => live.ring(delivery.to),
            }
        }
        if let Some(next) = done.next {
            live.ring(next);
        }
        let others = done.holder.filter(|holder| !self.is_own(*holder));
        match others.filter(|_| done.waits) {
            Some(holder) => self.watch(&name, holder, live),
            None => self.watches.forget(&name),
        }
        done.answer
    }

    fn watch(&mut self, name: &Name, holder: SessionId, live: &Live) {
        if self.watches.watch(name, holder, live).is_dead() {
            // It died between the step and now.
            self.attached.values().for_each(|one| (one.inbox)(Message::Look(name.clone())));
        }
    }

    /// A bell says that there is something, and not what.
    fn rung(&mut self, session: SessionId) {
        let (Some(attached), Some(site)) = (self.attached.get(&session), &self.site) else { return };
        attached.bell.heard();
        if is_on(Mutant::P27Deaf) {
            return;
        }
        for (name, delivery) in site.news(&*self.world, session) {
            (attached.inbox)(Message::Delivery(name, delivery));
        }
        let live = Arc::clone(&site.live);
        for name in self.watches.names() {
            let Some(holder) = self.site.as_ref().and_then(|site| site.holder(&name)) else { continue };
            match self.is_own(holder) {
                true => self.watches.forget(&name),
                false => self.watch(&name, holder, &live),
            }
        }
    }

    fn attach(&mut self, tie: &Arc<Tie>, session: SessionId, inbox: Inbox) -> Result<(), Fault> {
        let (world, shown) = (Arc::clone(&self.world), Arc::clone(&self.shown));
        let jobs = self.jobs.clone();
        let place = self.lives().iter().find(|life| life.session() == session).and_then(|life| life.parts());
        let (bell, life) = self.with_site(|site| {
            let turn = site.take_turn(&*world, &shown.waiting)?;
            let said = |errno| Trouble::Other(site.place.refused("live", errno), Means::Gone);
            let sockets = site.live.bind(session, place).map_err(said)?;
            let mut random = [0; 8];
            world.random(&mut random);
            site.live.sweep(u64::from_ne_bytes(random));
            drop(turn);
            let bell = Bell::new(&site.live, session, sockets.bell, sockets.bell_key, jobs);
            let life = Life::new(&site.live, session, sockets.life, sockets.life_key);
            let io = |error: io::Error| Trouble::Other(no_socket(error), Means::Gone);
            Ok((bell.map_err(io)?, life.map_err(io)?))
        })?;
        tie.attached(session, bell.detach());
        self.lives().retain(|life| life.session() != session);
        self.lives().push(Arc::new(life));
        self.attached.insert(session, Attached { inbox, tie: Arc::downgrade(tie), bell });
        Ok(())
    }

    fn lives(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Life>>> {
        self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> Vec<SessionId> {
        self.lives().iter().map(|life| life.session()).collect()
    }

    fn is_own(&self, session: SessionId) -> bool {
        self.lives().iter().any(|life| life.session() == session)
    }
}

/// Which socket it is: descriptor and file.
pub(super) type Bound = (OwnedFd, FileKey);

fn no_socket(error: io::Error) -> Error {
    Error::new(ErrorKind::Store, format!("the store's sockets cannot be used ({error}): look after its limits"))
        .because(error)
}

pub(super) fn gone() -> Fault {
    Fault::Gone(Error::new(ErrorKind::Unreachable, "the link was closed"))
}
