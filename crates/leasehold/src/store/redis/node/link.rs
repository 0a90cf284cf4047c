//! A [`NodeLink`] over a connection that `wire.rs` has; and the greeting, which says which run of the server this is, and
//! whether it may have forgotten anything.

use std::sync::Arc;
use std::time::Duration;

use humantime::format_duration;
use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::node::{Charter, Renewal, Request, Vote};
use leasehold_spec::{Name, SessionId};
use redis::Value;

use super::call;
use super::reply::{self, Answer, Greeting, To};
use super::scripts::NodeScripts;
use crate::error::{Error, ErrorKind};
use crate::store::quorum::node::{Inbox, NoVote, NodeLink, NodeMessage};
use crate::store::redis::call::Call;
use crate::store::redis::fault::{self, Asker};
use crate::store::redis::handshake::{self, Greeted};
use crate::store::redis::keys::Keys;
use crate::store::redis::link::all;
use crate::store::redis::url::Target;
use crate::store::redis::wire::{Heard, Wire};
use crate::store::{Fault, Progress};
use crate::world::{Pending, World};

/// A node that was greeted.
pub(super) struct RedisNodeLink {
    wire: Wire,
    run: String,
    /// The marker as it was then. Any other has another vote behind it.
    marker: Arc<str>,
    world: Arc<dyn World>,
}

/// Connects, and greets.
pub(super) async fn open(target: Target, charter: Charter, world: Arc<dyn World>) -> Result<RedisNodeLink, Error> {
    let (wire, run, marker) = greeted(&target, charter, &world).await?;
    Ok(RedisNodeLink { wire, run, marker: marker.into(), world })
}

/// A connection, the run of the server, and the node's marker from now on.
async fn greeted(target: &Target, charter: Charter, world: &Arc<dyn World>) -> Result<(Wire, String, String), Error> {
    let mut wire = handshake::connect(target, &**world, Keys::of_node(&target.prefix), Asker::NODE).await?;
    match greet(&mut wire, charter).await {
        Ok((run, marker)) => Ok((wire, run, marker)),
        Err(error) => {
            wire.line.close();
            Err(error)
        }
    }
}

async fn greet(wire: &mut Wire, charter: Charter) -> Result<(String, String), Error> {
    let (run, memory) = introduce(wire).await?;
    let marker = mark(wire, call::enter(&wire.keys, charter, &run, memory)?, charter, &run).await?;
    Ok((run, marker))
}

/// The run of the server, and whether it keeps what it was told (K) or forgets (F).
pub(super) async fn introduce(wire: &mut Wire) -> Result<(String, &'static str), Error> {
    let scripts = NodeScripts::get();
    let each = scripts.each();
    let mut who = redis::pipe();
    who.cmd("ROLE").cmd("INFO").arg("server").arg("replication");
    who.cmd("CONFIG").arg("GET").arg("appendonly").arg("appendfsync").arg(NO_SYNC);
    let Greeted { run, info, more } = handshake::greet(wire, who, &scripts.known(&each)).await?;
    let memory = if saves_everything(&more) && !was_promoted(&info) { "K" } else { "F" };
    Ok((run, memory))
}

/// The marker from now on.
pub(super) async fn mark(wire: &Wire, call: Call, charter: Charter, run: &str) -> Result<String, Error> {
    let said = wire.clone().run(&call, None).await.map_err(Fault::error)?;
    match reply::greeting(&said, run) {
        Some(Greeting::Marked(marker)) => Ok(marker),
        Some(other) => Err(refused(wire, charter, other)),
        None => Err(wire.garbled(None).error()),
    }
}

/// Why a node has no marker of ours from now on.
pub(super) fn refused(wire: &Wire, charter: Charter, said: Greeting) -> Error {
    match said {
        Greeting::Unlike(other) => unlike(&wire.line.at, charter, other),
        Greeting::Changed => Error::new(
            ErrorKind::InUse,
            format!(
                "the Redis at {} was emptied or initialized by another program during the checks: run the command \
                 again",
                wire.line.at
            ),
        ),
        Greeting::Foreign(kind) => fault::foreign(&wire.keys.marker(), &kind).error(),
        Greeting::Newer(version) => fault::newer(&wire.keys.marker(), &version).error(),
        Greeting::Marked(_) => wire.garbled(None).error(),
    }
}

/// Set, a server that saves every change does not while it writes its files anew.
const NO_SYNC: &str = "no-appendfsync-on-rewrite";

/// Whether the server saves each change before it answers, by what CONFIG GET tells. Where that is refused, it is said not
/// to: then it rests after each restart.
fn saves_everything(more: &[Value]) -> bool {
    let Some(told) = more.first() else { return false };
    let settings: Vec<(String, String)> = match redis::from_redis_value(told.clone()) {
        Ok(settings) => settings,
        Err(_) => return false,
    };
    let is = |name: &str, value: &str| settings.iter().any(|(set, to)| set == name && to == value);
    is("appendonly", "yes") && is("appendfsync", "always") && is(NO_SYNC, "no")
}

/// Whether the server has been a replica in this run, and has made itself a primary: of what its primary had answered, the
/// last may never have come.
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
    answer(&wire, &name, to, &text)
}

async fn renew(mut wire: Wire, batch: Vec<(Name, Renewal)>, seen: Arc<str>) -> Vec<Result<Vote, NoVote>> {
    let each: Vec<_> = batch.iter().map(|(name, renewal)| (name, renewal)).collect();
    let said = match call::renew(&wire.keys, &each, &seen) {
        Ok(call) => wire.run(&call, None).await,
        Err(error) => Err(Fault::Refused(error)),
    };
    let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let fault = match said {
        Ok(text) => match reply::abstention(&text) {
            Some(abstention) => return batch.iter().map(|_| Err(NoVote::Abstains(abstention))).collect(),
            None if lines(&text) == batch.len() => {
                let each = batch.iter().zip(text.split('\n'));
                return each.map(|((name, renewal), text)| answer(&wire, name, To::from(renewal), text)).collect();
            }
            None => wire.garbled(None),
        },
        Err(fault) => fault,
    };
    batch.iter().map(|_| Err(NoVote::Fault(fault.share()))).collect()
}

fn answer(wire: &Wire, name: &Name, to: To, text: &str) -> Result<Vote, NoVote> {
    let key = || wire.keys.record(name);
    Err(NoVote::Fault(match reply::parse(to, text) {
        Some(Answer::Vote(vote)) => return Ok(vote),
        Some(Answer::Abstains(abstention)) => return Err(NoVote::Abstains(abstention)),
        Some(Answer::Foreign(kind)) => fault::foreign(&key(), &kind),
        Some(Answer::Newer(version)) => fault::newer(&key(), &version),
        Some(Answer::Error(text)) => fault::of_one(&text, &wire.line.at, wire.line.asker, &key()),
        Some(Answer::Damaged) => fault::damaged(&wire.line.at, &key()),
        None => wire.garbled(Some(name)),
    }))
}

impl NodeLink for RedisNodeLink {
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>> {
        let call = call::request(&self.wire.keys, name, request, &self.marker);
        Box::pin(ask(self.wire.clone(), name.clone(), To::from(request), call))
    }

    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>> {
        let mut parts: Vec<Pending<Vec<_>>> = Vec::new();
        for part in batch.chunks(RENEW_BATCH) {
            parts.push(Box::pin(renew(self.wire.clone(), part.to_vec(), Arc::clone(&self.marker))));
        }
        Box::pin(all(parts))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.clone().names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let mut random = [0; 16];
        self.world.random(&mut random);
        let probe = format!("lq1 probe {:032x}", u128::from_le_bytes(random));
        let keys = self.wire.keys.clone();
        let ear = move |heard: Heard<'_>| {
            inbox(match heard {
                Heard::Text(text) => reply::bell(&keys, session, text)
                    .map_or(NodeMessage::Garbled, |(name, bell)| NodeMessage::Bell(name, bell)),
                Heard::Garbled => NodeMessage::Garbled,
                Heard::Detached => NodeMessage::Detached,
            });
        };
        Box::pin(self.wire.clone().attach(session, probe, Arc::new(ear)))
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
        self.wire.line.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.wire.line.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.wire.line.is_closed()
    }

    fn close(&self) {
        self.wire.line.close();
    }
}
