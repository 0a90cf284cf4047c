//! The nodes of a link: who of them is connected, has our inbox, or is to be looked at.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_spec::{GrantId, SessionId};
use tokio::sync::Notify;

use super::Shared;
use super::keeper;
use super::member::Standing;
use super::node::NodeLink;
use crate::error::Error;
use crate::store::{Fault, Inbox, Message, Progress};

/// What a link consists of.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    /// Tells it apart from the other links of its client.
    pub(super) number: u64,
    slots: Vec<Slot>,
    pub(super) attached: OnceLock<(SessionId, Inbox)>,
    is_closed: AtomicBool,
    closes: Notify,
    /// The attempts that it has given back last: what it had asked for them before is given back behind it, at every node.
    given_back: Mutex<VecDeque<GrantId>>,
}

/// How many of them are remembered. One is needed until the answers that are under way are in: for a round trip, mostly. Of
/// one that is forgotten a late vote is given back once more, which does no harm.
const GIVEN_BACK: usize = 256;

/// One node's place.
#[derive(Default)]
struct Slot {
    place: Mutex<Place>,
    /// Whoever keeps it up is to look at it.
    look: Notify,
}

#[derive(Default)]
struct Place {
    link: Option<Arc<dyn NodeLink>>,
    /// Whether somebody has begun to attach the inbox to it.
    is_attached: bool,
    /// Whether a request found no answer in time.
    is_doubted: bool,
}

impl Inner {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        let slots = shared.members.iter().map(|_| Slot::default()).collect();
        let number = shared.links.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            shared,
            number,
            slots,
            attached: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            closes: Notify::new(),
            given_back: Mutex::default(),
        })
    }

    pub(super) fn now_us(&self) -> u64 {
        self.shared.world.now_us()
    }

    pub(super) fn nodes(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn link(&self, node: usize) -> Option<Arc<dyn NodeLink>> {
        let link = self.place(node).link.clone()?;
        if link.is_closed() {
            // It broke while nobody asked, and without an inbox nobody was told.
            if matches!(self.shared.members[node].standing(), Standing::Votes) {
                self.shared.members[node].stand(Standing::Unheard);
            }
            self.look_at(node);
            return None;
        }
        Some(link)
    }

    /// The progress of the node that makes the least: one runtime drives all of them.
    pub(super) fn check_driven(&self) -> Progress {
        let links = (0..self.nodes()).filter_map(|node| self.place(node).link.clone());
        links.map(|link| link.check_driven()).max().unwrap_or(Progress::Moving)
    }

    pub(super) fn has_unsent(&self) -> bool {
        (0..self.nodes()).any(|node| self.place(node).link.as_ref().is_some_and(|link| link.has_unsent()))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the link is closed.
    pub(super) async fn closed(&self) {
        let mut closes = std::pin::pin!(self.closes.notified());
        // From here on it is notified.
        closes.as_mut().enable();
        if !self.is_closed() {
            closes.await;
        }
    }

    /// An attempt is given back by this link, at every node.
    pub(super) fn note_given_back(&self, id: GrantId) {
        let mut given_back = self.given_back.lock().unwrap_or_else(PoisonError::into_inner);
        if given_back.len() >= GIVEN_BACK {
            given_back.pop_front();
        }
        given_back.push_back(id);
    }

    pub(super) fn has_given_back(&self, id: &GrantId) -> bool {
        self.given_back.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// The link by which goes what nobody waits for: the session's own, which is driven whoever stands still.
    pub(super) fn by_home(self: &Arc<Self>) -> Arc<Self> {
        if self.attached.get().is_some() {
            return Arc::clone(self);
        }
        let home = self.shared.home_link.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        home.filter(|home| !home.is_closed()).unwrap_or_else(|| Arc::clone(self))
    }

    /// Gives all of it up.
    pub(super) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.closes.notify_waiters();
            self.shared.names().give_up(self.number);
            (0..self.nodes()).for_each(|node| self.hang_up(node));
            self.tell(Message::Detached);
        }
    }

    /// A node is connected. Without an inbox there is none to attach yet.
    pub(super) async fn install(self: &Arc<Self>, node: usize, link: Arc<dyn NodeLink>) -> Result<(), Error> {
        *self.place(node) = Place { link: Some(link), is_attached: false, is_doubted: false };
        if self.is_closed() {
            self.hang_up(node);
        }
        self.attach_to(node).await
    }

    /// Attaches the inbox to a node, if there are both, and nobody else does.
    pub(super) async fn attach_to(self: &Arc<Self>, node: usize) -> Result<(), Error> {
        let Some((session, _)) = self.attached.get() else { return Ok(()) };
        let link = {
            let mut place = self.place(node);
            let Some(link) = place.link.clone().filter(|_| !place.is_attached) else { return Ok(()) };
            place.is_attached = true;
            link
        };
        let attached = tokio::select! {
            biased;
            attached = link.attach(*session, self.inbox_of(node)) => attached.map_err(Fault::error),
            () = self.shared.world.sleep(Duration::from_micros(keeper::OPEN_WITHIN_US)) => Err(keeper::unanswered()),
        };
        attached.inspect_err(|_| {
            link.close();
            self.look_at(node);
        })
    }

    pub(super) fn tell(&self, message: Message) {
        if let Some((_, inbox)) = self.attached.get() {
            inbox(message);
        }
    }

    /// Requests on this node found no answer in time: it answers a ping, or is connected anew.
    pub(super) fn doubt(&self, node: usize) {
        self.place(node).is_doubted = true;
        self.slots[node].look.notify_one();
    }

    /// Whether it was doubted since this was last asked.
    pub(super) fn take_doubt(&self, node: usize) -> bool {
        std::mem::take(&mut self.place(node).is_doubted)
    }

    pub(super) fn look_at(&self, node: usize) {
        self.slots[node].look.notify_one();
    }

    /// Until there is something to look at.
    pub(super) async fn looked_at(&self, node: usize) {
        self.slots[node].look.notified().await;
    }

    fn hang_up(&self, node: usize) {
        if let Some(link) = self.place(node).link.take() {
            link.close();
        }
        self.look_at(node);
    }

    fn place(&self, node: usize) -> MutexGuard<'_, Place> {
        self.slots[node].place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
