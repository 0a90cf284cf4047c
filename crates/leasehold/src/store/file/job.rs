//! The jobs that links and sockets give to the desk, and the state that a link shares with it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_spec::{Answer, Name, Op, SessionId};
use tokio::sync::{oneshot, watch};

use super::directory::FileKey;
use super::live::Live;
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Inbox};

/// A job for the thread.
pub(super) enum Job {
    Open {
        tell: oneshot::Sender<Result<Opened, Error>>,
    },
    Apply {
        tie: Arc<Tie>,
        name: Name,
        op: Op,
        tell: oneshot::Sender<Result<Answer, Fault>>,
    },
    Renew {
        tie: Arc<Tie>,
        batch: Vec<(Name, Op)>,
        tell: oneshot::Sender<Result<Vec<Result<Answer, Fault>>, Fault>>,
    },
    Names {
        tie: Arc<Tie>,
        from: u64,
        tell: oneshot::Sender<Result<(Vec<Name>, u64), Fault>>,
    },
    Attach {
        tie: Arc<Tie>,
        session: SessionId,
        inbox: Inbox,
        tell: oneshot::Sender<Result<(), Fault>>,
    },
    Ping {
        tie: Arc<Tie>,
        tell: oneshot::Sender<Result<u64, Fault>>,
    },
    /// A link with an inbox was closed.
    Detached {
        session: SessionId,
        tie: Weak<Tie>,
    },
    /// A bell rang.
    Rung {
        session: SessionId,
    },
    /// A holder died for whose name a session of ours waits.
    Broken {
        holder: SessionId,
    },
}

/// The parts of the store that a link knows.
pub(super) struct Opened {
    pub(super) run: String,
    pub(super) tie: Arc<Tie>,
}

/// The state that a link and the desk share.
pub(super) struct Tie {
    /// Why the link ended, after it has.
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

    /// Ends the link. Only the first reason counts.
    pub(super) fn end(&self, reason: &Error) {
        let reason = Arc::new(reason.share());
        self.end.send_if_modified(|end| end.is_none() && end.replace(reason).is_none());
    }

    pub(super) fn attached(&self, session: SessionId, detach: Detach) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        *inbox = Some((session, detach));
        // The link was closed while the desk had its turn.
        if self.is_closed() {
            inbox.iter().for_each(|(_, detach)| detach.detach());
        }
    }

    /// Returns the session of the inbox, and the way to detach it, to the first caller.
    pub(super) fn take_inbox(&self) -> Option<(SessionId, Detach)> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the end, and returns the reason.
    pub(super) async fn ended(&self) -> Error {
        let mut end = self.end.subscribe();
        // The value that `wait_for` returns keeps the channel locked for reading, and the reason reads it once more. A task
        // that ends the link in between would wait for the first read, and the second read would wait for that task.
        drop(end.wait_for(Option::is_some).await);
        self.reason()
    }

    pub(super) fn reason(&self) -> Error {
        let closed = || Error::new(ErrorKind::Unreachable, "the connection was closed");
        self.end.borrow().as_ref().map_or_else(closed, |reason| reason.share())
    }
}

/// Removes the name of a bell: from then on its session is detached.
#[derive(Clone)]
pub(super) struct Detach {
    pub(super) live: Arc<Live>,
    pub(super) session: SessionId,
    pub(super) key: FileKey,
}

impl Detach {
    pub(super) fn detach(&self) {
        self.live.unbind_bell(self.session, self.key);
    }
}

/// A socket: descriptor and file.
pub(super) type Bound = (OwnedFd, FileKey);

pub(super) fn gone() -> Fault {
    Fault::Gone(Error::new(ErrorKind::Unreachable, "the connection was closed"))
}
