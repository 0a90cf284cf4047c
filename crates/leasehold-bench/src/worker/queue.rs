//! Hand-overs while a queue of a constant length waits in the store and not in this process: waiters that need a strict
//! order over all clients have entries of their own.
//!
//! The queue is complete before anything is counted, and nobody leaves it at the end. The last holder keeps the lock:
//! after the end of the time nothing is handed over, so the server's work belongs to the reported pairs.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::Guard;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::pairs::is_counted;
use super::{Report, Span, Spec, Tally, cpu_us, start};
use crate::error::{Context, Result};
use crate::system::{Client, LeaseholdFair, Lock};

const POLL: Duration = Duration::from_millis(5);

/// The state that the tasks share.
struct Queue {
    lock: leasehold::Mutex,
    span: Span,
    book: Mutex<Book>,
    /// The last holder will not release.
    is_kept: Notify,
}

#[derive(Default)]
struct Book {
    started: Option<Instant>,
    is_over: bool,
    /// Of all tasks: ten thousand histograms would take 200 MB, and there is one holder at a time.
    tally: Tally,
    /// Counted pairs, by task.
    served: Vec<u64>,
}

pub(super) async fn run(spec: Spec) -> Result<Report> {
    let (warm_up, window) = spec.span.window()?;
    let name = spec.names.of_task(0).ok_or("a queue is of one name")?;
    let lock = LeaseholdFair::connect(&spec.url).await?.lock(name);
    let first = lock.acquire().await?;
    // One task more than there are waiters: the holder.
    let book = Mutex::new(Book { served: vec![0; spec.tasks as usize + 1], ..Book::default() });
    let queue = Arc::new(Queue { lock, span: spec.span, book, is_kept: Notify::new() });
    let mut tasks = JoinSet::new();
    for task in 0..spec.tasks {
        tasks.spawn(Arc::clone(&queue).take_turns(task as usize));
    }
    timeout(spec.span.limit(), queue.fill(spec.tasks as usize)).await.context("the queue did not fill")??;
    start().await?;
    let cpu_before_us = cpu_us();
    queue.book().started = Some(Instant::now());
    tasks.spawn(Arc::clone(&queue).begin(first, spec.tasks as usize));
    tokio::select! {
        ended = timeout(spec.span.limit(), queue.end(warm_up + window)) => ended.context("nobody holds at the end")?,
        Some(failed) = tasks.join_next() => match failed.context("a task")?? {},
    }
    let cpu_us = cpu_us() - cpu_before_us;
    tasks.detach_all();
    let Book { tally, served, .. } = std::mem::take(&mut *queue.book());
    Ok(Report { served, ..Report::of(&[tally], window.as_micros() as u64, cpu_us) })
}

impl Queue {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once as many clients wait.
    async fn fill(&self, waiters: usize) -> Result<()> {
        while self.lock.inspect().await.context("inspecting the queue")?.waiters < waiters {
            sleep(POLL).await;
        }
        Ok(())
    }

    async fn begin(self: Arc<Self>, first: Guard, task: usize) -> Result<Infallible> {
        self.lock.release(first).await?;
        self.take_turns(task).await
    }

    async fn take_turns(self: Arc<Self>, task: usize) -> Result<Infallible> {
        loop {
            let asked = Instant::now();
            let guard = self.lock.acquire().await?;
            let wait_us = asked.elapsed().as_micros() as u64;
            if !self.note(task, wait_us) {
                self.is_kept.notify_one();
                return pending().await;
            }
            self.lock.release(guard).await?;
        }
    }

    /// Records a pair whose release is about to be sent; returns false when the time is over. It must not come after the
    /// release: the next task may hold before this one has its answer, and a pair that the server has done would be
    /// missing.
    fn note(&self, task: usize, wait_us: u64) -> bool {
        let book = &mut *self.book();
        if book.is_over {
            return false;
        }
        let is_counted = book.started.is_some_and(|started| is_counted(self.span, started));
        book.tally.note(wait_us, || is_counted);
        book.served[task] += u64::from(is_counted);
        true
    }

    async fn end(&self, after: Duration) {
        sleep(after).await;
        self.book().is_over = true;
        self.is_kept.notified().await;
    }
}
