//! Which requests of an attempt may still be carried out, and where one has to go to come behind them.

use std::sync::Arc;

use super::attempt::Asked;
use super::links::same;
use crate::store::Link;

/// The acquires of one attempt that may yet be carried out (P14).
#[derive(Default)]
pub(crate) struct Tries {
    in_flight: u32,
    /// The one link that all of them are on; `None` when they are spread, or on a link that is gone.
    link: Option<Arc<dyn Link>>,
    spread: bool,
    /// The latest `not_after` of them, in server time.
    pub(crate) until_us: u64,
    /// The requests up to this serial may have been sent before one of them.
    before: u64,
    /// The serial of the one that its caller sends.
    of_caller: u64,
    /// The thread has noted one, and is about to send it.
    is_due: bool,
}

impl Tries {
    pub(crate) fn noted(&mut self, link: &Arc<dyn Link>, not_after_us: u64) {
        self.spread |= self.link.as_ref().is_some_and(|known| !same(known, link));
        self.link = Some(Arc::clone(link));
        self.in_flight += 1;
        self.until_us = self.until_us.max(not_after_us);
    }

    /// The one that was noted last is its caller's to send. It may be stopped before that, and whatever we send meanwhile
    /// would overtake it.
    pub(crate) fn left_to_caller(&mut self, serial: u64) {
        (self.before, self.of_caller) = (u64::MAX, serial);
    }

    /// The caller has sent it, or never will. The requests after that of this serial come behind it.
    pub(crate) fn sent_by_caller(&mut self, last_serial: u64) {
        self.before = self.before.min(last_serial);
    }

    /// A fate of the request with this serial is known. If it is the one that its caller sends, the caller has sent it, or
    /// never will.
    pub(crate) fn heard(&mut self, serial: u64, last_serial: u64) {
        if serial == self.of_caller {
            self.sent_by_caller(last_serial);
        }
    }

    /// The one that was noted last is the thread's to send. Before that nobody else sends anything of its attempt.
    pub(crate) fn left_to_thread(&mut self) {
        self.is_due = true;
    }

    pub(crate) fn sent_by_thread(&mut self) {
        self.is_due = false;
    }

    /// Whether a caller may send what comes behind them: the thread has sent all that it has noted.
    pub(crate) fn may_be_followed(&self) -> bool {
        !self.is_due
    }

    /// One was answered, or surely not carried out.
    pub(crate) fn answered(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 && !self.spread {
            *self = Self::default();
        }
    }

    /// One went down with its link: it may be carried out until its `not_after`.
    pub(crate) fn gone(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.spread = true;
    }

    /// The store's clock shows this: those of an earlier `not_after` are refused from now on, whatever became of them.
    pub(crate) fn passed(&mut self, now_us: u64) {
        if now_us > self.until_us {
            *self = Self::default();
        }
    }

    /// Where a leave should go, so that it comes after what it ends.
    pub(crate) fn follow(&self) -> Option<&Arc<dyn Link>> {
        self.link.as_ref().filter(|link| self.in_flight > 0 && !self.spread && !link.is_closed())
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight == 0 && !self.spread
    }

    /// Whether a leave that was answered at server time `now_us` was the last word: nothing can come after it.
    pub(crate) fn closed_by(&self, leave: &Asked, now_us: u64) -> bool {
        let is_same_link = !self.spread && self.link.as_ref().is_none_or(|known| same(known, &leave.link));
        (is_same_link && leave.serial > self.before) || now_us > self.until_us
    }
}
