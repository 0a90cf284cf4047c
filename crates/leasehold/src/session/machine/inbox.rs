//! The connection that has the inbox of the session, and when the inbox moves.

use std::sync::Arc;

use super::order::same;
use crate::store::Link;

/// Grants that messages bring less than this apart are worth a move to the lane.
const BRISK_US: u64 = 1_000_000;
/// So many of them in a row.
const BRISK: u32 = 4;
/// A lane without a message of a grant for this long gives the inbox back: the checks of the lane cost more than they gain.
const IDLE_US: u64 = 5_000_000;
/// After a lane was not read, the inbox stays with the thread for this long, and after each further one twice as long.
const PAUSE_MIN_US: u64 = 10_000_000;
const PAUSE_MAX_US: u64 = 640_000_000;
/// A lane that was not unread again for so many times the next pause begins with the shortest one.
const FORGIVEN: u64 = 10;

/// The inbox of a session.
pub(crate) struct Inbox {
    place: Place,
    /// How many grants came by messages in quick succession, and when the last one came.
    grants: u32,
    granted_us: u64,
    /// Until when the inbox stays with the thread, and for how long next time.
    stays_until_us: u64,
    pause_us: u64,
    /// Whether the lane that has the inbox was not read.
    is_unread: bool,
    /// Replies to requests that were sent before this moment do not make up for a lost message.
    since_us: u64,
    /// Cloned by each attempt and waiter for which the inbox stays with the thread.
    keeper: Arc<()>,
}

/// The connections to which the inbox is attached.
pub(crate) enum Place {
    /// To the session's connection.
    Home,
    /// To the session's connection, and about to be attached to the lane.
    ToLane(Arc<dyn Link>),
    /// To the lane.
    Lane(Arc<dyn Link>),
    /// To the lane, if that is still open, and about to be attached to the session's connection.
    ToHome(Arc<dyn Link>),
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            place: Place::Home,
            grants: 0,
            granted_us: 0,
            stays_until_us: 0,
            pause_us: PAUSE_MIN_US,
            is_unread: false,
            since_us: 0,
            keeper: Arc::default(),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Notes that a message has brought a grant. Returns whether the inbox should move now.
    pub(crate) fn note_grant(&mut self, now_us: u64) -> bool {
        let is_brisk = now_us.saturating_sub(self.granted_us) < BRISK_US;
        self.grants = if is_brisk { self.grants.saturating_add(1) } else { 1 };
        self.granted_us = now_us;
        matches!(self.place, Place::Home) && self.may_leave(now_us)
    }

    /// Returns whether the inbox may move to the lane.
    pub(crate) fn may_leave(&self, now_us: u64) -> bool {
        let is_brisk = self.grants >= BRISK && now_us.saturating_sub(self.granted_us) < BRISK_US;
        is_brisk && now_us >= self.stays_until_us && !self.is_kept()
    }

    /// Returns whether the lane has to give the inbox back although it is open.
    pub(crate) fn must_return(&self, now_us: u64) -> bool {
        self.is_unread || self.is_kept() || now_us.saturating_sub(self.granted_us) > IDLE_US
    }

    /// Keeps the inbox with the thread until the result is dropped.
    pub(crate) fn keep(&self) -> Arc<()> {
        Arc::clone(&self.keeper)
    }

    fn is_kept(&self) -> bool {
        Arc::strong_count(&self.keeper) > 1
    }

    /// Returns whether the only connection with the inbox is gone.
    pub(crate) fn is_detached(&self) -> bool {
        matches!(&self.place, Place::Lane(lane) | Place::ToHome(lane) if lane.is_closed())
    }

    /// Returns whether a message may have been lost after this request was sent.
    pub(crate) fn may_have_missed(&self, sent_us: u64) -> bool {
        sent_us < self.since_us
    }

    /// Begins to attach the inbox to the lane.
    pub(crate) fn leave(&mut self, lane: Arc<dyn Link>) {
        self.place = Place::ToLane(lane);
    }

    /// Ends that. Returns whether the lane has the inbox: not if the inbox has come back meanwhile.
    pub(crate) fn arrive(&mut self, lane: &Arc<dyn Link>, is_attached: bool, now_us: u64) -> bool {
        if !matches!(&self.place, Place::ToLane(awaited) if same(awaited, lane)) {
            return false;
        }
        (self.place, self.is_unread) = (Place::Home, false);
        if is_attached {
            self.granted_us = now_us;
            self.place = Place::Lane(Arc::clone(lane));
        } else {
            self.stay(now_us);
        }
        is_attached
    }

    /// Notes that the runtime of the lane does not read it.
    pub(crate) fn note_unread(&mut self, now_us: u64) {
        self.is_unread = true;
        self.stay(now_us);
    }

    /// Leaves the inbox with the thread for a while, and for longer next time.
    pub(crate) fn stay(&mut self, now_us: u64) {
        if now_us > self.stays_until_us.saturating_add(FORGIVEN * self.pause_us) {
            self.pause_us = PAUSE_MIN_US;
        }
        self.stays_until_us = self.stays_until_us.max(now_us + self.pause_us);
        self.pause_us = (self.pause_us * 2).min(PAUSE_MAX_US);
    }

    /// Leaves the inbox with the thread for good.
    pub(crate) fn stay_for_good(&mut self) {
        (self.is_unread, self.stays_until_us) = (true, u64::MAX);
    }

    /// Begins to attach the inbox to the session's connection again.
    pub(crate) fn go_home(&mut self, lane: Arc<dyn Link>, now_us: u64) {
        if self.is_kept() {
            self.stays_until_us = self.stays_until_us.max(now_us + PAUSE_MIN_US);
        }
        self.place = Place::ToHome(lane);
    }

    /// The session's connection has the inbox again, or another connection in its place. Returns the lane that had the
    /// inbox or was about to, and whether it was not read.
    pub(crate) fn come_home(&mut self) -> Option<(Arc<dyn Link>, bool)> {
        self.grants = 0;
        let is_unread = std::mem::take(&mut self.is_unread);
        match std::mem::replace(&mut self.place, Place::Home) {
            Place::Home => None,
            Place::ToLane(lane) | Place::Lane(lane) | Place::ToHome(lane) => Some((lane, is_unread)),
        }
    }

    /// Messages from before this moment may be lost.
    pub(crate) fn note_missed(&mut self, now_us: u64) {
        self.since_us = now_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_grants(inbox: &mut Inbox, now_us: u64) {
        for _ in 0..BRISK {
            inbox.note_grant(now_us);
        }
    }

    fn brisk(now_us: u64) -> Inbox {
        let mut inbox = Inbox::new();
        note_grants(&mut inbox, now_us);
        inbox
    }

    #[test]
    fn grants_in_quick_succession_move_the_inbox() {
        let mut inbox = Inbox::new();
        let moves: Vec<_> = (1..=5).map(|nth| inbox.note_grant(nth * (BRISK_US - 1))).collect();
        assert_eq!(moves, [false, false, false, true, true]);
        let mut inbox = Inbox::new();
        assert!((1..=9).all(|nth| !inbox.note_grant(nth * BRISK_US)), "each a second after the one before");
    }

    #[test]
    fn the_inbox_stays_while_anybody_keeps_it() {
        let mut inbox = brisk(7);
        let keeper = inbox.keep();
        assert!(!inbox.note_grant(8) && inbox.must_return(8));
        drop(keeper);
        assert!(inbox.note_grant(9) && !inbox.must_return(9));
    }

    #[test]
    fn a_lane_that_is_often_not_read_gets_the_inbox_ever_less_often() {
        let mut inbox = brisk(0);
        for pause_us in [10, 20, 40, 80, 160, 320, 640, 640].map(|s| s * 1_000_000) {
            let begun_us = inbox.granted_us;
            inbox.note_unread(begun_us);
            assert!(!inbox.may_leave(begun_us));
            note_grants(&mut inbox, begun_us + pause_us - 1);
            assert!(!inbox.may_leave(begun_us + pause_us - 1));
            assert!(inbox.note_grant(begun_us + pause_us));
        }
        let later_us = inbox.stays_until_us + FORGIVEN * PAUSE_MAX_US + 1;
        inbox.note_unread(later_us);
        assert_eq!(inbox.stays_until_us, later_us + PAUSE_MIN_US, "long ago");
    }

    #[test]
    fn an_idle_lane_gives_the_inbox_back() {
        let inbox = brisk(7);
        assert!(!inbox.must_return(7 + IDLE_US));
        assert!(inbox.must_return(8 + IDLE_US));
    }
}
