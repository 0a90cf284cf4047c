//! Reads the record of a pool, independently of the scripts: it checks the form of every field, the sums and bounds that
//! the record has of its grants, and both ends of every link of the queue. Nothing may be left over.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_spec::{Entry, Grant, GrantId, Kind, Latch, Mode, Order, Resource};

use crate::decode::{Fields, grant_state};

type Hash<'a> = BTreeMap<&'a str, &'a str>;

pub(crate) fn pool(mut hash: Hash<'_>) -> Result<Resource, String> {
    let mut fields = Fields(hash.remove("r").ok_or("no field r")?);
    let kind = match fields.take(4)? {
        "lh1W" => Kind::ReadWrite,
        "lh1S" => Kind::Semaphore,
        "lh1V" => Kind::Condition,
        "lh1L" => Kind::Latch,
        "lh1B" => Kind::Barrier,
        other => return Err(format!("no pool: {other:?}")),
    };
    let limit = number(&mut fields, 6)?;
    let (units, count) = (number(&mut fields, 6)?, fields.number(6)?);
    let (last, soonest, newest, keep) = (fields.token()?, fields.number(16)?, fields.number(16)?, fields.number(16)?);
    let (upgradeable, marked) = (fields.take(1)?, fields.take(1)?);
    let (released, _least) = (fields.id()?, fields.number(16)?);
    // A scan of so few grants is over in one step.
    fields.end()?;
    let mut resource = Resource { kind, limit, last, released, keep_until_us: keep, ..Resource::default() };
    resource.grants = grants(&mut hash)?.into_iter().collect();
    let grants = &resource.grants;
    // The units of a grant of a barrier are the place of an arrival.
    let sum = if kind == Kind::Barrier { grants.len() as u32 } else { grants.units() };
    if (sum, grants.len() as u64) != (units, count) {
        return Err(format!("{sum} units of {} grants; r says {units}, {count}", grants.len()));
    }
    let has = |is: fn(&Grant) -> bool| grants.iter().any(is);
    if has(|grant| grant.mode == Mode::Upgradeable) != (upgradeable == "U") {
        return Err(format!("the flag for an upgradeable grant is {upgradeable}"));
    }
    if has(|grant| !matches!(grant.state, leasehold_spec::GrantState::Held | leasehold_spec::GrantState::Pushed))
        && marked != "M"
    {
        return Err(format!("the flag for a marked grant is {marked}"));
    }
    if let Some(early) = grants.iter().find(|grant| grant.end_us() < soonest || grant.since_us > newest) {
        return Err(format!("{early:?} is beyond the bounds {soonest} and {newest}"));
    }
    resource.latch = hash.remove("l").map(|text| latch(&mut hash, text)).transpose()?.unwrap_or_default();
    resource.upgrade = hash.remove("u").map(upgrade).transpose()?;
    match hash.remove("q") {
        Some(ends) => queue(&mut resource, &mut hash, ends)?,
        None if resource.upgrade.is_some() => return Err("an upgrade waits without q".into()),
        None => {}
    }
    if hash.is_empty() { Ok(resource) } else { Err(format!("left over: {:?}", hash.keys())) }
}

/// Reads the state of a latch. Without it, a field of a count-down is left over.
fn latch(hash: &mut Hash<'_>, text: &str) -> Result<Latch, String> {
    let mut fields = Fields(text);
    let (born, keep_ms, count) = (fields.token()?, fields.number(8)?, fields.number(6)?);
    fields.end()?;
    let names: Vec<&str> = hash.keys().copied().filter(|field| field.starts_with('c')).collect();
    let read = |field: &str| match hash.remove(field) {
        Some("") => field[1..].parse().map_err(|_| format!("a count-down of {field:?}")),
        other => Err(format!("{field} is {other:?}")),
    };
    let counted: BTreeSet<GrantId> = names.into_iter().map(read).collect::<Result<_, String>>()?;
    if counted.len() as u64 == count {
        Ok(Latch { born, keep_ms, counted, unread: 0 })
    } else {
        Err(format!("{} count-downs; l says {count}", counted.len()))
    }
}

fn grants(hash: &mut Hash<'_>) -> Result<Vec<Grant>, String> {
    let names: Vec<&str> = hash.keys().copied().filter(|field| field.starts_with('g')).collect();
    let read = |field: &str| {
        let mut fields = Fields(hash.remove(field).ok_or("no such field")?);
        let id: GrantId = format!("{}{}", &field[1..], fields.take(16)?).parse().map_err(|_| "no grant id")?;
        let state = grant_state(fields.take(1)?)?;
        let (mode, units) = share(&mut fields)?;
        let (token, since_us, length_ms) = (fields.token()?, fields.number(16)?, fields.number(8)?);
        Ok(Grant { id, token, range: 1, since_us, length_ms, state, units, mode, label: fields.0.to_owned() })
    };
    names.into_iter().map(read).collect()
}

fn queue(resource: &mut Resource, hash: &mut Hash<'_>, ends: &str) -> Result<(), String> {
    let mut fields = Fields(ends);
    let head = fields.take(64)?;
    let (count, strict) = (fields.number(5)?, fields.number(5)?);
    let (tail_ticket, tail) = (fields.number(16)?, fields.take(64)?);
    while !fields.0.is_empty() {
        resource.lapses.push(fields.lapse()?);
    }
    let (mut at, mut before) = (Some(head), None);
    while let Some(id) = at.filter(|_| count > 0) {
        let mut fields = Fields(hash.remove(&*format!("e{id}")).ok_or("a link to no entry")?);
        let (entry, link) = entry(&mut fields, id)?;
        if before.is_some_and(|before| before != link) {
            return Err(format!("{id} links back to {link}, and not to {before:?}"));
        }
        resource.queue.push_back(entry);
        before = Some(id);
        at = hash.remove(&*format!("n{id}"));
    }
    let queue = &resource.queue;
    let stricts = queue.iter().filter(|entry| entry.order == Order::Strict).count() as u64;
    if (queue.len() as u64, stricts) != (count, strict) {
        return Err(format!("{} entries, {stricts} strict; q says {count}, {strict}", queue.len()));
    }
    if queue.is_empty() && resource.upgrade.is_none() {
        return Err("q without a waiter".into());
    }
    if queue.back().is_some_and(|entry| entry.ticket != tail_ticket) || before.is_some_and(|before| before != tail) {
        return Err(format!("the tail is {before:?}, and q says {tail} with {tail_ticket}"));
    }
    Ok(())
}

fn entry<'a>(fields: &mut Fields<'a>, id: &str) -> Result<(Entry, &'a str), String> {
    let mut entry = waiter(fields, id)?;
    let before = fields.take(64)?;
    (entry.mode, entry.units) = share(fields)?;
    entry.label = fields.0.to_owned();
    Ok((entry, before))
}

fn upgrade(text: &str) -> Result<Entry, String> {
    let mut fields = Fields(text);
    let id = fields.take(64)?;
    let mut entry = waiter(&mut fields, id)?;
    let of = fields.id()?.ok_or("an upgrade of nothing")?;
    entry.mode = Mode::Instead { id: of, token: fields.token()? };
    entry.units = number(&mut fields, 6)?;
    entry.label = fields.0.to_owned();
    Ok(entry)
}

/// Reads the part that the entry of a waiter and that of an upgrade have in common.
fn waiter(fields: &mut Fields<'_>, id: &str) -> Result<Entry, String> {
    let id = id.parse().map_err(|_| format!("an entry of {id:?}"))?;
    let limit_us = Some(fields.number(16)?).filter(|&limit| limit != 0);
    let (seen_us, ticket, claim_ms) = (fields.number(16)?, fields.number(16)?, fields.number(8)?);
    let (hears, order, lease_ms) = (fields.hears()?, fields.order()?, fields.number(8)?);
    let (units, mode, label, range) = (0, Mode::Plain, String::new(), 1);
    Ok(Entry { id, ticket, lease_ms, range, claim_ms, limit_us, seen_us, hears, order, units, mode, label })
}

fn share(fields: &mut Fields<'_>) -> Result<(Mode, u32), String> {
    let mode = match fields.take(1)? {
        "P" => Mode::Plain,
        "U" => Mode::Upgradeable,
        other => return Err(format!("no mode: {other:?}")),
    };
    Ok((mode, number(fields, 6)?))
}

fn number(fields: &mut Fields<'_>, len: usize) -> Result<u32, String> {
    u32::try_from(fields.number(len)?).map_err(|error| error.to_string())
}
