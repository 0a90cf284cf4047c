//! The state of a run, and what a choice does to it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::choice::{Bounds, Choice, Faults};
use super::row::{Action, Row, ServerView};
use super::stage::Body;
use crate::client::{Answer, Ask, NoReply, ServerId, ThreadId};
use crate::judge::{Harm, Judge};
use crate::redis::{BEGINNING_MS, Command, Message, Reply, Server};
use crate::text::list;

pub(super) struct Thread {
    pub(super) process: usize,
    /// The number of the thread in its process.
    pub(super) number: usize,
    pub(super) ask: Option<(u64, Ask)>,
    pub(super) answer: Option<Answer>,
    pub(super) inbox: VecDeque<Message>,
    pub(super) is_alive: bool,
}

pub(super) struct Process {
    pub(super) name: &'static str,
    pub(super) ahead_ms: u64,
    /// A digest of all that its threads have seen, in order.
    pub(super) seen: u64,
    pub(super) random: u64,
    pub(super) is_alive: bool,
}

/// The state that the world and its threads share.
pub(super) struct State {
    pub(super) now_ms: u64,
    pub(super) servers: Vec<Server>,
    pub(super) is_up: Vec<bool>,
    /// The state of the replica, once it receives no more changes.
    pub(super) replica: Option<Server>,
    pub(super) processes: Vec<Process>,
    pub(super) threads: Vec<Thread>,
    pub(super) spawned: Vec<(ThreadId, Body)>,
    pub(super) judge: Judge,
    pub(super) harm: Vec<Harm>,
    pub(super) faults: Faults,
    /// The number of choices so far.
    pub(super) step: usize,
    pub(super) rows: Option<Vec<Row>>,
}

impl State {
    pub(super) fn add_thread(&mut self, process: usize) -> ThreadId {
        let number = 1 + self.threads.iter().filter(|thread| thread.process == process).count();
        let (ask, answer, inbox) = (None, None, VecDeque::new());
        self.threads.push(Thread { process, number, ask, answer, inbox, is_alive: true });
        self.threads.len() - 1
    }

    pub(super) fn name(&self, thread: ThreadId) -> String {
        let Thread { process, number, .. } = self.threads[thread];
        match number {
            1 => self.processes[process].name.to_owned(),
            _ => format!("{}, thread {number}", self.processes[process].name),
        }
    }

    fn is_ready(&self, thread: &Thread) -> bool {
        match &thread.ask {
            None => false,
            Some((since_ms, Ask::Sleep(ms))) => self.now_ms >= since_ms + ms,
            Some((since_ms, Ask::Message(limit_ms))) => !thread.inbox.is_empty() || self.now_ms >= since_ms + limit_ms,
            Some(_) => true,
        }
    }

    fn can_run(&self, thread: ThreadId) -> bool {
        self.threads[thread].is_alive && self.is_ready(&self.threads[thread])
    }

    pub(super) fn choices(&self, bounds: &Bounds) -> Vec<Choice> {
        let alive = || self.threads.iter().enumerate().filter(|(_, thread)| thread.is_alive);
        let mut choices: Vec<_> =
            alive().filter(|(_, thread)| self.is_ready(thread)).map(|(id, _)| Choice::Run(id)).collect();
        let can_pause = |thread: &Thread| bounds.faults.pauses.contains(&thread.process);
        let can_wait = alive().filter(|(_, thread)| self.is_ready(thread)).all(|(_, thread)| can_pause(thread));
        if can_wait && self.now_ms < bounds.end_ms && alive().next().is_some() {
            choices.push(Choice::Tick);
        }
        for (id, thread) in alive() {
            let sends = matches!(thread.ask, Some((_, Ask::Command(..))));
            let mut offer = |is_possible: bool, choice| choices.extend(is_possible.then_some(choice));
            offer(sends && self.faults.lost_replies > 0, Choice::LoseReply(id));
            offer(sends && self.faults.lost_requests > 0, Choice::LoseRequest(id));
            offer(!thread.inbox.is_empty() && self.faults.lost_messages > 0, Choice::LoseMessage(id));
        }
        let killable = self.faults.kills.iter().copied().filter(|process| self.processes[*process].is_alive);
        choices.extend(killable.map(Choice::Kill));
        for server in (0..self.servers.len()).filter(|server| self.is_up[*server]) {
            choices.extend(self.faults.stops.contains(&server).then_some(Choice::Stop(server)));
            choices.extend((self.faults.restarts > 0).then_some(Choice::Restart(server)));
            choices.extend((self.faults.jumps > 0).then_some(Choice::Jump(server)));
        }
        if self.faults.failovers > 0 {
            choices.push(if self.replica.is_some() { Choice::FailOver } else { Choice::CutReplica });
        }
        choices
    }

    /// Makes a choice. Returns the thread that runs then.
    pub(super) fn apply(&mut self, choice: Choice, bounds: &Bounds) -> Option<ThreadId> {
        self.step += 1;
        match choice {
            Choice::Run(thread) => {
                let answer = self.answer(thread);
                return self.give(thread, answer);
            }
            Choice::LoseReply(thread) => {
                self.faults.lost_replies -= 1;
                let _lost = self.answer(thread);
                self.row(thread, || (Action::LoseReply, None));
                return self.give(thread, Answer::Reply(Err(NoReply)));
            }
            Choice::LoseRequest(thread) => {
                self.faults.lost_requests -= 1;
                if let Some((_, Ask::Command(server, command))) = self.threads[thread].ask.clone() {
                    self.row(thread, || (Action::LoseRequest(server, command), None));
                }
                return self.give(thread, Answer::Reply(Err(NoReply)));
            }
            Choice::LoseMessage(thread) => {
                self.faults.lost_messages -= 1;
                self.threads[thread].inbox.pop_front();
                self.row_of("network", Some(thread), |it| Action::LoseMessage(it.name(thread)));
            }
            Choice::Tick => {
                let before_ms = self.now_ms;
                let paused = (0..self.threads.len()).filter(|id| self.can_run(*id)).collect();
                self.now_ms = self.next_ms(bounds);
                self.row_of("", None, |it| Action::Tick { ms: it.now_ms - before_ms, paused });
            }
            Choice::Kill(process) => self.kill(process),
            Choice::Stop(server) => {
                self.is_up[server] = false;
                self.row_of(&self.server_name(server), None, |_| Action::Stop(server));
            }
            Choice::Restart(server) => {
                self.faults.restarts -= 1;
                self.servers[server].restart(self.now_ms);
                self.row_of(&self.server_name(server), None, |_| Action::Restart(server));
            }
            Choice::Jump(server) => {
                self.faults.jumps -= 1;
                self.servers[server].jump(bounds.jump_ms);
                self.row_of(&self.server_name(server), None, |_| Action::Jump(server, bounds.jump_ms));
            }
            Choice::CutReplica => {
                self.replica = Some(self.servers[0].clone());
                self.row_of("network", None, |_| Action::CutReplica);
            }
            Choice::FailOver => {
                self.faults.failovers -= 1;
                self.servers[0] = self.replica.take().expect("a replica was cut off before");
                // A failover takes time.
                self.now_ms += 1;
                self.row_of("failover", None, |_| Action::FailOver);
            }
        }
        None
    }

    /// Returns the time of the next tick: the next deadline, and at most one tick from now. A pause of less than a tenth
    /// of a tick is no deadline: it is over at the next tick.
    fn next_ms(&self, bounds: &Bounds) -> u64 {
        let pauses = self.threads.iter().filter(|thread| thread.is_alive).filter_map(|thread| match &thread.ask {
            Some((since_ms, Ask::Sleep(ms) | Ask::Message(ms))) if *ms * 10 >= bounds.tick_ms => Some(since_ms + ms),
            _ => None,
        });
        let deadlines = self.servers.iter().flat_map(Server::deadlines_ms).chain(pauses);
        let next_ms = deadlines.filter(|end_ms| *end_ms > self.now_ms).min().unwrap_or(u64::MAX);
        next_ms.min(self.now_ms + bounds.tick_ms)
    }

    /// Makes the ask of a thread take effect.
    fn answer(&mut self, thread: ThreadId) -> Answer {
        let now_ms = self.now_ms;
        let (_, ask) = self.threads[thread].ask.clone().expect("a thread that runs has asked");
        match ask {
            Ask::Command(server, command) => {
                let (reply, receivers) = self.execute(thread, server, &command);
                self.row(thread, || {
                    let shown = match &reply {
                        Ok(reply) => reply.to_string(),
                        Err(NoReply) => "no reply".into(),
                    };
                    (Action::Command(server, command, receivers), Some(shown))
                });
                Answer::Reply(reply)
            }
            Ask::Clock => {
                let ahead_ms = self.processes[self.threads[thread].process].ahead_ms;
                Answer::Clock(BEGINNING_MS + now_ms + ahead_ms)
            }
            Ask::Sleep(_) => Answer::Awake,
            Ask::Message(_) => {
                let message = self.threads[thread].inbox.pop_front();
                self.row(thread, || (message.clone().map_or(Action::Timeout, Action::Message), None));
                Answer::Message(message)
            }
            Ask::Write(token) => {
                let (is_accepted, harm) = self.judge.write(thread, token);
                self.harm.extend(harm);
                self.row(thread, || (Action::Write { token, is_accepted }, None));
                Answer::Written
            }
        }
    }

    /// Carries out a command. Returns the reply, and the threads that are sent messages.
    fn execute(
        &mut self,
        thread: ThreadId,
        server: ServerId,
        command: &Command,
    ) -> (Result<Reply, NoReply>, Vec<ThreadId>) {
        if !self.is_up[server] {
            return (Err(NoReply), vec![]);
        }
        self.judge.command(self.now_ms, thread);
        let (reply, messages) = self.servers[server].execute(self.now_ms, thread, command);
        self.harm.extend(self.judge.published(messages.len()));
        let mut receivers = Vec::new();
        for (receiver, message) in messages {
            if self.threads[receiver].is_alive {
                self.threads[receiver].inbox.push_back(message);
                receivers.push(receiver);
            }
        }
        (Ok(reply), receivers)
    }

    fn give(&mut self, thread: ThreadId, answer: Answer) -> Option<ThreadId> {
        let asker = &mut self.threads[thread];
        asker.ask = None;
        let process = &mut self.processes[asker.process];
        process.seen = hash(&(process.seen, thread, &answer));
        asker.answer = Some(answer);
        Some(thread)
    }

    fn kill(&mut self, process: usize) {
        self.processes[process].is_alive = false;
        for id in 0..self.threads.len() {
            if self.threads[id].process == process {
                self.threads[id].is_alive = false;
                self.threads[id].inbox.clear();
                self.judge.dies(id);
                for server in &mut self.servers {
                    server.disconnect(id);
                }
            }
        }
        self.row_of(self.processes[process].name, None, |_| Action::Kill(process));
    }

    fn server_name(&self, server: ServerId) -> String {
        match self.servers.len() {
            1 => "server".into(),
            _ => format!("server {}", server + 1),
        }
    }

    pub(super) fn row(&mut self, thread: ThreadId, line: impl FnOnce() -> (Action, Option<String>)) {
        if self.rows.is_some() {
            let (action, reply) = line();
            self.push_row(self.name(thread), Some(thread), action, reply);
        }
    }

    fn row_of(&mut self, actor: &str, thread: Option<ThreadId>, action: impl FnOnce(&Self) -> Action) {
        if self.rows.is_some() {
            let action = action(self);
            self.push_row(actor.to_owned(), thread, action, None);
        }
    }

    fn push_row(&mut self, actor: String, thread: Option<ThreadId>, action: Action, reply: Option<String>) {
        let what = match &action {
            Action::Command(server, ..) | Action::LoseRequest(server, _) if self.servers.len() > 1 => {
                format!("{}: {action}", self.server_name(*server))
            }
            Action::Tick { paused, .. } if !paused.is_empty() => format!("{action} while {}", self.pauses(paused)),
            _ => action.to_string(),
        };
        let holds: Vec<_> = self
            .servers
            .iter()
            .zip(&self.is_up)
            .map(|(server, is_up)| match is_up {
                true => server.describe(self.now_ms),
                false => "stopped".into(),
            })
            .collect();
        let row = Row {
            step: self.step,
            at_ms: self.now_ms,
            actor,
            thread,
            action,
            what,
            reply,
            holds: holds.join(" | "),
            servers: self.servers.iter().zip(&self.is_up).map(|(server, is_up)| self.view(server, *is_up)).collect(),
            inside: self.judge.holders(self.now_ms).collect(),
            late: self.judge.late(self.now_ms).collect(),
            waiting: self.judge.waiters().collect(),
        };
        self.rows.get_or_insert_default().push(row);
    }

    /// Says which threads pause.
    fn pauses(&self, threads: &[ThreadId]) -> String {
        let name = |thread: &ThreadId| {
            let Thread { process, number, .. } = self.threads[*thread];
            let process = self.processes[process].name;
            if number == 1 { process.to_owned() } else { format!("thread {number} of {process}") }
        };
        let verb = if threads.len() == 1 { "pauses" } else { "pause" };
        format!("{} {verb}", list(&threads.iter().map(name).collect::<Vec<_>>()))
    }

    fn view(&self, server: &Server, is_up: bool) -> ServerView {
        ServerView { is_up, holds: server.holdings(self.now_ms) }
    }

    pub(super) fn digest(&self) -> u64 {
        let threads: Vec<_> = self.threads.iter().map(|it| (&it.ask, &it.answer, &it.inbox, it.is_alive)).collect();
        let processes: Vec<_> = self.processes.iter().map(|it| (it.seen, it.random, it.is_alive)).collect();
        let servers = (&self.servers, &self.is_up, &self.replica);
        hash(&(self.now_ms, servers, threads, processes, &self.judge, self.faults))
    }
}

pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
