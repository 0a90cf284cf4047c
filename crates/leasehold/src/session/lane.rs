//! The callers' own link: the short way for acquire and release.
//!
//! What drives it runs on a caller's runtime, so it may stand still or end at any moment. Nothing depends on it: without
//! it callers use the session's link, and the next call in a runtime opens it again.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Session;
use super::state::{Stage, State};
use crate::store::Link;

/// What is to be done about the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Fine,
    Reopen,
}

/// The lane, in the session's state.
#[derive(Default)]
pub(crate) enum LaneState {
    #[default]
    Absent,
    /// Nobody else tries before this moment.
    Opening {
        until_us: u64,
    },
    Open(Arc<dyn Link>),
}

/// Between two tries to open the lane.
const REOPEN_US: u64 = 1_000_000;

impl State {
    /// The link that a caller should use, if there is one that leads to the same run of the store as the inbox.
    pub(crate) fn lane_link(&mut self, now_us: u64) -> (Option<Arc<dyn Link>>, Lane) {
        match &self.lane {
            LaneState::Open(link) if !link.is_closed() && link.run() == self.run => {
                return (Some(Arc::clone(link)), Lane::Fine);
            }
            // Another run: two servers behind one address, or one that restarted. Only one of them has our inbox.
            LaneState::Open(link) => link.close(),
            LaneState::Opening { until_us } if now_us < *until_us => return (None, Lane::Fine),
            LaneState::Absent | LaneState::Opening { .. } => {}
        }
        self.lane = LaneState::Opening { until_us: now_us + REOPEN_US };
        (None, Lane::Reopen)
    }
}

impl Session {
    /// Opens the lane and waits for it; without a runtime there is none, and that is fine.
    pub(crate) async fn open_lane(self: &Arc<Self>) {
        let (_, lane) = self.with(|state| state.lane_link(state.world.now_us()));
        if lane == Lane::Reopen {
            let (tell, is_open) = oneshot::channel();
            self.spawn_lane(Some(tell));
            let _open_or_too_late = self.within(REOPEN_US, is_open).await;
        }
    }

    pub(crate) fn spawn_lane(self: &Arc<Self>, tell: Option<oneshot::Sender<()>>) {
        let session = Arc::downgrade(self);
        let open = self.store.open();
        let task = async move {
            let link = open.await;
            let Some(session) = session.upgrade() else { return };
            session.with(|state| match link {
                Ok(link) if state.stage == Stage::Closed => link.close(),
                Ok(link) => state.lane = LaneState::Open(link),
                Err(error) => state.trouble = Some(error),
            });
            drop(tell);
        };
        // No runtime here: the session's link serves. The next call looks again.
        drop(self.world.spawn(Box::pin(task)));
    }
}
