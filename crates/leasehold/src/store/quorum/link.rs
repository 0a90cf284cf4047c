//! A link to all nodes at once: it sends each request of the session to the nodes, and counts their answers.
//!
//! The link stays open as long as its session wants, however many nodes are connected. If too few nodes answer a request,
//! the answer says so ([`Fault::Undecided`]). Lost nodes are reconnected meanwhile (`connector.rs`). The times of the
//! answers are those of our own clock: each node has a clock of its own, and its times are converted when they arrive.

use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::{Acquire, Answer, GrantId, Kind, Name, Op, Outcome, Renew, SessionId, Token};
use tokio::task::unconstrained;

use super::fan::Fan;
use super::links::Links;
use super::shared::Shared;
use super::tally::Tally;
use super::timers::Due;
use super::{acquire, collect, connector, inspect, queue, release, renew};
use crate::error::Error;
use crate::inspection::NodeView;
use crate::store::{Fault, Guess, Inbox, Link, Progress, lacks, refuse_detach};
use crate::world::Pending;

/// How long a connect or an attach waits for nodes beyond a majority. A lock that is acquired at once is then acquired at
/// all of them. An inspection at once does not fail because some nodes of the majority are in quarantine.
const GRACE: Duration = Duration::from_millis(50);

/// A link to all nodes.
pub(super) struct QuorumLink(pub(super) Arc<Links>);

impl Link for QuorumLink {
    fn apply(&self, name: &Name, op: &Op, _guess: Guess) -> Pending<Result<Answer, Fault>> {
        // Outside of the budget of the runtime: the first poll sends the requests to all nodes.
        Box::pin(unconstrained(apply(Arc::clone(&self.0), name.clone(), op.clone())))
    }

    fn inspect(&self, name: &Name, _guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        Box::pin(unconstrained(inspect::inspect(Arc::clone(&self.0), name.clone())))
    }

    fn renew(&self, batch: &[(Name, Renew)], _kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        Box::pin(unconstrained(renew::renew(Arc::clone(&self.0), batch.to_vec())))
    }

    fn acquire_all(&self, _: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(inspect::names(Arc::clone(&self.0), from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        Box::pin(attach(Arc::clone(&self.0), session, inbox))
    }

    fn detach(&self, _: SessionId) -> Pending<Result<(), Fault>> {
        refuse_detach()
    }

    fn check_read(&self) -> Progress {
        self.check_driven()
    }

    /// The nodes have run IDs of their own. A node that has forgotten anything abstains.
    fn run_id(&self) -> &str {
        "quorum"
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(unconstrained(ping(Arc::clone(&self.0))))
    }

    fn idle(&self) -> Pending<()> {
        release::end_pauses(&self.0);
        Box::pin(Arc::clone(&self.0.shared).idle())
    }

    fn check_driven(&self) -> Progress {
        self.0.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Drop for QuorumLink {
    fn drop(&mut self) {
        self.close();
    }
}

async fn apply(links: Arc<Links>, name: Name, op: Op) -> Result<Answer, Fault> {
    match op {
        Op::Acquire(acquire) => acquire::acquire(links, name, acquire).await,
        Op::Renew(renew) => {
            let mut answers = renew::renew(links, vec![(name, renew)]).await;
            answers.pop().unwrap_or_else(|| Err(Fault::Undecided(Error::closed())))
        }
        Op::Release { id, token, used } => release::release(links, name, id, (token, used)).await,
        Op::Leave { id, .. } => release::leave(links, name, id, 0).await,
        Op::CoolDown { id, for_ms, .. } => release::leave(links, name, id, for_ms).await,
        Op::Reserve { id, token, .. } => Ok(reserve(&links, &id, token)),
        Op::Revoke { holder, token, grace_ms } => inspect::revoke(links, name, holder, token, grace_ms).await,
        Op::Settle => inspect::settle(links, name).await,
        Op::Inspect => Ok(inspect::inspect(links, name).await?.0),
        // Not on a quorum: see `StoreProfile::kinds`.
        other => Err(Fault::Refused(lacks(&other))),
    }
}

/// Returns the range of the grant, and never a larger one: to reserve more tokens takes a round, and so does a grant, which
/// comes with as many. No node was asked, so the answer has no time: the session keeps what it knows of waiters, and
/// measures no round trip.
fn reserve(links: &Links, id: &GrantId, token: Token) -> Answer {
    let held = links.shared.attempts().held(id).filter(|held| held.token == token).map(|held| held.range);
    let outcome = Outcome::Reserved { range: held.unwrap_or(1) };
    Answer { now_us: 0, ..collect::answer(links.now_us(), &Tally::new(links.shared.nodes()), outcome) }
}

/// Pings all nodes, and returns as soon as one has answered.
async fn ping(links: Arc<Links>) -> Result<u64, Fault> {
    let begun_us = links.now_us();
    let pings = (0..links.shared.nodes()).filter_map(|node| Some((node, collect::ping(&links, node, links.to(node)?))));
    let mut fan = Fan::of(pings.collect::<Vec<_>>());
    while let Some((_, has_answered)) = fan.next().await {
        if has_answered {
            collect::finish(&links, fan);
            return Ok(begun_us);
        }
    }
    Err(Fault::Gone(links.shared.no_majority()))
}

async fn attach(links: Arc<Links>, session: SessionId, inbox: Inbox) -> Result<(), Fault> {
    links.make_home(session, inbox);
    // From now on the connectors of this link also send the returns of other links.
    (0..links.shared.nodes()).for_each(|node| links.poke(node));
    keep_time(&links);
    let attaching = (0..links.shared.nodes()).map(|node| {
        let links = Arc::clone(&links);
        let attach: Pending<bool> =
            Box::pin(async move { connector::attach(&links, node).await.is_ok() && links.to(node).is_some() });
        (node, attach)
    });
    let mut fan = Fan::of(attaching.collect::<Vec<_>>());
    let has_majority = await_majority(&links.shared, &mut fan, |_, is_attached| Ok(is_attached)).await;
    collect::finish(&links, fan);
    if has_majority.is_ok_and(|has_majority| has_majority) {
        return Ok(());
    }
    Err(Fault::Gone(links.shared.no_majority()))
}

/// Runs the timers on the session's thread, which is the one that attaches an inbox.
fn keep_time(links: &Arc<Links>) {
    let (timers, world) = (Arc::clone(&links.shared.timers), Arc::clone(&links.shared.world));
    let (closing, waiting) = (Arc::downgrade(links), Arc::downgrade(links));
    let is_over = move || closing.upgrade().is_none_or(|links| links.is_closed());
    let handle = move |due| match (waiting.upgrade(), due) {
        (Some(links), Due::AskAgain(id, alarm)) => queue::alarm(&links, &id, alarm),
        (Some(links), Due::PauseOver(name, id)) => release::end_pause(&links, &name, id),
        (Some(links), Due::AskOthers { name, id, lease_ms }) => acquire::ask_others(&links, &name, id, lease_ms),
        (Some(links), Due::LateFills { node, renewals }) => renew::return_fills_if_over(&links, node, &renewals),
        (None, _) => {}
    };
    drop(links.shared.world.spawn(Box::pin(timers.keep(world, is_over, handle))));
}

/// Waits until `accept` has accepted a majority, and then up to [`GRACE`] for the others. Returns `false` without one.
pub(super) async fn await_majority<T>(
    shared: &Shared,
    fan: &mut Fan<T>,
    mut accept: impl FnMut(usize, T) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let (mut accepted, mut grace) = (0, None);
    loop {
        if accepted >= shared.majority() && grace.is_none() {
            grace = Some(shared.world.sleep(GRACE));
        }
        let grace_over = async {
            match &mut grace {
                Some(grace) => grace.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = fan.next() => match answer {
                Some((node, answer)) => accepted += usize::from(accept(node, answer)?),
                None => return Ok(accepted >= shared.majority()),
            },
            () = grace_over => return Ok(true),
        }
    }
}
