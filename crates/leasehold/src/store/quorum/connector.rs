//! Connects one node, keeps it connected, and receives its messages. Each node of a link has a connector of its own.

use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Bell, Rings};
use leasehold_spec::{Delivery, Event, Name, Rest, Token};

use super::links::Links;
use super::member::NodeStatus;
use super::node::{Inbox, NodeLink, NodeMessage};
use super::{collect, give_back, queue};
use crate::error::{Error, ErrorKind};
use crate::store::{Fault, Message};
use crate::world::Pending;

/// The longest time of one attempt to connect, from the connection to the attached inbox.
pub(super) const OPEN_WITHIN_US: u64 = 5_000_000;
/// The pauses between two attempts to connect.
const BACKOFF_MIN_US: u64 = 20_000;
const BACKOFF_MAX_US: u64 = 1_000_000;
/// The pause before the return of a vote that a node refused is sent again.
const RETURN_AGAIN_US: u64 = 1_000_000;
/// The shortest time that a doubted node has for the answer to a ping.
const PROOF_US: u64 = 500_000;

/// Keeps one node connected until its link is closed. Begins with a connection that another task has begun to open.
pub(super) fn keep(
    links: Arc<Links>,
    node: usize,
    mut opening: Option<Pending<Result<(), Error>>>,
) -> impl Future<Output = ()> + Send + 'static {
    let connector = Connector(links);
    async move {
        let links = &connector.0;
        let mut backoff_us = BACKOFF_MIN_US;
        while !links.is_closed() {
            let opening = opening.take().unwrap_or_else(|| Box::pin(open(Arc::clone(links), node)));
            match opening.await {
                Ok(()) => {
                    backoff_us = BACKOFF_MIN_US;
                    watch(links, node).await;
                }
                Err(error) => {
                    links.shared.members[node].set_status(NodeStatus::Unreachable(error.to_string()));
                    pause(links, backoff_us).await;
                    backoff_us = (backoff_us * 2).min(BACKOFF_MAX_US);
                }
            }
        }
    }
}

/// The connector of a node. When the runtime ends, it is dropped: the connections end with the runtime, and no task
/// reconnects the nodes. So it closes the whole link, and the session opens another one.
struct Connector(Arc<Links>);

impl Drop for Connector {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            hit(Mark::RuntimeEnded);
            self.0.close();
        }
    }
}

/// Connects a node, and installs the connection. One bound covers all steps: a node may stop after the greeting.
pub(super) async fn open(links: Arc<Links>, node: usize) -> Result<(), Error> {
    tokio::select! {
        biased;
        opened = connect(&links, node) => opened,
        () = pause(&links, OPEN_WITHIN_US) => Err(no_reply_in_time()),
    }
}

/// Returns the error of a node that was not connected, or did not reply, in time.
pub(super) fn no_reply_in_time() -> Error {
    let within_s = OPEN_WITHIN_US / 1_000_000;
    let message = format!("no reply within {within_s} s: check that the server is running, and the network");
    Error::new(ErrorKind::Unreachable, message)
}

async fn connect(links: &Arc<Links>, node: usize) -> Result<(), Error> {
    let (shared, member) = (&links.shared, &links.shared.members[node]);
    let link = member.node.open(shared.charter).await?;
    let mut unready = CloseUnlessReady(Some(Arc::clone(&link)));
    if let Err(other) = shared.note_run_id(node, link.run_id()) {
        let message = format!(
            "the nodes {} and {} of the quorum are the same server: name each server once",
            shared.members[other].node.at(),
            member.node.at()
        );
        return Err(Error::invalid(message));
    }
    if !collect::ping(links, node, Arc::clone(&link)).await {
        return Err(Error::new(ErrorKind::Unreachable, "the connection was closed at once"));
    }
    if link.was_used() {
        member.note_used();
    }
    let now_us = links.now_us();
    let node_us = member.time_at(now_us, now_us).unwrap_or_default();
    member.set_status(NodeStatus::of(link.quarantine_until_us(), node_us, now_us));
    links.install(node, link);
    attach(links, node).await?;
    unready.0 = None;
    give_back::send_pending(links, node);
    Ok(())
}

/// Closes a connection unless its inbox is attached: the task that opens it may fail, or be dropped.
struct CloseUnlessReady(Option<Arc<dyn NodeLink>>);

impl Drop for CloseUnlessReady {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            link.close();
        }
    }
}

/// Attaches the session's inbox to a node, if there are both and no other task does.
pub(super) async fn attach(links: &Arc<Links>, node: usize) -> Result<(), Error> {
    let Some((link, session)) = links.begin_attach(node) else { return Ok(()) };
    let attached = tokio::select! {
        biased;
        attached = link.attach(session, inbox(links, node)) => attached.map_err(Fault::error),
        () = pause(links, OPEN_WITHIN_US) => Err(no_reply_in_time()),
    };
    attached.inspect_err(|_| {
        link.close();
        links.poke(node);
    })
}

/// Returns the inbox for the messages of one node.
fn inbox(links: &Arc<Links>, node: usize) -> Inbox {
    let links = Arc::downgrade(links);
    Arc::new(move |message| {
        let Some(links) = links.upgrade() else { return };
        match message {
            NodeMessage::Bell(name, bell) => accept(&links, node, name, &bell),
            NodeMessage::Garbled => links.deliver(Message::RecheckAll),
            NodeMessage::Detached => links.poke(node),
        }
    })
}

/// Handles a message: calls begin rounds, and other messages go to the session.
fn accept(links: &Arc<Links>, node: usize, name: Name, bell: &Bell) {
    let now_us = links.now_us();
    links.shared.note_token(&name, bell.highest, now_us);
    let delivery = |token: Token, left_us: u64, event: Event, now_us: u64| Delivery {
        to: bell.to,
        now_us,
        contention: bell.contention,
        rest: Rest::Done,
        id: bell.id,
        token,
        left_us,
        range: 1,
        event,
    };
    let sent_us = || links.shared.members[node].local_of(bell.now_us, now_us).unwrap_or(now_us).min(now_us);
    let delivery = match bell.rings {
        Rings::Call => return queue::called(links, node, &name, &bell.id),
        Rings::Wanted { token } => delivery(token, 0, Event::Wanted, now_us),
        Rings::Revoked { token, left_us } => delivery(token, left_us, Event::Revoked, sent_us()),
        // The waiter asks all nodes at that time. If no majority is free by then, the answer contains the time.
        Rings::Ending { token, left_us } => delivery(token, left_us, Event::Ending, sent_us()),
    };
    links.deliver(Message::Delivery(name, delivery));
}

/// Watches a connection until it is gone. If the node refused the return of a vote, the return is repeated: a
/// connection that works would not be reopened for that, and the vote would block others for the rest of its lease.
async fn watch(links: &Arc<Links>, node: usize) {
    let returns = &links.shared.members[node].returns;
    let mut again_us = None;
    loop {
        let Some(link) = links.to(node) else { return };
        let now_us = links.now_us();
        again_us = (!returns.is_empty()).then(|| again_us.unwrap_or(now_us + RETURN_AGAIN_US));
        let left_us = again_us.map_or(0, |again_us| again_us.saturating_sub(now_us));
        tokio::select! {
            biased;
            () = links.poked(node) => {}
            // The session's link sends the returns of other links, too: it outlives every runtime.
            () = returns.added(), if links.is_home() => {}
            () = pause(links, left_us), if again_us.is_some() => {
                again_us = None;
                give_back::send_pending(links, node);
            }
        }
        if links.is_closed() || link.is_closed() {
            return;
        }
        if links.take_doubt(node) && !is_alive(links, node, &link).await {
            hit(Mark::DoubtedGone);
            links.shared.members[node].set_status(NodeStatus::Silent);
            link.close();
            return;
        }
    }
}

async fn is_alive(links: &Arc<Links>, node: usize, link: &Arc<dyn NodeLink>) -> bool {
    let within_us = PROOF_US.max(4 * links.shared.members[node].rtt_us());
    tokio::select! {
        biased;
        has_answered = collect::ping(links, node, Arc::clone(link)) => has_answered,
        () = pause(links, within_us) => false,
    }
}

async fn pause(links: &Links, for_us: u64) {
    links.shared.world.sleep(Duration::from_micros(for_us)).await;
}
