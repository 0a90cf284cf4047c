//! A node whose quarantine an operator ends: it is connected, then asked for its holders, and `begin` comes last.
//! Nothing is written before that.

use std::sync::Arc;

use leasehold_spec::node::{Charter, Request, Said, Vote};
use leasehold_spec::{Inspection, Name, Token};

use super::call;
use super::link::{ask, introduce, mark, refused};
use super::reply::{self, To};
use crate::error::Error;
use crate::store::Fault;
use crate::store::quorum::node::{Begin, Candidate, NoVote};
use crate::store::redis::fault::{self, Asker};
use crate::store::redis::handshake;
use crate::store::redis::keys::Keys;
use crate::store::redis::url::Target;
use crate::store::redis::wire::Wire;
use crate::world::{Pending, World};

/// See the head of this file.
pub(super) struct RedisCandidate {
    wire: Opened,
    charter: Charter,
    /// The run of the server, and K if the server saves every change before it replies, or F.
    run: String,
    memory: &'static str,
    /// Its marker of this run, if it has one. The records of the node are lost only together with the marker.
    marker: Option<String>,
}

/// A connection that is closed when it is dropped.
struct Opened(Wire);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.state.close();
    }
}

/// Connects, and reads the marker. Writes nothing.
pub(super) async fn prepare(target: Target, charter: Charter, world: Arc<dyn World>) -> Result<RedisCandidate, Error> {
    let mut wire = Opened(handshake::connect(&target, &*world, Keys::of_node(&target.prefix), Asker::NODE).await?);
    let (run, memory) = introduce(&mut wire.0).await?;
    let found = wire.0.ask(redis::cmd("GET").arg(wire.0.keys.marker())).await;
    let found = found.map_err(|error| match error.code() {
        // Only a script could name the type, and no script runs before all nodes were asked.
        Some("WRONGTYPE") => fault::foreign(&wire.0.keys.marker(), "value of another type"),
        _ => wire.0.fault(&error, None),
    });
    let found: Option<String> =
        redis::from_redis_value(found.map_err(Fault::error)?).map_err(|_| wire.0.garbled(None).error())?;
    if let Some(other) = found.as_deref().and_then(reply::no_marker) {
        return Err(refused(&wire.0, charter, other));
    }
    let marker = found.filter(|marker| reply::is_of(marker, &run));
    Ok(RedisCandidate { wire, charter, run, memory, marker })
}

impl Candidate for RedisCandidate {
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.0.clone().names(from))
    }

    fn inspect(&self, name: &Name) -> Pending<Result<(Inspection, Token), Fault>> {
        let wire = self.wire.0.clone();
        // This requests no vote, so the node compares no marker.
        let call = call::request(&wire.keys, name, &Request::Inspect, "");
        let asking = ask(wire.clone(), name.clone(), To::from(&Request::Inspect), call);
        Box::pin(async move {
            match asking.await {
                Ok(Vote { said: Said::Inspected(seen), highest, .. }) => Ok((seen, highest)),
                Ok(_) | Err(NoVote::Abstains(_)) => Err(wire.garbled(None)),
                Err(NoVote::Fault(fault)) => Err(fault),
            }
        })
    }

    fn time(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(self.wire.0.clone().ping())
    }

    fn begin(&self, begin: Begin) -> Pending<Result<(), Error>> {
        let asked = self.marker.as_deref().filter(|_| begin == Begin::Asked);
        let call = call::begin(&self.wire.0.keys, self.charter, (&self.run, self.memory), asked);
        let (wire, charter, run) = (self.wire.0.clone(), self.charter, self.run.clone());
        Box::pin(async move { mark(&wire, call?, charter, &run).await.map(drop) })
    }
}
