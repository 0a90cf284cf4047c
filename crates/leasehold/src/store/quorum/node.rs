//! The contract between a quorum and its nodes: [`Node`], [`NodeLink`] and [`Candidate`].

use std::sync::Arc;

use leasehold_spec::node::{Abstention, Bell, Charter, Renewal, Request, Vote};
use leasehold_spec::{Inspection, Name, SessionId, Token};

use crate::error::Error;
use crate::store::{Fault, Progress};
use crate::world::Pending;

/// An independent server.
pub trait Node: Send + Sync + 'static {
    /// Returns the address, for errors and reports. It contains no secret.
    fn at(&self) -> &str;

    /// Opens a link, and greets the node: its marker then has its run ID, and a node that may have forgotten anything is in
    /// quarantine. The runtime that polls this future drives the link. The caller bounds the time.
    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>>;

    /// Connects, and writes nothing. The candidate can inspect and initialize the node. The caller bounds the time.
    fn prepare(&self, charter: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>>;
}

/// A connection to a node that is to be initialized. Dropping it closes it.
pub trait Candidate: Send + Sync + 'static {
    /// Returns names as [`Link::names`](crate::store::Link::names) does. Works in quarantine and without a marker.
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>>;

    /// Returns the holder and the number of waiters of a name, as far as this node knows, and the largest token for which
    /// the node has voted. Leases that have ended are not shown.
    fn inspect(&self, name: &Name) -> Pending<Result<(Inspection, Token), Fault>>;

    /// Returns the node's clock.
    fn time(&self) -> Pending<Result<u64, Fault>>;

    /// Initializes the node, so that it votes at once. The caller promises that nobody holds a lease of this quorum.
    fn begin(&self, begin: Begin) -> Pending<Result<(), Error>>;
}

/// The reason why a quorum may be initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// All nodes were inspected first. A node whose marker has changed since then refuses.
    Asked,
    /// An operator promises that no lock is held.
    Forced,
}

/// One ordered path to a node. The node carries out requests in the order in which their futures were first polled. The
/// first poll sends a request, even if its future is dropped after that.
pub trait NodeLink: Send + Sync + 'static {
    /// Sends one request about one name, and returns the vote.
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>>;

    /// Renews many votes, and returns one answer for each, in order. A fault of one name does not affect the others.
    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>>;

    /// Returns a page of the names that have a record, as [`Link::names`](crate::store::Link::names) does.
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>>;

    /// Attaches the inbox of a session, and proves it: the future ends when a probe has arrived.
    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>>;

    /// Returns the end of the quarantine on the node's clock, as of the greeting. Another marker needs another link.
    fn quarantine_until_us(&self) -> u64;

    /// Returns whether the node was in use before: its marker has replaced the marker of another run.
    fn was_used(&self) -> bool;

    /// Returns the run ID of the server. No two nodes of a quorum have the same.
    fn run_id(&self) -> &str;

    /// Exchanges one message with the node, as a sign of life, and returns the node's clock.
    fn ping(&self) -> Pending<Result<u64, Fault>>;

    /// See [`Link::check_driven`](crate::store::Link::check_driven).
    fn check_driven(&self) -> Progress;

    /// See [`Link::has_unsent`](crate::store::Link::has_unsent).
    fn has_unsent(&self) -> bool;

    /// Returns whether the link is known to be gone.
    fn is_closed(&self) -> bool;

    /// Closes the link.
    fn close(&self);
}

/// The reason why there is no vote.
#[derive(Debug)]
pub enum NoVote {
    /// The node answers, and has no vote.
    Abstains(Abstention),
    /// There is no answer, or the answer is an error.
    Fault(Fault),
}

/// Receives the messages of a node, in the order of their arrival. Must not block.
pub type Inbox = Arc<dyn Fn(NodeMessage) + Send + Sync>;

/// A message that arrives in an inbox.
#[derive(Clone, Debug)]
pub enum NodeMessage {
    /// A message about this name.
    Bell(Name, Bell),
    /// An unreadable message.
    Garbled,
    /// The link is gone, and no more messages arrive.
    Detached,
}
