//! Work that no caller waits for: answers beyond a majority, and votes that are given back.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::timers::{Alarm, Timers};
use crate::world::Pending;

/// Counts these tasks.
#[derive(Default)]
pub(super) struct UnderWay {
    tasks: AtomicUsize,
    is_idle: Notify,
}

/// One such task, until it is dropped.
pub(super) struct Task(Arc<UnderWay>);

/// Work that no caller waits for, as long as it is not finished.
pub(super) struct Work(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// `None` while it is polled, and once it has finished: work that panics is not polled again.
    work: Option<(Pending<()>, Task)>,
    /// Wakes the task that has polled it last.
    waker: Option<Waker>,
}

/// The task of a caller's runtime that does such work. If the runtime has not finished the work in time, because it stands
/// still or because a node does, or if the runtime ends, the session's thread takes the work over.
pub(super) struct LeftBehind {
    work: Arc<Work>,
    takes_over: Alarm,
}

impl Work {
    /// Takes the work over from its task, which ends. `None` if the work is polled just now, or has finished.
    pub(super) fn take_over(&self) -> Option<Pending<()>> {
        let mut kept = self.kept();
        let (work, waker) = (kept.work.take()?, kept.waker.take());
        drop(kept);
        waker.into_iter().for_each(Waker::wake);
        Some(apart(work))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same work without the task that had it.
pub(super) fn apart((work, task): (Pending<()>, Task)) -> Pending<()> {
    Box::pin(async move {
        let _task = task;
        work.await;
    })
}

impl LeftBehind {
    /// Work that the session's thread takes over at `at_us`, if it is not finished then.
    pub(super) fn new(work: Pending<()>, task: Task, timers: &Arc<Timers>, at_us: u64) -> Self {
        let work = Arc::new(Work(Mutex::new(Kept { work: Some((work, task)), waker: None })));
        let takes_over = timers.take_over_at(at_us, &work);
        Self { work, takes_over }
    }
}

impl Future for LeftBehind {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some((mut work, task)) = self.work.kept().work.take() else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            let mut kept = self.work.kept();
            kept.work = Some((work, task));
            match &mut kept.waker {
                Some(known) => known.clone_from(context.waker()),
                unknown => *unknown = Some(context.waker().clone()),
            }
        }
        polled
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        let work = self.work.kept().work.take();
        if let Some(work) = work {
            self.takes_over.timers.leave(apart(work));
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
