//! Connections to nodes that come and go: each node of a link has somebody who keeps it connected.

use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::mark::{Mark, hit};

use crate::error::{Error, ErrorKind};
use crate::world::Pending;

use super::member::Standing;
use super::node::NodeLink;
use super::places::Inner;

/// How long one try may take: connection, greeting, and what follows until the node is taken in.
pub(super) const OPEN_WITHIN_US: u64 = 5_000_000;
/// The pauses between two tries.
const BACKOFF_MIN_US: u64 = 20_000;
const BACKOFF_MAX_US: u64 = 1_000_000;
/// After how long a node is told again what it refused to take back.
const PAY_US: u64 = 1_000_000;
/// The shortest time in which a node that was doubted has to answer a ping.
const PROOF_US: u64 = 500_000;

/// Keeps one node connected until its link is closed. It begins with a try that somebody else has begun.
pub(super) fn keep(
    inner: Arc<Inner>,
    node: usize,
    mut opening: Option<Pending<Result<(), Error>>>,
) -> impl Future<Output = ()> + Send + 'static {
    let keeping = Keeping(inner);
    async move {
        let inner = &keeping.0;
        let mut backoff_us = BACKOFF_MIN_US;
        while !inner.is_closed() {
            let opening = opening.take().unwrap_or_else(|| Box::pin(open(Arc::clone(inner), node)));
            match opening.await {
                Ok(()) => {
                    backoff_us = BACKOFF_MIN_US;
                    watch(inner, node).await;
                }
                Err(error) => {
                    inner.shared.members[node].stand(Standing::Away(error.to_string()));
                    pause(inner, backoff_us).await;
                    backoff_us = (backoff_us * 2).min(BACKOFF_MAX_US);
                }
            }
        }
    }
}

/// A node that is kept connected. When the runtime ends, this is dropped: the connections end with the runtime, and nobody
/// connects the nodes again. So the whole link is closed, and its session opens another one.
struct Keeping(Arc<Inner>);

impl Drop for Keeping {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            hit(Mark::RuntimeEnded);
            self.0.close();
        }
    }
}

/// Connects a node, and takes it in. All of it has one bound: a node that greets, and then says nothing, is one that does
/// not answer.
pub(super) async fn open(inner: Arc<Inner>, node: usize) -> Result<(), Error> {
    tokio::select! {
        biased;
        opened = take_in(&inner, node) => opened,
        () = inner.shared.world.sleep(Duration::from_micros(OPEN_WITHIN_US)) => Err(unanswered()),
    }
}

/// What is said of a node on which a try has found no answer in time.
pub(super) fn unanswered() -> Error {
    Error::new(ErrorKind::Unreachable, "accepts connections but does not reply")
}

async fn take_in(inner: &Arc<Inner>, node: usize) -> Result<(), Error> {
    let member = &inner.shared.members[node];
    let mut opened = Opened(Some(member.node.open(inner.shared.charter).await?));
    let Some(link) = opened.0.clone() else { return Ok(()) };
    if let Err(other) = inner.shared.meet(node, link.run_id()) {
        let message = format!(
            "the nodes {} and {} of the quorum are the same server: name each server once",
            inner.shared.members[other].node.at(),
            member.node.at()
        );
        return Err(Error::invalid(message));
    }
    if !inner.ping_node(node, Arc::clone(&link)).await {
        return Err(Error::new(ErrorKind::Unreachable, "the connection was closed at once"));
    }
    if link.was_used() {
        member.note_used();
    }
    let now_us = inner.now_us();
    member.stand(Standing::of(link.quarantine_until_us(), member.time_at(now_us, now_us).unwrap_or_default(), now_us));
    inner.install(node, link).await?;
    opened.0 = None;
    inner.pay(node);
    Ok(())
}

/// A link that is not taken in yet. Whoever opens it may be dropped: then nobody else would close it.
struct Opened(Option<Arc<dyn NodeLink>>);

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            link.close();
        }
    }
}

/// Until the connection is gone. What the node refused to take back, with an error, it is told again: a link that is sound
/// would not be opened anew for that, and the vote would be in others' way for the rest of its lease.
async fn watch(inner: &Arc<Inner>, node: usize) {
    let mut pay_us = None;
    loop {
        let Some(link) = inner.link(node) else { return };
        let now_us = inner.now_us();
        pay_us = inner.shared.members[node].is_owed().then(|| pay_us.unwrap_or(now_us + PAY_US));
        let left_us = pay_us.map_or(0, |pay_us| pay_us.saturating_sub(now_us));
        tokio::select! {
            biased;
            () = inner.looked_at(node) => {}
            // Also by another link: the session's one outlives every runtime.
            () = inner.shared.members[node].owes_more(), if inner.attached.get().is_some() => {}
            () = pause(inner, left_us), if pay_us.is_some() => {
                pay_us = None;
                inner.pay(node);
            }
        }
        if inner.is_closed() || link.is_closed() {
            return;
        }
        if inner.take_doubt(node) && !is_alive(inner, node, &link).await {
            hit(Mark::DoubtedGone);
            inner.shared.members[node].stand(Standing::Silent);
            link.close();
            return;
        }
    }
}

/// Whether a node answers a ping in time.
async fn is_alive(inner: &Arc<Inner>, node: usize, link: &Arc<dyn NodeLink>) -> bool {
    let within_us = PROOF_US.max(4 * inner.shared.members[node].rtt_us());
    tokio::select! {
        biased;
        is_there = inner.ping_node(node, Arc::clone(link)) => is_there,
        () = inner.shared.world.sleep(Duration::from_micros(within_us)) => false,
    }
}

async fn pause(inner: &Arc<Inner>, for_us: u64) {
    inner.shared.world.sleep(Duration::from_micros(for_us)).await;
}
