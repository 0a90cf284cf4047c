//! The work of the desk's thread: one request after the other, in the order of `backlog.rs`.
//!
//! Beside requests there are two events: a bell, if there are messages for a session of ours (P27); and a broken
//! connection to the life of a holder for whom our sessions wait (P26).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Delivery, Name, Op, SessionId};
use tokio::sync::{mpsc, oneshot};

use super::backlog::Backlog;
use super::fault::Trouble;
use super::job::{Job, Opened, Tie, gone};
use super::live::{Live, Pulse};
use super::sentry::{Bell, Life, Watches};
use super::shown::Shown;
use super::site::{Ask, Done, Site, lease_us};
use crate::descriptors;
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Inbox, Message};
use crate::world::World;

pub(super) struct Worker {
    world: Arc<dyn World>,
    path: PathBuf,
    shown: Arc<Shown>,
    site: Option<Site>,
    ties: Vec<Weak<Tie>>,
    attached: HashMap<SessionId, Attached>,
    watches: Watches,
    /// Our lives whose names are not found any more by the path of the store. Others may find them by another path: the
    /// locks that we hold there are ours until their leases end, and to close a life would give them away.
    former: Vec<Arc<Life>>,
    jobs: mpsc::WeakUnboundedSender<Job>,
}

/// The number of such lives that are kept, for a directory that is replaced again and again.
const FORMER: usize = 16;

/// The number of acquires of one name that are carried out together.
const TOGETHER: usize = 16;

/// An acquire, and where its reply goes.
type Acquiring = (Arc<Tie>, Op, oneshot::Sender<Result<Answer, Fault>>);

struct Attached {
    inbox: Inbox,
    tie: Weak<Tie>,
    bell: Bell,
}

impl Worker {
    pub(super) fn new(
        world: Arc<dyn World>,
        path: PathBuf,
        shown: Arc<Shown>,
        jobs: mpsc::WeakUnboundedSender<Job>,
    ) -> Self {
        let watches = Watches::new(jobs.clone());
        let (ties, attached, former) = (Vec::new(), HashMap::new(), Vec::new());
        Self { world, path, shown, site: None, ties, attached, watches, former, jobs }
    }

    pub(super) async fn work(mut self, mut received: mpsc::UnboundedReceiver<Job>) {
        let mut backlog = Backlog::default();
        loop {
            while let Ok(job) = received.try_recv() {
                backlog.push(job);
            }
            match backlog.pop() {
                Some(Job::Apply { tie, name, op: op @ Op::Acquire(_), tell }) => {
                    let mut all = vec![(tie, op, tell)];
                    while all.len() < TOGETHER
                        && let Some(Job::Apply { tie, op, tell, .. }) = backlog.pop_same(&name)
                    {
                        all.push((tie, op, tell));
                    }
                    self.acquire(&name, all);
                }
                Some(job) => self.do_one(job),
                None => match received.recv().await {
                    Some(job) => backlog.push(job),
                    None => return,
                },
            }
            // Lets the tasks of bells, lives and watches run.
            tokio::task::yield_now().await;
        }
    }

    /// Carries out acquires of one name in one transaction. If thousands wait in a queue, to read it takes longer than the
    /// steps: so the more acquires wait for the thread, the fewer times it reads the queue.
    fn acquire(&mut self, name: &Name, mut all: Vec<Acquiring>) {
        let count = all.len();
        // Requests of a closed link are not carried out.
        all.retain(|(tie, ..)| !tie.is_closed());
        let batch: Vec<_> = all.iter().map(|(_, op, _)| (name, op)).collect();
        let answers = if batch.is_empty() { Vec::new() } else { self.apply(&batch) };
        for ((.., tell), answer) in all.into_iter().zip(answers) {
            drop(tell.send(answer));
        }
        self.shown.asked.fetch_sub(count, Ordering::Relaxed);
    }

    fn do_one(&mut self, job: Job) {
        let was_asked = !matches!(job, Job::Rung { .. } | Job::Broken { .. });
        self.handle(job);
        if was_asked {
            self.shown.asked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn handle(&mut self, job: Job) {
        // A reply that nobody waits for any more is dropped.
        match job {
            // Its caller is gone: many may be, after somebody else had the turn for long.
            Job::Open { tell } if tell.is_closed() => {}
            Job::Open { tell } => drop(tell.send(self.open())),
            // Requests of a closed link are not carried out, above all not old ones.
            Job::Apply { tie, .. }
            | Job::Renew { tie, .. }
            | Job::Names { tie, .. }
            | Job::Attach { tie, .. }
            | Job::Ping { tie, .. }
                if tie.is_closed() => {}
            Job::Apply { name, op: Op::Inspect, tell, .. } => drop(tell.send(self.inspect(&name))),
            Job::Apply { name, op, tell, .. } => {
                let mut heard = self.apply(&[(&name, &op)]);
                drop(tell.send(heard.pop().unwrap_or_else(|| Err(gone()))));
            }
            Job::Renew { batch, tell, .. } => {
                let batch: Vec<_> = batch.iter().map(|(name, op)| (name, op)).collect();
                drop(tell.send(Ok(self.apply(&batch))));
            }
            Job::Names { from, tell, .. } => {
                let world = Arc::clone(&self.world);
                let names = self.with_site(|site| site.names(&*world, from));
                drop(tell.send(names));
            }
            Job::Attach { tie, session, inbox, tell } => drop(tell.send(self.attach(&tie, session, inbox))),
            Job::Ping { tell, .. } => {
                let checked = self.with_site(|site| site.check());
                drop(tell.send(checked.map(|()| lease_us(&*self.world))));
            }
            Job::Detached { session, tie } => {
                if self.attached.get(&session).is_some_and(|known| Weak::ptr_eq(&known.tie, &tie)) {
                    self.attached.remove(&session);
                }
            }
            Job::Rung { session } => self.rung(session),
            Job::Broken { holder } => {
                for name in self.watches.broke(holder) {
                    self.attached.values().for_each(|one| (one.inbox)(Message::Recheck(name.clone())));
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
            Trouble::Gone(ref error) => {
                let told = error.share();
                self.close_site(trouble);
                Fault::Gone(told)
            }
            Trouble::NoRoom(_) | Trouble::Nonsense(_) | Trouble::Refused(_) => trouble.fault(&self.path),
        }
    }

    /// Closes the database, so that it, or another one, is opened next. Every link of ours ends.
    fn close_site(&mut self, trouble: Trouble) {
        self.site = None;
        self.watches.clear();
        if is_on(Mutant::P26DiesWithPath) {
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

    /// A reader needs no turn.
    fn inspect(&mut self, name: &Name) -> Result<Answer, Fault> {
        let (own, world) = (self.own(), Arc::clone(&self.world));
        self.with_site(|site| {
            let live = Arc::clone(&site.live);
            let is_dead = |session| !own.contains(&session) && matches!(live.pulse(session), Pulse::Dead);
            site.inspect(&*world, name, &is_dead)
        })
    }

    fn apply(&mut self, batch: &[(&Name, &Op)]) -> Vec<Result<Answer, Fault>> {
        let (own, entered) = (self.own(), batch.iter().fold(true, |all, (name, op)| all & self.enter(name, op)));
        let Some(site) = self.site.as_mut().filter(|_| entered) else {
            return batch.iter().map(|_| Err(gone())).collect();
        };
        let (watches, live) = (&self.watches, Arc::clone(&site.live));
        let is_dead = |session| match own.contains(&session) || watches.sees(session) {
            true => false,
            false => matches!(live.pulse(session), Pulse::Dead),
        };
        let ask = Ask { world: &*self.world, waiting: &self.shown.waiting, is_dead: &is_dead, own: &own };
        match site.apply(&ask, batch) {
            Ok(all) => {
                let mut told = Vec::new();
                let answered = batch.iter().zip(all).map(|((name, _), done)| match done {
                    Ok(done) => Ok(self.after(name, done, &live, &mut told)),
                    Err(trouble) => Err(trouble.fault(&self.path)),
                });
                let answered = answered.collect();
                told.into_iter().for_each(|(inbox, name, delivery)| inbox(Message::Delivery(name, delivery)));
                answered
            }
            Err(trouble) => {
                let fault = self.fault(trouble);
                (1..batch.len()).map(|_| Err(fault.share())).chain([Err(fault.share())]).collect()
            }
        }
    }

    /// Returns whether a request may be carried out: a client that has ended enters no record any more.
    fn enter(&self, name: &Name, op: &Op) -> bool {
        !matches!(op, Op::Acquire(_)) || self.shown.presence.enter(name)
    }

    /// Acts on a stored step: notifies sessions, and watches holders from now on.
    fn after(&mut self, name: &Name, done: Done, live: &Live, told: &mut Vec<(Inbox, Name, Delivery)>) -> Answer {
        for delivery in done.deliveries {
            match self.attached.get(&delivery.to) {
                Some(attached) => told.push((Arc::clone(&attached.inbox), name.clone(), delivery)),
                None => live.ring(delivery.to),
            }
        }
        if let Some(next) = done.next.filter(|_| !is_on(Mutant::P26NextIsBlind)) {
            live.ring(next);
        }
        if !done.contains_us {
            self.shown.presence.leave(name);
        }
        match done.others {
            _ if !done.waits => self.watches.forget(name),
            None => {}
            Some(others) => self.watch(name, &others, live),
        }
        done.answer
    }

    fn watch(&mut self, name: &Name, holders: &[SessionId], live: &Live) {
        if self.watches.watch(name, holders, live) {
            // A holder died between the step and now.
            self.attached.values().for_each(|one| (one.inbox)(Message::Recheck(name.clone())));
        }
    }

    /// Reads the messages after a bell: a bell itself has no content.
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
            let holders = self.site.as_ref().map(|site| site.holders(&name)).unwrap_or_default();
            let others: Vec<_> = holders.iter().copied().filter(|one| !self.is_own(*one)).collect();
            if !holders.is_empty() {
                self.watch(&name, &others, &live);
            }
        }
    }

    fn attach(&mut self, tie: &Arc<Tie>, session: SessionId, inbox: Inbox) -> Result<(), Fault> {
        let (world, shown) = (Arc::clone(&self.world), Arc::clone(&self.shown));
        let jobs = self.jobs.clone();
        let known = self.lives().iter().find(|life| life.session() == session).cloned();
        let (bell, life) = self.with_site(|site| {
            let turn = site.take_turn(&*world, &shown.waiting)?;
            let said = |errno| Trouble::Gone(site.directory.refused("live", errno));
            // Also if somebody has removed its name: a command may have inherited this life, and would not have a new
            // one. Without a name, the next holder follows when its lease ends.
            let is_of_here = |life: &&Arc<Life>| life.run() == site.run() && !is_on(Mutant::P26IsReborn);
            let found = known.as_ref().filter(is_of_here).and_then(|life| life.parts());
            let sockets = site.live.bind(session, found).map_err(said)?;
            let mut random = [0; 8];
            world.random(&mut random);
            site.sweep(u64::from_ne_bytes(random), &*world);
            drop(turn);
            let bell = Bell::new(&site.live, session, sockets.bell, sockets.bell_key, jobs);
            let life = Life::new(&site.live, session, sockets.life, sockets.life_key, site.run());
            let io = |error: io::Error| Trouble::Gone(no_socket(error));
            Ok((bell.map_err(io)?, life.map_err(io)?))
        })?;
        tie.attached(session, bell.detach());
        self.lives().retain(|life| life.session() != session);
        if let Some(former) = known.filter(|known| known.key() != life.key()) {
            self.former.truncate(FORMER - 1);
            self.former.insert(0, former);
        }
        self.lives().push(Arc::new(life));
        self.attached.insert(session, Attached { inbox, tie: Arc::downgrade(tie), bell });
        Ok(())
    }

    fn lives(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.shown.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> Vec<SessionId> {
        self.lives().iter().map(|life| life.session()).collect()
    }

    fn is_own(&self, session: SessionId) -> bool {
        self.lives().iter().any(|life| life.session() == session)
    }
}

fn no_socket(error: io::Error) -> Error {
    let advice = descriptors::advice(&error).unwrap_or("check the resource limits of the process");
    Error::new(ErrorKind::Store, format!("cannot use the sockets of the store ({error}): {advice}")).because(error)
}
