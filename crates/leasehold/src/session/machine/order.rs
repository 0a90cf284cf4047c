//! The order of the requests of one attempt: which acquires may still be carried out, and by which connection a request
//! comes after them.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::store::Link;

/// A request in flight.
#[derive(Clone)]
pub(crate) struct InFlight {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) sent_us: u64,
    /// When its connection is doubted for want of a reply.
    pub(crate) until_us: u64,
    /// When the reply of any store is late. A caller whose deadline is earlier still waits for the reply until then.
    pub(crate) usual_us: u64,
    /// Its number: the reply to an older request does not end the wait for this one.
    pub(crate) serial: u64,
}

#[derive(Default)]
pub(crate) struct SendOrder {
    acquires: Acquires,
    strays: Strays,
    /// The serial of the latest return that was sent, or that its caller sends now.
    return_sent: u64,
    /// Callers that wait until the next return is sent.
    behind: Vec<oneshot::Sender<()>>,
}

/// The acquires of one attempt that may still be carried out (P14).
#[derive(Default)]
struct Acquires {
    in_flight: u32,
    /// The one connection of all of them; `None` if `is_spread` says so.
    link: Option<Arc<dyn Link>>,
    /// They are on several connections, or on a connection that is gone.
    is_spread: bool,
    /// Their latest `not_after`, in the server's time.
    until_us: u64,
    /// Requests up to this serial may have been sent before one of them.
    before: u64,
    /// The serial of the one that its caller sends.
    of_caller: u64,
    /// The thread has prepared one and not sent it yet.
    is_due: bool,
}

/// The acquires without a reply that may still be granted, or queue, behind the last try of an upgrade (P38).
#[derive(Default)]
struct Strays {
    count: u32,
    /// The serial of the last one.
    last: u64,
    /// Their latest `not_after`, in the server's time.
    until_us: u64,
}

impl SendOrder {
    /// Notes an acquire that is about to be sent.
    pub(crate) fn note_acquire(&mut self, link: &Arc<dyn Link>, not_after_us: u64) {
        let acquires = &mut self.acquires;
        acquires.is_spread |= acquires.link.as_ref().is_some_and(|known| !same(known, link));
        acquires.link = Some(Arc::clone(link));
        acquires.in_flight += 1;
        acquires.until_us = acquires.until_us.max(not_after_us);
    }

    /// The caller sends the last acquire. Its future may stop before that, and requests that are sent meanwhile would
    /// overtake the acquire.
    pub(crate) fn leave_to_caller(&mut self, serial: u64) {
        (self.acquires.before, self.acquires.of_caller) = (u64::MAX, serial);
    }

    /// The caller has sent its acquire, or never will. Requests with a larger serial than `last_serial` come after it.
    pub(crate) fn sent_by_caller(&mut self, last_serial: u64) {
        self.acquires.before = self.acquires.before.min(last_serial);
    }

    /// The thread sends the last acquire. Until then nobody else sends a request of this attempt.
    pub(crate) fn leave_to_thread(&mut self) {
        self.acquires.is_due = true;
    }

    pub(crate) fn sent_by_thread(&mut self) {
        self.acquires.is_due = false;
    }

    /// Returns whether a caller may send a request that has to come after the acquires: the thread has sent all its own.
    pub(crate) fn may_be_followed(&self) -> bool {
        !self.acquires.is_due
    }

    /// Notes that the fate of the acquire with this serial is known: so its caller has sent it, or never will.
    pub(crate) fn note_fate(&mut self, serial: u64, last_serial: u64) {
        if serial == self.acquires.of_caller {
            self.sent_by_caller(last_serial);
        }
    }

    /// An upgrade tries once more. Acquires up to this serial may be carried out later.
    pub(crate) fn only_tries(&mut self, last: u64) {
        let Acquires { in_flight, is_spread, until_us, .. } = self.acquires;
        self.strays = Strays { count: in_flight + u32::from(is_spread), last, until_us };
    }

    /// Returns for how long an acquire from before may be carried out, from a moment of the server's clock.
    pub(crate) fn may_follow_for_us(&self, server_us: u64) -> Option<u64> {
        let left_us = (self.strays.until_us + 1).checked_sub(server_us);
        left_us.filter(|left_us| *left_us > 0 && self.strays.count > 0)
    }

    /// The acquire with this serial was answered, or was surely not carried out.
    pub(crate) fn answered(&mut self, serial: u64) {
        if serial <= self.strays.last {
            self.strays.count = self.strays.count.saturating_sub(1);
        }
        let acquires = &mut self.acquires;
        acquires.in_flight = acquires.in_flight.saturating_sub(1);
        if acquires.in_flight == 0 && !acquires.is_spread {
            *acquires = Acquires::default();
        }
    }

    /// An acquire has no reply: it may be carried out until its `not_after`.
    pub(crate) fn gone(&mut self) {
        self.acquires.in_flight = self.acquires.in_flight.saturating_sub(1);
        self.acquires.is_spread = true;
    }

    /// The server's clock shows this time: acquires with an earlier `not_after` are refused from now on.
    pub(crate) fn passed(&mut self, server_us: u64) {
        if server_us > self.acquires.until_us {
            self.acquires = Acquires::default();
        }
    }

    /// Returns how long an acquire may still be carried out, from a moment of the server's clock.
    pub(crate) fn open_for_us(&self, server_us: u64) -> u64 {
        self.acquires.until_us.saturating_sub(server_us)
    }

    /// Returns the connection on which a leave comes after the acquires.
    pub(crate) fn follow(&self) -> Option<&Arc<dyn Link>> {
        let Acquires { in_flight, is_spread, link, .. } = &self.acquires;
        link.as_ref().filter(|link| *in_flight > 0 && !is_spread && !link.is_closed())
    }

    /// Returns whether no acquire may still be carried out.
    pub(crate) fn is_settled(&self) -> bool {
        self.acquires.in_flight == 0 && !self.acquires.is_spread
    }

    /// Returns whether no acquire can be carried out after this return, which was answered at `server_us` of the server's
    /// clock.
    pub(crate) fn is_closed_by(&self, sent: &InFlight, server_us: u64) -> bool {
        let acquires = &self.acquires;
        let is_same_link = !acquires.is_spread && acquires.link.as_ref().is_none_or(|known| same(known, &sent.link));
        (is_same_link && sent.serial > acquires.before) || server_us > acquires.until_us
    }

    /// Notes that a return was sent, or that its caller sends it now: later requests on its connection come after it.
    pub(crate) fn note_return(&mut self, serial: u64) {
        self.return_sent = self.return_sent.max(serial);
    }

    pub(crate) fn has_sent_return(&self, serial: u64) -> bool {
        serial <= self.return_sent
    }

    /// Lets a caller wait until the next return is sent.
    pub(crate) fn wait_behind(&mut self) -> oneshot::Receiver<()> {
        let (sent, is_sent) = oneshot::channel();
        self.behind.push(sent);
        is_sent
    }

    pub(crate) fn has_followers(&self) -> bool {
        !self.behind.is_empty()
    }

    pub(crate) fn take_followers(&mut self) -> Vec<oneshot::Sender<()>> {
        std::mem::take(&mut self.behind)
    }
}

/// Returns whether two handles are the same connection.
pub(crate) fn same(a: &Arc<dyn Link>, b: &Arc<dyn Link>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
