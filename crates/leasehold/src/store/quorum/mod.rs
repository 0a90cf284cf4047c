//! A quorum of independent nodes: Redlock, finished.
//!
//! A lock on one Redis is lost with the server, or with a failover that forgets the lock. Here a majority of several
//! servers decides. The servers do not know each other. Any minority of them may die, and nothing is lost.
//!
//! [`leasehold_spec::node`] specifies a node, and explains why the token comes with the request. This folder is the
//! client's side: it asks all nodes at once, and counts. The files, from top to bottom; imports go down only:
//!
//! | | |
//! |---|---|
//! | `begin.rs` | `quorum begin`: asks all nodes for holders and waiters, then writes their markers |
//! | `link.rs` | what a session takes for one link: each request goes to its operation |
//! | `connector.rs` | connects a node, reconnects it, and receives its messages |
//! | `queue.rs` | calls and alarms of a waiter, which begin its next rounds |
//! | `acquire.rs`, `renew.rs`, `release.rs`, `inspect.rs` | the operations: one in each file |
//! | `schedule.rs` | when a waiter that has lost a round asks again |
//! | `give_back.rs` | the votes of lost rounds and of ended attempts go back |
//! | `collect.rs` | one question to the nodes, and their answers until enough have arrived |
//! | `links.rs` | the connections of one link |
//! | `shared.rs` | the state that the links of a client share, and why there is no majority |
//! | `attempts.rs` | the client's attempts that hold or wait |
//! | `runs.rs` | how often a client may get a lock again while others wait: the relaxed order |
//! | `releases.rs` | releases in flight and cool-downs: when and how other code gives the same votes back |
//! | `member.rs` | a node as the client knows it, and the votes that it still has to give back |
//! | `timers.rs` | deadlines; work that no caller waits for |
//! | `tally.rs`, `fan.rs` | counts votes: pure; one request to many nodes |
//! | `node.rs` | the traits of a node: only `store/redis/node/` knows its server |
//! | `url.rs` | reads a `quorum:` URL |
//!
//! Of a session these files know only the ID and the inbox.

mod acquire;
mod attempts;
mod begin;
mod collect;
mod connector;
mod fan;
mod give_back;
mod inspect;
mod link;
mod links;
mod member;
pub mod node;
mod queue;
mod release;
mod releases;
mod renew;
mod runs;
mod schedule;
mod shared;
mod tally;
mod timers;
#[cfg(feature = "redis")]
pub(crate) mod url;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::task::unconstrained;

pub use self::acquire::attempts;
use self::fan::Fan;
use self::link::{QuorumLink, await_majority};
use self::links::{Home, Links};
use self::member::NodeStatus;
use self::node::{Begin, Node};
use self::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::store::{Link, Store, StoreProfile};
use crate::world::{Pending, World};

/// A quorum, as one client knows it.
pub struct QuorumStore {
    shared: Arc<Shared>,
    home: Arc<Home>,
}

impl QuorumStore {
    /// Returns a quorum of these nodes, at most 16. Does no I/O.
    #[must_use]
    pub fn new(nodes: Vec<Arc<dyn Node>>, max_lease_ms: u64, world: Arc<dyn World>) -> Self {
        Self { shared: Arc::new(Shared::new(nodes, max_lease_ms, world)), home: Arc::default() }
    }

    /// Initializes the quorum, so that all nodes vote at once. The caller promises that no lease of it is held.
    ///
    /// Writes nothing before all nodes are connected. Otherwise the first nodes would grant leases, and a second `begin`
    /// with a corrected URL would make them forget these leases.
    pub async fn begin(&self, begin: Begin) -> Result<(), Error> {
        begin::begin(&self.shared, begin).await
    }
}

impl Store for QuorumStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        Box::pin(unconstrained(open(Arc::clone(&self.shared), Arc::clone(&self.home))))
    }

    fn profile(&self) -> StoreProfile {
        self.shared.profile()
    }

    fn silence(&self) -> Option<Error> {
        Some(self.shared.no_majority())
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}

/// Connects all nodes at once. The link opens a moment after a majority, or with all nodes. The others follow later.
async fn open(shared: Arc<Shared>, home: Arc<Home>) -> Result<Arc<dyn Link>, Error> {
    let links = Links::new(Arc::clone(&shared), home);
    // If this future is dropped, the link closes the connections.
    let link = Arc::new(QuorumLink(Arc::clone(&links)));
    let opening =
        |node| -> (usize, Pending<Result<(), Error>>) { (node, Box::pin(connector::open(Arc::clone(&links), node))) };
    let mut fan = Fan::of((0..shared.nodes()).map(opening).collect::<Vec<_>>());
    let (mut connected, mut failed) = (Vec::new(), Vec::new());
    let accept = |node: usize, opened: Result<(), Error>| match opened {
        Ok(()) => {
            connected.push(node);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::Invalid => Err(error),
        Err(error) => {
            shared.members[node].set_status(NodeStatus::Unreachable(error.to_string()));
            failed.push((node, error));
            Ok(false)
        }
    };
    if !await_majority(&shared, &mut fan, accept).await? {
        return Err(shared.cannot_open(&failed));
    }
    let connected = connected.into_iter().map(|node| (node, Some(Box::pin(async { Ok(()) }) as Pending<_>)));
    let failed = failed.into_iter().map(|(node, _)| (node, None));
    let in_flight = fan.rest().into_iter().map(|(node, opening)| (node, Some(opening)));
    for (node, opening) in connected.chain(failed).chain(in_flight) {
        let keeping = Box::pin(unconstrained(connector::keep(Arc::clone(&links), node, opening)));
        shared.world.spawn(keeping).map_err(|_| Error::invalid("there is no async runtime: connect inside one"))?;
    }
    Ok(link)
}
