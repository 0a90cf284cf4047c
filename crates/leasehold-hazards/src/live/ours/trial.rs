//! A trial: workers with Leasehold, the servers that they use, and the faults that they meet.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};

use super::notes::{Note, Who, judge};
use super::proxy::{Fault, Proxy};
use super::words::{News, Order, now};
use super::worker::Worker;
use super::{Program, ms};
use crate::judge::Harm;
use crate::live::server::{Equipment, Server};
use crate::live::shim::SkewClock;

/// The lease of all locks, as in the model.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// The time in which everything that must happen does happen, on a busy machine.
const WITHIN: Duration = Duration::from_secs(30);
/// The time in which a request has certainly reached its server.
const SETTLES: Duration = Duration::from_millis(200);
/// The time in which the trial learns that a worker is ready.
const CLOCKS_AGREE: Duration = Duration::from_secs(2);

pub(super) struct Trial<'a> {
    program: &'a dyn Program,
    pub(super) servers: Vec<Server>,
    replica: Option<Server>,
    workers: Vec<Worker>,
    /// For each worker, the proxies in front of the servers.
    proxies: Vec<Vec<Proxy>>,
    notes: Vec<(Duration, Who, Note)>,
    /// For each thread, the number of its events that the trial has waited for.
    seen: BTreeMap<Who, usize>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(program: &'a dyn Program) -> Self {
        Self {
            program,
            servers: vec![],
            replica: None,
            workers: vec![],
            proxies: vec![],
            notes: vec![],
            seen: BTreeMap::new(),
        }
    }

    /// Starts one server.
    pub(super) fn redis(&mut self) -> io::Result<()> {
        self.servers = vec![Server::start(Equipment::default())?];
        Ok(())
    }

    /// Starts a server with a replica that is still connected, and has not yet received anything that comes now.
    pub(super) fn redis_with_late_replica(&mut self) -> io::Result<()> {
        let equipment = Equipment { has_port: true, has_clock: false };
        let (server, replica) = (Server::start(equipment)?, Server::start(equipment)?);
        replica.replicate(&server)?;
        replica.cut_replica()?;
        (self.servers, self.replica) = (vec![server], Some(replica));
        Ok(())
    }

    /// Starts one server whose clock can be moved.
    pub(super) fn redis_with_clock(&mut self) -> io::Result<()> {
        self.servers = vec![Server::start(Equipment { has_port: false, has_clock: true })?];
        Ok(())
    }

    /// Starts three servers, and makes them a quorum.
    pub(super) async fn quorum(&mut self, has_clock: bool) -> io::Result<()> {
        let equipment = Equipment { has_port: false, has_clock };
        self.servers = (0..3).map(|_| Server::start(equipment)).collect::<io::Result<_>>()?;
        let proxies = self.new_proxies(None).await?;
        let output = tokio::process::Command::from(self.program.begin(&url(&proxies))).output().await?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// Starts a worker. Returns its first thread.
    pub(super) async fn worker(&mut self) -> io::Result<Who> {
        self.worker_without(None).await
    }

    /// Starts a worker that cannot reach one of the servers.
    pub(super) async fn worker_without(&mut self, server: Option<usize>) -> io::Result<Who> {
        let proxies = self.new_proxies(server).await?;
        let command = self.program.worker(&url(&proxies), ms(LEASE));
        self.start_worker(command, proxies, Duration::ZERO).await
    }

    /// Starts a worker whose clock is ahead.
    pub(super) async fn worker_ahead(&mut self, by: Duration) -> io::Result<Who> {
        let proxies = self.new_proxies(None).await?;
        let mut command = self.program.worker(&url(&proxies), ms(LEASE));
        let clock = SkewClock::new(self.servers[0].dir())?;
        clock.advance(by)?;
        clock.preload(&mut command);
        self.start_worker(command, proxies, by).await
    }

    async fn start_worker(
        &mut self,
        command: std::process::Command,
        proxies: Vec<Proxy>,
        ahead: Duration,
    ) -> io::Result<Who> {
        self.workers.push(Worker::start(command)?);
        self.proxies.push(proxies);
        let who = Who { worker: self.workers.len() - 1, slot: 0 };
        let news = self.until(who, "is ready", |news| matches!(news, News::Ready(_))).await?;
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)? + ahead;
        match news {
            News::Ready(its) if its + CLOCKS_AGREE < clock => {
                Err(io::Error::other(format!("the clock of {who} is not ahead by {ahead:?}")))
            }
            _ => Ok(who),
        }
    }

    async fn new_proxies(&self, without: Option<usize>) -> io::Result<Vec<Proxy>> {
        let mut proxies = Vec::new();
        for (number, server) in self.servers.iter().enumerate() {
            let fault = if without == Some(number) { Fault::Refuse } else { Fault::None };
            proxies.push(Proxy::start(server.socket(), fault).await?);
        }
        Ok(proxies)
    }

    pub(super) async fn order(&mut self, who: Who, order: Order) -> io::Result<()> {
        self.workers[who.worker].order(who.slot, order).await
    }

    /// Lets a thread wait for the lock until a server knows it.
    pub(super) async fn ask(&mut self, who: Who) -> io::Result<()> {
        self.ask_within(who, None).await
    }

    pub(super) async fn ask_within(&mut self, who: Who, limit: Option<Duration>) -> io::Result<()> {
        self.order(who, Order::Lock(limit.map(ms))).await?;
        self.until(who, "asks", |news| matches!(news, News::Wants(_))).await?;
        sleep(SETTLES).await;
        self.note(who, Note::IsKnown);
        Ok(())
    }

    /// Lets a thread lock a lock that nobody holds.
    pub(super) async fn lock(&mut self, who: Who) -> io::Result<()> {
        self.order(who, Order::Lock(None)).await?;
        self.enters(who).await
    }

    /// Waits until a thread holds the lock.
    pub(super) async fn enters(&mut self, who: Who) -> io::Result<()> {
        self.until(who, "holds the lock", |news| matches!(news, News::Enters(..))).await.map(drop)
    }

    /// Waits until a thread holds the lock. It must not take longer than this.
    pub(super) async fn enters_within(&mut self, who: Who, limit: Duration) -> io::Result<()> {
        let began = Instant::now();
        self.enters(who).await?;
        match began.elapsed() {
            took if took <= limit => Ok(()),
            took => Err(io::Error::other(format!("{who} holds the lock after {took:?}, and not within {limit:?}"))),
        }
    }

    /// Waits for a moment in which a thread must not enter.
    pub(super) async fn stays_out(&mut self, who: Who, moment: Duration) -> io::Result<()> {
        sleep(moment).await;
        let events = self.workers[who.worker].events();
        let mut news =
            events.iter().filter(|event| event.slot == who.slot).skip(self.seen.get(&who).copied().unwrap_or(0));
        match news.any(|event| matches!(event.news, News::Enters(..))) {
            false => Ok(()),
            true => Err(io::Error::other(format!("{who} holds the lock too early"))),
        }
    }

    pub(super) async fn gives_up(&mut self, who: Who) -> io::Result<()> {
        self.until(who, "gives up", |news| *news == News::GivesUp).await.map(drop)
    }

    /// Waits until one of the waiting threads holds the lock for the first time. Removes and returns it.
    pub(super) async fn first_of(&mut self, waiting: &mut Vec<Who>) -> io::Result<Who> {
        let has_entered = |who: &Who| {
            let events = self.workers[who.worker].events();
            events.iter().any(|event| event.slot == who.slot && matches!(event.news, News::Enters(..)))
        };
        within("one of several holds the lock", || waiting.iter().any(has_entered)).await?;
        let first = waiting.iter().position(has_entered).ok_or_else(|| io::Error::other("nobody holds the lock"))?;
        let first = waiting.remove(first);
        self.enters(first).await?;
        Ok(first)
    }

    /// Returns whether a thread holds the lock, by its guard.
    async fn holds(&mut self, who: Who) -> io::Result<bool> {
        self.order(who, Order::Check).await?;
        let news = self.until(who, "checks", |news| matches!(news, News::Checked(_))).await?;
        Ok(news == News::Checked(true))
    }

    /// Lets a thread check its guard. The answer must be this one.
    pub(super) async fn check(&mut self, who: Who, is_held: bool) -> io::Result<()> {
        match self.holds(who).await? {
            answer if answer == is_held => Ok(()),
            answer => Err(io::Error::other(format!("the guard of {who} is valid: {answer}, instead of {is_held}"))),
        }
    }

    /// Waits until the library has confirmed a release that was ordered before.
    pub(super) async fn is_confirmed(&mut self, who: Who) -> io::Result<()> {
        self.until(who, "has released", |news| *news == News::Released).await.map(drop)
    }

    /// Waits until a thread knows that it has lost the lock.
    pub(super) async fn until_lost(&mut self, who: Who) -> io::Result<()> {
        let began = Instant::now();
        while self.holds(who).await? {
            if began.elapsed() > WITHIN {
                return Err(io::Error::other(format!("{who} never knows that it has lost the lock")));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Lets a thread write, if its guard says that it holds the lock.
    pub(super) async fn write_if_held(&mut self, who: Who) -> io::Result<()> {
        match self.holds(who).await? {
            true => self.write_as_checked(who).await,
            false => Ok(()),
        }
    }

    /// Lets a thread check its guard, and write.
    pub(super) async fn write(&mut self, who: Who) -> io::Result<()> {
        self.check(who, true).await?;
        self.write_as_checked(who).await
    }

    /// Lets a thread write that has checked its guard before.
    pub(super) async fn write_as_checked(&mut self, who: Who) -> io::Result<()> {
        self.order(who, Order::Write).await?;
        self.until(who, "writes", |news| matches!(news, News::Writes(_))).await.map(drop)
    }

    /// Lets a thread release, and waits until the library has confirmed it.
    pub(super) async fn release(&mut self, who: Who) -> io::Result<()> {
        self.order(who, Order::Release).await?;
        self.is_confirmed(who).await
    }

    /// Lets a thread end its critical section, and does not wait for the rest of the order.
    pub(super) async fn leave(&mut self, who: Who, order: Order) -> io::Result<()> {
        self.order(who, order).await?;
        self.until(who, "leaves", |news| *news == News::Leaves).await.map(drop)
    }

    pub(super) fn pause(&self, who: Who) -> io::Result<()> {
        self.workers[who.worker].pause()
    }

    pub(super) fn resume(&self, who: Who) -> io::Result<()> {
        self.workers[who.worker].resume()
    }

    pub(super) async fn kill(&mut self, who: Who) -> io::Result<()> {
        self.workers[who.worker].kill().await?;
        self.note(who, Note::Dies);
        Ok(())
    }

    /// Begins or ends a fault between a worker and all servers.
    pub(super) fn fault(&self, who: Who, fault: Fault) {
        self.proxies[who.worker].iter().for_each(|proxy| proxy.set(fault));
    }

    /// Waits until the fault of a worker has held or lost something.
    pub(super) async fn strikes(&self, who: Who) -> io::Result<()> {
        let proxies = &self.proxies[who.worker];
        within("the fault strikes", || proxies.iter().any(Proxy::has_struck)).await
    }

    /// Kills the server. Its replica takes its place.
    pub(super) fn fail_over(&mut self) {
        let Some(replica) = &self.replica else { return };
        self.proxies.iter().flatten().for_each(|proxy| proxy.redirect(replica.socket()));
        self.servers[0].stop();
    }

    /// Lets a thread release, and counts the workers that it sends messages to.
    pub(super) async fn release_and_count(&mut self, who: Who) -> io::Result<()> {
        self.proxies.iter().flatten().for_each(Proxy::forget_pushes);
        self.leave(who, Order::Release).await?;
        sleep(SETTLES).await;
        let others = self.proxies.iter().enumerate().filter(|(worker, _)| *worker != who.worker);
        let has_push = |proxies: &Vec<Proxy>| proxies.iter().map(Proxy::pushes).sum::<usize>() > 0;
        let woken = others.filter(|(_, proxies)| has_push(proxies)).count();
        self.note(who, Note::Woken(woken));
        Ok(())
    }

    fn note(&mut self, who: Who, note: Note) {
        self.notes.push((now(), who, note));
    }

    /// Waits for the next event of a thread that is so.
    async fn until(&mut self, who: Who, what: &str, is_so: impl Fn(&News) -> bool) -> io::Result<News> {
        let seen = self.seen.entry(who).or_default();
        let worker = &self.workers[who.worker];
        let began = Instant::now();
        loop {
            let news: Vec<_> = worker.events().into_iter().filter(|event| event.slot == who.slot).collect();
            for event in &news[*seen..] {
                *seen += 1;
                if let News::Failed(why) = &event.news {
                    return Err(io::Error::other(format!("{who}: {why}")));
                }
                if is_so(&event.news) {
                    return Ok(event.news.clone());
                }
            }
            if began.elapsed() > WITHIN {
                let news: Vec<_> = news.iter().filter(|event| !matches!(event.news, News::Believes(_))).collect();
                return Err(io::Error::other(format!("{who} never {what}; it did {news:?}")));
            }
            sleep(Duration::from_millis(3)).await;
        }
    }

    /// Ends the trial. Returns the harm that the judge saw.
    pub(super) async fn end(mut self) -> io::Result<Vec<Harm>> {
        sleep(SETTLES).await;
        for (number, worker) in self.workers.iter().enumerate() {
            let notes = worker
                .events()
                .into_iter()
                .map(|event| (event.at, Who { worker: number, slot: event.slot }, Note::News(event.news)));
            self.notes.extend(notes);
        }
        // A call can fail while the trial waits for something else.
        for (_, who, note) in &self.notes {
            if let Note::News(News::Failed(why)) = note {
                return Err(io::Error::other(format!("{who}: {why}")));
            }
        }
        self.notes.sort_by_key(|(at, ..)| *at);
        Ok(judge(&self.notes))
    }
}

/// Waits until something is so.
async fn within(what: &str, is_so: impl Fn() -> bool) -> io::Result<()> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > WITHIN {
            return Err(io::Error::other(format!("never: {what}")));
        }
        sleep(Duration::from_millis(3)).await;
    }
    Ok(())
}

/// Returns the URL of a store behind proxies.
fn url(proxies: &[Proxy]) -> String {
    match proxies {
        [proxy] => proxy.url(),
        proxies => {
            let nodes: Vec<_> = proxies.iter().map(|proxy| format!("node={}", proxy.url())).collect();
            format!("quorum:?{}&max_lease={}s", nodes.join("&"), LEASE.as_secs())
        }
    }
}
