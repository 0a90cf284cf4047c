//! The callers' own link, the *lane*: the short way for acquire and release.
//!
//! The lane is driven by the runtime that opened it, and that runtime may block or end at any moment. So no call depends on
//! it:
//!
//! - Only callers on that runtime use the lane: while their futures are polled, so is what drives the lane. Callers on
//!   another runtime, or on none, use the session's link, which the session's thread drives. The lane moves to another
//!   runtime when its own has not used it for a while.
//! - A caller may still be polled by something else than its runtime (`futures::executor::block_on` within a tokio
//!   runtime), or its future may go on on another one. Then nobody writes what was handed to the lane, or nobody reads the
//!   answer. The thread finds that out, gives the lane up, and asks by the session's link.
//! - When the runtime ends, the lane is closed, and the next call in a runtime opens another one.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::Session;
use super::attempt::{Asked, Attempt};
use super::bounds::{OPEN_WITHIN_US, REOPEN_MAX_US};
use super::links::same;
use super::state::{Stage, State};
use super::thread::{TICK_US, for_now};
use crate::error::Error;
use crate::store::{Link, Progress};
use crate::world::RuntimeId;

/// A lane that its runtime has not used for this long moves to the next runtime that calls.
const UNUSED_US: u64 = 10_000_000;
/// How often the thread looks whether the lane is driven: with every tick.
pub(crate) const LOOK_US: u64 = TICK_US;
/// The second look, if requests are under way. Both together take less than the half second for which `try_lock_for`
/// awaits an answer.
const SECOND_LOOK_US: u64 = 100_000;

/// What whoever wanted the lane has to do about it.
pub(crate) enum Upkeep {
    Fine,
    /// To be opened on this runtime, unless the other end says that somebody else does.
    Reopen(RuntimeId, Opener),
}

/// What the task that opens the lane knows of it.
pub(crate) struct Opener {
    superseded: oneshot::Receiver<()>,
    /// Dropped with the task.
    _task: Arc<()>,
}

impl Opener {
    /// Ends when somebody else is to open it.
    async fn superseded(mut self) {
        let _superseded = (&mut self.superseded).await;
    }
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
    /// Nobody else tries before `until_us`. A later try ends this one by dropping `alive`: a server that accepts
    /// connections and says nothing would have one more with each call. On the same runtime the later try first waits for
    /// `task` to end: a runtime that nobody polls gets one task at most.
    Opening { until_us: u64, runtime: RuntimeId, alive: Option<oneshot::Sender<()>>, task: Weak<()> },
    Open {
        link: Arc<dyn Link>,
        /// The runtime that drives it.
        runtime: RuntimeId,
        used_us: u64,
    },
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
    /// Returns the lane, if the caller may use it: its runtime drives the lane, and the lane leads to the same run of the
    /// store as the inbox.
    pub(crate) fn lane_link(&mut self, now_us: u64) -> (Option<Arc<dyn Link>>, Upkeep) {
        if matches!(self.lane, Lane::Never) {
            return (None, Upkeep::Fine);
        }
        let Some(caller) = self.world.runtime() else { return (None, Upkeep::Fine) };
        match &mut self.lane {
            Lane::Open { link, runtime, used_us } if !link.is_closed() && link.run_id() == self.run => {
                if *runtime == caller || is_on(Mutant::P17LaneForAll) {
                    *used_us = now_us;
                    return (Some(Arc::clone(link)), Upkeep::Fine);
                }
                if now_us < used_us.saturating_add(UNUSED_US) {
                    return (None, Upkeep::Fine);
                }
                hit(Mark::LaneMoved);
                self.words.hang_up(Arc::clone(link));
            }
            // Another run: two servers behind one address, or one that restarted. Only one of them has our inbox.
            Lane::Open { link, .. } => self.words.hang_up(Arc::clone(link)),
            Lane::Opening { until_us, .. } if now_us < *until_us => return (None, Upkeep::Fine),
            Lane::Opening { runtime, alive, task, .. } if *runtime == caller && task.strong_count() > 0 => {
                // It ends with its next turn, and then another one may begin. A runtime that nobody polls gets no more.
                drop(alive.take());
                return (None, Upkeep::Fine);
            }
            Lane::Never | Lane::Absent | Lane::Opening { .. } => {}
        }
        let ((alive, superseded), task) = (oneshot::channel(), Arc::new(()));
        let (until_us, alive) = (now_us + OPEN_WITHIN_US, Some(alive));
        self.lane = Lane::Opening { until_us, runtime: caller, alive, task: Arc::downgrade(&task) };
        (None, Upkeep::Reopen(caller, Opener { superseded, _task: task }))
    }

    /// Whether a caller may wait for what is sent on this link: the link is sound, leads to the same run of the store as
    /// the inbox, and is not the lane of a runtime that may stand still while the caller is polled.
    pub(crate) fn may_use(&self, link: &Arc<dyn Link>) -> bool {
        let is_driven = match &self.lane {
            Lane::Open { link: lane, runtime, .. } if same(lane, link) => self.world.runtime() == Some(*runtime),
            _ => true,
        };
        is_driven && !link.is_closed() && link.run_id() == self.run
    }

    /// Returns whether this request may be unsent: it was handed to the lane, the lane has requests that are not sent yet,
    /// and the session's link is there to ask instead.
    pub(crate) fn may_be_unsent(&self, asked: &Asked) -> bool {
        let Lane::Open { link, .. } = &self.lane else { return false };
        same(link, &asked.link) && link.has_unsent() && self.home().is_some()
    }

    /// Gives the lane up if its runtime does not drive it: the session's link asks again what was asked by the lane.
    /// Returns when to look again.
    pub(crate) fn look_at_lane(&mut self) -> u64 {
        let Lane::Open { link, .. } = &self.lane else { return LOOK_US };
        match link.check_driven() {
            Progress::Moving => return LOOK_US,
            Progress::Waiting => return SECOND_LOOK_US,
            Progress::Stalled if is_on(Mutant::P17LaneStandsStill) => return LOOK_US,
            Progress::Stalled => self.give_lane_up(),
        }
        LOOK_US
    }

    /// Closes the lane, and has the session's link ask all that was asked by it. All of it at once: the thread sends
    /// releases before acquires, and an acquire that overtook the release before it would be refused.
    pub(crate) fn give_lane_up(&mut self) {
        let Lane::Open { link, .. } = &self.lane else { return };
        hit(Mark::LaneStalled);
        let link = Arc::clone(link);
        self.close_lane();
        let asked_by_it = |attempt: &Attempt| attempt.asked.as_ref().is_some_and(|asked| same(&asked.link, &link));
        let unanswered: Vec<u64> =
            self.attempts.iter().filter(|(_, attempt)| asked_by_it(attempt)).map(|(counter, _)| *counter).collect();
        unanswered.into_iter().for_each(|counter| self.left_alone(counter));
    }

    fn lane_opened(&mut self, runtime: RuntimeId, link: Result<Arc<dyn Link>, Error>) {
        match link {
            // The session ended while it was opened, or another runtime was faster: nobody would ever close it.
            Ok(link) if self.stage == Stage::Closed || matches!(self.lane, Lane::Open { .. }) => link.close(),
            Err(_) if matches!(self.lane, Lane::Open { .. }) => {}
            Ok(link) => self.lane = Lane::Open { link, runtime, used_us: self.world.now_us() },
            Err(error) => {
                self.trouble = Some(for_now(error));
                let until_us = self.world.now_us() + REOPEN_MAX_US;
                self.lane = Lane::Opening { until_us, runtime, alive: None, task: Weak::new() };
            }
        }
    }

    pub(crate) fn close_lane(&mut self) {
        match std::mem::take(&mut self.lane) {
            Lane::Open { link, .. } => self.words.hang_up(link),
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
        let Upkeep::Reopen(runtime, opener) = upkeep else { return };
        let session = Arc::downgrade(self);
        let (open, superseded) = (self.store.open(), opener.superseded());
        let task = async move {
            let link = tokio::select! {
                biased;
                link = open => link,
                () = superseded => return,
            };
            if let Some(session) = session.upgrade() {
                session.with(|state| state.lane_opened(runtime, link));
            }
            drop(tell);
        };
        // No runtime here: the session's link serves. The next call looks again.
        drop(self.world.spawn(Box::pin(task)));
    }
}
