//! The callers' connection, the *lane*.
//!
//! The session has a connection of its own, which its thread drives. Callers have the *lane*, the short way for acquire and
//! release. While grants come in quick succession, the lane also carries the inbox (`inbox_moves.rs`). The runtime that
//! opened the lane drives it, and that runtime may block or end at any moment. So no call depends on the lane:
//!
//! - Only callers on that runtime use the lane: while their futures are polled, so is the driver of the lane. Other callers
//!   use the session's connection. The lane moves to another runtime when its own has not used it for a while.
//! - A caller may be polled by something else than its runtime (`futures::executor::block_on` within a tokio runtime), or
//!   its future may go on on another one. Then nobody writes the lane's requests, or nobody reads the replies. The thread
//!   detects this, closes the lane, and sends the requests again on the session's connection.
//! - When the runtime ends, the lane is closed, and the next call in a runtime opens another one.

use std::sync::{Arc, Weak};

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::sync::oneshot;

use super::effects::Effects;
use super::order::{InFlight, same};
use crate::session::bounds::{OPEN_WITHIN_US, REOPEN_MAX_US};
use crate::store::{Link, Progress};
use crate::world::RuntimeId;

/// A lane that its runtime has not used for this long moves to the next runtime that calls.
const UNUSED_US: u64 = 10_000_000;

/// How many connections a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Only the session's: for callers that block, and with them the runtime that would drive a lane, and for a program
    /// with one lock and no hurry, such as the command that runs another.
    One,
    /// A lane for callers as well.
    Two,
}

pub(crate) struct Lane(Place);

/// Where the lane is.
enum Place {
    /// The client has none.
    Never,
    Absent,
    /// Nobody else tries before `until_us`. A later try ends this one by dropping `alive`: otherwise a server that accepts
    /// connections and stays silent would get one more with each call. On the same runtime the later try waits for `task`
    /// to end first: a runtime that nobody polls gets at most one task.
    Opening {
        until_us: u64,
        runtime: RuntimeId,
        alive: Option<oneshot::Sender<()>>,
        task: Weak<()>,
    },
    Open {
        link: Arc<dyn Link>,
        runtime: RuntimeId,
        used_us: u64,
    },
}

/// The work of a caller that wanted the lane.
pub(crate) enum Upkeep {
    Fine,
    /// Open it on this runtime, unless the other end says that somebody else does.
    Reopen(RuntimeId, Opener),
}

/// The lane's end of the task that opens it.
pub(crate) struct Opener {
    superseded: oneshot::Receiver<()>,
    /// Dropped with the task.
    _task: Arc<()>,
}

impl Opener {
    /// Ends when another task is to open the lane.
    pub(crate) async fn superseded(mut self) {
        let _superseded = (&mut self.superseded).await;
    }
}

impl Lane {
    pub(crate) fn new(lanes: Lanes) -> Self {
        Self(if lanes == Lanes::One { Place::Never } else { Place::Absent })
    }

    /// Returns the lane for a caller on this runtime, if the runtime drives it, and if the lane leads to the run of the
    /// inbox. Returns also what the caller has to do for the lane.
    pub(crate) fn link(
        &mut self,
        run_id: &str,
        effects: &mut Effects,
        runtime: Option<RuntimeId>,
        now_us: u64,
    ) -> (Option<Arc<dyn Link>>, Upkeep) {
        let Some(caller) = runtime else { return (None, Upkeep::Fine) };
        match &mut self.0 {
            Place::Never => return (None, Upkeep::Fine),
            Place::Open { link, runtime, used_us } if !link.is_closed() && link.run_id() == run_id => {
                if *runtime == caller || is_on(Mutant::P17LaneForAll) {
                    *used_us = now_us;
                    return (Some(Arc::clone(link)), Upkeep::Fine);
                }
                if now_us < used_us.saturating_add(UNUSED_US) {
                    return (None, Upkeep::Fine);
                }
                hit(Mark::LaneMoved);
                effects.hang_up(Arc::clone(link));
            }
            // Another run: two servers behind one address, or a server that restarted. Only one of them has our inbox.
            Place::Open { link, .. } => effects.hang_up(Arc::clone(link)),
            Place::Opening { until_us, .. } if now_us < *until_us => return (None, Upkeep::Fine),
            Place::Opening { runtime, alive, task, .. } if *runtime == caller && task.strong_count() > 0 => {
                // The task ends with its next turn, and then another one may begin.
                drop(alive.take());
                return (None, Upkeep::Fine);
            }
            Place::Absent | Place::Opening { .. } => {}
        }
        let ((alive, superseded), task) = (oneshot::channel(), Arc::new(()));
        let (until_us, alive) = (now_us + OPEN_WITHIN_US, Some(alive));
        self.0 = Place::Opening { until_us, runtime: caller, alive, task: Arc::downgrade(&task) };
        (None, Upkeep::Reopen(caller, Opener { superseded, _task: task }))
    }

    /// Takes in the lane that a task has opened, or why it could not.
    pub(crate) fn opened(&mut self, runtime: RuntimeId, opened: Result<Arc<dyn Link>, ()>, now_us: u64) {
        match opened {
            // Another runtime was faster: nobody would ever close this one.
            Ok(link) if self.is_open() => link.close(),
            Err(()) if self.is_open() => {}
            Ok(link) => self.0 = Place::Open { link, runtime, used_us: now_us },
            Err(()) => {
                let until_us = now_us + REOPEN_MAX_US;
                self.0 = Place::Opening { until_us, runtime, alive: None, task: Weak::new() };
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open().is_some()
    }

    pub(crate) fn open(&self) -> Option<&Arc<dyn Link>> {
        match &self.0 {
            Place::Open { link, .. } => Some(link),
            Place::Never | Place::Absent | Place::Opening { .. } => None,
        }
    }

    /// Returns whether this runtime drives the lane.
    pub(crate) fn is_driven_by(&self, caller: Option<RuntimeId>) -> bool {
        matches!(&self.0, Place::Open { runtime, .. } if caller == Some(*runtime))
    }

    /// Notes that the lane is in use.
    pub(crate) fn note_use(&mut self, now_us: u64) {
        if let Place::Open { used_us, .. } = &mut self.0 {
            *used_us = now_us;
        }
    }

    /// Returns whether a caller on this runtime drives the connection, or it is not the lane.
    pub(crate) fn may_drive(&self, link: &Arc<dyn Link>, caller: Option<RuntimeId>) -> bool {
        match &self.0 {
            Place::Open { link: lane, runtime, .. } if same(lane, link) => caller == Some(*runtime),
            _ => true,
        }
    }

    /// Returns whether this request was handed to the lane while the lane has requests that are not sent yet.
    pub(crate) fn may_be_unsent(&self, request: &InFlight) -> bool {
        matches!(&self.0, Place::Open { link, .. } if same(link, &request.link) && link.has_unsent())
    }

    /// Returns whether its runtime drives the lane.
    pub(crate) fn progress(&self) -> Progress {
        match &self.0 {
            Place::Open { link, .. } => link.check_driven(),
            Place::Never | Place::Absent | Place::Opening { .. } => Progress::Moving,
        }
    }

    /// Closes the lane, and returns it.
    pub(crate) fn close(&mut self, effects: &mut Effects) -> Option<Arc<dyn Link>> {
        if matches!(self.0, Place::Never) {
            return None;
        }
        match std::mem::replace(&mut self.0, Place::Absent) {
            Place::Open { link, .. } => {
                effects.hang_up(Arc::clone(&link));
                Some(link)
            }
            Place::Never | Place::Absent | Place::Opening { .. } => None,
        }
    }
}
