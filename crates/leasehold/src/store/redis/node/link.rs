//! A [`NodeLink`] over the connection of `wire.rs`; and the greeting, which shows the run of the server, and whether the
//! server may have forgotten anything.

use std::sync::Arc;
use std::time::Duration;

use humantime::format_duration;
use leasehold_spec::node::{Charter, Renewal, Request, Vote};
use leasehold_spec::{Name, SessionId};
use redis::Value;

use super::call;
use super::reply::{self, Greeting, To};
use crate::error::{Error, ErrorKind};
use crate::store::quorum::node::{Inbox, NoVote, NodeLink, NodeMessage};
use crate::store::redis::batch::in_parts;
use crate::store::redis::call::Call;
use crate::store::redis::fault::{self, Asker};
use crate::store::redis::handshake::{self, Greeted};
use crate::store::redis::keys::Keys;
use crate::store::redis::link_state::ChannelEvent;
use crate::store::redis::scripts::Family;
use crate::store::redis::url::Target;
use crate::store::redis::wire::Wire;
use crate::store::{Fault, Progress};
use crate::world::{Pending, World};

/// A connection to a node that was greeted.
pub(super) struct RedisNodeLink {
    wire: Wire,
    run: String,
    /// The marker at the greeting. With another marker the node votes anew.
    marker: Arc<str>,
    world: Arc<dyn World>,
}

/// Connects, and greets the node.
pub(super) async fn open(target: Target, charter: Charter, world: Arc<dyn World>) -> Result<RedisNodeLink, Error> {
    let (wire, run, marker) = greeted(&target, charter, &world).await?;
    Ok(RedisNodeLink { wire, run, marker: marker.into(), world })
}

/// Returns a connection, the run of the server, and the marker of the node from now on.
async fn greeted(target: &Target, charter: Charter, world: &Arc<dyn World>) -> Result<(Wire, String, String), Error> {
    let mut wire = handshake::connect(target, &**world, Keys::of_node(&target.prefix), Asker::NODE).await?;
    match greet(&mut wire, charter).await {
        Ok((run, marker)) => Ok((wire, run, marker)),
        Err(error) => {
            wire.state.close();
            Err(error)
        }
    }
}

async fn greet(wire: &mut Wire, charter: Charter) -> Result<(String, String), Error> {
    let (run, memory) = introduce(wire).await?;
    let marker = mark(wire, call::enter(&wire.keys, charter, &run, memory)?, charter, &run).await?;
    Ok((run, marker))
}

/// Returns the run of the server, and K if the server saves every change before it replies, or F if it may forget changes.
pub(super) async fn introduce(wire: &mut Wire) -> Result<(String, &'static str), Error> {
    let mut who = redis::pipe();
    who.cmd("ROLE").cmd("INFO").arg("server").arg("replication");
    who.cmd("CONFIG").arg("GET").arg("appendonly").arg("appendfsync").arg(NO_SYNC);
    let Greeted { run, info, more, .. } = handshake::greet(wire, who, Family::Node).await?;
    let memory = if saves_everything(&more) && !was_promoted(&info) { "K" } else { "F" };
    Ok((run, memory))
}

/// Sends the call of a greeting, and returns the marker from now on.
pub(super) async fn mark(wire: &Wire, call: Call, charter: Charter, run: &str) -> Result<String, Error> {
    let said = wire.clone().run(&call, None).await.map_err(Fault::error)?;
    match reply::greeting(&said, run) {
        Some(Greeting::Marked(marker)) => Ok(marker),
        Some(other) => Err(refused(wire, charter, other)),
        None => Err(wire.garbled(None).error()),
    }
}

/// Returns why a node has no marker of ours from now on.
pub(super) fn refused(wire: &Wire, charter: Charter, said: Greeting) -> Error {
    match said {
        Greeting::Unlike(other) => unlike(&wire.state.at, charter, other),
        Greeting::Changed => Error::new(
            ErrorKind::InUse,
            format!(
                "the Redis at {} was emptied or initialized by another program during the checks: run the command \
                 again",
                wire.state.at
            ),
        ),
        Greeting::Foreign(kind) => fault::foreign(&wire.keys.marker(), &kind).error(),
        Greeting::Newer(version) => fault::newer(&wire.keys.marker(), &version).error(),
        Greeting::Marked(_) => wire.garbled(None).error(),
    }
}

/// With this setting, a server that saves every change does not do so while it rewrites its files.
const NO_SYNC: &str = "no-appendfsync-on-rewrite";

/// Returns whether the server saves each change before it replies, according to CONFIG GET. If that is refused, it does
/// not: then the node is in quarantine after each restart.
fn saves_everything(more: &[Value]) -> bool {
    let Some(told) = more.first() else { return false };
    let settings: Vec<(String, String)> = match redis::from_redis_value(told.clone()) {
        Ok(settings) => settings,
        Err(_) => return false,
    };
    let is = |name: &str, value: &str| settings.iter().any(|(set, to)| set == name && to == value);
    is("appendonly", "yes") && is("appendfsync", "always") && is(NO_SYNC, "no")
}

/// Returns whether the server has been a replica in this run and was then made a primary: the last changes that its primary
/// had confirmed may be missing.
fn was_promoted(info: &str) -> bool {
    !info.lines().any(|line| line.trim_end() == "second_repl_offset:-1")
}

fn unlike(at: &str, ours: Charter, theirs: Charter) -> Error {
    let of = |Charter { nodes, max_lease_ms }: Charter| {
        format!("{nodes} nodes with leases of at most {}", format_duration(Duration::from_millis(max_lease_ms)))
    };
    Error::new(
        ErrorKind::Invalid,
        format!(
            "the Redis at {at} is a node of a quorum of {}, but this client uses one of {}: use the same nodes and \
             the same max_lease in all clients; to change them, stop all clients and initialize the quorum again",
            of(theirs),
            of(ours)
        ),
    )
}

pub(super) async fn ask(mut wire: Wire, name: Name, to: To, call: Result<Call, Error>) -> Result<Vote, NoVote> {
    let call = call.map_err(|error| NoVote::Fault(Fault::Refused(error)))?;
    let text = wire.run(&call, Some(&name)).await.map_err(NoVote::Fault)?;
    vote(&wire, &name, to, &text)
}

async fn renew(mut wire: Wire, batch: Vec<(Name, Renewal)>, seen: Arc<str>) -> Vec<Result<Vote, NoVote>> {
    let each: Vec<_> = batch.iter().map(|(name, renewal)| (name, renewal)).collect();
    let text = match call::renew(&wire.keys, &each, &seen) {
        Ok(call) => wire.run(&call, None).await,
        Err(error) => Err(Fault::Refused(error)),
    };
    if let Some(abstention) = text.as_deref().ok().and_then(reply::abstention) {
        return batch.iter().map(|_| Err(NoVote::Abstains(abstention))).collect();
    }
    match text.as_deref().map_err(Fault::share).and_then(|text| wire.lines(text, batch.len())) {
        Ok(lines) => {
            let each = batch.iter().zip(lines);
            each.map(|((name, renewal), line)| vote(&wire, name, To::from(renewal), line)).collect()
        }
        Err(fault) => batch.iter().map(|_| Err(NoVote::Fault(fault.share()))).collect(),
    }
}

fn vote(wire: &Wire, name: &Name, to: To, text: &str) -> Result<Vote, NoVote> {
    wire.read(name, reply::parse(to, text)).map_err(NoVote::Fault)?.map_err(NoVote::Abstains)
}

impl NodeLink for RedisNodeLink {
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>> {
        let call = call::request(&self.wire.keys, name, request, &self.marker);
        Box::pin(ask(self.wire.clone(), name.clone(), To::from(request), call))
    }

    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>> {
        in_parts(batch, |part| Box::pin(renew(self.wire.clone(), part, Arc::clone(&self.marker))))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.clone().names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let keys = self.wire.keys.clone();
        let handler = move |event: ChannelEvent<'_>| {
            inbox(match event {
                ChannelEvent::Text(text) => reply::bell(&keys, session, text)
                    .map_or(NodeMessage::Garbled, |(name, bell)| NodeMessage::Bell(name, bell)),
                ChannelEvent::Garbled => NodeMessage::Garbled,
                ChannelEvent::Detached => NodeMessage::Detached,
            });
        };
        self.wire.attach(session, &*self.world, Arc::new(handler))
    }

    fn quarantine_until_us(&self) -> u64 {
        reply::rests_until_us(&self.marker).unwrap_or_default()
    }

    fn was_used(&self) -> bool {
        reply::was_used(&self.marker)
    }

    fn run_id(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(self.wire.clone().ping())
    }

    fn check_driven(&self) -> Progress {
        self.wire.state.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.wire.state.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.wire.state.is_closed()
    }

    fn close(&self) {
        self.wire.state.close();
    }
}
