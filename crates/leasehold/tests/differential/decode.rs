//! Reads a record from Redis, in each of its encodings, independently of the scripts: it checks the form of every field
//! and both ends of every link of the queue, and nothing may be left over.

use std::collections::BTreeMap;

use leasehold_spec::{Entry, Grant, GrantId, GrantState, Hears, Lapse, Mode, Order, Resource, SessionId, Token};
use leasehold_testkit::{Resp, Value};

use crate::decode_pool::pool;

/// Reads a key in one round trip, unless its value is long: type, value, and end (ms since 1970).
const READ: &str = "local kind, key = redis.call('TYPE', KEYS[1]).ok, KEYS[1]
local value = false
if kind == 'string' then value = redis.call('GET', key) end
if kind == 'hash' and redis.call('HLEN', key) < 500 then value = redis.call('HGETALL', key) end
return { kind, value, redis.call('PEXPIRETIME', key) }";

/// A record as it is stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) resource: Resource,
    pub(crate) encoding: Encoding,
    /// The end of the key, in ms since 1970.
    pub(crate) expires_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A string without a queue. It contains no `keep`, which is read as 0.
    Short,
    /// A hash.
    Hash,
    /// The hash of a pool.
    Pool,
}

/// Returns the record that is stored under the key. `None` if the key does not exist.
pub(crate) fn look(resp: &mut Resp, key: &str) -> Result<Option<Stored>, String> {
    let answer = resp.command(&["EVAL", READ, "1", key]);
    let Some([kind, value, expires]) = answer.items() else { return Err(format!("not such a reply: {answer:?}")) };
    let (resource, encoding) = match kind.text() {
        Some("none") => return Ok(None),
        Some("string") => {
            let mut fields = Fields(value.text().ok_or("a record that is not UTF-8")?);
            let resource = record(&mut fields)?;
            fields.end()?;
            (resource, Encoding::Short)
        }
        Some("hash") => {
            let pairs = value.items().map_or_else(|| scan(resp, key), <[_]>::to_vec);
            let fields = fields(&pairs)?;
            let is_pool =
                |record: &&str| ["lh1W", "lh1S", "lh1V", "lh1L", "lh1B"].iter().any(|kind| record.starts_with(kind));
            match fields.get("r").is_some_and(is_pool) {
                true => (pool(fields)?, Encoding::Pool),
                false => (hash(fields)?, Encoding::Hash),
            }
        }
        other => return Err(format!("a key of type {other:?}")),
    };
    let expires_ms = expires.int().and_then(|ms| u64::try_from(ms).ok()).ok_or("a record that never ends")?;
    Ok(Some(Stored { resource, encoding, expires_ms }))
}

/// A long hash, in parts.
fn scan(resp: &mut Resp, key: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let answer = resp.command(&["HSCAN", key, &cursor, "COUNT", "500"]);
        let Some([next, Value::Array(part)]) = answer.items() else { return all };
        all.extend_from_slice(part);
        cursor = next.text().unwrap_or("0").to_owned();
        if cursor == "0" {
            return all;
        }
    }
}

/// Reads the part that both encodings have.
fn record(fields: &mut Fields<'_>) -> Result<Resource, String> {
    if fields.take(3)? != "lh1" {
        return Err("a record of another layout".into());
    }
    let state = fields.take(1)?;
    let last = fields.token()?;
    let id = fields.id()?;
    let length_ms = fields.number(8)?;
    let since_us = fields.number(16)?;
    let prev = fields.id()?;
    let range = fields.number(8)?;
    let label = fields.label()?;
    if state == "F" {
        return Ok(Resource { last, released: id, ..Resource::default() });
    }
    let state = grant_state(state)?;
    let id = id.ok_or("a grant without an id")?;
    let grant = Some(Grant { id, token: last, since_us, length_ms, state, units: 1, mode: Mode::Plain, label, range });
    Ok(Resource { last, grants: grant.into(), released: prev, ..Resource::default() })
}

/// Returns the values of a hash by their fields.
fn fields(pairs: &[Value]) -> Result<BTreeMap<&str, &str>, String> {
    let mut hash = BTreeMap::new();
    for pair in pairs.chunks(2) {
        let [field, value] = pair else { return Err("half a pair".into()) };
        hash.insert(field.text().ok_or("a field that is not UTF-8")?, value.text().ok_or("a value that is not UTF-8")?);
    }
    Ok(hash)
}

fn hash(mut hash: BTreeMap<&str, &str>) -> Result<Resource, String> {
    let mut take = |field: &str| hash.remove(field);
    let mut fields = Fields(take("r").ok_or("no field r")?);
    let mut resource = record(&mut fields)?;
    fields.end()?;
    let mut fields = Fields(take("q").ok_or("no field q")?);
    resource.keep_until_us = fields.number(16)?;
    let head = fields.take(64)?;
    let (count, strict) = (fields.number(5)?, fields.number(5)?);
    let (tail_ticket, tail) = (fields.number(16)?, fields.take(64)?);
    while !fields.0.is_empty() {
        resource.lapses.push(fields.lapse()?);
    }
    let (mut at, mut before) = (Some(head), None);
    while let Some(id) = at.filter(|_| count > 0) {
        let mut fields = Fields(take(&format!("e{id}")).ok_or("a link to no entry")?);
        let (entry, link) = fields.entry(id)?;
        if before.is_some_and(|before| before != link) {
            return Err(format!("{id} links back to {link}, and not to {before:?}"));
        }
        resource.queue.push_back(entry);
        before = Some(id);
        at = take(&format!("n{id}"));
    }
    let queue = &resource.queue;
    let stricts = queue.iter().filter(|entry| entry.order == Order::Strict).count() as u64;
    if (queue.len() as u64, stricts) != (count, strict) {
        return Err(format!("{} entries, {stricts} strict; q says {count}, {strict}", queue.len()));
    }
    let ticket = queue.back().map_or(tail_ticket, |entry| entry.ticket);
    if (before.unwrap_or(tail), ticket) != (tail, tail_ticket) {
        return Err(format!("the tail is {before:?} with {ticket}, and q says {tail} with {tail_ticket}"));
    }
    if !hash.is_empty() {
        return Err(format!("left over: {:?}", hash.keys()));
    }
    Ok(resource)
}

pub(crate) fn grant_state(letter: &str) -> Result<GrantState, String> {
    match letter {
        "H" => Ok(GrantState::Held),
        "P" => Ok(GrantState::Pushed),
        "R" => Ok(GrantState::Revoked),
        "C" => Ok(GrantState::CoolingDown),
        other => Err(format!("no state: {other:?}")),
    }
}

/// The fields of fixed width that are left of a text.
pub(crate) struct Fields<'a>(pub(crate) &'a str);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a str, String> {
        let (field, rest) = self.0.split_at_checked(len).ok_or_else(|| format!("too short: {:?}", self.0))?;
        self.0 = rest;
        Ok(field)
    }

    pub(crate) fn number(&mut self, len: usize) -> Result<u64, String> {
        let field = self.take(len)?;
        match field.bytes().all(|b| b.is_ascii_digit()) {
            true => field.parse().map_err(|e| format!("{field:?}: {e}")),
            false => Err(format!("not a number of {len} digits: {field:?}")),
        }
    }

    pub(crate) fn token(&mut self) -> Result<Token, String> {
        Token::new(self.number(16)?).ok_or_else(|| "a token beyond 2^53".into())
    }

    pub(crate) fn id(&mut self) -> Result<Option<GrantId>, String> {
        match self.take(64)? {
            field if field.bytes().all(|b| b == b'-') => Ok(None),
            field => field.parse().map(Some).map_err(|_| format!("no grant id: {field:?}")),
        }
    }

    fn label(&mut self) -> Result<String, String> {
        let len = self.number(3)?;
        Ok(self.take(usize::try_from(len).map_err(|e| e.to_string())?)?.to_owned())
    }

    pub(crate) fn lapse(&mut self) -> Result<Lapse, String> {
        let session = u128::from_str_radix(self.take(32)?, 16).map_err(|e| e.to_string())?;
        Ok(Lapse { session: SessionId(session), at_us: self.number(16)? })
    }

    /// Reads an entry, and the ID of the one before it.
    fn entry(&mut self, id: &str) -> Result<(Entry, &'a str), String> {
        let id = id.parse().map_err(|_| format!("an entry of {id:?}"))?;
        let limit_us = Some(self.number(16)?).filter(|&limit| limit != 0);
        let (seen_us, ticket, claim_ms) = (self.number(16)?, self.number(16)?, self.number(8)?);
        let (hears, order) = (self.hears()?, self.order()?);
        let lease_ms = self.number(8)?;
        let before = self.take(64)?;
        let range = self.number(8)?;
        let label = self.label()?;
        self.end()?;
        Ok((
            Entry {
                id,
                ticket,
                lease_ms,
                claim_ms,
                limit_us,
                seen_us,
                hears,
                order,
                units: 1,
                mode: Mode::Plain,
                label,
                range,
            },
            before,
        ))
    }

    pub(crate) fn hears(&mut self) -> Result<Hears, String> {
        match self.take(1)? {
            "L" => Ok(Hears::Listens),
            "P" => Ok(Hears::Polls),
            other => Err(format!("neither listens nor polls: {other:?}")),
        }
    }

    pub(crate) fn order(&mut self) -> Result<Order, String> {
        match self.take(1)? {
            "s" => Ok(Order::Strict),
            "r" => Ok(Order::Relaxed),
            other => Err(format!("neither strict nor relaxed: {other:?}")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("left over: {:?}", self.0)) }
    }
}
