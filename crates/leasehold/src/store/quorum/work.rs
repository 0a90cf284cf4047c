//! Work that no caller waits for, and the number of tasks that do such work.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::world::Pending;

/// Counts the unfinished work of a client.
#[derive(Default)]
pub(super) struct WorkCount {
    tasks: AtomicUsize,
    is_idle: Notify,
}

/// Counts as one task until it is dropped.
pub(super) struct Counted(Arc<WorkCount>);

/// Work that a task polls, and that another task can take over.
pub(super) struct Work(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` while it is polled, and after it has finished: work that panics is not polled again.
    work: Option<(Pending<()>, Counted)>,
    /// Wakes the task that polled the work last.
    waker: Option<Waker>,
}

impl WorkCount {
    /// Adds one task, until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Counted {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    /// Waits until there is no task.
    pub(super) async fn idle(&self) {
        loop {
            let mut is_idle = pin!(self.is_idle.notified());
            // From here on the end of the last task notifies.
            is_idle.as_mut().enable();
            if self.tasks.load(Ordering::Acquire) == 0 {
                return;
            }
            is_idle.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.is_idle.notify_waiters();
        }
    }
}

impl Work {
    pub(super) fn new(work: Pending<()>, counted: Counted) -> Self {
        Self(Mutex::new(State { work: Some((work, counted)), waker: None }))
    }

    /// Polls the work. Ready if it has finished or was taken over.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some((mut work, counted)) = self.state().work.take() else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            let mut state = self.state();
            state.work = Some((work, counted));
            match &mut state.waker {
                Some(known) => known.clone_from(context.waker()),
                unknown => *unknown = Some(context.waker().clone()),
            }
        }
        polled
    }

    /// Takes the work from the task that polls it, and ends that task. `None` if the task polls the work at this moment, or
    /// has finished it.
    pub(super) fn take_over(&self) -> Option<Pending<()>> {
        let mut state = self.state();
        let (work, waker) = (state.work.take()?, state.waker.take());
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Some(counted(work))
    }

    /// Takes the work from a task that is dropped. `None` if the task has finished it.
    pub(super) fn take(&self) -> Option<Pending<()>> {
        self.state().work.take().map(counted)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns work that counts as a task until it is dropped.
pub(super) fn counted((work, counted): (Pending<()>, Counted)) -> Pending<()> {
    Box::pin(async move {
        let _counted = counted;
        work.await;
    })
}
