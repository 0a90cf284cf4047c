//! A link: sends requests to the desk in their order, and returns the replies.

use std::path::Path;
use std::sync::Arc;

use leasehold_spec::{Acquire, Answer, Kind, Name, Op, Renew, SessionId};
use tokio::sync::oneshot;

use super::desk::Desk;
use super::job::{Job, Opened, Tie};
use crate::error::{Error, ErrorKind};
use crate::inspection::NodeView;
use crate::store::{Fault, Guess, Inbox, Link, Progress, inspect_whole, refuse_detach};
use crate::world::Pending;

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

    /// Sends the request at the first poll: a future that was never polled has sent nothing.
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
    fn apply(&self, name: &Name, op: &Op, _guess: Guess) -> Pending<Result<Answer, Fault>> {
        let (name, op) = (name.clone(), op.clone());
        self.ask(move |tie, tell| Job::Apply { tie, name, op, tell })
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], _kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
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

    fn acquire_all(&self, _: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        self.ask(move |tie, tell| Job::Names { tie, from, tell })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        self.ask(move |tie, tell| Job::Attach { tie, session, inbox, tell })
    }

    fn detach(&self, _: SessionId) -> Pending<Result<(), Fault>> {
        refuse_detach()
    }

    fn check_read(&self) -> Progress {
        self.check_driven()
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
        // The callers get the reason, if somebody else has the turn.
        let closed = || Error::new(ErrorKind::Unreachable, "the connection was closed");
        self.tie.end(&self.desk.silence().unwrap_or_else(closed));
        let inbox = self.tie.take_inbox();
        if let Some((session, detach)) = inbox {
            // Now, and not when the desk comes to it: from now on this link passes no message on.
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
    fn a_link_that_is_ended_twice_blocks_nobody() {
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
