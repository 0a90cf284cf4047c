//! One run of the modelled world.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::choice::{Bounds, Choice};
use super::port::ModelPort;
use super::row::Row;
use super::stage::{Body, Stage};
use super::state::{Process, State};
use crate::client::{Client, Local, ThreadId};
use crate::judge::{Harm, Judge};
use crate::redis::Server;

/// A run.
pub struct World {
    state: Rc<RefCell<State>>,
    bodies: Vec<Option<Local<()>>>,
    bounds: Bounds,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl World {
    /// Begins a run.
    #[must_use]
    pub fn new(stage: Stage, bounds: Bounds) -> Self {
        Self::begin(stage, bounds, None)
    }

    /// Begins a run that writes a timeline.
    #[must_use]
    pub fn recorded(stage: Stage, bounds: Bounds) -> Self {
        Self::begin(stage, bounds, Some(vec![]))
    }

    fn begin(stage: Stage, bounds: Bounds, rows: Option<Vec<Row>>) -> Self {
        let mut servers = vec![Server::default(); stage.servers.max(1)];
        for (server, command) in &stage.before {
            servers[*server].execute(0, ThreadId::MAX, command);
        }
        let is_up = vec![true; servers.len()];
        let state = State {
            now_ms: 0,
            servers,
            is_up,
            replica: None,
            processes: vec![],
            threads: vec![],
            spawned: vec![],
            judge: Judge::default(),
            harm: vec![],
            faults: bounds.faults,
            step: 0,
            rows,
        };
        let mut world = Self { state: Rc::new(RefCell::new(state)), bodies: vec![], bounds };
        for ((name, body), ahead_ms) in stage.processes.into_iter().zip(stage.ahead_ms) {
            let mut state = world.state.borrow_mut();
            state.processes.push(Process { name, ahead_ms, seen: 0, random: 0, is_alive: true });
            let (process, thread) = (state.processes.len() - 1, state.threads.len());
            state.add_thread(process);
            drop(state);
            world.start(thread, body);
        }
        world
    }

    /// Returns the time since the beginning, in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.state.borrow().now_ms
    }

    /// Returns the timeline.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.state.borrow().rows.clone().unwrap_or_default()
    }

    /// Returns the names of all threads.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let state = self.state.borrow();
        (0..state.threads.len()).map(|thread| state.name(thread)).collect()
    }

    /// Returns the process of each thread, and the time by which its clock is ahead, in milliseconds.
    #[must_use]
    pub fn processes(&self) -> Vec<(usize, u64)> {
        let state = self.state.borrow();
        state.threads.iter().map(|thread| (thread.process, state.processes[thread.process].ahead_ms)).collect()
    }

    /// Returns the choices of this state.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        self.state.borrow().choices(&self.bounds)
    }

    /// Makes a choice. Returns the harm that it did.
    pub fn choose(&mut self, choice: Choice) -> Vec<Harm> {
        let runs = self.state.borrow_mut().apply(choice, &self.bounds);
        match choice {
            Choice::Kill(process) => {
                for (thread, body) in self.bodies.iter_mut().enumerate() {
                    if self.state.borrow().threads[thread].process == process {
                        *body = None;
                    }
                }
            }
            _ => {
                if let Some(thread) = runs {
                    self.poll(thread);
                }
            }
        }
        let mut state = self.state.borrow_mut();
        let State { now_ms, judge, threads, harm, .. } = &mut *state;
        let pauses = self.bounds.faults.pauses;
        harm.extend(judge.time(*now_ms, |thread| pauses.contains(&threads[thread].process)));
        std::mem::take(harm)
    }

    /// Returns a digest of the state.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.state.borrow().digest()
    }

    fn start(&mut self, thread: ThreadId, body: Body) {
        let client = Client::new(Rc::new(ModelPort(Rc::clone(&self.state))), thread);
        self.bodies.resize_with(thread + 1, || None);
        self.bodies[thread] = Some(body(client));
        self.poll(thread);
    }

    /// Runs a thread to its next ask, and the threads that it starts as well.
    fn poll(&mut self, thread: ThreadId) {
        let Some(mut body) = self.bodies[thread].take() else { return };
        match body.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.bodies[thread] = Some(body),
            Poll::Ready(()) => self.state.borrow_mut().threads[thread].is_alive = false,
        }
        let spawned = std::mem::take(&mut self.state.borrow_mut().spawned);
        for (thread, body) in spawned {
            self.start(thread, body);
        }
    }
}
