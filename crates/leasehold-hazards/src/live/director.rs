//! The director: it makes a schedule happen on real servers.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::gate::Pass;
use super::port::{Kind, Live, LivePort, Process};
use super::server::{Equipment, Server};
use crate::client::ThreadId;
use crate::judge::{Harm, Judge};
use crate::world::{Choice, Search, Stage};

/// A step of time takes this much longer than in the schedule, and a clock jumps further by this much. So a key that
/// expires at that moment has expired.
const SPARE: Duration = Duration::from_millis(60);
/// The longest time that a thread takes until its next request, and a message until its gate.
const STEP_WITHIN: Duration = Duration::from_secs(10);
/// The time in which the messages of the last command reach their gates.
const MESSAGES_WITHIN: Duration = Duration::from_millis(100);

/// Makes one schedule happen on servers of its own. Returns the harm that the judge saw.
pub(super) async fn direct(search: &Search, schedule: &[Choice]) -> io::Result<Vec<Harm>> {
    let mut director = Director::new(search, schedule)?;
    for (choice, ms) in schedule.iter().zip(search.durations_ms(schedule)) {
        director.step(*choice, ms).await.map_err(|error| io::Error::other(format!("{choice:?}: {error}")))?;
    }
    Ok(director.end().await)
}

struct Director {
    servers: Vec<Server>,
    replica: Option<Server>,
    live: Rc<RefCell<Live>>,
    /// The number of asks of each thread that have taken effect.
    done: Vec<usize>,
    changed: Rc<Notify>,
    jump_ms: u64,
}

impl Director {
    fn new(search: &Search, schedule: &[Choice]) -> io::Result<Self> {
        let mut stage = Stage::default();
        (search.stage)(&mut stage);
        let fails_over = schedule.contains(&Choice::FailOver);
        let has_clock = schedule.iter().any(|choice| matches!(choice, Choice::Jump(_)));
        let equipment = Equipment { has_port: fails_over, has_clock };
        let servers = (0..stage.servers.max(1)).map(|_| Server::start(equipment)).collect::<io::Result<Vec<_>>>()?;
        let replica = fails_over.then(|| Server::start(equipment)).transpose()?;
        if let Some(replica) = &replica {
            replica.replicate(&servers[0])?;
        }
        for (server, command) in &stage.before {
            servers[*server].command(&command.words().iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        let changed = Rc::new(Notify::new());
        let live = Rc::new(RefCell::new(Live {
            began: Instant::now(),
            judge: Judge::default(),
            harm: vec![],
            processes: vec![],
            threads: vec![],
            sockets: servers.iter().map(|server| Some(server.socket())).collect(),
            changed: Rc::clone(&changed),
        }));
        let port = LivePort::new(Rc::clone(&live));
        for ((_, body), ahead_ms) in stage.processes.into_iter().zip(stage.ahead_ms) {
            let thread = {
                let mut live = live.borrow_mut();
                live.processes.push(Process { ahead_ms, random: 0 });
                let process = live.processes.len() - 1;
                live.add_thread(process)
            };
            port.start(thread, body);
        }
        let jump_ms = search.bounds.jump_ms;
        Ok(Self { servers, replica, live, done: vec![], changed, jump_ms })
    }

    /// Makes a choice happen. A tick takes `ms`.
    async fn step(&mut self, choice: Choice, ms: u64) -> io::Result<()> {
        match choice {
            Choice::Run(thread) => self.run(thread, Pass::On).await?,
            Choice::LoseReply(thread) => self.run(thread, Pass::LoseReply).await?,
            Choice::LoseRequest(thread) => self.run(thread, Pass::LoseRequest).await?,
            Choice::LoseMessage(thread) => {
                self.until(|live| live.threads[thread].turn.waiting() > 0, "no message arrived").await?;
                self.live.borrow().threads[thread].turn.lose_messages();
            }
            Choice::Tick => tokio::time::sleep(Duration::from_millis(ms) + SPARE).await,
            Choice::Kill(process) => self.kill(process).await,
            Choice::Stop(server) => {
                self.servers[server].stop();
                self.live.borrow_mut().sockets[server] = None;
            }
            Choice::Restart(server) => self.servers[server].restart()?,
            Choice::Jump(server) => self.servers[server].jump(Duration::from_millis(self.jump_ms) + SPARE)?,
            Choice::CutReplica => self.replica.as_ref().map_or(Ok(()), Server::cut_replica)?,
            Choice::FailOver => {
                self.servers[0].stop();
                self.live.borrow_mut().sockets[0] = self.replica.as_ref().map(Server::socket);
            }
        }
        let mut live = self.live.borrow_mut();
        let now_ms = live.now_ms();
        let late = live.judge.time(now_ms, |_| false);
        live.harm.extend(late);
        Ok(())
    }

    /// Gives a thread its turn, until it asks again or ends.
    async fn run(&mut self, thread: ThreadId, pass: Pass) -> io::Result<()> {
        self.done.resize(self.done.len().max(thread + 1), 0);
        let at = self.done[thread];
        self.until(|live| live.threads.get(thread).is_some_and(|it| it.asks.len() > at), "a thread does not ask")
            .await?;
        let (turn, kind) = {
            let mut live = self.live.borrow_mut();
            let (now_ms, kind) = (live.now_ms(), live.threads[thread].asks[at]);
            // A server sees nothing of a request that is lost, and of a thread that reads its clock.
            if kind == Kind::Command && pass != Pass::LoseRequest {
                live.judge.command(now_ms, thread);
            }
            (Rc::clone(&live.threads[thread].turn), kind)
        };
        turn.begin((kind != Kind::Sleep).then_some(pass));
        let goes_on = |live: &Live| live.threads[thread].has_ended || live.threads[thread].asks.len() > at + 1;
        self.until(goes_on, "a thread does not go on").await?;
        turn.end();
        self.done[thread] = at + 1;
        Ok(())
    }

    /// Ends the run. Returns the harm that the judge saw.
    async fn end(self) -> Vec<Harm> {
        tokio::time::sleep(MESSAGES_WITHIN).await;
        let mut live = self.live.borrow_mut();
        // Two messages to one thread wake one client.
        let woken = live.threads.iter().filter(|thread| thread.turn.waiting() > 0).count();
        let woken = live.judge.published(woken);
        live.harm.extend(woken);
        std::mem::take(&mut live.harm)
    }

    async fn kill(&mut self, process: usize) {
        let mut tasks = Vec::new();
        {
            let mut live = self.live.borrow_mut();
            for thread in
                (0..live.threads.len()).filter(|thread| live.threads[*thread].process == process).collect::<Vec<_>>()
            {
                live.judge.dies(thread);
                live.threads[thread].has_ended = true;
                tasks.extend(live.threads[thread].task.take());
            }
        }
        for task in tasks {
            task.abort();
            let _cancelled = task.await;
        }
    }

    async fn until(&self, is_so: impl Fn(&Live) -> bool, otherwise: &str) -> io::Result<()> {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if is_so(&self.live.borrow()) {
                    return;
                }
                // A message that reaches its gate notifies nobody.
                let _timeout = tokio::time::timeout(Duration::from_millis(5), changed).await;
            }
        };
        tokio::time::timeout(STEP_WITHIN, wait).await.map_err(|_| io::Error::other(otherwise.to_owned()))
    }
}
