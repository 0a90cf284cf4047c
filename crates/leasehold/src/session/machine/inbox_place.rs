//! The connection to which the inbox of the session is attached (P17): *home* is the session's own connection, which the
//! session's thread reads, and the *lane* is the connection that the callers' runtime reads. The effects of a move on
//! everything else are in `inbox_moves.rs`.

use std::sync::Arc;

use leasehold_spec::mutant::{Mutant, is_on};

use super::inbox_timing::{GrantPace, StayHome};
use super::order::same;
use crate::session::inbox_keeper::InboxKeeper;
use crate::store::{Link, Progress};

/// The place of the inbox.
pub(crate) struct InboxPlace {
    at: InboxAt,
    pace: GrantPace,
    stay: StayHome,
    /// Replies to requests that were sent before this moment do not make up for a lost message.
    missed_until_us: u64,
    keeper: InboxKeeper,
}

/// The connections to which the inbox is attached.
enum InboxAt {
    /// To home.
    Home,
    /// To home, and about to be attached to the lane.
    ToLane(Arc<dyn Link>),
    /// To the lane.
    Lane { lane: Arc<dyn Link>, fault: Option<LaneFault> },
    /// To the lane, if that is still open, and about to be attached to home.
    ToHome { lane: Arc<dyn Link>, fault: Option<LaneFault> },
}

/// Why the lane is closed when the inbox has returned from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneFault {
    /// Its runtime did not read it. Messages may lie there.
    Unread,
    /// The store has refused to detach the inbox from a connection: it would refuse that for the lane, too.
    DetachRefused,
}

/// A move of the inbox, for the thread to carry out.
pub(crate) enum Move {
    ToLane(Arc<dyn Link>),
    ToHome,
}

impl InboxPlace {
    pub(crate) fn new() -> Self {
        Self {
            at: InboxAt::Home,
            pace: GrantPace::default(),
            stay: StayHome::new(),
            missed_until_us: 0,
            keeper: InboxKeeper::default(),
        }
    }

    pub(crate) fn is_at_home(&self) -> bool {
        matches!(self.at, InboxAt::Home)
    }

    pub(crate) fn is_at_lane(&self) -> bool {
        matches!(self.at, InboxAt::Lane { .. })
    }

    /// Returns whether the only connection with the inbox is gone.
    pub(crate) fn is_detached(&self) -> bool {
        matches!(&self.at, InboxAt::Lane { lane, .. } | InboxAt::ToHome { lane, .. } if lane.is_closed())
    }

    /// Keeps the inbox at home until the result is dropped.
    pub(crate) fn keep(&self) -> InboxKeeper {
        self.keeper.clone()
    }

    /// Notes that a message has brought a grant. Returns whether the inbox should move now.
    pub(crate) fn note_grant(&mut self, now_us: u64) -> bool {
        self.pace.note_grant(now_us);
        self.is_at_home() && self.may_leave(now_us)
    }

    /// Begins the move that is due, and returns it. `lane` is the lane that may have the inbox.
    pub(crate) fn begin_due_move(&mut self, lane: Option<Arc<dyn Link>>, now_us: u64) -> Option<Move> {
        match &self.at {
            InboxAt::Home if self.may_leave(now_us) => {
                let lane = lane?;
                self.at = InboxAt::ToLane(Arc::clone(&lane));
                Some(Move::ToLane(lane))
            }
            InboxAt::Lane { lane: at, fault }
                if !lane.as_ref().is_some_and(|lane| same(lane, at)) || self.must_return(*fault, now_us) =>
            {
                let (lane, fault) = (Arc::clone(at), *fault);
                if self.is_kept() {
                    self.stay.extend_by_min(now_us);
                }
                self.at = InboxAt::ToHome { lane, fault };
                Some(Move::ToHome)
            }
            _ => None,
        }
    }

    /// Notes that the inbox is attached to the lane. Returns `false` if it has come back to home meanwhile.
    pub(crate) fn note_at_lane(&mut self, lane: &Arc<dyn Link>, now_us: u64) -> bool {
        let is_awaited = self.is_awaited_at(lane);
        if is_awaited {
            self.pace.note_move(now_us);
            self.at = InboxAt::Lane { lane: Arc::clone(lane), fault: None };
        }
        is_awaited
    }

    /// Notes that the inbox could not be attached to the lane.
    pub(crate) fn note_lane_failed(&mut self, lane: &Arc<dyn Link>, now_us: u64) {
        if self.is_awaited_at(lane) {
            self.stay.after_failure(now_us);
            self.at = InboxAt::Home;
        }
    }

    /// Checks whether the lane is read, if it has the inbox. Returns its progress.
    pub(crate) fn check(&mut self, now_us: u64) -> Option<Progress> {
        let InboxAt::Lane { lane, fault } = &mut self.at else { return None };
        let progress = lane.check_read();
        if progress == Progress::Stalled && !is_on(Mutant::P17BelievesLane) {
            *fault = Some(LaneFault::Unread);
            self.stay.after_failure(now_us);
        }
        Some(progress)
    }

    /// Notes that the store refuses to detach the inbox. From now on the inbox stays at home. If it is at the lane, it
    /// returns.
    pub(crate) fn forbid_moves(&mut self) {
        self.stay.forbid();
        if let InboxAt::Lane { fault, .. } | InboxAt::ToHome { fault, .. } = &mut self.at {
            *fault = Some(fault.unwrap_or(LaneFault::DetachRefused));
        }
    }

    /// Notes that the inbox is attached to home again. Returns the lane that had it, and the fault of the lane. `None`
    /// if the inbox was not on its way back.
    pub(crate) fn note_back_home(&mut self) -> Option<(Arc<dyn Link>, Option<LaneFault>)> {
        let InboxAt::ToHome { lane, fault } = &self.at else { return None };
        let returned = (Arc::clone(lane), *fault);
        self.reset_to_home();
        Some(returned)
    }

    /// Notes that home is another connection, which has the inbox. Returns the lane that had it or was about to have it.
    pub(crate) fn reset_to_home(&mut self) -> Option<Arc<dyn Link>> {
        self.pace.begin_again();
        match std::mem::replace(&mut self.at, InboxAt::Home) {
            InboxAt::Home => None,
            InboxAt::ToLane(lane) | InboxAt::Lane { lane, .. } | InboxAt::ToHome { lane, .. } => Some(lane),
        }
    }

    /// Notes that messages from before this moment may be lost.
    pub(crate) fn note_missed(&mut self, now_us: u64) {
        self.missed_until_us = now_us;
    }

    /// Returns whether a message may have been lost after this request was sent.
    pub(crate) fn may_have_missed(&self, sent_us: u64) -> bool {
        sent_us < self.missed_until_us
    }

    fn may_leave(&self, now_us: u64) -> bool {
        self.pace.is_brisk(now_us) && self.stay.is_over(now_us) && !self.is_kept()
    }

    /// Returns whether the inbox has to return from a lane that is open.
    fn must_return(&self, fault: Option<LaneFault>, now_us: u64) -> bool {
        fault.is_some() || self.is_kept() || self.pace.is_idle(now_us)
    }

    fn is_kept(&self) -> bool {
        self.keeper.has_clones()
    }

    fn is_awaited_at(&self, lane: &Arc<dyn Link>) -> bool {
        matches!(&self.at, InboxAt::ToLane(awaited) if same(awaited, lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inbox_stays_while_anybody_keeps_it() {
        let mut inbox = InboxPlace::new();
        assert!((1..9).any(|_| inbox.note_grant(7)));
        let keeper = inbox.keep();
        assert!(!inbox.note_grant(8) && inbox.must_return(None, 8));
        drop(keeper);
        assert!(inbox.note_grant(9) && !inbox.must_return(None, 9));
    }

    #[test]
    fn a_faulty_or_idle_lane_gives_the_inbox_back() {
        let mut inbox = InboxPlace::new();
        inbox.note_grant(7);
        assert!(!inbox.must_return(None, 7));
        for fault in [LaneFault::Unread, LaneFault::DetachRefused] {
            assert!(inbox.must_return(Some(fault), 7));
        }
        assert!(inbox.must_return(None, 60_000_000));
    }

    #[test]
    fn a_refused_detach_keeps_the_inbox_for_good() {
        let mut inbox = InboxPlace::new();
        inbox.forbid_moves();
        assert!((1..9).all(|_| !inbox.note_grant(u64::MAX / 2)));
    }
}
