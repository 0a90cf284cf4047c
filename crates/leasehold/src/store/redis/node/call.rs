//! The arguments of the scripts of a node: requests as fields of fixed width.

use leasehold_spec::limits::RANGE_END;
use leasehold_spec::node::{Ask, Charter, Renewal, Request, Wait, rest_ms};
use leasehold_spec::{From, Name, Order};

use crate::error::Error;
use crate::store::redis::arguments::Fields;
use crate::store::redis::call::{Call, LENGTH_END, TIME_END, below, tail};
use crate::store::redis::keys::Keys;
use crate::store::redis::layout::field;
use crate::store::redis::scripts::Script;

/// The limit of a number of nodes.
const NODES_END: u64 = field!(CHARTER.nodes).end();

/// Returns the request for one name, from a client that has seen this marker.
pub(super) fn request(keys: &Keys, name: &Name, request: &Request, seen: &str) -> Result<Call, Error> {
    let key = keys.record(name);
    let call = match request {
        Request::Ask(asked) => ask(Call::begin(Script::NodeAsk, 2).and(key).and(keys.marker()).and(seen), asked)?,
        Request::Renew(renewal) => return renew(keys, &[(name, renewal)], seen),
        Request::GiveBack { id, upto, wait } => {
            let call = Call::begin(Script::NodeGiveBack, 1)
                .and(key)
                .and(Fields::new().id(id))
                .and(Fields::new().decimal(upto.get(), field!(TOKEN.number)));
            match wait {
                Some(wait) => call.and(place(wait)?),
                None => call,
            }
        }
        Request::Pause { id, upto, notice_ms } => Call::begin(Script::NodeGiveBack, 1)
            .and(key)
            .and(Fields::new().id(id))
            .and(Fields::new().decimal(upto.get(), field!(TOKEN.number)))
            .and("")
            .and((below(*notice_ms, LENGTH_END, "notice")? * 1000).to_string()),
        Request::CoolDown { id, upto, for_ms } => Call::begin(Script::NodeCoolDown, 1)
            .and(key)
            .and(Fields::new().id(id))
            .and(Fields::new().decimal(upto.get(), field!(TOKEN.number)))
            .and(Fields::new().decimal(below(*for_ms, LENGTH_END, "cool-down")?, field!(LENGTH.ms))),
        Request::Revoke { holder, token, grace_ms } => {
            let seen = Fields::new().public_id(holder).decimal(token.get(), field!(SEEN.token));
            let grace_ms = below(*grace_ms, LENGTH_END, "grace")?.to_string();
            Call::begin(Script::NodeRevoke, 1).and(key).and(seen).and(grace_ms)
        }
        Request::Settle => Call::begin(Script::NodeSettle, 1).and(key),
        Request::Inspect => Call::begin(Script::NodeInspect, 1).and(key),
    };
    Ok(call)
}

/// Returns one call with renewals of many names.
pub(super) fn renew(keys: &Keys, batch: &[(&Name, &Renewal)], seen: &str) -> Result<Call, Error> {
    let mut call = Call::begin(Script::NodeRenew, batch.len() + 1);
    for (name, _) in batch {
        call = call.and(keys.record(name));
    }
    call = call.and(keys.marker()).and(seen).and_not_after(batch.iter().map(|(_, renewal)| renewal.not_after_us));
    for (_, renewal) in batch {
        let from = match renewal.from {
            From::Now => "H",
            From::Grant => "G",
        };
        let lease_ms = below(renewal.lease_ms, LENGTH_END, "lease")?;
        let wanted = Fields::new()
            .text(from)
            .id(&renewal.id)
            .decimal(renewal.token.get(), field!(WANT.token))
            .decimal(lease_ms, field!(WANT.lease));
        call = match &renewal.fill {
            Some(label) => {
                let range = below(renewal.range, RANGE_END + 1, "range of tokens")?;
                call.and([wanted.as_ref(), &tail(range, label)?].concat())
            }
            None => call.and(wanted),
        };
    }
    Ok(call)
}

/// Returns the greeting, which is the first request.
pub(super) fn enter(keys: &Keys, charter: Charter, run: &str, memory: &str) -> Result<Call, Error> {
    let rest_us = (rest_ms(charter.max_lease_ms) * 1000).to_string();
    let call = Call::begin(Script::NodeEnter, 1).and(keys.marker()).and(fields_of(charter)?);
    Ok(call.and(run).and(memory).and(rest_us))
}

/// Returns the request that ends a quarantine; with a marker, only if the node still has that marker.
pub(super) fn begin(
    keys: &Keys,
    charter: Charter,
    (run, memory): (&str, &str),
    asked: Option<&str>,
) -> Result<Call, Error> {
    let call = Call::begin(Script::NodeBegin, 1).and(keys.marker()).and(fields_of(charter)?);
    Ok(call.and(run).and(memory).and(asked.unwrap_or_default()))
}

fn fields_of(charter: Charter) -> Result<Fields, Error> {
    let nodes = below(charter.nodes as u64, NODES_END, "list of nodes")?;
    let max_lease_ms = below(charter.max_lease_ms, LENGTH_END, "longest lease")?;
    Ok(Fields::new().decimal(nodes, field!(CHARTER.nodes)).decimal(max_lease_ms, field!(CHARTER.max_lease)))
}

fn ask(call: Call, ask: &Ask) -> Result<Call, Error> {
    let range = ask.range.clamp(1, RANGE_END);
    let call = call
        .and(Fields::new().id(&ask.id))
        .and(Fields::new().decimal(ask.token.get(), field!(TOKEN.number)))
        .and(Fields::new().decimal(below(ask.lease_ms, LENGTH_END, "lease")?, field!(LENGTH.ms)))
        .and(tail(range, &ask.label)?)
        .and(Fields::new().decimal(ask.not_after_us.min(TIME_END - 1), field!(TIME.us)))
        // The client sends this sum, because it is expensive for a script to format a number.
        .and(Fields::new().decimal(ask.token.get() + range - 1, field!(TOKEN.number)));
    match &ask.wait {
        Some(wait) => Ok(call.and(place(wait)?)),
        None => Ok(call),
    }
}

/// Returns the fields of a place in the queue.
fn place(wait: &Wait) -> Result<Fields, Error> {
    let order = match wait.order {
        Order::Strict => "s",
        Order::Relaxed => "r",
    };
    // A sorted set orders by doubles, which are exact below 2^53. Clocks stay below that for centuries.
    let ticket = below(wait.ticket, leasehold_spec::limits::TOKEN_END, "ticket")?;
    Ok(Fields::new().decimal(ticket, field!(WAIT.ticket)).text(order))
}
