//! Work that no caller waits for: answers beyond a majority, and votes that are given back.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;

use super::timers::Timers;
use crate::world::Pending;

/// Counts these tasks.
#[derive(Default)]
pub(super) struct UnderWay {
    tasks: AtomicUsize,
    is_idle: Notify,
}

/// One such task, until it is dropped.
pub(super) struct Task(Arc<UnderWay>);

/// Work that its caller does not wait for. If it is dropped unfinished, because its runtime has ended, the session's thread
/// finishes it.
pub(super) struct LeftBehind {
    /// `None` once it has finished, and while it is polled: work that panics is not polled again.
    work: Option<(Pending<()>, Task)>,
    timers: Arc<Timers>,
}

impl LeftBehind {
    pub(super) fn new(work: Pending<()>, task: Task, timers: &Arc<Timers>) -> Self {
        Self { work: Some((work, task)), timers: Arc::clone(timers) }
    }
}

impl Future for LeftBehind {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some((mut work, task)) = self.work.take() else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some((work, task));
        }
        polled
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        if let Some((work, task)) = self.work.take() {
            self.timers.leave(Box::pin(async move {
                let _task = task;
                work.await;
            }));
        }
    }
}

impl UnderWay {
    /// One more, until this is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Task {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        Task(Arc::clone(self))
    }

    /// Ends when there is none.
    pub(super) async fn idle(&self) {
        loop {
            let mut is_idle = pin!(self.is_idle.notified());
            // From here on the end of the last task is noticed.
            is_idle.as_mut().enable();
            if self.tasks.load(Ordering::Acquire) == 0 {
                return;
            }
            is_idle.await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.is_idle.notify_waiters();
        }
    }
}
