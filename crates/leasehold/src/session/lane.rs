//! The callers' own link: the short way for acquire and release.
//!
//! What drives it runs on a caller's runtime, so it may stand still or end at any moment. Nothing depends on it: without
//! it callers use the session's link, and the next call in a runtime opens it again.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Session;
use super::bounds::{OPEN_WITHIN_US, REOPEN_MAX_US};
use super::state::{Stage, State};
use super::thread::for_now;
use crate::error::Error;
use crate::store::Link;

/// What whoever wanted the lane has to do about it.
pub(crate) enum Upkeep {
    Fine,
    /// To be opened, unless the other end says that somebody else does.
    Reopen(oneshot::Receiver<()>),
}

/// How many connections a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The session's alone: for callers that block, and with them the runtime that would drive another; and for a program
    /// that has one lock and no hurry, such as the command that runs another.
    One,
    /// The callers' own as well.
    Two,
}

/// The lane, in the session's state.
#[derive(Default)]
pub(crate) enum Lane {
    /// Not wanted.
    Never,
    #[default]
    Absent,
    /// Nobody else tries before this moment. Whoever does then ends this try: where a server takes connections and says
    /// nothing, each call would leave one more behind.
    Opening {
        until_us: u64,
        _alive: Option<oneshot::Sender<()>>,
    },
    Open(Arc<dyn Link>),
}

impl Lane {
    pub(crate) fn of(lanes: Lanes) -> Self {
        match lanes {
            Lanes::One => Self::Never,
            Lanes::Two => Self::Absent,
        }
    }
}

impl State {
    /// The link that a caller should use, if there is one that leads to the same run of the store as the inbox.
    pub(crate) fn lane_link(&mut self, now_us: u64) -> (Option<Arc<dyn Link>>, Upkeep) {
        match &self.lane {
            Lane::Open(link) if !link.is_closed() && link.run() == self.run => {
                return (Some(Arc::clone(link)), Upkeep::Fine);
            }
            // Another run: two servers behind one address, or one that restarted. Only one of them has our inbox.
            Lane::Open(link) => self.words.hang_up(Arc::clone(link)),
            Lane::Never => return (None, Upkeep::Fine),
            Lane::Opening { until_us, .. } if now_us < *until_us => return (None, Upkeep::Fine),
            Lane::Absent | Lane::Opening { .. } => {}
        }
        let (alive, superseded) = oneshot::channel();
        self.lane = Lane::Opening { until_us: now_us + OPEN_WITHIN_US, _alive: Some(alive) };
        (None, Upkeep::Reopen(superseded))
    }

    fn lane_opened(&mut self, link: Result<Arc<dyn Link>, Error>) {
        match link {
            // The session ended while it was opened: nobody would ever close it.
            Ok(link) if self.stage == Stage::Closed => link.close(),
            Ok(link) => self.lane = Lane::Open(link),
            Err(error) => {
                self.trouble = Some(for_now(error));
                self.lane = Lane::Opening { until_us: self.world.now_us() + REOPEN_MAX_US, _alive: None };
            }
        }
    }

    pub(crate) fn close_lane(&mut self) {
        match std::mem::take(&mut self.lane) {
            Lane::Open(link) => self.words.hang_up(link),
            Lane::Never => self.lane = Lane::Never,
            Lane::Absent | Lane::Opening { .. } => {}
        }
    }
}

impl Session {
    /// Begins to open the lane, while the session's thread opens its own link: nothing is sent on either before both are
    /// there, and one that leads to another run than the inbox is never used. Answers when it is open; without a runtime
    /// there is none, and that is fine.
    pub(crate) fn begin_lane(self: &Arc<Self>) -> oneshot::Receiver<()> {
        let (_, upkeep) = self.with(|state| state.lane_link(state.world.now_us()));
        let (tell, is_open) = oneshot::channel();
        self.keep_up(upkeep, Some(tell));
        is_open
    }

    /// Waits for it, but not for ever: the session's link serves as well.
    pub(crate) async fn await_lane(&self, is_open: oneshot::Receiver<()>) {
        let _open_or_too_late = self.within(REOPEN_MAX_US, is_open).await;
    }

    pub(crate) fn keep_up(self: &Arc<Self>, upkeep: Upkeep, tell: Option<oneshot::Sender<()>>) {
        let Upkeep::Reopen(superseded) = upkeep else { return };
        let session = Arc::downgrade(self);
        let open = self.store.open();
        let task = async move {
            let link = tokio::select! {
                biased;
                link = open => link,
                _ = superseded => return,
            };
            if let Some(session) = session.upgrade() {
                session.with(|state| state.lane_opened(link));
            }
            drop(tell);
        };
        // No runtime here: the session's link serves. The next call looks again.
        drop(self.world.spawn(Box::pin(task)));
    }
}
