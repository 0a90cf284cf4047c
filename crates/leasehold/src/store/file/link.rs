//! A link: what is asked by it goes to the desk in the order of the asking, and comes back when the desk has done it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_spec::{Answer, Contention, Name, Op, Renew, SessionId};
use tokio::sync::{oneshot, watch};

use super::desk::{Desk, Job, Opened};
use super::sentry::Detach;
use crate::error::{Error, ErrorKind};
use crate::inspection::NodeView;
use crate::store::{Fault, Inbox, Link, Progress, inspect_whole};
use crate::world::Pending;

/// What a link and the desk have in common.
pub(super) struct Tie {
    /// Why it ended, once it has.
    end: watch::Sender<Option<Arc<Error>>>,
    inbox: Mutex<Option<(SessionId, Detach)>>,
}

impl Tie {
    pub(super) fn new() -> Self {
        Self { end: watch::Sender::new(None), inbox: Mutex::default() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Ends it, for the first reason that there is.
    pub(super) fn end(&self, reason: &Error) {
        let reason = Arc::new(reason.share());
        self.end.send_if_modified(|end| end.is_none() && end.replace(reason).is_none());
    }

    pub(super) fn attached(&self, session: SessionId, detach: Detach) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        *inbox = Some((session, detach));
        // It was closed while the desk had its turn.
        if self.is_closed() {
            inbox.iter().for_each(|(_, detach)| detach.detach());
        }
    }

    /// Waits for the end, and returns the reason.
    async fn ended(&self) -> Error {
        let mut end = self.end.subscribe();
        // The value that `wait_for` returns keeps the channel locked for reading, and the reason reads it once more. A task
        // that ends the link in between would wait for the first read, and the second read would wait for that task.
        drop(end.wait_for(Option::is_some).await);
        self.reason()
    }

    fn reason(&self) -> Error {
        let closed = || Error::new(ErrorKind::Unreachable, "the connection was closed");
        self.end.borrow().as_ref().map_or_else(closed, |reason| reason.share())
    }
}

pub(super) struct FileLink {
    desk: Arc<Desk>,
    tie: Arc<Tie>,
    run: String,
}

impl FileLink {
    pub(super) async fn open(desk: Arc<Desk>) -> Result<Arc<dyn Link>, Error> {
        let (tell, opened) = oneshot::channel();
        desk.open(tell).map_err(|error| Error::no_thread("the thread of the store", error))?;
        let Opened { run, tie } = opened.await.map_err(|_| panicked(desk.path()))??;
        Ok(Arc::new(Self { desk, tie, run }))
    }

    /// Asks the desk when it is first polled: a future that never was asked for nothing.
    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(Arc<Tie>, oneshot::Sender<Result<T, Fault>>) -> Job + Send + 'static,
    ) -> Pending<Result<T, Fault>> {
        let (desk, tie) = (Arc::clone(&self.desk), Arc::clone(&self.tie));
        Box::pin(async move {
            let (tell, answer) = oneshot::channel();
            if tie.is_closed() {
                return Err(Fault::Gone(tie.reason()));
            }
            desk.send(job(Arc::clone(&tie), tell));
            tokio::select! {
                biased;
                answer = answer => answer.unwrap_or_else(|_| Err(Fault::Gone(tie.reason()))),
                reason = tie.ended() => Err(Fault::Gone(reason)),
            }
        })
    }
}

impl Link for FileLink {
    fn apply(&self, name: &Name, op: &Op, _guess: Contention) -> Pending<Result<Answer, Fault>> {
        let (name, op) = (name.clone(), op.clone());
        self.ask(move |tie, tell| Job::Apply { tie, name, op, tell })
    }

    fn inspect(&self, name: &Name, guess: Contention) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        let batch: Vec<_> = batch.iter().map(|(name, renew)| (name.clone(), Op::Renew(renew.clone()))).collect();
        let count = batch.len();
        let asked = self.ask(move |tie, tell| Job::Renew { tie, batch, tell });
        Box::pin(async move {
            match asked.await {
                Ok(answers) => answers,
                Err(fault) => (0..count).map(|_| Err(fault.share())).collect(),
            }
        })
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        self.ask(move |tie, tell| Job::Names { tie, from, tell })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        self.ask(move |tie, tell| Job::Attach { tie, session, inbox, tell })
    }

    fn run_id(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        self.ask(|tie, tell| Job::Ping { tie, tell })
    }

    fn idle(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn check_driven(&self) -> Progress {
        Progress::Moving
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.tie.is_closed()
    }

    fn close(&self) {
        // Whoever waits on it is told why, where the reason is that somebody else has the turn.
        let closed = || Error::new(ErrorKind::Unreachable, "the connection was closed");
        self.tie.end(&self.desk.silence().unwrap_or_else(closed));
        let inbox = self.tie.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((session, detach)) = inbox {
            // At once, and not when the desk comes to it: from now on nobody hears anything here.
            detach.detach();
            self.desk.send(Job::Detached { session, tie: Arc::downgrade(&self.tie) });
        }
    }
}

impl Drop for FileLink {
    fn drop(&mut self) {
        if self.desk.is_ours() {
            self.close();
        }
    }
}

fn panicked(path: &Path) -> Error {
    Error::new(ErrorKind::Store, format!("the thread of the store in {} has ended", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const ROUNDS: usize = 2_000;

    /// The session's thread reads why a link has ended, while a caller ends it as well.
    #[test]
    fn a_link_that_is_ended_twice_holds_nobody_up() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let reason = Error::new(ErrorKind::Unreachable, "the reason");
            for _ in 0..ROUNDS {
                let (tie, has_heard) = (Tie::new(), AtomicBool::new(false));
                let end = || {
                    while !has_heard.load(Ordering::Relaxed) {
                        tie.end(&reason);
                    }
                };
                thread::scope(|scope| {
                    scope.spawn(end);
                    scope.spawn(end);
                    drop(pollster::block_on(tie.ended()));
                    has_heard.store(true, Ordering::Relaxed);
                });
            }
            tell.send(()).expect("the test waits for it");
        });
        told.recv_timeout(Duration::from_secs(60)).expect("a thread waits for a lock that it has");
    }
}
