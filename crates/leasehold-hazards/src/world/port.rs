//! The world, as its threads see it.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::row::Action;
use super::stage::Body;
use super::state::{State, hash};
use crate::client::{Answer, Ask, Local, Mark, Port, ThreadId, unique_number};
use crate::redis::BEGINNING_MS;

/// The port of all threads.
pub(super) struct ModelPort(pub(super) Rc<RefCell<State>>);

impl Port for ModelPort {
    fn ask(&self, thread: ThreadId, ask: Ask) -> Local<Answer> {
        Box::pin(Asking { state: Rc::clone(&self.0), thread, ask: Some(ask) })
    }

    fn mark(&self, thread: ThreadId, mark: Mark) {
        let mut state = self.0.borrow_mut();
        let now_ms = state.now_ms;
        let ahead_ms = state.processes[state.threads[thread].process].ahead_ms;
        let mark = mark.in_true_time(ahead_ms);
        let harm = state.judge.mark(now_ms, thread, mark);
        state.harm.extend(harm);
        let action = match mark {
            Mark::Enters(held) => Action::Enters(held.token),
            Mark::Leaves => Action::Leaves,
            Mark::GivesUp => Action::GivesUp,
            Mark::Wants(_) | Mark::Asks | Mark::Believes(_) => return,
        };
        state.row(thread, || (action, None));
    }

    fn clock_ms(&self, thread: ThreadId) -> u64 {
        let mut state = self.0.borrow_mut();
        let process = state.threads[thread].process;
        let clock_ms = BEGINNING_MS + state.now_ms + state.processes[process].ahead_ms;
        state.processes[process].seen = hash(&(state.processes[process].seen, thread, clock_ms));
        clock_ms
    }

    fn spawn(&self, thread: ThreadId, body: Body) -> ThreadId {
        let mut state = self.0.borrow_mut();
        let process = state.threads[thread].process;
        let thread = state.add_thread(process);
        state.spawned.push((thread, body));
        thread
    }

    fn stop(&self, thread: ThreadId) {
        let thread = &mut self.0.borrow_mut().threads[thread];
        (thread.is_alive, thread.ask, thread.answer) = (false, None, None);
    }

    fn random(&self, thread: ThreadId) -> u64 {
        let mut state = self.0.borrow_mut();
        let process = state.threads[thread].process;
        state.processes[process].random += 1;
        unique_number(process, state.processes[process].random)
    }

    fn number(&self, thread: ThreadId) -> usize {
        self.0.borrow().threads[thread].number
    }
}

struct Asking {
    state: Rc<RefCell<State>>,
    thread: ThreadId,
    ask: Option<Ask>,
}

impl Future for Asking {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        let ask = self.ask.take();
        let mut state = self.state.borrow_mut();
        let now_ms = state.now_ms;
        let thread = &mut state.threads[self.thread];
        match ask {
            Some(ask) => {
                thread.ask = Some((now_ms, ask));
                Poll::Pending
            }
            None => thread.answer.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}
