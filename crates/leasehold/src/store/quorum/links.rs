//! The connections of one link: one to each node, as far as they are open.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use leasehold_spec::{GrantId, SessionId};
use tokio::sync::Notify;

use super::member::NodeStatus;
use super::node::NodeLink;
use super::shared::Shared;
use crate::store::{Inbox, Message, Progress};

/// The number of released attempts that a link remembers. An attempt is needed until its answers in flight have arrived,
/// which usually takes one round trip. A late vote for a forgotten attempt is given back once more, which is harmless.
const RELEASED: usize = 256;

/// The connections of one link.
pub(super) struct Links {
    pub(super) shared: Arc<Shared>,
    pub(super) home: Arc<Home>,
    /// Distinguishes the link from the other links of its client.
    pub(super) number: u64,
    nodes: Vec<NodeState>,
    session: OnceLock<(SessionId, Inbox)>,
    is_closed: AtomicBool,
    closes: Notify,
    /// The attempts that this link released last, at all nodes. The release follows their requests on each connection.
    released: Mutex<VecDeque<GrantId>>,
}

/// The session's own link, which the session's thread drives, and the inbox of the session.
#[derive(Default)]
pub(super) struct Home(Mutex<(Weak<Links>, Option<Inbox>)>);

#[derive(Default)]
struct NodeState {
    connection: Mutex<Connection>,
    /// Has the node's connector check the connection.
    poke: Notify,
}

#[derive(Default)]
struct Connection {
    link: Option<Arc<dyn NodeLink>>,
    /// Whether a task has begun to attach the inbox.
    is_attached: bool,
    /// Whether a request was not answered in time.
    is_doubted: bool,
}

impl Home {
    /// Delivers a message to the inbox of the session, by whichever link it is known.
    pub(super) fn deliver(&self, message: Message) {
        let inbox = self.lock().1.clone();
        if let Some(inbox) = inbox {
            inbox(message);
        }
    }

    fn link(&self) -> Option<Arc<Links>> {
        self.lock().0.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, (Weak<Links>, Option<Inbox>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links {
    pub(super) fn new(shared: Arc<Shared>, home: Arc<Home>) -> Arc<Self> {
        Arc::new(Self {
            number: shared.number_link(),
            nodes: shared.members.iter().map(|_| NodeState::default()).collect(),
            shared,
            home,
            session: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            closes: Notify::new(),
            released: Mutex::default(),
        })
    }

    pub(super) fn now_us(&self) -> u64 {
        self.shared.now_us()
    }

    /// Returns the open connection to a node.
    pub(super) fn to(&self, node: usize) -> Option<Arc<dyn NodeLink>> {
        let link = self.connection(node).link.clone()?;
        if link.is_closed() {
            // It broke while no request was in flight, and without an inbox there was no message about it.
            if matches!(self.shared.members[node].status(), NodeStatus::Votes) {
                self.shared.members[node].set_status(NodeStatus::Unknown);
            }
            self.poke(node);
            return None;
        }
        Some(link)
    }

    pub(super) fn install(&self, node: usize, link: Arc<dyn NodeLink>) {
        *self.connection(node) = Connection { link: Some(link), is_attached: false, is_doubted: false };
        if self.is_closed() {
            self.disconnect(node);
        }
    }

    /// Makes this the session's own link, with this inbox.
    pub(super) fn make_home(self: &Arc<Self>, session: SessionId, inbox: Inbox) {
        *self.home.lock() = (Arc::downgrade(self), Some(Arc::clone(&inbox)));
        self.session.get_or_init(|| (session, inbox));
    }

    pub(super) fn is_home(&self) -> bool {
        self.session.get().is_some()
    }

    /// Returns the session's own link, which no caller's runtime drives. Without one, returns this link.
    pub(super) fn home(self: &Arc<Self>) -> Arc<Self> {
        if self.is_home() {
            return Arc::clone(self);
        }
        self.home.link().filter(|home| !home.is_closed()).unwrap_or_else(|| Arc::clone(self))
    }

    /// Returns a connection that needs the inbox, and the session. `None` if another task attaches the inbox.
    pub(super) fn begin_attach(&self, node: usize) -> Option<(Arc<dyn NodeLink>, SessionId)> {
        let (session, _) = self.session.get()?;
        let mut connection = self.connection(node);
        let link = connection.link.clone().filter(|_| !connection.is_attached)?;
        connection.is_attached = true;
        Some((link, *session))
    }

    pub(super) fn deliver(&self, message: Message) {
        if let Some((_, inbox)) = self.session.get() {
            inbox(message);
        }
    }

    /// Notes that this link releases an attempt at all nodes.
    pub(super) fn note_released(&self, id: GrantId) {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        if released.len() >= RELEASED {
            released.pop_front();
        }
        released.push_back(id);
    }

    /// Forgets a release that has no answer: it was perhaps not sent.
    pub(super) fn forget_released(&self, id: &GrantId) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).retain(|released| released != id);
    }

    pub(super) fn has_released(&self, id: &GrantId) -> bool {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Notes that a request to this node was not answered in time. The connector then pings the node, or reconnects it.
    pub(super) fn doubt(&self, node: usize) {
        self.connection(node).is_doubted = true;
        self.poke(node);
    }

    pub(super) fn take_doubt(&self, node: usize) -> bool {
        std::mem::take(&mut self.connection(node).is_doubted)
    }

    /// Has the connector of a node check the connection and the pending returns.
    pub(super) fn poke(&self, node: usize) {
        self.nodes[node].poke.notify_one();
    }

    pub(super) async fn poked(&self, node: usize) {
        self.nodes[node].poke.notified().await;
    }

    /// Returns the progress of the node with the least progress: one runtime drives all of them.
    pub(super) fn check_driven(&self) -> Progress {
        self.installed().map(|link| link.check_driven()).max().unwrap_or(Progress::Moving)
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.installed().any(|link| link.has_unsent())
    }

    fn installed(&self) -> impl Iterator<Item = Arc<dyn NodeLink>> {
        (0..self.nodes.len()).filter_map(|node| self.connection(node).link.clone())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) async fn closed(&self) {
        let mut closes = std::pin::pin!(self.closes.notified());
        // From here on `close` notifies.
        closes.as_mut().enable();
        if !self.is_closed() {
            closes.await;
        }
    }

    pub(super) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.closes.notify_waiters();
            self.shared.attempts().end_rounds_of(self.number);
            (0..self.nodes.len()).for_each(|node| self.disconnect(node));
            self.deliver(Message::Detached);
        }
    }

    fn disconnect(&self, node: usize) {
        let link = self.connection(node).link.take();
        if let Some(link) = link {
            link.close();
        }
        self.poke(node);
    }

    fn connection(&self, node: usize) -> MutexGuard<'_, Connection> {
        self.nodes[node].connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
