//! What a quorum needs of one of its nodes.

use std::sync::Arc;

use leasehold_spec::node::{Abstention, Bell, Charter, Renewal, Request, Vote};
use leasehold_spec::{Inspection, Name, SessionId, Token};

use crate::error::Error;
use crate::store::{Fault, Progress};
use crate::world::Pending;

/// An independent server.
pub trait Node: Send + Sync + 'static {
    /// What errors and reports call it: no secret is in it.
    fn at(&self) -> &str;

    /// Opens a link, and greets: from then on the node knows which run it is, and rests if it may have forgotten anything.
    /// What drives the link runs on the runtime of whoever polls this future. Bounded by the caller.
    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>>;

    /// Connects, and changes nothing: the node can be asked what it knows, and have its rest ended. Bounded by the caller.
    fn prepare(&self, charter: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>>;
}

/// A connection to a node that is to begin. Dropped, it is closed.
pub trait Candidate: Send + Sync + 'static {
    /// A page of the names that have a record, as [`Link::names`](crate::store::Link::names) has it: also at a node that
    /// rests, or that has no marker.
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>>;

    /// Who holds a name, and how many wait for it, for all that this node knows, and the largest token for which it has
    /// voted. Whatever has ended is not shown.
    fn inspect(&self, name: &Name) -> Pending<Result<(Inspection, Token), Fault>>;

    /// The node's clock.
    fn time(&self) -> Pending<Result<u64, Fault>>;

    /// Has the node vote at once, whatever it may have forgotten: no lease of this quorum is held by anybody.
    fn begin(&self, begin: Begin) -> Pending<Result<(), Error>>;
}

/// On whose word a quorum begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// All nodes were asked first. A node whose marker has changed since then refuses.
    Asked,
    /// That of an operator.
    Forced,
}

/// One ordered path to a node. Requests are carried out in the order in which their futures were first polled; one that was
/// polled once is sent, also if it is dropped then.
pub trait NodeLink: Send + Sync + 'static {
    /// One request about one name.
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>>;

    /// Renewals of many names, an answer for each, in order. One name's fault is its own.
    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>>;

    /// A page of the names that have a record, as [`Link::names`](crate::store::Link::names) has it.
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>>;

    /// Attaches the inbox of a session and proves it: a probe was seen to arrive.
    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>>;

    /// Until when the node rests, by its own clock: as it said when it was greeted. Another marker is another link.
    fn quarantine_until_us(&self) -> u64;

    /// Whether the node was in use before: its marker was written over that of another run.
    fn was_used(&self) -> bool;

    /// Which run of the server this is. No two nodes of a quorum have the same.
    fn run_id(&self) -> &str;

    /// One exchange, for the node's clock and for a sign of life.
    fn ping(&self) -> Pending<Result<u64, Fault>>;

    /// As [`Link::check_driven`](crate::store::Link::check_driven) has it.
    fn check_driven(&self) -> Progress;

    /// As [`Link::has_unsent`](crate::store::Link::has_unsent) has it.
    fn has_unsent(&self) -> bool;

    /// Whether the link is known to be gone.
    fn is_closed(&self) -> bool;

    /// Gives the link up.
    fn close(&self);
}

/// Why there is no vote.
#[derive(Debug)]
pub enum NoVote {
    /// The node answers, and has none.
    Abstains(Abstention),
    /// There is no answer, or none to this.
    Fault(Fault),
}

/// Where messages go. Called in the order of their arrival; must not block.
pub type Inbox = Arc<dyn Fn(Rung) + Send + Sync>;

/// What arrives in an inbox.
#[derive(Clone, Debug)]
pub enum Rung {
    /// A message about this name.
    Bell(Name, Bell),
    /// Something that is no message of ours.
    Garbled,
    /// The inbox is detached: the link is gone.
    Detached,
}
